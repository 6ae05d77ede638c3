//! A model without its weights: what its forwards take follows from shapes and formats, which its header has.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::Model;
use crate::ir::{SampledGroups, SharedBytes, WeightId, WeightSource, WeightSpec};

/// Zeros for every weight.
struct Zeros {
    weights: Arc<[WeightSpec]>,
    /// As many as the largest weight has bytes. They are never written, so that the system has one page for all.
    zeros: Arc<Vec<u8>>,
}

impl Zeros {
    fn len(&self, weight: WeightId) -> usize {
        let WeightSpec { rows, columns, format, .. } = self.weights[weight.0 as usize];
        rows * format.row_bytes(columns).expect("the model's loader has checked sizes")
    }
}

impl WeightSource for Zeros {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.zeros[..self.len(weight)])
    }

    fn shared(&self, weight: WeightId) -> SharedBytes {
        SharedBytes(Arc::new(SomeZeros { zeros: Arc::clone(&self.zeros), len: self.len(weight) }))
    }
}

struct SomeZeros {
    zeros: Arc<Vec<u8>>,
    len: usize,
}

impl AsRef<[u8]> for SomeZeros {
    fn as_ref(&self) -> &[u8] {
        &self.zeros[..self.len]
    }
}

impl Model {
    /// The same model with zeros for weights, none of which is read from its files, and with about `bytes` of them:
    /// of a larger model it has some [groups](crate::ir::Graph::sampled_groups) of every kind. Also says for how many
    /// groups of the model each of its groups stands.
    ///
    /// Forwards take as long as with the weights, except that rows go to the same experts at every step. Their
    /// results mean nothing.
    ///
    /// ```
    /// # use yggc::model::{Model, synthetic::SyntheticSpec};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("tiny.gguf");
    /// SyntheticSpec { layers: 4, ..SyntheticSpec::default() }.write_gguf(&path)?;
    /// let (_, stands_for) = Model::open(&path)?.blank(0);
    /// assert_eq!(stands_for.into_iter().collect::<Vec<_>>(), [(0, 4.0), (1, 4.0)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn blank(mut self, bytes: usize) -> (Self, BTreeMap<u32, f64>) {
        let SampledGroups { graph, stands_for } = self.graph.sampled_groups(bytes);
        let weights = Arc::clone(graph.weights());
        let mut zeros = Zeros { weights, zeros: Arc::default() };
        let ids = (0..).map(WeightId).take(zeros.weights.len());
        zeros.zeros = Arc::new(vec![0; ids.map(|id| zeros.len(id)).max().unwrap_or(0)]);
        self.graph = graph;
        self.weights = Arc::new(zeros);
        self.kept = None;
        (self, stands_for.into_iter().map(|(group, count)| (group.0, count)).collect())
    }
}
