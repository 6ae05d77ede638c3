//! Results of calls: a status with the value of the program's exit code, and the text of a thread's last error.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{self, AssertUnwindSafe},
};

use yggc::engine::{Error, ErrorKind, Hint};

/// Result of a call. The values are the exit codes of the program `yggc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// A bug of the library. The engine concerned can only be closed.
    Failed = 1,
    /// Wrong usage: a null pointer, a wrong size, an unknown name, a number out of range, or a second request at once.
    Usage = 2,
    /// Bad input: a model, plan, drafter or prompt that cannot be used.
    Input = 3,
    /// A device that is missing or unusable.
    Device = 4,
}

/// A failed call and its reason.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self { status: Status::Usage, text: text.into() }
    }

    pub(super) fn input(text: impl Into<String>) -> Self {
        Self { status: Status::Input, text: text.into() }
    }

    pub(super) fn fault(what: &str) -> Self {
        let text =
            format!("a fault of the library: {what}; close the engine that it happened in, and report it");
        Self { status: Status::Failed, text }
    }

    fn panicked(payload: &(dyn Any + Send)) -> Self {
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::fault(said.unwrap_or("a panic without a text"))
    }

    /// Keeps the text for [`ygg_last_error`].
    fn keep(self) -> Status {
        let text = CString::new(self.text.replace('\0', "\u{fffd}")).expect("every NUL was replaced");
        // A thread that is ending can no longer ask for the text.
        let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
        self.status
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Input => Status::Input,
            ErrorKind::Device => Status::Device,
            ErrorKind::Internal => Status::Failed,
        };
        let text = match error.hint() {
            Some(hint) => format!("{error}; {}", next_step(hint)),
            None => error.to_string(),
        };
        Self { status, text }
    }
}

/// What the caller can do, in the terms of this interface.
fn next_step(hint: &Hint) -> String {
    let step = match hint {
        Hint::Context => "set `context` of ygg_options",
        Hint::Tier => "set `isa` of ygg_options to another set, or to NULL",
        Hint::Processor => "set `device` of ygg_options to \"cpu\", and open the engine again",
        Hint::Threads => "set `threads` of ygg_options",
        Hint::Resident => {
            "set `resident` of ygg_options to another number of bytes, and `packed_folder` to a folder"
        }
        Hint::ForcePlan => "or set `force_plan` of ygg_options to use the plan all the same",
        Hint::DraftModel => "set `draft_model` of ygg_options to its path",
        Hint::Store => "set `store` of ygg_options to the path of the corpus store",
        Hint::RawPrompt => "give `prompt` or `tokens` of ygg_request instead of `messages`",
        Hint::Profile { drafter } => {
            return format!(
                "measure the drafter `{drafter}` with `yggc profile`, plan again with `yggc plan`, and set `plan` of \
                 ygg_options to the new file"
            );
        }
        Hint::Recording => "record again with `yggc profile`, for longer or on other prompts",
        Hint::Corpus => {
            "build the corpus store again with `yggc corpus build`, of less text or with fewer snippets"
        }
    };
    step.to_owned()
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs the body of an interface function: failures and panics become a status and this thread's error text.
pub(super) fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    // The lock of an engine that panicked stays poisoned, so every further request is refused.
    let ended = panic::catch_unwind(AssertUnwindSafe(call));
    match ended.unwrap_or_else(|payload| Err(Failure::panicked(payload.as_ref()))) {
        Ok(()) => Status::Ok,
        Err(failure) => failure.keep(),
    }
}

/// The error of this thread's last call that did not return `YGG_STATUS_OK`: one paragraph of UTF-8 that says what was
/// expected, what was found and what to do. Never `NULL`; empty if no call failed yet. The text belongs to the library
/// and is valid until this thread's next failing call or its end.
#[unsafe(no_mangle)]
pub extern "C" fn ygg_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library, such as "0.1.0"; a static text.
#[unsafe(no_mangle)]
pub extern "C" fn ygg_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last_error() -> String {
        // SAFETY: the text is this thread's, which makes no call meanwhile.
        unsafe { CStr::from_ptr(ygg_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn every_hint_names_the_field_or_command_that_helps() {
        for (hint, part) in [
            (Hint::Context, "`context` of ygg_options"),
            (Hint::Tier, "`isa` of"),
            (Hint::Processor, "`device` of"),
            (Hint::Threads, "`threads` of"),
            (Hint::Resident, "`packed_folder` to a folder"),
            (Hint::ForcePlan, "`force_plan` of"),
            (Hint::DraftModel, "`draft_model` of"),
            (Hint::Store, "`store` of"),
            (Hint::RawPrompt, "`prompt` or `tokens` of ygg_request"),
            (Hint::Profile { drafter: "lookup".to_owned() }, "the drafter `lookup` with `yggc profile`"),
            (Hint::Recording, "`yggc profile`"),
            (Hint::Corpus, "`yggc corpus build`"),
        ] {
            let Failure { text, .. } = Error::input("the cause").with_hint(hint).into();
            assert!(text.starts_with("the cause; ") && text.contains(part), "{text}");
            assert!(!text.contains("--"), "C has no flags: {text}");
        }
        assert_eq!(Failure::from(Error::input("the cause")).text, "the cause");
    }

    #[test]
    fn panics_and_failures_become_a_status_and_a_text() {
        assert_eq!((guarded(|| Ok(())), last_error().as_str()), (Status::Ok, ""));
        assert_eq!(guarded(|| Err(Failure::input("a\0b"))), Status::Input);
        assert_eq!(last_error(), "a\u{fffd}b");
        for panicking in
            [|| panic!("five is {}", 5), || panic!("five is 5")] as [fn() -> Result<(), Failure>; 2]
        {
            assert_eq!(guarded(panicking), Status::Failed);
            assert!(last_error().contains("five is 5"), "{}", last_error());
        }
        assert_eq!(guarded(|| panic::panic_any(5)), Status::Failed);
        assert!(last_error().contains("without a text"));
        // A successful call keeps the text of the last failure, and other threads have their own texts.
        assert_eq!(guarded(|| Ok(())), Status::Ok);
        assert!(last_error().contains("without a text"));
        assert_eq!(std::thread::spawn(last_error).join().unwrap(), "");
    }
}
