//! What the steps are of: models, executables and drafters.

use std::{fs, path::Path, sync::Arc, time::Duration};

use ygg_kernels::{Activations, KvFormat, Tier, WeightFormat};
use yggc::{
    backend::Loading,
    model::{
        HiddenStateModel, Model,
        synthetic::{BlockSpec, Eagle3Spec, HiddenStateSpec, SyntheticExperts, SyntheticSpec},
    },
    packed::KeptPlace,
    plan::{
        Calibration, ContextRange, DepthChoice, DepthCost, DepthCosts, DepthNetwork, Knot, NgramSettings,
        Prediction, RowChoice, RowRule, Schedule, SuffixSettings, WidthCost,
    },
    policy::{SkipCosts, SkipSearch, SkipSearchSettings, SkipTimes},
    runtime::{
        ExecutableSet, MarkovHead, Pinning, RuntimeError, Session, SessionOptions, SetOptions, SkipSet,
    },
    sample::Candidate,
    speculate::{
        BandSteps, BesideCopies, BlockDrafter, DraftGrowth, Drafter, Lookup, Mixed, ModelDrafter, Ngram,
        Prior, Recycling, Retrieval, SelfDrafter, StepShape, Suffix, Swift,
        corpus::{Corpus, CorpusStore, Offer},
    },
    storage::MappedFile,
    tree::Template,
};

pub(crate) const CONTEXT: usize = 2_048;
/// Several ranges of logits, and few enough that the head is not most of the work.
pub(crate) const VOCABULARY: u32 = 1_024;
pub(crate) const SHAPE: StepShape =
    StepShape { depth: 4, draft_width: 4, verify_width: 8, top_k: 8, draft_temperature: 1.0 };

/// Tokens that a try of another skip set is over.
pub(crate) const WINDOW: usize = 8;

pub(crate) fn spec() -> SyntheticSpec {
    SyntheticSpec {
        layers: 4,
        context: CONTEXT,
        vocabulary: VOCABULARY as usize,
        format: WeightFormat::Q4_1,
        ..SyntheticSpec::default()
    }
}

pub(crate) fn model() -> Model {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    spec().write_gguf(&path).expect("the model is written");
    Model::open(&path).expect("a generated model opens")
}

/// The tiny model of a family, for texts of as many tokens as the others'.
pub(crate) fn of_family(family: &str) -> Model {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family);
    let config = fs::read(stored.join("config.json")).expect("the tiny model is there");
    let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    config["max_position_embeddings"] = CONTEXT.into();
    fs::write(folder.path().join("config.json"), config.to_string()).expect("it is written");
    fs::write(folder.path().join("tokenizer.json"), "{}").expect("it is written");
    let weights = "model.safetensors";
    fs::copy(stored.join(weights), folder.path().join(weights)).expect("the tiny model is there");
    Model::open(folder.path()).expect("a tiny model opens")
}

pub(crate) fn set(model: &Model, tier: Tier, activations: Activations) -> Arc<ExecutableSet> {
    Arc::new(set_within(model, tier, activations, None).expect("a generated model compiles and loads"))
}

pub(crate) fn set_within(
    model: &Model,
    tier: Tier,
    activations: Activations,
    resident: Option<usize>,
) -> Result<ExecutableSet, RuntimeError> {
    let (widths, kv_format) = (vec![4, 8], KvFormat::F16);
    let options =
        SetOptions { tier, kv_format, activations, widths, model_context: CONTEXT, threads: 1, resident };
    let loading = Loading { weights: &*model.weights, kept: model.kept.as_ref(), watch: &*model.watch };
    ExecutableSet::load(&model.graph, &loading, &options)
}

/// Executables whose weights are streamed as far as can be, of a model with experts or without.
pub(crate) fn streaming(tier: Tier, experts: Option<SyntheticExperts>) -> Arc<ExecutableSet> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let spec = SyntheticSpec { feed_forward: 1024, experts, ..spec() };
    spec.write_gguf(&path).expect("the model is written");
    let stamp = || MappedFile::open(&path).expect("it was written").stamp().expect("the system says");
    while !stamp().expect("a system that notes changes").is_settled() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let kept =
        KeptPlace { folder: folder.path().into(), least_bytes: 0, most_bytes: None, most_read_bytes: 0 };
    let model = Model::open(&path).expect("a generated model opens");
    let model = model.kept_in(kept, |_| ()).expect("the system says how old it is");
    let activations = if tier == Tier::Cuda { Activations::Native } else { Activations::Int8 };
    let within = |budget| set_within(&model, tier, activations, Some(budget));
    let least = match within(0) {
        Err(RuntimeError::Budget(error)) => error.least,
        other => panic!("expected a budget that is too small, found {other:?}"),
    };
    let set =
        within(least).expect("enough").with_heads(model.weights.as_ref(), &[kept_tokens()], |stored| stored);
    let set = set.expect("tokens in order");
    assert!(set.placed().is_some_and(|placed| placed.streamed > placed.staging));
    Arc::new(set)
}

/// The same executables with drafter models added: the model itself, one that reads its hidden rows, an EAGLE-3
/// head for some tokens, and a block drafter with a Markov head.
pub(crate) fn with_drafts(set: &Arc<ExecutableSet>, model: &Model) -> Arc<ExecutableSet> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    HiddenStateSpec::for_verifier(&spec()).write_folder(folder.path()).expect("written");
    let drafter = HiddenStateModel::open(folder.path()).expect("it opens").expect("it says what it is");
    let keeping = set.with_kept_hidden(model.weights.as_ref()).expect("it compiles");
    let (graph, weights) = drafter.over(set.graph(), Arc::clone(&model.weights)).expect("its verifier");
    let hidden = keeping.beside(&graph, weights.as_ref(), CONTEXT).expect("it compiles");
    let head = Eagle3Spec { draft_tokens: Some(kept_tokens()), ..Eagle3Spec::for_verifier(&spec()) };
    head.write_folder(folder.path()).expect("written");
    let head = HiddenStateModel::open(folder.path()).expect("it opens").expect("it says what it is");
    let (graph, weights) = head.over(set.graph(), Arc::clone(&model.weights)).expect("its verifier");
    let keeping = keeping.with_kept_layers(model.weights.as_ref(), graph.layers_read()).expect("it compiles");
    let eagle3 = keeping.beside(&graph, weights.as_ref(), CONTEXT).expect("it compiles");
    let spec = BlockSpec { markov_rank: Some(4), ..BlockSpec::for_verifier(&spec()) };
    spec.write_folder(folder.path()).expect("written");
    let drafter = HiddenStateModel::open(folder.path()).expect("it opens").expect("it says what it is");
    let (graph, weights) = drafter.over(set.graph(), Arc::clone(&model.weights)).expect("its verifier");
    let tables = drafter.markov_tables().expect("they fit").expect("it has a Markov head");
    let markov = MarkovHead::new(tables.rank, tables.previous, tables.next, tables.tokens);
    let block = keeping.block_beside(&graph, weights.as_ref(), CONTEXT).expect("it compiles");
    let keeping = keeping.with_draft("block", Arc::new(block.with_markov(Some(markov))));
    let with_others = keeping.with_draft("model", Arc::clone(set)).with_draft("eagle3", Arc::new(eagle3));
    Arc::new(with_others.with_draft("hidden_state", Arc::new(hidden)))
}

/// Tokens of the trimmed head.
pub(crate) fn kept_tokens() -> Vec<u32> {
    (0..VOCABULARY).step_by(3).collect()
}

pub(crate) fn session_options(threads: usize) -> SessionOptions {
    let tree_nodes = SHAPE.scratch_rows(Schedule::HeadAhead) + WINDOW;
    SessionOptions { context: CONTEXT, tree_nodes, threads, pinning: Pinning::Floating }
}

/// Groups that a drafter leaves out: three of the usual model, fewer where a family's has only four.
fn skipped(groups: u32) -> SkipSet {
    let left_out: Vec<u32> = [2, 5, 6].into_iter().filter(|&group| group < groups).collect();
    SkipSet::new(groups, &left_out).expect("groups of the model")
}

pub(crate) fn drafter(name: &str, session: &Session) -> Option<Box<dyn Drafter>> {
    let groups = session.set().groups();
    match name {
        "none" => None,
        "lookup" => Some(Box::new(Lookup::new(3, 1, &SHAPE).expect("lengths in order"))),
        "retrieval" => Some(Box::new(retrieval(60))),
        "retrieval_lookup" => {
            let lookup = Lookup::new(3, 1, &SHAPE).expect("lengths in order");
            Some(Box::new(retrieval(60).after_lookup(lookup)))
        }
        "prior" => Some(Box::new(Prior::new(store(60), &SHAPE))),
        "suffix" => Some(Box::new(Suffix::new(
            // A text that is dropped and built again within the steps that are counted.
            SuffixSettings { remembered: 70, ..SuffixSettings::DEFAULT },
            &SHAPE,
        ))),
        "recycling" => Some(Box::new(Recycling::new(session.set().vocabulary(), &SHAPE))),
        "ngram" => {
            let settings = NgramSettings { pool: 1, ..NgramSettings::DEFAULT };
            Some(Box::new(Ngram::new(settings, &SHAPE).expect("a pool that fits")))
        }
        "layer_skip" => {
            let skip = skipped(groups);
            Some(Box::new(SelfDrafter::layer_skip(session, skip, &SHAPE).expect("a planned width")))
        }
        "template" => {
            let skip = skipped(groups);
            let equal = SelfDrafter::layer_skip(session, skip, &SHAPE).expect("a planned width");
            let template = Template::kary(2, 3, 8);
            Some(Box::new(equal.with_template(&template, &SHAPE).expect("it fits the shape")))
        }
        "trimmed_head" => {
            let skip = skipped(groups);
            let head = session.set().head(&kept_tokens()).expect("it was made");
            Some(Box::new(
                SelfDrafter::layer_skip(session, skip, &SHAPE).expect("a planned width").with_variant(head),
            ))
        }
        "swift" => Some(Box::new(swift(session, DraftGrowth::Equal))),
        "confident_swift" => Some(Box::new(swift(session, DraftGrowth::Confident))),
        "block" => {
            let draft = session.set().draft(name).expect("it was added");
            Some(Box::new(BlockDrafter::new(session, draft, &SHAPE).expect("a block drafter")))
        }
        "model" | "hidden_state" | "eagle3" => {
            let draft = session.set().draft(name).expect("it was made");
            Some(Box::new(ModelDrafter::new(session, draft, &SHAPE).expect("a planned width")))
        }
        "mixed" => {
            let parts = ["lookup", "suffix", "recycling", "ngram"].map(|part| drafter(part, session));
            Some(Box::new(Mixed::new(parts.into_iter().flatten().collect(), &SHAPE).expect("several")))
        }
        "mixed_layer_skip" | "mixed_model" | "mixed_hidden_state" | "mixed_eagle3" => {
            let copies = ["lookup", "suffix"].map(|part| drafter(part, session));
            let beside = |drafter| BesideCopies { drafter, shape: SHAPE, certain: 0.6 };
            let model = drafter(&name["mixed_".len()..], session).expect("it drafts");
            let mixed = Mixed::with_model(copies.into_iter().flatten().collect(), beside(model), &SHAPE);
            Some(Box::new(mixed.expect("copies")))
        }
        other => unreachable!("drafter {other}"),
    }
}

/// Retrieval from a store of the prompt and of some `texts` of 400 tokens.
pub(crate) fn retrieval(texts: u32) -> Retrieval {
    Retrieval::new(store(texts), 16, 1, &SHAPE).expect("lengths in order")
}

/// A store of the prompt and of some `texts` of 400 tokens, in which the model offers what comes next and what comes
/// after.
fn store(texts: u32) -> CorpusStore {
    let mut corpus = Corpus::default();
    let mut push = |text: &[u32]| {
        let candidate = |(token, log_prob): (&u32, f32)| Candidate { token: *token, log_prob };
        let offer =
            |next: &[u32]| Offer::of(&next.iter().zip([-0.4, -1.5, -2.5]).map(candidate).collect::<Vec<_>>());
        corpus.push(text, &text[1..].windows(3).map(offer).collect::<Vec<_>>());
    };
    push(&prompt());
    for first in 0..texts {
        push(&(0..400).map(|i| (i * (first + 1) + first) % VOCABULARY).collect::<Vec<u32>>());
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("texts.store");
    let (bytes, _) = corpus.encode(VOCABULARY, [0; 32]).expect("a small corpus");
    std::fs::write(&path, bytes).expect("written");
    CorpusStore::open(&path).expect("it was just written")
}

/// A drafter that tries another skip set before every step, every second one by the Gaussian process.
pub(crate) fn swift(session: &Session, growth: DraftGrowth) -> Swift {
    let times = SkipTimes { verify: vec![(1, 1.0), (8, 2.0)], draft: vec![(1, 0.5)] };
    let settings = SkipSearchSettings {
        window: WINDOW,
        share: 1e3,
        interval: 2,
        enough: 2.0,
        ..SkipSearchSettings::default()
    };
    let depth = SHAPE.depth as u32;
    let search =
        SkipSearch::new(session.set().groups(), &[2, 5], depth, SkipCosts::new(times, 0.75), settings);
    Swift::new(session, search, &SHAPE, growth, SHAPE.scratch_rows(Schedule::HeadAhead))
        .expect("room for tries")
}

/// A prompt that repeats itself, so that lookup proposes.
pub(crate) fn prompt() -> Vec<u32> {
    (0..60).map(|i| i % 7).collect()
}

/// Committed tokens from which the counted steps are in another range, like the first.
pub(crate) const FURTHER: u32 = 75;

/// Steps that are told how deep to draft and choose their rows by calibrated values, under a guard that lets everything
/// pass, within both of their ranges.
pub(crate) fn planned(drafter: Box<dyn Drafter>, set: &ExecutableSet, schedule: Schedule) -> BandSteps {
    let mut steps = BandSteps::unplanned(Some(drafter), &SHAPE);
    (steps.is_guarded, steps.is_corrected) = (true, true);
    steps.sub_plan.schedule = schedule;
    let first = &mut steps.sub_plan.ranges[0];
    let widths = [1, 4, 8].map(|width| WidthCost { width, step_us: 10.0 + f64::from(width) }).to_vec();
    let knots = vec![Knot { score: 0.0, probability: 0.4 }, Knot { score: 0.5, probability: 0.9 }];
    let calibration = Some(Calibration { by_depth: vec![knots], fitted_nodes: 1, held_out: None });
    // Time is worth so little that all is verified, whatever the clock makes of its cost.
    let rule = if schedule.prunes_on_device() { RowRule::Widest } else { RowRule::BestRate };
    first.row_choice = RowChoice { rule, widths, rate: 1e-9, calibration };
    first.predicted = Prediction { ar_tpot_us: 1e9, ..Prediction::UNPRICED };
    // Elsewhere no hidden row is left to tell by.
    if matches!(schedule, Schedule::Plain | Schedule::OneLaunch) {
        // A depth more costs nothing, so that all is drafted whatever is told.
        let cost = |depth| DepthCost { depth, step_us: 10.0, saved_us: 0.0 };
        let depth = SHAPE.depth as u32;
        let costs = DepthCosts { reach: vec![1.0; SHAPE.depth], costs: (0..=depth).map(cost).collect() };
        first.depth_choice = DepthChoice::Predicted(costs);
        steps.network = Some(DepthNetwork::blank(2 * set.model_width(), SHAPE.depth));
    }
    let further = ContextRange { from: FURTHER, context: FURTHER, ..first.clone() };
    steps.sub_plan.ranges.push(further);
    steps
}
