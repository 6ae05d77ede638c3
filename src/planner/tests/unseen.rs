//! What a plan expects of prompts that were not recorded, against such prompts.
use ygg_profiler::{CellSamples, LivePrompt, LiveStep, LiveTrace, Profile, Stage, TokenTrace};

use super::{
    search::{good_profile, plan},
    synthetic::{name, profile, samples},
};
use crate::plan::{ContextRange, DrafterKind, Plan, SubPlan, Unseen};

/// Numbers of a linear congruence.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A request whose answer repeats its beginning or does not, to a degree of its own.
pub(super) fn request(dice: &mut Dice) -> TokenTrace {
    let repeats = dice.below(100);
    request_that(repeats, dice)
}

/// A request of whose answer so many tokens of a hundred repeat its beginning.
fn request_that(repeats: u64, dice: &mut Dice) -> TokenTrace {
    let prompt: Vec<u32> = (0..8).map(|i| 100 + i).collect();
    let output = (0..40)
        .map(|i| if dice.below(100) < repeats { prompt[(i + 1) % 8] } else { 200 + dice.below(1000) as u32 });
    TokenTrace { kind: "any".into(), temperature: 0.0, seed: 0, output: output.collect(), prompt }
}

/// Every two rows cost a tenth of a plain step more.
fn priced(requests: Vec<TokenTrace>) -> Profile {
    let verify = [(1, 100.0), (2, 105.0), (4, 125.0), (6, 145.0), (9, 175.0)];
    let mut cells: Vec<_> = verify.map(|(width, us)| samples("verify", width, us)).to_vec();
    cells.push(samples("draft:lookup", 1, 1.0));
    profile(cells, vec![], requests)
}

fn planned(requests: Vec<TokenTrace>, fix: &str) -> Plan {
    plan(&priced(requests), fix).unwrap()
}

fn lookup(plan: &Plan) -> &SubPlan {
    plan.bands[0].for_drafter("lookup").unwrap()
}

/// Intervals of many profiles of few prompts, against the speed-up over as many other prompts.
#[test]
fn nine_of_ten_intervals_hold_what_other_prompts_give() {
    let mut dice = Dice(3);
    let (mut inside, mut narrow, runs) = (0, 0, 120);
    for _ in 0..runs {
        let recorded = planned((0..24).map(|_| request(&mut dice)).collect(), "");
        let shape = lookup(&recorded).shape();
        let ContextRange { row_choice, predicted, unseen, .. } = lookup(&recorded).first();
        let Unseen { speedup, least, low, high, prompts } = *unseen;
        assert_eq!(prompts, 24);
        assert!(
            low < least && least < speedup && speedup < high && speedup <= predicted.speedup,
            "{unseen:?}"
        );
        let rows = if row_choice.calibration.is_some() { "best" } else { "all" };
        let fix = format!(
            "drafter=lookup,Dd={},Wd={},Wv={},rows={rows}",
            shape.depth, shape.draft_width, shape.verify_width
        );
        let others = planned((0..24).map(|_| request(&mut dice)).collect(), &fix);
        let found = lookup(&others).first().predicted.speedup;
        inside += usize::from(low <= found && found <= high);
        narrow += usize::from(high / low < 1.6);
    }
    assert!((runs * 82 / 100..=runs * 97 / 100).contains(&inside), "{inside} of {runs} inside");
    assert!(narrow > runs / 2, "{narrow} of {runs} intervals say anything");
}

#[test]
fn a_gain_that_one_prompt_makes_is_doubted() {
    let copied: Vec<u32> = (0..40).map(|i| 101 + i % 8).collect();
    let strange = |first: u32| (0..40).map(|i| first + i).collect();
    let request = |output| TokenTrace {
        kind: "any".into(),
        temperature: 0.0,
        seed: 0,
        prompt: (100..109).collect(),
        output,
    };
    let others = (1..8).map(|i| request(strange(1000 * i)));
    let one = planned(others.chain([request(copied.clone())]).collect(), "");
    let lookup = lookup(&one);
    assert!(
        lookup.first().predicted.speedup > 1.05 && !lookup.first().unseen.is_gain(),
        "{:?}",
        lookup.first().unseen
    );
    assert!(one.bands[0].chosen().is_plain());
    // The same gain of every prompt is none to doubt.
    let all = planned((0..8).map(|_| request(copied.clone())).collect(), "");
    assert!(
        !all.bands[0].chosen().is_plain() && all.bands[0].chosen().first().unseen.least > 1.05,
        "{:?}",
        all.bands[0].chosen().first().unseen
    );
}

#[test]
fn of_shapes_that_prompts_do_not_tell_apart_the_simplest_is_taken() {
    let mut dice = Dice(9);
    let plan = planned((0..30).map(|_| request(&mut dice)).collect(), "drafter=lookup");
    let best = lookup(&plan);
    let fastest = plan.bands[0].priced().find(|shape| shape.name == best.name).unwrap();
    let weight = |shape: &crate::plan::Shape| (shape.verify_width, shape.depth, shape.draft_width);
    assert!(weight(&best.shape()) <= weight(&fastest.shape));
    assert!(best.first().predicted.speedup > 0.97 * fastest.speedup, "{best:?}");
}

/// What rows cost relative to one row changed while the profile was measured: it may change again.
#[test]
fn a_machine_that_changed_while_it_was_measured_is_trusted_less() {
    let steady = good_profile();
    let visits = |factors: &[f64]| -> Vec<CellSamples> {
        let of = |width, us: f64| {
            let mut visited = samples("verify", width, us);
            let times = factors.iter().map(|factor| if width == 1 { us } else { factor * us });
            visited.samples_us = times.collect();
            visited
        };
        let table = steady.table().unwrap();
        let us = |width| table.latency_us(&Stage::Verify, width, 0).unwrap();
        [1, 4].map(|width| of(width, us(width))).to_vec()
    };
    let planned = |visits| plan(&Profile { visits, ..steady.clone() }, "").unwrap();
    let [unknown, same, changed] =
        [planned(Vec::new()), planned(visits(&[1.0; 4])), planned(visits(&[0.6, 1.4, 0.6, 1.4]))];
    assert_eq!(unknown, same);
    let (sure, doubted) = (
        same.bands[0].chosen().first().unseen,
        changed.bands[0].for_drafter("lookup").unwrap().first().unseen,
    );
    assert_eq!(same.bands[0].chosen().name.as_str(), "lookup");
    assert!((sure.speedup / doubted.speedup - 1.0).abs() < 1e-9 && sure.prompts == doubted.prompts);
    assert!(
        sure.is_gain() && doubted.least < 0.85 * sure.least && doubted.high > 1.4 * sure.high,
        "{doubted:?}"
    );
}

/// A drafter that learns, and guesses the next three tokens of the prompts' pattern.
fn recorded_live(requests: &[TokenTrace]) -> LiveTrace {
    let prompt = |TokenTrace { kind, prompt, output, .. }: &TokenTrace| {
        let mut steps = Vec::new();
        let mut emitted = 1;
        while emitted + 3 < output.len() {
            let guessed = (0..3).map(|i| prompt[(emitted + i + 1) % prompt.len()]);
            let tokens: Vec<u32> = [output[emitted - 1]].into_iter().chain(guessed).collect();
            let accepted = tokens[1..].iter().zip(&output[emitted..]).take_while(|(a, b)| a == b).count();
            let verified = output[emitted..=emitted + accepted].to_vec();
            emitted += verified.len();
            steps.push(LiveStep {
                context: u32::try_from(prompt.len() + emitted - verified.len() - 1).unwrap(),
                parents: vec![0, 0, 1, 2],
                values: vec![1.0, 0.9, 0.8, 0.7],
                tokens,
                pinned: Vec::new(),
                verified,
            });
        }
        LivePrompt { kind: kind.clone(), steps }
    };
    LiveTrace {
        drafter: name("recycling"),
        temperature: 0.0,
        depth: 3,
        width: 1,
        nodes: 4,
        prompts: requests.iter().map(prompt).collect(),
    }
}

/// The first prompts are easier than the others, and one drafter was recorded along them alone.
#[test]
fn a_drafter_of_few_easy_prompts_is_judged_by_what_others_found_the_rest_to_be() {
    let mut dice = Dice(5);
    let repeats = |place: u64| if place < 12 { 60 + place * 3 } else { 10 + place };
    let requests: Vec<TokenTrace> = (0..60).map(|place| request_that(repeats(place), &mut dice)).collect();
    let planned = |live: LiveTrace| {
        let mut profile = priced(requests.clone());
        profile.drafters.push(DrafterKind::Recycling.describe(name("recycling")));
        profile.measurements.push(samples("draft:recycling", 1, 1.0));
        profile.live_traces.push(live);
        plan(&profile, "").unwrap().bands[0].for_drafter("recycling").unwrap().clone()
    };
    let [all, few] = [60, 12].map(|count| planned(recorded_live(&requests[..count])));
    let off = |expected: f64| (expected / all.first().unseen.speedup - 1.0).abs();
    let (before, after) = (off(few.first().predicted.speedup), off(few.first().unseen.speedup));
    assert!(before > 0.25 && after < before / 2.5, "{before} and {after} beside {:?}", all.first().unseen);
    let Unseen { low, high, prompts, .. } = few.first().unseen;
    assert!(prompts == 12 && (low..high).contains(&all.first().unseen.speedup), "{:?}", few.first().unseen);
    // Of answers that began otherwise nobody knows which prompts they are of.
    let mut others = recorded_live(&requests[..12]);
    others.prompts.iter_mut().for_each(|prompt| prompt.steps[0].tokens[0] += 1);
    assert!(off(planned(others).first().unseen.speedup) > 0.8 * before);
}
