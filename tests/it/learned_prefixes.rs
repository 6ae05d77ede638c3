//! What drafters learn of texts: it comes back with a kept prefix, and another owner's requests find nothing of it.

use std::sync::Arc;

use yggc::{
    plan::{NgramSettings, SuffixSettings},
    prefix::Owner,
    runtime::ExecutableSet,
    sample::{Adjustment, Sampling},
    speculate::{
        BandSteps, Begin, Decoder, Drafter, KeptPrefixes, Limits, Mixed, Ngram, Recycling, Reuse, StepShape,
        Suffix,
    },
};

use crate::{
    prefixes::{answer, in_memory},
    tiny_model::{Dice, MODEL_CONTEXT, models, session},
};

const SHAPE: StepShape =
    StepShape { depth: 4, draft_width: 2, verify_width: 8, top_k: 3, draft_temperature: 1.0 };
/// Tokens of an answer: a random model repeats itself by then, so that tokens come again.
const TOKENS: usize = 60;

/// A drafter that goes on from earlier requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Learner {
    Suffix,
    Recycling,
    Ngram,
    Mixed,
}

const LEARNERS: [Learner; 4] = [Learner::Suffix, Learner::Recycling, Learner::Ngram, Learner::Mixed];

impl Learner {
    fn drafter(self, vocabulary: usize) -> Box<dyn Drafter> {
        match self {
            Self::Suffix => Box::new(Suffix::new(SuffixSettings::DEFAULT, &SHAPE)),
            Self::Recycling => Box::new(Recycling::new(vocabulary, &SHAPE)),
            Self::Ngram => Box::new(Ngram::new(NgramSettings::DEFAULT, &SHAPE).expect("a pool that fits")),
            Self::Mixed => {
                let copies = vec![Self::Recycling.drafter(vocabulary), Self::Suffix.drafter(vocabulary)];
                Box::new(Mixed::new(copies, &SHAPE).expect("two parts"))
            }
        }
    }

    fn decoder(self, set: &Arc<ExecutableSet>) -> Decoder {
        let session = session(set, MODEL_CONTEXT, SHAPE.tree_nodes(), 1);
        let drafter = self.drafter(set.vocabulary());
        Decoder::new(session, vec![BandSteps::unplanned(Some(drafter), &SHAPE)]).expect("steps for the model")
    }
}

/// What was drafted in an answer, and how much of it was right.
fn drafted(decoder: &Decoder) -> (u64, u64, u64) {
    let stats = decoder.stats();
    (stats.steps, stats.drafted, stats.accepted)
}

#[test]
fn nothing_that_one_owner_said_is_drafted_to_another() {
    let model = &models()[0];
    let set = model.set(model.any_class(&mut Dice::new(21)));
    let prompt = Dice::new(22).tokens(120, set.vocabulary());
    for learner in LEARNERS {
        let ask = |decoder: &mut Decoder, secret: u8| {
            let owner = Owner::of_secret(&[secret]);
            let plain = Begin::new(&prompt, Sampling::GREEDY);
            answer(decoder, &Begin { owner, reuse: Reuse::Prefix, ..plain }, TOKENS);
            drafted(decoder)
        };
        let mut shared = learner.decoder(set);
        let first = ask(&mut shared, 1);
        let again = ask(&mut shared, 1);
        assert_ne!(again, first, "{learner:?} goes on from what it learned");
        // Trust in the parts of a mixture is learned of all requests, and is no text.
        let of_other = ask(&mut shared, 2);
        if learner == Learner::Mixed {
            assert!(of_other.0 > again.0, "{learner:?}: {of_other:?} after {again:?}");
        } else {
            assert_eq!(of_other, first, "{learner:?}");
        }
    }
}

#[test]
fn what_the_verifier_offered_comes_back_with_a_kept_prefix() {
    let model = &models()[0];
    let set = model.set(model.any_class(&mut Dice::new(23)));
    let prompt = Dice::new(24).tokens(100, set.vocabulary());
    for learner in [Learner::Recycling, Learner::Mixed] {
        let mut giver = learner.decoder(set);
        let shelf = in_memory(&mut giver, 16);
        let begin =
            Begin { reuse: Reuse::Prefix, prefixes: Some(&shelf), ..Begin::new(&prompt, Sampling::GREEDY) };
        answer(&mut giver, &begin, 100);
        giver.keep_prefix(&shelf).expect("the device works");
        let text = &giver.history()[..193];
        let said = &giver.history()[110..190];
        let root =
            *said.iter().find(|token| !prompt.contains(token)).expect("a token that the prompt has not");
        // Has that token come first, and counts what is proposed after it.
        let adjustment = Adjustment { bias: vec![(root, 100.0)], ..Adjustment::NONE };
        let proposed = |prefixes: Option<&KeptPrefixes>| {
            let mut taker = learner.decoder(set);
            let plain = Begin::new(text, Sampling::GREEDY);
            let begin = Begin { reuse: Reuse::Prefix, prefixes, adjustment: &adjustment, ..plain };
            assert_eq!(taker.begin(&begin).expect("the prompt fits"), Some(root));
            assert_eq!(taker.stats().reused, if prefixes.is_some() { 192 } else { 0 });
            taker.step(Limits { tokens: 8, ends: &[] }, None).expect("the step runs");
            taker.tree().len()
        };
        let (with, without) = (proposed(Some(&shelf)), proposed(None));
        assert!(with > without, "{learner:?}: {with} nodes with what was offered, {without} without");
    }
}
