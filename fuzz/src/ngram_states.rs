//! Saved dictionaries of the drafter `ngram`.

use yggc::{
    plan::NgramSettings,
    speculate::{Drafter, Ngram, StepShape},
};

use super::sealed::Seal;

const SEAL: Seal = Seal { magic: b"YGGRAMS\0", version: 1 };
/// The model whose states are accepted.
pub const MODEL: &str = "digest";
/// Tokens of its vocabulary.
pub const VOCABULARY: usize = 37;
const SHAPE: StepShape =
    StepShape { depth: 4, draft_width: 2, verify_width: 8, top_k: 0, draft_temperature: 1.0 };
const SETTINGS: NgramSettings = NgramSettings { entries: 64, ..NgramSettings::DEFAULT };

/// A drafter that knows nothing.
pub fn drafter() -> Ngram {
    Ngram::new(SETTINGS, &SHAPE).expect("settings that fit")
}

/// Restores a state in the form of [`Seal::file`], goes on from it and saves it.
pub fn check(input: &[u8]) -> bool {
    let mut restored = drafter();
    if restored.restore(&SEAL.file(input), MODEL, VOCABULARY).is_err() {
        assert_eq!(restored.save(MODEL), drafter().save(MODEL), "a state that was refused left something");
        return false;
    }
    restored.begin(&[1, 2, 3, 1, 2]);
    let saved = restored.save(MODEL);
    let mut again = drafter();
    again.restore(&saved, MODEL, VOCABULARY).expect("what was saved is restored");
    assert_eq!(again.save(MODEL), saved);
    true
}
