//! Layer skip that tunes itself while it runs: SWIFT (<https://arxiv.org/abs/2410.06916>).
//!
//! Before a step it may try another skip set: one forward without those sub-layers over the last tokens that the
//! verifier emitted, each row after the committed keys and values of all tokens before it, which is what the first
//! draft forward at that place would have been. The rows write scratch after all that steps use there, so nothing has
//! to be cloned or restored. A better set takes the place of the skip mask; programs stay as they are. What is tried,
//! and when, says [`SkipSearch`].

use crate::{
    plan::{GroupSet, SwiftSettings},
    policy::{SkipSearch, SkipState, TriedSet},
    runtime::{Choice, Session, SkipSet},
    speculate::{SpeculateError, Stats, StepShape, StepStage, stats::Lap},
    tree::TokenTree,
};

use super::{
    AheadDrafter, Budget, Drafter, DrafterState, OneLaunchDrafter, SelfDrafter,
    caterpillar::Caterpillar,
    registry::{MakeContext, MakeDrafter},
};

/// How drafts grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftGrowth {
    /// Equal-Growth Trees of the planned shape: what plans are priced by.
    #[default]
    Equal,
    /// SWIFT's acceleration phase: a chain that ends early where the drafter is unsure, with as many siblings at each
    /// place as it is unsure there. No plan is priced by it.
    Confident,
}

/// The counters of a request when the drafter last read them.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    steps: u64,
    drafted: u64,
    offered: u64,
    accepted: u64,
}

/// The layer-skip drafter with a search for the best skip set.
#[derive(Debug)]
pub struct Swift {
    drafts: SelfDrafter,
    caterpillar: Option<Caterpillar>,
    search: SkipSearch,
    /// The set that `drafts` leaves out.
    applied: GroupSet,
    /// The mask of the set being tried.
    trial: SkipSet,
    /// Scratch offset of the first row of a try.
    bank: usize,
    /// Most rows of a forward.
    widest: usize,
    /// Where the tokens begin that the verifier emitted.
    prompt: usize,
    seen: Seen,
    /// Counted work of drafting since the last look.
    drafted_us: f64,
}

impl Swift {
    /// A drafter that begins with the best set of `search` and grows trees of the given shape. A try writes
    /// [`window`](crate::policy::SkipSearchSettings::window) rows of scratch from `bank` on, which lies after the rows
    /// of every schedule it is to keep ([`StepShape::scratch_rows`]).
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] as [`SelfDrafter::layer_skip`], or if the session was opened with too little scratch.
    pub fn new(
        session: &Session,
        search: SkipSearch,
        shape: &StepShape,
        growth: DraftGrowth,
        bank: usize,
    ) -> Result<Self, SpeculateError> {
        let needed = bank + search.settings().window;
        if needed > session.tree_nodes() {
            let expected = format!("at most {}, for which the session was opened", session.tree_nodes());
            return Err(SpeculateError::Shape { what: "rows of tree and tries", expected, found: needed });
        }
        let groups = session.set().groups();
        let applied = *search.best();
        let skipped: Vec<u32> = applied.iter().collect();
        let caterpillar = match growth {
            DraftGrowth::Equal => None,
            DraftGrowth::Confident => Some(Caterpillar::new(shape)),
        };
        Ok(Self {
            drafts: SelfDrafter::layer_skip(session, SkipSet::new(groups, &skipped)?, shape)?,
            caterpillar,
            applied,
            trial: SkipSet::none(groups),
            bank,
            widest: *session.set().widths().last().expect("width 1 is planned"),
            prompt: 0,
            seen: Seen::default(),
            drafted_us: 0.0,
            search,
        })
    }

    /// Tells the search of the steps since the last look: what they cost by the table, and whether the first drafted
    /// token was accepted.
    fn look_back(&mut self, stats: &Stats) {
        let (offered, accepted) = stats.at_first_depth();
        let Seen { steps, drafted, .. } = self.seen;
        let new_steps = stats.steps.saturating_sub(steps);
        if new_steps == 0 {
            return;
        }
        let nodes = stats.drafted.saturating_sub(drafted);
        let rows = u32::try_from(nodes + 1).unwrap_or(u32::MAX);
        let costs = self.search.costs();
        let stepped_us = costs.verify_us(rows) + (new_steps - 1) as f64 * costs.verify_us(1);
        self.search.worked(stepped_us + self.drafted_us);
        self.drafted_us = 0.0;
        if offered > self.seen.offered {
            self.search.drafted(accepted > self.seen.accepted);
        }
        self.seen = Seen { steps: stats.steps, drafted: stats.drafted, offered, accepted };
    }

    /// Tries a set, if there are tokens to try it on and the search may.
    fn tune(&mut self, session: &mut Session, history: &[u32]) -> Result<(), SpeculateError> {
        let window = self.search.settings().window;
        if history.len() < self.prompt + window || !self.search.may_try() {
            return Ok(());
        }
        let set = self.search.candidate();
        let matchness = self.try_set(&set, session, history)?;
        if self.search.tried(set, matchness) {
            let best = *self.search.best();
            let best_matchness = self.try_set(&best, session, history)?;
            self.search.compared(TriedSet { set, matchness }, best_matchness);
        }
        Ok(())
    }

    /// The share of the last tokens that a forward without `set` says too, each after those before it.
    fn try_set(
        &mut self,
        set: &GroupSet,
        session: &mut Session,
        history: &[u32],
    ) -> Result<f64, SpeculateError> {
        self.trial.assign(|group| set.contains(group));
        let window = self.search.settings().window;
        let first = history.len() - 1 - window;
        let mut same = 0;
        for start in (0..window).step_by(self.widest) {
            let rows = self.widest.min(window - start);
            let mut forward = session.forward(rows)?;
            for row in start..start + rows {
                let offset = u32::try_from(self.bank + row).expect("trees are small");
                forward.push_again(history[first + row], first + row, offset);
            }
            let said = forward.choose(Choice::ARGMAX, Some(&self.trial));
            let expected = &history[first + start + 1..][..rows];
            same +=
                expected.iter().enumerate().filter(|(row, token)| said.row(*row).best() == **token).count();
        }
        Ok(same as f64 / window as f64)
    }

    /// Makes drafts with the best set.
    fn apply(&mut self) {
        if self.applied != *self.search.best() {
            self.applied = *self.search.best();
            self.drafts.skip_instead(|group| self.applied.contains(group));
        }
    }
}

impl MakeDrafter for SwiftSettings {
    /// The fixed drafter that it starts as: the search needs a plan's times.
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth: _, shape, session } = *context;
        let skip = SkipSet::new(session.set().groups(), &self.skipped)?;
        Ok(Some(Box::new(SelfDrafter::layer_skip(session, skip, shape)?)))
    }
}

impl Drafter for Swift {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let Budget { session, history, depth, rows, coupling, stats, observer } = budget;
        let mut lap = Lap::start();
        self.look_back(stats);
        self.tune(session, history)?;
        self.apply();
        stats.skip_search = Some(self.search.counts());
        stats.add_time(StepStage::Tune, lap.next());
        let kept = self.search.kept(&self.applied);
        let budget = Budget { session, history, depth, rows, coupling, stats, observer };
        match &mut self.caterpillar {
            Some(caterpillar) => caterpillar.propose(tree, budget, self.drafts.skip())?,
            None => self.drafts.propose(tree, budget)?,
        }
        let forwards = match &self.caterpillar {
            Some(caterpillar) => caterpillar.forwards(),
            None => self.drafts.forwards(),
        };
        let costs = self.search.costs();
        self.drafted_us += forwards.iter().map(|rows| costs.draft_us(*rows, kept)).sum::<f64>();
        Ok(())
    }

    fn begin(&mut self, history: &[u32]) {
        self.prompt = history.len() - 1;
        self.seen = Seen::default();
    }

    fn in_one_launch(&mut self) -> Option<&mut dyn OneLaunchDrafter> {
        match self.caterpillar {
            Some(_) => None,
            None => self.drafts.in_one_launch(),
        }
    }

    fn ahead(&mut self) -> Option<&mut dyn AheadDrafter> {
        match self.caterpillar {
            Some(_) => None,
            None => self.drafts.ahead(),
        }
    }

    fn state(&self) -> Option<DrafterState> {
        Some(DrafterState::Swift(Box::new(self.search.state().clone())))
    }

    fn restore(&mut self, state: &DrafterState, _vocabulary: usize) -> Result<bool, SpeculateError> {
        let DrafterState::Swift(state) = state else { return Ok(false) };
        self.search.restore(SkipState::clone(state))?;
        Ok(true)
    }
}
