//! Losslessness: whatever drafts, in whatever shape, the tokens are those of plain decoding, greedy or sampled.
//!
//! The judge is a decoder without drafter on one thread. Scratch is poisoned before every step and by the adversary
//! after its proposal.

use std::sync::Arc;

use yggc::{
    plan::{DepthChoice, GuardLimits, Prediction, RowChoice, RowRule, Schedule, WidthCost},
    policy::SkipSearch,
    runtime::{ExecutableSet, SkipSet, VariantChange},
    sample::Sampling,
    speculate::{
        BandSteps, Budget, Decoder, DraftGrowth, Drafter, Limits, Mixed, SelfDrafter, SpeculateError,
        StepShape, Swift,
    },
    tree::{NodeId, Source, Template, TokenTree},
};

mod adversary;
mod draws;
mod free;
mod terms;

pub(crate) use self::draws::{
    Policy, any_draw, any_kept, any_policy, any_sampling, any_shape, any_template, any_tokens, scheduled,
};
use self::{adversary::Adversary, draws::any_depths, free::Free};
use crate::{
    draft_models::{DRAFT, Eagle3Kind, eagle3_pair, hidden_pair, pair_drafter, pair_session, plain_pair},
    skip_search::{any_skip_costs, any_skip_search},
    streaming,
    tiny_model::{Class, Dice, TinyModel, best_tier, everything, is_cuda, models, part, session},
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    LayerSkip,
    TrimmedHead,
    Template,
    /// The model with matrices of fewer bits, and at times a trimmed head.
    Substitute,
    Swift,
    /// A drafter model by itself, which may be of another vocabulary or the verifier.
    Model,
    /// A drafter model that reads the verifier's hidden rows.
    HiddenState,
    /// An EAGLE-3 head, at times a trimmed one.
    Eagle3,
    /// A block drafter, as a rule with a Markov head that knows how plain decoding goes on.
    Block,
    Free(Free),
    Mixed,
    Adversary,
}

/// One decoding problem.
#[derive(Debug)]
struct Case {
    what: String,
    kind: Kind,
    /// Tokens of a trimmed head; none where it is whole.
    kept: Vec<u32>,
    /// Bits of a substitute, if there is one.
    bits: Option<u32>,
    /// What trees are filled from; none where they grow equally.
    template: Option<Template>,
    shape: StepShape,
    schedule: Schedule,
    policy: Option<Policy>,
    /// Whether a network tells steps how deep to draft.
    is_told: bool,
    threads: usize,
    context: usize,
    prompt: Vec<u32>,
    sampling: Sampling,
    tokens: usize,
}

impl Case {
    fn any(kind: Kind, what: String, vocabulary: usize, dice: &mut Dice) -> Self {
        let len = dice.within(1, 16);
        // Random models repeat themselves late.
        let is_late = matches!(kind, Kind::Free(_) | Kind::Mixed | Kind::Swift);
        let tokens = dice.within(1, if is_late { 70 } else { 24 });
        // A tight context ends the text before the wish does.
        let context = if dice.chance(40) { len + tokens.div_ceil(2) + 1 } else { 128 };
        let (template, shape) = match kind {
            Kind::Template => {
                let (template, shape) = any_template(dice);
                (Some(template), shape)
            }
            Kind::Model | Kind::HiddenState | Kind::Eagle3 | Kind::Block if dice.chance(25) => {
                let (template, shape) = any_template(dice);
                (Some(template), shape)
            }
            Kind::LayerSkip
            | Kind::Substitute
            | Kind::Model
            | Kind::HiddenState
            | Kind::Eagle3
            | Kind::Block
            | Kind::TrimmedHead
            | Kind::Swift
            | Kind::Free(_)
            | Kind::Mixed
            | Kind::Adversary => (None, any_shape(dice)),
        };
        let policy = dice.chance(60).then(|| any_policy(&shape, dice));
        let is_trimmed = kind == Kind::TrimmedHead || kind == Kind::Substitute && dice.chance(40);
        let kept = if is_trimmed { any_kept(vocabulary, dice) } else { Vec::new() };
        // A device has no matrices of fewer.
        let bits = (kind == Kind::Substitute).then(|| if is_cuda() { 4 } else { *dice.pick(&[2, 3, 4]) });
        let can_be_ahead = matches!(
            kind,
            Kind::LayerSkip
                | Kind::Substitute
                | Kind::Model
                | Kind::TrimmedHead
                | Kind::Template
                | Kind::Swift
        );
        let is_ahead = can_be_ahead && dice.chance(50);
        let schedule = if is_ahead { Schedule::HeadAhead } else { Schedule::Plain };
        Self {
            what,
            kind,
            kept,
            bits,
            template,
            shape,
            schedule,
            policy,
            is_told: schedule == Schedule::Plain && dice.chance(40),
            threads: if dice.chance(25) { 2 } else { 1 },
            context,
            prompt: dice.tokens(len, vocabulary),
            sampling: any_sampling(dice),
            tokens,
        }
    }

    /// What its variant of the model's forwards changes.
    fn change(&self) -> VariantChange<'_> {
        let head_tokens = (!self.kept.is_empty()).then_some(&self.kept[..]);
        VariantChange { head_tokens, substitute_bits: self.bits }
    }

    /// The model's executables with that variant.
    fn varied(&self, set: &ExecutableSet, model: &TinyModel) -> Arc<ExecutableSet> {
        let varied = set.with_variants(model.model.weights.as_ref(), &[self.change()]);
        Arc::new(varied.expect("tokens in order"))
    }

    fn plainly(&self, set: &Arc<ExecutableSet>, prompt: &[u32]) -> Vec<u32> {
        let mut plain =
            Decoder::new(session(set, self.context, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
        decode(&mut plain, prompt, self.sampling, self.tokens, &[], None);
        plain.history().to_vec()
    }

    fn decoder(&self, set: &Arc<ExecutableSet>, truth: &[u32], dice: &mut Dice) -> Decoder {
        let bank = self.shape.scratch_rows(self.schedule);
        let window = if self.kind == Kind::Swift { dice.within(1, 9) } else { 0 };
        let rows = bank + window;
        let session = match self.kind {
            Kind::Model | Kind::HiddenState | Kind::Eagle3 | Kind::Block => {
                pair_session(set, self.context, rows, self.threads)
            }
            _ => session(set, self.context, rows, self.threads),
        };
        let drafter: Box<dyn Drafter> = match self.kind {
            Kind::LayerSkip | Kind::TrimmedHead | Kind::Template => {
                let percent = *dice.pick(&[10, 30, 60, 100]);
                let skipped: Vec<u32> = (0..set.groups()).filter(|_| dice.chance(percent)).collect();
                let skip = SkipSet::new(set.groups(), &skipped).expect("groups of the model");
                let mut whole =
                    SelfDrafter::layer_skip(&session, skip, &self.shape).expect("a planned width");
                if let Some(template) = &self.template {
                    whole = whole.with_template(template, &self.shape).expect("its own shape");
                }
                Box::new(match set.variant(self.change()).expect("it was made") {
                    None => whole,
                    Some(variant) => whole.with_variant(variant),
                })
            }
            Kind::Substitute => {
                let variant = set.variant(self.change()).expect("it was made").expect("fewer bits");
                let drafter = SelfDrafter::substitute(&session, variant, &self.shape);
                Box::new(drafter.expect("a planned width"))
            }
            Kind::Model | Kind::HiddenState | Kind::Eagle3 => {
                let mut whole = pair_drafter(&session, &self.shape);
                if let Some(template) = &self.template {
                    whole = whole.with_template(template, &self.shape).expect("its own shape");
                }
                let draft = set.draft(DRAFT).expect("a pair");
                Box::new(match &self.kept[..] {
                    [] => whole,
                    kept => whole.with_head(draft.head(kept).expect("it was made")),
                })
            }
            Kind::Block => crate::draft_models::block_drafter(&session, &self.shape, self.template.as_ref()),
            Kind::Swift => {
                let start: Vec<u32> = (0..set.groups()).filter(|_| dice.chance(40)).collect();
                let start = if start.is_empty() { vec![0] } else { start };
                let depth = self.shape.depth as u32;
                let (costs, settings) = (any_skip_costs(), any_skip_search(window, dice));
                let search = SkipSearch::new(set.groups(), &start, depth, costs, settings);
                let may_end_early = self.schedule == Schedule::Plain && dice.chance(50);
                let growth = if may_end_early { DraftGrowth::Confident } else { DraftGrowth::Equal };
                let drafter = Swift::new(&session, search, &self.shape, growth, bank);
                Box::new(drafter.expect("room for tries"))
            }
            Kind::Free(free) => free.drafter(&self.shape, (set.vocabulary(), truth), dice),
            Kind::Mixed => {
                let mut parts: Vec<Free> = Free::ALL.into_iter().filter(|_| dice.chance(60)).collect();
                if parts.len() < 2 {
                    parts = vec![Free::Suffix, Free::Recycling];
                }
                let drafters = parts.iter().map(|f| f.drafter(&self.shape, (set.vocabulary(), truth), dice));
                Box::new(Mixed::new(drafters.collect(), &self.shape).expect("two or more"))
            }
            Kind::Adversary => Box::new(Adversary {
                truth: truth.to_vec(),
                vocabulary: set.vocabulary(),
                dice: Dice::new(dice.bits()),
            }),
        };
        let mut steps = scheduled(drafter, &self.shape, self.schedule);
        if self.is_told {
            let (costs, network) = any_depths(self.shape.depth, set.model_width(), dice);
            let first = &mut steps.sub_plan.ranges[0];
            first.row_choice.widths[0].step_us = 100.0;
            first.depth_choice = DepthChoice::Predicted(costs);
            steps.network = Some(network);
        }
        if let Some(policy) = self.policy.clone() {
            steps = policy.over(steps);
        }
        Decoder::new(session, vec![steps]).expect("steps for the model")
    }
}

/// The model with a drafter model added, whose head may be trimmed.
fn any_pair(case: &mut Case, model: &'static TinyModel, class: Class, dice: &mut Dice) -> Arc<ExecutableSet> {
    let pair = match case.kind {
        Kind::Eagle3 => {
            // Heads of their own are random, and so hardly ever right.
            let kind = if dice.chance(60) { Eagle3Kind::Shared } else { *dice.pick(&Eagle3Kind::ALL) };
            if dice.chance(30) {
                let vocabulary = model.set(class).vocabulary();
                // One that every head has.
                case.kept = [&[0], &any_kept(vocabulary, dice)[..]].concat();
                case.kept.dedup();
            }
            eagle3_pair(model, class, kind, &case.kept)
        }
        Kind::HiddenState => hidden_pair(model, class, *dice.pick(&[256, 256, 24])),
        _ if dice.chance(30) => plain_pair(model, model, class),
        _ => plain_pair(model, dice.pick(models()), class),
    };
    let draft = pair.draft(DRAFT).expect("a pair");
    if draft.given_columns() > 0 || dice.chance(70) {
        return pair;
    }
    case.kept = any_kept(draft.vocabulary(), dice);
    // Any weights will do: what is drafted is verified.
    let mut any = models().iter().chain(crate::families::models());
    let of = any.find(|m| m.model.graph.weights()[..] == draft.graph().weights()[..]);
    let weights = of.expect("one of them").model.weights.as_ref();
    let trimmed = draft.with_heads(weights, &[&case.kept], |stored| stored).expect("tokens in order");
    Arc::new(pair.with_draft(DRAFT, Arc::new(trimmed)))
}

/// Decodes until `tokens` are emitted, one of `ends` is, or the context is full; poisons scratch before every step.
pub(crate) fn decode(
    decoder: &mut Decoder,
    prompt: &[u32],
    sampling: Sampling,
    tokens: usize,
    ends: &[u32],
    poison: Option<u64>,
) {
    let first = decoder.start(prompt, sampling).expect("the prompt fits");
    let mut last = first;
    while !ends.contains(&last) {
        let emitted = decoder.history().len() - prompt.len();
        let room = decoder.session().context() + 1 - decoder.history().len();
        let wanted = (tokens - emitted).min(room);
        if wanted == 0 {
            return;
        }
        if let Some(seed) = poison {
            decoder.poison_scratch(seed + emitted as u64);
        }
        decoder.step(Limits { tokens: wanted, ends }, None).expect("the step runs");
        assert!((1..=wanted).contains(&decoder.emitted().len()), "a step emits something, within its limits");
        last = *decoder.emitted().last().expect("not empty");
    }
}

/// Plain output cut where the limits cut it.
fn cut<'a>(truth: &'a [u32], prompt: usize, tokens: usize, ends: &[u32]) -> &'a [u32] {
    let output = &truth[prompt..];
    let end = output.iter().position(|t| ends.contains(t)).map_or(output.len(), |i| i + 1);
    &truth[..prompt + end.min(tokens).min(output.len())]
}

/// Runs `cases` of a kind over all models and classes; gives drafted and accepted nodes in all. Of a device one in
/// [`CASES_OF_DEVICE`] is run.
fn run(kind: Kind, cases: u64) -> (u64, u64) {
    run_over(models(), kind, cases)
}

/// As [`run`], over these models.
fn run_over(models: &'static [TinyModel], kind: Kind, cases: u64) -> (u64, u64) {
    let cases = if is_cuda() { cases.div_ceil(CASES_OF_DEVICE) } else { part(cases) };
    let (mut drafted, mut accepted) = (0, 0);
    for number in 0..cases {
        let mut dice = Dice::new(number);
        let model = dice.pick(models);
        let class = model.any_class(&mut dice);
        let set = model.set(class);
        let what = format!("{kind:?} case {number}, {} on {class}", model.name);
        let mut case = Case::any(kind, what, set.vocabulary(), &mut dice);
        let truth = case.plainly(set, &case.prompt);
        let set = match kind {
            Kind::Model | Kind::HiddenState | Kind::Eagle3 => any_pair(&mut case, model, class, &mut dice),
            Kind::Block => crate::draft_models::any_block_pair(model, class, &truth, &mut dice),
            _ => case.varied(set, model),
        };
        let mut decoder = case.decoder(&set, &truth, &mut dice);
        decode(&mut decoder, &case.prompt, case.sampling, case.tokens, &[], Some(dice.bits() >> 1));
        assert_eq!(decoder.history(), truth, "{}: {case:?}", case.what);
        decoder.tree().check().expect("a lawful tree");
        drafted += decoder.stats().drafted;
        accepted += decoder.stats().accepted;

        // Again on the same decoder, cut at a token that plain decoding emits.
        let output = &truth[case.prompt.len()..];
        let ends = [*dice.pick(output)];
        let tokens = dice.within(1, case.tokens);
        decode(&mut decoder, &case.prompt, case.sampling, tokens, &ends, Some(dice.bits() >> 1));
        assert_eq!(
            decoder.history(),
            cut(&truth, case.prompt.len(), tokens, &ends),
            "{}, cut: {case:?}",
            case.what
        );

        // A cut leaves the cache fit for another request. An emulated device tries it in one case of two.
        if kind != Kind::Adversary && (number % 2 == 0 || !is_cuda() || everything()) {
            let prompt = dice.tokens(case.prompt.len(), set.vocabulary());
            decode(&mut decoder, &prompt, case.sampling, case.tokens, &[], Some(dice.bits() >> 1));
            assert_eq!(
                decoder.history(),
                case.plainly(&set, &prompt),
                "{}, another request: {case:?}",
                case.what
            );
        }
    }
    (drafted, accepted)
}

/// Cases of which one is run on a device, which may be emulated.
const CASES_OF_DEVICE: u64 = 16;

/// Where too little is drafted or accepted, equal tokens show nothing. A device runs few cases, of which random weights
/// accept few.
fn shows_something((drafted, accepted): (u64, u64), least: (u64, u64)) {
    let (least_drafted, least_accepted) = if is_cuda() { (10, 1) } else { (part(least.0), part(least.1)) };
    assert!(
        drafted >= least_drafted && accepted >= least_accepted,
        "{accepted} of {drafted} accepted: too few to show anything"
    );
}

#[test]
fn layer_skip_changes_no_token() {
    shows_something(run(Kind::LayerSkip, 190), (3_000, 200));
}

#[test]
fn a_trimmed_head_changes_no_token() {
    shows_something(run(Kind::TrimmedHead, 160), (3_000, 100));
}

#[test]
fn a_substitute_changes_no_token() {
    shows_something(run(Kind::Substitute, 200), (3_000, 300));
}

#[test]
fn no_drafter_over_streamed_weights_changes_a_token() {
    let kinds =
        [Kind::LayerSkip, Kind::HiddenState, Kind::Free(Free::Suffix), Kind::TrimmedHead, Kind::Swift];
    for kind in if is_cuda() { &kinds[..2] } else { &kinds[..] } {
        run_over(streaming::models(), *kind, 2);
    }
    // Three on a device.
    let cases = if is_cuda() { 2 * CASES_OF_DEVICE + 1 } else { 10 };
    shows_something(run_over(streaming::models(), Kind::Substitute, cases), (60, 10));
}

/// Whatever is drafted, by the verifier without some layers, by itself or by others; which a GPU refuses.
pub(crate) fn no_drafter_changes_a_token_of(models: &'static [TinyModel]) {
    let own =
        [Kind::LayerSkip, Kind::TrimmedHead, Kind::Template, Kind::Substitute, Kind::Swift, Kind::Mixed];
    let drafters = [Kind::Model, Kind::HiddenState, Kind::Eagle3, Kind::Block];
    let others = [Kind::Free(Free::Suffix), Kind::Adversary];
    let kinds = own.iter().chain(&drafters).chain(&others).filter(|_| !is_cuda());
    let each = kinds.map(|kind| run_over(models, *kind, 10));
    let sum = each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(
        is_cuda() || (sum.0 > 500 && sum.1 > 50),
        "{sum:?} drafted and accepted: too few to show anything"
    );
}

#[test]
fn no_drafter_over_rows_with_a_state_changes_a_token() {
    no_drafter_changes_a_token_of(crate::states::models());
}

#[test]
fn a_template_changes_no_token() {
    shows_something(run(Kind::Template, 200), (3_000, 200));
}

#[test]
fn a_skip_set_that_changes_changes_no_token() {
    shows_something(run(Kind::Swift, 120), (3_000, 300));
}

#[test]
fn a_drafter_model_changes_no_token() {
    shows_something(run(Kind::Model, 200), (3_000, 200));
}

#[test]
fn a_hidden_state_drafter_changes_no_token() {
    shows_something(run(Kind::HiddenState, 160), (3_000, 100));
}

#[test]
fn an_eagle3_head_changes_no_token() {
    shows_something(run(Kind::Eagle3, 160), (2_000, 30));
}

#[test]
fn a_block_drafter_changes_no_token() {
    shows_something(run(Kind::Block, 200), (800, 150));
}

#[test]
fn a_mixture_changes_no_token() {
    shows_something(run(Kind::Mixed, 200), (5_000, 300));
}

#[test]
fn an_adversary_changes_no_token() {
    shows_something(run(Kind::Adversary, 160), (1_500, 200));
}

#[test]
fn nothing_changes_a_token_of_any_family() {
    let families = crate::families::models();
    let suffix = Kind::Free(Free::Suffix);
    let kinds = [Kind::LayerSkip, Kind::TrimmedHead, Kind::Substitute, suffix, Kind::Adversary];
    let found = kinds.map(|kind| run_over(families, kind, 60));
    if is_cuda() {
        // Its few cases are of few families, and one kind may have nothing accepted.
        let all = found.into_iter().fold((0, 0), |all, found| (all.0 + found.0, all.1 + found.1));
        return shows_something(all, (10, 1));
    }
    let least = [(500, 30), (500, 10), (500, 30), (50, 10), (100, 20)];
    found.into_iter().zip(least).for_each(|(found, least)| shows_something(found, least));
}

/// On a processor: the few cases of a device accept nothing that drafters of random weights propose.
#[test]
fn no_drafter_model_changes_a_token_of_any_family() {
    let families = crate::families::models();
    // How much is drafted depends on the clock here.
    shows_something(run_over(families, Kind::Model, 60), (300, 10));
    shows_something(run_over(families, Kind::HiddenState, 60), (300, 10));
    shows_something(run_over(families, Kind::Eagle3, 60), (300, 10));
}

/// Proposes the true continuation as one chain.
#[derive(Debug)]
struct Oracle(Vec<u32>);

impl Drafter for Oracle {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let mut node = NodeId::ROOT;
        for token in self.0[budget.history.len()..].iter().take(budget.depth) {
            node = tree.insert(node, *token, 1.0, 0, Source::new(2)).node().expect("room for a chain");
        }
        Ok(())
    }
}

#[test]
fn an_accepted_path_is_cut_anywhere_and_decoding_goes_on_from_there() {
    let set = models()[5].set(Class::native(best_tier()));
    let shape = StepShape { depth: 7, draft_width: 1, verify_width: 8, top_k: 0, draft_temperature: 1.0 };
    let prompt = Dice::new(3).tokens(20, set.vocabulary());
    let mut plain = Decoder::new(session(set, 64, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
    decode(&mut plain, &prompt, Sampling::GREEDY, 40, &[], None);
    let truth = plain.history();
    let oracle = || Some(Box::new(Oracle(truth.to_vec())) as Box<dyn Drafter>);
    for first in 1..=8 {
        for by_end in [false, true] {
            let mut decoder =
                Decoder::new(session(set, 64, 8, 1), vec![BandSteps::unplanned(oracle(), &shape)])
                    .expect("a planned width");
            decoder.start(&prompt, Sampling::GREEDY).expect("the prompt fits");
            let start = prompt.len() + 1;
            let ends = [truth[start + first - 1]];
            let limits =
                if by_end { Limits { tokens: 30, ends: &ends } } else { Limits { tokens: first, ends: &[] } };
            let report = decoder.step(limits, None).expect("the step runs");
            let expected = if by_end { cut(truth, start, 8, &ends) } else { &truth[..start + first] };
            assert_eq!(decoder.history(), expected);
            assert!(report.accepted >= decoder.emitted().len() - 1, "{report:?}");
            assert_eq!(decoder.session().committed(), decoder.history().len() - 1);
            while decoder.history().len() < truth.len() {
                let tokens = truth.len() - decoder.history().len();
                decoder.step(Limits { tokens, ends: &[] }, None).expect("the step runs");
            }
            assert_eq!(decoder.history(), truth, "cut after {first}");
        }
    }
}

/// Proposes tokens that are wrong before `good_from` tokens of history, and the true ones from there on.
#[derive(Debug)]
struct LateLearner {
    truth: Vec<u32>,
    vocabulary: u32,
    good_from: usize,
}

impl Drafter for LateLearner {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let history = budget.history.len();
        let mut node = NodeId::ROOT;
        for token in self.truth[history..].iter().take(budget.depth) {
            let token = if history < self.good_from { (token + 1) % self.vocabulary } else { *token };
            node = tree.insert(node, token, 0.9, 0, Source::new(2)).node().expect("room for a chain");
        }
        budget.session.poison_scratch(history as u64);
        Ok(())
    }
}

#[test]
fn falling_back_and_trying_again_changes_no_token() {
    let set = models()[5].set(*models()[5].classes().last().expect("portable at least"));
    let shape = StepShape { depth: 3, draft_width: 1, verify_width: 4, top_k: 0, draft_temperature: 1.0 };
    let costs = [(1, 100.0), (2, 120.0), (4, 150.0)].map(|(width, step_us)| WidthCost { width, step_us });
    let predicted = Prediction { aal: 2.0, step_us: 150.0, ar_tpot_us: 100.0, ..Prediction::UNPRICED };
    let sampled = Sampling { temperature: 0.8, top_k: 0, top_p: 0.95, min_p: 0.0, seed: 3 };
    for (rule, sampling) in [
        (RowRule::Widest, Sampling::GREEDY),
        (RowRule::BestRate, Sampling::GREEDY),
        (RowRule::Widest, sampled),
    ] {
        let prompt = Dice::new(4).tokens(10, set.vocabulary());
        let (context, tokens) = (256, 200);
        let mut plain =
            Decoder::new(session(set, context, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
        decode(&mut plain, &prompt, sampling, tokens, &[], None);
        let truth = plain.history().to_vec();
        let drafter =
            LateLearner { truth: truth.clone(), vocabulary: set.vocabulary() as u32, good_from: 30 };
        let policy = Policy {
            row_choice: RowChoice { rule, widths: costs.to_vec(), rate: 0.01, calibration: None },
            predicted: predicted.clone(),
            limits: GuardLimits::DEFAULT,
            is_guarded: true,
            is_corrected: false,
        };
        let steps = policy.over(BandSteps::unplanned(Some(Box::new(drafter)), &shape));
        let mut decoder = Decoder::new(session(set, context, 4, 1), vec![steps]).expect("planned widths");
        // Twice: a request does not inherit the fate of the last one.
        for _ in 0..2 {
            decode(&mut decoder, &prompt, sampling, tokens, &[], Some(7));
            assert_eq!(decoder.history(), truth, "{rule:?}, {sampling:?}");
            let counts = decoder.stats().guard;
            assert_eq!((counts.pauses, counts.paused_steps), (1, 16), "{rule:?}, {sampling:?}");
            let accepted = decoder.stats().accepted;
            assert!(accepted > 60, "{accepted} tokens accepted after trying again");
        }
    }
}
