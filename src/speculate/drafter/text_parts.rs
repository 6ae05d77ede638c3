//! Rows of the verifier that a drafter is given with tokens of the text.

use crate::{
    runtime::{ExecutableSet, RuntimeError, Session},
    speculate::SpeculateError,
};

/// Which parts of the rows that the verifier's session keeps are given with tokens of the text.
#[derive(Debug)]
pub(super) struct TextParts {
    /// Places of the parts, in the order in which they are given.
    places: Vec<usize>,
    /// Elements of a part.
    width: usize,
}

impl TextParts {
    /// Those of the layers that `set` reads.
    pub(super) fn of(session: &Session, set: &ExecutableSet) -> Result<Self, SpeculateError> {
        let width = session.set().model_width();
        let kept = if session.keeps_hidden() { session.set().kept_layers() } else { &[] };
        let place = |layer: &usize| kept.iter().position(|kept| kept == layer);
        let places: Option<Vec<usize>> = set.graph().layers_read().iter().map(place).collect();
        let places = places.ok_or(RuntimeError::NoHiddenRows)?;
        let (expected, found) = (places.len() * width, set.text_columns());
        if found != expected {
            let expected = format!("{expected}, {} of the verifier's", places.len());
            return Err(SpeculateError::Shape { what: "width of hidden rows", expected, found });
        }
        Ok(Self { places, width })
    }

    /// Writes the parts of a committed token's row, which is known to be kept.
    pub(super) fn write(&self, session: &Session, position: usize, to: &mut [f32]) {
        let row = session.committed_hidden(position).expect("looked for before");
        for (place, to) in self.places.iter().zip(to.chunks_exact_mut(self.width)) {
            to.copy_from_slice(&row[place * self.width..][..self.width]);
        }
    }
}
