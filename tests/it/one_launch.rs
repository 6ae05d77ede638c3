//! Draft phases in one launch: trees that the device grows are those that the host grows, bit for bit.
//!
//! The judge is a decoder under the plain schedule that takes the same steps on the same device.

use std::sync::Arc;

use yggc::{
    plan::Schedule,
    runtime::{ExecutableSet, SkipSet},
    speculate::{Decoder, LayerSkip, Limits, Shape, SpeculateError},
    tree::{NodeId, TokenTree},
};

use crate::{
    lossless::{any_kept, any_sampling, any_shape},
    tiny_model::{Class, Dice, best_tier, is_cuda, session, some_models},
};

/// What a decoder drafts by.
struct Drafts<'a> {
    set: &'a Arc<ExecutableSet>,
    skipped: Vec<u32>,
    /// Tokens of a trimmed head; none where it is whole.
    kept: Vec<u32>,
    shape: Shape,
    context: usize,
}

impl Drafts<'_> {
    fn decoder(&self, schedule: Schedule) -> Result<Decoder, SpeculateError> {
        let Self { set, skipped, kept, shape, context } = self;
        let session = session(set, *context, shape.tree_nodes(), 1);
        let skip = SkipSet::new(set.groups(), skipped).expect("groups of the model");
        let mut drafter = LayerSkip::new(&session, skip, shape)?;
        if !kept.is_empty() {
            drafter = drafter.with_head(set.head(kept).expect("it was made"));
        }
        Decoder::new(session, Some(Box::new(drafter)), *shape)?.with_schedule(schedule)
    }
}

/// Everything about a tree, values to the last bit.
fn described(tree: &TokenTree) -> Vec<(u32, Option<NodeId>, u32, u16)> {
    tree.nodes().map(|n| (tree.token(n), tree.parent(n), tree.value(n).to_bits(), tree.rank(n))).collect()
}

#[test]
fn the_device_grows_the_trees_that_the_host_grows() {
    if !is_cuda() {
        return;
    }
    let mut drafted = 0;
    let mut short_trees = 0;
    for case in 0..14 {
        let mut dice = Dice::new(7_000 + case);
        let models: Vec<_> = some_models().collect();
        let model = *dice.pick(&models);
        let whole = model.set(Class::native(best_tier()));
        let vocabulary = whole.vocabulary();
        let kept = if dice.chance(40) { any_kept(vocabulary, &mut dice) } else { Vec::new() };
        let trimmed = (!kept.is_empty()).then(|| {
            let heads = [kept.clone()];
            Arc::new(whole.with_heads(model.model.weights.as_ref(), &heads).expect("tokens in order"))
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
        let sampling = any_sampling(&mut dice);
        let mut by_host = drafts.decoder(Schedule::Plain).expect("a planned width");
        let mut by_device = drafts.decoder(Schedule::OneLaunch).expect("a device that grows trees");
        for decoder in [&mut by_host, &mut by_device] {
            decoder.start(&prompt, sampling).expect("the prompt fits");
        }
        let what = format!("case {case}, {}, {:?}", model.name, drafts.shape);
        for step in 0..6 {
            let room = by_host.session().context() + 1 - by_host.history().len();
            let tokens = dice.within(1, 9).min(room);
            if tokens == 0 {
                break;
            }
            let limits = Limits { tokens, ends: &[] };
            let report = by_host.step(limits, None).expect("the step runs");
            assert_eq!(by_device.step(limits, None).expect("the step runs"), report, "{what}, step {step}");
            assert_eq!(described(by_device.tree()), described(by_host.tree()), "{what}, step {step}");
            assert_eq!(by_device.history(), by_host.history(), "{what}, step {step}");
            drafted += by_host.tree().len() - 1;
            let whole = drafts.shape.tree_nodes();
            short_trees += usize::from((2..whole).contains(&by_host.tree().len()));
        }
    }
    assert!(drafted > 300 && short_trees > 3, "{drafted} nodes, {short_trees} short trees: too few to show");
}

#[test]
fn devices_that_run_forwards_only_refuse_it() {
    if is_cuda() {
        return;
    }
    let model = some_models().next().expect("a model");
    let shape = Shape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
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
