//! What the files of an EAGLE-3 head say in addition to the sizes of its layer.

use super::{ModelError, draft_vocabulary::DraftVocabulary, family::Naming};

/// An EAGLE-3 head, whatever file it came from.
#[derive(Debug)]
pub(super) struct Eagle3 {
    /// How its tensors are called.
    pub(super) naming: Naming,
    /// The verifier's layers whose rows it is given, if its files name them: what comes out of the first so many.
    pub(super) layers: Option<Vec<usize>>,
    /// Elements of the verifier's rows, if its files say.
    pub(super) target_width: Option<usize>,
    /// What its head is for.
    pub(super) vocabulary: DraftVocabulary,
    /// Whether the residual stream begins with the normalised row.
    pub(super) norm_before_residual: bool,
    /// Norms in front of the product that joins rows.
    pub(super) norms: JoiningNorms,
    /// Whether nodes are given the normalised rows of their parents.
    pub(super) gives_normed: bool,
    /// Tensors that were read in addition to weights.
    pub(super) read_tensors: Vec<&'static str>,
}

/// Norms in front of the product that joins rows of several layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoiningNorms {
    /// None.
    None,
    /// One of all rows together.
    Whole,
    /// One for each row.
    Each,
}

impl Eagle3 {
    /// The layers whose rows it is given of a verifier of `count` layers. By default a low, a middle and a high one, as
    /// the authors' own program has them (<https://github.com/SafeAILab/EAGLE>).
    ///
    /// # Errors
    /// [`ModelError`] if the verifier has too few.
    pub(super) fn layers_of(&self, count: usize) -> Result<Vec<usize>, ModelError> {
        let default = || vec![2, count / 2, count.saturating_sub(3)];
        let layers = self.layers.clone().unwrap_or_else(default);
        let least = layers.iter().max().copied().unwrap_or(0).max(if self.layers.is_none() { 3 } else { 0 });
        if least > count {
            let found = format!("{count}; give the verifier that the head was trained for");
            return Err(ModelError::invalid("the verifier", format!("at least {least} layers"), found));
        }
        Ok(layers)
    }
}
