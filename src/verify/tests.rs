//! Planted faults, each of which the verification must find, by the property that is meant to, and a subject without
//! any.

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use crate::{
    engine::{Activations, DrafterChoice, Engine, LoadOptions, Loaded, Options},
    measure::CalibrationPrompt,
    model::synthetic::SyntheticSpec,
    runtime::{ExecutableSet, tests::faulty::Fault},
    sample::{Sampler, argmax},
};

use super::{
    Extent, Verdict, Verification, VerifyOptions, answers,
    halt::Halt,
    property_names,
    subject::{Draw, Subject},
    ties, walk,
};

/// The width from which reductions are wrong where they are.
const WRONG_FROM: usize = 8;

fn spec(seed: u64) -> SyntheticSpec {
    SyntheticSpec { context: 128, seed, ..SyntheticSpec::default() }
}

fn loaded(seed: u64) -> Arc<Loaded> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    spec(seed).write_gguf(&path).expect("the model is written");
    let options = LoadOptions {
        tier: None,
        activations: Activations::Native,
        cache: crate::engine::KvFormat::F16,
        threads: Some(1),
        widths: vec![2, 4, WRONG_FROM],
        resident: None,
    };
    Arc::new(Loaded::open(&path, &options).expect("a generated model loads"))
}

fn options() -> VerifyOptions {
    let prompt = |text: &str| CalibrationPrompt { kind: "test".to_owned(), text: text.to_owned() };
    VerifyOptions {
        engine: Options::new("unused"),
        prompts: ["one two three one two", "to be or not to be"].map(prompt).to_vec(),
        extent: Extent::Quick,
        only: None,
    }
}

fn sound(sampler: &mut Sampler, logits: &[f32], position: u64) -> u32 {
    sampler.draw(logits, position)
}

/// Verifies a sound sampler with a fault in every executable. Draws, which take longest, are left out: no executable
/// has a part in them.
fn verified(fault: Fault) -> Verification {
    verified_with(fault, &sound, |name| name != "draws")
}

/// Verifies some properties with a fault in every executable, and this sampler.
fn verified_with(fault: Fault, draw: Draw<'_>, is_wanted: impl Fn(&str) -> bool) -> Verification {
    let loaded = loaded(1);
    let with_fault = |set: &ExecutableSet| set.with_fault(fault);
    let subject = Subject {
        tied: Arc::new(with_fault(&ties::tied_model(&loaded).expect("it loads"))),
        loaded: Arc::new(loaded.with_set(with_fault(loaded.set()))),
        draw,
    };
    let only = property_names().into_iter().filter(|name| is_wanted(name)).collect();
    let options = VerifyOptions { only: Some(only), ..options() };
    walk::verify_subject(&subject, &options, &mut |_| {}).expect("it runs")
}

/// Names of the properties that do not hold; those that need a plan are not checked.
fn broken(verification: &Verification) -> Vec<&'static str> {
    for property in &verification.properties {
        let needs_a_plan = ["plan", "greedy answers", "sampled answers"].contains(&property.name);
        assert_eq!(property.verdict == Verdict::NotChecked, needs_a_plan, "{property:?}");
        assert!(!property.said.is_empty());
    }
    verification.broken().map(|property| property.name).collect()
}

#[track_caller]
fn said<'v>(verification: &'v Verification, name: &str) -> &'v str {
    &verification.properties.iter().find(|property| property.name == name).expect("checked").said
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let verification = verified_with(Fault::None, &sound, |_| true);
    assert!(verification.holds() && broken(&verification).is_empty(), "{verification:?}");
}

#[test]
fn a_reduction_that_depends_on_width_is_found() {
    let verification = verified(Fault::WidthDependentReduction(WRONG_FROM));
    let found = broken(&verification);
    assert!(found.contains(&"row invariance") && !found.contains(&"kernels"), "{verification:?}");
}

#[test]
fn a_sub_layer_that_is_left_out_is_found() {
    let verification = verified(Fault::SubLayerLeftOut);
    assert_eq!(broken(&verification), ["kernels"], "{verification:?}");
}

#[test]
fn a_slot_that_is_off_by_one_is_found() {
    let verification = verified(Fault::OffByOneSlot);
    assert_eq!(broken(&verification), ["cache"], "{verification:?}");
    assert!(said(&verification, "cache").contains("as a fresh prefill has it"), "{verification:?}");
}

#[test]
fn a_tie_that_is_broken_the_wrong_way_is_found() {
    let verification = verified(Fault::HighestIdFirst);
    assert_eq!(broken(&verification), ["ties"], "{verification:?}");
    assert!(said(&verification, "ties").contains("kernels choose"), "{verification:?}");
    let last = |sampler: &mut Sampler, logits: &[f32], position: u64| {
        if !sampler.sampling().is_greedy() {
            return sampler.draw(logits, position);
        }
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        logits.iter().rposition(|logit| *logit == best).expect("one is best") as u32
    };
    let verification = verified_with(Fault::None, &last, |name| name != "draws");
    assert_eq!(broken(&verification), ["ties"], "{verification:?}");
    assert!(said(&verification, "ties").contains("greedy sampling draws"), "{verification:?}");
}

#[test]
fn a_biased_sampler_is_found() {
    let draws = Cell::new(0u64);
    // One time in twelve it draws twice and takes the lower token.
    let biased = |sampler: &mut Sampler, logits: &[f32], position: u64| {
        draws.set(draws.get() + 1);
        let drawn = sampler.draw(logits, position);
        if draws.get().is_multiple_of(12) {
            drawn.min(sampler.draw(logits, position + (1 << 40)))
        } else {
            drawn
        }
    };
    let verification = verified_with(Fault::None, &biased, |_| true);
    assert_eq!(broken(&verification), ["draws"], "{verification:?}");
    assert!(said(&verification, "draws").contains("expected tokens with probabilities"), "{verification:?}");
    let stuck = |_: &mut Sampler, _: &[f32], _: u64| 0;
    let verification = verified_with(Fault::None, &stuck, |name| name == "draws");
    assert_eq!(broken(&verification), ["draws"], "{verification:?}");
}

/// What drafting must not do to draws.
#[test]
fn noise_that_depends_on_a_drafter_and_noise_used_twice_are_found() {
    let redrawn = |sampler: &mut Sampler, logits: &[f32], position: u64| {
        let (drafted, drawn) = (argmax(logits), sampler.draw(logits, position));
        if drawn == drafted { drawn } else { sampler.draw(logits, position + (1 << 40)) }
    };
    let twice = |sampler: &mut Sampler, logits: &[f32], position: u64| sampler.draw(logits, position / 2);
    for (fault, what) in [(&redrawn as &dyn Fn(&mut Sampler, &[f32], u64) -> u32, "after"), (&twice, "pairs")]
    {
        let verification = verified_with(Fault::None, fault, |name| name == "draws");
        assert_eq!(broken(&verification), ["draws"], "{verification:?}");
        assert!(said(&verification, "draws").contains(what), "{verification:?}");
    }
}

#[test]
fn an_answer_that_is_not_plain_decodings_is_found_and_named() {
    let open = |loaded: Arc<Loaded>| {
        let options = Options { drafter: DrafterChoice::Plain, context: Some(96), ..Options::new("unused") };
        Engine::with_loaded(loaded, &options).expect("it opens")
    };
    let (subject, other) = (loaded(1), loaded(2));
    let subject = Subject { tied: Arc::clone(subject.set()), loaded: subject, draw: &sound };
    let questions =
        answers::questions(&subject, &options(), 2, 12, &answers::Terms::sampled()).expect("they fit");
    assert_eq!(questions.len(), 2 * 5);
    let mut judge = answers::Judge { plain: open(Arc::clone(&subject.loaded)), answers: BTreeMap::new() };
    let mut tally = answers::Tally::default();
    let mut same = open(Arc::clone(&subject.loaded));
    let mut different = open(other);
    for (number, question) in questions.iter().enumerate() {
        let mut compare =
            |engine: &mut Engine| answers::compare(&mut judge, engine, "arm", number, question, &mut tally);
        compare(&mut same).expect("the same model answers alike");
        let Err(Halt::Broken(said)) = compare(&mut different) else { panic!("another model went unnoticed") };
        assert!(said.starts_with("arm, prompt") && said.contains("expected token"), "{said}");
    }
}
