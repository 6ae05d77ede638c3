//! The one error of the public API: what happened, and whose fault it is.

use crate::{
    backend::BackendError,
    grammar::GrammarError,
    model::ModelError,
    plan::PlanError,
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

/// What the caller can do beyond what the message says, as data. The command line, the C interface and the HTTP service
/// each put it into words of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Ask for another context length.
    Context,
    /// Choose another tier, or leave the choice to the library.
    Tier,
    /// Use the CPU instead of a GPU.
    Processor,
    /// Ask for fewer threads.
    Threads,
    /// Give the weights another budget of memory, and a folder to be streamed from.
    Resident,
    /// Use the plan although it was made for something else.
    ForcePlan,
    /// Name the file of the drafter model.
    DraftModel,
    /// Name the file of the corpus store.
    Store,
    /// Give the prompt as it is, without a chat template.
    RawPrompt,
    /// Measure this drafter, and plan again.
    Profile {
        /// The drafter, by name or kind.
        drafter: String,
    },
    /// Record for longer, or on other prompts.
    Recording,
    /// Build the corpus store from less text, or keep fewer snippets.
    Corpus,
}

/// An error of the engine. Its message says what was expected and what was found; its [`hint`](Self::hint) says what
/// the caller can do. Its [source](std::error::Error::source), if any, is the error of the room where it arose; the
/// message repeats that error's text.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<Hint>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error about something the user gave.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// An error about the machine.
    pub fn device(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Device, message)
    }

    /// An error that should not have happened.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, source: None }
    }

    /// An error of another room.
    pub(crate) fn of(
        kind: ErrorKind,
        hint: Option<Hint>,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, message: error.to_string(), hint, source: Some(Box::new(error)) }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(self, hint: Hint) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// Puts what failed in front of the message: `what: message`.
    #[must_use]
    pub fn while_doing(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the caller can do, if the message does not say it already.
    pub fn hint(&self) -> Option<&Hint> {
        self.hint.as_ref()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| -> &(dyn std::error::Error + 'static) { source })
    }
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        Self::of(ErrorKind::Input, None, error)
    }
}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        let is_about_template =
            matches!(error, TextError::NoChatTemplate | TextError::InvalidTemplate { .. });
        Self::of(ErrorKind::Input, is_about_template.then_some(Hint::RawPrompt), error)
    }
}

impl From<GrammarError> for Error {
    fn from(error: GrammarError) -> Self {
        Self::of(ErrorKind::Input, None, error)
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Self::of(ErrorKind::Input, error.is_mismatch().then_some(Hint::ForcePlan), error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let hint = match error {
            StoreError::Storage(_) | StoreError::OtherStore { .. } => Some(Hint::Store),
            StoreError::TooLarge { .. } => Some(Hint::Corpus),
            StoreError::Damaged { .. } | StoreError::OtherModel { .. } | StoreError::Vocabulary { .. } => {
                None
            }
        };
        Self::of(ErrorKind::Input, hint, error)
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        RuntimeError::from(error).into()
    }
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        let (kind, hint) = match &error {
            RuntimeError::Backend(error) => of_backend(error),
            RuntimeError::DeviceFailed { .. } => (ErrorKind::Device, Some(Hint::Processor)),
            RuntimeError::Budget(_) => (ErrorKind::Input, Some(Hint::Resident)),
            RuntimeError::NotStreamed { .. } => (ErrorKind::Device, Some(Hint::Resident)),
            RuntimeError::ContextFull { .. } => (ErrorKind::Input, Some(Hint::Context)),
            RuntimeError::ContextRange { .. }
            | RuntimeError::SkipSet { .. }
            | RuntimeError::Head(_)
            | RuntimeError::Substitute { .. }
            | RuntimeError::Tuning { .. }
            | RuntimeError::Token { .. } => (ErrorKind::Input, None),
            RuntimeError::Compile(_)
            | RuntimeError::Width { .. }
            | RuntimeError::MissingVariant { .. }
            | RuntimeError::NoHiddenRows
            | RuntimeError::MissingDraft { .. } => (ErrorKind::Internal, None),
        };
        Self::of(kind, hint, error)
    }
}

fn of_backend(error: &BackendError) -> (ErrorKind, Option<Hint>) {
    match error {
        BackendError::MissingTier { .. } | BackendError::NeverEager { .. } => {
            (ErrorKind::Device, Some(Hint::Tier))
        }
        BackendError::NoCuda { .. } | BackendError::CudaLimit { .. } | BackendError::Cuda { .. } => {
            (ErrorKind::Device, Some(Hint::Processor))
        }
        BackendError::DeviceMemory { .. } | BackendError::Memory { .. } => {
            (ErrorKind::Device, Some(Hint::Context))
        }
        BackendError::NoStream { .. } | BackendError::PinnedMemory { .. } => {
            (ErrorKind::Device, Some(Hint::Resident))
        }
        BackendError::Stream { .. } => (ErrorKind::Device, None),
        BackendError::Threads { .. } => (ErrorKind::Device, Some(Hint::Threads)),
        BackendError::Weight { .. } => (ErrorKind::Input, None),
    }
}

impl From<SpeculateError> for Error {
    fn from(error: SpeculateError) -> Self {
        match error {
            SpeculateError::Runtime(error) => error.into(),
            SpeculateError::Store(error) => error.into(),
            SpeculateError::Grammar(error) => error.into(),
            SpeculateError::Plan(error) => error.into(),
            SpeculateError::Sample(_)
            | SpeculateError::EmptyPrompt
            | SpeculateError::Shape { .. }
            | SpeculateError::Schedule { .. }
            | SpeculateError::Device { .. }
            | SpeculateError::KeptState(_) => Self::of(ErrorKind::Input, None, error),
        }
    }
}
