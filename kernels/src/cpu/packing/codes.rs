//! Blocks of codes, packed: 16 outputs by 32 or 256 inputs.
//!
//! For outputs `n` of the tile, in this order (kernels read a block from its start to its end):
//!
//! | block of 32 | block of 256 |
//! |---|---|
//! | 16-bit `d[n]`, perhaps minima `m[n]`, or the `d[n]` of second halves | scales, bytes `[group][n]` |
//! | codes of one part | codes of eight parts |
//! | | perhaps minima, bytes `[group/2][n][group%2]` |
//! | | f16 `d[n]`, perhaps f16 `dmin[n]` |
//!
//! Minima of groups of 16 are the high nibbles of the bytes of scales. A *part* is the codes of 32 inputs, in lines of
//! 64 bytes. A byte of a line belongs to output `n` and to the inputs `4 q + i` of some of the eight *quads* `q`: it is
//! byte `4 n + i`.
//!
//! | bits | lines of a part | what line `j` holds |
//! |---|---|---|
//! | 2 | 2 | bit pairs of quads `4 j .. 4 j + 4`, lowest first |
//! | 3 | 3 | as 2; line 2: the highest bit of quad `q` at bit `q` |
//! | 4 | 4 | nibbles of quads `2 j` and `2 j + 1`, the first low |
//! | 5 | 5 | as 4; line 4: the highest bit of quad `q` at bit `q` |
//! | 6 | 6 | of each half, three lines: quads 0 to 2 in the low six bits, and above them bits 4-5, 2-3, 0-1 of quad 3 |
//! | 8 | 8 | quad `j` |

use super::TILE;
use crate::format::{Block, Coding, Meaning, Scales};
use std::array;

/// Inputs of a part.
pub(in crate::cpu) const PART: usize = 32;
/// Bytes of a line.
const LINE: usize = 4 * TILE;

/// Where the fields of a packed block are.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct CodeLayout {
    /// Parts of a block.
    pub(in crate::cpu) parts: usize,
    pub(in crate::cpu) scales: usize,
    pub(in crate::cpu) codes: usize,
    pub(in crate::cpu) part_bytes: usize,
    pub(in crate::cpu) mins: usize,
    pub(in crate::cpu) d: usize,
    pub(in crate::cpu) dmin: usize,
    /// Bytes of a block.
    pub(in crate::cpu) bytes: usize,
}

impl CodeLayout {
    pub(in crate::cpu) const fn of(coding: Coding) -> Self {
        let part_bytes = coding.bits as usize * LINE;
        let numbers = 2 * TILE * if coding.has_second() { 2 } else { 1 };
        match coding.scales {
            Scales::Block { .. } | Scales::Halves => Self {
                parts: 1,
                scales: 0,
                d: 0,
                dmin: 2 * TILE,
                codes: numbers,
                part_bytes,
                mins: 0,
                bytes: numbers + part_bytes,
            },
            Scales::Signed { len, .. } | Scales::WithMins { len } => {
                let groups = 256 / len;
                let codes = groups * TILE;
                let mins = codes + 8 * part_bytes;
                let d = mins + if coding.has_min() && len == 32 { groups * TILE } else { 0 };
                let (dmin, bytes) = (d + 2 * TILE, d + numbers);
                Self { parts: 8, scales: 0, codes, part_bytes, mins, d, dmin, bytes }
            }
        }
    }

    /// Inputs of a block.
    pub(in crate::cpu) const fn inputs(self) -> usize {
        self.parts * PART
    }
}

/// Name of the layout of codes, for people: `4 bits, f16 scale per 32`.
pub(super) fn describe(coding: Coding) -> String {
    let planes = match coding.bits {
        3 => "2+1 bits".to_owned(),
        5 => "4+1 bits".to_owned(),
        6 => "4+2 bits".to_owned(),
        bits => format!("{bits} bits"),
    };
    let values = match coding.meaning {
        Meaning::Offset(_) => "",
        Meaning::Table(_) => " through a table",
    };
    let scales = match coding.scales {
        Scales::Block { has_min: false, .. } => "scale per 32".to_owned(),
        Scales::Block { has_min: true, .. } => "scale and minimum per 32".to_owned(),
        Scales::Halves => "scale per 16".to_owned(),
        Scales::Signed { len, .. } => format!("integer scale per {len}, unit per 256"),
        Scales::WithMins { len } => format!("integer scale and minimum per {len}, units per 256"),
    };
    format!("{planes}{values}, {scales}")
}

/// Writes a packed block from the blocks of a tile's outputs. Inlined where the coding is a constant, so that no byte
/// asks for it.
#[inline(always)]
pub(super) fn write(coding: Coding, outputs: &[Block; TILE], to: &mut [u8]) {
    let layout = CodeLayout::of(coding);
    let to = &mut to[..layout.bytes];
    for (n, block) in outputs.iter().enumerate() {
        to[layout.d + 2 * n..][..2].copy_from_slice(&block.d.to_le_bytes());
        if coding.has_second() {
            to[layout.dmin + 2 * n..][..2].copy_from_slice(&block.dmin.to_le_bytes());
        }
        if coding.has_groups() {
            for g in 0..256 / coding.group_len() {
                let scale = &mut to[layout.scales + g * TILE + n];
                *scale = block.scales[g];
                match coding.scales {
                    Scales::WithMins { len: 16 } => *scale |= block.mins[g] << 4,
                    Scales::WithMins { .. } => {
                        to[layout.mins + g / 2 * 2 * TILE + 2 * n + g % 2] = block.mins[g];
                    }
                    Scales::Block { .. } | Scales::Halves | Scales::Signed { .. } => {}
                }
            }
        }
    }
    let codes = to[layout.codes..].chunks_exact_mut(layout.part_bytes);
    for (p, codes) in codes.take(layout.parts).enumerate() {
        write_part(coding.bits, &quads(outputs, PART * p), codes);
    }
}

/// Codes of a part `[quad][output]`, four inputs in a number.
type Quads = [[u32; TILE]; 8];

/// The quads of the part that begins at code `first`.
#[inline(always)]
fn quads(outputs: &[Block; TILE], first: usize) -> Quads {
    let mut quads = [[0; TILE]; 8];
    for half in 0..2 {
        for n in (0..TILE).step_by(4) {
            let at = first + 16 * half;
            let four = transposed(array::from_fn(|i| {
                let bytes = outputs[n + i].codes[at..at + 16].as_chunks::<4>().0;
                array::from_fn(|q| u32::from_le_bytes(bytes[q]))
            }));
            for (quads, four) in quads[4 * half..].iter_mut().zip(four) {
                quads[n..n + 4].copy_from_slice(&four);
            }
        }
    }
    quads
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transposed(rows: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    use std::arch::x86_64::{
        __m128i, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
    };
    // SAFETY: both are 16 bytes of which any bits are lawful, and every x86-64 processor has SSE2.
    unsafe {
        let [a, b, c, d] = rows.map(|row| std::mem::transmute::<[u32; 4], __m128i>(row));
        let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let (high_ab, high_cd) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        let columns = [
            _mm_unpacklo_epi64(ab, cd),
            _mm_unpackhi_epi64(ab, cd),
            _mm_unpacklo_epi64(high_ab, high_cd),
            _mm_unpackhi_epi64(high_ab, high_cd),
        ];
        columns.map(|column| std::mem::transmute::<__m128i, [u32; 4]>(column))
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn transposed(rows: [[u32; 4]; 4]) -> [[u32; 4]; 4] {
    array::from_fn(|column| array::from_fn(|row| rows[row][column]))
}

/// The same bits of each of four codes.
const fn every(mask: u32) -> u32 {
    mask * 0x0101_0101
}

/// Writes the lines of a part.
#[inline(always)]
fn write_part(bits: u32, quads: &Quads, to: &mut [u8]) {
    match bits {
        2 | 3 => {
            for j in 0..2 {
                let pair = |i: usize, n: usize| (quads[4 * j + i][n] & every(3)) << (2 * i);
                write_line(to, j, |n| pair(0, n) | pair(1, n) | pair(2, n) | pair(3, n));
            }
        }
        4 | 5 => {
            for j in 0..4 {
                let [low, high] = [&quads[2 * j], &quads[2 * j + 1]];
                write_line(to, j, |n| low[n] & every(15) | (high[n] & every(15)) << 4);
            }
        }
        6 => {
            for j in 0..6 {
                let (half, i) = (j / 3, j % 3);
                let [own, spare] = [&quads[4 * half + i], &quads[4 * half + 3]];
                write_line(to, j, |n| own[n] | (spare[n] >> (4 - 2 * i) & every(3)) << 6);
            }
        }
        _ => {
            for (j, quad) in quads.iter().enumerate() {
                write_line(to, j, |n| quad[n]);
            }
        }
    }
    if let 3 | 5 = bits {
        let mut highest = [0; TILE];
        for (q, quad) in quads.iter().enumerate() {
            for (word, quad) in highest.iter_mut().zip(quad) {
                *word |= (quad >> (bits - 1) & every(1)) << q;
            }
        }
        write_line(to, bits as usize - 1, |n| highest[n]);
    }
}

/// Writes line `j` of a part, four bytes for each output.
#[inline(always)]
fn write_line(part: &mut [u8], j: usize, word: impl Fn(usize) -> u32) {
    let line = part[LINE * j..][..LINE].as_chunks_mut::<4>().0;
    for (n, bytes) in line.iter_mut().enumerate() {
        *bytes = word(n).to_le_bytes();
    }
}

/// Reads output `n` of a packed block back.
pub(super) fn read(coding: Coding, from: &[u8], n: usize, block: &mut Block) {
    let layout = CodeLayout::of(coding);
    let number = |at: usize| u16::from_le_bytes([from[at + 2 * n], from[at + 2 * n + 1]]);
    block.d = number(layout.d);
    if coding.has_second() {
        block.dmin = number(layout.dmin);
    }
    if coding.has_groups() {
        for g in 0..256 / coding.group_len() {
            let scale = from[layout.scales + g * TILE + n];
            (block.scales[g], block.mins[g]) = match coding.scales {
                Scales::WithMins { len: 16 } => (scale & 15, scale >> 4),
                Scales::WithMins { .. } => (scale, from[layout.mins + g / 2 * 2 * TILE + 2 * n + g % 2]),
                Scales::Block { .. } | Scales::Halves | Scales::Signed { .. } => (scale, 0),
            };
        }
    }
    for (k, code) in block.codes[..layout.inputs()].iter_mut().enumerate() {
        let part = &from[layout.codes + k / PART * layout.part_bytes..];
        *code = code_of(coding.bits, part, n, k % PART);
    }
}

/// Code of output `n` and input `k` of a part.
fn code_of(bits: u32, part: &[u8], n: usize, k: usize) -> u8 {
    let (q, lane) = (k / 4, 4 * n + k % 4);
    let byte = |line: usize| part[LINE * line + lane];
    let pair = || byte(q / 4) >> (q % 4 * 2) & 3;
    let nibble = || byte(q / 2) >> (q % 2 * 4) & 15;
    match bits {
        2 => pair(),
        3 => pair() | (byte(2) >> q & 1) << 2,
        4 => nibble(),
        5 => nibble() | (byte(4) >> q & 1) << 4,
        6 => {
            let (first, i) = (q / 4 * 3, q % 4);
            if i < 3 {
                byte(first + i) & 63
            } else {
                byte(first) >> 6 << 4 | byte(first + 1) >> 6 << 2 | byte(first + 2) >> 6
            }
        }
        _ => byte(q),
    }
}
