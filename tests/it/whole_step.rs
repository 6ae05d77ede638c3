//! Steps without the host: what the device drafts, prunes, verifies and moves is what the host does, bit for bit.
//!
//! The judges are a decoder under the plain schedule that takes the same steps on the same device, and one without a
//! drafter.

use std::sync::Arc;

use ygg_kernels::WeightFormat;
use yggc::{
    plan::{RowRule, Schedule},
    runtime::{ExecutableSet, SkipSet},
    speculate::{BandSteps, Decoder, Drafter, Limits, SelfDrafter, SpeculateError, StepShape},
};

use crate::{
    draft_models::{DRAFT, Eagle3Kind, eagle3_pair, hidden_pair, pair_drafter, pair_session, plain_pair},
    lossless::{Policy, any_draw, any_policy, any_sampling, any_shape, any_tokens, scheduled},
    one_launch::{described, is_drawn},
    tiny_model::{Class, Dice, best_tier, bits, is_cuda, models, part, session, some_models},
};

/// A decoder of a set that drafts by its drafter model, or by leaving out a sub-layer where it has none.
fn decoder(
    set: &Arc<ExecutableSet>,
    schedule: Schedule,
    (shape, policy): (StepShape, &Option<Policy>),
    context: usize,
) -> Result<Decoder, SpeculateError> {
    let (session, drafter): (_, Box<dyn Drafter>) = if set.draft(DRAFT).is_ok() {
        let session = pair_session(set, context, shape.tree_nodes(), 1);
        let drafter = Box::new(pair_drafter(&session, &shape));
        (session, drafter)
    } else {
        let session = session(set, context, shape.tree_nodes(), 1);
        let skip = SkipSet::new(set.groups(), &[set.groups() - 1]).expect("a group of the model");
        let drafter = Box::new(SelfDrafter::layer_skip(&session, skip, &shape)?);
        (session, drafter)
    };
    let steps = Policy::planned_over(policy, scheduled(drafter, &shape, schedule));
    Decoder::new(session, vec![steps])
}

/// A policy that chooses no rows.
fn policy_of_all_rows(shape: &StepShape, dice: &mut Dice) -> Policy {
    let mut policy = any_policy(shape, dice);
    policy.row_choice.rule = RowRule::Widest;
    policy
}

#[test]
fn steps_without_the_host_are_the_hosts() {
    if !is_cuda() {
        return;
    }
    let (mut walked, mut drawn, mut pruned, mut accepted, mut by_host_alone) = ([0; 4], 0, 0, 0, 0);
    // Every kind of drafter at several depths.
    let (before, cases) = (3 * part(3), 4 * part(3));
    for case in 0..cases {
        let mut dice = Dice::new(9_300 + case);
        let all: Vec<_> = some_models().collect();
        let model = *dice.pick(&all);
        let class = Class::native(best_tier());
        let (kind, round) = if case < before { (case % 3, case / 3) } else { (3, case - before) };
        let (kind, round) = (kind as usize, round as usize);
        let set = match kind {
            0 => Arc::clone(model.set(class)),
            1 => hidden_pair(model, class, if case == 4 { 40 } else { 256 }),
            3 => eagle3_pair(model, class, Eagle3Kind::ALL[round], &[]),
            _ => {
                let larger = models().iter().find(|m| m.format == WeightFormat::Q8_0).expect("one of each");
                plain_pair(model, if dice.chance(40) { larger } else { model }, class)
            }
        };
        let depth = [3, 4, 5][round];
        // Softer than it is, so that no two of the host's values are equal where the device's logarithms are not.
        let shape = StepShape { depth, draft_temperature: *dice.pick(&[1.0, 2.0]), ..any_shape(&mut dice) };
        let most = shape.tree_nodes();
        let shape =
            StepShape { verify_width: if dice.chance(80) { dice.within(1, most) } else { 64 }, ..shape };
        let len = dice.within(1, 16);
        let context = if dice.chance(30) { len + dice.within(2, 20) } else { 64 };
        let policy = dice.chance(40).then(|| policy_of_all_rows(&shape, &mut dice));
        let open =
            |schedule| decoder(&set, schedule, (shape, &policy), context).expect("a device that does it all");
        let (mut by_host, mut by_device) = (open(Schedule::Plain), open(Schedule::WholeStep));
        let mut plain =
            Decoder::new(session(&set, context, 1, 1), vec![BandSteps::plain()]).expect("width 1");
        let what = format!("case {case}, {}, drafter {kind}, {shape:?}", model.name);
        // Twice: a request knows nothing of the last one.
        for request in 0..2 {
            let prompt = dice.tokens(len, set.vocabulary());
            let sampling = if dice.chance(80) { any_draw(&mut dice) } else { any_sampling(&mut dice) };
            for decoder in [&mut by_host, &mut by_device, &mut plain] {
                decoder.start(&prompt, sampling).expect("the prompt fits");
            }
            for step in 0..5 {
                let Some(tokens) = any_tokens(&by_host, &mut dice) else { break };
                let ends = if dice.chance(20) { vec![*dice.pick(by_host.history())] } else { Vec::new() };
                let limits = Limits { tokens, ends: &ends };
                let what = format!("{what}, request {request}, step {step}");
                by_device.poison_scratch(dice.bits());
                let report = by_host.step(limits, None).expect("the step runs");
                assert_eq!(by_device.step(limits, None).expect("the step runs"), report, "{what}");
                assert_eq!(described(by_device.tree()), described(by_host.tree()), "{what}");
                assert_eq!(by_device.history(), by_host.history(), "{what}");
                let committed = by_host.session().committed();
                let hidden = |decoder: &Decoder| decoder.session().committed_hidden(committed - 1).map(bits);
                assert_eq!(hidden(&by_device), hidden(&by_host), "{what}");
                pruned += usize::from(report.rows > 1 && report.rows < by_host.tree().len());
                accepted += report.accepted;
            }
            while plain.history().len() < by_device.history().len() {
                plain.step(Limits { tokens: 1, ends: &[] }, None).expect("the step runs");
            }
            assert_eq!(by_device.history(), plain.history(), "{what}, request {request}");
            let [host, device] = [by_host.stats(), by_device.stats()];
            assert_eq!((device.drafted, device.accepted), (host.drafted, host.accepted), "{what}");
            assert_eq!(device.counts_by_depth(), host.counts_by_depth(), "{what}");
            assert_eq!(device.guard, host.guard, "{what}");
            let by_device_alone = sampling.is_greedy() || is_drawn(&sampling);
            assert_eq!(device.walked_by_device, if by_device_alone { device.steps } else { 0 }, "{what}");
            walked[kind] += device.walked_by_device;
            drawn += u64::from(is_drawn(&sampling)) * device.steps;
            by_host_alone += u64::from(!by_device_alone) * device.steps;
        }
    }
    assert!(
        walked.iter().all(|steps| *steps >= cases)
            && pruned as u64 > 2 * cases
            && accepted as u64 > 3 * cases / 2
            && drawn > cases
            && by_host_alone > 4,
        "{walked:?} steps, {drawn} drawn, {pruned} pruned, {accepted} accepted, {by_host_alone} by the host: too few to show anything"
    );
}

#[test]
fn what_a_device_cannot_do_alone_is_refused() {
    let model = some_models().next().expect("a model");
    let set = model.set(Class::native(best_tier()));
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
    let opened = decoder(set, Schedule::WholeStep, (shape, &None), 64);
    if !is_cuda() {
        let error = opened.expect_err("a processor runs forwards only").to_string();
        assert!(
            error.contains("schedule whole_step: expected a device that grows trees by itself"),
            "{error}"
        );
        return;
    }
    let mut policy = policy_of_all_rows(&shape, &mut Dice::new(1));
    policy.row_choice.rule = RowRule::BestRate;
    opened.expect("a device");
    let refused = decoder(set, Schedule::WholeStep, (shape, &Some(policy)), 64);
    let error = refused.expect_err("rows are chosen").to_string();
    assert!(error.contains("choice of rows: expected all, where the device prunes"), "{error}");
}
