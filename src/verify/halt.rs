//! Why a check stopped early.

use crate::{engine::Error, runtime::RuntimeError, sample::SampleError};

/// Why a check stopped early.
#[derive(Debug)]
pub(super) enum Halt {
    /// The property does not hold: where, what was expected, what was found.
    Broken(String),
    /// The property does not apply here, for this reason.
    NotChecked(String),
    /// The check could not be run.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<RuntimeError> for Halt {
    fn from(error: RuntimeError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SampleError> for Halt {
    fn from(error: SampleError) -> Self {
        Self::Failed(Error::input(error.to_string()))
    }
}
