//! States as files: what survives, and what is refused without a panic.

use super::*;
use crate::policy::{SkipCosts, SkipSearch, SkipSearchSettings, SkipTimes};

fn model() -> ModelFingerprint {
    ModelFingerprint { name: "made up".to_owned(), digest: "d".to_owned() }
}

fn swift() -> DrafterState {
    let times = SkipTimes { verify: vec![(1, 100.0)], draft: vec![(1, 60.0)] };
    let costs = SkipCosts::new(times, 0.5);
    let search = SkipSearch::new(24, &[4, 7], 4, costs, SkipSearchSettings::default());
    DrafterState::Swift(Box::new(search.state().clone()))
}

fn ngram() -> DrafterState {
    let (forward, backward) = (vec![vec![1, 2, 3], vec![2, 3]], vec![vec![4, 5]]);
    DrafterState::Ngram(NgramState { order: 3, parts: true, forward, backward })
}

/// A file of `--ngram-state` with the n-grams of [`ngram`].
fn former_ngrams() -> Vec<u8> {
    let numbers = [3_u32, 1, 2, 3, 1, 2, 3, 2, 2, 3, 1, 2, 4, 5];
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    let payload: Vec<u8> = [1, 0, 0, 0, b'd'].into_iter().chain(numbers).collect();
    Seal { magic: b"YGGRAMS\0", ..SEAL }.close(&payload)
}

fn former_skip() -> Vec<u8> {
    let DrafterState::Swift(state) = swift() else { unreachable!("made above") };
    Seal { magic: b"YGGSKIP\0", ..SEAL }.encode(&(model(), state)).unwrap()
}

fn files() -> [(Vec<u8>, Vec<DrafterState>); 3] {
    let both = vec![ngram(), swift()];
    [
        (DrafterState::encode(&both, &model()), both),
        (former_ngrams(), vec![ngram()]),
        (former_skip(), vec![swift()]),
    ]
}

#[test]
fn states_survive_files_those_of_the_former_options_too() {
    for (file, states) in files() {
        assert_eq!(DrafterState::decode(&file, &model()).unwrap(), states);
    }
}

#[test]
fn damaged_and_foreign_files_are_refused_with_the_reason() {
    let refusal = |bytes: &[u8], model: &ModelFingerprint| {
        let refusal = DrafterState::decode(bytes, model).unwrap_err().to_string();
        assert!(refusal.contains("; name another file or remove the file"), "{refusal}");
        refusal
    };
    let other = ModelFingerprint { name: "other".to_owned(), digest: "e".to_owned() };
    for (file, _) in files() {
        for place in 0..file.len() {
            let mut damaged = file.clone();
            damaged[place] ^= 1 << (place % 8);
            refusal(&damaged, &model());
            refusal(&file[..place], &model());
        }
        assert!(refusal(&[&file[..], &[0]].concat(), &model()).contains("bytes, found"));
        let foreign = refusal(&file, &other);
        assert!(foreign.contains("expected the model other (e), found the model") && foreign.contains("(d)"));
    }
    let plan = b"YGGPLAN\0 and much more than a header has, so that it is read";
    assert!(refusal(plan, &model()).contains("YGGKEPT"));
}

#[test]
fn former_n_grams_of_another_length_than_they_say_are_refused() {
    let payload = former_ngrams()[52..].to_vec();
    let seal = Seal { magic: b"YGGRAMS\0", ..SEAL };
    for length in 0..payload.len() {
        assert!(DrafterState::decode(&seal.close(&payload[..length]), &model()).is_err(), "{length}");
    }
    for more in [&[0; 1][..], &[0; 4]] {
        let longer = [&payload[..], more].concat();
        assert!(DrafterState::decode(&seal.close(&longer), &model()).is_err());
    }
}
