//! Errors as Python's exceptions, with what a caller from Python can do.

use pyo3::{
    create_exception,
    exceptions::{PyException, PyRuntimeError, PyValueError},
    prelude::*,
};
use yggc::engine::{Error, ErrorKind, Hint};

create_exception!(
    yggc,
    InputError,
    PyValueError,
    "A model, plan, drafter, prompt or option that cannot be used."
);
create_exception!(yggc, DeviceError, PyRuntimeError, "A device that is missing or unusable.");
create_exception!(yggc, BusyError, PyRuntimeError, "The engine answers another request.");
create_exception!(yggc, InternalError, PyException, "A fault of the library: please report it.");

pub(super) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let python = module.py();
    module.add("InputError", python.get_type::<InputError>())?;
    module.add("DeviceError", python.get_type::<DeviceError>())?;
    module.add("BusyError", python.get_type::<BusyError>())?;
    module.add("InternalError", python.get_type::<InternalError>())
}

pub(super) fn input(text: impl Into<String>) -> PyErr {
    InputError::new_err(text.into())
}

/// The engine that a request had is gone: its thread panicked.
pub(super) fn lost() -> PyErr {
    InternalError::new_err(
        "a fault of the library: an earlier request of this engine ended in one; open another engine, and report what \
         Python's standard error says",
    )
}

/// The exception for an error of the library.
pub(super) fn exception(error: &Error) -> PyErr {
    let text = match error.hint() {
        Some(hint) => format!("{error}; {}", next_step(hint)),
        None => error.to_string(),
    };
    match error.kind() {
        ErrorKind::Input => InputError::new_err(text),
        ErrorKind::Device => DeviceError::new_err(text),
        ErrorKind::Internal => InternalError::new_err(text),
    }
}

/// What the caller can do, in the terms of this package.
fn next_step(hint: &Hint) -> String {
    let step = match hint {
        Hint::Context => "set `context` of Engine",
        Hint::Tier => "set `isa` of Engine to another set, or leave it out",
        Hint::Processor => "set `device` of Engine to \"cpu\"",
        Hint::Threads => "set `threads` of Engine",
        Hint::Resident => {
            "set `resident` of Engine to another number of bytes, and `packed_folder` to a folder"
        }
        Hint::ForcePlan => "or set `force_plan` of Engine to use the plan all the same",
        Hint::DraftModel => "set `draft_model` of Engine to its path",
        Hint::Store => "set `store` of Engine to the path of the corpus store",
        Hint::RawPrompt => "call `generate` with the text instead of `chat`",
        Hint::Profile { drafter } => {
            return format!(
                "measure the drafter `{drafter}` with `python -m yggc profile`, plan again with `python -m yggc \
                 plan`, and open the engine with the new plan"
            );
        }
        Hint::Recording => "record again with `python -m yggc profile`, for longer or on other prompts",
        Hint::Corpus => {
            "build the corpus store again with `python -m yggc corpus build`, of less text or with fewer snippets"
        }
    };
    step.to_owned()
}
