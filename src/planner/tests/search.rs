//! The search against brute force, its refusals, and its preference for plain decoding.
use std::num::NonZero;

use proptest::prelude::*;
use ygg_profiler::{CellSamples, Profile, Stage, TokenTrace, Trace};

use super::synthetic::{
    Echo, MADE_AT, NaiveTree, Oracle, fingerprints, in_full, naive_tree, name, profile, record,
    recorded_candidates, samples, shown, surely,
};
use crate::{
    plan::{
        Calibration, DrafterKind, LayerSkipSettings, LeftOut, Plan, PlanError, PricedShape, RowRule,
        Schedule, Shape, SubPlan, encode,
    },
    planner::{
        Fix, FreeDrafter, NOISE_MARGIN, SearchError, compare::leviathan, make_plan, make_plan_watched, report,
    },
};

pub(super) const VERIFY_WIDTHS: [u32; 5] = [1, 2, 4, 6, 9];
pub(super) const DRAFT_WIDTHS: [u32; 3] = [1, 2, 4];
pub(super) const DEPTH: u32 = 4;
/// Sizes of trees over which deciding was measured.
const DECIDED_NODES: [u32; 4] = [1, 5, 9, 17];

fn decide_us(measured_nodes: u32) -> f64 {
    f64::from(measured_nodes) / 8.0
}

/// What deciding costs in a tree of as many nodes.
pub(super) fn decided_us(nodes: u32) -> f64 {
    decide_us(*DECIDED_NODES.iter().find(|n| **n >= nodes).unwrap())
}

/// Latencies with steps in them: `verify` by width, `draft` by width.
pub(super) fn cells(verify: &[f64], draft: &[f64]) -> Vec<CellSamples> {
    let verify = VERIFY_WIDTHS.iter().zip(verify).map(|(w, us)| samples("verify", *w, *us));
    let draft = DRAFT_WIDTHS.iter().zip(draft).map(|(w, us)| samples("draft:layer_skip", *w, *us));
    let grow = DRAFT_WIDTHS.iter().map(|w| samples("host:grow", *w, 0.5));
    let decide = DECIDED_NODES.iter().map(|n| samples("host:decide", *n, decide_us(*n)));
    verify.chain(draft).chain(grow).chain(decide).chain([samples("draft:lookup", 1, 0.1)]).collect()
}

pub(super) fn requests() -> Vec<TokenTrace> {
    let output = (0..40).map(|i| [1, 2, 3, 4, 9, 1, 2, 3][i % 8] + (i / 16) as u32).collect();
    vec![TokenTrace { kind: "list".into(), temperature: 0.0, seed: 0, prompt: vec![1, 2, 3, 4], output }]
}

pub(super) fn plan(profile: &Profile, fix: &str) -> Result<Plan, SearchError> {
    let fix = if fix.is_empty() { Fix::default() } else { Fix::parse(fix)? };
    let mut echo = Echo;
    let mut free =
        [FreeDrafter { name: name("lookup"), drafter: &mut echo, depths: vec![1, 3], widths: vec![1, 2] }];
    make_plan(profile, &mut free, &fix, MADE_AT)
}

#[test]
fn the_plan_does_not_depend_on_the_number_of_threads() {
    let profile = good_profile();
    let drafters = profile.drafters.len();
    for fix in ["", "drafter=lookup,Dd=3"] {
        let expected = encode(&plan(&profile, fix).unwrap()).unwrap();
        let fix = if fix.is_empty() { Fix::default() } else { Fix::parse(fix).unwrap() };
        for threads in [1, 2, 7] {
            let (mut echo, mut seen) = (Echo, Vec::new());
            let (depths, widths) = (vec![1, 3], vec![1, 2]);
            let mut free = [FreeDrafter { name: name("lookup"), drafter: &mut echo, depths, widths }];
            let threads = NonZero::new(threads).unwrap();
            let made = make_plan_watched(&profile, &mut free, &fix, MADE_AT, threads, &mut |done, all| {
                seen.push((done, all))
            });
            assert_eq!(encode(&made.unwrap()).unwrap(), expected, "{threads} threads");
            assert_eq!(seen, (0..=drafters).map(|done| (done, drafters)).collect::<Vec<_>>());
        }
    }
}

/// Every shape of layer skip, schedule and rule of choosing rows priced the long way: fresh trees, eq. 3 written out.
fn brute_force(profile: &Profile, verify: &[f64], draft: &[f64]) -> Vec<(Shape, Schedule, RowRule, f64)> {
    let mut all = Vec::new();
    let trace = &profile.traces[0];
    for (draft_width, growth_us) in DRAFT_WIDTHS.iter().zip(draft) {
        let grow = |depth| -> Vec<(NaiveTree, &Vec<u32>)> {
            let grown = trace.steps().map(|step| {
                let recorded = recorded_candidates(step);
                let tree = naive_tree(|p| recorded.get(p).cloned(), step.tokens[0], *draft_width, depth);
                (tree, &step.verified)
            });
            grown.collect()
        };
        let judged =
            grow(DEPTH).iter().flat_map(|(tree, verified)| tree.judged(verified)).collect::<Vec<_>>();
        let calibration = Calibration::fit(&judged).unwrap();
        for depth in 1..=DEPTH {
            let trees = grow(depth);
            let calibrated: Vec<_> =
                trees.iter().map(|(tree, verified)| (tree.calibrated(&calibration), *verified)).collect();
            let forwarded: usize = trees.iter().map(|(tree, _)| tree.forwarded.len()).sum();
            let missing: usize = trees.iter().map(|(tree, _)| tree.missing).sum();
            if missing as f64 > 0.01 * forwarded as f64 {
                continue;
            }
            let grown_us = f64::from(depth - 1) * growth_us + 0.5 * f64::from(depth);
            let nodes = depth * draft_width + 1;
            let decided_us = decided_us(nodes);
            for place in 1..VERIFY_WIDTHS.len() {
                if VERIFY_WIDTHS[place] > nodes {
                    continue;
                }
                let shape = Shape { depth, draft_width: *draft_width, verify_width: VERIFY_WIDTHS[place] };
                for schedule in Schedule::ALL {
                    // Heads are drafted ahead of 1, 2 or 4 rows, the widths of both forwards.
                    let step_us = |place: usize| match schedule {
                        Schedule::Plain => Some(grown_us + draft[0] + verify[place]),
                        Schedule::HeadAhead => Some(grown_us + draft.get(place)? + verify[place]),
                        // Not measured.
                        Schedule::OneLaunch
                        | Schedule::DeviceWalk
                        | Schedule::TwoLaunches
                        | Schedule::WholeStep => None,
                    };
                    let Some(fixed_us) = step_us(place) else { continue };
                    let fixed = |_: &NaiveTree| (VERIFY_WIDTHS[place], fixed_us);
                    all.push((shape, schedule, RowRule::Widest, speedup(&trees, verify[0], fixed)));
                    let options: Vec<(u32, f64)> =
                        (0..=place).map(|i| (VERIFY_WIDTHS[i], step_us(i).unwrap() + decided_us)).collect();
                    let best = |tree: &NaiveTree, worth: f64| {
                        let holds = options.iter().position(|(rows, _)| *rows as usize >= tree.nodes.len());
                        let useful = &options[..=holds.unwrap_or(place)];
                        let gain = |(rows, us): &(u32, f64)| tree.expected(*rows) - worth * us;
                        // Ties go to fewer rows, and `max_by` keeps the last of equals.
                        *useful.iter().rev().max_by(|a, b| gain(a).total_cmp(&gain(b))).unwrap()
                    };
                    let mut reached = 1.0;
                    for _round in 0..3 {
                        reached = speedup(&calibrated, verify[0], |tree| best(tree, reached / verify[0]));
                    }
                    all.push((shape, schedule, RowRule::BestRate, reached));
                }
            }
        }
    }
    all
}

/// The best of all, where heads drafted ahead have to gain more than noise.
fn best(all: &[(Shape, Schedule, RowRule, f64)]) -> f64 {
    let best_of = |schedule| {
        all.iter().filter(|(_, s, ..)| *s == schedule).map(|(.., speedup)| *speedup).fold(0.0, f64::max)
    };
    let (plain, ahead) = (best_of(Schedule::Plain), best_of(Schedule::HeadAhead));
    if ahead >= (1.0 + NOISE_MARGIN) * plain { ahead } else { plain }
}

/// Eq. 3 over steps that verify as many rows, in as much time, as `rows` says of each tree.
fn speedup(trees: &[(NaiveTree, &Vec<u32>)], plain_us: f64, rows: impl Fn(&NaiveTree) -> (u32, f64)) -> f64 {
    let (mut tokens, mut us) = (0, 0.0);
    for (tree, verified) in trees {
        let (rows, step_us) = rows(tree);
        tokens += 1 + tree.accepted(verified, rows);
        us += step_us;
    }
    tokens as f64 * plain_us / us
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_search_is_the_brute_force_one(
        seed in any::<u64>(),
        skill in 20u64..=100,
        verify in prop::collection::vec(50.0f64..150.0, 5),
        draft in prop::collection::vec(2.0f64..60.0, 3),
    ) {
        let trace = record(&Oracle { seed, skill }, 10, 4, DEPTH, 5);
        let profile = profile(cells(&verify, &draft), vec![trace], requests());
        let plan = plan(&profile, "").unwrap();
        let all = brute_force(&profile, &verify, &draft);
        let skips = plan.bands[0].priced().filter(|shape| shape.name.as_str() == "layer_skip");
        prop_assert_eq!(skips.count(), all.len(), "every shape is kept");
        let best = best(&all);
        let found = plan.bands[0].for_drafter("layer_skip").unwrap().first().predicted.speedup;
        prop_assert!((found - best).abs() <= 1e-9 * best, "{} instead of {}", found, best);

        let gains = plan.bands[0].by_drafter.iter().filter(|sub_plan| sub_plan.first().unseen.is_gain());
        let overall = gains.map(|p| p.first().predicted.speedup).fold(1.0, f64::max);
        let chosen = plan.bands[0].chosen();
        prop_assert_eq!(chosen.first().predicted.speedup, overall);
        prop_assert_eq!(chosen.is_plain(), overall == 1.0);
        let priced: Vec<PricedShape> = plan.bands[0].priced().collect();
        prop_assert!(priced.is_sorted_by(|a, b| a.speedup >= b.speedup));
        for best in &plan.bands[0].by_drafter {
            let own = || priced.iter().filter(|shape| shape.name == best.name);
            let first = own().next().unwrap();
            // Heads drafted ahead have to gain more than noise.
            let plain = own().find(|shape| shape.schedule == Schedule::Plain);
            let close = plain.filter(|plain| first.speedup < (1.0 + NOISE_MARGIN) * plain.speedup);
            let first = close.unwrap_or(first);
            prop_assert_eq!((first.shape, first.rule), (best.shape(), best.first().row_choice.rule));
            prop_assert_eq!((first.schedule, first.speedup), (best.schedule, best.first().predicted.speedup));
        }
        prop_assert!(plan.planned.verify.contains(&1) && plan.planned.verify.contains(&chosen.shape().verify_width));
    }

    #[test]
    fn a_fixed_shape_is_the_shape_chosen(
        seed in any::<u64>(), depth in 1u32..=DEPTH, width in 0usize..3, rows in 1usize..5, is_ahead in any::<bool>(),
        (rule, part) in prop::sample::select(vec![
            (RowRule::Widest, ""), (RowRule::Widest, ",rows=all"), (RowRule::BestRate, ",rows=best"),
        ]),
    ) {
        let (verify, draft) = ([90.0, 95.0, 100.0, 110.0, 130.0], [30.0, 32.0, 40.0]);
        let trace = record(&Oracle { seed, skill: 80 }, 10, 4, DEPTH, 5);
        let profile = profile(cells(&verify, &draft), vec![trace], requests());
        let shape = Shape { depth, draft_width: DRAFT_WIDTHS[width], verify_width: VERIFY_WIDTHS[rows] };
        let schedule = Schedule::ALL[usize::from(is_ahead)];
        let Shape { depth, draft_width, verify_width } = shape;
        let fix =
            format!("drafter=layer_skip,Dd={depth},Wd={draft_width},Wv={verify_width}{part},schedule={schedule}");
        let all = brute_force(&profile, &verify, &draft);
        let fixed = (shape, schedule, rule);
        let expected = all.into_iter().find(|(shape, schedule, rule, _)| (*shape, *schedule, *rule) == fixed);
        match (plan(&profile, &fix), expected) {
            (Ok(plan), Some((.., speedup))) => {
                prop_assert_eq!(plan.bands[0].chosen().shape(), shape);
                prop_assert_eq!(plan.bands[0].chosen().schedule, schedule);
                prop_assert_eq!(&plan.bands[0].chosen().first().row_choice.rule, &rule);
                prop_assert!((plan.bands[0].chosen().first().predicted.speedup - speedup).abs() < 1e-9);
                prop_assert_eq!(&plan.header.fixed, &fix);
                prop_assert!(plan.bands[0].for_drafter("lookup").is_some());
            }
            (Err(SearchError::FixImpossible { .. }), None) => {}
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }
}

pub(super) fn good_profile() -> Profile {
    surely(good_prompt())
}

/// What one prompt of it says.
fn good_prompt() -> Profile {
    let trace = record(&Oracle { seed: 5, skill: 95 }, 30, 4, DEPTH, 5);
    profile(cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[8.0, 9.0, 10.0]), vec![trace], requests())
}

#[test]
fn useless_drafts_leave_plain_decoding() {
    let trace = record(&Oracle { seed: 5, skill: 0 }, 30, 4, DEPTH, 5);
    let output = (0..40).collect();
    let strange =
        vec![TokenTrace { kind: "noise".into(), temperature: 0.0, seed: 0, prompt: vec![100], output }];
    let profile = profile(cells(&[90.0, 90.0, 90.0, 90.0, 90.0], &[1.0, 1.0, 1.0]), vec![trace], strange);
    let free_choice = plan(&profile, "").unwrap();
    assert!(free_choice.bands[0].chosen().is_plain());
    assert_eq!(free_choice.bands[0].chosen().first().predicted.speedup, 1.0);
    assert_eq!(free_choice.bands[0].by_drafter.len(), 3);
    assert!(plan(&profile, "drafter=lookup").unwrap().bands[0].chosen().first().predicted.speedup < 1.0);
}

#[test]
fn a_gain_within_the_noise_is_not_taken() {
    // Every proposal of one token is accepted, so a step of two rows gives two tokens.
    let output = vec![7; 41];
    let repeat =
        vec![TokenTrace { kind: "copy".into(), temperature: 0.0, seed: 0, prompt: vec![7, 7], output }];
    let speedup_with = |verify_us: f64| {
        let cells = vec![
            samples("verify", 1, 100.0),
            samples("verify", 2, verify_us),
            samples("draft:lookup", 1, 1.0),
        ];
        let plan = plan(&surely(surely(profile(cells, vec![], repeat.clone()))), "").unwrap();
        (plan.bands[0].chosen().is_plain(), plan.bands[0].by_drafter[1].first().predicted.speedup)
    };
    let (plain, speedup) = speedup_with(195.0);
    assert!(plain && speedup > 1.0 && speedup < 1.0 + NOISE_MARGIN);
    let (plain, speedup) = speedup_with(190.0);
    assert!(!plain && speedup > 1.0 + NOISE_MARGIN);
}

#[test]
fn good_drafts_are_chosen_and_every_drafter_kept() {
    let plan = plan(&good_profile(), "").unwrap();
    let names: Vec<&str> = plan.bands[0].by_drafter.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["none", "layer_skip", "lookup"]);
    assert!(!plan.bands[0].chosen().is_plain());
    let skip = plan.bands[0].for_drafter("layer_skip").unwrap();
    assert_eq!(
        skip.drafter,
        DrafterKind::LayerSkip(LayerSkipSettings { skipped: vec![2, 5], head_tokens: None })
    );
    assert_eq!(skip.top_k, 5);
    assert!(skip.acceptance.by_depth[0] > 0.5 && skip.acceptance.by_rank.len() == 5);
    assert!(leviathan::gain(skip.acceptance.by_rank[0], 0.1, 2) > 0.0);
    assert_eq!(plan.context(), 390);
    assert_eq!(plan.header.fingerprints, fingerprints());
    assert!(plan.bands[0].for_drafter("ngram").is_none());
    let lookup = plan.bands[0].for_drafter("lookup").unwrap().shape().verify_width;
    assert!(VERIFY_WIDTHS.iter().filter(|w| **w <= lookup).all(|w| plan.planned.verify.contains(w)));
    let text = in_full(&plan);
    for part in ["layer_skip", "lookup", "Dd", "verify", "acceptance (measured)", "GenuineIntel"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(report::json(&plan)["chosen"]["ranges"][0]["depth"], plan.bands[0].chosen().first().depth);
}

#[test]
fn fixes_narrow_the_search() {
    let profile = good_profile();
    assert!(plan(&profile, "drafter=none").unwrap().bands[0].chosen().is_plain());
    let chosen = plan(&profile, "Wv=6").unwrap().bands[0].chosen().clone();
    assert_eq!((chosen.shape().verify_width, chosen.first().row_choice.rule), (6, RowRule::Widest));
    // A free drafter can be replayed at any depth, also one that the search would not have tried.
    let lookup = plan(&profile, "drafter=lookup,Dd=5").unwrap();
    assert_eq!(
        (lookup.bands[0].chosen().name.as_str(), lookup.bands[0].chosen().shape().depth),
        ("lookup", 5)
    );
    for impossible in
        ["Wv=7", "drafter=layer_skip,Wd=3", "drafter=layer_skip,Dd=9", "drafter=ngram", "Dd=1,Wd=1,Wv=9"]
    {
        let error = plan(&profile, impossible).unwrap_err().to_string();
        for part in [impossible, "drafter=layer_skip with Dd 1 to 4, Wd [1, 2, 4]", "Wv [1, 2, 4, 6, 9]"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn a_tree_without_pruning_fills_the_widest_width_that_it_can() {
    let (verify, draft) = ([90.0, 92.0, 95.0, 97.0, 99.0], [8.0, 9.0, 10.0]);
    let profile = good_prompt();
    let all = brute_force(&profile, &verify, &draft);
    for draft_width in DRAFT_WIDTHS {
        let widest = |nodes| VERIFY_WIDTHS.into_iter().filter(|width| *width <= nodes).max();
        let whole = all.iter().filter(|(shape, _, rule, _)| {
            let fills = widest(shape.depth * shape.draft_width + 1) == Some(shape.verify_width);
            shape.draft_width == draft_width && *rule == RowRule::Widest && fills
        });
        let best = whole.map(|(.., speedup)| *speedup).fold(0.0, f64::max);
        let found = plan(&profile, &format!("drafter=layer_skip,Wd={draft_width},Wv=nodes")).unwrap();
        let predicted = &found.bands[0].chosen().first().predicted;
        assert!(best > 0.0 && (predicted.speedup - best).abs() < 1e-9, "{predicted:?} instead of {best}");
    }
}

#[test]
fn the_objective_decides_the_shape_and_no_prediction() {
    let trace = record(&Oracle { seed: 5, skill: 60 }, 30, 4, DEPTH, 5);
    let dear = cells(&[90.0, 110.0, 150.0, 190.0, 260.0], &[8.0, 9.0, 10.0]);
    let profile = profile(dear, vec![trace], requests());
    let chosen = |fix: &str| plan(&profile, fix).ok().map(|plan| plan.bands[0].chosen().clone());
    let key = |sub_plan: &SubPlan| (sub_plan.first().predicted.aal, sub_plan.first().predicted.speedup);
    let mut largest: Option<SubPlan> = None;
    for depth in 1..=DEPTH {
        for (draft_width, verify_width) in
            DRAFT_WIDTHS.into_iter().flat_map(|d| VERIFY_WIDTHS.into_iter().map(move |v| (d, v)))
        {
            for rows in ["all", "best"] {
                let fix =
                    format!("drafter=layer_skip,Dd={depth},Wd={draft_width},Wv={verify_width},rows={rows}");
                let Some(one) = chosen(&fix) else { continue };
                if largest.as_ref().is_none_or(|other| key(&one) > key(other)) {
                    largest = Some(one);
                }
            }
        }
    }
    let largest = largest.expect("some shapes");
    let by_aal = chosen("drafter=layer_skip,objective=aal").expect("some shapes");
    let by_speedup = chosen("drafter=layer_skip,objective=speedup").expect("some shapes");
    assert_eq!(key(&by_aal), key(&largest));
    assert!(by_aal.first().predicted.aal > by_speedup.first().predicted.aal, "{by_aal:?}");
    assert!(by_aal.first().predicted.speedup < by_speedup.first().predicted.speedup, "{by_aal:?}");

    let free = plan(&profile, "").unwrap();
    assert_eq!(Some(&by_speedup), free.bands[0].for_drafter("layer_skip"));
    assert_eq!(plan(&profile, "objective=speedup").unwrap().bands[0].chosen(), free.bands[0].chosen());
    let other = plan(&profile, "drafter=layer_skip,objective=aal").unwrap();
    assert_eq!(
        other.bands[0].for_drafter("lookup"),
        free.bands[0].for_drafter("lookup"),
        "only what is named is narrowed"
    );
    assert_eq!(other.bands[0].alternatives, free.bands[0].alternatives);
    let overall = plan(&profile, "objective=aal").unwrap();
    let most =
        overall.bands[0].by_drafter.iter().map(|sub_plan| sub_plan.first().predicted.aal).fold(0.0, f64::max);
    assert_eq!(overall.bands[0].chosen().first().predicted.aal, most);
}

#[test]
fn a_drafter_without_evidence_is_left_out_unless_it_is_asked_for() {
    let mut without_traces = good_profile();
    without_traces.traces.clear();
    let mut without_steps = good_profile();
    without_steps.traces[0].prompts.iter_mut().for_each(|prompt| prompt.steps.clear());
    let mut without_latencies = good_profile();
    without_latencies.measurements.retain(|cell| cell.cell.stage != Stage::Draft(name("layer_skip")));
    let mut without_requests = good_profile();
    without_requests.token_traces.iter_mut().for_each(|request| request.output.truncate(1));
    for (profile, lacking, other, lacks) in [
        (without_traces, "layer_skip", "lookup", "recorded steps"),
        (without_steps, "layer_skip", "lookup", "recorded steps"),
        (without_latencies, "layer_skip", "lookup", "latencies"),
        (without_requests, "lookup", "layer_skip", "recorded requests of two output tokens or more"),
    ] {
        for fix in ["", &format!("drafter={other}"), "Wv=2"] {
            let plan = plan(&profile, fix).unwrap();
            assert_eq!(
                plan.bands[0].left_out,
                [LeftOut { name: name(lacking), lacks: lacks.to_owned() }],
                "{fix}"
            );
            assert!(
                plan.bands[0].for_drafter(lacking).is_none() && plan.bands[0].for_drafter(other).is_some()
            );
            assert!(in_full(&plan).contains(&format!("{lacking}: no {lacks}")));
            assert!(shown(&plan).contains(&format!("no evidence: no {lacks}")));
        }
        let error = plan(&profile, &format!("drafter={lacking}")).unwrap_err();
        assert!(matches!(error, SearchError::NoEvidence { .. }), "{error}");
    }
    // A kind is answered by any drafter of it.
    let mut two = good_profile();
    let settings = LayerSkipSettings { skipped: vec![2, 5], head_tokens: Some(vec![1, 2]) };
    two.drafters.push(DrafterKind::LayerSkip(settings).describe(name("layer_skip_v2")));
    let recorded = Trace { drafter: name("layer_skip_v2"), ..two.traces[0].clone() };
    two.traces.push(recorded);
    let plan_of_kind = plan(&two, "drafter=layer_skip").unwrap();
    assert_eq!(plan_of_kind.bands[0].chosen().name, name("layer_skip"));
    assert_eq!(
        plan_of_kind.bands[0].left_out,
        [LeftOut { name: name("layer_skip_v2"), lacks: "latencies".to_owned() }]
    );
    assert!(matches!(plan(&two, "drafter=layer_skip_v2"), Err(SearchError::NoEvidence { .. })));
    let mut nothing = good_profile();
    nothing.traces.clear();
    nothing.token_traces.clear();
    let plain = plan(&nothing, "").unwrap();
    assert!(plain.bands[0].chosen().is_plain());
    assert_eq!(plain.bands[0].left_out.len(), 2);
}

#[test]
#[should_panic(expected = "drafter lookup has no implementation to replay")]
fn every_free_drafter_of_the_profile_must_be_given() {
    let _ = make_plan(&good_profile(), &mut [], &Fix::default(), MADE_AT);
}

#[test]
fn unusable_profiles_are_errors() {
    let mut no_plain = good_profile();
    no_plain.measurements.retain(|m| m.cell.width != 1);
    assert!(matches!(plan(&no_plain, ""), Err(SearchError::Table(_))));
    let mut unknown = good_profile();
    unknown.drafters[0].kind = "oracle".into();
    assert!(matches!(plan(&unknown, ""), Err(SearchError::Plan(PlanError::UnknownDrafter { .. }))));
    let mut two_temperatures = good_profile();
    let mut other = two_temperatures.traces[0].clone();
    other.draft_temperature = 0.2;
    two_temperatures.traces.push(other);
    assert!(matches!(
        plan(&two_temperatures, ""),
        Err(SearchError::Plan(PlanError::DrafterParameters { .. }))
    ));
}

#[test]
fn steps_choose_their_rows_where_that_pays() {
    // Half of the steps see certain drafts, half see hopeless ones, and rows are dear.
    let mut trace = record(&Oracle { seed: 5, skill: 100 }, 100, 4, DEPTH, 5);
    for (i, step) in trace.prompts[0].steps.iter_mut().enumerate() {
        let (first, rest) = if i % 2 == 0 { (0.0, -9.0) } else { (-3.0, -3.0) };
        for expansion in &mut step.expanded {
            for (rank, candidate) in expansion.candidates.iter_mut().enumerate() {
                candidate.log_prob = if rank == 0 { first } else { rest };
            }
        }
        let (parents, tokens) = (vec![0, 0], vec![step.tokens[0], step.expanded[0].candidates[0].token]);
        step.verified = if i % 2 == 0 { vec![tokens[1], 99] } else { vec![99] };
        step.expanded.truncate(1);
        (step.parents, step.tokens) = (parents, tokens);
    }
    (trace.depth, trace.width) = (1, 1);
    trace.validate().unwrap();
    let profile =
        profile(cells(&[90.0, 120.0, 200.0, 300.0, 400.0], &[1.0, 1.0, 1.0]), vec![trace], requests());
    let plan = plan(&profile, "drafter=layer_skip").unwrap();
    let chosen = plan.bands[0].chosen();
    assert_eq!(chosen.first().row_choice.rule, RowRule::BestRate);
    let widths: Vec<u32> = chosen.first().row_choice.widths.iter().map(|cost| cost.width).collect();
    assert_eq!(widths, [1, 2]);
    // 1.5 tokens a step; a step drafts, grows, decides over five nodes' price, and verifies one or two rows.
    let step_us = 1.0 + 0.5 + decide_us(5) + (90.0 + 120.0) / 2.0;
    assert!((chosen.first().predicted.aal - 1.5).abs() < 1e-12);
    assert!((chosen.first().predicted.step_us - step_us).abs() < 1e-9, "{:?}", chosen.first().predicted);
    let calibration = chosen.first().row_choice.calibration.as_ref().expect("values are calibrated");
    assert_eq!(calibration.fitted_nodes, 100);
    let text = in_full(&plan);
    assert!(text.contains("<=2") && text.contains("calibrated on 100 drafted nodes"), "{text}");
}
