//! A model whose matrices are quantised further than in its files. For drafters: their proposals are verified, so
//! precision is not needed.
//!
//! A forward of few rows takes as long as reading its weights: Q8_0 reads half of 16 bits an element, a quarter of 32.
//! An element is off by at most half of 1/127 of the largest of its block of 32.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use ygg_kernels::WeightFormat;

use crate::ir::{Graph, SharedBytes, WeightId, WeightSource, WeightSpec};

/// What matrices of more than 8 bits an element are read in.
const FORMAT: WeightFormat = WeightFormat::Q8_0;

/// The format that products of a drafter model read a matrix in which its file stores in `stored`.
const fn read_in(stored: WeightFormat) -> WeightFormat {
    if stored.is_dense() { FORMAT } else { stored }
}

/// The formats that [`in_eight_bits`] reads in another than files store them in, as text: `f32, f16 in q8_0`. What a
/// drafter model costs follows from it, so plans are bound to it.
pub fn draft_formats() -> String {
    described(read_in)
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

/// The graph with all matrices from weight number `first` on that are products' and of 16 or 32 bits an element in
/// Q8_0, and a source of its weights. A matrix is quantised on first use, by at most `threads` threads; gains stay as
/// they are, and so do rows that are no whole number of blocks.
pub fn in_eight_bits(
    graph: &Graph,
    weights: Arc<dyn WeightSource>,
    first: usize,
    threads: usize,
) -> (Graph, Arc<dyn WeightSource>) {
    let is_changed = |id: &WeightId| {
        let WeightSpec { format, columns, .. } = graph.weight(*id);
        id.0 as usize >= first
            && read_in(*format) != *format
            && columns.is_multiple_of(read_in(*format).block_len())
    };
    let changed: BTreeSet<WeightId> = graph.multiplied().into_iter().filter(is_changed).collect();
    let mut narrow = graph.clone();
    let mut matrices = BTreeMap::new();
    for id in changed {
        let spec = graph.weight(id).clone();
        narrow.store_in(id, read_in(spec.format));
        matrices.insert(id, (spec, OnceLock::new()));
    }
    (narrow, Arc::new(Narrow { weights, matrices, threads }))
}

/// Weights, some of which are quantised on first use.
struct Narrow {
    weights: Arc<dyn WeightSource>,
    /// As the files have them, and in fewer bits.
    matrices: BTreeMap<WeightId, (WeightSpec, OnceLock<Vec<u8>>)>,
    threads: usize,
}

impl WeightSource for Narrow {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        let bytes = self.weights.bytes(weight);
        match self.matrices.get(&weight) {
            Some((spec, narrow)) => {
                let make = || spec.requantised(&bytes, read_in(spec.format), self.threads);
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
    use crate::model::{Model, synthetic::SyntheticSpec};

    #[test]
    fn another_rule_of_reading_has_another_text() {
        assert_eq!(draft_formats(), "f32, f16, bf16 in q8_0");
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
            let model = Model::open(&path).unwrap();
            let multiplied: BTreeSet<WeightId> = model.graph.multiplied().into_iter().collect();
            let count = model.graph.weights().len();
            for (first, threads) in [(0, 1), (0, 3), (count / 2, 2), (count, 1)] {
                let (graph, weights) =
                    in_eight_bits(&model.graph, Arc::clone(&model.weights), first, threads);
                assert_eq!(graph.weights().len(), count);
                for (number, spec) in model.graph.weights().iter().enumerate() {
                    let id = WeightId(number as u32);
                    let bytes = model.weights.bytes(id);
                    let is_narrow =
                        number >= first && multiplied.contains(&id) && format != WeightFormat::Q4_1;
                    let expected = if is_narrow { FORMAT } else { spec.format };
                    assert_eq!(*graph.weight(id), WeightSpec { format: expected, ..spec.clone() });
                    if !is_narrow {
                        assert_eq!(weights.bytes(id), bytes, "{}", spec.name);
                        continue;
                    }
                    let mut values = vec![0.0; spec.rows * spec.columns];
                    spec.format.dequantise_row(&bytes, &mut values);
                    let mut expected = Vec::new();
                    FORMAT.quantise_row(&values, &mut expected);
                    assert!(weights.bytes(id) == expected, "{} is quantised row by row", spec.name);
                }
            }
        }
    }
}
