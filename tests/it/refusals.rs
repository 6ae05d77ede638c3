//! What a session and a decoder refuse: a typed error that says what was expected and found, and nothing changed.

use std::sync::Arc;

use yggc::{
    plan::{DrafterKind, LayerSkipSettings},
    runtime::{ExecutableSet, Pinning, RuntimeError, Session, SessionOptions, SkipSet},
    sample::Sampling,
    speculate::{BandSteps, Decoder, Limits, Lookup, SelfDrafter, SpeculateError, StepShape, make_drafter},
};

use crate::tiny_model::{Class, MODEL_CONTEXT, best_tier, bits, models, session};

const SHAPE: StepShape =
    StepShape { depth: 3, draft_width: 4, verify_width: 8, top_k: 4, draft_temperature: 1.0 };

fn set() -> &'static Arc<ExecutableSet> {
    models()[0].set(Class::native(best_tier()))
}

#[track_caller]
fn says(error: &impl std::error::Error, parts: &[&str]) {
    let message = error.to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message:?} lacks one of {parts:?}");
}

#[test]
fn a_refused_prompt_leaves_the_session_as_it_was() {
    let unknown = set().vocabulary() as u32;
    let mut subject = session(set(), 16, 1, 1);
    let mut untouched = session(set(), 16, 1, 1);
    for session in [&mut subject, &mut untouched] {
        session.prefill(&[5, 6, 7]).expect("it fits");
    }
    let refused = |session: &mut Session, tokens: &[u32]| {
        let errors = [
            session.prefill(tokens).map(drop).unwrap_err(),
            session.score(tokens, |_, _| panic!("nothing is scored")).unwrap_err(),
        ];
        errors.map(|error| {
            assert_eq!(session.committed(), 3);
            error
        })
    };
    for error in refused(&mut subject, &[1; 14]) {
        assert!(matches!(error, RuntimeError::ContextFull { needed: 17, context: 16, .. }), "{error:?}");
        says(&error, &["17", "16", "a longer context", &MODEL_CONTEXT.to_string()]);
    }
    for error in refused(&mut subject, &[1, unknown, 2]) {
        assert!(matches!(error, RuntimeError::Token { found, .. } if found == unknown), "{error:?}");
        says(&error, &[&unknown.to_string()]);
    }
    let error = subject.restart(&[1; 17]).map(drop).unwrap_err();
    assert!(matches!(error, RuntimeError::ContextFull { needed: 17, .. }) && subject.committed() == 3);
    let found = bits(subject.prefill(&[9]).expect("it fits"));
    assert_eq!(found, bits(untouched.prefill(&[9]).expect("it fits")));
}

#[test]
fn a_refused_start_leaves_the_request_as_it_was() {
    let decoder = || {
        let mut decoder =
            Decoder::new(session(set(), 32, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
        decoder.start(&[5, 6, 7], Sampling::GREEDY).expect("the prompt fits");
        decoder
    };
    let (mut subject, mut untouched) = (decoder(), decoder());
    let hot = Sampling { temperature: -1.0, ..Sampling::GREEDY };
    let error = subject.start(&[], Sampling::GREEDY).unwrap_err();
    assert!(matches!(error, SpeculateError::EmptyPrompt));
    says(&error, &["empty", "at least one token"]);
    let error = subject.start(&[1; 33], Sampling::GREEDY).unwrap_err();
    assert!(matches!(error, SpeculateError::Runtime(RuntimeError::ContextFull { needed: 33, .. })));
    let error = subject.start(&[1, 1_000_000], Sampling::GREEDY).unwrap_err();
    assert!(matches!(error, SpeculateError::Runtime(RuntimeError::Token { found: 1_000_000, .. })));
    let error = subject.start(&[1], hot).unwrap_err();
    assert!(matches!(error, SpeculateError::Sample(_)));
    says(&error, &["temperature", "-1"]);
    for decoder in [&mut subject, &mut untouched] {
        while decoder.history().len() < 33 {
            decoder.step(Limits { tokens: 1, ends: &[] }, None).expect("the step runs");
        }
    }
    assert_eq!(subject.history(), untouched.history());
}

#[test]
fn a_context_out_of_range_is_refused() {
    for found in [0, 1, MODEL_CONTEXT + 1] {
        let options =
            SessionOptions { context: found, tree_nodes: 1, threads: 1, pinning: Pinning::Floating };
        let error = Session::open(Arc::clone(set()), &options).map(drop).unwrap_err();
        assert!(matches!(error, RuntimeError::ContextRange { .. }), "{error:?}");
        says(&error, &[&format!("context of {found}"), &format!("2 to {MODEL_CONTEXT}")]);
    }
}

#[test]
fn a_width_that_no_executable_holds_is_refused() {
    let mut session = session(set(), 32, 13, 1);
    let error = session.forward(65).map(drop).unwrap_err();
    assert!(matches!(error, RuntimeError::Width { rows: 65, largest: 64 }), "{error:?}");
    says(&error, &["65", "at most 64"]);
    let none = SkipSet::none(set().groups());
    let error = SelfDrafter::layer_skip(&session, none, &StepShape { draft_width: 65, ..SHAPE })
        .map(drop)
        .unwrap_err();
    says(&error, &["draft width", "at most 64", "65"]);
    let refused = |verify_width| {
        let steps = BandSteps::unplanned(None, &StepShape { verify_width, ..SHAPE });
        let open = crate::tiny_model::session(set(), 32, 13, 1);
        Decoder::new(open, vec![steps]).map(drop).unwrap_err()
    };
    let error = refused(65);
    assert!(matches!(error, SpeculateError::Shape { what: "verify width", .. }), "{error:?}");
    says(&error, &["1 to 64", "65"]);
    let error = refused(0);
    assert!(matches!(error, SpeculateError::Plan(_)), "{error:?}");
    says(&error, &["widths that ascend from 1 or more", "width: 0"]);
}

#[test]
fn a_tree_that_the_session_has_no_room_for_is_refused() {
    let error = Decoder::new(session(set(), 32, 12, 1), vec![BandSteps::unplanned(None, &SHAPE)])
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, SpeculateError::Shape { found: 13, .. }), "{error:?}");
    says(&error, &["at most 12", "13"]);
}

#[test]
fn what_a_drafter_cannot_be_is_refused() {
    let groups = set().groups();
    let session = session(set(), 32, 13, 1);
    let kind = DrafterKind::LayerSkip(LayerSkipSettings { skipped: vec![1, groups], head_tokens: None });
    let error = make_drafter(&kind, &SHAPE, &session).map(drop).unwrap_err();
    let SpeculateError::Runtime(RuntimeError::SkipSet { found, .. }) = error else { panic!("{error:?}") };
    assert_eq!(found, groups);
    says(&error, &[&format!("sub-layer {groups}"), &format!("below {groups}")]);
    let error = Lookup::new(2, 3, &SHAPE).map(drop).unwrap_err();
    says(&error, &["shortest match", "found 3"]);
}
