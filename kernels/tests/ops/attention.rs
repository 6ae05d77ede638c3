//! KV ops: tolerance against the reference; equality over slots, splits of prefix and tail, widths and unit ranges.

use super::tiers;
use proptest::prelude::*;
use ygg_kernels::{
    AppendKv, Attention, KvFormat, KvLayer, Rope, RopePairing, RopeTable, Rows, RowsMut, Scoring, Tails,
    cpu::{Kernels, attention_scratch_bytes},
    reference,
    testing::{Noise, Scratch, bits},
};

/// A layer's memory, filled with finite noise.
struct Cache {
    keys: Scratch,
    values: Scratch,
    format: KvFormat,
    shape: (usize, usize, usize),
}

impl Cache {
    fn new(format: KvFormat, kv_heads: usize, slots: usize, head_dim: usize, noise: &mut Noise) -> Self {
        let bytes = KvLayer::bytes(format, kv_heads, slots, head_dim);
        let mut cache = Self {
            keys: Scratch::new(bytes),
            values: Scratch::new(bytes),
            format,
            shape: (kv_heads, slots, head_dim),
        };
        let columns = kv_heads * head_dim;
        let all: Vec<u32> = (0..slots as u32).collect();
        let (keys, values) = (noise.values(slots * columns), noise.values(slots * columns));
        let keys: Vec<_> = keys.iter().map(|x| x * 50.0).collect();
        reference::append_kv(&AppendKv {
            keys: Rows::new(&keys, columns),
            values: Rows::new(&values, columns),
            positions: &all,
            slots: &all,
            rope: None,
            kv: cache.layer(),
        });
        cache
    }

    fn layer(&mut self) -> KvLayer<'_> {
        let (kv_heads, slots, head_dim) = self.shape;
        let (keys, values) = (self.keys.bytes().as_mut_ptr(), self.values.bytes().as_mut_ptr());
        // SAFETY: both buffers have the bytes of the shape and are borrowed mutably.
        unsafe { KvLayer::from_raw(keys, values, self.format, kv_heads, slots, head_dim) }
    }

    /// Copies slot `from` of `other` to slot `to`.
    fn copy_slot(&mut self, to: usize, other: &mut Self, from: usize) {
        // SAFETY: the caches are two, and borrowed mutably.
        unsafe { self.layer().copy_slot_of(&other.layer(), from, to) };
    }
}

/// Owned form of [`Tails`].
#[derive(Clone, Default)]
struct Sight {
    positions: Vec<u32>,
    prefix: Vec<u32>,
    tails: Vec<Vec<u32>>,
}

impl Sight {
    fn with<T>(&self, see: impl FnOnce(Tails<'_>) -> T) -> T {
        let tail_capacity = self.tails.iter().map(Vec::len).max().unwrap_or(0) + 1;
        let tail_len: Vec<_> = self.tails.iter().map(|tail| tail.len() as u32).collect();
        let mut tails = vec![u32::MAX; self.tails.len() * tail_capacity];
        for (row, tail) in tails.chunks_mut(tail_capacity).zip(&self.tails) {
            row[..tail.len()].copy_from_slice(tail);
        }
        see(Tails {
            positions: &self.positions,
            prefix: &self.prefix,
            tail_len: &tail_len,
            tails: &tails,
            tail_capacity,
        })
    }
}

struct Case {
    heads: usize,
    table: RopeTable,
    pairing: RopePairing,
    scoring: Scoring,
    sinks: Option<Vec<f32>>,
}

impl Case {
    fn new(group: usize, shape: (usize, usize, usize), noise: &mut Noise) -> Self {
        let inv_freq: Vec<_> = (0..shape.2 / 2).map(|i| 1.0 / (1.0 + i as f32)).collect();
        let pairing = [RopePairing::Adjacent, RopePairing::Halves][noise.below(2)];
        let scoring = Scoring {
            scale: 1.0 / (shape.2 as f32).sqrt(),
            softcap: [None, None, Some(20.0)][noise.below(3)],
            window: [None, None, Some(1 + noise.below(20)), Some(1 + noise.below(300))][noise.below(4)]
                .map(|window| window as u32),
        };
        let table = RopeTable::new(&inv_freq, 1.0, 400);
        let heads = group * shape.0;
        // Of the size of scores, so that some take most of the weights and some next to none.
        let sinks = (noise.below(3) == 0).then(|| noise.values(heads).iter().map(|x| 4.0 * x).collect());
        Self { heads, table, pairing, scoring, sinks }
    }

    fn args<'a>(&'a self, queries: &'a [f32], cache: &'a mut Cache, tails: Tails<'a>) -> Attention<'a> {
        let head_dim = cache.shape.2;
        Attention {
            queries: Rows::new(queries, self.heads * head_dim),
            rope: Some(Rope { table: &self.table, pairing: self.pairing }),
            kv: cache.layer(),
            tails,
            heads: self.heads,
            scoring: self.scoring,
            sinks: self.sinks.as_deref(),
        }
    }

    /// Runs all units, cut into `parts` ranges.
    fn run(
        &self,
        kernels: Kernels,
        queries: &[f32],
        cache: &mut Cache,
        sight: &Sight,
        parts: usize,
    ) -> Vec<f32> {
        sight.with(|tails| {
            let args = self.args(queries, cache, tails);
            let mut out = vec![f32::NAN; queries.len()];
            let mut scratch = Scratch::new(attention_scratch_bytes(args.kv.head_dim()));
            for part in (0..parts).rev() {
                let units = args.units() * part / parts..args.units() * (part + 1) / parts;
                kernels.attention(
                    &args,
                    units,
                    scratch.bytes(),
                    RowsMut::new(&mut out, args.queries.columns()),
                );
            }
            out
        })
    }
}

impl Case {
    /// Runs all units in two halves, with items and units cut into `parts` ranges.
    fn run_in_halves(
        &self,
        kernels: Kernels,
        queries: &[f32],
        cache: &mut Cache,
        sight: &Sight,
        parts: usize,
    ) -> Vec<f32> {
        sight.with(|tails| {
            let args = self.args(queries, cache, tails);
            let mut scratch = Scratch::new(attention_scratch_bytes(args.kv.head_dim()));
            let columns = args.partial_columns();
            let mut partials = vec![f32::NAN; args.partial_rows() * columns];
            for part in (0..parts).rev() {
                let items = args.items() * part / parts..args.items() * (part + 1) / parts;
                let out = RowsMut::new(&mut partials, columns);
                kernels.attention_partials(&args, items, scratch.bytes(), out);
            }
            let mut out = vec![f32::NAN; queries.len()];
            for part in 0..parts {
                let units = args.units() * part / parts..args.units() * (part + 1) / parts;
                let out = RowsMut::new(&mut out, args.queries.columns());
                kernels.attention_join(&args, units, Rows::new(&partials, columns), out);
            }
            out
        })
    }
}

fn formats() -> impl Strategy<Value = KvFormat> {
    prop_oneof![Just(KvFormat::F16), Just(KvFormat::F32), Just(KvFormat::Q8)]
}

const HEAD_DIMS: [usize; 7] = [2, 8, 30, 48, 64, 80, 128];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Scores are below 60 in size and off by at most 2^-24 per term of the dot product, so weights by 3e-4 of
    /// themselves at worst; values are below 1.
    #[test]
    fn follows_the_reference(
        d in 0usize..7, kv_heads in 1usize..4, group in 1usize..4, width in 1usize..6, format in formats(), seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let shape = (kv_heads, 90, HEAD_DIMS[d]);
        let mut cache = Cache::new(format, shape.0, shape.1, shape.2, &mut noise);
        let case = Case::new(group, shape, &mut noise);
        let queries = noise.values(width * case.heads * shape.2);
        let mut sight = Sight::default();
        for _ in 0..width {
            sight.positions.push(noise.below(400) as u32);
            sight.prefix.push(noise.below(50) as u32);
            let len = noise.below(10);
            sight.tails.push((0..len).map(|_| 50 + noise.below(40) as u32).collect());
        }
        let mut expected = vec![0.0; queries.len()];
        sight.with(|tails| {
            let args = case.args(&queries, &mut cache, tails);
            reference::attention(&args, RowsMut::new(&mut expected, args.queries.columns()));
        });
        let portable = case.run(Kernels::portable(), &queries, &mut cache, &sight, 1);
        for (a, b) in portable.iter().zip(&expected) {
            prop_assert!((a - b).abs() <= 3e-4, "{a}, not {b}");
        }
        for kernels in tiers() {
            let found = case.run(kernels, &queries, &mut cache, &sight, 1);
            prop_assert_eq!(bits(&found), bits(&portable), "{}", kernels.tier());
        }
    }

    /// Several partitions, wide teams of units, long tails; whole or in two halves; the same bits in every tier.
    #[test]
    fn partitions_join_to_the_same_bits(
        d in 0usize..7, kv_heads in 1usize..3, group in 1usize..9, width in 1usize..9, longest in 1usize..600,
        format in formats(), seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let shape = (kv_heads, 700, HEAD_DIMS[d]);
        let mut cache = Cache::new(format, shape.0, shape.1, shape.2, &mut noise);
        let case = Case::new(group, shape, &mut noise);
        let queries = noise.values(width * case.heads * shape.2);
        let mut sight = Sight::default();
        for _ in 0..width {
            let prefix = noise.below(longest) as u32;
            sight.positions.push(noise.below(400) as u32);
            sight.prefix.push(prefix);
            let len = noise.below(40);
            // A chain after the prefix, or nodes of a tree, or slots anywhere.
            let kind = noise.below(3);
            let mut slot = prefix;
            sight.tails.push((0..len).map(|i| match kind {
                0 => prefix + i as u32,
                1 => { slot += noise.below(3) as u32; slot }
                _ => noise.below(700) as u32,
            }).collect());
        }
        let mut expected = vec![0.0; queries.len()];
        sight.with(|tails| {
            let args = case.args(&queries, &mut cache, tails);
            reference::attention(&args, RowsMut::new(&mut expected, args.queries.columns()));
        });
        let portable = case.run(Kernels::portable(), &queries, &mut cache, &sight, 1);
        for (a, b) in portable.iter().zip(&expected) {
            prop_assert!((a - b).abs() <= 3e-4, "{a}, not {b}");
        }
        for kernels in tiers() {
            let parts = 1 + noise.below(5);
            let found = case.run(kernels, &queries, &mut cache, &sight, parts);
            prop_assert_eq!(bits(&found), bits(&portable), "{}", kernels.tier());
            let parts = 1 + noise.below(5);
            let found = case.run_in_halves(kernels, &queries, &mut cache, &sight, parts);
            prop_assert_eq!(bits(&found), bits(&portable), "{} in halves", kernels.tier());
        }
    }

    /// One logical sequence, seen alone from the prefix, then in company from scattered slots of a noisy cache.
    #[test]
    fn bits_follow_the_logical_sequence(
        d in 0usize..7, group in 1usize..4, width in 1usize..20, len in 1usize..80, format in formats(), seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let shape = (2, 200, HEAD_DIMS[d]);
        let mut first = Cache::new(format, shape.0, shape.1, shape.2, &mut noise);
        let mut second = Cache::new(format, shape.0, shape.1, shape.2, &mut noise);
        let case = Case::new(group, shape, &mut noise);
        let columns = case.heads * shape.2;
        let query = noise.values(columns);
        let alone = Sight { positions: vec![len as u32], prefix: vec![len as u32], tails: vec![vec![]] };

        let split = noise.below(len + 1);
        let mut scattered: Vec<u32> = (split as u32..200).collect();
        noise.shuffle(&mut scattered);
        scattered.truncate(len - split);
        // In order, as the nodes of a token tree are, or in any.
        if noise.below(2) == 0 {
            scattered.sort_unstable();
        }
        for position in 0..len {
            let slot = if position < split { position } else { scattered[position - split] as usize };
            second.copy_slot(slot, &mut first, position);
        }
        let place = noise.below(width);
        let mut queries = noise.values(width * columns);
        queries[place * columns..][..columns].copy_from_slice(&query);
        let mut company = Sight::default();
        for _ in 0..width {
            company.positions.push(noise.below(400) as u32);
            company.prefix.push(noise.below(100) as u32);
            let len = noise.below(10);
            company.tails.push((0..len).map(|_| noise.below(200) as u32).collect());
        }
        (company.positions[place], company.prefix[place]) = (len as u32, split as u32);
        company.tails[place] = scattered;
        for kernels in tiers() {
            let expected = case.run(kernels, &query, &mut first, &alone, 1);
            let parts = 1 + noise.below(5);
            let found = case.run(kernels, &queries, &mut second, &company, parts);
            prop_assert_eq!(bits(&found[place * columns..][..columns]), bits(&expected));
        }
    }

    /// Every tier stores the same bits, and only where it should.
    #[test]
    fn append_stores_rounded_rows(
        d in 0usize..7, kv_heads in 1usize..4, width in 1usize..6, format in formats(), turned: bool, seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let shape = (kv_heads, 30, HEAD_DIMS[d]);
        let columns = kv_heads * shape.2;
        let case = Case::new(1, shape, &mut noise);
        let mut keys = noise.values(width * columns);
        let mut values = noise.values(width * columns);
        values[0] = 1e6;
        keys[0] = if turned { keys[0] } else { -7e4 };
        let positions: Vec<u32> = (0..width).map(|_| noise.below(400) as u32).collect();
        let mut slots: Vec<u32> = (0..30).collect();
        noise.shuffle(&mut slots);
        slots.truncate(width);
        slots[width - 1] = if width > 1 { KvLayer::NO_SLOT } else { slots[0] };
        let rope = turned.then_some(Rope { table: &case.table, pairing: case.pairing });
        let noise_seed = noise.bits();
        let mut caches: Vec<_> =
            (0..=tiers().count())
                .map(|_| Cache::new(format, shape.0, shape.1, shape.2, &mut Noise::new(noise_seed)))
                .collect();
        fn args<'a>(
            cache: &'a mut Cache, keys: &'a [f32], values: &'a [f32], columns: usize,
            positions: &'a [u32], slots: &'a [u32], rope: Option<Rope<'a>>,
        ) -> AppendKv<'a> {
            let (keys, values) = (Rows::new(keys, columns), Rows::new(values, columns));
            AppendKv { keys, values, positions, slots, rope, kv: cache.layer() }
        }
        let (reference_cache, others) = caches.split_first_mut().unwrap();
        reference::append_kv(&args(reference_cache, &keys, &values, columns, &positions, &slots, rope));
        for (i, kernels) in tiers().enumerate() {
            let args = args(&mut others[i], &keys, &values, columns, &positions, &slots, rope);
            let middle = noise.below(args.units() + 1);
            kernels.append_kv(&args, middle..args.units());
            kernels.append_kv(&args, 0..middle);
        }
        let tier_count = tiers().count();
        let (portable, others) = others[..tier_count].split_first_mut().unwrap();
        for other in others {
            prop_assert_eq!(portable.keys.bytes(), other.keys.bytes());
            prop_assert_eq!(portable.values.bytes(), other.values.bytes());
        }
        // Values are only rounded, so they are the reference's; turned keys differ by a rounding of f32.
        prop_assert_eq!(portable.values.bytes(), reference_cache.values.bytes());
        if !turned {
            prop_assert_eq!(portable.keys.bytes(), reference_cache.keys.bytes());
        }
    }
}

/// What lies before the window is not seen: not its keys, and not its values.
#[test]
fn a_window_is_a_shorter_sequence() {
    let mut noise = Noise::new(7);
    for (len, window) in [(40, 1), (40, 39), (300, 17), (300, 128), (300, 200), (513, 130)] {
        let mut cache = Cache::new(KvFormat::F32, 1, 600, 16, &mut noise);
        let scoring = Scoring { window: Some(window), ..Scoring::scaled(0.25) };
        let case = Case { scoring, ..Case::new(2, (1, 600, 16), &mut noise) };
        let queries = noise.values(32);
        let sight = Sight { positions: vec![7], prefix: vec![len], tails: vec![vec![]] };
        let near: Vec<u32> = (len - window..len).collect();
        let alone = Sight { positions: vec![7], prefix: vec![0], tails: vec![near] };
        for kernels in tiers() {
            let found = case.run(kernels, &queries, &mut cache, &sight, 1);
            let whole = Case {
                scoring: Scoring::scaled(0.25),
                table: case.table.clone(),
                sinks: case.sinks.clone(),
                ..case
            };
            let expected = whole.run(kernels, &queries, &mut cache, &alone, 1);
            for (a, b) in found.iter().zip(&expected) {
                assert!((a - b).abs() <= 1e-4, "{len} positions, {window} of them seen: {a}, not {b}");
            }
        }
    }
}

#[test]
fn a_row_that_sees_nothing_gets_zeros() {
    let mut noise = Noise::new(5);
    let mut cache = Cache::new(KvFormat::F16, 1, 8, 16, &mut noise);
    let case = Case::new(2, (1, 8, 16), &mut noise);
    let queries = noise.values(2 * 32);
    let sight = Sight { positions: vec![0, 0], prefix: vec![0, 3], tails: vec![vec![], vec![5]] };
    for kernels in tiers() {
        let found = case.run(kernels, &queries, &mut cache, &sight, 1);
        assert!(found[..32].iter().all(|&x| x == 0.0));
        assert!(found[32..].iter().all(|x| x.is_finite()) && found[32..].iter().any(|&x| x != 0.0));
    }
}

#[test]
fn large_scores_stay_finite() {
    let mut noise = Noise::new(6);
    let mut cache = Cache::new(KvFormat::F16, 1, 40, 64, &mut noise);
    let case = Case::new(1, (1, 40, 64), &mut noise);
    let queries: Vec<_> = noise.values(64).iter().map(|x| x * 1e4).collect();
    let sight = Sight { positions: vec![3], prefix: vec![33], tails: vec![vec![35]] };
    for kernels in tiers() {
        let found = case.run(kernels, &queries, &mut cache, &sight, 1);
        assert!(found.iter().all(|x| x.abs() <= 1.0), "{found:?}");
    }
}
