//! IQ3_XXS: f16 `d`, 64 numbers of a grid; then each 32 elements have four times seven signs and a scale of 4 bits
//! (ggml's `block_iq3_xxs`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::u16_at,
    grids::{Grid, Steps, eighth_sign, iq3, to_iq3},
};

pub(super) const SPEC: Spec = Spec {
    name: "iq3_xxs",
    ggml_type: Some(18),
    block_len: 256,
    block_bytes: 98,
    elements: Elements::Codes {
        // A scale is `(s + 1/2) / 2` of the unit, or `2 s + 1` quarters of it.
        coding: Coding {
            bits: 4,
            meaning: Meaning::Table(&STEPS),
            scales: Scales::Signed { len: 32, over: 4 },
        },
        decode,
        encode,
    },
};

const STEPS: [i8; 16] = [-62, -52, -44, -36, -28, -20, -12, -4, 4, 12, 20, 28, 36, 44, 52, 62];
const LEVELS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
const GRID: Grid<4> = Grid(include_bytes!("grids/iq3_xxs.bin"));

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    let (numbers, rest) = bytes[2..].split_at(64);
    for (p, codes) in block.codes.chunks_exact_mut(32).enumerate() {
        let rest = u32::from_le_bytes([0, 1, 2, 3].map(|i| rest[4 * p + i]));
        block.scales[p] = 2 * (rest >> 28) as u8 + 1;
        for (i, codes) in codes.chunks_exact_mut(8).enumerate() {
            let two = [0, 1].map(|j| usize::from(numbers[8 * p + 2 * i + j]));
            iq3(&GRID, two, eighth_sign(rest >> (7 * i)), codes);
        }
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 32, 15, 62.0, 4.0);
    out.extend(steps.d.to_le_bytes());
    let mut rest: Vec<u32> = steps.bits.iter().map(|s| u32::from(*s) << 28).collect();
    for i in 0..32 {
        let (numbers, signs) = to_iq3(&GRID, steps.eight(values, i), &LEVELS, true);
        out.extend(numbers.map(|number| number as u8));
        rest[i / 4] |= u32::from(signs & 127) << (7 * (i % 4));
    }
    out.extend(rest.into_iter().flat_map(u32::to_le_bytes));
}
