//! The search: which set to try next, which set drafts, when to stop and to begin again, and what that may cost.

use serde::Serialize;

use crate::{plan::GroupSet, storage::SealError};

use super::{
    SkipCosts, SkipObjective, SkipState, TriedSet, expected_speedup, gaussian_process::GaussianProcess,
    state::Phase,
};

/// Sets among which the Gaussian process chooses: half of them random, half of them near the best one.
const POOL: u32 = 128;
/// Fewest and most of the groups that are skipped where the skip ratio is searched.
const RATIOS: [f64; 2] = [0.1, 0.8];
/// Tries that unspent work may be saved up for.
const SAVED_TRIES: f64 = 4.0;

/// How the search goes. The default is SWIFT's, and its share of the work ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkipSearchSettings {
    /// What is maximised.
    pub objective: SkipObjective,
    /// Tokens that a set has to reproduce, gamma: 1 or more.
    pub window: usize,
    /// Most of the counted work that tries may be: a share of what steps cost.
    pub share: f64,
    /// Every so many tries the Gaussian process proposes, beta.
    pub interval: u32,
    /// Deviations that its bound lies above the mean.
    pub kappa: f64,
    /// Variance of the noise of a measured matchness, in units of the variance of all.
    pub noise: f64,
    /// Matchness above which a search for matchness ends.
    pub enough: f64,
    /// Tries without a better set after which a search ends.
    pub patience: u32,
    /// Tries after which a search ends.
    pub most_tries: u32,
    /// Of the generator of choices.
    pub seed: u64,
}

impl Default for SkipSearchSettings {
    fn default() -> Self {
        Self {
            objective: SkipObjective::Matchness,
            window: 32,
            share: 0.02,
            interval: 25,
            kappa: 2.5,
            noise: 1e-2,
            enough: 0.95,
            patience: 300,
            most_tries: 1000,
            seed: 0,
        }
    }
}

/// What the search did and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SkipCounts {
    /// Sets tried in all, in earlier runs too if their state was kept.
    pub tries: u64,
    /// How often another set became the best.
    pub changes: u64,
    /// How often drafts were accepted so much less that the search began again.
    pub reopened: u64,
    /// Whether sets are still tried.
    pub is_searching: bool,
    /// Matchness of the best set when it was last measured.
    pub matchness: f64,
    /// Share of the groups that the best set skips.
    pub skip_ratio: f64,
    /// Counted work of the tries of this run, in microseconds by the table.
    pub tried_us: f64,
    /// Counted work of the steps of this run, the same way.
    pub stepped_us: f64,
}

/// The search over one model's groups.
#[derive(Clone, Debug)]
pub struct SkipSearch {
    settings: SkipSearchSettings,
    costs: SkipCosts,
    /// Deepest chain that the drafter drafts.
    depth: u32,
    /// How many groups a random set skips under the objective of matchness.
    size: u32,
    state: SkipState,
    process: GaussianProcess,
    /// The groups that may be skipped, in the order of the last draw.
    open: Vec<u32>,
    saved_us: f64,
    tried_us: f64,
    stepped_us: f64,
}

impl SkipSearch {
    /// A search that begins with `start` among the `groups` groups of a model, for a drafter of chains of at most
    /// `depth` tokens. Sets that are tried keep the first and the last layer, whatever `start` does.
    ///
    /// # Panics
    /// If there are more than [`GroupSet::MOST_GROUPS`] groups, or the window or the interval is 0.
    pub fn new(
        groups: u32,
        start: &[u32],
        depth: u32,
        costs: SkipCosts,
        settings: SkipSearchSettings,
    ) -> Self {
        assert!(groups <= GroupSet::MOST_GROUPS, "at most {} groups, found {groups}", GroupSet::MOST_GROUPS);
        assert!(settings.window > 0 && settings.interval > 0, "a window and an interval of 1 or more");
        let start = GroupSet::of(start.iter().copied());
        let open: Vec<u32> = (2..groups.saturating_sub(2)).collect();
        let size = open.iter().filter(|group| start.contains(**group)).count();
        Self {
            process: GaussianProcess::with_capacity(SkipState::MOST_POINTS, settings.noise),
            state: SkipState::new(groups, start, settings.seed),
            size: u32::try_from(size).expect("few groups"),
            settings,
            costs,
            depth,
            open,
            saved_us: 0.0,
            tried_us: 0.0,
            stepped_us: 0.0,
        }
    }

    /// The settings.
    pub fn settings(&self) -> &SkipSearchSettings {
        &self.settings
    }

    /// The costs that work is counted by.
    pub fn costs(&self) -> &SkipCosts {
        &self.costs
    }

    /// The set that drafts are made with.
    pub fn best(&self) -> &GroupSet {
        self.state.best()
    }

    /// What is kept over runs.
    pub fn state(&self) -> &SkipState {
        &self.state
    }

    /// Goes on from a kept state.
    ///
    /// # Errors
    /// [`SealError`] if it is of a model with other groups, or is none that a search comes to.
    pub fn restore(&mut self, mut state: SkipState) -> Result<(), SealError> {
        if let Some(fault) = state.fault() {
            return Err(SealError::new("a lawful state", fault));
        }
        if state.groups != self.state.groups {
            let show = |groups: u32| format!("a model of {groups} sub-layers");
            return Err(SealError::new(show(self.state.groups), show(state.groups)));
        }
        state.points.reserve_exact(SkipState::MOST_POINTS - state.points.len());
        self.state = state;
        Ok(())
    }

    /// What was done so far.
    pub fn counts(&self) -> SkipCounts {
        let SkipState { best, phase, tries, changes, reopened, .. } = &self.state;
        SkipCounts {
            tries: *tries,
            changes: *changes,
            reopened: *reopened,
            is_searching: matches!(phase, Phase::Searching { .. }),
            matchness: best.matchness,
            skip_ratio: 1.0 - self.kept(&best.set),
            tried_us: self.tried_us,
            stepped_us: self.stepped_us,
        }
    }

    /// Share of the groups that a set keeps.
    pub fn kept(&self, set: &GroupSet) -> f64 {
        1.0 - f64::from(set.len()) / f64::from(self.state.groups.max(1))
    }

    /// Takes note of steps that cost this much, by the table.
    pub fn worked(&mut self, us: f64) {
        self.stepped_us += us;
        self.saved_us = (self.saved_us + self.settings.share * us).min(SAVED_TRIES * self.reserve_us());
    }

    /// Takes note of a step that drafted: whether its first token was accepted. A text that the best set was not found
    /// for lets acceptance fall, and then the search begins again (ours; SWIFT's never does).
    pub fn drafted(&mut self, accepted: bool) {
        let SkipState { level, phase, is_scored, points, oldest, reopened, .. } = &mut self.state;
        level.add(accepted);
        if level.fell() {
            *level = Default::default();
            *phase = Phase::Searching { tries: 0, without_progress: 0 };
            *is_scored = false;
            // What they reproduced was of another text.
            points.clear();
            *oldest = 0;
            *reopened += 1;
        }
    }

    /// Whether a set may be tried now: the search goes on, and its share of the work so far pays for a try and for
    /// comparing the best set on the same tokens.
    pub fn may_try(&self) -> bool {
        let is_searching = matches!(self.state.phase, Phase::Searching { .. });
        is_searching && !self.open.is_empty() && self.saved_us >= self.reserve_us()
    }

    /// Counted work of a try of whole forwards and of its comparison.
    fn reserve_us(&self) -> f64 {
        2.0 * self.costs.try_us(self.window(), 1.0)
    }

    fn window(&self) -> u32 {
        u32::try_from(self.settings.window).expect("windows are short")
    }

    /// Pays for a forward over the window that leaves out `set`.
    fn pay(&mut self, set: &GroupSet) {
        let us = self.costs.try_us(self.window(), self.kept(set));
        self.saved_us -= us;
        self.tried_us += us;
    }

    /// The set to try now: first of all the best one, which drafts already; then random ones, and every `interval`th
    /// that of the Gaussian process.
    pub fn candidate(&mut self) -> GroupSet {
        let Phase::Searching { tries, .. } = self.state.phase else { return self.state.best.set };
        if !self.state.is_scored {
            return self.state.best.set;
        }
        if (tries + 1).is_multiple_of(self.settings.interval) && self.state.points.len() >= 2 {
            self.promising_set()
        } else {
            self.random_set()
        }
    }

    /// Takes note of what a candidate reproduced. If it seems better than the best set, the best set has to reproduce
    /// the same tokens ([`compared`](Self::compared)): texts differ in how easy they are.
    pub fn tried(&mut self, set: GroupSet, matchness: f64) -> bool {
        self.pay(&set);
        self.state.tries += 1;
        let tried = TriedSet { set, matchness };
        self.register(tried);
        if let Phase::Searching { tries, without_progress } = &mut self.state.phase {
            *tries += 1;
            *without_progress += 1;
        }
        let is_rival = self.state.is_scored
            && set != self.state.best.set
            && self.worth(&tried) > self.worth(&self.state.best);
        if set == self.state.best.set {
            self.state.best.matchness = matchness;
            self.state.is_scored = true;
        }
        if !is_rival {
            self.maybe_settle();
        }
        is_rival
    }

    /// Takes note of what the best set reproduced of the tokens that the last candidate was tried on: the better of
    /// them is the best now.
    pub fn compared(&mut self, rival: TriedSet, best_matchness: f64) {
        let best = self.state.best.set;
        self.pay(&best);
        self.state.best.matchness = best_matchness;
        if self.worth(&rival) > self.worth(&self.state.best) {
            self.state.best = rival;
            self.state.changes += 1;
            if let Phase::Searching { without_progress, .. } = &mut self.state.phase {
                *without_progress = 0;
            }
        }
        self.maybe_settle();
    }

    fn maybe_settle(&mut self) {
        let SkipSearchSettings { objective, enough, patience, most_tries, .. } = self.settings;
        let Phase::Searching { tries, without_progress } = self.state.phase else { return };
        let is_enough = objective == SkipObjective::Matchness && self.state.best.matchness > enough;
        if is_enough || without_progress >= patience || tries >= most_tries {
            self.state.phase = Phase::Settled;
            self.state.level = Default::default();
        }
    }

    /// What the objective makes of a matchness.
    pub fn worth(&self, tried: &TriedSet) -> f64 {
        worth(&self.settings, &self.costs, self.depth, self.kept(&tried.set), tried.matchness)
    }

    fn register(&mut self, tried: TriedSet) {
        let SkipState { points, oldest, .. } = &mut self.state;
        if points.len() < SkipState::MOST_POINTS {
            points.push(tried);
            return;
        }
        points[*oldest as usize] = tried;
        *oldest = (*oldest + 1) % SkipState::MOST_POINTS as u32;
    }

    /// A set of the start set's size, or of any where the ratio is searched, drawn evenly.
    fn random_set(&mut self) -> GroupSet {
        let size = match self.settings.objective {
            SkipObjective::Matchness => self.size as usize,
            SkipObjective::Speed => {
                let [fewest, most] = RATIOS.map(|ratio| (ratio * self.open.len() as f64).round() as usize);
                let fewest = fewest.max(1).min(self.open.len());
                fewest + self.state.random.below(most.max(fewest) - fewest + 1)
            }
        };
        for i in 0..size {
            let other = i + self.state.random.below(self.open.len() - i);
            self.open.swap(i, other);
        }
        GroupSet::of(self.open[..size].iter().copied())
    }

    /// A set that differs from the best one in two groups, or in one where the ratio is searched.
    fn set_near_best(&mut self) -> GroupSet {
        let mut set = self.state.best.set;
        let flip = |set: &mut GroupSet, group: u32| match set.contains(group) {
            true => set.remove(group),
            false => set.insert(group),
        };
        let place = self.state.random.below(self.open.len());
        let group = self.open[place];
        flip(&mut set, group);
        match self.settings.objective {
            SkipObjective::Speed => {}
            SkipObjective::Matchness => {
                // The first open group after a random place that goes the other way keeps the size, if there is one.
                let was_inside = self.state.best.set.contains(group);
                let from = self.state.random.below(self.open.len());
                let (before, behind) = self.open.split_at(from);
                let other = behind.iter().chain(before);
                let other = other.copied().find(|g| self.state.best.set.contains(*g) != was_inside);
                match other {
                    Some(other) => flip(&mut set, other),
                    None => return self.state.best.set,
                }
            }
        }
        set
    }

    /// Of a pool of sets the one with the highest bound of what the Gaussian process expects (GP-UCB).
    fn promising_set(&mut self) -> GroupSet {
        let Self { process, state, settings, costs, depth, .. } = self;
        let groups = f64::from(state.groups);
        let points = state.points.iter().map(|tried| {
            let kept = 1.0 - f64::from(tried.set.len()) / groups;
            (tried.set, worth(settings, costs, *depth, kept, tried.matchness))
        });
        process.fit(points);
        let mut best: Option<(f64, GroupSet)> = None;
        for i in 0..POOL {
            let set = if i % 2 == 0 { self.random_set() } else { self.set_near_best() };
            let expected = self.process.predict(&set);
            let bound = expected.mean + self.settings.kappa * expected.deviation;
            if set != self.state.best.set && best.is_none_or(|(most, _)| bound > most) {
                best = Some((bound, set));
            }
        }
        best.map_or(self.state.best.set, |(_, set)| set)
    }
}

fn worth(settings: &SkipSearchSettings, costs: &SkipCosts, depth: u32, kept: f64, matchness: f64) -> f64 {
    match settings.objective {
        SkipObjective::Matchness => matchness,
        SkipObjective::Speed => expected_speedup(matchness, costs.ratio(kept), depth),
    }
}
