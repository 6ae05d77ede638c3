//! Drafters that run no model, set in any way.

use yggc::{
    plan::{NgramSettings, SuffixSettings},
    speculate::{Drafter, Lookup, Ngram, Prior, Recycling, Retrieval, StepShape, Suffix},
};

use super::{Kind, run, shows_something};
use crate::{retrieval::store, tiny_model::Dice};

/// A drafter that runs no model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Free {
    Lookup,
    Retrieval,
    Prior,
    Suffix,
    Recycling,
    Ngram,
}

impl Free {
    pub(super) const ALL: [Self; 6] =
        [Self::Lookup, Self::Retrieval, Self::Prior, Self::Suffix, Self::Recycling, Self::Ngram];

    /// A drafter for the shape and a vocabulary, where plain decoding says `truth`.
    pub(super) fn drafter(
        self,
        shape: &StepShape,
        (vocabulary, truth): (usize, &[u32]),
        dice: &mut Dice,
    ) -> Box<dyn Drafter> {
        match self {
            Self::Lookup => {
                let shortest = dice.within(1, 3);
                let longest = dice.within(shortest, 6);
                Box::new(Lookup::new(longest, shortest, shape).expect("lengths in order"))
            }
            Self::Retrieval => {
                let texts = any_texts(truth, vocabulary, dice);
                let store = store(&texts, vocabulary);
                let shortest = dice.within(1, 3);
                let longest = dice.within(shortest, 16);
                let drafter = Retrieval::new(store, longest, shortest, shape).expect("lengths in order");
                let lookup = || Lookup::new(3, 1, shape).expect("lengths in order");
                Box::new(if dice.chance(50) { drafter.after_lookup(lookup()) } else { drafter })
            }
            Self::Prior => {
                let texts = any_texts(truth, vocabulary, dice);
                Box::new(Prior::new(store(&texts, vocabulary), shape))
            }
            Self::Suffix => {
                let settings = SuffixSettings {
                    tokens_per_match: dice.within(1, 4) as u32,
                    counted: dice.within(2, 9) as u32,
                    remembered: *dice.pick(&[16, 60, 1000]),
                };
                Box::new(Suffix::new(settings, shape))
            }
            Self::Recycling => Box::new(Recycling::new(vocabulary, shape)),
            Self::Ngram => Box::new(Ngram::new(any_ngrams(shape, dice), shape).expect("a pool that fits")),
        }
    }
}

/// Any settings whose pool leaves room in the shape.
fn any_ngrams(shape: &StepShape, dice: &mut Dice) -> NgramSettings {
    let order = dice.within(2, 5);
    let nodes = shape.verify_width.min(shape.tree_nodes());
    let room = if shape.depth < order - 1 { 0 } else { nodes.saturating_sub(2) / (order - 1) };
    let backward = dice.chance(70);
    NgramSettings {
        order: order as u32,
        pool: dice.within(0, room.min(4)) as u32,
        explored_percent: *dice.pick(&[0, 10, 90]),
        forward_guesses: if backward { dice.below(9) as u32 } else { 5 },
        backward,
        parts: dice.chance(70),
        entries: *dice.pick(&[16, 1000]),
    }
}

/// Texts that go on like plain decoding here and there, and differ in some tokens.
fn any_texts(truth: &[u32], vocabulary: usize, dice: &mut Dice) -> Vec<Vec<u32>> {
    let mut text = || {
        let begin = dice.below(truth.len());
        let wrong = *dice.pick(&[0, 5, 30]);
        let some = |token: &u32| if dice.chance(wrong) { dice.below(vocabulary) as u32 } else { *token };
        truth[begin..].iter().map(some).collect()
    };
    (0..12).map(|_| text()).collect()
}

#[test]
fn lookup_changes_no_token() {
    shows_something(run(Kind::Free(Free::Lookup), 120), (300, 100));
}

#[test]
fn retrieval_changes_no_token() {
    shows_something(run(Kind::Free(Free::Retrieval), 120), (800, 400));
}

#[test]
fn a_prior_changes_no_token() {
    shows_something(run(Kind::Free(Free::Prior), 120), (800, 400));
}

#[test]
fn a_suffix_changes_no_token() {
    shows_something(run(Kind::Free(Free::Suffix), 120), (300, 100));
}

#[test]
fn recycling_changes_no_token() {
    shows_something(run(Kind::Free(Free::Recycling), 120), (3_000, 100));
}

#[test]
fn n_grams_change_no_token() {
    shows_something(run(Kind::Free(Free::Ngram), 120), (3_000, 100));
}
