//! How a command fails: one paragraph on stderr and an exit code.

use std::{error::Error as _, io, process::ExitCode};

use ygg_profiler::ProfileError;
use yggc::{
    compile::CompileError,
    engine::{self, ErrorKind},
    model::ModelError,
    plan::PlanError,
};

use crate::cli::{cache::CacheError, distill::DistillError, fetch::FetchError};

/// Why a command did not do its work. Usage errors that `clap` finds end the program before this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Distill(#[from] DistillError),
    #[error(transparent)]
    Engine(#[from] engine::Error),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Flags that mean nothing together.
    #[error("{0}")]
    Usage(String),
    /// The user's: a file or text that cannot be used.
    #[error("{0}")]
    Input(String),
    /// Something of the machine that is not there.
    #[error("{0}")]
    Device(String),
    /// A promise of this program that it broke.
    #[error("{0}; this is a fault of yggc, please report it")]
    Internal(String),
    /// Something that should hold on this machine and does not.
    #[error("{0}")]
    Broken(String),
    /// The service could not begin or go on.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Serve(#[from] crate::serve::ServeError),
    /// The reader of stdout is gone or its disk is full.
    #[error("could not write the result to stdout: {0}; send it elsewhere, or make room where it goes")]
    Output(io::Error),
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        engine::Error::from(error).into()
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        engine::Error::from(error).into()
    }
}

impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl Failure {
    /// 2: bad usage, 3: bad input, 4: the device is missing or unusable, 1: anything else.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Fetch(FetchError::UnknownName { .. })
            | Self::Distill(
                DistillError::Refused { .. } | DistillError::Taken { .. } | DistillError::NothingThere { .. },
            )
            | Self::Profile(_)
            | Self::Input(_) => 3,
            Self::Device(_) => 4,
            Self::Engine(error) => match error.kind() {
                ErrorKind::Input => 3,
                ErrorKind::Device => 4,
                ErrorKind::Internal => 1,
            },
            Self::Fetch(FetchError::Hub(error)) if error.is_input() => 3,
            #[cfg(feature = "serve")]
            Self::Serve(_) => 1,
            Self::Fetch(_)
            | Self::Distill(_)
            | Self::Cache(_)
            | Self::Internal(_)
            | Self::Broken(_)
            | Self::Output(_) => 1,
        }
    }

    /// The message with its causes, on one line: a file's content must not break the paragraph.
    fn paragraph(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let said = error.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = error.source();
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        #[expect(clippy::print_stderr, reason = "the one place where a failure is told")]
        {
            eprintln!("error: {}", self.paragraph());
        }
        ExitCode::from(self.exit_code())
    }
}
