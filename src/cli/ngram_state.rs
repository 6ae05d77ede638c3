//! `--ngram-state`: the dictionaries of drafter `ngram`, kept in a file from run to run.

use std::{fs, io, path::Path};

use yggc::{engine::Engine, storage::replace_file};

use crate::cli::{error::Failure, settings};

/// Loads the n-grams in `file`, if it exists. Checks early that the file can be written.
///
/// # Errors
/// [`Failure`] of bad input if the file is no such file, is of another model or other settings, or no drafter keeps
/// n-grams.
pub(crate) fn resume(engine: &mut Engine, file: &Path) -> Result<(), Failure> {
    settings::output_file_of(file, "--ngram-state FILE")?;
    if !engine.keeps_ngrams() {
        return Err(Failure::Input(
            "--ngram-state keeps the n-grams of drafter `ngram`: expected it to draft, found another drafter; add \
             --drafter ngram".to_owned(),
        ));
    }
    let in_file = |why: &dyn std::fmt::Display| {
        Failure::Input(format!("{}: {why}; remove the file to begin anew", file.display()))
    };
    match fs::read(file) {
        Ok(saved) => engine.restore_ngrams(&saved).map_err(|error| in_file(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(in_file(&format!("expected a file to read, found: {error}"))),
    }
}

/// Writes the n-grams to `file`, which is replaced as a whole or not at all.
///
/// # Errors
/// [`Failure`] if it cannot be written.
pub(crate) fn keep(engine: &mut Engine, file: &Path) -> Result<(), Failure> {
    let Some(saved) = engine.saved_ngrams() else { return Ok(()) };
    replace_file(file, &saved).map_err(|error| {
        Failure::Input(format!("cannot write the n-grams to `{}`: {error}; check the path", file.display()))
    })
}
