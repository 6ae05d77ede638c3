//! A synthetic drafter and verifier, an obvious Equal-Growth Tree, and profiles recorded from them.
use std::collections::BTreeMap;

use ygg_profiler::{
    BuildFingerprint, Candidate, Cell, CellSamples, DrafterName, Expansion, Fingerprints, MachineFingerprint,
    ModelFingerprint, Profile, PromptTrace, Random, Stage, StepTrace, TokenTrace, Trace, UnixTime,
};

use crate::{
    plan::{
        Calibration, DrafterKind, LayerSkipSettings, LookupSettings, PLAN_FORMAT, Plan, ProposalLimits,
        ReplayDrafter, RowChoice, RowRule, WidthCost,
    },
    planner::{JudgedNode, report},
    sample::Coupling,
    tree::{Insert, NodeId, Source, TokenTree},
};

const VOCABULARY: u32 = 7;

pub(super) fn name(text: &str) -> DrafterName {
    DrafterName::new(text).unwrap()
}

/// Answers that depend on the path alone; scores are multiples of a quarter, so ties are common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Oracle {
    pub(super) seed: u64,
    /// How often, of 100, the verifier follows one of the drafter's first candidates.
    pub(super) skill: u64,
}

impl Oracle {
    fn hash(&self, salt: u64, path: &[u32]) -> u64 {
        path.iter().fold(self.seed ^ salt, |state, token| Random::new(state ^ u64::from(*token)).bits())
    }

    pub(super) fn candidates(&self, path: &[u32], top_k: u32) -> Vec<Candidate> {
        let mut tokens: Vec<u32> = (0..VOCABULARY).collect();
        tokens.sort_by_key(|token| self.hash(u64::from(*token) + 100, path));
        let mut log_prob = 0.0;
        (0..)
            .zip(tokens)
            .take(top_k as usize)
            .map(|(rank, token)| {
                log_prob -= (self.hash(rank, path) % 3) as f32 * 0.25;
                Candidate { token, log_prob }
            })
            .collect()
    }

    fn verifier(&self, path: &[u32]) -> u32 {
        let roll = self.hash(7, path);
        if roll % 100 < self.skill {
            self.candidates(path, 3)[(roll / 100 % 3) as usize].token
        } else {
            VOCABULARY + 1
        }
    }
}

pub(super) struct NaiveNode {
    pub(super) path: Vec<u32>,
    pub(super) parent: usize,
    pub(super) score: f32,
    pub(super) value: f32,
}

pub(super) struct NaiveTree {
    pub(super) nodes: Vec<NaiveNode>,
    pub(super) forwarded: Vec<usize>,
    pub(super) missing: usize,
}

/// Equal growth spelled out: look at every child of every expanded node, take the best, `width` times a growth.
pub(super) fn naive_tree(
    candidates_of: impl Fn(&[u32]) -> Option<Vec<Candidate>>,
    root: u32,
    width: u32,
    depth: u32,
) -> NaiveTree {
    let mut nodes = vec![NaiveNode { path: vec![root], parent: 0, score: 0.0, value: 1.0 }];
    let (mut forwarded, mut missing) = (Vec::new(), 0);
    let mut pool: Vec<(usize, usize, Candidate)> = Vec::new();
    let mut newest = 0;
    for _ in 0..depth {
        for (node, NaiveNode { path, .. }) in nodes.iter().enumerate().skip(newest) {
            forwarded.push(node);
            let candidates = candidates_of(path);
            missing += usize::from(candidates.is_none());
            pool.extend(candidates.into_iter().flatten().enumerate().map(|(rank, c)| (node, rank, c)));
        }
        newest = nodes.len();
        for _ in 0..width {
            let mut best: Option<usize> = None;
            for (i, (parent, rank, c)) in pool.iter().enumerate() {
                let score = nodes[*parent].score + c.log_prob;
                let wins = best.is_none_or(|b| {
                    let (p, r, c) = &pool[b];
                    let other = nodes[*p].score + c.log_prob;
                    score > other || (score == other && (parent, rank) < (p, r))
                });
                if wins {
                    best = Some(i);
                }
            }
            let Some((parent, _, c)) = best.map(|i| pool.remove(i)) else { break };
            let score = nodes[parent].score + c.log_prob;
            let path = nodes[parent].path.iter().copied().chain([c.token]).collect();
            let value = score.exp().min(nodes[parent].value);
            nodes.push(NaiveNode { path, parent, score, value });
        }
    }
    NaiveTree { nodes, forwarded, missing }
}

/// Every verify width by itself, for each of `depths` depths.
pub(super) fn fixed_widths(widths: &[u32], depths: u32) -> Vec<Vec<RowChoice>> {
    vec![widths.iter().map(|width| RowChoice::fixed(*width, 1.0)).collect(); depths as usize]
}

/// All of a proposal is verified at the smallest width that holds it.
pub(super) fn widest(widths: &[u32]) -> RowChoice {
    let widths = widths.iter().map(|width| WidthCost { width: *width, step_us: f64::from(*width) });
    RowChoice { rule: RowRule::Widest, widths: widths.collect(), rate: 1.0, calibration: None }
}

impl NaiveTree {
    /// Every node whose outcome `verified` tells.
    pub(super) fn judged(&self, verified: &[u32]) -> Vec<JudgedNode> {
        let mut judged = Vec::new();
        for NaiveNode { path, value, .. } in &self.nodes[1..] {
            let drafted = &path[1..];
            let is_beyond = drafted.len() > verified.len() && drafted.starts_with(verified);
            if !is_beyond {
                let (score, depth) = (*value, drafted.len() as u32);
                judged.push(JudgedNode { prompt: 0, score, depth, accepted: verified.starts_with(drafted) });
            }
        }
        judged
    }

    /// The same tree with calibrated values.
    pub(super) fn calibrated(&self, calibration: &Calibration) -> NaiveTree {
        let mut nodes: Vec<NaiveNode> = Vec::new();
        for NaiveNode { path, parent, score, value } in &self.nodes {
            let value = match path.len() {
                1 => *value,
                length => calibration.probability(*value, length as u32 - 1).min(nodes[*parent].value),
            };
            nodes.push(NaiveNode { path: path.clone(), parent: *parent, score: *score, value });
        }
        NaiveTree { nodes, forwarded: Vec::new(), missing: 0 }
    }

    /// Expected tokens of a step that verifies the best `verify_width` nodes.
    pub(super) fn expected(&self, verify_width: u32) -> f64 {
        let mut values: Vec<f64> = self.nodes.iter().map(|node| f64::from(node.value)).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        values.iter().take(verify_width as usize).sum()
    }

    /// Drafted tokens accepted when the best `verify_width` nodes are verified.
    pub(super) fn accepted(&self, verified: &[u32], verify_width: u32) -> usize {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| self.nodes[*b].value.total_cmp(&self.nodes[*a].value).then(a.cmp(b)));
        order.truncate(verify_width as usize);
        let mut path = self.nodes[0].path.clone();
        for (length, token) in verified.iter().enumerate() {
            path.push(*token);
            if !order.iter().any(|node| self.nodes[*node].path == path) {
                return length;
            }
        }
        verified.len()
    }
}

/// What a recorder would write for one step.
pub(super) fn record_step(oracle: &Oracle, root: u32, width: u32, depth: u32, top_k: u32) -> StepTrace {
    let tree = naive_tree(|path| Some(oracle.candidates(path, top_k)), root, width, depth);
    let mut path = vec![root];
    let mut verified = Vec::new();
    while tree.nodes.iter().any(|node| node.path == path) {
        let token = oracle.verifier(&path);
        verified.push(token);
        path.push(token);
    }
    StepTrace {
        // So far from the next that every shape takes every step.
        context: 100 + 20 * root,
        parents: tree.nodes.iter().map(|node| node.parent as u32).collect(),
        tokens: tree.nodes.iter().map(|node| *node.path.last().unwrap()).collect(),
        expanded: tree
            .forwarded
            .iter()
            .map(|node| Expansion {
                node: *node as u32,
                candidates: oracle.candidates(&tree.nodes[*node].path, top_k),
            })
            .collect(),
        verified,
        predicted: Vec::new(),
    }
}

pub(super) fn record(oracle: &Oracle, steps: u32, width: u32, depth: u32, top_k: u32) -> Trace {
    let steps = (0..steps).map(|root| record_step(oracle, root, width, depth, top_k)).collect();
    Trace {
        drafter: name("layer_skip"),
        temperature: 0.0,
        draft_temperature: 1.0,
        depth,
        width,
        top_k,
        prompts: vec![PromptTrace { kind: "synthetic".into(), steps }],
    }
}

/// The recorded candidates by path, for growing naive trees off a trace.
pub(super) fn recorded_candidates(step: &StepTrace) -> BTreeMap<Vec<u32>, Vec<Candidate>> {
    let path_of = |mut node: usize| {
        let mut path = vec![step.tokens[node]];
        while node != 0 {
            node = step.parents[node] as usize;
            path.push(step.tokens[node]);
        }
        path.reverse();
        path
    };
    step.expanded.iter().map(|e| (path_of(e.node as usize), e.candidates.clone())).collect()
}

/// Proposes the chain that followed the latest earlier occurrence of the last token.
#[derive(Debug)]
pub(super) struct Echo;

impl Echo {
    pub(super) fn chain(history: &[u32], most: usize) -> Vec<u32> {
        let (last, earlier) = history.split_last().unwrap();
        let found = earlier.iter().rposition(|token| token == last);
        found.map_or(Vec::new(), |at| history[at + 1..].iter().copied().take(most).collect())
    }
}

impl ReplayDrafter for Echo {
    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        _coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        assert_eq!(tree.token(NodeId::ROOT), *history.last().unwrap());
        let mut at = NodeId::ROOT;
        for token in Echo::chain(history, limits.depth.min(limits.nodes - 1) as usize) {
            match tree.insert(at, token, 1.0, 0, Source::new(0)) {
                Insert::Added(node) | Insert::Merged(node) => at = node,
                Insert::Full => unreachable!("the chain is cut to the limits"),
            }
        }
    }
}

pub(super) fn samples(stage: &str, width: u32, us: f64) -> CellSamples {
    CellSamples {
        cell: Cell { stage: stage.parse::<Stage>().unwrap(), width, context: 0 },
        samples_us: vec![us],
    }
}

/// When profiles of these tests are measured, and a day later, when plans are made.
pub(super) const MEASURED_AT: UnixTime = UnixTime::from_seconds(1_795_356_180);
pub(super) const MADE_AT: UnixTime = UnixTime::from_seconds(1_795_356_180 + 86_400);

/// What reports say of a plan on one screen, two days after it was made.
pub(super) fn shown(plan: &Plan) -> String {
    report::text(plan, UnixTime::from_seconds(MADE_AT.seconds() + 2 * 86_400))
}

/// What they say of it in full, for greedy requests.
pub(super) fn in_full(plan: &Plan) -> String {
    report::explain::text(plan, &report::explain(plan))
}

pub(super) fn fingerprints() -> Fingerprints {
    Fingerprints {
        machine: MachineFingerprint::from_cpuinfo("vendor_id : GenuineIntel\nflags : avx2\n", 2, "avx2")
            .unwrap(),
        model: ModelFingerprint { name: "tiny".into(), digest: "ab".into() },
        build: BuildFingerprint {
            plan_format: PLAN_FORMAT,
            kernels: "cd".into(),
            draft_formats: "f16 in q8_0".into(),
        },
    }
}

/// Prompts that say the same are enough of them to be trusted.
const COPIES: usize = 12;

/// The profile, with every prompt recorded so often that what it says is not doubted.
pub(super) fn surely(mut profile: Profile) -> Profile {
    for trace in &mut profile.traces {
        trace.prompts = [&trace.prompts[..]; COPIES].concat();
    }
    profile.token_traces = [&profile.token_traces[..]; COPIES].concat();
    profile
}

/// A profile of layer skip (when it has a trace) and lookup (when it has requests).
pub(super) fn profile(
    measurements: Vec<CellSamples>,
    traces: Vec<Trace>,
    token_traces: Vec<TokenTrace>,
) -> Profile {
    let mut drafters = Vec::new();
    if !traces.is_empty() {
        drafters.push(
            DrafterKind::LayerSkip(LayerSkipSettings { skipped: vec![2, 5], head_tokens: None })
                .describe(name("layer_skip")),
        );
    }
    if !token_traces.is_empty() {
        drafters.push(
            DrafterKind::Lookup(LookupSettings { longest_match: 3, shortest_match: 1 })
                .describe(name("lookup")),
        );
    }
    Profile {
        created_by: "test".into(),
        measured_at: MEASURED_AT,
        fingerprints: fingerprints(),
        calibration: "synthetic".into(),
        noise_threshold: 0.1,
        memory: None,
        drafters,
        tunings: Vec::new(),
        measurements,
        visits: Vec::new(),
        traces,
        token_traces,
        live_traces: Vec::new(),
        predictors: Vec::new(),
    }
}
