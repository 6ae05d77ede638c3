//! What can go wrong while a plan is searched.
use ygg_profiler::{DrafterName, ProfileError, TableError};

use crate::plan::PlanError;

/// Why no plan can be made. Variants say what was expected, what was found and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// What the profile describes is nothing that a plan can hold.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The latency table lacks a cell or is unusable: a fault of the measured grid.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The profile is unusable: a fault of its writer.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Nothing says how often the drafter's tokens are accepted, or what drafting takes.
    #[error("drafter {drafter}: expected {expected}, found none; profile with more time or other prompts")]
    NoEvidence {
        /// The drafter.
        drafter: DrafterName,
        /// What was looked for.
        expected: &'static str,
    },
    /// A recorded trace does not reach far enough for a shape.
    #[error(
        "drafter {drafter}: Dd {depth}, Wd {draft_width} needs {:.1} % of nodes the trace never expanded, expected at \
         most {:.1} %; record a wider trace", missing * 100.0, most * 100.0
    )]
    IncompleteTrace {
        /// The drafter.
        drafter: DrafterName,
        /// Growths.
        depth: u32,
        /// Nodes per growth.
        draft_width: u32,
        /// Share of forwarded nodes without recorded candidates.
        missing: f64,
        /// The largest share allowed.
        most: f64,
    },
    /// A profile from which nothing follows for other weights in memory than were measured.
    #[error(
        "memory cannot be divided anew: expected a profile with {expected}, found {found}; profile with some of the weights streamed from a \
         file, and some layers in memory"
    )]
    Division {
        /// What has to be in the profile.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// A budget of memory that nothing fits into.
    #[error(
        "{found} bytes of memory are too few: expected at least {least}, for the weights that always stay, a buffer for the others and a \
         session with a context of {context} tokens; give more, or a shorter context"
    )]
    Budget {
        /// The budget.
        found: u64,
        /// The least that works.
        least: u64,
        /// Tokens of the context.
        context: u32,
    },
    /// A budget of memory that needs no streaming.
    #[error(
        "{found} bytes of memory hold the whole model, which takes {whole}: expected fewer; profile with all weights in memory, which is \
         faster"
    )]
    Fits {
        /// The budget.
        found: u64,
        /// What the model takes.
        whole: u64,
    },
    /// A `--fix` text that is none.
    #[error(
        "bad fix `{text}`: expected `drafter=D,Dd=4,Wd=4,Wv=16,rows=all,predictor=on,growth=egt,schedule=plain,objective=aal` or a part of it, found {found}"
    )]
    FixSyntax {
        /// The text.
        text: String,
        /// What is wrong in it.
        found: String,
    },
    /// A fix that no measured shape satisfies.
    #[error("no measured shape satisfies `{fix}`; measured: {measured}; profile that shape or fix less")]
    FixImpossible {
        /// The fix.
        fix: String,
        /// What can be fixed.
        measured: String,
    },
}
