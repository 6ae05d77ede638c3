//! Lays activations out in f32 and as bytes, in loops that become vectors of whichever features the caller enables.

use super::{
    activations::{Coded, F32_SUMS, Layout, Place},
    codes::Vector,
    packing::BLOCK,
};
use crate::{Norm, Rows, reference::CodedBlock};

/// Inputs that are worked on together: those of the largest block of codes, which share a scale.
const CHUNK: usize = 256;

/// Writes rows in groups of `group`, normalised first if asked by the factor that `scale` gives for a row and an
/// epsilon.
#[inline(always)]
pub(super) fn prepare<V: Vector>(
    v: V,
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scale: impl Fn(&[f32], f32) -> f32,
    scratch: &mut [u8],
) {
    for w in 0..x.width() {
        let row = x.row(w);
        let norm = norm.map(|norm| (scale(row, norm.eps), norm.weight));
        let place = Place::new(layout, group, x.width(), x.columns(), w);
        for (chunk, source) in row.chunks(CHUNK).enumerate() {
            let mut values = [0.0; CHUNK];
            values[..source.len()].copy_from_slice(source);
            if let Some((scale, gains)) = norm {
                for (value, gain) in values.iter_mut().zip(&gains[chunk * CHUNK..]) {
                    *value = *value * scale * gain;
                }
            }
            match layout {
                Layout::Coded(coded) => write_chunk(v, coded, place, chunk, source.len(), &values, scratch),
                Layout::F32 | Layout::F32Sums | Layout::Bf16 | Layout::Bf16Tiles => {
                    let blocks = values.as_chunks::<BLOCK>().0.iter().take(source.len().div_ceil(BLOCK));
                    for (b, block) in blocks.enumerate() {
                        write_values(layout, block, &mut scratch[place.block(8 * chunk + b)]);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn write_values(layout: Layout, values: &[f32; BLOCK], to: &mut [u8]) {
    for (to, value) in to.chunks_exact_mut(4).zip(values) {
        to.copy_from_slice(&value.to_ne_bytes());
    }
    match layout {
        Layout::F32 => {}
        Layout::F32Sums => {
            for (i, half) in values.as_chunks::<16>().0.iter().enumerate() {
                let mut chains = [0.0; 4];
                for four in half.as_chunks::<4>().0 {
                    chains.iter_mut().zip(four).for_each(|(chain, value)| *chain += value);
                }
                let sum: f32 = (chains[0] + chains[1]) + (chains[2] + chains[3]);
                to[F32_SUMS + 4 * i..][..4].copy_from_slice(&sum.to_ne_bytes());
            }
        }
        Layout::Bf16 | Layout::Bf16Tiles | Layout::Coded(_) => unreachable!("a layout of another kind"),
    }
}

/// Writes up to 256 values as codes.
#[inline(always)]
fn write_chunk<V: Vector>(
    v: V,
    coded: Coded,
    place: Place,
    chunk: usize,
    len: usize,
    values: &[f32; CHUNK],
    scratch: &mut [u8],
) {
    let (blocks, _) = values.as_chunks::<BLOCK>();
    let whole = coded.by_256.then(|| scale_and_inverse(largest(values)));
    let mut sums = [0_i16; 16];
    for (b, block) in blocks.iter().enumerate().take(len / BLOCK) {
        let (scale, inverse) = whole.unwrap_or_else(|| scale_and_inverse(largest(block)));
        let to = &mut scratch[place.block(8 * chunk + b)];
        let (bytes, to) = to.split_first_chunk_mut::<BLOCK>().expect("a row of a block of codes");
        // Not a number times zero is none.
        let pairs = if scale.is_nan() {
            bytes.fill(0);
            [[0; 2]; 2]
        } else {
            v.encode(block, inverse, bytes)
        };
        let [first, last] = pairs.map(|[a, b]| i32::from(a + b));
        let mut write = |at: usize, bytes: [u8; 4]| to[at - BLOCK..at - BLOCK + 4].copy_from_slice(&bytes);
        let both = [pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1]];
        let is_halved = coded.group_len == 16;
        write(Coded::START, start(coded, if is_halved { pairs[0] } else { both }));
        if is_halved {
            write(Coded::second_start(coded.by_256), start(coded, pairs[1]));
        }
        match (coded.by_256, is_halved) {
            (true, true) => (sums[2 * b], sums[2 * b + 1]) = (first as i16, last as i16),
            (true, false) => sums[b] = (first + last) as i16,
            (false, _) => write(Coded::SCALE, scale.to_ne_bytes()),
        }
        if !coded.by_256 && !is_halved {
            write(Coded::SCALED_SUM, (scale * (first + last) as f32).to_ne_bytes());
        }
    }
    if let Some((scale, _)) = whole {
        let to = &mut scratch[place.tail(chunk)];
        to[..4].copy_from_slice(&scale.to_ne_bytes());
        for (to, sum) in to[4..].chunks_exact_mut(2).zip(sums) {
            to.copy_from_slice(&sum.to_ne_bytes());
        }
    }
}

/// What sums of products start from, with the sums of the codes of the first and the last two of every four inputs.
#[inline(always)]
fn start(coded: Coded, [first, last]: [i16; 2]) -> [u8; 4] {
    let bias = -i16::from(coded.bias);
    if coded.is_split {
        let [a, b] = [first, last].map(|sum| bias.wrapping_mul(sum).to_ne_bytes());
        [a[0], a[1], b[0], b[1]]
    } else {
        (i32::from(bias) * i32::from(first + last)).to_ne_bytes()
    }
}

/// Largest magnitude, as bits: integers have the order of the numbers, and what is not finite comes last.
#[inline(always)]
fn largest(values: &[f32]) -> u32 {
    let mut largest = [0_u32; 16];
    for sixteen in values.as_chunks::<16>().0 {
        for (largest, value) in largest.iter_mut().zip(sixteen) {
            *largest = (*largest).max(value.to_bits() & 0x7fff_ffff);
        }
    }
    largest.into_iter().fold(0, u32::max)
}

/// Scale of a block and what its values are multiplied by, from the bits of its largest magnitude.
#[inline(always)]
fn scale_and_inverse(largest: u32) -> (f32, f32) {
    let magnitude = f32::from_bits(largest);
    if !magnitude.is_finite() {
        (f32::NAN, 0.0)
    } else if magnitude < CodedBlock::SMALLEST {
        (0.0, 0.0)
    } else {
        (magnitude / 127.0, 127.0 / magnitude)
    }
}
