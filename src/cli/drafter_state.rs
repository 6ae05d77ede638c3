//! `--drafter-state`: what drafters learn, kept in a file from run to run.

use std::{fmt::Display, fs, io, path::Path};

use yggc::{engine::Engine, storage::replace_file};

use crate::cli::{error::Failure, settings};

/// Restores the state in `file`, if it exists. Checks early that the file can be written.
///
/// # Errors
/// [`Failure`] of bad input if the file holds no state, one of another model, settings or drafter, or no drafter keeps
/// any.
pub(crate) fn resume(engine: &mut Engine, file: &Path) -> Result<(), Failure> {
    settings::output_file_of(file, "--drafter-state FILE")?;
    if engine.drafter_state().is_none() {
        return Err(Failure::Input(
            "--drafter-state keeps what drafters `swift` and `ngram` learn: expected one of them to draft, found \
             another drafter; add --drafter swift or --drafter ngram".to_owned(),
        ));
    }
    let in_file = |why: &dyn Display| Failure::Input(format!("{}: {why}", file.display()));
    match fs::read(file) {
        Ok(state) => engine.restore_drafter_state(&state).map_err(|error| in_file(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(in_file(&format!("expected a file to read, found: {error}; name another file"))),
    }
}

/// Writes the state to `file`, which is replaced as a whole or not at all.
///
/// # Errors
/// [`Failure`] if it cannot be written.
pub(crate) fn keep(engine: &mut Engine, file: &Path) -> Result<(), Failure> {
    let Some(state) = engine.drafter_state() else { return Ok(()) };
    replace_file(file, &state).map_err(|error| {
        Failure::Input(format!(
            "cannot write the drafters' state to `{}`: {error}; check the path",
            file.display()
        ))
    })
}
