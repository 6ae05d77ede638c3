//! Recorded acceptance: what a drafter proposed and what the verifier chose, so that smaller trees need no model.
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::subject::DrafterName;

/// Log-probabilities come from a float softmax, whose largest entry may round to just above one.
const LOG_PROB_ROUNDING: f32 = 1e-3;

/// The steps of one model drafter along the answers to a calibration set, at one temperature: at places in a row of an
/// answer it drafted the largest planned Equal-Growth Tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Which drafter of the profile.
    pub drafter: DrafterName,
    /// Temperature of the requests.
    pub temperature: f32,
    /// Temperature of the drafter's probabilities, `t_d`.
    pub draft_temperature: f32,
    /// Growths per step (Dd) of the recorded trees.
    pub depth: u32,
    /// Nodes per growth (Wd) of the recorded trees.
    pub width: u32,
    /// Candidates kept of every expanded node.
    pub top_k: u32,
    /// What was recorded, prompt by prompt.
    pub prompts: Vec<PromptTrace>,
}

/// The steps of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptTrace {
    /// Kind of the prompt, as the calibration set calls it.
    pub kind: String,
    /// Steps in order, each after more of the answer than the one before.
    pub steps: Vec<StepTrace>,
}

/// One recorded step. Nodes are numbered in the order they were grown; the root is node 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepTrace {
    /// Committed tokens before the root.
    pub context: u32,
    /// Parent of every node, smaller than the node; the root's is 0.
    pub parents: Vec<u32>,
    /// Token of every node.
    pub tokens: Vec<u32>,
    /// The forwarded nodes with their best continuations.
    pub expanded: Vec<Expansion>,
    /// Tokens the verifier says after the root: the path that it would accept, then the bonus token.
    pub verified: Vec<u32>,
    /// P(at least d drafted tokens are accepted), d = 1, 2, ..., predicted by a depth network that was not trained on
    /// this prompt; empty where none was trained.
    pub predicted: Vec<f32>,
}

/// The best continuations of one forwarded node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expansion {
    /// The node.
    pub node: u32,
    /// At most `top_k` candidates, most probable first.
    pub candidates: Vec<Candidate>,
}

/// A token the drafter might continue with. Stored as a pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u32, f32)", into = "(u32, f32)")]
pub struct Candidate {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability given the path, at the draft temperature.
    pub log_prob: f32,
}

impl From<(u32, f32)> for Candidate {
    fn from((token, log_prob): (u32, f32)) -> Self {
        Candidate { token, log_prob }
    }
}

impl From<Candidate> for (u32, f32) {
    fn from(candidate: Candidate) -> Self {
        (candidate.token, candidate.log_prob)
    }
}

/// A request as tokens: enough to replay a drafter that is a pure function of the committed tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenTrace {
    /// Kind of the prompt, as the calibration set calls it.
    pub kind: String,
    /// Temperature of the request.
    pub temperature: f32,
    /// Its seed.
    pub seed: u64,
    /// Prompt tokens, not empty.
    pub prompt: Vec<u32>,
    /// What the verifier answered.
    pub output: Vec<u32>,
}

/// A trace that contradicts itself.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "recording of drafter {drafter}, prompt {prompt}, step {step}: {what}: expected {expected}, found {found}"
)]
pub struct TraceError {
    /// The drafter of the trace.
    pub drafter: DrafterName,
    /// Place of the prompt.
    pub prompt: usize,
    /// Place of the step in the prompt.
    pub step: usize,
    /// What is wrong.
    pub what: &'static str,
    /// The rule.
    pub expected: String,
    /// What breaks it.
    pub found: String,
}

/// What is wrong, the rule, and what breaks it.
pub(crate) type Fault = (&'static str, String, String);

impl TraceError {
    pub(crate) fn new(drafter: &DrafterName, prompt: usize, step: usize, fault: Fault) -> Self {
        let (what, expected, found) = fault;
        Self { drafter: drafter.clone(), prompt, step, what, expected, found }
    }
}

impl Trace {
    /// Every step in order.
    pub fn steps(&self) -> impl Iterator<Item = &StepTrace> {
        self.prompts.iter().flat_map(|prompt| &prompt.steps)
    }

    /// Checks numbers and indices: finite non-increasing log-probabilities, a tree whose every edge is a recorded
    /// candidate, and a verified path that walks it.
    ///
    /// # Errors
    /// [`TraceError`] names the first step that is wrong.
    pub fn validate(&self) -> Result<(), TraceError> {
        let error = |prompt, step, fault| TraceError::new(&self.drafter, prompt, step, fault);
        self.validate_header().map_err(|fault| error(0, 0, fault))?;
        for (p, prompt) in self.prompts.iter().enumerate() {
            for (s, step) in prompt.steps.iter().enumerate() {
                self.validate_step(step).map_err(|fault| error(p, s, fault))?;
                let context = step.context;
                let is_behind = s == 0 || prompt.steps[s - 1].context < context;
                ensure(is_behind, "context", "more than before the step before", context)
                    .map_err(|fault| error(p, s, fault))?;
            }
        }
        Ok(())
    }

    fn validate_header(&self) -> Result<(), Fault> {
        let Trace { drafter: _, temperature, draft_temperature, depth, width, top_k, prompts: _ } = self;
        ensure(temperature.is_finite() && *temperature >= 0.0, "temperature", "0 or more", temperature)?;
        let positive = draft_temperature.is_finite() && *draft_temperature > 0.0;
        ensure(positive, "draft temperature", "more than 0", draft_temperature)?;
        ensure(*depth >= 1, "depth", "1 or more", depth)?;
        ensure(*width >= 1, "width", "1 or more", width)?;
        ensure(top_k >= width, "top_k", format_args!("the width {width} or more"), top_k)
    }

    fn validate_step(&self, step: &StepTrace) -> Result<(), Fault> {
        let StepTrace { context: _, parents, tokens, expanded, verified, predicted } = step;
        let nodes = parents.len();
        let most = 1 + u64::from(self.depth) * u64::from(self.width);
        let size_fits = nodes >= 1 && nodes as u64 <= most;
        ensure(size_fits, "nodes", format_args!("1 to {most} by depth and width"), nodes)?;
        ensure(tokens.len() == nodes, "tokens", format_args!("one for each of {nodes} nodes"), tokens.len())?;
        ensure(parents[0] == 0, "parent of the root", "0", parents[0])?;

        let mut candidates_of: Vec<Option<&[Candidate]>> = vec![None; nodes];
        for Expansion { node, candidates } in expanded {
            let place = candidates_of.get_mut(*node as usize);
            let place = place.ok_or_else(|| fault("expanded node", format!("below {nodes}"), node))?;
            ensure(place.is_none(), "expanded node", "every node once", node)?;
            self.validate_candidates(candidates)?;
            *place = Some(candidates);
        }
        ensure(candidates_of[0].is_some(), "expanded nodes", "the root among them", "no root")?;

        ensure(
            predicted.len() <= self.depth as usize,
            "predicted depths",
            format_args!("at most {}", self.depth),
            predicted.len(),
        )?;
        let falls =
            predicted.is_sorted_by(|a, b| a >= b) && predicted.iter().all(|p| (0.0..=1.0).contains(p));
        ensure(
            falls,
            "predicted probabilities",
            "probabilities that never rise",
            format_args!("{predicted:?}"),
        )?;

        check_edges(parents, tokens)?;
        for node in 1..nodes {
            let (parent, token) = (parents[node] as usize, tokens[node]);
            let offered = candidates_of[parent].is_some_and(|c| c.iter().any(|c| c.token == token));
            ensure(offered, "token of a node", format_args!("a candidate of its parent {parent}"), token)?;
        }
        check_path(parents, tokens, verified)
    }

    fn validate_candidates(&self, candidates: &[Candidate]) -> Result<(), Fault> {
        let top_k = self.top_k as usize;
        ensure(candidates.len() <= top_k, "candidates", format_args!("at most {top_k}"), candidates.len())?;
        let mut last = LOG_PROB_ROUNDING;
        for Candidate { token: _, log_prob } in candidates {
            if !(log_prob.is_finite() && *log_prob <= last) {
                return Err(fault("log-probability", format!("finite and at most {last}"), log_prob));
            }
            last = *log_prob;
        }
        let mut tokens: Vec<u32> = candidates.iter().map(|candidate| candidate.token).collect();
        tokens.sort_unstable();
        match tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(fault("candidates", "distinct tokens", twice[0])),
            None => Ok(()),
        }
    }
}

/// Checks that parents come first, and that children of a node have different tokens.
pub(crate) fn check_edges(parents: &[u32], tokens: &[u32]) -> Result<(), Fault> {
    let mut edges = BTreeSet::new();
    for node in 1..parents.len() {
        let (parent, token) = (parents[node], tokens[node]);
        ensure((parent as usize) < node, "parent of a node", format_args!("below {node}"), parent)?;
        ensure(edges.insert((parent, token)), "children of a node", "distinct tokens", token)?;
    }
    Ok(())
}

/// Checks that the verified tokens but the last walk down from the root.
pub(crate) fn check_path(parents: &[u32], tokens: &[u32], verified: &[u32]) -> Result<(), Fault> {
    let Some((_bonus, accepted)) = verified.split_last() else {
        return Err(fault("verified tokens", "at least the bonus token", "none"));
    };
    let mut at = 0;
    for token in accepted {
        let child = (at + 1..parents.len()).find(|n| parents[*n] as usize == at && tokens[*n] == *token);
        at = child.ok_or_else(|| fault("accepted token", format!("a child of node {at}"), token))?;
    }
    Ok(())
}

pub(crate) fn fault(what: &'static str, expected: impl ToString, found: impl ToString) -> Fault {
    (what, expected.to_string(), found.to_string())
}

pub(crate) fn ensure(
    holds: bool,
    what: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(fault(what, expected, found)) }
}
