//! What a search of shapes starts from: the recorded evidence, the drafter and what its fix leaves open.
use std::borrow::Cow;

use ygg_profiler::{DepthPredictor, DrafterName, LatencyTable, Profile, Stage, TokenTrace, Trace};

use crate::plan::{
    Acceptance, Calibration, ContextRange, DepthChoice, DrafterKind, GrowthChoice, GuardLimits, Prediction,
    RowChoice, RowRule, Schedule, Shape, SubPlan, Unseen,
};
use crate::planner::{
    AcceptedLengths, Fix, JudgedNode,
    judge::point::Point,
    price::{pricing::Pricing, stages::Tail, tally::Priced},
    replay::{
        head_coverage::{HeadCoverage, tokens_kept},
        trimming::trimmed,
    },
};

/// What was recorded at one temperature.
pub(in crate::planner) struct Recorded<'a> {
    pub(in crate::planner) temperature: f32,
    /// Of every drafter that runs a model; where a drafter with a trimmed head has none, what the whole head's say of
    /// it.
    pub(in crate::planner) traces: Vec<Cow<'a, Trace>>,
    pub(in crate::planner) requests: Vec<TokenTrace>,
    /// Of every drafter with a trimmed head and recorded steps: the share of tokens that it knows in all answers,
    /// relative to that at the recorded places.
    known_shares: Vec<(DrafterName, f64)>,
    /// What was trained on it.
    pub(in crate::planner) trained: &'a [DepthPredictor],
}

impl<'a> Recorded<'a> {
    pub(in crate::planner) fn greedy(profile: &'a Profile) -> Self {
        Self { trained: &profile.predictors, ..Self::warm(profile, 0.0) }
    }

    pub(in crate::planner) fn warm(profile: &'a Profile, temperature: f32) -> Self {
        let requests = profile.token_traces.iter().filter(|request| request.temperature == temperature);
        let recorded = || profile.traces.iter().filter(|trace| trace.temperature == temperature);
        let requests: Vec<TokenTrace> = requests.cloned().collect();
        let mut traces: Vec<Cow<'a, Trace>> = recorded().map(Cow::Borrowed).collect();
        let mut known_shares = Vec::new();
        for (name, kind) in described(profile) {
            let Some(tokens) = kind.facts().head_tokens else { continue };
            let coverage = HeadCoverage::new(tokens, &profile.token_traces);
            let is_whole = |of: &DrafterKind| of.trimmed_to(tokens.to_vec()).as_ref() == Some(&kind);
            let whole = described(profile).find(|(_, of)| is_whole(of));
            if let (Some((whole, _)), false) = (whole, recorded().any(|trace| trace.drafter == *name)) {
                let of_whole = recorded().filter(|trace| trace.drafter == *whole);
                let trimmed = |trace| Cow::Owned(trimmed(trace, name, &coverage, &requests));
                traces.extend(of_whole.map(trimmed));
            }
            if let Some(trace) = traces.iter().find(|trace| trace.drafter == *name) {
                known_shares.push((name.clone(), coverage.relative_share(&requests, trace)));
            }
        }
        Self { temperature, traces, requests, known_shares, trained: &[] }
    }
}

/// The drafters of a profile, as far as they are known.
fn described(profile: &Profile) -> impl Iterator<Item = (&DrafterName, DrafterKind)> {
    profile.drafters.iter().filter_map(|d| Some((&d.name, DrafterKind::from_description(d).ok()?)))
}

/// A drafter under search.
pub(in crate::planner) struct Origin<'a> {
    pub(in crate::planner) name: &'a DrafterName,
    pub(in crate::planner) kind: &'a DrafterKind,
    pub(in crate::planner) limits: &'a Fix,
    /// The schedules that the fix leaves open and its steps can keep.
    pub(in crate::planner) schedules: Vec<Schedule>,
    /// The temperature of its values; any if `None`.
    pub(in crate::planner) draft_temperature: Option<f32>,
    /// Committed tokens at which its steps are priced.
    pub(in crate::planner) context: u32,
    /// The share of tokens that its head knows, relative to that at the recorded places.
    pub(in crate::planner) known_share: f64,
    pub(in crate::planner) place: usize,
    pub(in crate::planner) asked_for: bool,
}

impl Origin<'_> {
    /// How the steps of a shape may choose their rows: only as the fix says, and by no values of unknown worth.
    pub(in crate::planner) fn rows(&self, mut judged: impl FnMut() -> Vec<JudgedNode>) -> Vec<Rows> {
        let rows = |rule: &RowRule| match rule {
            RowRule::Widest => Some(Rows { rule: RowRule::Widest, calibration: None }),
            RowRule::BestRate => Calibration::fit(&judged())
                .map(|calibration| Rows { rule: RowRule::BestRate, calibration: Some(calibration) }),
        };
        self.limits.row_rules().iter().filter_map(rows).collect()
    }

    /// The schedules that the fix leaves open to steps that choose their rows by a rule.
    pub(in crate::planner) fn schedules_of(&self, rule: RowRule) -> impl Iterator<Item = Schedule> {
        self.schedules.iter().copied().filter(move |schedule| schedule.admits_rows(rule))
    }

    pub(in crate::planner) fn point(&self, shape: Shape, evidence: Evidence<'_>, priced: Priced) -> Point {
        let Evidence {
            growth,
            schedule,
            top_k,
            draft_temperature,
            depth_choice,
            row_choice,
            lengths,
            by_rank,
        } = evidence;
        let Priced { predicted, mut by_prompt } = priced;
        let by_depth = lengths.by_depth();
        let kept = tokens_kept(&by_depth, self.known_share);
        by_prompt.iter_mut().for_each(|prompt| prompt.tokens *= kept);
        // Recorded answers end within a step, which then emits less than its lengths say; every step emits a token.
        let aal = (predicted.aal * kept).max(1.0);
        let predicted = Prediction::new(aal, predicted.stages, predicted.ar_tpot_us);
        let known = |(share, depth)| share * self.known_share.powi(depth);
        let by_depth = by_depth.into_iter().zip(1..).map(known).collect();
        // Until the drafter's best is found and judged by other prompts than chose it.
        let unseen = Unseen::PLAIN;
        let range = ContextRange {
            from: 0,
            context: self.context,
            drafts: true,
            depth: shape.depth,
            depth_choice,
            row_choice,
            predicted,
            unseen,
        };
        let acceptance = Acceptance { steps: lengths.steps(), by_depth, by_rank };
        Point {
            place: self.place,
            asked_for: self.asked_for,
            by_prompt,
            sub_plan: SubPlan {
                name: self.name.clone(),
                drafter: self.kind.clone(),
                draft_width: shape.draft_width,
                growth,
                schedule,
                top_k,
                draft_temperature,
                acceptance,
                guard: GuardLimits::DEFAULT,
                ranges: vec![range],
            },
        }
    }
}

/// How steps choose their rows, and by which values.
pub(in crate::planner) struct Rows {
    pub(in crate::planner) rule: RowRule,
    pub(in crate::planner) calibration: Option<Calibration>,
}

/// How steps are run, apart from their shape, and what a prediction rests on.
pub(in crate::planner) struct Evidence<'a> {
    pub(in crate::planner) growth: GrowthChoice,
    pub(in crate::planner) schedule: Schedule,
    pub(in crate::planner) top_k: u32,
    pub(in crate::planner) draft_temperature: f32,
    pub(in crate::planner) depth_choice: DepthChoice,
    pub(in crate::planner) row_choice: RowChoice,
    pub(in crate::planner) lengths: &'a AcceptedLengths,
    pub(in crate::planner) by_rank: Vec<f64>,
}

/// What is searched at one temperature: every drafter of a profile, priced at one context.
#[derive(Clone, Copy)]
pub(in crate::planner) struct Search<'a> {
    pub(in crate::planner) profile: &'a Profile,
    pub(in crate::planner) recorded: &'a Recorded<'a>,
    pub(in crate::planner) table: &'a LatencyTable,
    pub(in crate::planner) context: u32,
    pub(in crate::planner) ar_tpot_us: f64,
}

impl Search<'_> {
    pub(in crate::planner) fn pricing<'s>(&'s self, drafter: &'s DrafterName) -> Pricing<'s> {
        let described = self.profile.drafters.iter().find(|described| described.name == *drafter);
        let kind = described.and_then(|described| DrafterKind::from_description(described).ok());
        let tail = match kind {
            Some(kind) if kind.drafts_blocks() => Tail::Block,
            Some(kind) if kind.keeps_a_cache() => Tail::Joined,
            Some(_) | None => Tail::Shared,
        };
        Pricing { table: self.table, drafter, context: self.context, tail, static_tree: None }
    }

    /// The traces of a drafter; where it has none, those of the fixed drafter that it starts as.
    pub(in crate::planner) fn traces_of(&self, name: &DrafterName) -> Vec<&Trace> {
        let of = |name: &DrafterName| -> Vec<&Trace> {
            self.recorded.traces.iter().map(Cow::as_ref).filter(|trace| trace.drafter == *name).collect()
        };
        let own = of(name);
        if !own.is_empty() {
            return own;
        }
        let kinds = || described(self.profile);
        let starts_as = kinds().find(|(other, _)| *other == name).and_then(|(_, kind)| kind.starts_as());
        let twin = starts_as.and_then(|starts_as| kinds().find(|(_, kind)| *kind == starts_as));
        twin.map_or(Vec::new(), |(twin, _)| of(twin))
    }

    /// The share of tokens that the head of a drafter, or of the model of a mixture, knows in all answers, relative to
    /// that at the recorded places; 1 of a whole head. What a mixture copies needs no head, so of one it is a bound.
    pub(in crate::planner) fn known_share(&self, name: &DrafterName, kind: &DrafterKind) -> f64 {
        let model = kind.mixed_model().and_then(|model| self.name_of(&model.kind()));
        let name = model.unwrap_or(name);
        let known = self.recorded.known_shares.iter().find(|(known, _)| known == name);
        known.map_or(1.0, |(_, share)| *share)
    }

    /// The name of the drafter of these settings in the profile, if it has one.
    pub(in crate::planner) fn name_of(&self, kind: &DrafterKind) -> Option<&DrafterName> {
        described(self.profile).find(|(_, other)| other == kind).map(|(name, _)| name)
    }

    /// Whether the traces of a drafter are what a whole head's say of its trimmed one.
    pub(in crate::planner) fn is_trimmed_from_whole(&self, name: &DrafterName) -> bool {
        let is_it = |trace: &Cow<'_, Trace>| matches!(trace, Cow::Owned(trace) if trace.drafter == *name);
        self.recorded.traces.iter().any(is_it)
    }

    /// The measured draft widths that every trace of the drafter was recorded for.
    pub(in crate::planner) fn draft_widths(&self, name: &DrafterName) -> Vec<u32> {
        let widest = self.traces_of(name).iter().map(|t| t.width).min().unwrap_or(0);
        let mut widths = self.table.widths(&Stage::Draft(name.clone()));
        widths.retain(|width| *width <= widest);
        widths
    }
}

/// The shapes of these growths with the verify widths that make sense for them: something drafted, nothing padded.
pub(in crate::planner) fn speculative(
    depth: u32,
    draft_width: u32,
    verify_widths: &[u32],
) -> impl Iterator<Item = Shape> {
    let shape = move |verify_width: &u32| Shape { depth, draft_width, verify_width: *verify_width };
    let makes_sense =
        |shape: &Shape| shape.verify_width >= 2 && u64::from(shape.verify_width) <= shape.nodes();
    verify_widths.iter().map(shape).filter(makes_sense)
}

/// The context that all drafters are compared at: the mean of the recorded steps, else of the recorded requests, else
/// the shortest measured.
pub(in crate::planner) fn reference_context(recorded: &Recorded<'_>, table: &LatencyTable) -> u32 {
    let mean = |contexts: Vec<u64>| {
        let count = contexts.len() as u64;
        let sum: u64 = contexts.into_iter().sum();
        (sum + count / 2).checked_div(count).map(|mean| u32::try_from(mean).unwrap_or(u32::MAX))
    };
    let steps =
        recorded.traces.iter().flat_map(|trace| trace.steps()).map(|step| u64::from(step.context)).collect();
    let requests = recorded.requests.iter().map(|t| (t.prompt.len() + t.output.len() / 2) as u64).collect();
    mean(steps).or_else(|| mean(requests)).unwrap_or_else(|| table.contexts()[0])
}
