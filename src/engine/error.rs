//! The one error of the public API: what happened, and whose fault it is.

use crate::{
    backend::BackendError,
    model::ModelError,
    plan::{PlanError, SkipStateError},
    runtime::RuntimeError,
    speculate::{SpeculateError, StoreError},
    text::TextError,
};

/// Whose fault an [`Error`] is, plain data; decides the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The model, plan, profile or prompt cannot be used.
    Input,
    /// The device or something of it is missing or refuses.
    Device,
    /// A fault of this library.
    Internal,
}

/// An error of the engine, one `String` large. Its message says what was expected, what was found and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error about something the user gave.
    pub fn input(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Input, message: message.into() }
    }

    /// An error about the machine.
    pub fn device(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Device, message: message.into() }
    }

    /// An error that should not have happened.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Internal, message: message.into() }
    }

    /// The same error, with what could not be done in front.
    pub fn while_doing(self, what: &str) -> Self {
        Self { kind: self.kind, message: format!("{what}: {}", self.message) }
    }

    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        let message = error.to_string();
        match error {
            RuntimeError::Backend(
                BackendError::MissingTier { .. }
                | BackendError::NeverEager { .. }
                | BackendError::NoCuda { .. }
                | BackendError::CudaLimit { .. }
                | BackendError::Cuda { .. }
                | BackendError::DeviceMemory { .. }
                | BackendError::Memory { .. }
                | BackendError::Threads { .. },
            )
            | RuntimeError::DeviceFailed { .. } => Self::device(message),
            RuntimeError::Backend(BackendError::Weight { .. })
            | RuntimeError::ContextFull { .. }
            | RuntimeError::ContextRange { .. }
            | RuntimeError::SkipSet { .. }
            | RuntimeError::Head(_)
            | RuntimeError::Tuning { .. }
            | RuntimeError::Token { .. } => Self::input(message),
            RuntimeError::Compile(_)
            | RuntimeError::Width { .. }
            | RuntimeError::MissingHead { .. }
            | RuntimeError::NoHiddenRows
            | RuntimeError::MissingDraft { .. } => Self::internal(message),
        }
    }
}

impl From<SkipStateError> for Error {
    fn from(error: SkipStateError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<SpeculateError> for Error {
    fn from(error: SpeculateError) -> Self {
        match error {
            SpeculateError::Runtime(error) => error.into(),
            SpeculateError::Sample(_)
            | SpeculateError::Store(_)
            | SpeculateError::EmptyPrompt
            | SpeculateError::Shape { .. }
            | SpeculateError::Schedule { .. }
            | SpeculateError::Device { .. }
            | SpeculateError::SavedNgrams { .. } => Self::input(error.to_string()),
        }
    }
}
