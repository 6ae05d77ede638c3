//! From the tunings that a plan names to those of a session's linears.

use crate::{
    backend::Tuning,
    plan::ChosenTuning,
    runtime::{ExecutableSet, Session},
};

use super::Error;

/// Sets every linear of `session` that the plan names; those of widths that were not compiled are left out.
///
/// # Errors
/// [`Error`] of kind `Input` if a tuning is none, its kernel has not got it, or the model has no such linear at any
/// width.
pub fn tune(session: &mut Session, chosen: &[ChosenTuning]) -> Result<(), Error> {
    let shapes = ExecutableSet::linear_shapes(session.set());
    for ChosenTuning { shape: wanted, tuning, .. } in chosen {
        let tuning: Tuning =
            tuning.parse().map_err(|e| Error::input(format!("the plan's choice for {wanted}: {e}")))?;
        let mut known = false;
        for shape in &shapes {
            let same_weights = shape.kernel.to_string() == wanted.kernel
                && shape.outputs == wanted.outputs as usize
                && shape.columns == wanted.columns as usize;
            known |= same_weights;
            if same_weights && shape.rows == wanted.rows as usize {
                session.tune(shape, tuning)?;
            }
        }
        if !known {
            return Err(Error::input(format!(
                "the plan chooses a tuning for {wanted}: expected one of the model's linears ({}); make the plan again with `yggc plan`",
                shapes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            )));
        }
    }
    Ok(())
}
