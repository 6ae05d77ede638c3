//! Draft phases in one launch: trees that the device grows are those that the host grows, bit for bit.
//!
//! The judge is a decoder under the plain schedule that takes the same steps on the same device.

use std::sync::Arc;

use ygg_kernels::WeightFormat;
use yggc::{
    plan::Schedule,
    runtime::{ExecutableSet, SkipSet},
    sample::Sampling,
    speculate::{Decoder, Limits, SelfDrafter, SpeculateError, StepShape},
    tree::{NodeId, TokenTree},
};

use crate::{
    draft_models::{Eagle3Kind, eagle3_pair, hidden_pair, pair_drafter, pair_session, plain_pair},
    lossless::{any_draw, any_kept, any_sampling, any_shape, any_tokens, scheduled},
    tiny_model::{Class, Dice, best_tier, bits, everything, is_cuda, models, part, session, some_models},
};

/// What a decoder drafts by.
struct Drafts<'a> {
    set: &'a Arc<ExecutableSet>,
    skipped: Vec<u32>,
    /// Tokens of a trimmed head; none where it is whole.
    kept: Vec<u32>,
    shape: StepShape,
    context: usize,
}

impl Drafts<'_> {
    fn decoder(&self, schedule: Schedule) -> Result<Decoder, SpeculateError> {
        let Self { set, skipped, kept, shape, context } = self;
        let session = session(set, *context, shape.tree_nodes(), 1);
        let skip = SkipSet::new(set.groups(), skipped).expect("groups of the model");
        let mut drafter = SelfDrafter::layer_skip(&session, skip, shape)?;
        if !kept.is_empty() {
            drafter = drafter.with_variant(set.head(kept).expect("it was made"));
        }
        Decoder::new(session, vec![scheduled(Box::new(drafter), shape, schedule)])
    }
}

/// Everything about a tree, values to the last bit.
pub(crate) fn described(tree: &TokenTree) -> Vec<(u32, Option<NodeId>, u32, u16)> {
    tree.nodes().map(|n| (tree.token(n), tree.parent(n), tree.value(n).to_bits(), tree.rank(n))).collect()
}

/// Whether a device ranks and draws by the noise of a request.
pub(crate) fn is_drawn(sampling: &Sampling) -> bool {
    let Sampling { temperature, top_k, top_p, min_p, seed: _ } = *sampling;
    temperature > 0.0 && top_k == 0 && top_p == 1.0 && min_p == 0.0
}

#[test]
fn the_device_grows_the_trees_that_the_host_grows() {
    if !is_cuda() {
        return;
    }
    let mut drafted = [0; 2];
    let mut short_trees = 0;
    for case in 0..part(14) {
        let mut dice = Dice::new(7_000 + case);
        let models: Vec<_> = some_models().collect();
        let model = *dice.pick(&models);
        let whole = model.set(Class::native(best_tier()));
        let vocabulary = whole.vocabulary();
        let kept = if dice.chance(40) { any_kept(vocabulary, &mut dice) } else { Vec::new() };
        let trimmed = (!kept.is_empty()).then(|| {
            let heads = [kept.clone()];
            Arc::new(
                whole
                    .with_heads(model.model.weights.as_ref(), &heads, |stored| stored)
                    .expect("tokens in order"),
            )
        });
        let percent = *dice.pick(&[0, 30, 60]);
        let len = dice.within(1, 16);
        let drafts = Drafts {
            set: trimmed.as_ref().unwrap_or(whole),
            skipped: (0..whole.groups()).filter(|_| dice.chance(percent)).collect(),
            kept,
            shape: any_shape(&mut dice),
            context: if dice.chance(40) { len + dice.within(2, 14) } else { 64 },
        };
        let prompt = dice.tokens(len, vocabulary);
        let sampling = if dice.chance(60) { any_draw(&mut dice) } else { any_sampling(&mut dice) };
        let mut by_host = drafts.decoder(Schedule::Plain).expect("a planned width");
        let mut by_device = drafts.decoder(Schedule::OneLaunch).expect("a device that grows trees");
        for decoder in [&mut by_host, &mut by_device] {
            decoder.start(&prompt, sampling).expect("the prompt fits");
        }
        let what = format!("case {case}, {}, {:?}", model.name, drafts.shape);
        for step in 0..6 {
            let Some(tokens) = any_tokens(&by_host, &mut dice) else { break };
            let limits = Limits { tokens, ends: &[] };
            let report = by_host.step(limits, None).expect("the step runs");
            assert_eq!(by_device.step(limits, None).expect("the step runs"), report, "{what}, step {step}");
            assert_eq!(described(by_device.tree()), described(by_host.tree()), "{what}, step {step}");
            assert_eq!(by_device.history(), by_host.history(), "{what}, step {step}");
            drafted[usize::from(is_drawn(&sampling))] += by_host.tree().len() - 1;
            let whole = drafts.shape.tree_nodes();
            short_trees += usize::from((2..whole).contains(&by_host.tree().len()));
        }
    }
    let (nodes, short) = if everything() { (150, 3) } else { (60, 1) };
    assert!(
        drafted.iter().all(|n| *n > nodes) && short_trees > short,
        "{drafted:?} nodes, {short_trees} short trees: too few to show"
    );
}

/// Nodes whose parents were not forwarded last, but earlier, when they joined.
fn of_earlier_growths(tree: &TokenTree, width: usize) -> usize {
    let growth = |node: NodeId| node.index().div_ceil(width);
    let parents = tree.nodes().filter_map(|node| Some((node, tree.parent(node)?)));
    parents.filter(|(node, parent)| growth(*parent) + 1 < growth(*node)).count()
}

/// Drafter models with a cache of their own: small ones, some of a larger vocabulary, and ones that read the verifier's
/// hidden rows.
#[test]
fn the_device_grows_the_trees_of_drafter_models_too() {
    if !is_cuda() {
        return;
    }
    let (mut drafted, mut of_elder, mut steps, mut walked) = ([0; 2], [0; 2], 0, 0);
    for case in 0..8 {
        let mut dice = Dice::new(7_100 + case);
        let all: Vec<_> = some_models().collect();
        let model = *dice.pick(&all);
        let class = Class::native(best_tier());
        let is_hidden = case % 2 == 0;
        let pair = if case % 4 == 2 {
            eagle3_pair(model, class, Eagle3Kind::ALL[case as usize / 4], &[])
        } else if is_hidden {
            hidden_pair(model, class, if case == 4 { 40 } else { 256 })
        } else {
            // The largest vocabulary is Q8_0's.
            let larger = models().iter().find(|m| m.format == WeightFormat::Q8_0).expect("one of each");
            let own = *dice.pick(&all);
            plain_pair(model, if dice.chance(60) { larger } else { own }, class)
        };
        let shape = StepShape { depth: [4, 3, 5, 2][case as usize / 2], ..any_shape(&mut dice) };
        let schedule = *dice.pick(&[Schedule::OneLaunch, Schedule::TwoLaunches]);
        let len = dice.within(1, 16);
        let context = if dice.chance(30) { len + dice.within(2, 20) } else { 64 };
        let open = |schedule| {
            let session = pair_session(&pair, context, shape.tree_nodes(), 1);
            let drafter = Box::new(pair_drafter(&session, &shape));
            Decoder::new(session, vec![scheduled(drafter, &shape, schedule)])
        };
        let mut by_host = open(Schedule::Plain).expect("a planned width");
        let mut by_device = open(schedule).expect("a device that grows trees");
        let what = format!("case {case}, {}, {schedule}, hidden {is_hidden}, {shape:?}", model.name);
        // Twice: a request knows nothing of the last one.
        for request in 0..2 {
            let prompt = dice.tokens(len, pair.vocabulary());
            let sampling = if dice.chance(80) { any_draw(&mut dice) } else { any_sampling(&mut dice) };
            for decoder in [&mut by_host, &mut by_device] {
                decoder.start(&prompt, sampling).expect("the prompt fits");
            }
            for step in 0..5 {
                let Some(tokens) = any_tokens(&by_host, &mut dice) else { break };
                let limits = Limits { tokens, ends: &[] };
                let what = format!("{what}, request {request}, step {step}");
                by_device.poison_scratch(dice.bits());
                let report = by_host.step(limits, None).expect("the step runs");
                assert_eq!(by_device.step(limits, None).expect("the step runs"), report, "{what}");
                assert_eq!(described(by_device.tree()), described(by_host.tree()), "{what}");
                assert_eq!(by_device.history(), by_host.history(), "{what}");
                drafted[usize::from(is_hidden)] += by_host.tree().len() - 1;
                of_elder[usize::from(is_hidden)] += of_earlier_growths(by_host.tree(), shape.draft_width);
                steps += 1;
                let committed = by_host.session().committed();
                let hidden = |decoder: &Decoder| decoder.session().committed_hidden(committed - 1).map(bits);
                assert_eq!(hidden(&by_device), hidden(&by_host), "{what}");
                assert_eq!(hidden(&by_device).is_some(), is_hidden, "{what}");
            }
            walked += by_device.stats().walked_by_device;
        }
    }
    assert!(
        drafted.iter().all(|n| *n > 100) && of_elder.iter().all(|n| *n > 30) && (20..steps).contains(&walked),
        "{drafted:?} nodes, {of_elder:?} of elder parents, {walked} of {steps} steps walked: too few to show anything"
    );
}

#[test]
fn devices_that_run_forwards_only_refuse_it() {
    if is_cuda() {
        return;
    }
    let model = some_models().next().expect("a model");
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
    let drafts = Drafts {
        set: model.set(Class::native(best_tier())),
        skipped: vec![2],
        kept: Vec::new(),
        shape,
        context: 64,
    };
    let error = drafts.decoder(Schedule::OneLaunch).expect_err("a processor runs forwards only").to_string();
    assert!(error.contains("schedule one_launch: expected a device that grows trees by itself"), "{error}");
}
