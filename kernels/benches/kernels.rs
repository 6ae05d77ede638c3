//! Kernels alone, on one thread, by criterion: linears of every format with either kind of activations, attention,
//! candidates, norms, in every tier here; and packing of weights.
//!
//! Weights of one linear stay in a cache from call to call, so these figures are of arithmetic; what memory allows is
//! shown by `yggc bench --kernels`. The elements of a linear and of attention are multiplications and additions.

use std::hint::black_box;

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
    measurement::WallTime,
};
use ygg_kernels::{
    Activations, Attention, Choice, KvFormat, KvLayer, Matrix, Norm, Rope, RopePairing, RopeTable, Rows,
    RowsMut, Scoring, Tails, Tier, WeightFormat,
    candidates::{candidate_columns, ranges},
    cpu::{Epilogue, FoundLayout, Kernels, PackedLinear, TILE, attention_scratch_bytes},
    noise::NoiseKey,
};

/// A small MLP, which has few enough bytes to stay in a cache: `D`, whole blocks of every format, and `F`.
const COLUMNS: usize = 768;
const OUTPUTS: usize = 1536;
/// Its attention.
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const VOCABULARY: usize = 49_152;
/// Bytes of the file that packing is measured on, about.
const PACKED_BYTES: usize = 32 << 20;

fn tiers() -> impl Iterator<Item = Kernels> {
    Tier::ALL.into_iter().filter_map(Kernels::for_tier)
}

/// Reproducible values between -1 and 1.
fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 7 & 0xffff) as f32 / 32_768.0 - 1.0).collect()
}

/// Bytes on a vector boundary.
struct Scratch(Vec<u8>);

impl Scratch {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes + 64])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(64);
        &mut self.0[skip..]
    }
}

fn id(kernels: Kernels, width: usize) -> BenchmarkId {
    let tier = kernels.tier().name();
    match kernels.activations() {
        Activations::Native => BenchmarkId::new(tier, width),
        Activations::Int8 => BenchmarkId::new(format!("{tier}, int8"), width),
    }
}

/// Every class of linears over weights in `format`.
fn classes(format: WeightFormat) -> impl Iterator<Item = Kernels> {
    let known =
        Activations::ALL.into_iter().filter(move |activations| activations.over(format) == *activations);
    known.flat_map(|activations| tiers().map(move |kernels| kernels.with_activations(activations)))
}

fn linear_of(group: &mut BenchmarkGroup<'_, WallTime>, format: WeightFormat, weights: &PackedLinear) {
    for kernels in classes(format) {
        for width in [1, 4, 16, 64] {
            let x = values(width * COLUMNS);
            let mut out = vec![0.0; width * OUTPUTS];
            let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, width, COLUMNS));
            group.throughput(Throughput::Elements((2 * width * COLUMNS * OUTPUTS) as u64));
            group.bench_function(id(kernels, width), |bencher| {
                bencher.iter(|| {
                    let x = kernels.prepare(format, Rows::new(&x, COLUMNS), None, scratch.bytes());
                    let out = RowsMut::new(&mut out, OUTPUTS);
                    kernels.linear(weights, &x, 0..weights.tiles(), Epilogue::Store, out);
                });
                black_box(&out);
            });
        }
    }
}

fn linear(criterion: &mut Criterion) {
    for format in WeightFormat::ALL {
        let mut bytes = Vec::new();
        for row in values(OUTPUTS * COLUMNS).chunks(COLUMNS) {
            format.quantise_row(row, &mut bytes);
        }
        let matrix = Matrix::new(format, OUTPUTS, COLUMNS, &bytes).expect("whole blocks");
        let weights = PackedLinear::stack(&[matrix]).expect("one matrix");
        linear_of(&mut criterion.benchmark_group(format!("linear.{format}")), format, &weights);
    }
}

/// Throughput counts the bytes of the file. The matrix is beyond the caches of a core, as those of a model are.
fn packing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packing");
    for format in WeightFormat::ALL {
        let mut rows = Vec::new();
        for row in values(TILE * COLUMNS).chunks(COLUMNS) {
            format.quantise_row(row, &mut rows);
        }
        let bytes = rows.repeat(PACKED_BYTES / rows.len());
        let outputs = PACKED_BYTES / rows.len() * TILE;
        let matrix = Matrix::new(format, outputs, COLUMNS, &bytes).expect("whole blocks");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format.name(), |bencher| {
            bencher.iter(|| PackedLinear::stack(&[black_box(matrix)]).expect("one matrix"));
        });
    }
}

fn attention(criterion: &mut Criterion) {
    for context in [200, 1000] {
        let mut group = criterion.benchmark_group(format!("attention.f16/context {context}"));
        for kernels in tiers() {
            for width in [1, 16] {
                attention_of(&mut group, kernels, context, width);
            }
        }
    }
}

/// Rows that all see the prefix and themselves.
fn attention_of(group: &mut BenchmarkGroup<'_, WallTime>, kernels: Kernels, context: usize, width: usize) {
    let slots = context + width;
    let bytes = KvLayer::bytes(KvFormat::F16, KV_HEADS, slots, HEAD_DIM);
    // 0x3800 is a half.
    let (mut keys, mut stored) = (vec![0x3800_u16; bytes / 2], vec![0x3800_u16; bytes / 2]);
    let (keys, stored) = (keys.as_mut_ptr().cast(), stored.as_mut_ptr().cast());
    // SAFETY: both hold as many bytes as asked for, finite numbers, and outlive the view; nothing else touches them.
    let kv = unsafe { KvLayer::from_raw(keys, stored, KvFormat::F16, KV_HEADS, slots, HEAD_DIM) };
    let queries = values(width * HEADS * HEAD_DIM);
    let table = RopeTable::new(&[0.5; HEAD_DIM / 2], 1.0, slots);
    let positions: Vec<u32> = (context..slots).map(|slot| slot as u32).collect();
    let tails = Tails {
        positions: &positions,
        prefix: &vec![context as u32; width],
        tail_len: &vec![1; width],
        tails: &positions,
        tail_capacity: 1,
    };
    let args = Attention {
        queries: Rows::new(&queries, HEADS * HEAD_DIM),
        rope: Some(Rope { table: &table, pairing: RopePairing::Halves }),
        kv,
        tails,
        heads: HEADS,
        scoring: Scoring::scaled(0.125),
        sinks: None,
    };
    let mut scratch = Scratch::new(attention_scratch_bytes(HEAD_DIM));
    let mut out = vec![0.0; queries.len()];
    group.throughput(Throughput::Elements((4 * width * (context + 1) * HEADS * HEAD_DIM) as u64));
    group.bench_function(id(kernels, width), |bencher| {
        bencher.iter(|| {
            let out = RowsMut::new(&mut out, HEADS * HEAD_DIM);
            kernels.attention(&args, 0..args.units(), scratch.bytes(), out);
        });
        black_box(&out);
    });
}

fn candidates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("candidates");
    let row = values(VOCABULARY);
    group.throughput(Throughput::Elements(VOCABULARY as u64));
    for kernels in tiers() {
        for (k, temperature) in [(1, None), (1, Some(1.0)), (8, Some(1.0)), (64, Some(1.0))] {
            let choice = Choice { k, temperature };
            let layout = FoundLayout::new(1, VOCABULARY, k, 1);
            let mut found = Scratch::new(layout.bytes());
            let mut out = vec![0.0; candidate_columns(k)];
            let what = if temperature.is_some() { "log-probabilities" } else { "logits" };
            group.bench_function(BenchmarkId::new(format!("{} {what}", kernels.tier()), k), |bencher| {
                bencher.iter(|| {
                    let part = layout.part(&mut found.bytes()[..layout.part_bytes()]);
                    kernels.candidates(
                        Rows::new(black_box(&row), VOCABULARY),
                        0..ranges(VOCABULARY),
                        (choice, None),
                        part,
                    );
                    let (found, out) =
                        (&found.bytes()[..layout.bytes()], RowsMut::new(&mut out, candidate_columns(k)));
                    kernels.merge_candidates(&layout, found, 0..1, choice, out);
                });
                black_box(&out);
            });
        }
    }
}

/// Draws from a row: a position after another, since what is looked at depends on the noise.
fn race(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("race");
    for (vocabulary, spread) in [(49_152, 8.0), (151_936, 8.0), (151_936, 0.1)] {
        let row: Vec<f32> = values(vocabulary).iter().map(|x| spread * x).collect();
        group.throughput(Throughput::Elements(vocabulary as u64));
        for kernels in tiers() {
            let id = BenchmarkId::new(format!("{} spread {spread}", kernels.tier()), vocabulary);
            group.bench_function(id, |bencher| {
                let mut place = 0_u32;
                bencher.iter(|| {
                    place = place.wrapping_add(0x9E37_79B9);
                    kernels.race(black_box(&row), 1.0, NoiseKey([place, !place, 1, 2]), |_| true)
                });
            });
        }
    }
}

fn rms_norm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rms_norm");
    let gain = values(COLUMNS);
    group.throughput(Throughput::Elements(COLUMNS as u64));
    for kernels in tiers() {
        let x = values(COLUMNS);
        let mut out = vec![0.0; COLUMNS];
        group.bench_function(id(kernels, 1), |bencher| {
            bencher.iter(|| {
                let norm = Norm { weight: &gain, eps: 1e-5 };
                let out = RowsMut::new(&mut out, COLUMNS);
                kernels.rms_norm(Rows::new(black_box(&x), COLUMNS), norm, 0..1, out);
            });
            black_box(&out);
        });
    }
}

criterion_group!(benches, linear, packing, attention, candidates, race, rms_norm);
criterion_main!(benches);
