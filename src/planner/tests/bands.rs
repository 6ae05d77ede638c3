//! Plans by temperature: each is what a profile of that temperature alone speaks for, and all of it survives, shows and
//! compares.
use ygg_profiler::{CellSamples, Profile, TokenTrace};

use super::{
    search::{VERIFY_WIDTHS, cells, good_profile, plan, requests},
    synthetic::{Oracle, name, profile, record, samples, shown, surely},
};
use crate::planner::SearchError;
use crate::{
    plan::{
        Band, DepthRule, GrowthRule, LeftOut, Plan, PlanError, PlannedWidths, Refusal, Schedule, SubPlan,
        decode, encode,
    },
    planner::report::{diff, diff::text, explain, explain_at, json},
};

fn measured() -> Vec<CellSamples> {
    cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[8.0, 9.0, 10.0])
}

/// Requests whose answers nothing foretells.
fn strange() -> Vec<TokenTrace> {
    vec![TokenTrace {
        kind: "noise".into(),
        temperature: 0.0,
        seed: 0,
        prompt: vec![100],
        output: (0..40).collect(),
    }]
}

/// What is recorded at each temperature: layer skip of this skill, and these requests.
fn recorded() -> [(f32, u64, Vec<TokenTrace>); 3] {
    [(0.0, 95, requests()), (0.6, 95, strange()), (1.0, 0, strange())]
}

/// A profile of some of the temperatures; `relabelled` as if each had been greedy.
fn profile_of(wanted: &[f32], relabelled: bool) -> Profile {
    let (mut traces, mut token_traces) = (Vec::new(), Vec::new());
    for (temperature, skill, requests) in recorded() {
        if wanted.contains(&temperature) {
            let label = if relabelled { 0.0 } else { temperature };
            let mut trace = record(&Oracle { seed: 5, skill }, 30, 4, 4, 5);
            trace.temperature = label;
            traces.push(trace);
            token_traces.extend(requests.into_iter().map(|r| TokenTrace { temperature: label, ..r }));
        }
    }
    surely(profile(measured(), traces, token_traces))
}

fn temperatures(plan: &Plan) -> Vec<f32> {
    plan.bands.iter().map(|band| band.temperature).collect()
}

/// A plan in which the band at a place serves requests of every temperature.
fn only(plan: &Plan, place: usize) -> Plan {
    let band = Band { temperature: 0.0, ..plan.bands[place].clone() };
    Plan { bands: vec![band], ..plan.clone() }
}

fn whole() -> Plan {
    plan(&profile_of(&[0.0, 0.6, 1.0], false), "").unwrap()
}

#[test]
fn requests_of_every_temperature_are_walked_on_a_device_that_can() {
    let mut profile = profile_of(&[0.0, 0.6], false);
    let walked_by_host = plan(&profile, "").unwrap();
    profile.measurements.extend(VERIFY_WIDTHS.map(|width| samples("verify_walk", width, 50.0)));
    let all = plan(&profile, "").unwrap();
    let schedules = |by_drafter: &[SubPlan]| -> Vec<Schedule> {
        by_drafter.iter().filter(|plan| !plan.is_plain()).map(|plan| plan.schedule).collect()
    };
    assert_eq!(temperatures(&all), [0.0, 0.6]);
    for (band, by_host) in all.bands.iter().zip(&walked_by_host.bands) {
        assert_eq!(schedules(&band.by_drafter), [Schedule::DeviceWalk; 2]);
        assert_eq!(schedules(&by_host.by_drafter), [Schedule::Plain; 2]);
    }
    assert_eq!(decode(&encode(&all).unwrap()).unwrap(), all);
}

#[test]
fn every_temperature_is_planned_as_if_it_were_recorded_alone() {
    for fix in ["", "drafter=layer_skip", "Wd=2", "objective=aal", "drafter=none", "Dd=3,Wv=4"] {
        let all = plan(&profile_of(&[0.0, 0.6, 1.0], false), fix).unwrap();
        assert_eq!(temperatures(&all), [0.0, 0.6, 1.0], "{fix}");
        let (mut verify, mut draft) = (Vec::new(), Vec::new());
        for (place, temperature) in [0.0, 0.6, 1.0].into_iter().enumerate() {
            let alone = plan(&profile_of(&[temperature], true), fix).unwrap();
            verify.extend(&alone.planned.verify);
            draft.extend(&alone.planned.draft);
            let expected = Plan { planned: all.planned.clone(), ..alone };
            assert_eq!(only(&all, place), expected, "{fix}, temperature {temperature}");
        }
        let sorted = |mut widths: Vec<u32>| {
            widths.sort_unstable();
            widths.dedup();
            widths
        };
        let union = PlannedWidths { verify: sorted(verify), draft: sorted(draft) };
        assert_eq!(all.planned, union, "{fix}: one executable of every width serves all temperatures");
    }
    let chosen = |place: usize| whole().bands[place].chosen().name.clone();
    assert_eq!([0, 1, 2].map(chosen), ["lookup", "layer_skip", "none"].map(name));
}

#[test]
fn a_profile_of_greedy_requests_makes_one_plan_for_all() {
    let alone = plan(&good_profile(), "").unwrap();
    assert_eq!(temperatures(&alone), [0.0]);
    assert_eq!([0.0, 0.6, 7.0].map(|t| alone.band_for(t).temperature), [0.0; 3]);
    assert!(shown(&alone).contains("0 alone was recorded"));
    assert_eq!(explain(&alone).bands.len(), 1);
    let served = |t| whole().band_for(t).temperature;
    assert_eq!(
        [0.0, 0.3, 0.31, 0.6, 0.7, 0.9, 1.0, 5.0].map(served),
        [0.0, 0.0, 0.6, 0.6, 0.6, 1.0, 1.0, 1.0]
    );
}

#[test]
fn what_was_trained_on_greedy_requests_is_for_those() {
    let all = whole();
    let predicts = |band: &Band| band.by_drafter.iter().any(|p| p.depth_rule() != DepthRule::Fixed);
    assert!(!all.bands[1..].iter().any(predicts));
}

#[test]
fn a_temperature_that_cannot_keep_the_fix_gets_no_band() {
    let mut partly = profile_of(&[0.0, 0.6, 1.0], false);
    partly.traces.retain(|trace| trace.temperature != 1.0);
    let temperatures = |profile: &Profile, fix: &str| plan(profile, fix).map(|plan| temperatures(&plan));
    assert_eq!(temperatures(&partly, "drafter=layer_skip").unwrap(), [0.0, 0.6]);
    assert_eq!(temperatures(&partly, "schedule=head_ahead").unwrap(), [0.0, 0.6]);
    let open = plan(&partly, "").unwrap();
    let lacks = "recorded steps".to_owned();
    assert_eq!(open.bands[2].left_out, [LeftOut { name: name("layer_skip"), lacks }]);
    partly.traces.retain(|trace| trace.temperature != 0.0);
    assert!(matches!(temperatures(&partly, "drafter=layer_skip"), Err(SearchError::NoEvidence { .. })));
}

/// What is wrong or differs, and the change that causes it.
type Mutation = (&'static str, fn(&mut Vec<Band>));

#[test]
fn bands_survive_the_file_and_broken_ones_are_refused() {
    let good = whole();
    assert_eq!(decode(&encode(&good).unwrap()).unwrap(), good);
    let breaks: [Mutation; 11] = [
        ("temperatures", |bands| bands.clear()),
        ("temperatures", |bands| drop(bands.remove(0))),
        ("temperatures", |bands| bands.swap(1, 2)),
        ("temperatures", |bands| bands[1].temperature = 0.0),
        ("temperatures", |bands| bands[1].temperature = f32::NAN),
        ("temperatures", |bands| bands[2].temperature = f32::INFINITY),
        ("chosen sub-plan", |bands| bands[2].chosen_index = 99),
        ("sub-plans", |bands| bands[2].by_drafter.clear()),
        ("shape", |bands| bands[1].by_drafter[1].ranges[0].depth = 0),
        ("alternative", |bands| bands[1].alternatives[0].aal = f64::NAN),
        ("verify width", |bands| {
            bands[1].by_drafter[1].ranges[0].row_choice.widths.last_mut().unwrap().width = 3;
        }),
    ];
    for (what, change) in breaks {
        let mut broken = good.clone();
        change(&mut broken.bands);
        match encode(&broken) {
            Err(PlanError::Invalid { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn a_plan_says_what_each_temperature_gets_and_why() {
    let all = whole();
    let said = shown(&all);
    for part in ["chosen       lookup", "at 0.6       layer_skip", "at 1         plain decoding"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let shown = json(&all);
    for (place, band) in all.bands.iter().enumerate() {
        let spelled = &shown["plan"]["bands"][place]["alternatives"];
        assert_eq!(spelled, &serde_json::json!(band.priced().collect::<Vec<_>>()));
    }
    for (wanted, temperature, place) in [(0.0, 0.0, 0), (0.7, 0.6, 1), (2.0, 1.0, 2)] {
        let explanation = explain_at(&all, wanted);
        assert_eq!((explanation.temperature, explanation.bands.len()), (temperature, 3));
        let mut alone = explain(&only(&all, place));
        (alone.temperature, alone.bands) = (explanation.temperature, explanation.bands.clone());
        assert_eq!(explanation, alone, "everything else is said of one temperature");
    }
    assert_eq!(explain(&all), explain_at(&all, 0.0));
    let bands = explain(&all).bands;
    assert_eq!(bands.iter().map(|band| band.up_to).collect::<Vec<_>>(), [Some(0.3), Some(0.8), None]);
    // The lookup that is chosen for greedy requests finds nothing in strange ones.
    let first = all.bands[0].chosen().priced();
    let same =
        all.bands[1].priced().find(|p| (&p.name, p.shape, p.rule) == (&first.name, first.shape, first.rule));
    let expected = format!(
        "the choice of 0 would give 1.00 tokens a step instead of {:.2} here, {:.2}x plain decoding",
        first.aal,
        same.unwrap().speedup
    );
    assert_eq!(bands[1].reason, expected);
    insta::assert_snapshot!(
        explain::text(&all, &explain_at(&all, 0.6)).split("\n\n").take(2).collect::<Vec<_>>().join("\n\n")
    );
}

#[test]
fn a_band_with_the_same_choice_says_what_it_gives() {
    let mut same = profile_of(&[0.0], false);
    let mut hot = same.traces[0].clone();
    hot.temperature = 0.6;
    same.traces.push(hot);
    let hot = same.token_traces.clone().into_iter().map(|r| TokenTrace { temperature: 0.6, ..r });
    same.token_traces.extend(hot);
    let same = plan(&same, "").unwrap();
    let aal = format!("{:.2}", same.bands[0].chosen().first().predicted.aal);
    assert_eq!(explain(&same).bands[1].reason, format!("as at 0, with {aal} tokens a step instead of {aal}"));
    let plain = plan(&profile_of(&[0.0, 1.0], false), "drafter=none").unwrap();
    assert_eq!(explain(&plain).bands[1].reason, "as at 0");
}

#[test]
fn what_differs_at_a_temperature_is_told() {
    let mutations: [Mutation; 8] = [
        ("temperatures", |bands| bands.truncate(2)),
        ("temperatures", |bands| bands[2].temperature = 1.1),
        ("chosen drafter", |bands| bands[1].chosen_index = 0),
        ("refused", |bands| {
            let name = name("layer_skip");
            bands[1].refused.push(Refusal {
                name,
                growth: GrowthRule::Equal,
                depth: 9,
                draft_width: 9,
                missing: 0.5,
            });
        }),
        ("left out", |bands| {
            bands[1].left_out.push(LeftOut { name: name("ngram"), lacks: "recorded steps".to_owned() });
        }),
        ("steps recorded", |bands| bands[1].by_drafter[1].acceptance.steps += 1),
        ("shapes priced", |bands| bands[1].alternatives.truncate(3)),
        ("prices of shapes", |bands| bands[1].alternatives[0].step_us += 1e-9),
    ];
    for (what, change) in mutations {
        let (all, mut other) = (whole(), whole());
        change(&mut other.bands);
        assert_ne!(all, other, "{what}: nothing was changed");
        for (a, b) in [(&all, &other), (&other, &all)] {
            let said = text(&diff(a, b));
            assert!(said.contains(what), "{what}: {said}");
            assert!(
                what == "temperatures" || what == "prices of shapes" || said.contains("at temperature 0.6")
            );
        }
    }
    assert!(diff(&whole(), &whole()).is_empty());
}
