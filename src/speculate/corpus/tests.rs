//! Stores against a judge that looks through all snippets, and damaged files.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    Corpus, CorpusStore, LONGEST_MATCH, Match, Offer, PRIOR_TOKENS, PROBES, StoreError,
    layout::{HEADER_BYTES, Header, PRIOR_BYTES},
    prior,
};
use crate::sample::Candidate;

const MODEL: [u8; 32] = [7; 32];

fn corpus(snippets: &[Vec<u32>]) -> Corpus {
    let mut corpus = Corpus::default();
    snippets.iter().for_each(|snippet| corpus.push(snippet, &[]));
    corpus
}

fn written(snippets: &[Vec<u32>], vocabulary: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.store");
    fs::write(&path, corpus(snippets).encode(vocabulary, MODEL).unwrap().0).unwrap();
    (folder, path)
}

/// What follows `pattern` in the snippets, with how often.
fn followers(snippets: &[Vec<u32>], pattern: &[u32]) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    for snippet in snippets {
        for window in snippet.windows(pattern.len() + 1) {
            if let Some((next, before)) = window.split_last()
                && before == pattern
            {
                *found.entry(*next).or_default() += 1;
            }
        }
    }
    found
}

fn listed(store: &CorpusStore, found: &Match) -> BTreeMap<u32, usize> {
    let mut listed = BTreeMap::new();
    store.continuations(found.occurrences, found.length, |token, occurrences| {
        assert_eq!(listed.insert(token, occurrences.count()), None, "{token} was shown twice");
    });
    listed
}

proptest! {
    #[test]
    fn finds_what_the_judge_finds(
        snippets in proptest::collection::vec(proptest::collection::vec(0u32..4, 0..60), 0..12),
        text in proptest::collection::vec(0u32..4, 1..30),
        longest in 1..=LONGEST_MATCH,
        shortest in 1usize..4,
    ) {
        let (_folder, path) = written(&snippets, 4);
        let store = CorpusStore::open(&path).unwrap();
        let tokens: usize = snippets.iter().map(Vec::len).sum();
        prop_assert_eq!(store.tokens(), tokens as u64);

        let lengths = (shortest..=longest.min(text.len())).rev();
        let suffix = |length: usize| &text[text.len() - length..];
        let expected = lengths.map(|l| (l, followers(&snippets, suffix(l)))).find(|(_, f)| !f.is_empty());
        let found = store.longest_match(&text, longest, shortest);
        prop_assert_eq!(found.map(|m| m.length), expected.as_ref().map(|(length, _)| *length));
        let (Some(found), Some((_, expected))) = (found, expected) else { return Ok(()) };
        prop_assert_eq!(found.occurrences.count(), expected.values().sum::<usize>());
        let listed = listed(&store, &found);
        prop_assert!(listed.iter().all(|(token, count)| expected.get(token) == Some(count)));
        let frequent = |count: usize| found.occurrences.count() <= PROBES || count * PROBES >= found.occurrences.count();
        for (token, count) in &expected {
            prop_assert!(listed.contains_key(token) || !frequent(*count), "{} of {:?}", token, expected);
        }
    }

    #[test]
    fn a_file_overwritten_while_it_is_mapped_gives_tokens_of_the_vocabulary(
        words in proptest::collection::vec(any::<u32>(), 1..40),
        text in proptest::collection::vec(0u32..4, 4..10),
    ) {
        let snippets = vec![vec![0, 1, 2, 3, 0, 1, 2, 0, 1, 3, 1, 2, 3, 0, 0, 1]; 3];
        let (_folder, path) = written(&snippets, 4);
        let store = CorpusStore::open(&path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let payload = &mut bytes[HEADER_BYTES..];
        for (i, word) in words.iter().cycle().take(payload.len() / 4).enumerate() {
            payload[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
        }
        // In place: the mapped pages change.
        fs::write(&path, &bytes).unwrap();
        if let Some(found) = store.longest_match(&text, 8, 1) {
            store.continuations(found.occurrences, found.length, |token, occurrences| {
                assert!(token < 4 && occurrences.count() > 0);
            });
        }
    }
}

#[test]
fn a_store_does_not_depend_on_how_its_suffixes_end() {
    let same = vec![vec![5; 100], vec![5; 100], vec![5; 7]];
    let (_folder, path) = written(&same, 6);
    let store = CorpusStore::open(&path).unwrap();
    let found = store.longest_match(&[5; 40], LONGEST_MATCH, 2).unwrap();
    assert_eq!((found.length, found.occurrences.count()), (16, 2 * (100 - 16)));
    assert_eq!(listed(&store, &found), BTreeMap::from([(5, 2 * (100 - 16))]));
    assert_eq!(store.longest_match(&[1, 5, 3], 4, 1), None);
    assert_eq!(store.longest_match(&[], 4, 1), None);
    assert_eq!(store.longest_match(&[5], 4, 2), None);
}

#[test]
fn the_same_snippets_give_the_same_bytes_and_another_order_another_digest() {
    let snippets = vec![vec![1, 2, 3], vec![2, 3, 1]];
    let (_a, first) = written(&snippets, 4);
    let (_b, again) = written(&snippets, 4);
    assert_eq!(fs::read(&first).unwrap(), fs::read(again).unwrap());
    let (_c, other) = written(&[snippets[1].clone(), snippets[0].clone()], 4);
    let digest = CorpusStore::open(&first).unwrap().digest();
    assert!(CorpusStore::open_expecting(&first, &digest).is_ok());
    let refused = CorpusStore::open_expecting(&other, &digest).unwrap_err();
    assert!(matches!(&refused, StoreError::OtherStore { expected, .. } if *expected == digest), "{refused}");
    assert!(refused.to_string().contains("give the one that was profiled"));
    let store = CorpusStore::open(&first).unwrap();
    assert!(store.expect_model(&MODEL).is_ok());
    assert!(matches!(store.expect_model(&[8; 32]), Err(StoreError::OtherModel { .. })));
    assert!(store.expect_vocabulary(4).is_ok() && store.expect_vocabulary(5).is_ok());
    assert!(matches!(store.expect_vocabulary(3), Err(StoreError::Vocabulary { expected: 3, found: 4, .. })));
}

#[test]
fn every_damaged_byte_and_every_truncation_is_refused() {
    let (_folder, path) = written(&[vec![1, 2, 3, 1, 2], vec![3, 3]], 4);
    let good = fs::read(&path).unwrap();
    let refusal = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        CorpusStore::open(&path).unwrap_err()
    };
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            let error = refusal(&bytes);
            let expected = match at {
                0..8 => "begins with `YGGCORP`",
                8..12 => "expected format ",
                16..56 => "bytes, found ",
                _ => "expected the checksum ",
            };
            assert!(error.to_string().contains(expected), "byte {at}: {error}");
        }
    }
    for length in 0..good.len() {
        let error = refusal(&good[..length]);
        let fits = match length {
            0 => matches!(error, StoreError::Storage(_)),
            _ => error.to_string().contains(&format!("bytes, found {length} bytes")),
        };
        assert!(fits, "{length} bytes: {error}");
    }
    assert!(refusal(&[&good[..], &[0]].concat()).to_string().contains("bytes, found"));
    assert!(refusal(b"GGUF and more").to_string().contains("`GGUF and`"));
    fs::write(&path, &good).unwrap();
    assert!(CorpusStore::open(&path).is_ok());
    assert!(
        CorpusStore::open(&path.with_extension("none")).unwrap_err().to_string().contains("say where it is")
    );
}

#[test]
fn lengths_beyond_any_file_are_refused() {
    let header =
        Header { vocabulary: 1, tokens: u64::MAX, snippets: u64::MAX, priors: [u64::MAX; 3], model: MODEL };
    assert_eq!(header.file_bytes(), 120 + (12 + 3 * 60) * u128::from(u64::MAX));
}

/// A text of many repeated phrases among others, as text is.
fn phrases(tokens: usize) -> Vec<Vec<u32>> {
    let mut state = 1u64;
    let mut below = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let known: Vec<Vec<u32>> = (0..500).map(|_| (0..12).map(|_| below(8_000) as u32).collect()).collect();
    let snippet = |_| {
        let pieces = (0..8).map(|_| known[(below(500) * below(500) / 500) as usize].clone());
        pieces.collect::<Vec<_>>().concat()
    };
    (0..tokens.div_ceil(96)).map(snippet).collect()
}

#[test]
#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "the time of a lookup is shown, not judged"
)]
fn a_store_of_200_000_tokens_stays_small_and_quick_to_ask() {
    let snippets = phrases(200_000);
    let (_folder, path) = written(&snippets, 8_000);
    let store = CorpusStore::open(&path).unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(store.tokens() >= 200_000 && bytes <= 9 * store.tokens(), "{bytes} bytes");
    let texts: Vec<&[u32]> = snippets.iter().map(|snippet| &snippet[..40]).collect();
    let start = Instant::now();
    let mut visited = 0;
    for text in &texts {
        let found = store.longest_match(text, LONGEST_MATCH, 2).expect("it stands there");
        assert_eq!(found.length, LONGEST_MATCH);
        store.continuations(found.occurrences, found.length, |_, _| visited += 1);
    }
    let each = start.elapsed() / u32::try_from(texts.len()).unwrap();
    println!("{} lookups in {} tokens, {each:?} each, {visited} continuations", texts.len(), store.tokens());
    assert!(visited >= texts.len());
}

/// A few tokens with probabilities that follow from one byte.
fn offer(seed: u8) -> Offer {
    let token = u32::from(seed % 5);
    let candidate = |(i, p): (u32, f32)| Candidate { token: (token + i) % 7, log_prob: p.ln() };
    Offer::of(&(0..).zip([0.5, 0.25, 0.125]).map(candidate).collect::<Vec<_>>())
}

/// What the tables should say after `last`, the very last token first: the mean over all places of the longest known
/// context.
fn expected_prior(snippets: &[(Vec<u32>, Vec<u8>)], last: &[u32]) -> Option<BTreeMap<u32, f64>> {
    (1..=last.len().min(PRIOR_TOKENS)).rev().find_map(|length| {
        let mut places = Vec::new();
        for (snippet, seeds) in snippets {
            for at in (length - 1)..snippet.len().min(seeds.len()) {
                if (0..length).all(|back| snippet[at - back] == last[back]) {
                    places.push(offer(seeds[at]));
                }
            }
        }
        let mut mean = BTreeMap::new();
        for candidate in places.iter().flat_map(Offer::candidates) {
            *mean.entry(candidate.token).or_default() +=
                f64::from(candidate.log_prob).exp() / places.len() as f64;
        }
        (!places.is_empty()).then_some(mean)
    })
}

proptest! {
    #[test]
    fn prior_tables_say_what_the_judge_says(
        snippets in proptest::collection::vec(
            (proptest::collection::vec(0u32..4, 0..30), proptest::collection::vec(any::<u8>(), 0..40)),
            0..8,
        ),
        last in proptest::collection::vec(0u32..5, 0..6),
    ) {
        let mut corpus = Corpus::default();
        for (snippet, seeds) in &snippets {
            let offers: Vec<Offer> = seeds.iter().take(snippet.len()).map(|seed| offer(*seed)).collect();
            corpus.push(snippet, &offers);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.store");
        let (bytes, priors) = corpus.encode(7, MODEL).unwrap();
        fs::write(&path, bytes).unwrap();
        let store = CorpusStore::open(&path).unwrap();
        prop_assert_eq!(store.priors(), priors);
        let found = store.prior(&last).map(|(_, offer)| {
            offer.candidates().map(|c| (c.token, f64::from(c.log_prob).exp())).collect::<Vec<_>>()
        });
        let expected = expected_prior(&snippets, &last);
        prop_assert_eq!(found.is_some(), expected.is_some());
        let (Some(found), Some(expected)) = (found, expected) else { return Ok(()) };
        prop_assert!(found.is_sorted_by(|a, b| a.1 >= b.1), "{:?}", found);
        prop_assert_eq!(found.len(), expected.len());
        for (token, p) in found {
            // What goes in and what comes out are rounded to 1/2048 of a nat.
            prop_assert!((p / expected[&token] - 1.0).abs() < 1e-3, "{} of {} in {:?}", p, token, expected);
        }
    }
}

#[test]
fn of_more_contexts_than_fit_the_frequent_ones_are_kept_and_of_equals_the_shorter() {
    let snippet = [1, 2, 3, 1, 2, 4, 5];
    let symbols: Vec<u32> = snippet.iter().map(|token| token + 1).chain([0]).collect();
    let offers: Vec<(u32, Offer)> = (0..7u8).map(|at| (u32::from(at), offer(at))).collect();
    let contexts = |most: usize| {
        let (bytes, numbers) = prior::encode(&symbols, &offers, most * PRIOR_BYTES);
        let entry = |entry: &[u8; PRIOR_BYTES]| {
            let known = entry[..12].as_chunks().0.iter().map(|token| u32::from_le_bytes(*token));
            known.take_while(|token| *token != u32::MAX).collect::<Vec<u32>>()
        };
        let contexts: Vec<Vec<u32>> = bytes.as_chunks().0.iter().map(entry).collect();
        assert_eq!(numbers.iter().sum::<u64>() as usize, contexts.len());
        contexts
    };
    // The last token first. 2 always follows 1, so that 1 2 says nothing more; what comes before tells the two apart.
    let all: [&[u32]; 7] = [&[1], &[2], &[3], &[4], &[5], &[1, 3], &[2, 1, 3]];
    assert_eq!(contexts(100), all);
    assert_eq!(contexts(3), [&[1][..], &[2], &[3]]);
    assert_eq!(contexts(0), Vec::<Vec<u32>>::new());
}
