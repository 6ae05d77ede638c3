//! Blocks of the K formats, packed: 16 outputs by 256 inputs, all parts on cache lines.
//!
//! For outputs `n` of the tile, sub-blocks `s` and inputs `k`:
//!
//! | format | layout |
//! |---|---|
//! | q4_k | f16 `d[n]`, f16 `dmin[n]`, bytes `[s][scale or min][n]`, then 256 bytes of nibbles a sub-block |
//! | q6_k | f16 `d[n]`, 32 bytes of zeros, signed bytes `[s][n]`, then 192 bytes of 6-bit codes a sub-block |
//!
//! Nibbles lie as in the other formats. Codes of 6 bits are three 16-bit words `[3][n][k%2]` with eight column pairs: word
//! `i` has pairs `3 i` and `3 i + 1` in its low 12 bits; pairs 2 and 5 have their low bits on top of words 0 and 1, their
//! high bits on top of word 2. The 6 low bits of a shifted word are the index of a table of all 64 codes.

use super::{BLOCK, TILE, nibble, nibble_at};
use crate::format::{
    self, K_BLOCK, Q4_K_SUB, Q6_K_BIAS, Q6_K_D, Q6_K_SUB, f16_to_f32, q4_k_code, q6_k_code, q6_k_scale,
};

/// Place of the scales of sub-blocks.
pub(in crate::cpu) const SCALES: usize = 4 * TILE;
/// Place of the codes, in both formats.
pub(in crate::cpu) const CODES: usize = SCALES + 16 * TILE;
/// Sub-blocks of q4_k.
pub(in crate::cpu) const Q4_K_SUBS: usize = K_BLOCK / Q4_K_SUB;
/// Sub-blocks of q6_k.
pub(in crate::cpu) const Q6_K_SUBS: usize = K_BLOCK / Q6_K_SUB;
/// Bytes of a q4_k sub-block's codes.
pub(in crate::cpu) const Q4_K_CODES: usize = TILE * Q4_K_SUB / 2;
/// Bytes of one of the three words of a q6_k sub-block.
pub(in crate::cpu) const Q6_K_WORD: usize = 4 * TILE;
/// Bytes of a q6_k sub-block's codes.
pub(in crate::cpu) const Q6_K_CODES: usize = 3 * Q6_K_WORD;
/// Bytes of a packed q4_k block.
pub(super) const Q4_K_BYTES: usize = CODES + Q4_K_SUBS * Q4_K_CODES;
/// Bytes of a packed q6_k block.
pub(super) const Q6_K_BYTES: usize = CODES + Q6_K_SUBS * Q6_K_CODES;

// A q4_k sub-block is one block of prepared activations, and two of q6_k are.
const _: () = assert!(Q4_K_SUB == BLOCK && 2 * Q6_K_SUB == BLOCK);
const _: () = assert!(2 * Q4_K_SUBS == Q6_K_SUBS);

/// Writes a q4_k block of the file as output `n`.
pub(super) fn write_q4_k(block: &mut [u8], n: usize, source: &[u8]) {
    block[2 * n..][..2].copy_from_slice(&source[..2]);
    block[2 * TILE + 2 * n..][..2].copy_from_slice(&source[2..4]);
    for s in 0..Q4_K_SUBS {
        let (scale, min) = format::q4_k_scale_min(source, s);
        block[SCALES + 2 * s * TILE + n] = scale;
        block[SCALES + (2 * s + 1) * TILE + n] = min;
        let codes = &mut block[CODES + s * Q4_K_CODES..];
        for k in 0..Q4_K_SUB {
            let (at, shift) = nibble_at(n, k);
            codes[at] |= q4_k_code(source, s * Q4_K_SUB + k) << shift;
        }
    }
}

/// Writes a q6_k block of the file as output `n`.
pub(super) fn write_q6_k(block: &mut [u8], n: usize, source: &[u8]) {
    block[2 * n..][..2].copy_from_slice(&source[Q6_K_D..][..2]);
    for s in 0..Q6_K_SUBS {
        block[SCALES + s * TILE + n] = q6_k_scale(source, s).cast_unsigned();
        for parity in 0..2 {
            let code = |pair: usize| u16::from(q6_k_code(source, s * Q6_K_SUB + 2 * pair + parity));
            let words = [
                code(0) | code(1) << 6 | code(2) << 12,
                code(3) | code(4) << 6 | code(5) << 12,
                code(6) | code(7) << 6 | code(2) >> 4 << 12 | code(5) >> 4 << 14,
            ];
            for (i, word) in words.into_iter().enumerate() {
                block[q6_k_word_at(s, i, n, parity)..][..2].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// Byte of word `i` of sub-block `s`, for output `n` and columns of a parity.
fn q6_k_word_at(s: usize, i: usize, n: usize, parity: usize) -> usize {
    CODES + s * Q6_K_CODES + i * Q6_K_WORD + 4 * n + 2 * parity
}

/// Code of column pair `pair` of the three words of a sub-block.
fn q6_k_pair(words: [u16; 3], pair: usize) -> u8 {
    let word = match pair {
        2 => words[0] >> 12 | words[2] >> 8 & 0x30,
        5 => words[1] >> 12 | words[2] >> 10 & 0x30,
        _ => words[pair / 3] >> (pair % 3 * 6),
    };
    (word & 63) as u8
}

fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Scale and minimum of output `n` in sub-block `s` of a packed q4_k block, in its units.
pub(in crate::cpu) fn q4_k_scale_min(block: &[u8], s: usize, n: usize) -> (u8, u8) {
    (block[SCALES + 2 * s * TILE + n], block[SCALES + (2 * s + 1) * TILE + n])
}

/// Values of output `n` in sub-block `s` of a packed q4_k block: the meaning of the format, bit for bit.
pub(in crate::cpu) fn q4_k_values(block: &[u8], s: usize, n: usize) -> impl Iterator<Item = f32> {
    let (scale, min) = q4_k_scale_min(block, s, n);
    let scale = half(block, 2 * n) * f32::from(scale);
    let min = half(block, 2 * TILE + 2 * n) * f32::from(min);
    let codes = &block[CODES + s * Q4_K_CODES..];
    (0..Q4_K_SUB).map(move |k| scale * f32::from(nibble(codes, n, k)) - min)
}

/// As [`q4_k_values`], of a packed q6_k block.
pub(in crate::cpu) fn q6_k_values(block: &[u8], s: usize, n: usize) -> impl Iterator<Item = f32> {
    let scale = half(block, 2 * n) * f32::from(block[SCALES + s * TILE + n].cast_signed());
    let words = [0, 1].map(|parity| {
        [0, 1, 2].map(|i| {
            let at = q6_k_word_at(s, i, n, parity);
            u16::from_le_bytes([block[at], block[at + 1]])
        })
    });
    (0..Q6_K_SUB).map(move |k| scale * (f32::from(q6_k_pair(words[k % 2], k / 2)) - f32::from(Q6_K_BIAS)))
}
