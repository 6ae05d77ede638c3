//! Tunings of linears: forwards keep their bits, profiles measure them, plans bring them to engines or are refused.

use std::{sync::Arc, time::Duration};

use ygg_kernels::WeightFormat;
use ygg_profiler::Profile;
use yggc::{
    backend::{Activations, Tier},
    engine::{DrafterChoice, Engine, ErrorKind, LoadOptions, Loaded, Options, Pinning, PlanSource, Sampling},
    measure::{KernelOptions, ProfileOptions, calibration_prompts, profile, tuned_report},
    model::{Model, synthetic::SyntheticSpec},
    plan::{ChosenTuning, Plan, TunedShape},
    planner::{Fix, plan_from_profile},
    runtime::{Choice, Session, Tuning},
};

use crate::{
    tiny_model::{Class, Dice, best_tier, bits, models, session, some_models},
    tiny_profiles::NOW,
};

/// Logits of a prompt, of a wide forward after it, of one row after that, and the candidates of another.
fn logits(session: &mut Session, rows: usize) -> Vec<u32> {
    let mut all = bits(session.restart(&[1, 2, 3, 4, 5, 6, 7]).expect("the prompt fits"));
    for rows in [rows, 1] {
        let mut forward = session.forward(rows).expect("a planned width");
        for row in 0..u32::try_from(rows).expect("few rows") {
            forward.push(row, u32::from(row > 0), row, |tail| {
                let len = 1 + usize::from(row > 0);
                tail[0] = 0;
                tail[len - 1] = row;
                len
            });
        }
        let logits = forward.run(None);
        (0..rows).for_each(|row| all.extend(bits(logits.row(row))));
        session.commit(&[0]);
    }
    let mut forward = session.forward(1).expect("one row is planned");
    forward.push(3, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    let chosen = forward.choose(Choice { k: 5, temperature: Some(0.7) }, None);
    all.extend(chosen.row(0).iter().flat_map(|(token, value)| [token, value.to_bits()]));
    all
}

#[test]
fn a_forward_has_the_same_bits_whatever_its_tunings() {
    let mut dice = Dice::new(5);
    let mut chosen = 0;
    for model in some_models() {
        for class in model.classes() {
            let set = model.set(class);
            // Some tiers have one way alone.
            if set.linear_shapes().iter().all(|shape| shape.candidates().len() == 1) {
                continue;
            }
            chosen += 1;
            for (threads, rows) in [(1, 1), (3, 6), (1, 12), (3, 33)] {
                let (mut expected, mut tuned) =
                    (session(set, 64, 64, threads), session(set, 64, 64, threads));
                for shape in set.linear_shapes() {
                    tuned.tune(&shape, *dice.pick(&shape.candidates())).expect("a candidate");
                }
                let (expected, found) = (logits(&mut expected, rows), logits(&mut tuned, rows));
                assert!(expected == found, "{} on {class}, {threads} threads, {rows} rows", model.name);
            }
        }
    }
    assert!(chosen > 0 || best_tier() == Tier::Portable, "nothing was tuned");
}

#[test]
fn a_tuning_that_a_kernel_has_not_got_is_refused() {
    let set = models()[5].set(Class::native(Tier::Portable));
    let mut session = session(set, 64, 64, 1);
    let shape = *set.linear_shapes().iter().next().expect("a model has linears");
    let other: Tuning = "rows=4,tiles=1,streams=1,ahead=tile".parse().expect("a tuning");
    let refused = session.tune(&shape, other).expect_err("portable kernels have one tuning").to_string();
    assert!(
        refused.contains("rows=4,tiles=1,streams=1,ahead=tile") && refused.contains(&shape.to_string()),
        "{refused}"
    );
}

/// A small model with every kind of linear, loaded for the fastest tier here.
fn loaded(widths: Vec<usize>) -> Arc<Loaded> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let spec =
        SyntheticSpec { layers: 4, context: 256, format: WeightFormat::Q4_1, ..SyntheticSpec::default() };
    spec.write_gguf(&path).expect("the model is written");
    let options = LoadOptions {
        tier: None,
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(2),
        widths,
        resident: None,
    };
    Arc::new(Loaded::new(Model::open(&path).expect("a generated model opens"), &options).expect("it loads"))
}

fn profiled(loaded: &Loaded, budget: Duration) -> Profile {
    let options = ProfileOptions {
        prompts: calibration_prompts().into_iter().take(2).collect(),
        contexts: vec![16],
        tokens: 8,
        is_rehearsal: true,
        pinning: Pinning::Floating,
        ..ProfileOptions::new(budget)
    };
    profile(loaded, &options, &mut |_| {}).expect("a generated model is measured")
}

fn engine(loaded: &Arc<Loaded>, plan: Option<Plan>, force: bool) -> Result<Engine, yggc::engine::Error> {
    let options = Options {
        plan: plan.map(|plan| PlanSource { plan, name: "test".to_owned(), force }),
        drafter: DrafterChoice::Plain,
        pinning: Pinning::Floating,
        ..Options::new("unused")
    };
    Engine::with_loaded(Arc::clone(loaded), &options)
}

fn answer(engine: &mut Engine) -> Vec<u32> {
    let generation = engine.generate_tokens(&[1, 2, 3, 4, 5], 12, Sampling::GREEDY).expect("the prompt fits");
    generation.collect_answer().expect("an answer").token_ids
}

/// A choice for every shape of the profile: its last candidate, whether it won or not.
fn all_tuned(profile: &Profile) -> Vec<ChosenTuning> {
    let last = |m: &ygg_profiler::TuningMeasurement| ChosenTuning {
        shape: m.shape.clone(),
        tuning: m.tunings.last().expect("the default at least").tuning.clone(),
        default_us: 2.0,
        tuned_us: 1.0,
        gain: 2.0,
    };
    profile.tunings.iter().map(last).collect()
}

#[test]
fn what_a_profile_measured_reaches_the_engine_and_changes_no_answer() {
    let loaded = loaded(vec![2, 12]);
    // A fifth of the time is for tunings: enough on a busy machine too.
    let profile = profiled(&loaded, Duration::from_secs(600));
    let has_a_choice = loaded.set().linear_shapes().iter().any(|shape| shape.candidates().len() > 1);
    assert_eq!(profile.tunings.is_empty(), !has_a_choice);
    for measured in &profile.tunings {
        assert_eq!(measured.tunings[0].tuning, Tuning::DEFAULT.to_string(), "{}", measured.shape);
        assert!(
            measured.tunings.len() > 1 && measured.tunings[0].samples_us.len() >= 7,
            "{}",
            measured.shape
        );
    }
    let rows: std::collections::BTreeSet<u32> = profile.tunings.iter().map(|m| m.shape.rows).collect();
    assert!(!has_a_choice || rows.into_iter().eq([1, 2, 12]));

    let plan = plan_from_profile(&profile, &Fix::default(), NOW).expect("a plan");
    let expected = answer(&mut engine(&loaded, None, false).expect("no plan is needed"));
    let tuned = Plan { tunings: all_tuned(&profile), ..plan };
    assert_eq!(
        answer(&mut engine(&loaded, Some(tuned.clone()), false).expect("all are candidates")),
        expected
    );

    let options = KernelOptions { contexts: vec![20], repetitions: 3, pinning: Pinning::Floating };
    let report = tuned_report(&loaded, &tuned.tunings, &options, &mut |_| {}).expect("it is measured");
    assert_eq!(report.iter().map(|forward| forward.width).collect::<Vec<_>>(), [1, 2, 12]);
    for forward in &report {
        assert!(forward.gain > 0.0 && forward.ops.len() >= 5, "{forward:?}");
        for op in &forward.ops {
            assert_eq!(op.tuning.is_some(), has_a_choice, "{op:?}");
            assert!(op.gain > 0.0 && op.default.median_us > 0.0 && op.tuned.median_us > 0.0, "{op:?}");
        }
    }

    for (change, part) in bad_choices() {
        let shape = loaded.set().linear_shapes().into_iter().next().expect("a model has linears");
        let shape = TunedShape {
            kernel: shape.kernel.to_string(),
            outputs: shape.outputs as u32,
            columns: shape.columns as u32,
            rows: shape.rows as u32,
        };
        let mut choice = ChosenTuning {
            shape,
            tuning: Tuning::DEFAULT.to_string(),
            default_us: 2.0,
            tuned_us: 1.0,
            gain: 2.0,
        };
        change(&mut choice);
        let bad = Plan { tunings: vec![choice], ..tuned.clone() };
        let refused = engine(&loaded, Some(bad.clone()), false).expect_err("not a choice of this model");
        assert!(refused.kind() == ErrorKind::Input && refused.to_string().contains(part), "{refused}");
        // A plan that was made elsewhere and is forced keeps its shapes; its tunings say nothing about this machine.
        let mut forced = bad;
        forced.header.fingerprints.build.kernels = "other".to_owned();
        assert_eq!(answer(&mut engine(&loaded, Some(forced), true).expect("forced")), expected);
    }
}

type Change = fn(&mut ChosenTuning);

/// What no plan may choose, and a part of what is said of it.
fn bad_choices() -> [(Change, &'static str); 5] {
    [
        (|c| c.tuning = "rows=65,tiles=1,streams=1,ahead=tile".to_owned(), "unknown tuning"),
        (|c| c.tuning = "fast".to_owned(), "unknown tuning"),
        (|c| c.tuning = "rows=1,tiles=77,streams=1,ahead=5".to_owned(), "no tuning"),
        (|c| c.shape.kernel = "linear.q4_1.other".to_owned(), "expected one of the model's linears"),
        (|c| c.shape.outputs += 1, "expected one of the model's linears"),
    ]
}

#[test]
fn a_spent_budget_measures_no_tuning() {
    let loaded = loaded(vec![2]);
    let options = ProfileOptions {
        prompts: calibration_prompts().into_iter().take(1).collect(),
        contexts: vec![16],
        tokens: 4,
        pinning: Pinning::Floating,
        ..ProfileOptions::new(Duration::ZERO)
    };
    // Latencies are what cannot be done without.
    let refused = profile(&loaded, &options, &mut |_| {}).expect_err("no time at all").to_string();
    assert!(refused.contains("allow more time"), "{refused}");
}
