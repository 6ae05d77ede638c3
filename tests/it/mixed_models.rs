//! Mixtures with a model: copies first, the model where they are not certain, one tree of both.
//!
//! The judges are plain decoding for tokens, a drafter that reads the text for the first time for what one proposes
//! that was left out before, and a decoder that takes every step for what the planner replays.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use ygg_profiler::{Profile, Trace};

use yggc::{
    engine::{DrafterChoice, Engine, Loaded},
    measure::ProfileOptions,
    plan::{self, DrafterId, DrafterKind, RowChoice, Schedule, Shape, SuffixSettings},
    planner::{AcceptedLengths, Fix, plan_from_profile, replay_merged},
    runtime::{ExecutableSet, Session, SkipSet, VariantChange},
    sample::Sampling,
    speculate::{
        BandSteps, BesideCopies, Budget, Decoder, Drafter, Limits, Lookup, Mixed, SelfDrafter,
        SpeculateError, Stats, StepOutcome, StepShape, Suffix, make_replay,
    },
    tree::{NodeId, Source, TokenTree},
};

use crate::{
    draft_models::{Eagle3Kind, eagle3_pair, hidden_pair, pair_drafter, pair_session, plain_pair},
    draft_plans::draft_models,
    lossless::{any_sampling, any_shape, decode},
    tiny_model::{Class, Dice, TinyModel, models, part, session},
    tiny_profiles::{self, NOW},
};

/// What runs a model beside copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    LayerSkip,
    Substitute,
    /// One with a cache of its own.
    Plain,
    HiddenState,
    Eagle3,
}

impl Model {
    const ALL: [Self; 5] = [Self::LayerSkip, Self::Substitute, Self::Plain, Self::HiddenState, Self::Eagle3];

    fn set(self, model: &'static TinyModel, class: Class) -> Arc<ExecutableSet> {
        match self {
            Self::LayerSkip => Arc::clone(model.set(class)),
            Self::Substitute => {
                let change = VariantChange { head_tokens: None, substitute_bits: Some(4) };
                let varied = model.set(class).with_variants(model.model.weights.as_ref(), &[change]);
                Arc::new(varied.expect("bits that there are"))
            }
            Self::Plain => plain_pair(model, model, class),
            Self::HiddenState => hidden_pair(model, class, 256),
            Self::Eagle3 => eagle3_pair(model, class, Eagle3Kind::Shared, &[]),
        }
    }

    fn session(self, set: &Arc<ExecutableSet>, context: usize, rows: usize, threads: usize) -> Session {
        match self {
            Self::LayerSkip | Self::Substitute => session(set, context, rows, threads),
            Self::Plain | Self::HiddenState | Self::Eagle3 => pair_session(set, context, rows, threads),
        }
    }

    fn drafter(self, session: &Session, shape: &StepShape) -> Box<dyn Drafter> {
        let set = session.set();
        match self {
            Self::LayerSkip => {
                let skip = SkipSet::new(set.groups(), &[1]).expect("a group of the model");
                Box::new(SelfDrafter::layer_skip(session, skip, shape).expect("a planned width"))
            }
            Self::Substitute => {
                let change = VariantChange { head_tokens: None, substitute_bits: Some(4) };
                let variant = set.variant(change).expect("it was made").expect("fewer bits");
                Box::new(SelfDrafter::substitute(session, variant, shape).expect("a planned width"))
            }
            Self::Plain | Self::HiddenState | Self::Eagle3 => Box::new(pair_drafter(session, shape)),
        }
    }
}

/// What a drafter proposed after a text, to the last bit.
type Proposal = (Vec<u32>, Vec<(u32, u32, u32)>);

/// Tells what a drafter proposes, and passes everything on.
#[derive(Debug)]
struct Told {
    drafter: Box<dyn Drafter>,
    proposals: Arc<Mutex<Vec<Proposal>>>,
}

fn described(tree: &TokenTree) -> Vec<(u32, u32, u32)> {
    let node = |n: NodeId| (tree.parent(n).map_or(0, NodeId::get), tree.token(n), tree.value(n).to_bits());
    tree.nodes().map(node).collect()
}

impl Drafter for Told {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let history = budget.history.to_vec();
        self.drafter.propose(tree, budget)?;
        self.proposals.lock().expect("nothing panics in here").push((history, described(tree)));
        Ok(())
    }

    fn begin(&mut self, history: &[u32]) {
        self.drafter.begin(history);
    }

    fn prefill(&mut self, history: &[u32], session: &Session) -> Result<(), SpeculateError> {
        self.drafter.prefill(history, session)
    }

    fn learn(&mut self, outcome: &StepOutcome<'_>) {
        self.drafter.learn(outcome);
    }
}

/// Proposes a chain of what the text will be, or of what it will not be, each node with one value.
#[derive(Debug)]
struct Planted {
    truth: Vec<u32>,
    length: usize,
    value: f32,
    is_right: bool,
}

impl Drafter for Planted {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let at = budget.history.len();
        let mut node = NodeId::ROOT;
        for token in self.truth[at..].iter().take(self.length.min(budget.depth)) {
            let token = if self.is_right { *token } else { token ^ 1 };
            let Some(child) = tree.insert_within(budget.rows, node, token, self.value, 0, Source::new(1))
            else {
                break;
            };
            node = child;
        }
        Ok(())
    }
}

/// Copies and a model over a session.
fn mixed(
    model: Model,
    session: &Session,
    copies: Vec<Box<dyn Drafter>>,
    shape: &StepShape,
    (growths, certain): (usize, f32),
) -> (Mixed, Arc<Mutex<Vec<Proposal>>>) {
    let own = StepShape { depth: growths.min(shape.depth), ..*shape };
    let proposals = Arc::default();
    let drafter = Box::new(Told { drafter: model.drafter(session, &own), proposals: Arc::clone(&proposals) });
    let beside = BesideCopies { drafter, shape: own, certain };
    (Mixed::with_model(copies, beside, shape).expect("a copy"), proposals)
}

fn copies(shape: &StepShape, dice: &mut Dice) -> Vec<Box<dyn Drafter>> {
    let lookup = Box::new(Lookup::new(3, 1, shape).expect("lengths in order"));
    let suffix = Box::new(Suffix::new(SuffixSettings { remembered: 200, ..SuffixSettings::DEFAULT }, shape));
    match dice.below(3) {
        0 => vec![lookup],
        1 => vec![suffix],
        _ => vec![lookup, suffix],
    }
}

fn plainly(set: &Arc<ExecutableSet>, prompt: &[u32], sampling: Sampling, tokens: usize) -> Vec<u32> {
    let mut plain = Decoder::new(session(set, 120, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
    decode(&mut plain, prompt, sampling, tokens, &[], None);
    plain.history().to_vec()
}

/// A prompt that repeats itself, so that copies are there.
fn any_prompt(vocabulary: usize, dice: &mut Dice) -> Vec<u32> {
    let phrase = dice.within(2, 6);
    let phrase = dice.tokens(phrase, vocabulary);
    phrase.iter().copied().cycle().take(dice.within(3, 24)).collect()
}

#[test]
fn whatever_model_shares_the_tree_tokens_are_those_of_plain_decoding() {
    for model in Model::ALL {
        let (mut run, mut left_out, mut accepted, mut drafted) = (0, 0, 0, 0);
        for number in 0..part(80).max(24) {
            let mut dice = Dice::new(31_000 + number);
            let tiny = dice.pick(models());
            let class = tiny.any_class(&mut dice);
            let set = model.set(tiny, class);
            let shape = any_shape(&mut dice);
            let sampling = match number % 3 {
                0 => Sampling::GREEDY,
                1 => Sampling { temperature: 1.0, seed: number, ..Sampling::GREEDY },
                _ => any_sampling(&mut dice),
            };
            let prompt = any_prompt(set.vocabulary(), &mut dice);
            let truth = plainly(tiny.set(class), &prompt, sampling, 60);
            let threads = dice.within(1, 2);
            let opened = model.session(&set, 120, shape.tree_nodes(), threads);
            let when = (dice.within(1, 4), *dice.pick(&[0.05, 0.2, 0.5, 0.8, 1.0, 1.1]));
            let copies = copies(&shape, &mut dice);
            let (drafter, proposals) = mixed(model, &opened, copies, &shape, when);
            let steps = BandSteps::unplanned(Some(Box::new(drafter)), &shape);
            let mut decoder = Decoder::new(opened, vec![steps]).expect("steps for the model");
            decode(&mut decoder, &prompt, sampling, 60, &[], Some(dice.bits() >> 1));
            let what = format!("{model:?} case {number}, {} on {class}, {shape:?}, {when:?}", tiny.name);
            assert_eq!(decoder.history(), truth, "{what}");
            run += proposals.lock().expect("nothing panics").len();
            left_out += decoder.stats().models_left_out;
            drafted += decoder.stats().drafted;
            accepted += decoder.stats().accepted;
        }
        assert!(run > 100 && left_out > 20, "{model:?}: run {run} times, left out {left_out} times");
        assert!(accepted > 50 && drafted > 500, "{model:?}: {accepted} of {drafted} nodes were accepted");
    }
}

/// What is not run keeps no cache in step, and must come to the text when it is run again.
#[test]
fn a_model_that_was_left_out_proposes_what_one_does_that_reads_the_text_for_the_first_time() {
    let shape = StepShape { depth: 6, draft_width: 2, verify_width: 9, top_k: 4, draft_temperature: 1.0 };
    for model in Model::ALL {
        let (mut compared, mut left_out) = (0, 0);
        for (number, tiny) in models().iter().enumerate().take(3) {
            let mut dice = Dice::new(number as u64);
            let class = tiny.any_class(&mut dice);
            let set = model.set(tiny, class);
            let prompt = any_prompt(set.vocabulary(), &mut dice);
            let truth = plainly(&set, &prompt, Sampling::GREEDY, 90);
            let opened = model.session(&set, 120, shape.tree_nodes(), 1);
            // Copies that are certain for some stretches of the text, and not there in others.
            let copies: Vec<Box<dyn Drafter>> = vec![Box::new(Stretches { truth: truth.clone(), length: 7 })];
            let (drafter, proposals) = mixed(model, &opened, copies, &shape, (3, 0.5));
            let steps = BandSteps::unplanned(Some(Box::new(drafter)), &shape);
            let mut decoder = Decoder::new(opened, vec![steps]).expect("steps for the model");
            decode(&mut decoder, &prompt, Sampling::GREEDY, 90, &[], Some(3));
            assert_eq!(decoder.history(), truth);
            left_out += decoder.stats().models_left_out;
            let own = StepShape { depth: 3, ..shape };
            for (history, proposal) in proposals.lock().expect("nothing panics").iter() {
                let mut fresh = model.session(&set, 120, shape.tree_nodes(), 1);
                fresh.restart(&history[..history.len() - 1]).expect("it fits");
                let mut drafter = model.drafter(&fresh, &own);
                let mut tree = TokenTree::with_capacity(own.tree_nodes());
                tree.reset(*history.last().expect("not empty"));
                let room = truth.len() - history.len() - 1;
                let budget = Budget {
                    session: &mut fresh,
                    history,
                    depth: own.depth.min(room),
                    rows: usize::MAX,
                    coupling: None,
                    stats: &mut Stats::default(),
                    observer: None,
                };
                drafter.propose(&mut tree, budget).expect("it runs");
                assert_eq!(
                    *proposal,
                    described(&tree),
                    "{model:?} of {} after {} tokens",
                    tiny.name,
                    history.len()
                );
                compared += 1;
            }
        }
        assert!(compared > 12 && left_out > 12, "{model:?}: {compared} proposals, left out {left_out} times");
    }
}

/// A copy of the text that is there in every second stretch of some tokens.
#[derive(Debug)]
struct Stretches {
    truth: Vec<u32>,
    length: usize,
}

impl Drafter for Stretches {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        if (budget.history.len() / self.length).is_multiple_of(2) {
            return Ok(());
        }
        let truth = self.truth.clone();
        Planted { truth, length: 4, value: 0.9, is_right: true }.propose(tree, budget)
    }
}

/// However many copied tokens a step accepts, the forward of the next root reads them; a forward of their own is for
/// what several steps without the model left.
#[test]
fn the_forward_of_a_root_reads_what_the_step_before_accepted() {
    let shape = StepShape { depth: 6, draft_width: 2, verify_width: 7, top_k: 4, draft_temperature: 1.0 };
    for model in [Model::Plain, Model::HiddenState, Model::Eagle3] {
        for (certain, reads_apart) in [(1.1, false), (0.5, true)] {
            let tiny = &models()[0];
            let set = model.set(tiny, tiny.classes()[0]);
            let truth = plainly(&set, &[3, 1, 4, 1, 5], Sampling::GREEDY, 90);
            let opened = model.session(&set, 120, shape.tree_nodes(), 1);
            let copies: Vec<Box<dyn Drafter>> =
                vec![Box::new(Stretches { truth: truth.clone(), length: 20 })];
            let (drafter, proposals) = mixed(model, &opened, copies, &shape, (1, certain));
            let steps = BandSteps::unplanned(Some(Box::new(drafter)), &shape);
            let mut decoder = Decoder::new(opened, vec![steps]).expect("steps for the model");
            decode(&mut decoder, &[3, 1, 4, 1, 5], Sampling::GREEDY, 80, &[], None);
            assert!(truth.starts_with(decoder.history()));
            let stats = decoder.stats();
            let what = format!("{model:?}, {certain}: {stats:?}");
            assert!(stats.acceptance_by_depth().len() >= 4 && stats.aal() > Some(1.5), "{what}");
            assert!(proposals.lock().expect("nothing panics").len() > 5, "{what}");
            assert_eq!(stats.texts_read > 0, reads_apart, "{what}");
        }
    }
}

/// Steps of a mixture beside a planted copy: how often the model was run, and how often left out.
fn beside(planted: impl FnOnce(Vec<u32>) -> Planted, (growths, certain): (usize, f32)) -> (usize, u64) {
    let tiny = &models()[0];
    let class = tiny.classes()[0];
    let shape = StepShape { depth: 6, draft_width: 2, verify_width: 9, top_k: 4, draft_temperature: 1.0 };
    let set = Model::LayerSkip.set(tiny, class);
    let truth = plainly(&set, &[3, 1, 4, 1, 5], Sampling::GREEDY, 90);
    let opened = session(&set, 120, shape.tree_nodes(), 1);
    let copies: Vec<Box<dyn Drafter>> = vec![Box::new(planted(truth.clone()))];
    let (drafter, proposals) = mixed(Model::LayerSkip, &opened, copies, &shape, (growths, certain));
    let steps = BandSteps::unplanned(Some(Box::new(drafter)), &shape);
    let mut decoder = Decoder::new(opened, vec![steps]).expect("steps for the model");
    decode(&mut decoder, &[3, 1, 4, 1, 5], Sampling::GREEDY, 80, &[], None);
    let run = proposals.lock().expect("nothing panics").len();
    let neither = decoder.stats().steps - run as u64 - decoder.stats().models_left_out;
    assert!(neither <= 1, "{neither} steps were neither, beside one that may emit a single token");
    (run, decoder.stats().models_left_out)
}

#[test]
fn the_model_is_run_but_where_a_copy_is_certain_as_deep_as_its_tree() {
    let planted = |length, value, is_right| move |truth| Planted { truth, length, value, is_right };
    // The last step may be left with fewer tokens than the copy is deep.
    let (run, left_out) = beside(planted(6, 0.95, true), (4, 0.9));
    assert!(run <= 1 && left_out > 8, "a certain copy: run {run}, left out {left_out}");
    let (run, left_out) = beside(planted(3, 0.95, true), (4, 0.9));
    assert!(left_out <= 1 && run > 12, "a copy that ends before the tree: run {run}, left out {left_out}");
    let (run, left_out) = beside(planted(6, 0.95, true), (4, 1.1));
    assert_eq!(left_out, 0, "never left out: run {run}");
    // It claims little, and comes to be trusted with more.
    let (run, left_out) = beside(planted(6, 0.5, true), (4, 0.9));
    assert!(run >= 1 && left_out > run as u64, "a copy that keeps more than its word: {run}, {left_out}");
    // It claims much, and is believed until it has failed.
    let (run, left_out) = beside(planted(6, 0.95, false), (4, 0.9));
    assert!((1..6).contains(&left_out) && run > 12, "a copy that is wrong: run {run}, left out {left_out}");
}

/// A profile of mixtures with models and what they are made of.
fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    PROFILED.get_or_init(|| {
        tiny_profiles::profiled(None, &[1, 2, 4, 8, 16], |options| ProfileOptions {
            drafters: ["layer_skip", "model", "suffix", "mixed"].map(str::to_owned).to_vec(),
            draft_models: draft_models().to_vec(),
            head_sizes: vec![120],
            temperatures: vec![1.0],
            budget: Duration::from_secs(40),
            is_rehearsal: true,
            ..options
        })
    })
}

const NAMES: [&str; 3] = ["mixed_layer_skip", "mixed_model", "mixed_model_hidden"];

#[test]
fn a_profile_prices_mixtures_by_what_it_records_of_their_parts() {
    let (loaded, profile) = profiled();
    for name in NAMES {
        let described = profile.drafters.iter().find(|d| d.name.as_str() == name);
        let described = described.unwrap_or_else(|| panic!("{name} was not described"));
        let kind = DrafterKind::from_description(described).expect("a drafter of this build");
        assert!(kind.runs_a_model() && kind.learns() && !kind.grows_alone());
        assert_eq!(kind.draft_model().is_some(), name != "mixed_layer_skip");
        assert_eq!(DrafterId::of_name(name), Some(DrafterId::Mixed));
        assert!(Schedule::ALL.into_iter().all(|s| s.suits(&kind) == (s == Schedule::Plain)));
        let cells = profile.measurements.iter().filter(|m| m.cell.stage.drafter() == Some(&described.name));
        assert!(cells.clone().count() > 0 && cells.clone().all(|m| m.cell.width == 1), "copies alone");
        assert!(profile.traces.iter().all(|trace| trace.drafter != described.name));
        assert!(profile.live_traces.iter().all(|trace| trace.drafter != described.name));
    }
    for fix in ["rows=all", "rows=best", "drafter=mixed_model,Wv=8", "drafter=mixed_layer_skip,Dd=7,Wd=2"] {
        let fix = Fix::parse(fix).expect("a good fix");
        let plan = plan_from_profile(profile, &fix, NOW).expect("a plan");
        let plan = plan::decode(&plan::encode(&plan).expect("it encodes")).expect("it is lawful");
        for (name, band) in NAMES.iter().flat_map(|name| plan.bands.iter().map(move |band| (name, band))) {
            let sub_plan = band.for_drafter(name).unwrap_or_else(|| panic!("no shape for {name}: {fix}"));
            let model = sub_plan.drafter.mixed_model().expect("a mixture with a model");
            assert!(model.growths <= sub_plan.shape().depth && sub_plan.acceptance.steps > 0, "{sub_plan:?}");
            let stages = &sub_plan.first().predicted.stages;
            let named = |n: &str| stages.iter().any(|s| s.stage.drafter().is_some_and(|d| d.as_str() == n));
            assert!(named(name), "copies are priced: {stages:?}");
        }
        for name in NAMES {
            let forced = DrafterChoice::Forced(name.to_owned());
            let mut engine = tiny_profiles::served(loaded, Some(plan.clone()), forced).expect("it opens");
            let mut plain = tiny_profiles::served(loaded, None, DrafterChoice::Plain).expect("it opens");
            for (prompt, temperature) in [([5, 6, 7, 5, 6, 7, 5, 6], 0.0), ([9, 1, 9, 1, 9, 1, 9, 1], 1.0)] {
                let sampling = Sampling { temperature, seed: 4, ..Sampling::GREEDY };
                let generated = |engine: &mut Engine| {
                    let mut generation = engine.generate_tokens(&prompt, 60, sampling).expect("it fits");
                    for event in &mut generation {
                        event.expect("it runs");
                    }
                    (generation.token_ids().to_vec(), generation.report().drafter)
                };
                let (found, drafter) = generated(&mut engine);
                assert_eq!((found, drafter.as_str()), (generated(&mut plain).0, "mixed"), "{name}, {fix}");
            }
        }
    }
}

/// Texts that are answered twice in a profile whose answers are recorded at every place.
fn recorded_whole() -> (Arc<Loaded>, Profile) {
    tiny_profiles::profiled(None, &[1, 2, 4, 8, 16], |options| {
        let prompts = [&options.prompts[..], &options.prompts].concat();
        ProfileOptions {
            prompts,
            tokens: 8,
            drafters: ["layer_skip", "model", "mixed"].map(str::to_owned).to_vec(),
            draft_models: draft_models().to_vec(),
            head_sizes: Vec::new(),
            temperatures: vec![1.0],
            budget: Duration::from_secs(40),
            is_rehearsal: true,
            ..options
        }
    })
}

/// Of a tree as wide as the recorded one no node is missing, and answers that are recorded whole have nothing that
/// leads up to them, so the replay is exact: every step of it is the decoder's, with what the drafters are trusted with
/// from all steps before.
#[test]
fn a_replayed_mixture_takes_the_steps_that_a_decoder_takes() {
    let (loaded, profile) = recorded_whole();
    let (mut steps, mut left_out, mut deep) = (0, 0, 0);
    let parts = [
        ("mixed_layer_skip", "layer_skip"),
        ("mixed_model", "model"),
        ("mixed_model_hidden", "model_hidden"),
    ];
    let settings = [(0.0, 6, 40), (0.0, 1, 40), (0.0, 3, 100), (1.0, 6, 60), (1.0, 1, 20)];
    for ((name, part), (temperature, growths, certain_percent)) in
        parts.into_iter().flat_map(|part| settings.map(|settings| (part, settings)))
    {
        let described = profile.drafters.iter().find(|d| d.name.as_str() == name).expect("described");
        let DrafterKind::Mixed(mixture) = DrafterKind::from_description(described).expect("known") else {
            panic!("{name} is a mixture");
        };
        let kind = DrafterKind::from(mixture.with_model_steps(growths, certain_percent));
        let is_it = |t: &&Trace| t.drafter.as_str() == part && t.temperature == temperature;
        let trace = profile.traces.iter().find(is_it).expect("recorded");
        let requests: Vec<_> =
            profile.token_traces.iter().filter(|r| r.temperature == temperature).cloned().collect();
        let (width, choice) = (trace.width, RowChoice::fixed(16, 1.0));
        let planned = Shape { depth: 9, draft_width: width, verify_width: 16 };
        let mut replay = make_replay(&kind).expect("no store").expect("copies");
        let recorded = (&[trace][..], kind.mixed_model().expect("it has one"));
        let tally = replay_merged(&requests, recorded, replay.drafter.parts(), planned, &choice);
        let shape = StepShape {
            depth: 9,
            draft_width: width as usize,
            verify_width: 16,
            top_k: trace.top_k as usize,
            draft_temperature: trace.draft_temperature,
        };
        let what = format!("{name} at {temperature}, {growths} growths, {certain_percent} %");
        let mut expected = AcceptedLengths::default();
        let mut without = 0;
        let described = kind.describe(described.name.clone());
        let mut decoder = tiny_profiles::decoder(&loaded, &described, shape, |_| ());
        for (request, prompt) in requests.iter().zip(&trace.prompts) {
            let Some(last) = prompt.steps.last() else { continue };
            assert_eq!(prompt.steps[0].context as usize, request.prompt.len(), "from the answer's begin");
            let sampling = Sampling { temperature, seed: request.seed, ..Sampling::GREEDY };
            decoder.start(&request.prompt, sampling).expect("it fits");
            let known = request.prompt.len() + request.output.len();
            while decoder.history().len() <= last.context as usize + 1 {
                let behind = known - decoder.history().len();
                let tokens = decoder.session().context() + 1 - decoder.history().len();
                let limits = Limits { tokens, ends: loaded.end_ids() };
                let accepted = decoder.step(limits, None).expect("it runs").accepted;
                // The recorded answer may end before the step does.
                expected.record(accepted.min(behind), behind);
                deep += usize::from(accepted > growths as usize);
            }
            without += decoder.stats().models_left_out;
        }
        assert_eq!(tally.accepted(), &expected, "{what}");
        let run: u64 = tally.steps().iter().filter(|((_, is_run), _)| *is_run).map(|(_, n)| n).sum();
        assert_eq!(expected.steps() - run, without, "{what}");
        steps += expected.steps();
        left_out += without;
    }
    assert!(
        steps > 200 && left_out > 8 && deep > 8,
        "{steps} steps, {left_out} without the model, {deep} deeper"
    );
}
