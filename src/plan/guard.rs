//! The guard's policy: when a request stops speculating because that does not pay, and when it tries again. Pure.
//!
//! A plan predicts a mean over its calibration prompts; a request may accept less. What decides is what the request's own
//! steps emitted and what such steps cost, as the plan says or as [`StepCosts`](super::StepCosts) corrects it by the clock; the
//! same steps at the same costs always decide the same.
/// Steps after which evidence counts about a third: what happened long ago counts little.
const MEMORY_STEPS: f64 = 24.0;
/// Steps of the plan's prediction that a request starts with, so that a few bad steps decide nothing.
const PRIOR_STEPS: f64 = 5.0;
/// Estimated speed-up below which speculation stops. Not 1: an estimate from so few steps is that uncertain, and stopping
/// and probing cost something too.
const STOP_BELOW: f64 = 0.97;
/// Plain steps before the first probe; each probe that fails doubles them. Few at first: a text that begins to repeat
/// itself is worth more than a probe costs.
const FIRST_PAUSE: u32 = 16;
/// Most plain steps before a probe.
const LONGEST_PAUSE: u32 = 256;
/// Speculative steps of a probe.
const PROBE_STEPS: u32 = 4;

/// What the plan says of the steps under guard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardTerms {
    /// Predicted tokens per step.
    pub aal: f64,
    /// Predicted time of a step.
    pub step_us: f64,
    /// Predicted time of a plain step.
    pub plain_step_us: f64,
}

/// What one speculative step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardedStep {
    /// Tokens emitted.
    pub tokens: u32,
    /// The time of a step that verifies as many rows, as planned or corrected.
    pub step_us: f64,
}

/// What the next step of a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardMode {
    /// It speculates.
    Speculating,
    /// It decodes plainly, and so do `left - 1` more.
    Paused {
        /// Plain steps left.
        left: u32,
    },
    /// It speculates to see whether that pays again, and so do `left - 1` more.
    Probing {
        /// Steps of the probe left.
        left: u32,
    },
}

/// The guard between two steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardState {
    mode: GuardMode,
    /// Tokens and time of recent speculative steps, older ones fading.
    tokens: f64,
    step_us: f64,
    /// Plain steps of the next pause.
    pause: u32,
}

impl GuardState {
    /// A request's start: it speculates, and is believed to do as predicted.
    pub fn new(terms: &GuardTerms) -> Self {
        GuardState {
            mode: GuardMode::Speculating,
            tokens: PRIOR_STEPS * terms.aal,
            step_us: PRIOR_STEPS * terms.step_us,
            pause: FIRST_PAUSE,
        }
    }

    /// What the next step does.
    pub fn mode(&self) -> GuardMode {
        self.mode
    }

    /// Whether the next step drafts.
    pub fn drafts(&self) -> bool {
        match self.mode {
            GuardMode::Speculating | GuardMode::Probing { .. } => true,
            GuardMode::Paused { .. } => false,
        }
    }

    /// Estimated speed-up over plain decoding of the request's speculative steps.
    pub fn speedup(&self, terms: &GuardTerms) -> f64 {
        self.tokens * terms.plain_step_us / self.step_us
    }

    /// The state after a step that drafted.
    ///
    /// # Panics
    /// If the guard had said to decode plainly.
    #[must_use]
    pub fn after_speculation(self, terms: &GuardTerms, step: GuardedStep) -> Self {
        let keep = 1.0 - 1.0 / MEMORY_STEPS;
        let next = GuardState {
            tokens: keep * self.tokens + f64::from(step.tokens),
            step_us: keep * self.step_us + step.step_us,
            ..self
        };
        match self.mode {
            GuardMode::Speculating if next.speedup(terms) < STOP_BELOW => next.paused(),
            GuardMode::Speculating => next,
            GuardMode::Probing { left: 2.. } => next.with_mode(self.countdown()),
            GuardMode::Probing { .. } if next.speedup(terms) < 1.0 => next.paused(),
            GuardMode::Probing { .. } => {
                GuardState { pause: FIRST_PAUSE, ..next.with_mode(GuardMode::Speculating) }
            }
            GuardMode::Paused { .. } => panic!("a paused request does not draft"),
        }
    }

    /// The state after a plain step of a pause. A probe starts without a past: the text may have changed.
    #[must_use]
    pub fn after_plain(self) -> Self {
        match self.mode {
            GuardMode::Paused { left: 2.. } => self.with_mode(self.countdown()),
            GuardMode::Paused { .. } => GuardState {
                tokens: 0.0,
                step_us: 0.0,
                ..self.with_mode(GuardMode::Probing { left: PROBE_STEPS })
            },
            GuardMode::Speculating | GuardMode::Probing { .. } => self,
        }
    }

    fn countdown(self) -> GuardMode {
        match self.mode {
            GuardMode::Speculating => GuardMode::Speculating,
            GuardMode::Paused { left } => GuardMode::Paused { left: left - 1 },
            GuardMode::Probing { left } => GuardMode::Probing { left: left - 1 },
        }
    }

    fn with_mode(self, mode: GuardMode) -> Self {
        GuardState { mode, ..self }
    }

    fn paused(self) -> Self {
        let pause = (2 * self.pause).min(LONGEST_PAUSE);
        GuardState { mode: GuardMode::Paused { left: self.pause }, pause, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: GuardTerms = GuardTerms { aal: 1.6, step_us: 125.0, plain_step_us: 100.0 };

    /// What steps that each emit as many tokens as `tokens` says did: modes, and predicted time over that of plain decoding.
    fn run(steps: usize, tokens: impl Fn(usize) -> u32) -> (Vec<GuardMode>, f64) {
        let mut state = GuardState::new(&TERMS);
        let (mut modes, mut us, mut emitted) = (Vec::new(), 0.0, 0);
        for step in 0..steps {
            modes.push(state.mode());
            if state.drafts() {
                let done = GuardedStep { tokens: tokens(step), step_us: TERMS.step_us };
                (us, emitted) = (us + done.step_us, emitted + done.tokens);
                state = state.after_speculation(&TERMS, done);
            } else {
                (us, emitted) = (us + TERMS.plain_step_us, emitted + 1);
                state = state.after_plain();
            }
        }
        (modes, us / (TERMS.plain_step_us * f64::from(emitted)))
    }

    fn is_paused(mode: &GuardMode) -> bool {
        matches!(mode, GuardMode::Paused { .. })
    }

    #[test]
    fn a_request_that_accepts_as_predicted_is_left_alone() {
        for tokens in [[2, 2], [1, 3], [3, 1]] {
            let (modes, _) = run(500, |step| tokens[step % 2]);
            assert!(modes.iter().all(|mode| *mode == GuardMode::Speculating), "{tokens:?}");
        }
    }

    #[test]
    fn a_request_that_accepts_nothing_loses_little() {
        let (modes, short) = run(128, |_| 1);
        let begin = modes.iter().position(is_paused).expect("it pauses");
        assert!((4..=16).contains(&begin), "paused after {begin} steps");
        let (modes, long) = run(4_000, |_| 1);
        assert!(short < 1.06 && long < 1.02, "{short} and {long} of plain decoding's time");
        let probes = modes.windows(2).filter(|m| is_paused(&m[0]) && !is_paused(&m[1])).count();
        assert!((10..25).contains(&probes), "{probes} probes in 4,000 steps");
        let longest = modes.iter().map(|mode| match mode {
            GuardMode::Paused { left } => *left,
            GuardMode::Speculating | GuardMode::Probing { .. } => 0,
        });
        assert_eq!(longest.max(), Some(LONGEST_PAUSE));
    }

    #[test]
    fn a_request_that_changes_is_found_out_both_ways() {
        let (modes, _) = run(400, |step| if step < 100 { 1 } else { 3 });
        assert!(is_paused(&modes[80]) && modes[399] == GuardMode::Speculating);
        let back = modes.iter().rposition(is_paused).expect("it paused");
        assert_eq!(modes[back + 1], GuardMode::Probing { left: PROBE_STEPS });
        assert_eq!(modes[back + 1 + PROBE_STEPS as usize], GuardMode::Speculating);
        // Good text first: the memory is short enough to see the change.
        let (modes, _) = run(400, |step| if step < 200 { 3 } else { 1 });
        assert!(modes[..200].iter().all(|mode| !is_paused(mode)) && modes[200..280].iter().any(is_paused));
    }

    #[test]
    fn the_same_history_decides_the_same() {
        let tokens = |step: usize| 1 + (step * 7 % 11 / 8) as u32;
        assert_eq!(run(300, tokens).0, run(300, tokens).0);
    }
}
