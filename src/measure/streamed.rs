//! Recording where weights are streamed: what the forwards take says how deep trees are worth recording and how long
//! answers may be.
//!
//! A forward of the model waits for a disk or a bus, so few tokens come in a budget of time by plain decoding. The
//! drafter that streams nothing drafts while prompts are answered, and its own trees are recorded meanwhile: the
//! answers are the same, each step gives several tokens, and nothing is drafted that is not used.

use std::time::Duration;

use ygg_profiler::{CellSamples, DrafterName, Stage, statistics::median};

use crate::{plan::DrafterKind, speculate::StepShape};

use super::{options::ProfileOptions, trace_options::Answering};

/// Growths of recorded trees. Drafting more than a forward takes never pays, fewer say too little.
const DEPTHS: std::ops::RangeInclusive<usize> = 4..=15;
/// Nodes of a growth, the most wanted first, and how much longer than a growth of one node one of so many may take.
const GROWTHS: [usize; 3] = [4, 2, 1];
const MOST_OF_A_GROWTH: f64 = 1.5;
/// Rows of a tree that are verified while prompts are answered, and how much longer than a plain forward that may take:
/// it is read anyway.
const ROWS: [usize; 4] = [16, 12, 8, 4];
const MOST_OF_A_FORWARD: f64 = 1.3;
/// Prompts that answers are shortened for. Prompts differ more than the places of an answer, and what is expected of
/// fewer is in doubt by a fourth and more.
const FEWEST_PROMPTS: f64 = 8.0;
/// Forwards of reading a prompt, as many chunks as calibration prompts have on the whole.
const READINGS: f64 = 3.0;

/// What steps take that draft while prompts are answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace<'a> {
    name: &'a DrafterName,
    kind: &'a DrafterKind,
    depth: usize,
    draft_width: usize,
    rows: usize,
    widest: usize,
    forward_us: f64,
    step_us: f64,
}

/// The pace of the first drafter that streams nothing, by what was `measured` of it and of the model; `None` if there
/// is none, or too little was measured.
pub(super) fn pace<'a>(
    measured: &[CellSamples],
    drafters: &'a [(DrafterName, DrafterKind)],
    widest: usize,
) -> Option<Pace<'a>> {
    let (name, kind) = drafters.iter().find(|(_, kind)| kind.facts().substitute_bits.is_some())?;
    let context = measured.iter().map(|cell| cell.cell.context).min()?;
    let us = |stage: &Stage, width: usize| {
        let is_it = |cell: &&CellSamples| {
            (&cell.cell.stage, cell.cell.width as usize, cell.cell.context) == (stage, width, context)
        };
        measured.iter().find(is_it).and_then(|cell| median(&cell.samples_us))
    };
    let (forward_us, draft) = (us(&Stage::Verify, 1)?, Stage::Draft(name.clone()));
    let growth_us = us(&draft, 1)?;
    let within = |stage: &Stage, most: f64| {
        let stage = stage.clone();
        move |width: &usize| *width < widest && us(&stage, *width).is_some_and(|us| us <= most)
    };
    let draft_width = GROWTHS.into_iter().find(within(&draft, MOST_OF_A_GROWTH * growth_us)).unwrap_or(1);
    let rows = ROWS.into_iter().find(within(&Stage::Verify, MOST_OF_A_FORWARD * forward_us));
    let is_wide = |cell: &&CellSamples| cell.cell.stage == Stage::Verify && cell.cell.width > 1;
    let least = || measured.iter().filter(is_wide).map(|cell| cell.cell.width as usize).min();
    let rows = rows.or_else(least)?;
    let depth = (forward_us / growth_us).round() as usize;
    let depth = depth.clamp(*DEPTHS.start(), *DEPTHS.end()).min((widest - 1) / draft_width).max(1);
    let wide_us = us(&draft, draft_width)?;
    let step_us = growth_us
        + (depth - 1) as f64 * wide_us
        + us(&Stage::Verify, rows).unwrap_or(MOST_OF_A_FORWARD * forward_us);
    Some(Pace { name, kind, depth, draft_width, rows, widest, forward_us, step_us })
}

impl<'a> Pace<'a> {
    /// What drafts.
    pub(super) fn answering(&self) -> Answering<'a> {
        let Self { name, kind, rows, .. } = *self;
        Answering { name, kind, rows }
    }

    /// The shape of the trees.
    pub(super) fn shape(&self) -> StepShape {
        let Self { depth, draft_width, widest, .. } = *self;
        StepShape {
            depth,
            draft_width,
            verify_width: widest,
            top_k: ProfileOptions::TRACE_WIDTH,
            draft_temperature: 1.0,
        }
    }

    /// Most tokens of an answer, `most` at most, so that the fewest prompts are answered within `budget`, if a step
    /// gives half of what it drafts; of two steps in any case.
    pub(super) fn tokens(&self, budget: Duration, most: usize) -> usize {
        let for_each_us = budget.as_secs_f64() * 1e6 / FEWEST_PROMPTS - READINGS * self.forward_us;
        let tokens = for_each_us.max(0.0) / self.step_us * (self.depth + 1) as f64 / 2.0;
        (tokens as usize).clamp((2 * (self.depth + 1)).min(most), most)
    }
}

#[cfg(test)]
mod tests;
