//! What the integers of a format mean: value by code, and scales by group of codes.

use super::{bf16_to_f32, f16_to_f32};

/// Elements in the largest block.
pub(crate) const MOST: usize = 256;

/// How the codes of a block make values. With `v` the integer that a code stands for, a value is `v * d`, `v * d + m`,
/// `(d * s) * v` or `(d * s) * v - dmin * m`, each operation rounded in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    /// Bits of a code.
    pub(crate) bits: u32,
    pub(crate) meaning: Meaning,
    pub(crate) scales: Scales,
}

/// The integer that a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The code less this.
    Offset(u8),
    /// An entry of a table.
    Table(&'static [i8; 16]),
}

/// What codes are scaled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// One number for a block of 32, and perhaps a minimum.
    Block { unit: Unit, has_min: bool },
    /// A bf16 for each half of a block of 32.
    Halves,
    /// Small integers, one for each `len` (16 or 32) of a block of 256, in units of the block's number divided by `over`,
    /// a power of two: signed bytes.
    Signed { len: usize, over: u8 },
    /// As `Signed`, of up to 6 bits without a sign, each with a minimum of up to 6 bits in units of its own.
    WithMins { len: usize },
}

impl Scales {
    /// An f16 for each block.
    pub(crate) const F16: Self = Self::Block { unit: Unit::F16, has_min: false };
    /// An f16 and a minimum in f16 for each block.
    pub(crate) const F16_WITH_MIN: Self = Self::Block { unit: Unit::F16, has_min: true };
    /// A bf16 for each block.
    pub(crate) const BF16: Self = Self::Block { unit: Unit::BF16, has_min: false };
}

/// Type of the number that a block is scaled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    F16,
    BF16,
}

impl Unit {
    pub(crate) fn value(self, bits: u16) -> f32 {
        match self {
            Self::F16 => f16_to_f32(bits),
            Self::BF16 => bf16_to_f32(bits),
        }
    }
}

/// A block of a file, taken apart.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) codes: [u8; MOST],
    /// Bits of the scale or unit.
    pub(crate) d: u16,
    /// Bits of the minimum, or of its unit, or of the scale of the second half.
    pub(crate) dmin: u16,
    /// By sub-block; bytes with or without a sign.
    pub(crate) scales: [u8; 16],
    pub(crate) mins: [u8; 16],
}

impl Block {
    pub(crate) const EMPTY: Self = Self { codes: [0; MOST], d: 0, dmin: 0, scales: [0; 16], mins: [0; 16] };
}

/// Scale and minimum of a group of codes: value `v * scale + min`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) scale: f32,
    pub(crate) min: Option<f32>,
}

impl Coding {
    /// What a code less than `1 << bits` stands for.
    pub(crate) const fn value(self, code: u8) -> i32 {
        match self.meaning {
            Meaning::Offset(offset) => code as i32 - offset as i32,
            Meaning::Table(table) => table[code as usize] as i32,
        }
    }

    /// Elements that share a scale.
    pub(crate) const fn group_len(self) -> usize {
        match self.scales {
            Scales::Block { .. } => 32,
            Scales::Halves => 16,
            Scales::Signed { len, .. } | Scales::WithMins { len } => len,
        }
    }

    /// Whether groups have minima.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self.scales, Scales::Block { has_min: true, .. } | Scales::WithMins { .. })
    }

    /// Whether a block has a second number, [`Block::dmin`].
    pub(crate) const fn has_second(self) -> bool {
        self.has_min() || matches!(self.scales, Scales::Halves)
    }

    /// Whether a block has 256 codes in groups.
    pub(crate) const fn has_groups(self) -> bool {
        matches!(self.scales, Scales::Signed { .. } | Scales::WithMins { .. })
    }

    /// Scale and minimum of group `g` of a block.
    pub(crate) fn group(self, block: &Block, g: usize) -> Group {
        match self.scales {
            Scales::Block { unit, has_min } => {
                Group { scale: unit.value(block.d), min: has_min.then(|| unit.value(block.dmin)) }
            }
            Scales::Halves => {
                Group { scale: bf16_to_f32(if g == 0 { block.d } else { block.dmin }), min: None }
            }
            Scales::Signed { over, .. } => {
                let unit = f16_to_f32(block.d) / f32::from(over);
                Group { scale: unit * f32::from(block.scales[g].cast_signed()), min: None }
            }
            Scales::WithMins { .. } => Group {
                scale: f16_to_f32(block.d) * f32::from(block.scales[g]),
                min: Some(-(f16_to_f32(block.dmin) * f32::from(block.mins[g]))),
            },
        }
    }

    /// The values of a block, as many as `out` has room for.
    pub(crate) fn values(self, block: &Block, out: &mut [f32]) {
        let groups = block.codes.chunks_exact(self.group_len()).zip(out.chunks_mut(self.group_len()));
        for (g, (codes, out)) in groups.enumerate() {
            let Group { scale, min } = self.group(block, g);
            for (code, out) in codes.iter().zip(out) {
                *out = self.value(*code) as f32 * scale;
                if let Some(min) = min {
                    *out += min;
                }
            }
        }
    }
}

/// `x / unit` to the nearest whole number, or 0 if there is no unit.
pub(super) fn in_units(x: f32, unit: f32) -> f32 {
    if unit == 0.0 { 0.0 } else { (x / unit).round() }
}

/// The value farthest from zero, with its sign.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a: f32, b| if b.abs() > a.abs() { *b } else { a })
}

/// Splits bytes into nibbles: the first half of the codes are the low halves, the second half the high halves.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// Sets bit `bit` of code `32 s + at` to bit `s` of byte `at` of 32.
#[inline(always)]
pub(super) fn set_highest(bytes: &[u8], bit: u32, codes: &mut [u8]) {
    for (s, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code |= (byte >> s & 1) << bit;
        }
    }
}

/// Appends 32 codes, the low four bits of each, as [`nibbles`] reads them.
pub(super) fn push_nibbles(codes: &[u8], out: &mut Vec<u8>) {
    out.extend((0..16).map(|i| codes[i] & 15 | codes[i + 16] << 4));
}

/// Place in a table of the entry nearest to `x`.
pub(super) fn nearest(table: &[i8; 16], x: f32) -> u8 {
    let distance = |i: &u8| (f32::from(table[usize::from(*i)]) - x).abs();
    (0..16).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}
