//! Plans by temperature on their way: what is recorded at each, the plan that is searched for each, and one engine that
//! serves them all in turn, with plain decoding's tokens.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use ygg_profiler::Profile;
use yggc::{
    engine::{Answer, DrafterChoice, Engine, Loaded, Pinning, Sampling},
    measure::ProfileOptions,
    plan::{self, Plan, Schedule, SubPlan, nearest},
    planner::{Fix, plan_from_profile},
    runtime::{Session, SessionOptions, SkipSet},
    speculate::{BandSteps, Decoder, Drafter, Limits, Lookup, SelfDrafter, StepShape},
};

use crate::{
    lossless::{any_policy, any_sampling, any_shape, decode},
    tiny_model::{Dice, models, session},
    tiny_profiles::{self, NOW, Recorder, served},
};

const TEMPERATURES: [f32; 3] = [0.0, 0.6, 1.0];

/// Steps of whatever kind.
struct AnyBand {
    drafter: &'static str,
    shape: StepShape,
    schedule: Schedule,
}

impl AnyBand {
    fn new(drafter: &'static str, dice: &mut Dice) -> Self {
        let shape = if drafter == "none" { StepShape::PLAIN } else { any_shape(dice) };
        let is_ahead = drafter == "layer_skip" && dice.chance(50);
        Self { drafter, shape, schedule: if is_ahead { Schedule::HeadAhead } else { Schedule::Plain } }
    }

    fn drafter(&self, session: &Session, dice: &mut Dice) -> Option<Box<dyn Drafter>> {
        let groups = session.set().groups();
        match self.drafter {
            "none" => None,
            "lookup" => Some(Box::new(Lookup::new(3, 1, &self.shape).expect("lengths in order"))),
            "layer_skip" => {
                let skipped: Vec<u32> = (0..groups).filter(|_| dice.chance(40)).collect();
                let skip = SkipSet::new(groups, &skipped).expect("groups of the model");
                Some(Box::new(SelfDrafter::layer_skip(session, skip, &self.shape).expect("a planned width")))
            }
            other => unreachable!("drafter {other}"),
        }
    }
}

#[test]
fn requests_of_any_temperature_in_any_order_are_answered_as_plain_decoding_does() {
    let (mut drafted, mut served) = ([0; 3], [0; 3]);
    for case in 0..60 {
        let mut dice = Dice::new(case);
        let model = dice.pick(models());
        let set = model.set(*model.classes().last().expect("portable at least"));
        let mut kinds = ["none", "lookup", "layer_skip"];
        dice.shuffle(&mut kinds);
        let bands = kinds.map(|kind| AnyBand::new(kind, &mut dice));
        let rows = bands.iter().map(|band| band.shape.scratch_rows(band.schedule)).max().expect("three");
        let context = 100;
        let session_of = |rows| session(set, context, rows, 1);
        let opened = session_of(rows);
        let drafters = [0, 1, 2].map(|i| bands[i].drafter(&opened, &mut dice));
        let mut all = Vec::new();
        for ((band, drafter), temperature) in bands.iter().zip(drafters).zip(TEMPERATURES) {
            let mut steps = BandSteps { temperature, ..BandSteps::unplanned(drafter, &band.shape) };
            steps.sub_plan.schedule = band.schedule;
            let has_policy = band.drafter != "none" && dice.chance(60);
            all.push(if has_policy { any_policy(&band.shape, &mut dice).over(steps) } else { steps });
        }
        let mut decoder = Decoder::new(opened, all).expect("widths fit");
        let mut plain = Decoder::new(session_of(1), vec![BandSteps::plain()]).expect("plain decoding");
        for _ in 0..8 {
            let temperature = *dice.pick(&[0.0, 0.1, 0.5, 0.6, 0.7, 1.0, 3.0]);
            let sampling = Sampling { temperature, ..any_sampling(&mut dice) };
            let len = dice.within(1, 16);
            let prompt = dice.tokens(len, set.vocabulary());
            let tokens = dice.within(1, 40);
            decode(&mut plain, &prompt, sampling, tokens, &[], None);
            decode(&mut decoder, &prompt, sampling, tokens, &[], Some(dice.bits() >> 1));
            assert_eq!(decoder.history(), plain.history(), "case {case}, {}, {sampling:?}", model.name);
            let is_certain = temperature == 0.0 || sampling.top_k == 1;
            let expected = nearest(TEMPERATURES, if is_certain { 0.0 } else { temperature });
            assert_eq!(decoder.band(), expected, "{sampling:?}");
            assert_eq!(*decoder.shape(), bands[expected].shape);
            assert!(bands[expected].drafter != "none" || decoder.stats().drafted == 0);
            served[expected] += 1;
            drafted[expected] += decoder.stats().drafted;
        }
    }
    assert!(served.iter().all(|served| *served > 50) && drafted.iter().all(|drafted| *drafted > 500));
}

#[test]
fn bands_ascend_from_temperature_0() {
    let set = models()[0].set(*models()[0].classes().last().expect("portable at least"));
    let opened = |temperatures: &[f32]| {
        let steps = temperatures.iter().map(|t| BandSteps { temperature: *t, ..BandSteps::plain() });
        Decoder::new(session(set, 20, 1, 1), steps.collect()).map(drop)
    };
    assert!(opened(&[0.0, 0.5, 2.0]).is_ok());
    for bad in [&[][..], &[0.5], &[0.0, 0.0], &[0.0, 0.6, 0.5], &[0.0, f32::NAN], &[0.0, f32::INFINITY]] {
        let error = opened(bad).expect_err("no order").to_string();
        assert!(error.contains("temperatures: expected finite ones that ascend from 0"), "{error}");
    }
}

#[test]
fn a_band_that_needs_more_than_there_is_is_refused() {
    let set = models()[0].set(*models()[0].classes().last().expect("portable at least"));
    let opened = |shape: StepShape, has_drafter: bool| {
        let lookup = || Box::new(Lookup::new(3, 1, &shape).expect("lengths in order")) as Box<dyn Drafter>;
        let drafter = has_drafter.then(lookup);
        let further = BandSteps { temperature: 0.6, ..BandSteps::unplanned(drafter, &shape) };
        Decoder::new(session(set, 20, 4, 1), vec![BandSteps::plain(), further]).map(drop)
    };
    let shape = StepShape { depth: 4, draft_width: 1, verify_width: 4, top_k: 0, draft_temperature: 1.0 };
    for bad in [shape, StepShape { verify_width: 0, ..shape }, StepShape { verify_width: 65, ..shape }] {
        assert!(opened(bad, true).is_err(), "{bad:?}");
    }
    let good = StepShape { depth: 3, ..shape };
    assert!(opened(good, true).is_ok());
    let error = opened(good, false).expect_err("nothing drafts").to_string();
    assert!(error.contains("drafter: expected one for steps that draft, found none for Dd 3"), "{error}");
}

/// A loaded model and its profile at three temperatures, made once.
fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    PROFILED.get_or_init(|| {
        tiny_profiles::profiled(None, &[1, 2, 4, 8, 16], |options| ProfileOptions {
            head_sizes: vec![40],
            temperatures: TEMPERATURES[1..].to_vec(),
            ..options
        })
    })
}

fn sampling(temperature: f32, seed: usize) -> Sampling {
    Sampling { temperature, seed: seed as u64, ..Sampling::GREEDY }
}

#[test]
fn budgets_decide_whether_other_temperatures_are_recorded() {
    let at = |seconds| ProfileOptions::new(Duration::from_secs(seconds)).temperatures;
    assert_eq!((at(40), at(55)), (vec![], TEMPERATURES[1..].to_vec()));
    let (_, profile) = profiled();
    assert_eq!(profile.temperatures(), TEMPERATURES);
    let drafters = profile.traces.iter().map(|trace| (trace.temperature, trace.drafter.as_str()));
    let recorded = ["layer_skip", "substitute4"];
    let expected = TEMPERATURES.map(|t| recorded.map(|name| (t, name))).concat();
    assert_eq!(drafters.collect::<Vec<_>>(), expected);
}

#[test]
fn requests_are_recorded_as_plain_decoding_answers_at_their_temperature() {
    let (loaded, profile) = profiled();
    let options = SessionOptions {
        context: loaded.set().model_context(),
        tree_nodes: 1,
        threads: 1,
        pinning: Pinning::Floating,
    };
    let session = Session::open(Arc::clone(loaded.set()), &options).expect("a session opens");
    let mut plain = Decoder::new(session, vec![BandSteps::plain()]).expect("plain decoding");
    for temperature in TEMPERATURES {
        let requests = profile.token_traces.iter().filter(|request| request.temperature == temperature);
        let mut answered = 0;
        for (seed, request) in requests.enumerate() {
            plain.start(&request.prompt, sampling(temperature, seed)).expect("the prompt fits");
            while plain.history().len() < request.prompt.len() + request.output.len() {
                plain.step(Limits { tokens: 1, ends: loaded.end_ids() }, None).expect("it runs");
            }
            assert_eq!(plain.history()[request.prompt.len()..], request.output, "temperature {temperature}");
            answered += request.output.len();
        }
        assert!(answered > 20, "{answered} tokens at {temperature}");
    }
    let outputs = |temperature| -> Vec<&Vec<u32>> {
        let of = profile.token_traces.iter().filter(|request| request.temperature == temperature);
        of.map(|request| &request.output).collect()
    };
    assert_ne!(outputs(0.6), outputs(1.0));
}

#[test]
fn drafters_are_recorded_at_each_temperature_as_a_verifying_decoder_steps_at_it() {
    let (loaded, profile) = profiled();
    for trace in &profile.traces {
        let what = format!("{} at {}", trace.drafter, trace.temperature);
        let mut recorder = Recorder::new(loaded, profile, trace);
        let requests = profile.token_traces.iter().filter(|r| r.temperature == trace.temperature);
        let mut steps = 0;
        for (seed, (prompt, request)) in trace.prompts.iter().zip(requests).enumerate() {
            let text = [&request.prompt[..], &request.output].concat();
            for recorded in &prompt.steps {
                let known = &text[..recorded.context as usize];
                recorder.check(known, sampling(trace.temperature, seed), recorded);
                steps += 1;
            }
        }
        assert!(steps > 10, "{steps} steps of {what}");
    }
}

fn engine(plan: Option<Plan>, drafter: DrafterChoice) -> Engine {
    served(&profiled().0, plan, drafter).expect("the plan fits")
}

fn answer(engine: &mut Engine, temperature: f32) -> Answer {
    let sampling = Sampling { temperature, seed: 5, ..Sampling::GREEDY };
    let generation = engine.generate_tokens(&[5, 6, 7, 5, 6], 60, sampling).expect("it fits");
    generation.collect_answer().expect("an answer")
}

/// The place of a drafter.
fn place_of(sub_plans: &[SubPlan], name: &str) -> u32 {
    sub_plans.iter().position(|p| p.name.as_str() == name).expect("measured") as u32
}

/// A plan that drafts otherwise at every temperature, and at every step.
fn plan() -> Plan {
    let fix = Fix::parse("rows=all,predictor=off").expect("a good fix");
    let mut plan = plan_from_profile(&profiled().1, &fix, NOW).expect("a plan");
    let temperatures: Vec<f32> = plan.bands.iter().map(|band| band.temperature).collect();
    assert_eq!(temperatures, TEMPERATURES);
    for (band, name) in plan.bands.iter_mut().zip(["lookup_short", "layer_skip_v40", "layer_skip"]) {
        band.chosen_index = place_of(&band.by_drafter, name);
    }
    plan::decode(&plan::encode(&plan).expect("a valid plan")).expect("a whole file")
}

#[test]
fn an_engine_serves_every_temperature_by_its_part_of_the_plan() {
    let mut engine_of_all = engine(Some(plan()), DrafterChoice::Unguarded);
    let mut plain = engine(None, DrafterChoice::Planned);
    let mut drafted = 0;
    // Every change of temperature, both ways.
    for (temperature, recorded, drafter) in [
        (0.0, 0.0, "lookup"),
        (0.6, 0.6, "layer_skip"),
        (0.0, 0.0, "lookup"),
        (1.0, 1.0, "layer_skip"),
        (0.7, 0.6, "layer_skip"),
        (2.0, 1.0, "layer_skip"),
        (0.2, 0.0, "lookup"),
        (0.2, 0.0, "lookup"),
    ] {
        let (expected, found) = (answer(&mut plain, temperature), answer(&mut engine_of_all, temperature));
        assert_eq!(found.token_ids, expected.token_ids, "temperature {temperature}");
        assert_eq!((found.report.plan_temperature, found.report.drafter.as_str()), (Some(recorded), drafter));
        assert_eq!((expected.report.plan_temperature, expected.report.drafter.as_str()), (None, "none"));
        assert!(drafter == "lookup" || found.report.drafted > 0, "nothing drafted at {temperature}");
        drafted += found.report.drafted;
    }
    assert!(drafted > 100, "{drafted} nodes drafted");
}

#[test]
fn a_forced_drafter_serves_by_its_shape_at_each_temperature() {
    let mut plan = plan();
    let forced = |plan: &Plan| engine(Some(plan.clone()), DrafterChoice::Forced("layer_skip_v40".to_owned()));
    let served = |engine: &mut Engine| {
        TEMPERATURES.map(|t| {
            let Answer { report, .. } = answer(engine, t);
            (report.drafter, report.plan_temperature)
        })
    };
    let by_itself = TEMPERATURES.map(|t| ("layer_skip".to_owned(), Some(t)));
    assert_eq!(served(&mut forced(&plan)), by_itself);
    // Where nothing speaks for it, the nearest temperature at which something does.
    let band = &mut plan.bands[2];
    let place = band.by_drafter.iter().position(|p| p.name.as_str() == "layer_skip_v40").expect("measured");
    band.by_drafter.truncate(place);
    band.alternatives.retain(|alternative| usize::from(alternative.drafter) < place);
    let mut nearest = by_itself;
    nearest[2].1 = Some(0.6);
    assert_eq!(served(&mut forced(&plan)), nearest);
    let mut off = engine(Some(plan), DrafterChoice::Plain);
    assert!(served(&mut off).iter().all(|(drafter, _)| drafter == "none"));
}
