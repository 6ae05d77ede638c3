//! The guard: decides, per request, when drafting stops because it does not pay, and when it is tried again. Pure.
//!
//! A plan predicts a mean over its calibration prompts; a request may accept less. So every request has an account in
//! plain steps: a step that drafts earns the tokens that it emits and pays what it costs, as the plan says or as
//! [`StepCosts`](super::StepCosts) corrects it by the clock. The same steps at the same costs always decide the same,
//! and a request that accepts nothing loses a known number of plain steps, whatever was predicted of it.
use crate::plan::{GuardLimits, Prediction};

/// Time constant of the account: an entry that is so many steps old counts 1/e. A loss of less than
/// [`GuardLimits::may_lose`] over so many steps is tolerated.
const MEMORY_STEPS: f64 = 64.0;
/// Length of the first pause for each plain step that a failed probe loses; each failed probe doubles the pause. Short
/// at first: a text that begins to repeat itself gains more than a probe costs.
const FIRST_PAUSE: f64 = 16.0;
/// Shortest pause: a probe exceeds its limit by up to one step, however small the limit.
const SHORTEST_PAUSE: u32 = 16;
/// Longest pause.
const LONGEST_PAUSE: u32 = 256;

/// What the plan says of the steps under guard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardTerms {
    /// Predicted tokens per step.
    pub aal: f64,
    /// Predicted time of a step.
    pub step_us: f64,
    /// Predicted time of a plain step.
    pub plain_step_us: f64,
    /// What a request may lose.
    pub limits: GuardLimits,
}

impl GuardTerms {
    /// Those of steps with this prediction.
    pub fn new(predicted: &Prediction, limits: GuardLimits) -> Self {
        let Prediction { aal, step_us, ar_tpot_us: plain_step_us, .. } = *predicted;
        Self { aal, step_us, plain_step_us, limits }
    }

    /// Plain steps that a probe may lose before it has failed.
    fn probe_may_lose(&self) -> f64 {
        self.limits.may_lose / 2.0
    }

    /// Plain steps that a probe must earn to have succeeded.
    fn probe_earns(&self) -> f64 {
        self.limits.may_lose / 4.0
    }

    /// Upper bound of the account, so that a text that turns bad is noticed soon.
    fn most_credit(&self) -> f64 {
        self.limits.may_lose * 2.0
    }

    /// Plain steps before the first probe.
    pub fn first_pause(&self) -> u32 {
        let steps = FIRST_PAUSE * (self.probe_may_lose() + self.limits.resume);
        (steps.ceil() as u32).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Upper bound of the loss, in plain steps, of a request of `tokens` tokens whose drafts are all refused and whose
    /// steps take at most `dearest_us`: the limit before the first pause, what the account forgets, and the loss of
    /// every probe at the closest spacing that pauses allow, each with the step that exceeds its limit.
    pub fn lost_by_refusals(&self, tokens: u32, dearest_us: f64) -> f64 {
        let beyond = self.beyond(dearest_us);
        let mut lost = self.lost_at_first(tokens, beyond);
        let (mut left, mut pause) = (tokens, self.first_pause());
        while left > pause {
            left -= pause;
            lost += self.probe_may_lose() + self.limits.resume + beyond;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        lost
    }

    /// The same bound for the worst pattern of acceptance: every probe succeeds, and then the full limit is lost.
    pub fn most_lost(&self, tokens: u32, dearest_us: f64) -> f64 {
        let beyond = self.beyond(dearest_us);
        let probes = f64::from(tokens / self.first_pause());
        self.lost_at_first(tokens, beyond) + probes * (self.limits.may_lose + self.limits.resume + beyond)
    }

    fn beyond(&self, dearest_us: f64) -> f64 {
        (dearest_us / self.plain_step_us - 1.0).max(0.0)
    }

    fn lost_at_first(&self, tokens: u32, beyond: f64) -> f64 {
        self.limits.may_lose * (1.0 + f64::from(tokens) / MEMORY_STEPS) + beyond
    }
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
    /// It speculates to see whether that pays again, until it has earned or lost enough to tell.
    Probing,
}

/// The guard between two steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardState {
    mode: GuardMode,
    /// Plain steps earned less plain steps lost; old entries decay.
    account: f64,
    /// Length of the next pause, if it is longer than the first.
    pause: u32,
}

impl GuardState {
    /// A request's start: it speculates and has earned nothing yet.
    pub fn new() -> Self {
        GuardState { mode: GuardMode::Speculating, account: 0.0, pause: 0 }
    }

    /// Whether the next step drafts.
    pub fn drafts(&self) -> bool {
        match self.mode {
            GuardMode::Speculating | GuardMode::Probing => true,
            GuardMode::Paused { .. } => false,
        }
    }

    /// The state after a step that drafted.
    ///
    /// # Panics
    /// If the guard had paused drafting.
    #[must_use]
    pub fn after_speculation(self, terms: &GuardTerms, step: GuardedStep) -> Self {
        let keep = 1.0 - 1.0 / MEMORY_STEPS;
        let earned = f64::from(step.tokens) - step.step_us / terms.plain_step_us;
        let account = (keep * self.account + earned).min(terms.most_credit());
        let next = GuardState { account, ..self };
        match self.mode {
            GuardMode::Speculating if account < -terms.limits.may_lose => next.paused(terms),
            GuardMode::Probing if account < -terms.probe_may_lose() => next.paused(terms),
            GuardMode::Probing if account > terms.probe_earns() => {
                GuardState { mode: GuardMode::Speculating, pause: 0, ..next }
            }
            GuardMode::Speculating | GuardMode::Probing => next,
            GuardMode::Paused { .. } => panic!("a paused request does not draft"),
        }
    }

    /// The state after a plain step of a pause. A probe starts with an empty account: the text may have changed.
    #[must_use]
    pub fn after_plain(self) -> Self {
        match self.mode {
            GuardMode::Paused { left: left @ 2.. } => {
                GuardState { mode: GuardMode::Paused { left: left - 1 }, ..self }
            }
            GuardMode::Paused { .. } => GuardState { mode: GuardMode::Probing, account: 0.0, ..self },
            GuardMode::Speculating | GuardMode::Probing => self,
        }
    }

    fn paused(self, terms: &GuardTerms) -> Self {
        let left = self.pause.max(terms.first_pause());
        GuardState { mode: GuardMode::Paused { left }, pause: (2 * left).min(LONGEST_PAUSE), ..self }
    }
}

impl Default for GuardState {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: GuardLimits = GuardLimits::DEFAULT;
    const TERMS: GuardTerms = GuardTerms { aal: 1.6, step_us: 125.0, plain_step_us: 100.0, limits: LIMITS };

    /// What steps that each emit as many tokens as `tokens` says did: modes, and predicted time over that of plain
    /// decoding.
    fn run(steps: usize, tokens: impl Fn(usize) -> u32) -> (Vec<GuardMode>, f64) {
        let mut state = GuardState::new();
        let (mut modes, mut us, mut emitted) = (Vec::new(), 0.0, 0);
        for step in 0..steps {
            modes.push(state.mode);
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
        let probes = modes.windows(2).filter(|m| is_paused(&m[0]) && !is_paused(&m[1])).count();
        assert!((10..25).contains(&probes), "{probes} probes in 4,000 steps");
        // What may be lost, and the step that goes beyond it, at first and in every probe.
        let beyond = TERMS.step_us / TERMS.plain_step_us - 1.0;
        let may_lose = LIMITS.may_lose + beyond + (TERMS.probe_may_lose() + beyond) * probes as f64;
        assert!(
            short < 1.05 && long <= 1.0 + may_lose / 4_000.0,
            "{short} and {long} of plain decoding's time"
        );
        let longest = modes.iter().map(|mode| match mode {
            GuardMode::Paused { left } => *left,
            GuardMode::Speculating | GuardMode::Probing => 0,
        });
        assert_eq!(longest.max(), Some(LONGEST_PAUSE));
    }

    #[test]
    fn a_request_that_changes_is_found_out_both_ways() {
        let (modes, _) = run(400, |step| if step < 100 { 1 } else { 3 });
        assert!(is_paused(&modes[80]) && modes[399] == GuardMode::Speculating);
        let back = modes.iter().rposition(is_paused).expect("it paused");
        assert_eq!(modes[back + 1..][..2], [GuardMode::Probing, GuardMode::Speculating]);
        // Good text first: the memory is short enough to see the change.
        let (modes, _) = run(400, |step| if step < 200 { 3 } else { 1 });
        assert!(modes[..200].iter().all(|mode| !is_paused(mode)) && modes[200..280].iter().any(is_paused));
    }

    proptest! {
        #[test]
        fn no_request_loses_more_than_is_stated(
            may_lose in 1_u32..8, beyond in 1_u32..200, bursts in prop::collection::vec((1_u32..40, prop::sample::select(vec![1_u32, 1, 2, 4])), 1..9),
            tokens in 1_u32..600,
        ) {
            let step_us = 100.0 + f64::from(beyond);
            let limits = GuardLimits { may_lose: f64::from(may_lose), resume: 0.0 };
            let terms = GuardTerms { step_us, limits, ..TERMS };
            let by_step = bursts.iter().flat_map(|(steps, tokens)| std::iter::repeat_n(*tokens, *steps as usize));
            let (mut state, mut us, mut emitted) = (GuardState::new(), 0.0, 0);
            for of_step in by_step.cycle() {
                if emitted >= tokens {
                    break;
                }
                if state.drafts() {
                    let done = GuardedStep { tokens: of_step, step_us };
                    (us, emitted) = (us + step_us, emitted + of_step);
                    state = state.after_speculation(&terms, done);
                } else {
                    (us, emitted) = (us + terms.plain_step_us, emitted + 1);
                    state = state.after_plain();
                }
            }
            let lost = us / terms.plain_step_us - f64::from(emitted);
            prop_assert!(lost <= terms.most_lost(emitted, step_us), "{lost} of {emitted} tokens");
            let is_refused = bursts.iter().all(|(_, tokens)| *tokens == 1);
            prop_assert!(!is_refused || lost <= terms.lost_by_refusals(emitted, step_us), "{lost} of {emitted} tokens");
        }
    }

    #[test]
    fn what_varies_more_may_lose_more_and_pauses_longer() {
        let of = |may_lose, resume| GuardTerms { limits: GuardLimits { may_lose, resume }, ..TERMS };
        assert_eq!([of(1.0, 0.0), of(3.0, 0.0), of(2.0, 1.0)].map(|terms| terms.first_pause()), [16, 24, 32]);
        let until_paused = |terms: GuardTerms| {
            let step = GuardedStep { tokens: 1, step_us: terms.step_us };
            let next = |s: &GuardState| s.drafts().then(|| s.after_speculation(&terms, step));
            std::iter::successors(Some(GuardState::new()), next).count()
        };
        assert!(until_paused(of(1.0, 0.0)) < until_paused(of(4.0, 0.0)));
    }

    #[test]
    fn the_same_history_decides_the_same() {
        let tokens = |step: usize| 1 + (step * 7 % 11 / 8) as u32;
        assert_eq!(run(300, tokens).0, run(300, tokens).0);
    }
}
