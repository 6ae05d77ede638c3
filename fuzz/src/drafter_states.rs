//! Kept states of drafters that learn.

use yggc::{
    plan::{ModelFingerprint, NgramSettings},
    policy::{SkipCosts, SkipSearch, SkipSearchSettings, SkipTimes, TriedSet},
    speculate::{Drafter, DrafterState, Ngram, StepShape},
};

use super::sealed::Seal;

const SEAL: Seal = Seal { magic: b"YGGKEPT\0", version: 1 };
/// Groups of the model whose states are accepted.
const GROUPS: u32 = 12;
/// Tokens of its vocabulary.
const VOCABULARY: usize = 37;
const SHAPE: StepShape =
    StepShape { depth: 4, draft_width: 2, verify_width: 8, top_k: 0, draft_temperature: 1.0 };
const SETTINGS: NgramSettings = NgramSettings { entries: 64, ..NgramSettings::DEFAULT };

/// The model whose states are accepted.
pub fn model() -> ModelFingerprint {
    ModelFingerprint { name: "tiny".to_owned(), digest: "digest".to_owned() }
}

/// A search of that model which tries a set before nearly every step.
pub fn search() -> SkipSearch {
    let times = SkipTimes { verify: vec![(1, 10.0), (8, 25.0)], draft: vec![(1, 6.0), (8, 15.0)] };
    let settings = SkipSearchSettings {
        share: 20.0,
        window: 4,
        interval: 3,
        enough: 2.0,
        ..SkipSearchSettings::default()
    };
    SkipSearch::new(GROUPS, &[4, 7], 4, SkipCosts::new(times, 0.5), settings)
}

/// Searches for some steps; what is tried reproduces more or less by turns.
pub fn steps(search: &mut SkipSearch, count: u32) {
    for step in 0..count {
        search.worked(10.0);
        search.drafted(step % 3 > 0);
        if !search.may_try() {
            continue;
        }
        let set = search.candidate();
        assert!(set.iter().all(|group| group < GROUPS), "{set:?}");
        let matchness = f64::from(step % 5) / 4.0;
        if search.tried(set, matchness) {
            search.compared(TriedSet { set, matchness }, 0.5);
        }
    }
}

/// A drafter that knows no n-grams.
pub fn ngram() -> Ngram {
    Ngram::new(SETTINGS, &SHAPE).expect("settings that fit")
}

/// Reads states in the form of [`Seal::file`], goes on from each and keeps it again. Whether all were accepted.
pub fn check(input: &[u8]) -> bool {
    let Ok(states) = DrafterState::decode(&SEAL.file(input), &model()) else { return false };
    let again = DrafterState::encode(&states, &model());
    let read = DrafterState::decode(&again, &model()).expect("as written");
    assert!(DrafterState::encode(&read, &model()) == again, "{states:?} and {read:?}");
    states.iter().all(|state| match state {
        DrafterState::Swift(state) => {
            let mut search = search();
            if search.restore((**state).clone()).is_err() {
                return false;
            }
            steps(&mut search, 24);
            let counts = search.counts();
            let shares = [counts.matchness, counts.skip_ratio];
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{counts:?}");
            true
        }
        DrafterState::Ngram(_) => {
            let mut restored = ngram();
            if restored.restore(state, VOCABULARY).is_err() {
                assert_eq!(restored.state(), ngram().state(), "a state that was refused left something");
                return false;
            }
            restored.begin(&[1, 2, 3, 1, 2]);
            let (kept, mut again) = (restored.state().expect("it keeps one"), ngram());
            again.restore(&kept, VOCABULARY).expect("what was kept is restored");
            assert_eq!(again.state(), Some(kept));
            true
        }
    })
}
