//! Matrices in NVFP4, floats of 4 bits (E2M1) of which each 16 of a row have a float of 8 bits (E4M3), as blocks that have
//! their scales: what kernels read. A scale is scaled by the number of its matrix and rounded to the nearest bf16.

use std::ops::Range;

use super::float8::float8;
use ygg_kernels::WeightFormat;

/// Columns that share a scale.
pub(super) const GROUP: usize = 16;
/// The format that such matrices are read as.
pub(super) const AS: WeightFormat = WeightFormat::NVFP4;
/// Elements of a block of it.
const BLOCK: usize = AS.block_len();

/// Elements of a block of GGUF files, and its bytes: a scale for each group, then the codes.
pub(super) const FILE_BLOCK: usize = 64;
pub(super) const FILE_BLOCK_BYTES: usize = FILE_SCALES + FILE_BLOCK / 2;
const FILE_SCALES: usize = FILE_BLOCK / GROUP;

/// Scales and codes of a tensor, by the numbers of its groups and of its elements.
pub(super) trait Parts {
    fn scale(&self, group: usize) -> f32;
    fn code(&self, element: usize) -> u8;
}

/// Appends elements of a tensor, which are whole blocks.
pub(super) fn push_blocks(parts: &impl Parts, elements: Range<usize>, to: &mut Vec<u8>) {
    for first in elements.step_by(BLOCK) {
        for group in first / GROUP..(first + BLOCK) / GROUP {
            // Codes are counted in halves.
            to.extend(half::bf16::from_f32(0.5 * parts.scale(group)).to_le_bytes());
        }
        to.extend((first..first + BLOCK / 2).map(|at| parts.code(at) | parts.code(at + BLOCK / 2) << 4));
    }
}

/// A tensor of codes, two in a byte, the first in the low bits, and one of scales, as folders have them.
pub(super) struct Apart<'a> {
    pub(super) codes: &'a [u8],
    pub(super) scales: &'a [u8],
    /// The number of the matrix.
    pub(super) whole: f32,
    /// Whether scales are divided by it, else multiplied.
    pub(super) is_divisor: bool,
}

impl Parts for Apart<'_> {
    fn scale(&self, group: usize) -> f32 {
        let scale = float8(self.scales[group]);
        if self.is_divisor { scale / self.whole } else { scale * self.whole }
    }

    fn code(&self, element: usize) -> u8 {
        self.codes[element / 2] >> (4 * (element % 2)) & 15
    }
}

/// The blocks of a GGUF file: of every group the first half in the low bits of its bytes, the second in the high ones. As
/// ggml reads them, scales have no sign, and one that is no number is 0.
pub(super) struct InBlocks<'a> {
    blocks: &'a [u8],
    wholes: Vec<f32>,
    /// Groups of a matrix.
    of_matrix: usize,
}

impl<'a> InBlocks<'a> {
    /// Blocks of some matrices, and the number of each, if they have any.
    pub(super) fn new(blocks: &'a [u8], wholes: &[u8]) -> Self {
        let wholes: Vec<f32> = wholes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let groups = blocks.len() / FILE_BLOCK_BYTES * FILE_SCALES;
        Self { blocks, of_matrix: groups / wholes.len().max(1), wholes }
    }
}

impl Parts for InBlocks<'_> {
    fn scale(&self, group: usize) -> f32 {
        let code = self.blocks[group / FILE_SCALES * FILE_BLOCK_BYTES + group % FILE_SCALES] & 0x7f;
        let scale = if code == 0x7f { 0.0 } else { float8(code) };
        scale * self.wholes.get(group / self.of_matrix).copied().unwrap_or(1.0)
    }

    fn code(&self, element: usize) -> u8 {
        let (block, in_block) = (element / FILE_BLOCK, element % FILE_BLOCK);
        let (group, in_group, half) = (in_block / GROUP, in_block % GROUP, GROUP / 2);
        let byte = block * FILE_BLOCK_BYTES + FILE_SCALES + group * half + in_group % half;
        self.blocks[byte] >> (4 * (in_group / half)) & 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scales of 1, 1.5, 2^-9 and 448.
    const SCALES: [u8; 4] = [0x38, 0x3c, 0x01, 0x7e];
    const NUMBERS: [f32; 4] = [1.0, 1.5, 0.001_953_125, 448.0];

    fn values(parts: &impl Parts, elements: Range<usize>) -> Vec<f32> {
        let (mut bytes, mut values) = (Vec::new(), vec![f32::NAN; elements.len()]);
        push_blocks(parts, elements, &mut bytes);
        AS.dequantise_row(&bytes, &mut values);
        values
    }

    /// Every float, times a number.
    fn floats(by: f32) -> impl Iterator<Item = f32> {
        let floats = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        [1.0, -1.0].into_iter().flat_map(move |sign| floats.map(|x| sign * x * by))
    }

    #[test]
    fn nibbles_have_the_scale_of_their_group_and_of_all() {
        // Two rows of 32: every code in turn, the low nibble first.
        let codes: Vec<u8> = (0..32u8).map(|i| (2 * i % 16) | ((2 * i + 1) % 16) << 4).collect();
        for (is_divisor, by) in [(false, 4.0), (true, 0.25)] {
            let parts = Apart { codes: &codes, scales: &SCALES, whole: 4.0, is_divisor };
            let found = values(&parts, 0..64);
            for (found, scale) in found.chunks(16).zip(NUMBERS) {
                assert!(found.iter().copied().eq(floats(scale * by)), "{found:?}");
            }
            assert_eq!(values(&parts, 32..64), found[32..], "the second row");
        }
    }

    #[test]
    fn blocks_of_a_file_have_their_scales_in_front() {
        // Two matrices of one block, of which groups have every code: eight bytes, and the halves of a group in each.
        let of_group = (0..8u8).map(|i| i | (i + 8) << 4);
        let codes: Vec<u8> = std::iter::repeat_n(of_group, 4).flatten().collect();
        // A sign is none, and no number is nothing.
        let others = [0x80 | 0x38, 0x7f, 0xff, 0x38];
        let blocks = [&SCALES[..], &codes, &others, &codes].concat();
        let wholes: Vec<u8> = [2.0f32, 3.0].iter().flat_map(|whole| whole.to_le_bytes()).collect();
        let parts = InBlocks::new(&blocks, &wholes);
        let expected = NUMBERS.map(|scale| 2.0 * scale).into_iter().chain([3.0, 0.0, 0.0, 3.0]);
        for (found, scale) in values(&parts, 0..128).chunks(16).zip(expected) {
            assert!(found.iter().copied().eq(floats(scale)), "{scale}: {found:?}");
        }
        assert_eq!(values(&InBlocks::new(&blocks, &[]), 0..32)[1], 0.5, "without a number");
    }
}
