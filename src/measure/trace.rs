//! Recording acceptance: the widest planned tree drafted and verified at every step of the calibration prompts.
//!
//! Beside every step stays in memory what a depth network would have seen before it: too much for a profile to keep.

use std::time::{Duration, Instant};

use ygg_profiler::{Candidate, DrafterName, Expansion, PromptTrace, StepTrace, TokenTrace, Trace};

use crate::{
    engine::{Error, Loaded, Sampling, tune},
    plan::{ChosenTuning, DrafterKind},
    runtime::{Pinning, Session, SessionOptions},
    speculate::{self, Begin, Decoder, Limits, StepShape, TraceObserver, make_drafter},
    tree::{NodeId, TokenTree},
};

use super::calibration::CalibrationPrompt;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceOptions<'a> {
    /// Growths and nodes per growth of the recorded trees; all of a tree is verified.
    pub(super) shape: StepShape,
    /// Most tokens per prompt.
    pub(super) tokens: usize,
    /// Temperature of the requests.
    pub(super) temperature: f32,
    /// No prompt but the first is begun after this time, and no step but the first of a prompt. The first is read in twice the time, or not
    /// at all.
    pub(super) budget: Duration,
    pub(super) tunings: &'a [ChosenTuning],
    pub(super) prompts: &'a [&'a CalibrationPrompt],
    pub(super) pinning: Pinning,
}

impl TraceOptions<'_> {
    /// A session for trees of `shape` by `drafter` in texts of at most `context` tokens, its linears tuned.
    pub(super) fn session(
        &self,
        loaded: &Loaded,
        context: usize,
        shape: &StepShape,
        drafter: Option<&DrafterKind>,
    ) -> Result<Session, Error> {
        let session_options = SessionOptions {
            context,
            tree_nodes: shape.tree_nodes(),
            threads: loaded.threads(),
            pinning: self.pinning,
        };
        let mut session = loaded.session(&session_options, drafter)?;
        tune(&mut session, self.tunings)?;
        Ok(session)
    }
}

/// What a recording gives.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The steps of the model drafter, if there was one.
    pub(super) trace: Option<Trace>,
    /// The requests.
    pub(super) requests: Vec<TokenTrace>,
    /// By prompt and step of the trace: what a depth network sees before the step, `[2 D]`.
    pub(super) features: Vec<Vec<Vec<f32>>>,
}

/// Keeps what a model drafter offered in one step.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) expanded: Vec<Expansion>,
}

impl TraceObserver for Recorder {
    fn expanded(&mut self, node: NodeId, candidates: &[speculate::Candidate]) {
        let candidates =
            candidates.iter().map(|c| Candidate { token: c.token, log_prob: c.log_prob }).collect();
        self.expanded.push(Expansion { node: node.get(), candidates });
    }
}

/// Runs the prompts with the widest tree of a model drafter, or plainly without one, and records every step. The
/// recorded output is plain decoding's either way.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
pub(super) fn record(
    loaded: &Loaded,
    drafter: Option<(&DrafterName, &DrafterKind)>,
    options: &TraceOptions<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Recorded, Error> {
    let prompts = options.prompts;
    let ids = prompts.iter().map(|p| p.token_ids(loaded)).collect::<Result<Vec<_>, _>>()?;
    let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
    let shape = if drafter.is_some() { options.shape } else { StepShape::PLAIN };
    let context = (longest + options.tokens + 1).clamp(2, loaded.set().model_context());
    let session = options.session(loaded, context, &shape, drafter.map(|(_, kind)| kind))?;
    let boxed = match drafter {
        Some((_, kind)) => make_drafter(kind, &shape, &session)?,
        None => None,
    };
    let mut decoder = Decoder::new(session, boxed, shape)?;
    let (mut recorded, mut requests, mut features) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    for (i, (prompt, ids)) in prompts.iter().zip(&ids).enumerate() {
        if i > 0 && start.elapsed() > options.budget {
            break;
        }
        if ids.len() >= context {
            continue;
        }
        let sampling = Sampling { temperature: options.temperature, seed: i as u64, ..Sampling::GREEDY };
        let tokens = options.tokens.min(context - ids.len());
        // The first request may take longer: without one there is nothing to plan by.
        let most = if i == 0 { 2 * options.budget } else { options.budget };
        let is_over = || start.elapsed() > most;
        let Some((steps, seen)) = record_prompt(loaded, &mut decoder, ids, sampling, tokens, is_over)? else {
            break;
        };
        features.push(seen);
        recorded.push(PromptTrace { kind: prompt.kind.clone(), steps });
        requests.push(TokenTrace {
            kind: prompt.kind.clone(),
            temperature: options.temperature,
            prompt: ids.clone(),
            output: decoder.history()[ids.len()..].to_vec(),
        });
        progress(i + 1, prompts.len());
    }
    if requests.is_empty() && start.elapsed() > options.budget {
        return Err(Error::input(format!(
            "no calibration prompt was read in {:.1?}: expected one or more; allow more time",
            start.elapsed()
        )));
    }
    if requests.is_empty() {
        return Err(Error::input(format!(
            "no calibration prompt fits the model's context of {} tokens: expected at least one shorter one",
            loaded.set().model_context()
        )));
    }
    let trace = drafter.map(|(name, _)| trace(name, options, recorded));
    Ok(Recorded { trace, requests, features })
}

/// The trace of a drafter at the recorded shape.
pub(super) fn trace(name: &DrafterName, options: &TraceOptions<'_>, prompts: Vec<PromptTrace>) -> Trace {
    let StepShape { depth, draft_width, verify_width: _, top_k, draft_temperature } = options.shape;
    let number = |n: usize| u32::try_from(n).expect("shapes are small");
    Trace {
        drafter: name.clone(),
        temperature: options.temperature,
        draft_temperature,
        depth: number(depth),
        width: number(draft_width),
        top_k: number(top_k),
        prompts,
    }
}

/// The steps of a request, and what a depth network sees before each.
type RecordedPrompt = (Vec<StepTrace>, Vec<Vec<f32>>);

/// One request; `None` if `is_over` before its prompt is read.
fn record_prompt(
    loaded: &Loaded,
    decoder: &mut Decoder,
    prompt: &[u32],
    sampling: Sampling,
    tokens: usize,
    is_over: impl Fn() -> bool,
) -> Result<Option<RecordedPrompt>, Error> {
    let (mut steps, mut features) = (Vec::new(), Vec::new());
    let begin = Begin { is_cancelled: &is_over, ..Begin::new(prompt, sampling) };
    let Some(mut last) = decoder.begin(&begin)? else { return Ok(None) };
    // Fewer tokens left than a whole tree can emit would cut the recorded tree.
    let whole = decoder.shape().depth + 1;
    while !loaded.end_ids().contains(&last) {
        let left = tokens + prompt.len() - decoder.history().len();
        if left < whole || (is_over() && !steps.is_empty()) {
            break;
        }
        let context = u32::try_from(decoder.history().len() - 1).expect("contexts are below 2^32");
        let mut seen = vec![0.0; 2 * loaded.set().model_width()];
        decoder.depth_features(&mut seen);
        features.push(seen);
        let mut recorder = Recorder::default();
        decoder.step(Limits { tokens: left, ends: loaded.end_ids() }, Some(&mut recorder))?;
        last = *decoder.emitted().last().expect("a step emits");
        steps.push(step_trace(decoder.tree(), context, recorder.expanded, decoder.emitted()));
    }
    Ok(Some((steps, features)))
}

pub(super) fn step_trace(
    tree: &TokenTree,
    context: u32,
    expanded: Vec<Expansion>,
    verified: &[u32],
) -> StepTrace {
    StepTrace {
        context,
        parents: tree.nodes().map(|n| tree.parent(n).map_or(0, NodeId::get)).collect(),
        tokens: tree.nodes().map(|n| tree.token(n)).collect(),
        expanded,
        verified: verified.to_vec(),
        predicted: Vec::new(),
    }
}
