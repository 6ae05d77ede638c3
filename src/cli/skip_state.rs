//! `--skip-state`: the search state of drafter `swift`, kept in a file from run to run.

use std::path::Path;

use yggc::{
    engine::Engine,
    policy::{read_skip_state, write_skip_state},
};

use crate::cli::{error::Failure, settings};

/// Loads the state in `file`, if it exists. Checks early that the file can be written.
///
/// # Errors
/// [`Failure`] of bad input if the file is no such state, is of another model, or no drafter tunes itself.
pub(crate) fn resume(engine: &mut Engine, file: &Path) -> Result<(), Failure> {
    settings::output_file_of(file, "--skip-state FILE")?;
    let model = engine.loaded().fingerprints()?.model;
    if engine.skip_state().is_none() {
        return Err(Failure::Input(
            "--skip-state keeps what drafter `swift` finds out: expected it to draft, found another drafter; add \
             --drafter swift".to_owned(),
        ));
    }
    if let Some(state) = read_skip_state(file, &model).map_err(yggc::engine::Error::from)? {
        engine.restore_skip_state(state)?;
    }
    Ok(())
}

/// Writes the state to `file`.
///
/// # Errors
/// [`Failure`] if it cannot be written.
pub(crate) fn keep(engine: &mut Engine, file: &Path) -> Result<(), Failure> {
    let model = engine.loaded().fingerprints()?.model;
    if let Some(state) = engine.skip_state() {
        write_skip_state(&state, &model, file).map_err(yggc::engine::Error::from)?;
    }
    Ok(())
}
