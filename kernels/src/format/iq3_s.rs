//! IQ3_S: f16 `d`, 64 numbers of a grid of 9 bits, the lower 8 first, all signs, 4-bit scales of 32 elements (ggml's
//! `block_iq3_s`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::u16_at,
    grids::{Grid, Steps, iq3, to_iq3},
};

pub(super) const SPEC: Spec = Spec {
    name: "iq3_s",
    ggml_type: Some(21),
    block_len: 256,
    block_bytes: 110,
    elements: Elements::Codes {
        coding: Coding {
            bits: 4,
            meaning: Meaning::Table(&STEPS),
            scales: Scales::Signed { len: 32, over: 1 },
        },
        decode,
        encode,
    },
};

const STEPS: [i8; 16] = [-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15];
const LEVELS: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
const GRID: Grid<4> = Grid(include_bytes!("grids/iq3_s.bin"));

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    for (i, codes) in block.codes.chunks_exact_mut(8).enumerate() {
        let high = usize::from(bytes[66 + i / 4] >> (2 * (i % 4)));
        let two = [0, 1].map(|j| usize::from(bytes[2 + 2 * i + j]) | (high >> j & 1) << 8);
        iq3(&GRID, two, bytes[74 + i], codes);
    }
    for (p, scale) in block.scales[..8].iter_mut().enumerate() {
        *scale = 2 * (bytes[106 + p / 2] >> (4 * (p % 2)) & 15) + 1;
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 32, 15, 15.0, 1.0);
    out.extend(steps.d.to_le_bytes());
    let found: Vec<([usize; 2], u8)> =
        (0..32).map(|i| to_iq3(&GRID, steps.eight(values, i), &LEVELS, false)).collect();
    let numbers: Vec<usize> = found.iter().flat_map(|(two, _)| *two).collect();
    out.extend(numbers.iter().map(|number| *number as u8));
    for eight in numbers.chunks_exact(8) {
        out.push(eight.iter().rev().fold(0, |bits, number| bits << 1 | (number >> 8) as u8));
    }
    out.extend(found.iter().map(|(_, signs)| *signs));
    out.extend(steps.bits.chunks_exact(2).map(|two| two[0] | two[1] << 4));
}
