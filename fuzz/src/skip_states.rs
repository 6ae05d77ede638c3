//! Saved search states of the drafter `swift`.

use yggc::{
    plan::ModelFingerprint,
    policy::{SkipCosts, SkipSearch, SkipSearchSettings, SkipTimes, TriedSet, read_skip_state},
};

use super::{in_file::in_file, sealed::Seal};

const SEAL: Seal = Seal { magic: b"YGGSKIP\0", version: 1 };
/// Groups of the model whose states are accepted.
const GROUPS: u32 = 12;

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

/// Reads a state in the form of [`Seal::file`] and goes on searching from it.
pub fn check(input: &[u8]) -> bool {
    let file = SEAL.file(input);
    let read = in_file(&file, |path| read_skip_state(path, &model()));
    let Ok(Some(state)) = read else { return false };
    let mut search = search();
    if search.restore(state).is_err() {
        return false;
    }
    steps(&mut search, 24);
    let counts = search.counts();
    assert!(
        (0.0..=1.0).contains(&counts.matchness) && (0.0..=1.0).contains(&counts.skip_ratio),
        "{counts:?}"
    );
    true
}
