//! Measuring and recording with the real thing: what the profiler asks for, over sessions and decoders.
//!
//! [`profile`] measures latencies of every planned width, records acceptance on the calibration prompts, of layer skip
//! with trimmed heads, of drafters that learn from the verifier and at other temperatures too, and trains on it what
//! tells how deep to draft; [`remeasure`] measures some of its latencies once more; [`profile_file`] keeps profiles in
//! files. [`score`] is teacher-forced scoring, and [`build_corpus`] keeps the texts that score best in a store to
//! retrieve from. [`kernel_report`] takes forwards apart, op by op, with what bounds them on this machine, and
//! [`tuned_report`] compares them with the tunings of a plan.
//! [`forecast`] says what forwards of a model will take that is not here yet. Nothing here decides: planning begins in
//! [`planner`](crate::planner), and the profile keeps raw numbers.
#![forbid(unsafe_code)]

mod calibration;
mod corpus;
mod depth;
mod division;
mod drafters;
mod forecast;
mod forwards;
mod kernel_report;
mod kernels;
mod latencies;
mod live;
mod options;
pub mod profile_file;
mod progress;
mod record;
mod redraft;
mod remeasure;
mod score;
mod streamed;
mod subject;
mod trace;
mod trace_options;
mod trimming;
mod tuned;
mod tuner;
mod visits;
mod warm;
mod weight_memory;

pub(crate) use calibration::interleaved;
pub use calibration::{CalibrationPrompt, SHIPPED_PROMPTS, calibration_prompts, read_prompts};
pub use corpus::{CorpusOptions, CorpusReport, build_corpus};
pub use division::FirstDivision;
pub use forecast::{Forecast, ForecastOptions, ForwardForecast, Spread, StandsFor, forecast};
pub use kernel_report::{ForwardReport, KernelReport, OpReport, Roofline, Timing};
pub use kernels::{KernelOptions, kernel_report};
pub use live::Learners;
pub use options::{ProfileOptions, Substitutes};
pub use progress::Progress;
pub use record::profile;
pub use remeasure::{RemeasureOptions, remeasure};
pub use score::{Score, ScoredToken, score};
pub use tuned::{TunedForward, TunedOp, tuned_report};
