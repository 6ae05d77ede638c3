//! Measuring and recording with the real thing: what the profiler asks for, over sessions and decoders.
//!
//! [`profile`] measures latencies of every planned width, records acceptance on the calibration prompts, of layer skip with
//! trimmed heads and of drafters that learn from the verifier too, and trains on it what tells how deep to draft;
//! [`autoplan`] goes on to the plan, within a time budget. [`score`] is teacher-forced scoring.
//! [`kernel_report`] takes forwards apart, op by op, beside what bounds them on this machine, and [`tuned_report`] compares
//! them with the tunings of a plan. Nothing here decides:
//! planning is `plan`'s, and the profile keeps raw numbers.
#![forbid(unsafe_code)]

mod autoplan;
mod calibration;
mod depth;
mod forwards;
mod kernel_report;
mod kernels;
mod live;
mod record;
mod redraft;
mod replay;
mod score;
mod subject;
mod trace;
mod trimming;
mod tuned;
mod tuner;

pub use autoplan::{AutoplanOptions, Progress, autoplan};
pub use calibration::{CalibrationPrompt, calibration_prompts, read_prompts};
pub use kernel_report::{ForwardReport, KernelReport, OpReport, Roofline, Timing};
pub use kernels::{KernelOptions, kernel_report};
pub use record::{ProfileOptions, profile};
pub use replay::plan_from_profile;
pub use score::{Score, ScoredToken, score};
pub use tuned::{TunedForward, TunedOp, tuned_report};
