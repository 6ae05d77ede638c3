//! What the next step's depth is predicted from, before anything is drafted, so that all draft forwards follow without
//! a decision.

use crate::{policy::normalise, runtime::Session};

/// Writes what depth networks see of a place in a text, `[2 D]`: the last hidden row of `output` of the session's last
/// forward, normalised, and the embedding of `token`, which that row gave. Allocates nothing.
///
/// # Panics
/// If `features` has another length, or the session has run no forward with such an output.
pub fn depth_features(session: &Session, output: usize, token: u32, features: &mut [f32]) {
    let hidden = session.hidden(output).expect("a forward gave the token");
    let (normalised, embedding) = features.split_at_mut(hidden.len());
    normalise(hidden, normalised);
    session.embedding(token, embedding);
}
