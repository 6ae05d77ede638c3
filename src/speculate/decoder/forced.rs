//! Forced tokens: a drafter without guesses. Where a request's grammar leaves one text only, its tokens are run
//! together in one forward, without drafting or drawing any of them; and what a grammar cannot take is not worth
//! verifying.
//!
//! Exact because the mask of each of these places holds one token, which plain decoding would draw, and because a row's
//! bits do not depend on the width of its forward.

use crate::{
    runtime::Session,
    speculate::{SpeculateError, StepStage},
    tree::{NodeId, Source},
};

use super::step::{Proposal, Step, StepReport, StepStorage};

/// Most forced tokens of a step: with the root, the rows of the widest forward of a prefill.
pub(super) const MOST_FORCED: usize = 63;
/// Fewest forced tokens that are worth a step without drafts.
const LEAST_FORCED: usize = 2;
/// Fewest rows for which a prefill, whose forwards are wider, is quicker than steps of one token.
const LEAST_PREFILL: usize = 6;

/// What runs forced tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForcedForward {
    /// A forward of a planned width, which shows the logits of every row.
    Planned,
    /// A prefill, which shows those of its last row.
    Prefill,
}

impl Step<'_> {
    /// Emits the tokens that the grammar leaves no choice about, and draws the one after them. `None` if there are none
    /// or so few that a step with drafts is better.
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses.
    pub(super) fn force(&mut self) -> Result<Option<StepReport>, SpeculateError> {
        if !self.sequence.drafts() || !self.sequence.sampler.is_constrained() {
            return Ok(None);
        }
        let most = self.foresee()?;
        let is_complete = self.sequence.sampler.is_complete();
        let Self { session, band, sequence, storage, limits, lap, .. } = self;
        let reports = sequence.sampler.reports_log_probs();
        let verify_width = band.range().row_choice.widest() as usize;
        let (certain, forward) = match is_complete && !reports {
            true => (most, None),
            false => choose_forward(session, verify_width, most, reports),
        };
        storage.forced.truncate(certain);
        let grammar = sequence.sampler.grammar().expect("it is constrained");
        grammar.rollback(most - certain)?;
        let is_over = grammar.is_complete() || certain == limits.tokens;
        sequence.stats.add_time(StepStage::Constrain, lap.next());
        if certain == 0 {
            return Ok(None);
        }
        self.walk_forced();
        let rows = match forward {
            Some(forward) => self.run_forced(forward, is_over)?,
            None => {
                // The text is over: nothing needs its last keys and values.
                self.sequence.is_started = false;
                self.storage.forced.iter().for_each(|token| self.sequence.sampler.push_forced(*token, None));
                0
            }
        };
        let Self { sequence, storage, lap, before: (time_before, _), .. } = self;
        let emitted = storage.walk.emitted.as_slice();
        sequence.history.extend_from_slice(emitted);
        sequence.stats.add_time(StepStage::Commit, lap.next());
        sequence.stats.count_forced(certain, emitted.len());
        let took = sequence.stats.step_time() - *time_before;
        sequence.stats.count_rate(emitted.len(), took);
        Ok(Some(StepReport { rows, accepted: certain }))
    }

    /// Writes the tokens down that must follow, which the grammar accepts; their number. Each is asked for after the
    /// one before, since of one encoding only the first is certain.
    fn foresee(&mut self) -> Result<usize, SpeculateError> {
        let Self { sequence, storage, limits, .. } = self;
        let forced = &mut storage.forced;
        let grammar = sequence.sampler.grammar().expect("it is constrained");
        forced.clear();
        for place in 0..limits.tokens.min(MOST_FORCED) {
            grammar.forced(forced);
            forced.truncate(place + 1);
            let Some(token) = forced.get(place) else { break };
            grammar.accept(*token)?;
        }
        Ok(forced.len())
    }

    /// The walk that forced tokens are.
    fn walk_forced(&mut self) {
        let StepStorage { walk, forced, rows, .. } = &mut *self.storage;
        walk.path.clear();
        walk.path.push(NodeId::ROOT);
        walk.emitted.clear();
        walk.emitted.extend_from_slice(forced);
        walk.accepted = forced.len();
        rows.clear();
        rows.push(NodeId::ROOT);
        self.sequence.sampler.begin_step();
    }

    /// Runs the root and the forced tokens, and draws the token after them unless the text `is_over`; the rows that
    /// were run. Where none can be drawn, the next step finds that again: what is emitted is as ever, and all of it but
    /// the last token committed.
    fn run_forced(&mut self, forward: ForcedForward, is_over: bool) -> Result<usize, SpeculateError> {
        let Self { session, sequence, storage, lap, .. } = self;
        let StepStorage { walk, forced, tokens, offsets, .. } = &mut **storage;
        let sampler = &mut sequence.sampler;
        let place = (sequence.history.len() + forced.len()) as u64;
        let root = *sequence.history.last().expect("a request was started");
        tokens.clear();
        tokens.push(root);
        tokens.extend_from_slice(forced);
        // The last token of a text needs no row.
        tokens.truncate(forced.len() + usize::from(!is_over));
        let rows = tokens.len();
        let drawn = match forward {
            ForcedForward::Planned => {
                let mut filled = session.forward(rows)?;
                tokens.iter().for_each(|token| filled.push_behind(*token));
                filled.begin_logits(None);
                sampler.prepare_mask();
                let logits = session.begun_logits().expect("it was begun");
                sequence.stats.add_time(StepStage::Verify, lap.next());
                let shown = forced.iter().enumerate();
                shown.for_each(|(row, token)| sampler.push_forced(*token, Some(logits.row(row))));
                (!is_over).then(|| sampler.draw_next(logits.row(rows - 1), place, None))
            }
            ForcedForward::Prefill => {
                let logits = session.prefill(tokens)?;
                sequence.stats.add_time(StepStage::Verify, lap.next());
                forced.iter().for_each(|token| sampler.push_forced(*token, None));
                (!is_over).then(|| sampler.draw_next(logits, place, None))
            }
        };
        walk.emitted.extend(drawn.and_then(Result::ok).map(|said| said.token));
        sequence.stats.add_time(StepStage::Accept, lap.next());
        session.check_device()?;
        let committed = walk.emitted.len();
        match forward {
            ForcedForward::Planned => {
                offsets.clear();
                offsets.extend((0..committed).map(|row| u32::try_from(row).expect("widths are small")));
                session.commit(offsets);
                sequence.last_output = committed - 1;
            }
            ForcedForward::Prefill => {
                session.truncate(session.committed() + committed - rows);
                sequence.last_output = 0;
            }
        }
        Ok(rows)
    }

    /// Makes worthless what the grammar cannot take of a proposed tree, and adds what it forces as far as there is
    /// room.
    pub(super) fn fit(&mut self, proposal: &Proposal) {
        let Proposal::Tree = proposal else { return };
        let Self { sequence, storage, limits, lap, .. } = self;
        let StepStorage { tree, forced, tokens, .. } = &mut **storage;
        let drafts = sequence.drafts() && limits.tokens > 1;
        let Some(grammar) = sequence.sampler.grammar().filter(|_| drafts) else { return };
        forced.clear();
        grammar.forced(forced);
        let mut end = NodeId::ROOT;
        for token in forced.iter().take(limits.tokens - 1) {
            let Some(node) = tree.insert(end, *token, 1.0, 0, Source::NONE).node() else { break };
            end = node;
        }
        for node in tree.nodes().skip(1) {
            let parent = tree.parent(node).expect("it is not the root");
            tokens.clear();
            tokens.push(tree.token(node));
            tokens.extend(tree.ancestors(node).map(|above| tree.token(above)));
            tokens.pop();
            tokens.reverse();
            let is_first = parent == NodeId::ROOT;
            let fits = match forced.first().filter(|_| is_first) {
                Some(only) => tokens[0] == *only,
                None => (is_first || tree.value(parent) > 0.0) && grammar.fitting(tokens) == tokens.len(),
            };
            if !fits {
                tree.set_value(node, 0.0);
            }
        }
        sequence.stats.add_time(StepStage::Constrain, lap.next());
    }
}

/// How many of `most` forced tokens a step runs, none if that does not pay, and by which forward. One that `shows_all`
/// logits is of a planned width; those up to the step's own always pay.
fn choose_forward(
    session: &Session,
    verify_width: usize,
    most: usize,
    shows_all: bool,
) -> (usize, Option<ForcedForward>) {
    let widths = session.set().widths().iter().copied();
    let planned = widths.filter(|width| *width <= verify_width).max().unwrap_or(1);
    let planned_most = most.min(planned - 1);
    if planned_most < most && most + 1 >= LEAST_PREFILL && !shows_all {
        (most, Some(ForcedForward::Prefill))
    } else if planned_most >= LEAST_FORCED {
        (planned_most, Some(ForcedForward::Planned))
    } else {
        (0, None)
    }
}
