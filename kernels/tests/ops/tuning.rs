//! Tunings of a linear: each gives the bits of the default, in every tier and format.

use super::linears as ways;
use proptest::prelude::*;
use ygg_kernels::{
    Matrix, Nonlinearity, Norm, Rows, RowsMut, WeightFormat,
    cpu::{Ahead, Epilogue, Kernels, PackedLinear, Streams, Tuning},
    testing::{Noise, Scratch, bits, matrix},
};

/// A normed linear of all tiles but the first, added into `out`, or a gated one.
fn run(kernels: Kernels, weights: &PackedLinear, x: Rows<'_>, tuning: Tuning, noise: &[f32]) -> Vec<f32> {
    let norm = Norm { weight: &noise[..x.columns()], eps: 1e-5 };
    let mut scratch = Scratch::new(kernels.linear_scratch_bytes(weights.format(), x.width(), x.columns()));
    let prepared = kernels.prepare_tuned(weights.format(), x, Some(norm), tuning, scratch.bytes());
    let mut out = noise[..x.width() * weights.outputs()].to_vec();
    let (tiles, view) = (1..weights.tiles(), RowsMut::new(&mut out, weights.outputs()));
    if weights.is_gated() {
        kernels.linear_gated(Nonlinearity::Silu, weights, &prepared, tiles, view);
    } else {
        kernels.linear(weights, &prepared, tiles, Epilogue::AddInto, view);
    }
    out
}

/// A plain and a gated linear of `outputs` by `columns`.
fn linears(format: WeightFormat, outputs: usize, columns: usize, noise: &mut Noise) -> [PackedLinear; 2] {
    let bytes = [(); 2].map(|()| matrix(format, outputs, columns, noise));
    let [gate, up] = [0, 1].map(|i| Matrix::new(format, outputs, columns, &bytes[i]).unwrap());
    [PackedLinear::stack(&[gate]).unwrap(), PackedLinear::gated(&gate, &up).unwrap()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tuning_gives_the_bits_of_the_default(
        f in 0..WeightFormat::ALL.len(), outputs in 17usize..200, blocks in 1usize..4, width in 1usize..40,
        rows in 1usize..=64, tiles in 1usize..12, streams in 1usize..=2,
        ahead in proptest::option::of(0usize..20_000), in_pairs: bool,
        seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = blocks * format.block_len().max(32);
        let mut noise = Noise::new(seed);
        let x = noise.values(width * columns);
        let others = noise.values((width * outputs).max(columns));
        let distance = if in_pairs { Ahead::Pairs } else { Ahead::Bytes };
        let tuning = Tuning::new(rows, tiles, Streams::Count(streams), ahead.map_or(Ahead::Tile, distance)).unwrap();
        for weights in linears(format, outputs, columns, &mut noise) {
            for kernels in ways() {
                let [expected, found] = [Tuning::DEFAULT, tuning]
                    .map(|tuning| run(kernels, &weights, Rows::new(&x, columns), tuning, &others));
                prop_assert_eq!(bits(&expected), bits(&found), "{} {}", kernels.tier(), tuning);
            }
        }
    }
}

/// All that a plan can choose, at every width that has a choice of its own.
#[test]
fn every_candidate_gives_the_bits_of_the_default() {
    let mut noise = Noise::new(11);
    let outputs = 150;
    for format in WeightFormat::ALL {
        let columns = format.block_len().max(96);
        let x = noise.values(64 * columns);
        let others = noise.values(64 * outputs);
        for weights in linears(format, outputs, columns, &mut noise) {
            for kernels in ways() {
                for width in [1, 3, 8, 9, 12, 16, 20, 33, 64] {
                    let x = Rows::new(&x[..width * columns], columns);
                    let expected = bits(&run(kernels, &weights, x, Tuning::DEFAULT, &others));
                    for tuning in Tuning::candidates(kernels.tier(), format, width) {
                        let found = run(kernels, &weights, x, tuning, &others);
                        assert_eq!(bits(&found), expected, "{format} at width {width}: {tuning}");
                    }
                }
            }
        }
    }
}
