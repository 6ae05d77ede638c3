//! What decoding problems are drawn from: samplings, shapes, templates, policies, heads, depths and limits.

use yggc::{
    plan::{
        Calibration, DepthCost, DepthCosts, DepthNetwork, GuardLimits, Knot, Prediction, RowChoice, RowRule,
        Schedule, WidthCost,
    },
    sample::Sampling,
    speculate::{BandSteps, Decoder, Drafter, StepShape},
    tree::Template,
};

use crate::tiny_model::{Dice, WIDTHS};

pub(crate) fn any_sampling(dice: &mut Dice) -> Sampling {
    if dice.chance(50) {
        return Sampling::GREEDY;
    }
    Sampling {
        temperature: 0.8,
        top_k: *dice.pick(&[0, 1, 5, 40]),
        top_p: *dice.pick(&[1.0, 0.95, 0.5]),
        min_p: *dice.pick(&[0.0, 0.05, 0.3]),
        seed: dice.bits() % 5,
    }
}

/// A sampling that a device can draw by itself: without filters, greedy at times.
pub(crate) fn any_draw(dice: &mut Dice) -> Sampling {
    if dice.chance(30) {
        return Sampling::GREEDY;
    }
    Sampling { temperature: *dice.pick(&[0.6, 1.0, 1.6]), seed: dice.bits(), ..Sampling::GREEDY }
}

pub(crate) fn any_shape(dice: &mut Dice) -> StepShape {
    StepShape {
        depth: dice.within(1, 6),
        draft_width: dice.within(1, 8),
        verify_width: if dice.chance(70) { *dice.pick(&WIDTHS) } else { dice.within(1, 64) },
        top_k: dice.within(1, 9),
        draft_temperature: *dice.pick(&[0.2, 1.0, 2.0]),
    }
}

/// A template of either kind, and a shape that it fits; at times less of it is verified.
pub(crate) fn any_template(dice: &mut Dice) -> (Template, StepShape) {
    let (nodes, depth) = (dice.within(2, 24), dice.within(1, 5));
    let template = if dice.chance(50) {
        Template::kary(dice.within(2, 4), depth, nodes)
    } else {
        let by_rank: Vec<f64> = (0..dice.within(1, 8)).map(|_| (1 + dice.below(90)) as f64 / 100.0).collect();
        Template::best(&by_rank, nodes, depth)
    };
    let levels = template.levels();
    let shape = StepShape {
        depth: levels.len(),
        draft_width: levels.iter().map(|level| level.nodes.len()).max().expect("a level"),
        verify_width: if dice.chance(80) { template.nodes() } else { dice.within(1, 64) },
        top_k: template.candidates() + dice.below(3),
        draft_temperature: *dice.pick(&[0.2, 1.0, 2.0]),
    };
    (template, shape)
}

/// Steps of one shape under a schedule.
pub(crate) fn scheduled(drafter: Box<dyn Drafter>, shape: &StepShape, schedule: Schedule) -> BandSteps {
    let mut steps = BandSteps::unplanned(Some(drafter), shape);
    steps.sub_plan.schedule = schedule;
    steps
}

/// How steps choose their rows, and whether they draft.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) row_choice: RowChoice,
    pub(crate) predicted: Prediction,
    pub(crate) limits: GuardLimits,
    pub(crate) is_guarded: bool,
    pub(crate) is_corrected: bool,
}

impl Policy {
    /// The steps with it, where they begin.
    pub(crate) fn over(self, mut steps: BandSteps) -> BandSteps {
        let Self { row_choice, predicted, limits, is_guarded, is_corrected } = self;
        steps.sub_plan.guard = limits;
        let first = &mut steps.sub_plan.ranges[0];
        (first.row_choice, first.predicted) = (row_choice, predicted);
        BandSteps { is_guarded, is_corrected, ..steps }
    }

    /// The steps with it where there is one, at costs as planned: the clock would tell two decoders apart.
    pub(crate) fn planned_over(policy: &Option<Self>, steps: BandSteps) -> BandSteps {
        match policy.clone() {
            Some(policy) => Policy { is_corrected: false, ..policy }.over(steps),
            None => steps,
        }
    }
}

/// A choice among planned widths up to the shape's, at any cost that the clock may correct, and terms that a request
/// may or may not meet.
pub(crate) fn any_policy(shape: &StepShape, dice: &mut Dice) -> Policy {
    let smaller = WIDTHS.into_iter().filter(|width| *width < shape.verify_width && dice.chance(70));
    let mut widths: Vec<usize> = smaller.collect();
    widths.push(shape.verify_width);
    let widths = widths
        .into_iter()
        .map(|width| WidthCost { width: width as u32, step_us: 50.0 + dice.below(width * 20) as f64 });
    let widths = widths.collect();
    let rule = if dice.chance(80) { RowRule::BestRate } else { RowRule::Widest };
    let calibration = dice.chance(50).then(|| {
        let share = dice.below(100) as f32 / 100.0;
        let knot = |score, probability| Knot { score, probability };
        let by_depth = vec![vec![knot(0.0, share / 2.0), knot(0.3, share)], vec![knot(0.0, share / 2.0)]];
        Calibration { by_depth, fitted_nodes: 1, held_out: None }
    });
    let guarded = dice.chance(60).then(|| {
        let (aal, ar_tpot_us) = (1.0 + dice.below(20) as f64 / 10.0, 50.0 + dice.below(50) as f64);
        let predicted = Prediction { aal, step_us: 100.0, ar_tpot_us, ..Prediction::UNPRICED };
        let may_lose = (1 + dice.below(40)) as f64 / 10.0;
        (predicted, GuardLimits { may_lose, resume: dice.below(2) as f64 })
    });
    let rate = 0.02 / (1 + dice.below(4)) as f64;
    let row_choice = RowChoice { rule, widths, rate, calibration };
    let corrected = dice
        .chance(50)
        .then(|| Prediction { ar_tpot_us: 40.0 + dice.below(40) as f64, ..Prediction::UNPRICED });
    let (is_guarded, is_corrected) = (guarded.is_some(), corrected.is_some());
    let unguarded = (corrected.unwrap_or(Prediction::UNPRICED), GuardLimits::DEFAULT);
    let (predicted, limits) = guarded.unwrap_or(unguarded);
    Policy { row_choice, predicted, limits, is_guarded, is_corrected }
}

/// From one token to all of the vocabulary.
pub(crate) fn any_kept(vocabulary: usize, dice: &mut Dice) -> Vec<u32> {
    let percent = *dice.pick(&[1, 20, 60, 90, 100]);
    let kept: Vec<u32> = (0..vocabulary as u32).filter(|_| dice.chance(percent)).collect();
    if kept.is_empty() { vec![dice.below(vocabulary) as u32] } else { kept }
}

/// A network of any weights over rows of `width` elements, and depths at any cost; no saving exceeds what policies
/// cost.
pub(super) fn any_depths(depth: usize, width: usize, dice: &mut Dice) -> (DepthCosts, DepthNetwork) {
    let mut network = DepthNetwork::blank(2 * width, depth);
    let scale = *dice.pick(&[0.05, 0.3, 1.0]);
    network.parameters.iter_mut().for_each(|w| *w = scale * (dice.below(2001) as f32 / 1000.0 - 1.0));
    let mut costs = vec![DepthCost { depth: 0, step_us: 100.0, saved_us: dice.below(49) as f64 }];
    for depth in 1..=depth {
        let step_us = 100.0 + dice.below(depth * 25) as f64;
        costs.push(DepthCost { depth: depth as u32, step_us, saved_us: dice.below(49) as f64 });
    }
    // The deepest must be among them, any other need not.
    let deepest = depth as u32;
    costs.retain(|cost| cost.depth == 0 || cost.depth == deepest || dice.chance(80));
    let reach = (0..depth).map(|_| dice.below(150) as f64 / 100.0).collect();
    (DepthCosts { reach, costs }, network)
}

/// How many tokens the next step may emit: a few, as far as the context goes; `None` at its end.
pub(crate) fn any_tokens(decoder: &Decoder, dice: &mut Dice) -> Option<usize> {
    let room = decoder.session().context() + 1 - decoder.history().len();
    let tokens = dice.within(1, 9).min(room);
    (tokens > 0).then_some(tokens)
}
