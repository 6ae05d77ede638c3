//! What is checked of executables, sessions and steps.

use std::sync::{Arc, atomic::Ordering};

use ygg_kernels::{Activations, Tier};
use yggc::{
    model::{Model, synthetic::SyntheticExperts},
    plan::Schedule,
    runtime::{ExecutableSet, Exercise, Session},
    sample::{Adjustment, Sampling},
    speculate::{BandSteps, Begin, Decoder, Limits, Reuse, StepShape},
};

use crate::{
    ALLOCATIONS, bytes_kept,
    made::{
        FURTHER, SHAPE, drafter, kept_tokens, model, planned, prompt, retrieval, session_options, set,
        streaming, with_drafts,
    },
};

pub(crate) const SAMPLED: Sampling =
    Sampling { temperature: 0.8, top_k: 0, top_p: 0.95, min_p: 0.02, seed: 3 };

pub(crate) fn decode(decoder: &mut Decoder, steps: usize) {
    for _ in 0..steps {
        decoder.step(Limits { tokens: 100, ends: &[] }, None).expect("the step runs");
    }
}

pub(crate) fn check_steps(
    set: &Arc<ExecutableSet>,
    (name, schedule): (&str, Schedule),
    threads: usize,
    sampling: Sampling,
) {
    let mut session = Session::open(Arc::clone(set), &session_options(threads)).expect("a session opens");
    if ["hidden_state", "eagle3", "block"].iter().any(|reads| name.ends_with(reads)) {
        session.keep_hidden().expect("it was made for that");
    }
    let drafter = drafter(name, &session);
    let steps = match drafter {
        Some(drafter) => planned(drafter, session.set(), schedule),
        None => BandSteps::plain(),
    };
    let mut decoder = Decoder::new(session, vec![steps]).expect("steps for the model");
    decoder.start(&prompt(), sampling).expect("the prompt fits");
    decode(&mut decoder, 3);

    decoder.start(&prompt(), sampling).expect("the prompt fits");
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    decode(&mut decoder, 40);
    let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(
        allocations, 0,
        "{name} on {threads} threads, {schedule}, {sampling:?}: allocations in 40 steps"
    );
    let from = if name == "none" { 0 } else { FURTHER };
    assert_eq!(decoder.range().from, from, "{name} went on to its other range");
    assert_eq!(decoder.stats().drafted > 0, name != "none", "{name} drafted {}", decoder.stats().drafted);
    let is_walked = schedule.walks_on_device() && (sampling.is_greedy() || sampling.top_p == 1.0);
    let walked = if is_walked { 40 } else { 0 };
    assert_eq!(decoder.stats().walked_by_device, walked, "{name}, {schedule}");
    let heads = if schedule == Schedule::HeadAhead { 39 } else { 0 };
    let tries = decoder.stats().skip_search.map_or(0, |counts| counts.tries);
    assert_eq!(tries > 20, name.ends_with("swift"), "{name} tried {tries} sets");
    assert!(heads == 0 || name != "swift" || decoder.stats().heads_ahead > 10, "{name}, {schedule}");
    assert!(name == "swift" || decoder.stats().heads_ahead == heads, "{name}, {schedule}");
}

/// Requests that are adjusted and report log-probabilities, whose steps show whole rows.
pub(crate) fn check_terms(set: &Arc<ExecutableSet>, (name, schedule): (&str, Schedule), sampling: Sampling) {
    let session = Session::open(Arc::clone(set), &session_options(1)).expect("a session opens");
    let drafter = drafter(name, &session);
    let steps = planned(drafter.expect("it drafts"), session.set(), schedule);
    let mut decoder = Decoder::new(session, vec![steps]).expect("steps for the model");
    let adjustment =
        Adjustment { bias: vec![(3, 1.0), (9, -100.0)], repetition: 1.1, frequency: 0.2, presence: -0.1 };
    let prompt = prompt();
    let begin = Begin {
        adjustment: &adjustment,
        log_probs: Some(20),
        reuse: Reuse::Prefix,
        ..Begin::new(&prompt, sampling)
    };
    for request in 0..2 {
        decoder.begin(&begin).expect("the prompt fits").expect("nobody cancels it");
        assert_eq!(decoder.stats().reused > 0, request > 0);
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        decode(&mut decoder, 20);
        let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
        assert_eq!(allocations, 0, "{name}, adjusted, {sampling:?}: allocations in 20 steps");
        let (own, best) = decoder.log_probs().of(0).expect("it was asked for");
        assert!(own <= 0.0 && best.len() == 20);
    }
}

/// Requests of other temperatures, which other drafters serve, in turn.
pub(crate) fn check_bands(set: &Arc<ExecutableSet>, threads: usize) {
    let session = Session::open(Arc::clone(set), &session_options(threads)).expect("a session opens");
    let [lookup, skip] = ["lookup", "layer_skip"].map(|name| drafter(name, &session));
    let narrow = StepShape { depth: 2, draft_width: 1, verify_width: 3, ..SHAPE };
    let mut ahead = BandSteps { temperature: 0.6, ..BandSteps::unplanned(skip, &SHAPE) };
    ahead.sub_plan.schedule = Schedule::HeadAhead;
    let warm = BandSteps { temperature: 1.0, ..BandSteps::plain() };
    let bands = vec![BandSteps::unplanned(lookup, &narrow), ahead, warm];
    let mut decoder = Decoder::new(session, bands).expect("planned widths");
    let mut begun = |temperature: f32| {
        let sampling = Sampling { temperature, seed: 3, ..Sampling::GREEDY };
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        decoder.start(&prompt(), sampling).expect("the prompt fits");
        let started = ALLOCATIONS.load(Ordering::SeqCst);
        decode(&mut decoder, 10);
        let stepped = ALLOCATIONS.load(Ordering::SeqCst) - started;
        assert_eq!(stepped, 0, "at {temperature} on {threads} threads: allocations in 10 steps");
        (started - before, decoder.band())
    };
    // The first request that samples makes room for that.
    begun(0.6);
    begun(0.0);
    // A change of temperature takes no more than the same again.
    for (temperature, band) in [(0.0, 0), (0.6, 1), (1.0, 2), (0.6, 1), (0.0, 0)] {
        let (changed, at) = begun(temperature);
        assert_eq!((changed, at), (begun(temperature).0, band), "at {temperature} on {threads} threads");
    }
}

/// Watching a forward changes nothing about it, and neither do exercises.
pub(crate) fn check_observed(set: &Arc<ExecutableSet>, threads: usize) {
    let mut session = Session::open(Arc::clone(set), &session_options(threads)).expect("a session opens");
    session.restart(&prompt()).expect("the prompt fits");
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let mut forward = session.forward(1).expect("a planned width");
    forward.push(1, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    let mut moments = 0;
    forward.run_observed(&mut |_| moments += 1);
    session.exercise(Exercise::ReadWeights { passes: 1 });
    session.exercise(Exercise::EmptySteps { steps: 3 });
    let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(allocations, 0, "an observed forward on {threads} threads of {moments} moments");
    assert!(moments > 20);
}

/// A store is mapped: of 200,000 tokens nothing is copied, and what the drafter reserves is small.
pub(crate) fn check_store_memory() {
    let (taken, drafter) = bytes_kept(|| retrieval(500));
    assert!(taken <= 16 << 10, "retrieval from 200,000 tokens took {taken} bytes");
    drop(drafter);
}

pub(crate) fn check_memory(set: &Arc<ExecutableSet>, threads: usize) {
    let options = session_options(threads);
    let announced = set.memory(&options).session_bytes;
    let open = || Session::open(Arc::clone(set), &options).expect("a session opens");
    let (taken, session) = bytes_kept(open);
    // Input rows and thread handles are small and not announced.
    let small = 64 << 10;
    assert!(
        taken >= announced && taken <= announced + small,
        "a session on {threads} threads took {taken} bytes, {announced} were announced"
    );
    drop(session);
}

/// Streamed weights are read by threads that allocate nothing either.
pub(crate) fn check_streamed(tier: Tier, experts: Option<SyntheticExperts>) {
    let set = streaming(tier, experts);
    for threads in [1, 2] {
        check_memory(&set, threads);
        check_observed(&set, threads);
        for name in ["none", "lookup", "layer_skip", "trimmed_head"] {
            check_steps(&set, (name, Schedule::Plain), threads, SAMPLED);
        }
    }
}

/// Executables take what they announce, their sessions too, and steps nothing.
pub(crate) fn check_tier(tier: Tier, activations: Activations, is_fastest: bool) {
    let model = model();
    let (taken, set) = bytes_kept(|| set(&model, tier, activations));
    let announced = set.memory(&session_options(1)).weight_bytes;
    // Programs of three widths are kept in addition to the weights.
    assert!(
        taken >= announced && taken <= announced + (1 << 20),
        "executables on {tier} took {taken} bytes, {announced} of weights were announced"
    );
    let trim = || {
        Arc::new(
            set.with_heads(model.weights.as_ref(), &[kept_tokens()], |stored| stored)
                .expect("tokens in order"),
        )
    };
    let (taken, trimmed) = bytes_kept(trim);
    let more = trimmed.memory(&session_options(1)).weight_bytes - announced;
    // Programs of both sets are kept; all weights but the head's are shared.
    assert!(
        more < announced / 2 && taken >= more && taken <= more + (2 << 20),
        "a trimmed head on {tier} took {taken} bytes, {more} of weights were announced"
    );
    for threads in [1, 2] {
        check_memory(&set, threads);
        check_memory(&trimmed, threads);
    }
    // The scalar judge makes copies; only the backends that serve promise to allocate nothing.
    if tier != Tier::Reference {
        check_tier_steps(&model, &set, &trimmed, is_fastest);
    }
}

pub(crate) fn check_tier_steps(
    model: &Model,
    set: &Arc<ExecutableSet>,
    trimmed: &Arc<ExecutableSet>,
    is_fastest: bool,
) {
    for threads in [1, 2] {
        check_observed(set, threads);
        check_bands(set, threads);
    }
    let cut = Sampling { top_k: 40, ..SAMPLED };
    // How tokens are drawn, and what drafts without a model, is the same code on every tier.
    let samplings = if is_fastest { vec![Sampling::GREEDY, SAMPLED, cut] } else { vec![SAMPLED] };
    let names: &[&str] = if is_fastest {
        &[
            "none",
            "lookup",
            "suffix",
            "recycling",
            "ngram",
            "mixed",
            "layer_skip",
            "trimmed_head",
            "mixed_layer_skip",
        ]
    } else {
        &["none", "lookup", "layer_skip", "trimmed_head"]
    };
    let thread_counts: &[usize] = if is_fastest { &[1, 2] } else { &[2] };
    for name in names {
        for threads in thread_counts.iter().copied() {
            for sampling in &samplings {
                check_steps(trimmed, (name, Schedule::Plain), threads, *sampling);
            }
        }
    }
    let drafting = with_drafts(set, model);
    let mixed: &[&str] =
        if is_fastest { &["mixed_model", "mixed_hidden_state", "mixed_eagle3"] } else { &[] };
    for name in ["model", "hidden_state", "eagle3", "block"].iter().chain(mixed).copied() {
        for threads in thread_counts.iter().copied() {
            for sampling in &samplings {
                check_steps(&drafting, (name, Schedule::Plain), threads, *sampling);
            }
        }
    }
    for (threads, sampling) in [(1, SAMPLED), (2, Sampling::GREEDY)] {
        check_steps(&drafting, ("model", Schedule::HeadAhead), threads, sampling);
    }
    for (drafter, threads, sampling) in [
        (("swift", Schedule::Plain), 1, SAMPLED),
        (("swift", Schedule::HeadAhead), 2, Sampling::GREEDY),
        (("confident_swift", Schedule::Plain), 2, Sampling::GREEDY),
    ] {
        check_steps(set, drafter, threads, sampling);
    }
    if is_fastest {
        check_terms(set, ("mixed", Schedule::Plain), Sampling::GREEDY);
        // What looks into a store uses no threads.
        for (name, sampling) in [
            ("retrieval", Sampling::GREEDY),
            ("retrieval_lookup", SAMPLED),
            ("prior", Sampling::GREEDY),
            ("prior", SAMPLED),
        ] {
            check_steps(set, (name, Schedule::Plain), 1, sampling);
        }
    }
    check_terms(set, ("layer_skip", Schedule::HeadAhead), SAMPLED);
    for (threads, sampling) in [(1, SAMPLED), (2, Sampling::GREEDY), (2, cut)] {
        check_steps(set, ("layer_skip", Schedule::HeadAhead), threads, sampling);
        // Those of every device.
        for schedule in [Schedule::Plain, Schedule::HeadAhead] {
            check_steps(set, ("template", schedule), threads, sampling);
        }
    }
}
