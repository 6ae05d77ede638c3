//! Failures of commands: one paragraph on stderr and an exit code.

use std::{error::Error as _, io, process::ExitCode};

use yggc::{
    compile::CompileError,
    engine::{self, ErrorKind, Hint},
    measure::profile_file::ProfileFileError,
    model::ModelError,
    plan::{DrafterId, PlanError},
    planner::SearchError,
};

use crate::cli::{cache::CacheError, distill::DistillError, fetch::FetchError};

/// Why a command failed. Usage errors that `clap` finds end the program earlier.
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
    Profile(#[from] ProfileFileError),
    /// Options that contradict each other.
    #[error("{0}")]
    Usage(String),
    /// Bad input: a file or text that cannot be used.
    #[error("{0}")]
    Input(String),
    /// A device or feature that this machine lacks.
    #[error("{0}")]
    Device(String),
    /// A bug: a promise of this program does not hold.
    #[error("{0}; this is a fault of yggc, please report it")]
    Internal(String),
    /// Properties that `verify` found broken on this machine.
    #[error("{0}")]
    Broken(String),
    /// The service could not start or continue.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Serve(#[from] crate::serve::ServeError),
    /// stdout was closed, or its disk is full.
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

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
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
            Self::Fetch(
                FetchError::UnknownName { .. } | FetchError::NoPath { .. } | FetchError::Unfetched { .. },
            )
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

    /// The message with its causes and what would help, on one line: a file's content must not break the paragraph.
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
        if let Self::Engine(error) = self
            && let Some(hint) = error.hint()
        {
            text = format!("{text}; {}", next_step(hint));
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Prints it on stderr. A reader of stdout that has left, as `head` does, wants no more: that is no failure.
    pub(crate) fn report(&self) -> ExitCode {
        if matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        #[expect(clippy::print_stderr, reason = "the one place that prints failures")]
        {
            eprintln!("error: {}", self.paragraph());
        }
        ExitCode::from(self.exit_code())
    }
}

/// What the user can do, in the terms of the command line.
fn next_step(hint: &Hint) -> String {
    let step = match hint {
        Hint::Context => "choose the context with --context",
        Hint::Tier => "choose a tier with --isa, or a GPU with --device cuda",
        Hint::Processor => "choose the processor with --device cpu",
        Hint::Threads => "choose their number with --threads",
        Hint::Resident => {
            "choose the budget with --resident, and the folder of packed weights with --cache-dir"
        }
        Hint::ForcePlan => "or pass --force to use it all the same",
        Hint::DraftModel => "name the drafter model with --draft-model",
        Hint::Store => "name the corpus store with --store",
        Hint::RawPrompt => "give the prompt as it is with --raw",
        Hint::Profile { drafter } => {
            let model = DrafterId::of_mixed_model(drafter);
            let drafter = model.map_or(drafter.clone(), |kind| format!("mixed --drafter {}", kind.name()));
            let file = if ["retrieval", "prior"].iter().any(|kind| drafter.starts_with(kind)) {
                " --store FILE.store"
            } else if ["model", "block"].iter().any(|kind| drafter.starts_with(kind))
                || model == Some(DrafterId::Model)
            {
                " --draft-model PATH"
            } else {
                ""
            };
            return format!(
                "measure it with `yggc profile --drafter {drafter}{file} -o FILE` and plan again with \
                 `yggc plan --profile FILE`"
            );
        }
        Hint::Recording => "give `yggc profile` more time with --budget, or other prompts with --prompts",
        Hint::Corpus => "see --input, --snippet, --keep and --tokens",
    };
    step.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_names_the_flag_that_helps() {
        let profile = |drafter: &str| Hint::Profile { drafter: drafter.to_owned() };
        for (hint, part) in [
            (Hint::Context, "--context"),
            (Hint::Tier, "--isa"),
            (Hint::Processor, "--device cpu"),
            (Hint::Threads, "--threads"),
            (Hint::Resident, "--resident"),
            (Hint::ForcePlan, "--force"),
            (Hint::DraftModel, "--draft-model"),
            (Hint::Store, "--store"),
            (Hint::RawPrompt, "--raw"),
            (profile("lookup"), "`yggc profile --drafter lookup -o FILE`"),
            (profile("model"), "--drafter model --draft-model PATH -o"),
            (profile("mixed_substitute4"), "--drafter mixed --drafter substitute -o"),
            (profile("mixed_model_hidden"), "--drafter mixed --drafter model --draft-model PATH -o"),
            (profile("block"), "--drafter block --draft-model PATH -o"),
            (profile("retrieval"), "--drafter retrieval --store FILE.store -o"),
            (profile("prior"), "--drafter prior --store FILE.store -o"),
            (Hint::Recording, "--budget"),
            (Hint::Corpus, "--snippet"),
        ] {
            let text = Failure::from(engine::Error::input("the cause").with_hint(hint)).paragraph();
            assert!(text.starts_with("the cause; ") && text.contains(part), "{text}");
        }
        assert_eq!(Failure::from(engine::Error::input("the cause")).paragraph(), "the cause");
    }
}
