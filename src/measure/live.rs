//! Recording drafters that learn from the verifier: they decode the calibration prompts, in each of a few shapes.
//!
//! What they draft depends on what earlier steps verified, so no record of another drafter can stand for them.

use std::time::{Duration, Instant};

use ygg_profiler::{DrafterName, LivePrompt, LiveStep, LiveTrace};

use crate::{
    engine::{Error, Loaded, Sampling},
    plan::{DrafterKind, RecordedAs},
    speculate::{BandSteps, Decoder, Limits, StepShape, make_drafter},
    tree::{NodeId, TokenTree},
};

use super::trace_options::TraceOptions;

/// Rows that shapes are recorded at. Where fewer are verified, the next wider recording answers.
const ROWS: [usize; 3] = [4, 8, 16];
/// Depth of the recorded trees.
const DEPTH: usize = 6;
/// Rows of a recording beyond those that a drafter always verifies: with fewer it hardly drafts.
const FEWEST_GUESSED: usize = 3;

/// Which drafters that learn from the verifier are recorded. Every one decodes the prompts by itself, once for every
/// shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Learners {
    /// None.
    None,
    /// Mixtures of drafters, in one shape: what pays most, and little time.
    Mixtures,
    /// All, in every shape.
    All,
}

impl Learners {
    /// Whether a drafter is recorded, if it learns.
    pub(super) fn admit(self, kind: &DrafterKind) -> bool {
        match self {
            Learners::None => !kind.learns(),
            Learners::Mixtures => !kind.learns() || matches!(kind, DrafterKind::Mixed(_)),
            Learners::All => true,
        }
    }

    /// Rows of the recorded shapes.
    fn rows(self) -> &'static [usize] {
        match self {
            Learners::None => &[],
            Learners::Mixtures => &ROWS[1..2],
            Learners::All => &ROWS,
        }
    }
}

/// A drafter and a shape to record it in.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    name: DrafterName,
    kind: DrafterKind,
    shape: StepShape,
}

/// What is to be recorded of `drafters` with executables of these widths.
pub(super) fn recordings(
    drafters: &[(DrafterName, DrafterKind)],
    learners: Learners,
    widths: &[usize],
) -> Vec<Recording> {
    let is_recorded = |kind: &DrafterKind| kind.facts().recorded_as == RecordedAs::LiveSteps;
    let all = drafters.iter().filter(|(_, kind)| is_recorded(kind) && learners.admit(kind));
    let all = all.flat_map(|(name, kind)| {
        let fewest = 1 + kind.facts().pinned_rows as usize + FEWEST_GUESSED;
        let rows = learners.rows().iter().copied();
        let rows = rows.filter(move |rows| *rows >= fewest && widths.contains(rows));
        rows.map(move |verify_width| {
            // Room for the nodes, and two continuations for those that share a tree with others.
            let draft_width = (verify_width - 1).div_ceil(DEPTH).max(2);
            let shape =
                StepShape { depth: DEPTH, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 };
            Recording { name: name.clone(), kind: kind.clone(), shape }
        })
    });
    all.collect()
}

impl Recording {
    /// Decodes the prompts in turn, each with a seed of its own, until the time is over; the first prompt in any case.
    #[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
    pub(super) fn record(
        &self,
        loaded: &Loaded,
        options: &TraceOptions<'_>,
        budget: Duration,
    ) -> Result<LiveTrace, Error> {
        let Recording { name, kind, shape } = self;
        let prompts = options.prompts;
        let ids = prompts.iter().map(|p| p.token_ids(loaded)).collect::<Result<Vec<_>, _>>()?;
        let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
        let context = (longest + options.tokens + 1).clamp(2, loaded.set().model_context());
        let session = options.session(loaded, context, shape, Some(kind))?;
        let drafter = make_drafter(kind, shape, &session)?;
        let mut decoder = Decoder::new(session, vec![BandSteps::unplanned(drafter, shape)])?;
        let mut recorded: Vec<LivePrompt> = Vec::new();
        let start = Instant::now();
        for (prompt, ids) in prompts.iter().zip(&ids).filter(|(_, ids)| ids.len() < context) {
            let is_over = || start.elapsed() > budget;
            if !recorded.is_empty() && is_over() {
                break;
            }
            let seed = recorded.len() as u64;
            let sampling = Sampling { temperature: options.temperature, seed, ..Sampling::GREEDY };
            let mut last = decoder.start(ids, sampling)?;
            let tokens = options.tokens.min(context - ids.len());
            let mut steps = Vec::new();
            while !loaded.end_ids().contains(&last) {
                let left = tokens + ids.len() - decoder.history().len();
                // Fewer tokens left than a whole tree can emit would cut the recorded tree.
                if left <= shape.depth || (is_over() && !steps.is_empty()) {
                    break;
                }
                let context = u32::try_from(decoder.history().len() - 1).expect("contexts are below 2^32");
                decoder.step(Limits { tokens: left, ends: loaded.end_ids() }, None)?;
                last = *decoder.emitted().last().expect("a step emits");
                steps.push(step(decoder.tree(), context, decoder.emitted()));
            }
            recorded.push(LivePrompt { kind: prompt.kind.clone(), steps });
        }
        let number = |n: usize| u32::try_from(n).expect("shapes are small");
        Ok(LiveTrace {
            drafter: name.clone(),
            temperature: options.temperature,
            depth: number(shape.depth),
            width: number(shape.draft_width),
            nodes: number(shape.verify_width),
            prompts: recorded,
        })
    }
}

fn step(tree: &TokenTree, context: u32, verified: &[u32]) -> LiveStep {
    LiveStep {
        context,
        parents: tree.nodes().map(|n| tree.parent(n).map_or(0, NodeId::get)).collect(),
        tokens: tree.nodes().map(|n| tree.token(n)).collect(),
        values: tree.nodes().map(|n| tree.value(n)).collect(),
        pinned: tree.nodes().filter(|n| tree.is_pinned(*n)).map(NodeId::get).collect(),
        verified: verified.to_vec(),
    }
}
