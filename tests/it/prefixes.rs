//! Kept prefixes change no answer: whatever a store has, lost, or was opened again with, and whatever drafts, tokens
//! and log-probabilities are to the bit those of a decoder without any past.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use ygg_kernels::{KvFormat, Tier};
use yggc::{
    engine::{Engine, Options, Prompt, Request},
    model::synthetic::SyntheticSpec,
    prefix::{Binding, Owner, PrefixDisk, PrefixLimits, PrefixStore, Served},
    runtime::{BLOCK_TOKENS, ExecutableSet, Session, SkipSet},
    sample::Sampling,
    speculate::{
        BandSteps, Begin, Decoder, Drafter, KeptPrefixes, Limits, Lookup, Reuse, SelfDrafter, Shelves,
        Speculation, StepShape,
    },
};

use crate::{
    draft_models::{
        Eagle3Kind, block_drafter, block_pair, eagle3_pair, hidden_pair, pair_drafter, pair_session,
        plain_pair,
    },
    families,
    lossless::any_sampling,
    shared_keys, states,
    tiny_model::{
        Class, Dice, MODEL_CONTEXT, TinyModel, best_tier, bits, cases, everything, is_cuda, models, session,
        some_models,
    },
};

/// The tests of this file that a device runs too.
pub(crate) const OF_DEVICES: [&str; 2] = [
    "prefixes::blocks_of_a_session_go_on_in_another_to_the_bit",
    "prefixes::answers_over_kept_prefixes_are_those_without_a_past",
];

/// A model with short convolutions, which a text goes on from the ends of blocks alone.
fn convolving() -> &'static TinyModel {
    static MODEL: OnceLock<TinyModel> = OnceLock::new();
    MODEL.get_or_init(|| families::of_context("lfm2", MODEL_CONTEXT))
}

/// A session with a past, of which only what is loaded counts.
fn used_session(set: &Arc<ExecutableSet>, dice: &mut Dice) -> Session {
    let mut used = session(set, MODEL_CONTEXT, 4, dice.within(1, 2));
    let len = dice.within(1, 200);
    used.prefill(&dice.tokens(len, set.vocabulary())).expect("it fits");
    used.truncate(0);
    used.poison_scratch(dice.bits());
    used
}

/// Blocks of one session go on in another, which may go back to their ends, as the tokens would.
fn blocks_go_on(model: &TinyModel, class: Class, format: KvFormat, case: u64) {
    let what = format!("{} on {class}, {format} cache, case {case}", model.name);
    let mut dice = Dice::new(case);
    let set = match format {
        KvFormat::F16 => Arc::clone(model.set(class)),
        KvFormat::F32 | KvFormat::Q8 => model.build(class, format, vec![1, 4]),
    };
    let len = dice.within(BLOCK_TOKENS, MODEL_CONTEXT - 8);
    let text = dice.tokens(len, set.vocabulary());
    let mut first = session(&set, MODEL_CONTEXT, 4, 1);
    let split = dice.within(1, len);
    first.prefill(&text[..split]).expect("it fits");
    if split < len {
        first.score(&text[split..], |_, _| ()).expect("it fits");
    }
    assert_eq!(first.whole_blocks(), len / BLOCK_TOKENS);
    let mut save = |block: usize| {
        let mut bytes = vec![0xa5; first.block_bytes()];
        first.save_block(block, &mut bytes).expect("the device works");
        bytes
    };
    let mut second = used_session(&set, &mut dice);
    let blocks = dice.within(1, len / BLOCK_TOKENS);
    for block in 0..blocks {
        second.load_block(&save(block)).expect("the device works");
    }
    let mut kept = blocks * BLOCK_TOKENS;
    assert_eq!(second.committed(), kept, "{what}");
    if dice.chance(40) {
        kept = second.resume_point(dice.within(0, kept));
        second.truncate(kept);
    }
    second.poison_scratch(dice.bits());
    let more = dice.within(1, 6);
    let next = dice.tokens(more, set.vocabulary());
    let whole = [&text[..kept], &next].concat();
    let expected = bits(session(&set, MODEL_CONTEXT, 4, 1).prefill(&whole).expect("it fits"));
    let mut found = Vec::new();
    if dice.chance(50) {
        found = bits(second.prefill(&next).expect("it fits"));
    } else {
        second.score(&next, |_, logits| found = bits(logits)).expect("it fits");
    }
    assert!(found == expected, "{what}: {kept} of {len} tokens and {next:?} after them");
}

#[test]
fn blocks_of_a_session_go_on_in_another_to_the_bit() {
    for (number, model) in some_models().enumerate() {
        let classes = model.classes();
        for class in &classes {
            // It is slow, and has the cache of the processor.
            let tried = if class.tier == Tier::Reference { u64::from(number == 0) } else { cases(*class, 4) };
            (0..tried).for_each(|case| blocks_go_on(model, *class, KvFormat::F16, case));
        }
        let others = [KvFormat::F32, KvFormat::Q8].into_iter().take(if is_cuda() { 1 } else { 2 });
        others.for_each(|format| blocks_go_on(model, *classes.last().expect("one at least"), format, 100));
    }
}

/// Blocks hold what layers keep of their own, of heads of two sizes, and nothing of layers that keep nothing.
#[test]
fn what_layers_share_goes_on_with_the_blocks() {
    let model = shared_keys::sharing();
    let classes = model.classes();
    for class in classes.iter().filter(|class| class.tier != Tier::Reference) {
        (0..cases(*class, 6)).for_each(|case| blocks_go_on(model, *class, KvFormat::F16, case));
    }
    for format in [KvFormat::F32, KvFormat::Q8].into_iter().take(if is_cuda() { 1 } else { 2 }) {
        blocks_go_on(model, *classes.last().expect("one at least"), format, 100);
    }
    // Of keys and of values: layers 1 of a head of 24, layers 0, 2 and 3 of one of 12.
    let session = session(model.set(classes[0]), MODEL_CONTEXT, 4, 1);
    assert_eq!(session.block_bytes(), BLOCK_TOKENS * 2 * (24 + 3 * 12) * 2);
}

#[test]
fn what_convolutions_keep_goes_on_with_the_blocks() {
    for class in convolving().classes().into_iter().filter(|class| class.tier != Tier::Reference) {
        (0..cases(class, 24)).for_each(|case| blocks_go_on(convolving(), class, KvFormat::F16, case));
    }
}

#[test]
fn hidden_rows_come_back_with_their_blocks() {
    let model = &models()[0];
    let class = model.any_class(&mut Dice::new(1));
    let set = eagle3_pair(model, class, Eagle3Kind::Shared, &[]);
    let text = Dice::new(2).tokens(150, set.vocabulary());
    let mut first = pair_session(&set, MODEL_CONTEXT, 4, 1);
    first.prefill(&text).expect("it fits");
    let mut second = pair_session(&set, MODEL_CONTEXT, 4, 1);
    let mut bytes = vec![0; first.block_bytes()];
    assert!(bytes.len() > session(&set, MODEL_CONTEXT, 4, 1).block_bytes(), "with hidden rows");
    for block in 0..2 {
        first.save_block(block, &mut bytes).expect("the device works");
        second.load_block(&bytes).expect("the device works");
    }
    second.prefill(&text[128..]).expect("it fits");
    let rows = |session: &Session| -> Vec<Vec<u32>> {
        (0..150).map(|place| bits(session.committed_hidden(place).expect("it is kept"))).collect()
    };
    assert!(rows(&first) == rows(&second));
}

/// What drafts over kept prefixes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Lookup,
    LayerSkip,
    /// A drafter model by itself.
    Model,
    /// A drafter model that reads the verifier's hidden rows.
    HiddenState,
    Eagle3,
    Block,
}

const SHAPE: StepShape =
    StepShape { depth: 3, draft_width: 2, verify_width: 4, top_k: 3, draft_temperature: 1.0 };

impl Kind {
    fn set(self, model: &TinyModel, class: Class) -> Arc<ExecutableSet> {
        match self {
            Self::Plain | Self::Lookup | Self::LayerSkip => Arc::clone(model.set(class)),
            Self::Model => plain_pair(model, model, class),
            Self::HiddenState => hidden_pair(model, class, MODEL_CONTEXT),
            Self::Eagle3 => eagle3_pair(model, class, Eagle3Kind::Shared, &[]),
            Self::Block => block_pair(model, class, true, &[]),
        }
    }

    fn decoder(self, set: &Arc<ExecutableSet>, threads: usize) -> Decoder {
        let rows = SHAPE.tree_nodes();
        let session = match self {
            Self::Plain | Self::Lookup | Self::LayerSkip => session(set, MODEL_CONTEXT, rows, threads),
            Self::Model | Self::HiddenState | Self::Eagle3 | Self::Block => {
                pair_session(set, MODEL_CONTEXT, rows, threads)
            }
        };
        let drafter: Option<Box<dyn Drafter>> = match self {
            Self::Plain => None,
            Self::Lookup => Some(Box::new(Lookup::new(3, 1, &SHAPE).expect("matches of some length"))),
            Self::LayerSkip => {
                let skip = SkipSet::new(set.groups(), &[1]).expect("a group of the model");
                Some(Box::new(SelfDrafter::layer_skip(&session, skip, &SHAPE).expect("a planned width")))
            }
            Self::Model | Self::HiddenState | Self::Eagle3 => Some(Box::new(pair_drafter(&session, &SHAPE))),
            Self::Block => Some(block_drafter(&session, &SHAPE, None)),
        };
        let steps = match drafter {
            None => BandSteps::plain(),
            some => BandSteps::unplanned(some, &SHAPE),
        };
        Decoder::new(session, vec![steps]).expect("steps for the model")
    }
}

/// Tokens with their log-probabilities and those of the best others.
pub(crate) type Answer = Vec<(u32, Option<(u32, Vec<(u32, u32)>)>)>;

/// What a decoder answers; `None` if it was cancelled.
pub(crate) fn answer(decoder: &mut Decoder, begin: &Begin<'_>, tokens: usize) -> Option<Answer> {
    let noted = |decoder: &Decoder, place: usize| {
        let (own, best) = decoder.log_probs().of(place)?;
        Some((own.to_bits(), best.iter().map(|c| (c.token, c.log_prob.to_bits())).collect()))
    };
    let first = decoder.begin(begin).expect("the prompt fits")?;
    let mut answer = vec![(first, noted(decoder, 0))];
    loop {
        let room = decoder.session().context() + 1 - decoder.history().len();
        let wanted = (tokens - answer.len()).min(room);
        if wanted == 0 {
            return Some(answer);
        }
        decoder.poison_scratch(answer.len() as u64);
        decoder.step(Limits { tokens: wanted, ends: &[] }, None).expect("the step runs");
        answer.extend(decoder.emitted().iter().enumerate().map(|(i, token)| (*token, noted(decoder, i))));
    }
}

/// A store whose limits hold so many blocks of a decoder, or an opened one with what it has.
fn store(memory: usize, disk: Option<(&Path, usize)>, block_bytes: usize) -> Arc<PrefixStore> {
    let bytes = |blocks: usize| (blocks * (block_bytes + 8192)) as u64;
    let disk = disk
        .map(|(folder, blocks)| PrefixDisk { folder: folder.to_owned(), bytes: bytes(blocks) + (1 << 20) });
    Arc::new(PrefixStore::open(&PrefixLimits { memory_bytes: bytes(memory), disk }, |_| ()))
}

fn owner(number: usize) -> Owner {
    if number == 0 { Owner::default() } else { Owner::of_secret(&[number as u8]) }
}

/// A prompt that may begin as an earlier text does, with an edit in the middle at times.
fn any_prompt(texts: &[Vec<u32>], vocabulary: usize, dice: &mut Dice) -> Vec<u32> {
    let mut prompt = match texts.len() {
        0 => Vec::new(),
        len => texts[dice.below(len)].clone(),
    };
    if dice.chance(30) {
        prompt.truncate(dice.within(0, prompt.len()));
    } else if !prompt.is_empty() && dice.chance(25) {
        let place = dice.below(prompt.len());
        prompt[place] = dice.below(vocabulary) as u32;
    }
    let fresh = if prompt.is_empty() { dice.within(50, 150) } else { dice.within(1, 60) };
    prompt.extend(dice.tokens(fresh, vocabulary));
    prompt.truncate(dice.within(MODEL_CONTEXT - 60, MODEL_CONTEXT - 1));
    if dice.chance(25) && prompt.len() > BLOCK_TOKENS {
        prompt.truncate(prompt.len() / BLOCK_TOKENS * BLOCK_TOKENS);
    }
    prompt
}

/// One history of requests by two decoders over one store; tokens that the store served.
fn history(kind: Kind, case: u64) -> usize {
    let mut dice = Dice::new(case);
    let has_states = matches!(kind, Kind::Plain | Kind::Lookup | Kind::LayerSkip | Kind::Model) && !is_cuda();
    let model = if kind == Kind::Plain && dice.chance(25) {
        convolving()
    } else if has_states && dice.chance(25) {
        dice.pick(states::models())
    } else {
        *dice.pick(&some_models().collect::<Vec<_>>())
    };
    let class = model.any_class(&mut dice);
    let set = kind.set(model, class);
    let what = format!("{kind:?} case {case}, {} on {class}", model.name);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (memory, has_disk, blocks) = (dice.below(14), dice.chance(60), dice.within(1, 20));
    let mut decoders = [kind.decoder(&set, 1), kind.decoder(&set, dice.within(1, 2))];
    let block_bytes = decoders[0].block_bytes();
    let open = |decoder: &mut Decoder| {
        let store = store(memory, has_disk.then_some((folder.path(), blocks)), block_bytes);
        (shelves(&store, decoder, &model.name), store)
    };
    let (mut shelf, mut opened) = open(&mut decoders[0]);
    let mut texts: Vec<Vec<u32>> = Vec::new();
    let mut kept: Vec<(usize, Vec<u32>)> = Vec::new();
    let mut served = 0;
    for request in 0..dice.within(3, 8) {
        let prompt = any_prompt(&texts, set.vocabulary(), &mut dice);
        let (of, tokens) = (dice.below(5) / 4, dice.within(1, 9));
        let sampling = any_sampling(&mut dice);
        let asks_for = if dice.chance(60) { Some(3) } else { None };
        let reuse = if dice.chance(90) { Reuse::Prefix } else { Reuse::Nothing };
        let speculation = if dice.chance(90) { Speculation::AsOpened } else { Speculation::Off };
        let plain = Begin { log_probs: asks_for, ..Begin::new(&prompt, sampling) };
        let expected = answer(&mut Kind::Plain.decoder(&set, 1), &plain, tokens).expect("nobody cancels it");
        let decoder = dice.below(2);
        let decoder = &mut decoders[decoder];
        let calls = std::cell::Cell::new(0);
        let is_cancelled = dice.chance(10);
        let stop = || is_cancelled && calls.replace(calls.get() + 1) > 0;
        let begin = Begin {
            reuse,
            speculation,
            prefixes: Some(&shelf),
            owner: owner(of),
            is_cancelled: &stop,
            ..plain
        };
        let found = answer(decoder, &begin, tokens);
        let stats = decoder.stats();
        let from_store = stats.served.memory + stats.served.disk;
        if let Some(found) = found {
            assert_eq!(found, expected, "{what}, request {request}, {stats:?} after {prompt:?}");
        }
        assert!(reuse == Reuse::Prefix || stats.reused == 0, "{what}: {stats:?}");
        if from_store > 0 {
            let text = &prompt[..stats.reused as usize];
            let is_known = |(by, kept): &(usize, Vec<u32>)| *by == of && kept.starts_with(text);
            assert!(kept.iter().any(is_known), "{what}: served what {of} never had");
        }
        served += from_store;
        if reuse == Reuse::Prefix {
            decoder.keep_prefix(&shelf).expect("the device works");
            kept.push((of, decoder.history().to_vec()));
        }
        texts.push(decoder.history().to_vec());
        if dice.chance(20) {
            drop((shelf, opened));
            (shelf, opened) = open(&mut decoders[0]);
        }
        let counts = opened.counts();
        let most = (memory * (block_bytes + 8192)) as u64 + if has_disk { 64 << 20 } else { 0 };
        assert!(counts.memory_bytes <= most, "{what}: {counts:?}");
    }
    served
}

#[track_caller]
fn check(kind: Kind, usual: u64, all: u64) {
    let tried = match (is_cuda(), everything()) {
        (true, _) => usual.div_ceil(40),
        (false, true) => all,
        (false, false) => usual,
    };
    let served: usize = (0..tried).map(|case| history(kind, case)).sum();
    let is_enough = is_cuda() || served > 40 * tried as usize;
    assert!(is_enough, "{served} tokens served in {tried} histories: too few to show anything");
}

#[test]
fn answers_over_kept_prefixes_are_those_without_a_past() {
    check(Kind::Plain, 60, 9_000);
}

#[test]
fn drafters_in_the_verifiers_cache_answer_alike_over_kept_prefixes() {
    check(Kind::Lookup, 20, 400);
    check(Kind::LayerSkip, 20, 400);
}

#[test]
fn drafters_with_caches_of_their_own_answer_alike_over_kept_prefixes() {
    check(Kind::Model, 20, 400);
    check(Kind::HiddenState, 16, 200);
    check(Kind::Eagle3, 16, 200);
    check(Kind::Block, 16, 200);
}

/// A store's shelves for a decoder, bound to a name.
fn shelves(store: &Arc<PrefixStore>, decoder: &mut Decoder, name: &str) -> KeptPrefixes {
    let shelf = |name: &str, bytes: usize| store.shelf(Binding::new(name, [name]), BLOCK_TOKENS, bytes);
    let of_session = |name: &str, session: &Session, block_bytes: usize| {
        let states = session.set().has_states();
        let states = states.then(|| shelf(&format!("{name}, states"), session.state_bytes()));
        Shelves { blocks: shelf(name, block_bytes), states }
    };
    let block_bytes = decoder.block_bytes();
    let own = of_session(name, decoder.session(), block_bytes);
    let of_drafter = |session: Option<&Session>| {
        let session = session?;
        Some(of_session(&format!("{name}, the drafter"), session, session.block_bytes()))
    };
    let of_drafters = decoder.own_sessions().into_iter().map(of_drafter).collect();
    KeptPrefixes { own, of_drafters }
}

/// Those in memory, with room for so many blocks.
pub(crate) fn in_memory(decoder: &mut Decoder, blocks: usize) -> KeptPrefixes {
    let store = store(blocks, None, decoder.block_bytes());
    shelves(&store, decoder, "in memory")
}

/// Where rows have a state, blocks are of use as far as a state is kept: after the answer, after the prompt, and where a
/// later text parted.
#[test]
fn states_are_kept_where_later_texts_go_on() {
    if is_cuda() {
        return;
    }
    let set = states::models()[0].set(Class::native(best_tier()));
    let mut dice = Dice::new(5);
    let mut tokens = |count: usize| dice.tokens(count, set.vocabulary());
    let (beginning, first, second, third, more) =
        (tokens(100), tokens(50), tokens(40), tokens(60), tokens(20));
    let mut giver = Kind::Plain.decoder(set, 1);
    let shelf = in_memory(&mut giver, 400);
    let ask = |prompt: &[u32], count: usize| {
        let mut asked = Kind::Plain.decoder(set, 1);
        let begin =
            Begin { reuse: Reuse::Prefix, prefixes: Some(&shelf), ..Begin::new(prompt, Sampling::GREEDY) };
        let found = answer(&mut asked, &begin, count);
        let cold = Begin::new(prompt, Sampling::GREEDY);
        assert_eq!(found, answer(&mut Kind::Plain.decoder(set, 1), &cold, count), "after {prompt:?}");
        asked.keep_prefix(&shelf).expect("the device works");
        (asked.stats().reused, asked.history().to_vec())
    };
    let (reused, answered) = ask(&[&beginning[..], &first].concat(), 60);
    assert_eq!((reused, answered.len()), (0, 210));
    // A turn goes on after the answer: 192 of 209 tokens that had been run.
    let (reused, _) = ask(&[&answered[..], &more].concat(), 3);
    assert_eq!(reused, 192);
    // The same again, after the prompt; and another text, which finds blocks but no state, until the one after it.
    assert_eq!(ask(&answered[..150], 3).0, 128);
    assert_eq!(ask(&[&beginning[..], &second].concat(), 3).0, 0);
    assert_eq!(ask(&[&beginning[..], &third].concat(), 3).0, 64);
}

#[test]
fn drafters_draft_after_a_kept_prefix_as_after_one_that_was_run() {
    let model = &models()[0];
    let class = model.any_class(&mut Dice::new(3));
    for kind in [Kind::Lookup, Kind::LayerSkip, Kind::Model, Kind::HiddenState, Kind::Eagle3, Kind::Block] {
        let set = kind.set(model, class);
        let prompt = Dice::new(4).tokens(200, set.vocabulary());
        let mut giver = kind.decoder(&set, 1);
        let shelf = in_memory(&mut giver, 16);
        let begin =
            Begin { reuse: Reuse::Prefix, prefixes: Some(&shelf), ..Begin::new(&prompt, Sampling::GREEDY) };
        let cold = answer(&mut giver, &begin, 30);
        giver.keep_prefix(&shelf).expect("the device works");
        let mut taker = kind.decoder(&set, 1);
        let warm = answer(&mut taker, &begin, 30);
        let counted = |decoder: &Decoder| {
            let stats = decoder.stats();
            (stats.steps, stats.drafted, stats.accepted)
        };
        assert_eq!((warm, counted(&taker)), (cold, counted(&giver)), "{kind:?}");
        assert_eq!((giver.stats().reused, taker.stats().reused), (0, 192), "{kind:?}");
        assert!(taker.stats().drafted > 0, "{kind:?}");
        let has_own = !matches!(kind, Kind::Lookup | Kind::LayerSkip);
        let of_drafter = Served { memory: if has_own { 192 } else { 0 }, disk: 0 };
        assert_eq!(taker.stats().served_to_drafter, of_drafter, "{kind:?}");
    }
}

#[test]
fn interleaved_conversations_run_no_turn_twice() {
    let model = &models()[0];
    let set = model.set(model.any_class(&mut Dice::new(5)));
    let mut decoder = Kind::Plain.decoder(set, 1);
    let shelf = in_memory(&mut decoder, 40);
    let mut dice = Dice::new(6);
    let mut texts: Vec<Vec<u32>> = (0..8).map(|_| dice.tokens(20, set.vocabulary())).collect();
    for turn in 0..5 {
        for text in &mut texts {
            let begin =
                Begin { reuse: Reuse::Prefix, prefixes: Some(&shelf), ..Begin::new(text, Sampling::GREEDY) };
            answer(&mut decoder, &begin, 6);
            decoder.keep_prefix(&shelf).expect("the device works");
            let run = text.len() - decoder.stats().reused as usize;
            let new = if turn == 0 { 20 } else { 25 };
            // Of what was said before, less than a block and what was not committed yet.
            assert!(run <= new + BLOCK_TOKENS, "turn {turn}: {run} tokens run for {new} new ones");
            text.clear();
            text.extend_from_slice(decoder.history());
            text.extend(dice.tokens(24, set.vocabulary()));
        }
    }
}

#[test]
fn nobody_is_served_what_another_kept() {
    let model = &models()[0];
    let set = model.set(model.any_class(&mut Dice::new(7)));
    let mut decoder = Kind::Plain.decoder(set, 1);
    let shelf = in_memory(&mut decoder, 40);
    let prompt = Dice::new(8).tokens(200, set.vocabulary());
    let mut ask = |number: usize, reuse: Reuse| {
        let plain = Begin::new(&prompt, Sampling::GREEDY);
        let begin = Begin { reuse, prefixes: Some(&shelf), owner: owner(number), ..plain };
        answer(&mut decoder, &begin, 2);
        if reuse == Reuse::Prefix {
            decoder.keep_prefix(&shelf).expect("the device works");
        }
        decoder.stats().reused
    };
    let reused = [0, 1, 2, 1, 0].map(|number| ask(number, Reuse::Prefix));
    assert_eq!(reused, [0, 0, 0, 192, 192], "of the request before, another's, nothing is taken either");
    assert_eq!(ask(0, Reuse::Nothing), 0);
    assert_eq!(ask(3, Reuse::Prefix), 0);
}

#[test]
fn drafters_forget_the_text_of_another_owner() {
    let model = &models()[0];
    let class = model.any_class(&mut Dice::new(9));
    for kind in [Kind::Model, Kind::HiddenState, Kind::Block] {
        let set = kind.set(model, class);
        let mut decoder = kind.decoder(&set, 1);
        let prompt = Dice::new(10).tokens(100, set.vocabulary());
        let mut known = |number: usize| {
            let begin =
                Begin { reuse: Reuse::Prefix, owner: owner(number), ..Begin::new(&prompt, Sampling::GREEDY) };
            let undrafted = Begin { speculation: Speculation::Off, ..begin };
            answer(&mut decoder, if number == 0 { &begin } else { &undrafted }, 1);
            decoder.own_sessions()[0].expect("it has one").committed()
        };
        let of_one = known(0);
        assert!(of_one >= 99, "{kind:?}: {of_one} tokens");
        assert_eq!(known(1), 0, "{kind:?}");
    }
}

/// A request of 200 tokens that begin alike whatever the number.
fn request(number: u32, reuse: Reuse) -> Request {
    let tokens = (0..200).map(|place| if place < 150 { place % 90 } else { (place * number) % 90 });
    Request { max_tokens: 5, reuse, ..Request::new(Prompt::Tokens(tokens.collect())) }
}

#[test]
fn engines_share_what_is_kept_and_later_ones_find_it_on_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("tiny.gguf");
    SyntheticSpec::default().write_gguf(&model).expect("the model is written");
    let open = |prefixes: Option<&Arc<PrefixStore>>, context: usize, cache: KvFormat| {
        let prefixes = prefixes.cloned();
        let options =
            Options { context: Some(context), cache, threads: Some(1), prefixes, ..Options::new(&model) };
        Engine::open(&options).expect("the model opens")
    };
    let ask = |engine: &mut Engine, number: u32, reuse: Reuse| {
        let answer =
            engine.generate(&request(number, reuse)).expect("it fits").collect_answer().expect("it ends");
        (answer.token_ids, answer.report.kept_tokens, answer.report.reused_tokens)
    };
    let mut cold = open(None, 256, KvFormat::F16);
    let expected: Vec<Vec<u32>> = (0..3).map(|number| ask(&mut cold, number, Reuse::Nothing).0).collect();
    let store = || store(100, Some((folder.path(), 100)), 1 << 20);
    {
        let first = store();
        let [mut one, mut other, mut third] = [0, 1, 2].map(|_| open(Some(&first), 256, KvFormat::F16));
        assert_eq!(ask(&mut one, 0, Reuse::Nothing), (expected[0].clone(), Served::default(), 0));
        assert_eq!(ask(&mut other, 0, Reuse::Prefix), (expected[0].clone(), Served::default(), 0));
        let all = Served { memory: 192, disk: 0 };
        assert_eq!(ask(&mut third, 0, Reuse::Prefix), (expected[0].clone(), all, 192));
        // Dropped before its end, and what it said is kept.
        let mut begun = other.generate(&request(1, Reuse::Prefix)).expect("it fits");
        begun.next().expect("a token").expect("a token");
        drop(begun);
        assert_eq!(ask(&mut one, 1, Reuse::Prefix).1, Served { memory: 64, disk: 0 }, "after 128 of its own");
    }
    let later = store();
    let mut longer = open(Some(&later), 300, KvFormat::F16);
    assert_eq!(
        ask(&mut longer, 1, Reuse::Prefix),
        (expected[1].clone(), Served { memory: 0, disk: 192 }, 192)
    );
    assert_eq!(ask(&mut longer, 2, Reuse::Prefix).0, expected[2]);
    let mut exact = open(Some(&later), 256, KvFormat::F32);
    assert_eq!(ask(&mut exact, 1, Reuse::Prefix).1, Served::default(), "of another cache");
    assert_eq!((later.counts().hits, later.counts().damaged), (1, 0));
}
