//! How memory may be divided: for every number of bits of the substitute the best split of the weights, with its trees.
use std::collections::BTreeMap;

use ygg_profiler::{LatencyTable, Profile, Split, Stage, Trace};

use crate::plan::{
    DEFAULT_CONTEXT, DepthRule, DrafterKind, PlannedMemory, RowChoice, RowRule, Schedule, Shape, SubPlan,
    step_us,
};
use crate::planner::{
    Fix, Lanes, SearchError, TreeReplay, TreeStep,
    price::{objective::plain_step, splits::SplitPrices},
    replay::{
        grown_trees::GrownTrees,
        sharpening::{sharpened, temperatures},
    },
    search::origin::{Recorded, reference_context, speculative},
};

/// What memory a plan may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Bytes of weights in memory, the buffer for streamed ones, substitute, cache, activations and scratch together.
    pub bytes: u64,
    /// Most tokens of prompt and answer together.
    pub context: u32,
}

/// The best split of the weights for a substitute, or for none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::planner) struct BestDivision {
    /// Place of the split.
    pub(in crate::planner) split: usize,
    pub(in crate::planner) bits: Option<u32>,
    /// The trees that it was found with.
    pub(in crate::planner) shape: Shape,
    /// Their time per token, over the recorded prompts.
    pub(in crate::planner) tpot_us: f64,
}

/// Bytes of a substitute that replaces all that is streamed; 0 without one.
pub(in crate::planner) fn substitute_bytes(split: &Split, bits: Option<u32>) -> u64 {
    bits.and_then(|bits| split.substitute_bytes(bits)).unwrap_or(0)
}

/// How memory is divided at the split that a profile was measured at, with the substitute of the sub-plans that run.
pub(in crate::planner) fn measured_division<'a>(
    profile: &Profile,
    chosen: impl Iterator<Item = &'a SubPlan>,
) -> Option<PlannedMemory> {
    let memory = profile.memory.as_ref()?;
    let split = memory.measured_split();
    let mut bits = chosen.filter_map(|chosen| chosen.drafter.facts().substitute_bits);
    let first = bits.next();
    assert!(bits.all(|bits| Some(bits) == first), "one substitute is chosen where memory is limited");
    let context = memory.model_context.min(DEFAULT_CONTEXT);
    Some(PlannedMemory {
        budget_bytes: None,
        resident_bytes: split.resident_bytes,
        streamed_bytes: split.streamed_bytes,
        staging_bytes: split.staging_bytes,
        substitute_bytes: substitute_bytes(split, first),
        session_bytes: memory.session_bytes(context),
        context,
        divisions: Vec::new(),
    })
}

/// For each number of bits that a substitute was recorded with, and for none, the split within the budget with the
/// least time per token, and the tree that it takes; those that fit nowhere or that the fix excludes are missing.
///
/// # Errors
/// [`SearchError::Budget`] or [`SearchError::Fits`]; else as the profile's own parts say.
pub(in crate::planner) fn best_divisions(
    prices: &SplitPrices<'_>,
    budget: MemoryBudget,
    fix: &Fix,
) -> Result<Vec<BestDivision>, SearchError> {
    let memory = prices.memory;
    let session_bytes = memory.session_bytes(budget.context);
    let needed = |split: &Split, bits| {
        split.resident_bytes + split.staging_bytes + substitute_bytes(split, bits) + session_bytes
    };
    let least = memory.splits.iter().map(|split| needed(split, None)).min().unwrap_or(0);
    if budget.bytes < least {
        return Err(SearchError::Budget { found: budget.bytes, least, context: budget.context });
    }
    if let Some(whole) = memory.splits.iter().find(|split| split.streamed_bytes == 0)
        && needed(whole, None) <= budget.bytes
    {
        return Err(SearchError::Fits { found: budget.bytes, whole: needed(whole, None) });
    }
    let mut found = Vec::new();
    for (bits, place) in prices.substitutes().filter(|_| !fix.is_plain()) {
        let has_room = |split: &Split| {
            split.streamed_bytes > 0
                && split.substitute_bytes(bits).is_some()
                && needed(split, Some(bits)) <= budget.bytes
        };
        let splits: Vec<usize> =
            (0..memory.splits.len()).filter(|place| has_room(&memory.splits[*place])).collect();
        found.extend(best_with_substitute(prices, (bits, place), &splits, fix)?);
    }
    // Without a substitute nothing is saved by what is not in memory.
    let most = memory.splits.iter().rposition(|split| needed(split, None) <= budget.bytes);
    let most = most.expect("the least fits");
    let (table, context) = (table_at(prices, most, |stage| *stage == Stage::Verify)?, context(prices));
    let tpot_us = step_us(&plain_step(&table, context)?);
    found.push(BestDivision { split: most, bits: None, shape: Shape::PLAIN, tpot_us });
    Ok(found)
}

/// The context that steps are priced at.
fn context(prices: &SplitPrices<'_>) -> u32 {
    reference_context(&Recorded::greedy(prices.profile), &prices.table)
}

fn table_at(
    prices: &SplitPrices<'_>,
    place: usize,
    is_wanted: impl Fn(&Stage) -> bool,
) -> Result<LatencyTable, SearchError> {
    let wanted = |stage: &Stage| is_wanted(stage) || matches!(stage, Stage::Host(_));
    let cells = prices.measurements(&prices.memory.splits[place], wanted)?;
    Ok(LatencyTable::from_samples(&cells, prices.profile.noise_threshold)?)
}

/// The best of these splits for the substitute of these bits, the drafter at a place of the profile.
fn best_with_substitute(
    prices: &SplitPrices<'_>,
    (bits, place): (u32, usize),
    splits: &[usize],
    fix: &Fix,
) -> Result<Option<BestDivision>, SearchError> {
    let profile = prices.profile;
    let name = &profile.drafters[place].name;
    let kind = DrafterKind::from_description(&profile.drafters[place])?;
    let is_named = fix.drafter.as_deref().is_none_or(|fixed| fixed == name.as_str() || fixed == kind.name());
    let open = Fix::default();
    let limits = if is_named { fix } else { &open };
    let is_priced = limits.admits_schedule(Schedule::Plain)
        && limits.admits_rule(DepthRule::Fixed)
        && limits.row_rules().contains(&RowRule::Widest)
        && !limits.growth().is_static();
    let greedy = |trace: &&Trace| trace.drafter == *name && trace.temperature == 0.0;
    let traces: Vec<&Trace> = profile.traces.iter().filter(greedy).collect();
    let has_steps = traces.iter().any(|trace| trace.steps().next().is_some());
    let (draft, context) = (Stage::Draft(name.clone()), context(prices));
    if !has_steps || !prices.table.has_stage(&draft) {
        return Ok(None);
    }
    let recorded = traces.iter().map(|trace| trace.draft_temperature).fold(f32::INFINITY, f32::min);
    let mut all = Vec::new();
    for temperature in temperatures(&kind, recorded) {
        let own: Vec<Trace> = traces.iter().map(|trace| sharpened(trace, temperature)).collect();
        let own: Vec<&Trace> = own.iter().collect();
        all.extend(accepted(prices, &own, &draft, if is_priced { limits } else { &open })?);
    }
    let mut best: Option<BestDivision> = None;
    for split in splits {
        let table = table_at(prices, *split, |stage| *stage == Stage::Verify || *stage == draft)?;
        for (shape, aal) in &all {
            // What was not measured is no choice.
            let step = TreeStep { context, ..TreeStep::plain(&table, name, *shape) };
            let Ok(stages) = step.stages() else { continue };
            let tpot_us = stages.timeline(Lanes::One).step_us / aal;
            if best.is_none_or(|best| tpot_us < best.tpot_us) {
                best = Some(BestDivision { split: *split, bits: Some(bits), shape: *shape, tpot_us });
            }
        }
    }
    Ok(best)
}

/// Tokens per step of every shape that the traces answer for and the fix admits, all of its rows being verified.
fn accepted(
    prices: &SplitPrices<'_>,
    traces: &[&Trace],
    draft: &Stage,
    fix: &Fix,
) -> Result<Vec<(Shape, f64)>, SearchError> {
    let widest = traces.iter().map(|trace| trace.width.min(trace.top_k)).min().unwrap_or(0);
    let deepest = traces.iter().map(|trace| trace.depth).min().unwrap_or(0);
    let verify_widths = prices.table.widths(&Stage::Verify);
    let mut all = Vec::new();
    for width in prices.table.widths(draft).into_iter().filter(|width| *width <= widest) {
        let shapes = |depth| fix.admitted(speculative(depth, width, &verify_widths));
        let by_depth: BTreeMap<u32, Vec<Shape>> = (1..=deepest).map(|depth| (depth, shapes(depth))).collect();
        if by_depth.values().all(Vec::is_empty) {
            continue;
        }
        let choice = |shape: &Shape| RowChoice::fixed(shape.verify_width, 1.0);
        let choices: Vec<Vec<RowChoice>> =
            by_depth.values().map(|shapes| shapes.iter().map(choice).collect()).collect();
        let grown = GrownTrees::new(traces, width);
        let replay = TreeReplay::of(&grown.valued(None), &choices);
        for shape in by_depth.values().flatten() {
            match replay.tally(shape.depth, shape.verify_width) {
                Ok(tally) => all.push((*shape, tally.accepted().aal())),
                Err(SearchError::IncompleteTrace { .. }) => {}
                Err(other) => return Err(other),
            }
        }
    }
    Ok(all)
}
