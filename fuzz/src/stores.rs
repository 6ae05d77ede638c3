//! Corpus stores: a file mapped, checked, and looked into.

use yggc::{
    plan::{ProposalLimits, ReplayDrafter},
    sample::{Coupling, Sampling},
    speculate::{
        CorpusStore, Prior, Retrieval, StepShape,
        corpus::{LONGEST_MATCH, SORTED_TOKENS},
    },
    tree::TokenTree,
};

use super::in_file::in_file;

const MAGIC: &[u8; 8] = b"YGGCORP\0";
const FORMAT: u32 = 2;
const HEADER_BYTES: usize = 120;
const PRIOR_BYTES: usize = 60;
const SHAPE: StepShape =
    StepShape { depth: 6, draft_width: 3, verify_width: 16, top_k: 0, draft_temperature: 1.0 };

/// Opens a store and looks for what its own tokens go on with. After a zero byte the input is a file; after any other,
/// `n`, it is the number of tokens in the vocabulary, how many entries each prior table has, a byte each, and the words
/// of a file of `n` snippets, whose header is made here.
pub fn check(input: &[u8]) -> bool {
    let file = match input {
        [] => Vec::new(),
        [0, file @ ..] => file.to_vec(),
        [snippets, payload @ ..] => sealed(usize::from(*snippets), payload),
    };
    in_file(&file, |path| {
        let Ok(store) = CorpusStore::open(path) else { return false };
        look(&store, &file);
        true
    })
}

fn sealed(snippets: usize, payload: &[u8]) -> Vec<u8> {
    let mut words = payload.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let vocabulary = words.next().unwrap_or(1);
    let numbers = words.next().unwrap_or(0).to_le_bytes();
    let words: Vec<u32> = words.collect();
    let mut room = words.len() * 4 / PRIOR_BYTES;
    let priors = [numbers[0], numbers[1], numbers[2]].map(|number| {
        let number = usize::from(number).min(room);
        room -= number;
        number
    });
    let entries: usize = priors.iter().sum();
    let prior_words = entries * PRIOR_BYTES / 4;
    let snippets = snippets.min(words.len() - prior_words);
    let tokens = (words.len() - prior_words - snippets) / 2;
    let mut file = MAGIC.to_vec();
    file.extend(FORMAT.to_le_bytes());
    file.extend(vocabulary.to_le_bytes());
    file.extend((tokens as u64).to_le_bytes());
    file.extend((snippets as u64).to_le_bytes());
    priors.iter().for_each(|number| file.extend((*number as u64).to_le_bytes()));
    file.extend([7; 32]);
    let body: Vec<u8> =
        words[..2 * tokens + snippets + prior_words].iter().flat_map(|word| word.to_le_bytes()).collect();
    let digest = blake3::Hasher::new().update(&file).update(&body).finalize();
    file.extend(digest.as_bytes());
    file.extend(body);
    file
}

fn look(store: &CorpusStore, file: &[u8]) {
    let priors: u64 = store.priors().iter().sum();
    let bytes = store.tokens() * 8 + store.snippets() * 4 + PRIOR_BYTES as u64 * priors + HEADER_BYTES as u64;
    assert_eq!(bytes, file.len() as u64);
    let symbols = file[HEADER_BYTES..].as_chunks::<4>().0.iter().take(48);
    let text: Vec<u32> = symbols.map(|word| u32::from_le_bytes(*word).wrapping_sub(1)).collect();
    let mut retrieval =
        Retrieval::new(store.clone(), LONGEST_MATCH, 1, &SHAPE).expect("lengths that it knows");
    let mut prior = Prior::new(store.clone(), &SHAPE);
    let mut tree = TokenTree::with_capacity(SHAPE.tree_nodes());
    let drawn = Coupling::of(Sampling { temperature: 0.7, ..Sampling::GREEDY });
    for end in [1, 2, text.len() / 2, text.len()] {
        let Some(text) = text.get(..end).filter(|text| !text.is_empty()) else { continue };
        if let Some(found) = store.longest_match(text, LONGEST_MATCH, 1) {
            assert!((1..=LONGEST_MATCH).contains(&found.length) && found.occurrences.count() > 0);
            for offset in [0, found.length, SORTED_TOKENS - 1] {
                store.continuations(found.occurrences, offset, |token, occurrences| {
                    assert!(token < store.vocabulary() && occurrences.count() <= found.occurrences.count());
                });
            }
        }
        tree.reset(text[end - 1]);
        let limits = ProposalLimits { depth: 6, width: 3, nodes: 16 };
        retrieval.propose(text, &limits, None, &mut tree);
        for coupling in [None, drawn.as_ref()] {
            prior.propose(text, &limits, coupling, &mut tree);
        }
        assert!(tree.nodes().skip(1).all(|node| tree.token(node) < store.vocabulary()));
    }
}
