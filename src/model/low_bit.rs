//! A model whose matrices are quantised further than in its files. For drafters: their proposals are verified, so
//! precision is not needed.
//!
//! A forward of few rows takes as long as reading its weights. Of a model by itself, whose every layer rounds anew,
//! Q8_0 reads half of 16 bits an element; an element is off by at most half of 1/127 of the largest of its block of 32.
//! A layer over the verifier's rows has one layer's error, and Q4_1 reads 5 bits an element: one trained for
//! Qwen2.5-Coder 0.5B proposes the verifier's token at 0.651 of held-back places, 0.649 with its head in Q4_1 too, 0.654
//! in Q8_0, 0.642 in Q4_0; two tokens further at 0.496 where Q8_0 does at 0.513.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use ygg_kernels::WeightFormat;

use crate::ir::{Graph, SharedBytes, WeightId, WeightSource, WeightSpec};

/// Which formats matrices of a drafter model are read in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowBit {
    /// Of a model by itself.
    Model,
    /// Of layers over a verifier's rows.
    Layer,
    /// Of a head over some tokens that such layers draft with.
    LayerHead,
}

impl LowBit {
    /// The format that products read a matrix in which is stored in `stored`.
    pub const fn read_in(self, stored: WeightFormat) -> WeightFormat {
        match (self, stored) {
            (Self::Model, _) if stored.is_dense() => WeightFormat::Q8_0,
            (Self::Layer | Self::LayerHead, _) if stored.is_dense() => WeightFormat::Q4_1,
            // The verifier's own rows.
            (Self::LayerHead, WeightFormat::Q8_0) => WeightFormat::Q4_1,
            _ => stored,
        }
    }
}

/// The formats that drafter models are read in where files store them in others, as text: `f32, f16 in q8_0`. What a
/// drafter model costs follows from it, so plans are bound to it.
pub fn draft_formats() -> String {
    let [model, layer, head] =
        [LowBit::Model, LowBit::Layer, LowBit::LayerHead].map(|of| described(|stored| of.read_in(stored)));
    format!("{model}; layers {layer}; their trimmed heads {head}")
}

/// A rule of reading as text: the formats that it changes, grouped by what they are read in; `as stored` if it changes
/// none.
fn described(read_in: impl Fn(WeightFormat) -> WeightFormat) -> String {
    let mut changed: BTreeMap<WeightFormat, Vec<&str>> = BTreeMap::new();
    for stored in WeightFormat::ALL.into_iter().filter(|stored| read_in(*stored) != *stored) {
        changed.entry(read_in(stored)).or_default().push(stored.name());
    }
    let groups: Vec<String> =
        changed.into_iter().map(|(format, stored)| format!("{} in {format}", stored.join(", "))).collect();
    if groups.is_empty() { "as stored".to_owned() } else { groups.join("; ") }
}

/// The graph with all matrices from weight number `first` on that are products' in the format of a rule, and a source
/// of its weights. A matrix is quantised on first use, by at most `threads` threads; gains stay as they are, and so do
/// rows that are no whole number of blocks.
pub fn in_fewer_bits(
    graph: &Graph,
    weights: Arc<dyn WeightSource>,
    first: usize,
    rule: LowBit,
    threads: usize,
) -> (Graph, Arc<dyn WeightSource>) {
    let is_changed = |id: &WeightId| {
        let WeightSpec { format, columns, .. } = graph.weight(*id);
        let read_in = rule.read_in(*format);
        id.0 as usize >= first && read_in != *format && columns.is_multiple_of(read_in.block_len())
    };
    let changed: BTreeSet<WeightId> = graph.multiplied().into_iter().filter(is_changed).collect();
    let mut narrow = graph.clone();
    let mut matrices = BTreeMap::new();
    for id in changed {
        let spec = graph.weight(id).clone();
        narrow.store_in(id, rule.read_in(spec.format));
        matrices.insert(id, (spec, OnceLock::new()));
    }
    (narrow, Arc::new(Narrow { weights, matrices, rule, threads }))
}

/// Weights, some of which are quantised on first use.
struct Narrow {
    weights: Arc<dyn WeightSource>,
    /// As the files have them, and in fewer bits.
    matrices: BTreeMap<WeightId, (WeightSpec, OnceLock<Vec<u8>>)>,
    rule: LowBit,
    threads: usize,
}

impl WeightSource for Narrow {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        let bytes = self.weights.bytes(weight);
        match self.matrices.get(&weight) {
            Some((spec, narrow)) => {
                let make = || spec.requantised(&bytes, self.rule.read_in(spec.format), self.threads);
                Cow::Borrowed(narrow.get_or_init(make))
            }
            None => bytes,
        }
    }

    fn shared(&self, weight: WeightId) -> SharedBytes {
        match self.matrices.contains_key(&weight) {
            true => SharedBytes(Arc::new(self.bytes(weight).into_owned())),
            false => self.weights.shared(weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{self, synthetic::SyntheticSpec};

    #[test]
    fn another_rule_of_reading_has_another_text() {
        assert_eq!(
            draft_formats(),
            "f32, f16, bf16 in q8_0; layers f32, f16, bf16 in q4_1; their trimmed heads f32, f16, bf16, q8_0 in q4_1"
        );
        type Rule = fn(WeightFormat) -> WeightFormat;
        let rules: [(Rule, &str); 3] = [
            (|stored| stored, "as stored"),
            (|stored| if stored.is_dense() { WeightFormat::Q4_0 } else { stored }, "f32, f16, bf16 in q4_0"),
            (
                |stored| match stored {
                    WeightFormat::F32 => WeightFormat::F16,
                    WeightFormat::BF16 => WeightFormat::Q8_0,
                    other => other,
                },
                "f32 in f16; bf16 in q8_0",
            ),
        ];
        for (rule, text) in rules {
            assert_eq!(described(rule), text);
        }
    }

    #[test]
    fn matrices_of_products_are_narrowed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for (format, tied) in
            [(WeightFormat::BF16, true), (WeightFormat::F32, false), (WeightFormat::Q4_1, false)]
        {
            let path = folder.path().join(format!("{format}-{tied}"));
            // More rows than a thread takes at a time, and not a multiple of them.
            let spec = SyntheticSpec { format, tied, vocabulary: 300, ..SyntheticSpec::default() };
            spec.write_gguf(&path).unwrap();
            let model = model::Model::open(&path).unwrap();
            let multiplied: BTreeSet<WeightId> = model.graph.multiplied().into_iter().collect();
            let count = model.graph.weights().len();
            use LowBit::{Layer, Model};
            for (first, threads, rule) in
                [(0, 1, Model), (0, 3, Model), (0, 1, Layer), (count / 2, 2, Model), (count, 1, Model)]
            {
                let (graph, weights) =
                    in_fewer_bits(&model.graph, Arc::clone(&model.weights), first, rule, threads);
                let narrow = rule.read_in(WeightFormat::F32);
                assert_eq!(graph.weights().len(), count);
                for (number, spec) in model.graph.weights().iter().enumerate() {
                    let id = WeightId(number as u32);
                    let bytes = model.weights.bytes(id);
                    let is_narrow =
                        number >= first && multiplied.contains(&id) && format != WeightFormat::Q4_1;
                    let expected = if is_narrow { narrow } else { spec.format };
                    assert_eq!(*graph.weight(id), WeightSpec { format: expected, ..spec.clone() });
                    if !is_narrow {
                        assert_eq!(weights.bytes(id), bytes, "{}", spec.name);
                        continue;
                    }
                    let mut values = vec![0.0; spec.rows * spec.columns];
                    spec.format.dequantise_row(&bytes, &mut values);
                    let mut expected = Vec::new();
                    narrow.quantise_row(&values, &mut expected);
                    assert!(weights.bytes(id) == expected, "{} is quantised row by row", spec.name);
                }
            }
        }
    }
}
