//! Matrices of floats of 8 bits (E4M3: one sign, four bits of exponent, three of mantissa) or of 4 (E2M1), with a scale
//! for every block, as BF16: the product of an element and its scale, to the nearest. So Hugging Face transformers
//! dequantises the first, and compressed-tensors NVFP4, whose scales are floats of 8 bits, scaled by a number for all.
//! GGUF files have NVFP4 too, in blocks as gguf-py dequantises them.

use ygg_kernels::WeightFormat;

/// Columns that share a scale in NVFP4.
pub(super) const NVFP4_GROUP: usize = 16;
/// Elements of a block of NVFP4 that has its scales, as GGUF files have it, and its bytes: a scale for each group, then
/// the codes.
pub(super) const NVFP4_BLOCK: usize = 64;
pub(super) const NVFP4_BLOCK_BYTES: usize = NVFP4_SCALES + NVFP4_BLOCK / 2;
const NVFP4_SCALES: usize = NVFP4_BLOCK / NVFP4_GROUP;

/// How codes lie.
#[derive(Clone, Copy)]
enum Lie {
    /// One in a byte.
    Bytes,
    /// Two in a byte, the first in the low bits.
    Nibbles,
    /// In blocks with scales: of every group the first half in the low bits of its bytes, the second in the high ones.
    Blocks,
}

impl Lie {
    /// The byte of an element, and by how many bits its code is shifted.
    fn place(self, element: usize) -> (usize, usize) {
        match self {
            Lie::Bytes => (element, 0),
            Lie::Nibbles => (element / 2, 4 * (element % 2)),
            Lie::Blocks => {
                let (block, in_block) = (element / NVFP4_BLOCK, element % NVFP4_BLOCK);
                let (group, in_group) = (in_block / NVFP4_GROUP, in_block % NVFP4_GROUP);
                let half = NVFP4_GROUP / 2;
                let byte = block * NVFP4_BLOCK_BYTES + NVFP4_SCALES + group * half + in_group % half;
                (byte, 4 * (in_group / half))
            }
        }
    }
}

/// Some matrices of one shape, one after the other, and their scales.
pub(super) struct Matrices<'a> {
    codes: &'a [u8],
    lie: Lie,
    /// Of a matrix.
    rows: usize,
    columns: usize,
    /// Of a block.
    block: [usize; 2],
    /// By matrix, by row of blocks, by block.
    scales: Vec<f32>,
    /// By code.
    values: Vec<f32>,
}

impl<'a> Matrices<'a> {
    /// Floats of 8 bits, a tensor of `shape`, with a scale for every block of so many rows and columns, in a dense
    /// format.
    ///
    /// # Panics
    /// If scales are fewer or more than there are blocks: joining checks it.
    pub(super) fn of_float8(
        shape: &[usize],
        codes: &'a [u8],
        (format, block): (WeightFormat, [usize; 2]),
        scales: &[u8],
    ) -> Self {
        let mut numbers = vec![0.0; scales.len() / format.block_bytes()];
        format.dequantise_row(scales, &mut numbers);
        let values = (0..=u8::MAX).map(float8).collect();
        Self::new(shape, (codes, Lie::Bytes), block, numbers, values)
    }

    /// Floats of 4 bits, a tensor of `shape`, with a scale in 8 bits for every [`NVFP4_GROUP`] of a row and one number
    /// for all, which scales are multiplied or divided by.
    ///
    /// # Panics
    /// As [`of_float8`](Self::of_float8).
    pub(super) fn of_nvfp4(
        shape: &[usize],
        codes: &'a [u8],
        scales: &[u8],
        whole: f32,
        is_divisor: bool,
    ) -> Self {
        let scaled = |code: &u8| if is_divisor { float8(*code) / whole } else { float8(*code) * whole };
        let numbers = scales.iter().map(scaled).collect();
        let values = (0..16).map(float4).collect();
        Self::new(shape, (codes, Lie::Nibbles), [1, NVFP4_GROUP], numbers, values)
    }

    /// Floats of 4 bits, a tensor of `shape`, in blocks that have a scale in 8 bits for every [`NVFP4_GROUP`]; all of a
    /// matrix are multiplied by its number among `wholes`, if there are any. As ggml reads them, scales have no sign, and
    /// one that is no number is 0.
    pub(super) fn of_nvfp4_blocks(shape: &[usize], blocks: &'a [u8], wholes: &[u8]) -> Self {
        let wholes: Vec<f32> = wholes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let scale = |code: u8| if code & 0x7f == 0x7f { 0.0 } else { float8(code & 0x7f) };
        let all = blocks.chunks_exact(NVFP4_BLOCK_BYTES).flat_map(|block| &block[..NVFP4_SCALES]);
        let of_matrix = blocks.len() / NVFP4_BLOCK_BYTES * NVFP4_SCALES / wholes.len().max(1);
        let numbers = all.enumerate().map(|(place, code)| {
            let whole = wholes.get(place / of_matrix.max(1)).copied().unwrap_or(1.0);
            scale(*code) * whole
        });
        let values = (0..16).map(float4).collect();
        Self::new(shape, (blocks, Lie::Blocks), [1, NVFP4_GROUP], numbers.collect(), values)
    }

    fn new(
        shape: &[usize],
        (codes, lie): (&'a [u8], Lie),
        block: [usize; 2],
        scales: Vec<f32>,
        values: Vec<f32>,
    ) -> Self {
        let [ref outer @ .., rows, columns] = *shape else { panic!("a matrix has two dimensions") };
        let blocks = rows.div_ceil(block[0]) * columns.div_ceil(block[1]);
        assert_eq!(scales.len(), outer.iter().product::<usize>() * blocks, "scales of {shape:?}");
        Self { codes, lie, rows, columns, block, scales, values }
    }

    /// Appends `count` elements in BF16, from element `first` of the tensor on and then every `step`th.
    pub(super) fn push_row(&self, first: usize, step: usize, count: usize, to: &mut Vec<u8>) {
        let [high, wide] = self.block;
        for element in (first..).step_by(step).take(count) {
            let (row, column) = (element / self.columns, element % self.columns);
            let (matrix, row) = (row / self.rows, row % self.rows);
            let blocks = self.columns.div_ceil(wide);
            let of_row = matrix * self.rows.div_ceil(high) + row / high;
            let value = self.values[self.code(element)] * self.scales[of_row * blocks + column / wide];
            to.extend(half::bf16::from_f32(value).to_le_bytes());
        }
    }

    fn code(&self, element: usize) -> usize {
        let (byte, shift) = self.lie.place(element);
        usize::from(self.codes[byte]) >> shift & (self.values.len() - 1)
    }
}

/// The format that such floats are read as: it holds what dequantising rounds their products to.
pub(super) const AS: WeightFormat = WeightFormat::BF16;

/// The value of a float of 4 bits: one sign, two bits of exponent, one of mantissa (OCP Microscaling Formats 1.0,
/// section 5.3.3).
fn float4(code: u8) -> f32 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code >> 3 == 0 { magnitude } else { -magnitude }
}

/// The value of a float of 8 bits.
fn float8(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if code >> 7 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_of_the_format() {
        let some = [0x00, 0x01, 0x07, 0x08, 0x38, 0x3c, 0x7e, 0xfe, 0xb8];
        let expected = [0.0, 0.001953125, 0.013671875, 0.015625, 1.0, 1.5, 448.0, -448.0, -1.0];
        assert_eq!(some.map(float8), expected);
        assert!(float8(0x7f).is_nan() && float8(0xff).is_nan());
        let all: Vec<f32> = (0..0x7f).map(float8).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_element_has_the_scale_of_its_block() {
        // Two matrices of 3 by 5 in blocks of 2 by 4: of every matrix four, of which three are cut.
        let scales: Vec<u8> = (0..8u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        let codes = [0x38; 30];
        let matrices = Matrices::of_float8(&[2, 3, 5], &codes, (WeightFormat::F32, [2, 4]), &scales);
        let row = |first, step, count| row(&matrices, first, step, count);
        assert_eq!(row(0, 1, 5), [0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(row(10, 1, 5), [2.0, 2.0, 2.0, 2.0, 3.0]);
        assert_eq!(row(15, 1, 5), [4.0, 4.0, 4.0, 4.0, 5.0]);
        assert_eq!(row(19, 5, 3), [5.0, 5.0, 7.0], "a column of the second");
    }
    #[test]
    fn nibbles_have_the_scale_of_their_group_and_of_all() {
        // Two rows of 32: every code in turn, the low nibble first.
        let codes: Vec<u8> = (0..32u8).map(|i| (2 * i % 16) | ((2 * i + 1) % 16) << 4).collect();
        // 1, 1.5, 2^-9 and 448.
        let scales = [0x38, 0x3c, 0x01, 0x7e];
        let floats = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (whole, is_divisor, by) in [(4.0, false, 4.0), (4.0, true, 0.25)] {
            let matrices = Matrices::of_nvfp4(&[2, 32], &codes, &scales, whole, is_divisor);
            for (group, scale) in [1.0, 1.5, 0.001953125, 448.0].into_iter().enumerate() {
                let found = row(&matrices, 16 * group, 1, 16);
                let expected = [1.0, -1.0].into_iter().flat_map(|sign| floats.map(|x| sign * x * scale * by));
                assert!(found.into_iter().eq(expected), "group {group}, {by}");
            }
            assert_eq!(row(&matrices, 18, 32, 2), [1.5 * by, 448.0 * by], "a column");
        }
    }

    fn row(matrices: &Matrices<'_>, first: usize, step: usize, count: usize) -> Vec<f32> {
        let mut found = Vec::new();
        matrices.push_row(first, step, count, &mut found);
        let two = found.as_chunks::<2>().0.iter();
        two.map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect()
    }
}
