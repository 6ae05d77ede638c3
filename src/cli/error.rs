//! How a command fails: one paragraph on stderr and an exit code.

use std::{io, process::ExitCode};

use crate::cli::{cache::CacheError, fetch::FetchError};

/// Why a command did not do its work. Usage errors are `clap`'s and end the program before this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A command whose rooms are not there yet.
    #[error("this build of yggc has no `{0}` yet; only `fetch` works")]
    NotWired(&'static str),
    /// The reader of stdout is gone or its disk is full.
    #[error("could not write the result to stdout: {0}")]
    Output(#[source] io::Error),
}

impl Failure {
    /// 3: bad input, 4: the device is missing or unusable, 1: anything else.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Fetch(FetchError::UnknownName { .. }) => 3,
            Self::Fetch(_) | Self::Cache(_) | Self::Output(_) | Self::NotWired(_) => 1,
        }
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        #[expect(clippy::print_stderr, reason = "the one place where a failure is told")]
        {
            eprintln!("error: {self}");
        }
        ExitCode::from(self.exit_code())
    }
}
