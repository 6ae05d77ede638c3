//! IQ1_S: f16 `d`, 32 numbers of a grid of 11 bits, the lower 8 first; then each 32 elements have the rest of their four
//! numbers, a scale of 3 bits, and whether all are an eighth more or less (ggml's `block_iq1_s`).

use super::{
    Block, Coding, Elements, Meaning, Scales, Spec,
    coding::u16_at,
    grids::{Grid, IQ1_STEPS, Steps, iq1, to_iq1},
};

pub(super) const SPEC: Spec = Spec {
    name: "iq1_s",
    ggml_type: Some(19),
    block_len: 256,
    block_bytes: 50,
    elements: Elements::Codes { coding: CODING, decode, encode },
};

/// A scale is `2 s + 1` units, in eighths of which elements are. IQ1_M has scales of 16 elements.
pub(super) const CODING: Coding =
    Coding { bits: 3, meaning: Meaning::Table(&IQ1_STEPS), scales: Scales::Signed { len: 16, over: 8 } };
pub(super) const GRID: Grid<8> = Grid(include_bytes!("grids/iq1_s.bin"));

#[inline(always)]
fn decode(bytes: &[u8], block: &mut Block) {
    block.d = u16_at(bytes, 0);
    for (p, codes) in block.codes.chunks_exact_mut(32).enumerate() {
        let rest = usize::from(u16_at(bytes, 34 + 2 * p));
        block.scales[2 * p..][..2].fill(2 * (rest >> 12 & 7) as u8 + 1);
        for (i, codes) in codes.chunks_exact_mut(8).enumerate() {
            let number = usize::from(bytes[2 + 4 * p + i]) | (rest >> (3 * i) & 7) << 8;
            iq1(&GRID, number, rest >> 15 == 0, codes);
        }
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let steps = Steps::new(values, 32, 7, 9.0, 8.0);
    out.extend(steps.d.to_le_bytes());
    let mut rests = Vec::new();
    for (p, s) in steps.bits.iter().enumerate() {
        let of =
            |is_more: bool| [0, 1, 2, 3].map(|i| to_iq1(&GRID, &steps.eight(values, 4 * p + i), is_more));
        let distance = |found: &[(usize, f32); 4]| found.iter().map(|(_, square)| square).sum::<f32>();
        let (less, more) = (of(false), of(true));
        let is_less = distance(&less) < distance(&more);
        let mut rest = u16::from(*s) << 12 | u16::from(is_less) << 15;
        for (i, (number, _)) in if is_less { less } else { more }.into_iter().enumerate() {
            out.push(number as u8);
            rest |= (number >> 8 << (3 * i)) as u16;
        }
        rests.push(rest);
    }
    out.extend(rests.into_iter().flat_map(u16::to_le_bytes));
}
