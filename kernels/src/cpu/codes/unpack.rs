//! Codes of a packed part as unsigned bytes, four inputs of each output at a time.

use super::Vector;
use crate::{
    cpu::packing::{CodeLayout, TILE},
    format::{Kind, Meaning},
};

/// Bytes of a plane's line: four inputs of every output of a tile.
const LINE: usize = 4 * TILE;

/// What a [`Kind`] is for the kernels.
pub(super) trait Codes: Kind {
    const LAYOUT: CodeLayout = CodeLayout::of(Self::CODING);
    /// What bytes are above the integers that codes stand for.
    const BIAS: u8 = bias(Self::CODING.meaning);
    /// The largest byte.
    const LARGEST: i32 = match Self::CODING.meaning {
        Meaning::Offset(_) => (1 << Self::CODING.bits) - 1,
        Meaning::Table(table) => extremes(table).1 + Self::BIAS as i32,
    };
    /// Whether bytes are too large for sums of 16 bits and, in part, for signed ones, and are taken with their signs
    /// there.
    const IS_WIDE: bool = Self::LARGEST > 63;
    /// Entries of the table, made unsigned.
    const TABLE: [u8; 16] = match Self::CODING.meaning {
        Meaning::Offset(_) => [0; 16],
        Meaning::Table(table) => {
            let mut bytes = [0; 16];
            let mut i = 0;
            while i < 16 {
                bytes[i] = (table[i] as i32 + Self::BIAS as i32) as u8;
                i += 1;
            }
            bytes
        }
    };
}

impl<K: Kind> Codes for K {}

/// What must be added to the integers that codes stand for, so that none is below zero: for large ones 128, so that
/// without it they are signed bytes.
pub(in crate::cpu) const fn bias(meaning: Meaning) -> u8 {
    match meaning {
        Meaning::Offset(offset) => offset,
        Meaning::Table(table) => {
            let (least, greatest) = extremes(table);
            if greatest - least > 63 { 128 } else { -least as u8 }
        }
    }
}

/// Whether the bytes of a kind have more than six bits.
pub(in crate::cpu) const fn is_wide(bits: u32, meaning: Meaning) -> bool {
    bits > 6 || bias(meaning) == 128
}

const fn extremes(table: &[i8; 16]) -> (i32, i32) {
    let (mut least, mut greatest) = (0, 0);
    let mut i = 0;
    while i < 16 {
        let value = table[i] as i32;
        if value < least {
            least = value;
        }
        if value > greatest {
            greatest = value;
        }
        i += 1;
    }
    (least, greatest)
}

/// Inputs `4 q .. 4 q + 4` of a part of 32.
///
/// # Safety
/// `codes` points to the first byte of a part's codes, or of the upper outputs in its first line; `q` is below 8.
#[inline(always)]
pub(super) unsafe fn quad<V: Vector, K: Kind>(v: V, codes: *const u8, q: usize) -> V::Bytes {
    // SAFETY: promised by the caller.
    unsafe {
        let stored = stored::<V, K>(v, codes, q);
        match K::CODING.meaning {
            Meaning::Offset(_) => stored,
            Meaning::Table(_) => v.look_up(&K::TABLE, stored),
        }
    }
}

/// As [`quad`], magnitudes and signed bytes, for wide codes.
///
/// # Safety
/// As `quad`.
#[inline(always)]
pub(super) unsafe fn quad_with_signs<V: Vector, K: Kind>(v: V, codes: *const u8, q: usize) -> [V::Bytes; 2] {
    // SAFETY: promised by the caller.
    let signed = v.minus(unsafe { quad::<V, K>(v, codes, q) }, K::BIAS);
    [v.magnitudes(signed), signed]
}

/// Codes as the file has them. See [`CodeLayout`] for the planes.
///
/// # Safety
/// As [`quad`].
#[inline(always)]
unsafe fn stored<V: Vector, K: Kind>(v: V, codes: *const u8, q: usize) -> V::Bytes {
    // SAFETY: promised by the caller: a part of `bits` bits has as many lines.
    unsafe {
        let line = |i: usize| v.bytes(codes.add(i * LINE));
        match const { K::CODING.bits } {
            2 => two_bits(v, line(q / 4), q % 4),
            3 => {
                let high = v.and(bit(v, line(2), q, 2), 4);
                v.or(two_bits(v, line(q / 4), q % 4), high)
            }
            4 => nibble(v, line(q / 2), q % 2),
            5 => {
                let high = v.and(bit(v, line(4), q, 4), 16);
                v.or(nibble(v, line(q / 2), q % 2), high)
            }
            6 if q % 4 < 3 => v.and(line(q / 4 * 3 + q % 4), 63),
            6 => {
                let first = q / 4 * 3;
                let high = v.and(v.down::<2>(line(first)), 48);
                let middle = v.and(v.down::<4>(line(first + 1)), 12);
                let low = v.and(v.down::<6>(line(first + 2)), 3);
                v.or(v.or(high, middle), low)
            }
            8 => line(q),
            bits => unreachable!("no layout for codes of {bits} bits"),
        }
    }
}

/// Nibble 0 or 1 of each byte.
#[inline(always)]
fn nibble<V: Vector>(v: V, line: V::Bytes, place: usize) -> V::Bytes {
    v.and(if place == 0 { line } else { v.down::<4>(line) }, 15)
}

/// Bit pair 0, 1, 2 or 3 of each byte.
#[inline(always)]
fn two_bits<V: Vector>(v: V, line: V::Bytes, place: usize) -> V::Bytes {
    let shifted = match place {
        0 => line,
        1 => v.down::<2>(line),
        2 => v.down::<4>(line),
        _ => v.down::<6>(line),
    };
    v.and(shifted, 3)
}

/// Bit `from` of each byte at place `to`, between others.
#[inline(always)]
fn bit<V: Vector>(v: V, line: V::Bytes, from: usize, to: usize) -> V::Bytes {
    match to as isize - from as isize {
        4 => v.up::<4>(line),
        3 => v.up::<3>(line),
        2 => v.up::<2>(line),
        1 => v.up::<1>(line),
        0 => line,
        -1 => v.down::<1>(line),
        -2 => v.down::<2>(line),
        -3 => v.down::<3>(line),
        -4 => v.down::<4>(line),
        _ => v.down::<5>(line),
    }
}
