//! Steps that predict their depth, against trees grown afresh and eq. 3 written out.
use proptest::prelude::*;
use ygg_profiler::{DepthNetwork, DepthPredictor, DepthReport, Profile, StepTrace, Trace};

use super::{
    search::{DEPTH, DRAFT_WIDTHS, VERIFY_WIDTHS, cells, decided_us, plan, requests},
    synthetic::{
        NaiveTree, Oracle, in_full, naive_tree, name, profile, record, recorded_candidates, samples, shown,
    },
};
use crate::planner::{NOISE_MARGIN, SearchError, recorded_outcome};
use crate::{
    plan::{Calibration, DepthChoice, DepthRule, Plan, RowRule, decode, encode},
    planner::report::json,
};

const PREDICT_US: f64 = 1.5;

fn predictor() -> DepthPredictor {
    let report = DepthReport {
        seed: 1,
        steps: 30,
        epochs: vec![3, 4],
        log_loss: 0.4,
        base_log_loss: 0.5,
        calibration_error: 0.02,
        base_calibration_error: 0.03,
    };
    DepthPredictor { drafter: name("layer_skip"), network: DepthNetwork::blank(6, DEPTH as usize), report }
}

/// Recorded steps that carry the predictions that `predicted` makes.
fn with_predictions(mut trace: Trace, mut predicted: impl FnMut(&StepTrace, u32) -> Vec<f32>) -> Trace {
    let outcomes: Vec<u32> = trace.steps().map(|step| recorded_outcome(step, trace.depth).0).collect();
    let steps = trace.prompts.iter_mut().flat_map(|prompt| &mut prompt.steps);
    for (step, accepted) in steps.zip(outcomes) {
        step.predicted = predicted(step, accepted);
    }
    trace
}

/// Numbers in no relation to anything, in eighths and falling.
fn noise(seed: u64) -> impl FnMut(&StepTrace, u32) -> Vec<f32> {
    let mut state = seed | 1;
    move |_, _| {
        let mut shares: Vec<f32> = (0..DEPTH)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 61) as f32 / 8.0
            })
            .collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        shares
    }
}

fn profile_of(trace: Trace, verify: &[f64], draft: &[f64]) -> Profile {
    let mut cells = cells(verify, draft);
    cells.push(samples("host:predict", 1, PREDICT_US));
    Profile { predictors: vec![predictor()], ..profile(cells, vec![trace], requests()) }
}

/// One drafter at one draft width: every step's tree at every depth, with the values that rows are chosen by.
struct Judge<'a> {
    rule: RowRule,
    verify: &'a [f64],
    draft_us: f64,
    growth_us: f64,
    width: u32,
    steps: Vec<(&'a StepTrace, Vec<NaiveTree>)>,
}

impl Judge<'_> {
    /// A step of `depth` growths that verifies the `place`-th width, without telling.
    fn cost(&self, depth: u32, place: usize) -> f64 {
        let decided = match self.rule {
            RowRule::Widest => 0.0,
            RowRule::BestRate => decided_us(depth * self.width + 1),
        };
        let grown = f64::from(depth - 1) * self.growth_us + 0.5 * f64::from(depth);
        self.draft_us + grown + self.verify[place] + decided
    }

    /// The place of the width that a step runs at, of those up to `widest`.
    fn place(&self, tree: &NaiveTree, depth: u32, widest: usize, worth: f64, is_told: bool) -> usize {
        let holds = (0..=widest).find(|i| VERIFY_WIDTHS[*i] as usize >= tree.nodes.len()).unwrap_or(widest);
        match self.rule {
            // Steps of fixed depth have one width; those with predicted depths run at the smallest that holds their
            // tree.
            RowRule::Widest => {
                if is_told {
                    holds
                } else {
                    widest
                }
            }
            RowRule::BestRate => {
                let gain = |i: &usize| tree.expected(VERIFY_WIDTHS[*i]) - worth * self.cost(depth, *i);
                (0..=holds).rev().max_by(|a, b| gain(a).total_cmp(&gain(b))).unwrap()
            }
        }
    }

    /// What the time of steps of fixed depth is worth to the choice of their rows, by two rounds.
    fn worth(&self, depth: u32, widest: usize) -> f64 {
        (0..2).fold(1.0 / self.verify[0], |worth, _round| {
            let (mut tokens, mut us) = (0, 0.0);
            for (step, trees) in &self.steps {
                let tree = &trees[depth as usize - 1];
                let place = self.place(tree, depth, widest, worth, false);
                tokens += 1 + tree.accepted(&step.verified, VERIFY_WIDTHS[place]);
                us += self.cost(depth, place);
            }
            tokens as f64 / us
        })
    }

    /// Speed-up of steps with predicted depths, growths up to `depth` and rows up to the `widest`-th width.
    fn speedup(&self, depth: u32, widest: usize) -> f64 {
        let count = self.steps.len() as f64;
        let places = |d: u32, widest: usize| -> Vec<usize> {
            let worth = self.worth(d, widest);
            let place = |(_, trees): &(_, Vec<NaiveTree>)| {
                self.place(&trees[d as usize - 1], d, widest, worth, false)
            };
            self.steps.iter().map(place).collect()
        };
        // What steps of each depth would cost in the mean.
        let mut costs = vec![(0, self.verify[0] + PREDICT_US)];
        for d in 1..=depth {
            let fits = |i: &usize| VERIFY_WIDTHS[*i] >= 2 && VERIFY_WIDTHS[*i] <= d * self.width + 1;
            let Some(widest) = (0..=widest).rev().find(fits) else { continue };
            let sum: f64 = places(d, widest).into_iter().map(|place| self.cost(d, place)).sum();
            costs.push((d, sum / count + PREDICT_US));
        }
        // The share kept of what was predicted.
        let fixed = places(depth, widest);
        let reach: Vec<f64> = (1..=depth as usize)
            .map(|d| {
                let kept = self.steps.iter().zip(&fixed).filter(|((step, trees), place)| {
                    let rows = VERIFY_WIDTHS[**place];
                    trees[depth as usize - 1].accepted(&step.verified, rows) >= d
                });
                let predicted: f64 =
                    self.steps.iter().map(|(step, _)| f64::from(step.predicted[d - 1])).sum();
                if predicted > 0.0 { kept.count() as f64 / predicted } else { 0.0 }
            })
            .collect();
        let (mut tokens, mut us) = (0, 0.0);
        for (step, trees) in &self.steps {
            let rate = |(d, us): &(u32, f64)| {
                let predicted =
                    (0..*d as usize).map(|i| f64::from(step.predicted[i]) * reach[i]).sum::<f64>();
                (1.0 + predicted) / us
            };
            let (d, _) = *costs.iter().rev().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
            tokens += 1;
            if d == 0 {
                us += self.verify[0] + PREDICT_US;
                continue;
            }
            let tree = &trees[d as usize - 1];
            let place = self.place(tree, d, widest, self.worth(depth, widest), true);
            tokens += tree.accepted(&step.verified, VERIFY_WIDTHS[place]);
            us += self.cost(d, place) + PREDICT_US;
        }
        tokens as f64 * self.verify[0] / us
    }
}

/// The best speed-up of steps with predicted depths over all shapes and rules of rows.
fn brute_force(trace: &Trace, verify: &[f64], draft: &[f64]) -> f64 {
    let mut best: f64 = 0.0;
    for (draft_width, growth_us) in DRAFT_WIDTHS.iter().zip(draft) {
        let grow = |step: &StepTrace, depth| {
            let recorded = recorded_candidates(step);
            naive_tree(|path| recorded.get(path).cloned(), step.tokens[0], *draft_width, depth)
        };
        let judged: Vec<_> =
            trace.steps().flat_map(|step| grow(step, DEPTH).judged(&step.verified)).collect();
        let calibration = Calibration::fit(&judged).unwrap();
        for rule in [RowRule::Widest, RowRule::BestRate] {
            let tree = |step, depth| match rule {
                RowRule::Widest => grow(step, depth),
                RowRule::BestRate => grow(step, depth).calibrated(&calibration),
            };
            let steps =
                trace.steps().map(|step| (step, (1..=DEPTH).map(|depth| tree(step, depth)).collect()));
            let judge = Judge {
                rule,
                verify,
                draft_us: draft[0],
                growth_us: *growth_us,
                width: *draft_width,
                steps: steps.collect(),
            };
            for depth in 1..=DEPTH {
                for (widest, rows) in VERIFY_WIDTHS.iter().enumerate() {
                    if *rows >= 2 && *rows <= depth * draft_width + 1 {
                        best = best.max(judge.speedup(depth, widest));
                    }
                }
            }
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn told_steps_are_priced_as_the_brute_force_does(
        seed in any::<u64>(),
        skill in 20u64..=100,
        verify in prop::collection::vec(50.0f64..150.0, 5),
        draft in prop::collection::vec(2.0f64..60.0, 3),
    ) {
        let trace = with_predictions(record(&Oracle { seed, skill }, 10, 4, DEPTH, 5), noise(seed));
        let expected = brute_force(&trace, &verify, &draft);
        // Steps with predicted depths begin with their head.
        let plan = plan(&profile_of(trace, &verify, &draft), "schedule=plain").unwrap();
        let [predictor] = &plan.predictors[..] else { panic!("one predictor") };
        let found = predictor.told_speedup.unwrap();
        prop_assert!((found - expected).abs() <= 1e-9 * expected, "{} instead of {}", found, expected);
        let best = plan.bands[0].for_drafter("layer_skip").unwrap();
        let goes_by_it = best.first().depth_choice.rule() == DepthRule::Predicted;
        // What is hardly faster than plain decoding, or than steps of one depth, is left to those.
        let fixed = predictor.fixed_speedup.unwrap();
        let is_worth_it = found >= (1.0 + NOISE_MARGIN) * fixed.max(1.0);
        prop_assert_eq!(best.first().predicted.speedup, if is_worth_it { found } else { fixed });
        prop_assert_eq!(goes_by_it, is_worth_it);
        prop_assert_eq!(predictor.network.is_some(), goes_by_it);
        prop_assert_eq!(plan.network_of(best).is_some(), goes_by_it);
    }
}

const VERIFY: [f64; 5] = [90.0, 95.0, 100.0, 110.0, 130.0];
const DRAFT: [f64; 3] = [30.0, 32.0, 40.0];

/// What will be accepted, known in advance.
fn foresight(_: &StepTrace, accepted: u32) -> Vec<f32> {
    (1..=DEPTH).map(|depth| f32::from(u8::from(depth <= accepted))).collect()
}

fn foreseen(fix: &str) -> Result<Plan, SearchError> {
    let trace = with_predictions(record(&Oracle { seed: 4, skill: 70 }, 60, 4, DEPTH, 5), foresight);
    plan(&profile_of(trace, &VERIFY, &DRAFT), fix)
}

#[test]
fn foresight_pays_and_is_planned() {
    let plan = foreseen("drafter=layer_skip").unwrap();
    let predictor = &plan.predictors[0];
    let (fixed, predicted) = (predictor.fixed_speedup.unwrap(), predictor.told_speedup.unwrap());
    assert!(predicted > 1.05 * fixed, "{predicted} and {fixed}");
    let best = plan.bands[0].chosen();
    let DepthChoice::Predicted(depths) = &best.first().depth_choice else {
        panic!("{:?}", best.first().depth_choice)
    };
    assert_eq!((depths.costs[0].depth, depths.reach.len()), (0, best.shape().depth as usize));
    assert!(
        best.first()
            .predicted
            .stages
            .iter()
            .any(|s| s.stage.to_string() == "host:predict" && s.us == PREDICT_US)
    );
    // The widths of shallower trees are planned too.
    assert!(plan.planned.verify.contains(&2) && plan.planned.verify.contains(&best.shape().verify_width));
    assert_eq!(decode(&encode(&plan).unwrap()).unwrap(), plan);
    let (screen, all) = (shown(&plan), in_full(&plan));
    let depth = format!("Dd <={}", best.shape().depth);
    assert!(screen.contains(&depth) && screen.contains("predicted depth"), "{screen}");
    assert!(all.contains("0.400 (0.500)"), "{all}");
    let json = json(&plan);
    assert_eq!(json["plan"]["predictors"][0]["network"]["inputs"], 6);
}

#[test]
fn a_fix_says_whether_steps_are_told() {
    let on = foreseen("drafter=layer_skip,predictor=on").unwrap();
    assert_eq!(on.bands[0].chosen().first().depth_choice.rule(), DepthRule::Predicted);
    assert!(on.predictors[0].fixed_speedup.is_none() && on.predictors[0].told_speedup.is_some());
    let off = foreseen("drafter=layer_skip,predictor=off").unwrap();
    assert_eq!(off.bands[0].chosen().first().depth_choice, DepthChoice::Fixed);
    assert!(off.predictors[0].network.is_none() && off.predictors[0].told_speedup.is_none());
    // Drafters that nothing was trained for never predict.
    assert!(matches!(foreseen("drafter=lookup,predictor=on"), Err(SearchError::FixImpossible { .. })));
    let anything = foreseen("predictor=on").unwrap();
    assert_eq!(anything.bands[0].chosen().name, name("layer_skip"));
    assert!(anything.bands[0].for_drafter("lookup").is_none());
}

#[test]
fn one_step_that_was_told_nothing_leaves_depths_fixed() {
    let mut trace = with_predictions(record(&Oracle { seed: 4, skill: 70 }, 60, 4, DEPTH, 5), foresight);
    trace.prompts[0].steps[7].predicted.clear();
    let plan = plan(&profile_of(trace, &VERIFY, &DRAFT), "").unwrap();
    assert_eq!((plan.predictors[0].told_speedup, &plan.predictors[0].network), (None, &None));
    assert!(plan.bands[0].by_drafter.iter().all(|p| p.first().depth_choice == DepthChoice::Fixed));
}

#[test]
fn without_a_predictor_what_steps_were_told_is_of_no_account() {
    let trace = with_predictions(record(&Oracle { seed: 4, skill: 70 }, 60, 4, DEPTH, 5), foresight);
    let profile = Profile { predictors: Vec::new(), ..profile_of(trace, &VERIFY, &DRAFT) };
    let plan = plan(&profile, "").unwrap();
    assert!(
        plan.predictors.is_empty()
            && plan.bands[0].by_drafter.iter().all(|p| p.first().depth_choice == DepthChoice::Fixed)
    );
}

/// What the error must mention, and the change that causes it.
type Break<'a> = (&'a str, &'a dyn Fn(&mut Plan));

#[test]
fn plans_that_contradict_their_predictors_are_refused() {
    let good = foreseen("drafter=layer_skip").unwrap();
    let place = good.bands[0].chosen_index as usize;
    let depths = |plan: &mut Plan| match &mut plan.bands[0].by_drafter[place].ranges[0].depth_choice {
        DepthChoice::Predicted(depths) => std::mem::replace(&mut depths.costs[0].saved_us, 1e9),
        DepthChoice::Fixed => panic!("the plan predicts depths"),
    };
    let breaks: [Break<'_>; 6] = [
        ("choice of depth", &|p| p.predictors[0].network = None),
        ("choice of depth", &|p| p.predictors.clear()),
        ("choice of depth", &|p| {
            depths(p);
        }),
        ("predictor", &|p| p.bands[0].by_drafter[place].ranges[0].depth_choice = DepthChoice::Fixed),
        ("predictors", &|p| p.predictors.push(p.predictors[0].clone())),
        ("weights", &|p| p.predictors[0].network.as_mut().unwrap().parameters[3] = f32::NAN),
    ];
    for (what, change) in breaks {
        let mut bad = good.clone();
        change(&mut bad);
        let error = bad.validate().unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn outcomes_are_told_as_far_as_they_are_known() {
    let step = |verified: &[u32]| StepTrace {
        context: 5,
        parents: vec![0, 0, 1, 2],
        tokens: vec![10, 11, 12, 13],
        expanded: Vec::new(),
        verified: verified.to_vec(),
        predicted: Vec::new(),
    };
    for (verified, outcome) in
        [(&[9][..], (0, 3)), (&[11, 12, 9], (2, 3)), (&[11, 12, 13, 9], (3, 3)), (&[11, 12], (2, 2))]
    {
        assert_eq!(recorded_outcome(&step(verified), 3), outcome, "{verified:?}");
    }
}
