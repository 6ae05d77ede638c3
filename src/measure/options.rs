//! What is profiled, and within how much time.

use std::{path::PathBuf, time::Duration};

use ygg_profiler::UnixTime;

use crate::{engine::Loaded, runtime::Pinning};

use super::{
    calibration::{CalibrationPrompt, calibration_prompts},
    division::FirstDivision,
    live::Learners,
};

/// Time for measuring and recording on first use: people wait for it.
const BUDGET: Duration = Duration::from_secs(55);
/// Time for refining the plan of a first use, and the same where weights are streamed: nobody waits for it.
const REFINEMENT: Duration = Duration::from_secs(240);
const STREAMED_REFINEMENT: Duration = Duration::from_secs(600);
/// The context at which latencies are measured on first use where weights are streamed: those of longer ones would take
/// the time of recordings.
const STREAMED_CONTEXT: usize = 128;
/// The temperatures that are recorded in addition to 0.
const TEMPERATURES: [f32; 2] = [0.6, 1.0];
/// The least budget in which they are recorded: with less, too few requests of each are recorded to plan from.
const LEAST_WARM_BUDGET: Duration = Duration::from_secs(45);

/// Which substitutes are measured where weights are streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substitutes {
    /// That of the most bits.
    Closest,
    /// That of these bits, whose memory is provided for; none if `None`.
    Of(Option<u32>),
    /// Those of all bits that fit in memory together: a plan within a budget chooses among them.
    All,
}

/// What is profiled.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// Drafters to measure; empty for all that can be made from the model.
    pub drafters: Vec<String>,
    /// Corpus store that `retrieval` and `prior` draft from; without one neither is measured.
    pub store: Option<PathBuf>,
    /// Models that draft, each of the verifier's vocabulary or for its hidden rows; without one drafter `model` is not
    /// measured.
    pub draft_models: Vec<PathBuf>,
    /// Calibration prompts.
    pub prompts: Vec<CalibrationPrompt>,
    /// Name of the calibration set.
    pub calibration: String,
    /// Numbers of tokens that trimmed heads keep, where that is less than half of the vocabulary.
    pub head_sizes: Vec<usize>,
    /// Temperatures above 0 that requests are recorded at too, ascending; every one has a share of the time for
    /// acceptance.
    pub temperatures: Vec<f32>,
    /// Which drafters that learn from the verifier are recorded.
    pub learners: Learners,
    /// Which substitutes are measured where weights are streamed.
    pub substitutes: Substitutes,
    /// Committed tokens at which latencies are measured: the first for the steps that were recorded, every further one
    /// for steps of requests that have grown so long.
    pub contexts: Vec<usize>,
    /// Whether networks that predict depths are trained.
    pub predictors: bool,
    /// Most tokens recorded per prompt: the longer answers are, the more of them repeats what was said. Half as many
    /// where few prompts could be recorded otherwise.
    pub tokens: usize,
    /// Time for everything: a fifth of it at most for tunings, a twentieth for depth predictors, and of the rest five
    /// eighths for acceptance and at most half for latencies. Where weights are streamed at most 0.3 of it for
    /// latencies, which are measured first, and what they leave for acceptance.
    pub budget: Duration,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
    /// Bytes that may be allocated: substitutes that do not fit are left out. No limit if `None`.
    pub memory_limit: Option<usize>,
    /// Whether an emulated device may be measured, too, to rehearse what is done with a GPU. Every cell has one sample
    /// then; the times mean nothing, and the profile is of that device alone.
    pub is_rehearsal: bool,
    /// What says when measuring began.
    pub clock: fn() -> UnixTime,
}

impl ProfileOptions {
    /// Widths that executables are measured at.
    pub const WIDTHS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

    /// Nodes per growth of the recorded trees.
    pub(super) const TRACE_WIDTH: usize = 8;

    /// Time of a first use where weights are streamed: every forward takes a reading, and speculation pays most.
    pub(super) const STREAMED_BUDGET: Duration = Duration::from_secs(180);

    /// The shipped calibration set within `budget`; greedy requests alone where that is short.
    pub fn new(budget: Duration) -> Self {
        Self {
            drafters: Vec::new(),
            store: None,
            draft_models: Vec::new(),
            prompts: calibration_prompts(),
            calibration: "shipped".to_owned(),
            head_sizes: vec![8192, 16384],
            temperatures: if budget < LEAST_WARM_BUDGET { Vec::new() } else { TEMPERATURES.to_vec() },
            learners: Learners::All,
            substitutes: Substitutes::All,
            contexts: vec![128, 1024, 4096],
            predictors: true,
            tokens: 96,
            budget,
            pinning: Pinning::default(),
            memory_limit: None,
            is_rehearsal: false,
            clock: UnixTime::now,
        }
    }

    /// What is measured of a model on its first use, within `budget` or [`first_use_budget`](Self::first_use_budget):
    /// no trimmed heads and of drafters that learn the mixtures alone, as the cells of the heads would take a fourth of
    /// the time. Where weights are streamed the closest substitute alone, or that of the division, for greedy requests.
    pub fn of_first_use(loaded: &Loaded, budget: Option<Duration>, division: Option<FirstDivision>) -> Self {
        let options = Self::new(budget.unwrap_or(Self::first_use_budget(loaded)));
        if loaded.set().graph().streams() {
            let (temperatures, contexts) = (Vec::new(), vec![STREAMED_CONTEXT]);
            return Self { temperatures, contexts, ..options.of_streamed(division) };
        }
        Self { head_sizes: Vec::new(), learners: Learners::Mixtures, ..options }
    }

    /// Time that the first use of a model takes for measuring and recording.
    pub fn first_use_budget(loaded: &Loaded) -> Duration {
        if loaded.set().graph().streams() { Self::STREAMED_BUDGET } else { BUDGET }
    }

    /// What is measured when the plan of a first use is refined, within `budget` or the usual time.
    pub fn of_refinement(loaded: &Loaded, budget: Option<Duration>, division: Option<FirstDivision>) -> Self {
        if !loaded.set().graph().streams() {
            return Self::new(budget.unwrap_or(REFINEMENT));
        }
        Self::new(budget.unwrap_or(STREAMED_REFINEMENT)).of_streamed(division)
    }

    /// What is measured of a model whose weights are streamed: what learns from the verifier has to decode all prompts
    /// by itself, and so have networks that choose depths to be trained on more steps than there is time for.
    fn of_streamed(self, division: Option<FirstDivision>) -> Self {
        let substitutes = match division {
            Some(division) => Substitutes::Of(division.substitute_bits()),
            None => Substitutes::Closest,
        };
        Self { learners: Learners::None, predictors: false, substitutes, ..self }
    }
}
