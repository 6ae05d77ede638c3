//! Gated delta rules and selective scans: tolerance against the reference; equality over tiers, units, slots, trees, and over which rows
//! are in one forward; texts that are cut.

use super::tiers;
use proptest::prelude::*;
use std::ops::Range;
use ygg_kernels::{
    KvLayer, Recurrence, Rows, RowsMut, ScanWeights, StateForm, StateLayer, StateRule, StateShape,
    StateWeights, Tails,
    cpu::Kernels,
    reference,
    testing::{Noise, Scratch, bits},
};

/// Slots after the committed ones.
const SCRATCH: usize = 40;

/// A layer's memory.
struct Memory {
    shape: StateShape,
    bytes: Scratch,
}

impl Memory {
    fn new(shape: StateShape) -> Self {
        let mut bytes = Scratch::new(StateLayer::bytes(shape, StateLayer::ring(SCRATCH)));
        bytes.bytes().fill(0);
        Self { shape, bytes }
    }

    fn layer(&mut self) -> StateLayer<'_> {
        let start = self.bytes.bytes().as_mut_ptr().cast();
        // SAFETY: as many bytes, aligned, zeros at first, borrowed mutably.
        unsafe { StateLayer::from_raw(start, StateLayer::ring(SCRATCH), self.shape) }
    }
}

/// A row of a forward: which one of all, where it goes, and the slots it sees after so many committed ones.
struct Row {
    number: usize,
    slot: u32,
    prefix: usize,
    tail: Vec<u32>,
}

/// What goes in of some rows, and the weights.
struct Rule {
    shape: StateShape,
    form: StateForm,
    x: Vec<f32>,
    steps: Vec<f32>,
    rates: Vec<f32>,
    taps: Vec<f32>,
    stored: Vec<f32>,
    biases: Vec<f32>,
    channels: Vec<f32>,
    skips: Vec<f32>,
}

impl Rule {
    fn new(shape: StateShape, form: StateForm, rows: usize, seed: u64) -> Self {
        let mut noise = Noise::new(seed);
        let heads = shape.value_heads;
        let mut values = |len: usize, factor: f32| -> Vec<f32> {
            noise.values(len).into_iter().map(|x| factor * x).collect()
        };
        let stored = values(heads, 1.5).into_iter();
        // Products of keys and queries are at most one where rules normalise them, and sums of their elements in scans.
        let size = if shape.rule == StateRule::Scan { 0.5 } else { 2.0 };
        Self {
            x: values(rows * shape.channels(), size),
            steps: values(rows * heads, 3.0),
            rates: values(rows * heads, 3.0),
            taps: values(shape.channels() * shape.taps, 1.0),
            stored: stored.map(|x| if form.is_logarithm { x } else { -x.exp() }).collect(),
            biases: values(heads, 1.0),
            channels: values(shape.channels(), 0.5),
            skips: values(heads, 1.0),
            shape,
            form,
        }
    }

    /// Forwards rows, one of padding in front.
    fn forward(
        &self,
        memory: &mut Memory,
        rows: &[Row],
        run: impl FnOnce(&Recurrence<'_>, RowsMut<'_>),
    ) -> Vec<f32> {
        let width = rows.len() + 1;
        let gathered = |from: &[f32], columns: usize| -> Vec<f32> {
            let numbers = [0].into_iter().chain(rows.iter().map(|row| row.number));
            numbers.flat_map(|number| from[number * columns..][..columns].to_vec()).collect()
        };
        let heads = self.shape.value_heads;
        let (x, steps, rates) = (
            gathered(&self.x, self.shape.channels()),
            gathered(&self.steps, heads),
            gathered(&self.rates, heads),
        );
        let is_scan = self.shape.rule == StateRule::Scan;
        let scan = ScanWeights { channels: &self.channels, skips: &self.skips };
        let (taps, decays, biases) = (&self.taps, &self.stored, &self.biases);
        let all = |padding: u32, of: &dyn Fn(&Row) -> u32| -> Vec<u32> {
            [padding].into_iter().chain(rows.iter().map(of)).collect()
        };
        let capacity = rows.iter().map(|row| row.tail.len()).max().expect("rows");
        let mut tails = vec![u32::MAX; width * capacity];
        for (row, tail) in rows.iter().zip(tails.chunks_mut(capacity).skip(1)) {
            tail[..row.tail.len()].copy_from_slice(&row.tail);
        }
        let positions = vec![0; width];
        let args = Recurrence {
            x: Rows::new(&x, self.shape.channels()),
            steps: Rows::new(&steps, heads),
            rates: (!is_scan).then(|| Rows::new(&rates, heads)),
            weights: StateWeights { taps, decays, biases, scan: is_scan.then_some(scan) },
            form: self.form,
            slots: &all(KvLayer::NO_SLOT, &|row| row.slot),
            tails: Tails {
                positions: &positions,
                prefix: &all(0, &|row| row.prefix as u32),
                tail_len: &all(0, &|row| row.tail.len() as u32),
                tails: &tails,
                tail_capacity: capacity,
            },
            memory: memory.layer(),
        };
        let mut out = vec![f32::NAN; width * self.shape.values()];
        run(&args, RowsMut::new(&mut out, self.shape.values()));
        assert!(out[..self.shape.values()].iter().all(|x| *x == 0.0), "padding gives zeros");
        out.split_off(self.shape.values())
    }

    fn by(&self, memory: &mut Memory, rows: &[Row], kernels: Kernels, apart: usize) -> Vec<f32> {
        let bytes = kernels.recurrence_scratch_bytes(self.shape, rows.len() + 1);
        let mut scratch = Scratch::new(bytes);
        self.forward(memory, rows, |args, mut out| {
            let split = apart.min(args.units());
            kernels.recurrence(args, split..args.units(), scratch.bytes(), out.reborrow());
            kernels.recurrence(args, 0..split, scratch.bytes(), out);
        })
    }

    /// Rows in their places, in forwards of so many.
    fn chunks(&self, memory: &mut Memory, rows: Range<usize>, width: usize, kernels: Kernels) -> Vec<f32> {
        let mut found = Vec::new();
        for start in rows.clone().step_by(width) {
            let chunk: Vec<Row> = (start..rows.end.min(start + width)).map(in_place).collect();
            found.extend(self.by(memory, &chunk, kernels, 0));
        }
        found
    }
}

/// A row of a text, in its place.
fn in_place(number: usize) -> Row {
    Row { number, slot: number as u32, prefix: number, tail: vec![number as u32] }
}

/// Of as many value heads for a key head as make one unit and several.
fn shapes() -> impl Strategy<Value = StateShape> {
    let rule = prop_oneof![Just(StateRule::Delta), Just(StateRule::Scan)];
    (rule, (1usize..4, 1usize..8), 1usize..24, 1usize..40, 1usize..=4).prop_map(
        |(rule, (key_heads, group), key_dim, value_dim, taps)| StateShape {
            rule,
            key_heads,
            value_heads: key_heads * group,
            key_dim,
            value_dim,
            taps,
        },
    )
}

fn forms() -> impl Strategy<Value = StateForm> {
    let steps = prop_oneof![Just(StateForm::ALL_STEPS), Just([0.25, 1.5])];
    (any::<[bool; 2]>(), steps).prop_map(|([is_grouped, is_logarithm], steps)| StateForm {
        is_grouped,
        is_logarithm,
        steps,
    })
}

fn close(found: &[f32], judged: &[f32], tolerance: f32) -> Result<(), String> {
    for (i, (found, judged)) in found.iter().zip(judged).enumerate() {
        if (found - judged).abs() > tolerance {
            return Err(format!("element {i}: {found}, not {judged}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Of delta rules keys are of length 1 and rates below 1, so that a state forgets errors: what is left of them is a
    /// few roundings of numbers of the size of values. A scan adds up what may cancel out; errors are few roundings of
    /// the largest result.
    #[test]
    fn rules_follow_the_reference_whatever_is_forwarded_together(
        (shape, form) in (shapes(), forms()),
        (len, width, apart) in (1usize..30, 1usize..12, 0usize..3),
        seed: u64,
    ) {
        let rule = Rule::new(shape, form, len, seed);
        let rows: Vec<Row> = (0..len).map(in_place).collect();
        let judged = rule.forward(&mut Memory::new(shape), &rows, reference::recurrence);
        let expected = rule.chunks(&mut Memory::new(shape), 0..len, 1, Kernels::portable());
        let largest = judged.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let size = if shape.rule == StateRule::Scan { largest.max(1.0) } else { 1.0 };
        prop_assert_eq!(close(&expected, &judged, 2e-5 * size), Ok(()));
        for kernels in tiers() {
            let mut memory = Memory::new(shape);
            prop_assert_eq!(bits(&rule.chunks(&mut memory, 0..len, width, kernels)), bits(&expected), "{}", kernels.tier());
            let all = rule.by(&mut Memory::new(shape), &rows, kernels, apart);
            prop_assert_eq!(bits(&all), bits(&expected), "{} in one forward", kernels.tier());
        }
    }

    /// A tree of any form after a text, in any order of rows, in one forward or in two, equals every path by itself.
    #[test]
    fn every_node_of_a_tree_follows_its_own_path(
        (shape, form) in (shapes(), forms()),
        (committed, nodes, split) in (0usize..12, 1usize..24, 0usize..24),
        deep: bool,
        seed: u64,
    ) {
        let rule = Rule::new(shape, form, committed + nodes, seed);
        let mut noise = Noise::new(seed ^ 7);
        let mut slots: Vec<u32> = (committed as u32..(committed + SCRATCH) as u32).collect();
        noise.shuffle(&mut slots);
        // By node, its path from the root.
        let mut paths: Vec<Vec<usize>> = vec![vec![0]];
        for node in 1..nodes {
            let back = noise.below(node);
            let parent = if deep { node - 1 - back.min(node - 1) / 3 } else { back.min(node - 1) };
            let path = [&paths[parent][..], &[node]].concat();
            paths.push(path);
        }
        let row = |node: usize| Row {
            number: committed + node,
            slot: slots[node],
            prefix: committed,
            tail: paths[node].iter().map(|node| slots[*node]).collect(),
        };
        for kernels in tiers() {
            let mut memory = Memory::new(shape);
            rule.chunks(&mut memory, 0..committed, 5, kernels);
            // Parents are in a forward before their children's, or in the same; rows in any order.
            let split = split.min(nodes);
            let mut found = vec![Vec::new(); nodes];
            for part in [0..split, split..nodes] {
                let mut order: Vec<u32> = part.map(|node| node as u32).collect();
                if order.is_empty() {
                    continue;
                }
                noise.shuffle(&mut order);
                let rows: Vec<Row> = order.iter().map(|node| row(*node as usize)).collect();
                let results = rule.by(&mut memory, &rows, kernels, 1);
                for (node, results) in order.iter().zip(results.chunks(shape.values())) {
                    found[*node as usize] = results.to_vec();
                }
            }
            for (node, path) in paths.iter().enumerate() {
                let mut memory = Memory::new(shape);
                rule.chunks(&mut memory, 0..committed, 7, kernels);
                let mut last = Vec::new();
                for (depth, node) in path.iter().enumerate() {
                    let at = committed + depth;
                    let row = Row { number: committed + node, ..in_place(at) };
                    last = rule.by(&mut memory, &[row], kernels, 0);
                }
                prop_assert_eq!(bits(&found[node]), bits(&last), "node {} on {}", node, kernels.tier());
            }
        }
    }

    /// A text that is cut, by as much as is promised, and goes on in another way.
    #[test]
    fn a_text_can_be_cut(
        (shape, form) in (shapes(), forms()),
        (len, cut, width) in (1usize..300, 0usize..=StateLayer::STRIDE, 1usize..SCRATCH),
        seed: u64,
    ) {
        let kept = len.saturating_sub(cut);
        let rule = Rule::new(shape, form, len, seed);
        let kernels = Kernels::best();
        let other = |memory: &mut Memory| {
            let row = |at: usize| Row { number: len - 1 - (at - kept) % len, ..in_place(at) };
            let rows: Vec<Row> = (kept..kept + width).map(row).collect();
            rule.by(memory, &rows, kernels, 0)
        };
        let mut fresh = Memory::new(shape);
        rule.chunks(&mut fresh, 0..kept, width, kernels);
        let expected = other(&mut fresh);
        let mut memory = Memory::new(shape);
        rule.chunks(&mut memory, 0..len, width, kernels);
        let layer = memory.layer();
        // SAFETY: the memory is ours alone.
        unsafe {
            prop_assert_eq!(layer.resume_point(kept), kept);
            layer.forget(kept);
        }
        prop_assert_eq!(bits(&other(&mut memory)), bits(&expected));
        // From the beginning, always.
        // SAFETY: as above.
        unsafe { memory.layer().forget(0) };
        let again = rule.chunks(&mut memory, 0..kept, width, kernels);
        prop_assert_eq!(bits(&again), bits(&rule.chunks(&mut Memory::new(shape), 0..kept, 1, kernels)));
    }
}

/// What lies before the oldest state is not there to go on from.
#[test]
fn a_text_is_not_cut_to_where_no_state_is() {
    let shape = StateShape {
        rule: StateRule::Delta,
        key_heads: 2,
        value_heads: 2,
        key_dim: 4,
        value_dim: 3,
        taps: 2,
    };
    let form = StateForm { is_grouped: true, is_logarithm: true, steps: StateForm::ALL_STEPS };
    let rule = Rule::new(shape, form, 400, 5);
    let mut memory = Memory::new(shape);
    rule.chunks(&mut memory, 0..400, 10, Kernels::best());
    let layer = memory.layer();
    // SAFETY: the memory is ours alone.
    let points = [399, 320, 319, 64, 1].map(|len| unsafe { layer.resume_point(len) });
    assert_eq!(points, [399, 320, 0, 0, 0]);
}
