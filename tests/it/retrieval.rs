//! Retrieval replayed by the planner and run by a decoder: the same proposals, from the same store.

use std::{collections::BTreeMap, fs, path::Path};

use ygg_profiler::{DrafterFile, DrafterName};
use yggc::{
    plan::{DrafterKind, PlanError, PriorSettings, ReplayDrafter, RetrievalSettings},
    planner::{AcceptedLengths, replay_free},
    sample::{Candidate, Sampling},
    speculate::{
        CorpusStore, Lookup, Prior, Retrieval, SpeculateError, StepShape, StoreError,
        corpus::{Corpus, Offer},
    },
};

use crate::replays::{decoder, planned, profiled, step, widest};

/// What a model offers that half believes in the text and else in the token two places on.
fn offers(text: &[u32]) -> Vec<Offer> {
    let candidate = |(token, log_prob): (&u32, f32)| Candidate { token: *token, log_prob };
    let offer = |next: &[u32]| Offer::of(&next.iter().zip([-0.7, -1.4]).map(candidate).collect::<Vec<_>>());
    text.windows(3).map(|window| offer(&window[1..])).collect()
}

/// Writes a store of these texts.
pub(crate) fn write_store(texts: &[Vec<u32>], vocabulary: usize, path: &Path) {
    let mut corpus = Corpus::default();
    texts.iter().for_each(|text| corpus.push(text, &offers(text)));
    let (bytes, _) = corpus.encode(vocabulary as u32, [1; 32]).expect("a small corpus");
    fs::write(path, bytes).expect("the folder is writable");
}

/// A store of these texts in memory; its file is gone once it is open.
pub(crate) fn store(texts: &[Vec<u32>], vocabulary: usize) -> CorpusStore {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("texts.store");
    write_store(texts, vocabulary, &path);
    CorpusStore::open(&path).expect("it was just written")
}

/// The recorded answers, some of them begun later: what a store may know of what is asked again.
fn texts() -> Vec<Vec<u32>> {
    let (_, profile) = profiled();
    let whole = |from: usize| {
        profile
            .token_traces
            .iter()
            .map(move |request| request.output[from.min(request.output.len())..].to_vec())
    };
    whole(0).chain(whole(7)).collect()
}

/// The store of the recorded answers in a folder, as plans name it.
fn kept(folder: &Path) -> (CorpusStore, DrafterFile) {
    let (loaded, _) = profiled();
    let path = folder.join("texts.store");
    write_store(&texts(), loaded.set().vocabulary(), &path);
    let store = CorpusStore::open(&path).expect("it was just written");
    let file = DrafterFile { path: path.to_str().expect("UTF-8").to_owned(), digest: store.digest() };
    (store, file)
}

/// Answers the recorded requests again, and compares every step with what a replay says of the shape; a replay gives
/// its own limits with every proposal. Gives how many tokens were drafted and accepted.
fn replayed(
    kind: &DrafterKind,
    shapes: &[(usize, usize, usize)],
    made: impl Fn() -> Box<dyn ReplayDrafter>,
) -> (usize, usize) {
    let (loaded, profile) = profiled();
    let description = kind.describe(DrafterName::new(kind.name()).expect("a name"));
    let (mut drafted, mut accepted_sum) = (0, 0);
    for (depth, draft_width, verify_width) in shapes.iter().copied() {
        let shape = StepShape { depth, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 };
        let mut decoder = decoder(&description, shape);
        for request in &profile.token_traces {
            let mut expected = AcceptedLengths::default();
            let mut by_width: BTreeMap<u32, u64> = BTreeMap::new();
            let end = request.prompt.len() + request.output.len();
            decoder.start(&request.prompt, Sampling::GREEDY).expect("the prompt fits");
            while decoder.history().len() < end {
                let left = end - decoder.history().len();
                let (rows, accepted) = step(&mut decoder);
                (drafted, accepted_sum) = (drafted + rows - 1, accepted_sum + accepted);
                expected.record(accepted.min(left), left);
                let width = loaded.set().width_for(rows).expect("the step ran");
                *by_width.entry(width as u32).or_default() += 1;
            }
            let requests = std::slice::from_ref(request);
            let replay = replay_free(requests, &mut *made(), &planned(shape), &widest(verify_width as u32));
            assert_eq!(replay.accepted(), &expected, "{kind:?}, {shape:?}");
            assert_eq!(replay.steps(), &by_width, "{kind:?}, {shape:?}");
        }
    }
    (drafted, accepted_sum)
}

#[test]
fn a_replayed_retrieval_is_the_decoders_step_by_step() {
    const SHAPES: [(usize, usize, usize); 7] =
        [(1, 1, 2), (3, 1, 4), (7, 1, 8), (7, 2, 4), (3, 3, 8), (10, 8, 16), (5, 2, 3)];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (store, file) = kept(folder.path());
    let (mut drafted, mut accepted) = (0, 0);
    for lookup_match in [None, Some((3, 1))] {
        let settings =
            RetrievalSettings { store: file.clone(), longest_match: 16, shortest_match: 2, lookup_match };
        let of_kind = replayed(&settings.into(), &SHAPES, || {
            let drafter = Retrieval::new(store.clone(), 16, 2, &StepShape::PLAIN).expect("lengths in order");
            Box::new(match lookup_match {
                Some((longest, shortest)) => {
                    let lookup = Lookup::new(longest as usize, shortest as usize, &StepShape::PLAIN);
                    drafter.after_lookup(lookup.expect("lengths in order"))
                }
                None => drafter,
            })
        });
        (drafted, accepted) = (drafted + of_kind.0, accepted + of_kind.1);
    }
    assert!(drafted > 1_000 && accepted > 200, "only {accepted} of {drafted} tokens were accepted");
}

#[test]
fn a_replayed_prior_is_the_decoders_step_by_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (store, file) = kept(folder.path());
    let shapes = [(1, 1, 2), (3, 1, 4), (4, 2, 8), (3, 8, 16), (2, 3, 3)];
    let (drafted, accepted) = replayed(&PriorSettings { store: file }.into(), &shapes, || {
        Box::new(Prior::new(store.clone(), &StepShape::PLAIN))
    });
    assert!(drafted > 500 && accepted > 100, "only {accepted} of {drafted} tokens were accepted");
}

#[test]
fn another_store_is_refused_wherever_a_drafter_is_made() {
    let (loaded, _) = profiled();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("texts.store");
    let vocabulary = loaded.set().vocabulary();
    write_store(&texts(), vocabulary, &path);
    let digest = CorpusStore::open(&path).expect("it was just written").digest();
    let file = DrafterFile { path: path.to_str().expect("UTF-8").to_owned(), digest };
    let kind = DrafterKind::Retrieval(RetrievalSettings {
        store: file,
        longest_match: 4,
        shortest_match: 2,
        lookup_match: None,
    });
    let shape = StepShape { depth: 2, draft_width: 1, verify_width: 3, top_k: 0, draft_temperature: 1.0 };
    let options = yggc::runtime::SessionOptions {
        context: 32,
        tree_nodes: shape.tree_nodes(),
        threads: 1,
        pinning: yggc::runtime::Pinning::Floating,
    };
    let session = yggc::runtime::Session::open(loaded.set().clone(), &options).expect("a session opens");
    let make = |kind: &DrafterKind| yggc::speculate::make_drafter(kind, &shape, &session);
    assert!(make(&kind).is_ok());
    let moved = folder.path().join("moved.store");
    fs::rename(&path, &moved).expect("renamed");
    assert!(matches!(make(&kind), Err(SpeculateError::Store(StoreError::Storage(_)))));
    let kind = kind.with_store_at(moved.to_str().expect("UTF-8"));
    assert!(make(&kind).is_ok());
    write_store(&texts()[1..], vocabulary, &moved);
    assert!(matches!(make(&kind), Err(SpeculateError::Store(StoreError::OtherStore { .. }))));
    let invalid = kind.with_store_at("").describe(DrafterName::new("retrieval").expect("a name"));
    assert!(matches!(DrafterKind::from_description(&invalid), Err(PlanError::DrafterParameters { .. })));
}
