//! One step: propose, select, verify, accept, commit.

use std::time::Duration;

use crate::{
    policy::RowScratch,
    runtime::{GrownVerification, Session},
    speculate::{
        Budget, Limits, SpeculateError, StepOutcome, StepStage, TraceObserver, Walk,
        band::{BandState, BandSteps},
        node_masks::NodeMasks,
        policy::{DepthOfStep, StepDone},
        sequence::Sequence,
        stats::Lap,
    },
    tree::{NodeId, TokenTree, select},
};

use super::{Decoder, verification::Verification};

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Rows of the verify forward that were used.
    pub rows: usize,
    /// Drafted nodes accepted.
    pub accepted: usize,
}

/// Storage of one step after another, reserved once.
#[derive(Debug)]
pub(super) struct StepStorage {
    /// The drafted tree.
    pub(super) tree: TokenTree,
    /// The verified nodes, ascending.
    pub(super) rows: Vec<NodeId>,
    scratch: RowScratch,
    /// The verifier's token after each row, where it is known of all.
    pub(super) tokens: Vec<u32>,
    pub(super) walk: Walk,
    pub(super) offsets: Vec<u32>,
    /// Tokens that a grammar forces, or those of a path that it looks at.
    pub(super) forced: Vec<u32>,
    /// What a grammar allows after the verified nodes.
    pub(super) masks: NodeMasks,
}

impl StepStorage {
    /// Room for trees of `nodes` nodes.
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self {
            tree: TokenTree::with_capacity(nodes),
            rows: Vec::with_capacity(nodes),
            scratch: RowScratch::with_capacity(nodes),
            tokens: Vec::with_capacity(nodes),
            walk: Walk::with_capacity(nodes),
            offsets: Vec::with_capacity(nodes),
            forced: Vec::new(),
            masks: NodeMasks::with_capacity(nodes),
        }
    }
}

impl Decoder {
    /// One draft-verify-commit round. The emitted tokens are the new end of [`history`](Self::history).
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses; the sequence is then unchanged.
    ///
    /// # Panics
    /// If nothing was started, or `limits.tokens` is 0 or exceeds what the context still holds.
    pub fn step(
        &mut self,
        limits: Limits<'_>,
        observer: Option<&mut dyn TraceObserver>,
    ) -> Result<StepReport, SpeculateError> {
        let mut step = Step::begin(self, limits);
        if let Some(report) = step.force()? {
            return Ok(report);
        }
        let depth = step.choose_depth();
        let proposal = step.propose(depth, observer)?;
        step.fit(&proposal);
        step.select(&proposal);
        let verification = step.verify(&proposal)?;
        step.accept(verification)?;
        step.commit(verification)?;
        Ok(step.conclude(depth))
    }
}

/// A step while it runs.
pub(super) struct Step<'a> {
    pub(super) session: &'a mut Session,
    pub(super) band: &'a mut BandState,
    pub(super) sequence: &'a mut Sequence,
    pub(super) storage: &'a mut StepStorage,
    pub(super) limits: Limits<'a>,
    pub(super) lap: Lap,
    /// Time of the steps before, and of the tries among it.
    pub(super) before: (Duration, Duration),
}

/// What was proposed.
pub(super) enum Proposal {
    /// The tree that is there.
    Tree,
    /// One that the device is growing, and verifies like this.
    Growing(GrownVerification),
}

impl<'a> Step<'a> {
    fn begin(decoder: &'a mut Decoder, limits: Limits<'a>) -> Self {
        let Decoder { session, bands, current, sequence, step: storage } = decoder;
        sequence.expect_room(session, limits);
        let band = &mut bands[*current];
        band.enter(session.committed());
        storage.tree.reset(sequence.last());
        let before = (sequence.stats.step_time(), sequence.stats.stage_time(StepStage::Tune));
        Self { session, band, sequence, storage, limits, lap: Lap::start(), before }
    }

    fn choose_depth(&mut self) -> DepthOfStep {
        let depth = self.band.choose_depth(self.session, self.sequence, self.limits.tokens - 1);
        // Speculation overwrites the row that was just read; should it fail, the next step reads what there is.
        self.sequence.last_output = 0;
        // Choosing counts its own time.
        self.lap.next();
        depth
    }

    /// Lets the drafter add to the tree, or the device begin to grow it if the rest of the step is the device's too.
    fn propose(
        &mut self,
        depth: DepthOfStep,
        observer: Option<&mut dyn TraceObserver>,
    ) -> Result<Proposal, SpeculateError> {
        let Self { session, band, sequence, storage, lap, .. } = self;
        let rows = band.range().row_choice.widest() as usize;
        let walks_on_device = band.walks_on_device(&sequence.sampler);
        let BandState { steps: BandSteps { sub_plan, drafter, .. }, grown, .. } = &mut **band;
        let is_left_to_device = observer.is_none() && sub_plan.schedule.prunes_on_device() && walks_on_device;
        let (Some(drafter), depth @ 1..) = (drafter, depth.chosen) else {
            return Ok(Proposal::Tree);
        };
        let observer = observer.map(|o| -> &mut dyn TraceObserver { o });
        let (history, stats) = (&sequence.history, &mut sequence.stats);
        let coupling = sequence.sampler.coupling();
        let budget = Budget { session, history, depth, rows, coupling, stats, observer };
        if !is_left_to_device {
            // It counts its own time.
            drafter.propose(&mut storage.tree, budget)?;
            lap.next();
            return Ok(Proposal::Tree);
        }
        let is_growing = drafter.in_one_launch().expect("the schedule was prepared").begin(budget)?;
        sequence.stats.add_time(StepStage::Draft, lap.next());
        Ok(if is_growing { Proposal::Growing(grown[depth - 1]) } else { Proposal::Tree })
    }

    /// Chooses the nodes that are verified; of a tree that the device grows, the device does.
    fn select(&mut self, proposal: &Proposal) {
        let Proposal::Tree = proposal else { return };
        let Self { band, sequence, storage, lap, .. } = self;
        let StepStorage { tree, rows, scratch, .. } = &mut **storage;
        let most = band.rows(tree, scratch);
        sequence.stats.add_time(StepStage::Decide, lap.next());
        select(tree, most, &mut scratch.prune, rows);
        sequence.stats.add_time(StepStage::Prune, lap.next());
    }

    fn verify(&mut self, proposal: &Proposal) -> Result<Verification, SpeculateError> {
        match proposal {
            Proposal::Tree => self.verify_rows(),
            Proposal::Growing(grown) => self.verify_growing(*grown),
        }
    }

    /// Lets the drafter and the policy learn from the step, and counts it.
    fn conclude(mut self, depth: DepthOfStep) -> StepReport {
        let Self { band, sequence, storage, lap, before: (time_before, tries_before), .. } = &mut self;
        let StepStorage { tree, rows, walk, .. } = &**storage;
        let Walk { path, emitted, accepted } = walk;
        let stats = &mut sequence.stats;
        if let (Some(drafter), Some(verified)) = (&mut band.steps.drafter, &band.verified) {
            let (offers, history) = (verified.offers(), sequence.history.as_slice());
            drafter.learn(&StepOutcome { tree, rows, offers, path, history, emitted: emitted.len() });
            let before = history.len() - emitted.len() - 1;
            for (place, node) in path.iter().enumerate() {
                let row = rows.binary_search(node).expect("a path goes along verified nodes");
                sequence.offered.note(before + place, offers.row(row));
            }
            stats.add_time(StepStage::Learn, lap.next());
        }
        stats.count_step(tree, rows, walk);
        let whole = stats.step_time() - *time_before;
        stats.count_rate(emitted.len(), whole);
        // Tries happen in some steps only, and are no part of what a step costs.
        let took = whole - (stats.stage_time(StepStage::Tune) - *tries_before);
        let count = |n: usize| u32::try_from(n).expect("trees are small");
        let step = StepDone {
            rows: count(rows.len()),
            tokens: count(emitted.len()),
            speculated: depth.allowed > 0,
            saved_us: depth.saved_us,
            us: took.as_secs_f64() * 1e6,
        };
        band.stepped(step, &mut stats.guard);
        StepReport { rows: rows.len(), accepted: *accepted }
    }
}
