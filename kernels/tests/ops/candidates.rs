//! Candidates against the reference, by equality: of rows of logits, and of the products that a linear would store.

use super::tiers;
use proptest::prelude::*;
use ygg_kernels::{
    Matrix, Norm, Rows, RowsMut, WeightFormat,
    candidates::{Choice, RANGE, RowNoise, candidate_columns, ranges},
    cpu::{Epilogue, FoundLayout, Kernels, PackedLinear, head_scratch_bytes},
    noise::NoiseKey,
    reference,
    testing::{Noise, Scratch, bits, matrix},
};

/// Logits with ties, numbers that are none, and ends.
fn logits(len: usize, levels: usize, noise: &mut Noise) -> Vec<f32> {
    let special = [f32::NAN, -f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0];
    let one = |noise: &mut Noise| {
        let level = noise.below(levels + special.len());
        special.get(level).copied().unwrap_or(level as f32 / 3.0 - 10.0)
    };
    // Sometimes ordinary throughout, and sometimes not a number in whole ranges.
    match noise.below(4) {
        0 => noise.values(len).iter().map(|x| 20.0 * x).collect(),
        1 => (0..len).map(|i| if (i / RANGE).is_multiple_of(2) { f32::NAN } else { one(noise) }).collect(),
        _ => (0..len).map(|_| one(noise)).collect(),
    }
}

fn choice(noise: &mut Noise, most: usize) -> Choice {
    let temperature = [None, Some(1.0), Some(0.3), Some(1e-40), Some(1.9)][noise.below(5)];
    Choice { k: 1 + noise.below(most), temperature }
}

fn key(noise: &mut Noise) -> NoiseKey {
    NoiseKey([(); 4].map(|()| noise.bits() as u32))
}

/// The candidates that `threads` threads find, each in its even share of the ranges.
fn found(
    kernels: Kernels,
    layout: FoundLayout,
    (threads, vocabulary, most): (usize, usize, usize),
    choice: Choice,
    rows: usize,
    find: impl Fn(std::ops::Range<usize>, ygg_kernels::cpu::FoundPart<'_>),
) -> Vec<f32> {
    let mut memory = Scratch::new(layout.bytes());
    let all = ranges(vocabulary);
    let (base, extra) = (all / threads, all % threads);
    let mut first = 0;
    for (thread, part) in memory.bytes()[..layout.bytes()].chunks_exact_mut(layout.part_bytes()).enumerate() {
        let end = first + base + usize::from(thread < extra);
        find(first..end, layout.part(part));
        first = end;
    }
    assert_eq!(first, all);
    let columns = candidate_columns(most);
    let mut out = vec![f32::NAN; rows * columns];
    for r in (0..rows).rev() {
        let parts = &memory.bytes()[..layout.bytes()];
        kernels.merge_candidates(&layout, parts, r..r + 1, choice, RowsMut::new(&mut out, columns));
    }
    out
}

/// Bits of what means something in rows of candidates.
fn said(rows: &[f32], most: usize) -> Vec<Vec<u32>> {
    let row = |row: &[f32]| {
        let count = row[0].to_bits() as usize;
        bits(&[&row[..1], &row[1..][..count], &row[1 + most..][..count]].concat())
    };
    rows.chunks(candidate_columns(most)).map(row).collect()
}

proptest! {
    #[test]
    fn candidates_of_logits_are_those_of_the_reference(
        rows in 1usize..4,
        vocabulary in prop_oneof![1usize..40, 200usize..300, 250usize..2000],
        most in prop_oneof![1usize..12, Just(64usize), Just(2500usize)],
        levels in 1usize..50,
        threads in 1usize..5,
        is_noisy: bool,
        is_trimmed: bool,
        seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let data: Vec<f32> = (0..rows).flat_map(|_| logits(vocabulary, levels, &mut noise)).collect();
        let data = Rows::new(&data, vocabulary);
        let choice = choice(&mut noise, most);
        let columns = candidate_columns(most);
        let keys: Vec<NoiseKey> = (0..rows).map(|_| key(&mut noise)).collect();
        let tokens: Vec<u32> = (0..vocabulary as u32).map(|place| 3 * place).collect();
        let by_noise = RowNoise { keys: &keys, temperature: 0.7, tokens: is_trimmed.then_some(&tokens) };
        let by_noise = is_noisy.then_some(by_noise);
        let choice = if is_noisy { Choice { temperature: None, ..choice } } else { choice };
        let mut expected = vec![f32::NAN; rows * columns];
        reference::candidates(data, choice, by_noise, RowsMut::new(&mut expected, columns));
        let layout = FoundLayout::new(rows, vocabulary, most, threads);
        for kernels in tiers() {
            let found = found(kernels, layout, (threads, vocabulary, most), choice, rows, |ranges, part| {
                kernels.candidates(data, ranges, (choice, by_noise), part);
            });
            prop_assert_eq!(said(&found, most), said(&expected, most), "{}, {:?}", kernels.tier(), choice);
        }
    }

    /// Products of any format, normalised or not, at any width; some of them not numbers, whole rows of equal ones.
    #[test]
    fn candidates_of_a_head_are_those_of_its_logits(
        f in 0..WeightFormat::ALL.len(),
        vocabulary in prop_oneof![1usize..40, 250usize..700],
        width in 1usize..20,
        threads in 1usize..4,
        is_normed: bool,
        is_noisy: bool,
        seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let format = WeightFormat::ALL[f];
        let columns = 64_usize.next_multiple_of(format.block_len());
        let mut bytes = matrix(format, vocabulary, columns, &mut noise);
        let row_bytes = bytes.len() / vocabulary;
        for _ in 0..noise.below(8) {
            let [from, to] = [(); 2].map(|()| noise.below(vocabulary) * row_bytes);
            bytes.copy_within(from..from + row_bytes, to);
        }
        let packed = PackedLinear::stack(&[Matrix::new(format, vocabulary, columns, &bytes).unwrap()]).unwrap();
        let (mut x, gain) = (noise.values(width * columns), noise.values(columns));
        if noise.below(3) == 0 {
            x[noise.below(width * columns)] = f32::NAN;
        }
        let norm = is_normed.then_some(Norm { weight: &gain, eps: 1e-5 });
        let keys: Vec<NoiseKey> = (0..width).map(|_| key(&mut noise)).collect();
        let by_noise = RowNoise { keys: &keys, temperature: 1.3, tokens: None };
        let by_noise = is_noisy.then_some(by_noise);
        let choice = choice(&mut noise, 9);
        let choice = if is_noisy { Choice { temperature: None, ..choice } } else { choice };
        let layout = FoundLayout::new(width, vocabulary, 9, threads);
        for kernels in tiers() {
            let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, width, columns));
            let x = kernels.prepare(format, Rows::new(&x, columns), norm, scratch.bytes());
            let mut logits = vec![0.0; width * vocabulary];
            kernels.linear(&packed, &x, 0..packed.tiles(), Epilogue::Store, RowsMut::new(&mut logits, vocabulary));
            let mut expected = vec![f32::NAN; width * candidate_columns(9)];
            let logits = Rows::new(&logits, vocabulary);
            reference::candidates(logits, choice, by_noise, RowsMut::new(&mut expected, candidate_columns(9)));
            let found = found(kernels, layout, (threads, vocabulary, 9), choice, width, |ranges, part| {
                let mut scratch = Scratch::new(head_scratch_bytes(width));
                kernels.head_candidates(&packed, &x, ranges, (choice, by_noise), scratch.bytes(), part);
            });
            prop_assert_eq!(said(&found, 9), said(&expected, 9), "{} {}", format, kernels.tier());
        }
    }
}

#[test]
fn a_part_is_used_anew() {
    let (row, choice) = ([3.0, 1.0, 2.0], Choice { k: 3, temperature: Some(1.0) });
    let layout = FoundLayout::new(1, 3, 3, 1);
    let mut memory = Scratch::new(layout.bytes());
    let mut rows = Vec::new();
    for _ in 0..2 {
        let part = layout.part(&mut memory.bytes()[..layout.part_bytes()]);
        Kernels::portable().candidates(Rows::new(&row, 3), 0..1, (choice, None), part);
        let mut out = [0.0; candidate_columns(3)];
        let parts = &memory.bytes()[..layout.bytes()];
        Kernels::portable().merge_candidates(&layout, parts, 0..1, choice, RowsMut::new(&mut out, 7));
        rows.push(bits(&out));
    }
    assert_eq!(rows[0], rows[1]);
    assert_eq!(rows[0][..4], [3, 0, 2, 1]);
}
