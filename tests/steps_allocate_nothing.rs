//! Counts every allocation of the process: a decode step makes none, and a session takes the memory it announced.
//!
//! A program of its own because an allocator belongs to a whole program; one test because all threads are counted.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicIsize, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ygg_kernels::{Activations, KvFormat, Tier, WeightFormat};
use yggc::{
    model::{
        HiddenStateModel, KeptPlace, Model,
        synthetic::{HiddenStateSpec, SyntheticSpec},
    },
    plan::{
        Calibration, DepthCost, DepthCosts, DepthNetwork, GuardLimits, Knot, NgramSettings, RowChoice,
        RowRule, Schedule, SuffixSettings, WidthCost,
    },
    policy::{GuardTerms, SkipCosts, SkipSearch, SkipSearchSettings, SkipTimes, StepCosts},
    runtime::{ExecutableSet, Exercise, Pinning, RuntimeError, Session, SessionOptions, SetOptions, SkipSet},
    sample::{Adjustment, Sampling},
    speculate::{
        Begin, Decoder, DraftGrowth, Drafter, Limits, Lookup, Mixed, ModelDrafter, Ngram, Policy, Recycling,
        Retrieval, Reuse, SelfDrafter, StepRange, StepShape, Suffix, Swift,
        corpus::{Corpus, CorpusStore},
    },
    storage::MappedFile,
    tree::Template,
};

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(layout: Layout) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    LIVE_BYTES.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

/// What `work` leaves allocated, and what it gives.
fn bytes_kept<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = LIVE_BYTES.load(Ordering::SeqCst);
    let result = work();
    let kept = LIVE_BYTES.load(Ordering::SeqCst) - before;
    (usize::try_from(kept).expect("what is kept is not negative"), result)
}

const CONTEXT: usize = 2_048;
/// Several ranges of logits, and few enough that the head is not most of the work.
const VOCABULARY: u32 = 1_024;
const SHAPE: StepShape =
    StepShape { depth: 4, draft_width: 4, verify_width: 8, top_k: 8, draft_temperature: 1.0 };

/// Tokens that a try of another skip set is over.
const WINDOW: usize = 8;

fn spec() -> SyntheticSpec {
    SyntheticSpec {
        layers: 4,
        context: CONTEXT,
        vocabulary: VOCABULARY as usize,
        format: WeightFormat::Q4_1,
        ..SyntheticSpec::default()
    }
}

fn model() -> Model {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    spec().write_gguf(&path).expect("the model is written");
    Model::open(&path).expect("a generated model opens")
}

fn set(model: &Model, tier: Tier, activations: Activations) -> Arc<ExecutableSet> {
    Arc::new(set_within(model, tier, activations, None).expect("a generated model compiles and loads"))
}

fn set_within(
    model: &Model,
    tier: Tier,
    activations: Activations,
    resident: Option<usize>,
) -> Result<ExecutableSet, RuntimeError> {
    let (widths, kv_format) = (vec![4, 8], KvFormat::F16);
    let options =
        SetOptions { tier, kv_format, activations, widths, model_context: CONTEXT, threads: 1, resident };
    ExecutableSet::build(&model.graph, model.weights.as_ref(), &options)
}

/// Executables whose weights are streamed as far as can be.
fn streaming(tier: Tier) -> Arc<ExecutableSet> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    SyntheticSpec { feed_forward: 1024, ..spec() }.write_gguf(&path).expect("the model is written");
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
    let set = within(least).expect("enough").with_heads(model.weights.as_ref(), &[kept_tokens()]);
    let set = set.expect("tokens in order");
    assert!(set.placed().is_some_and(|placed| placed.streamed > placed.staging));
    Arc::new(set)
}

/// The same executables with drafter models beside them: the model itself, and one that reads its hidden rows.
fn with_drafts(set: &Arc<ExecutableSet>, model: &Model) -> Arc<ExecutableSet> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    HiddenStateSpec::for_verifier(&spec()).write_folder(folder.path()).expect("written");
    let drafter = HiddenStateModel::open(folder.path()).expect("it opens").expect("it says what it is");
    let keeping = set.with_kept_hidden(model.weights.as_ref()).expect("it compiles");
    let (graph, weights) = drafter.over(set.graph(), Arc::clone(&model.weights)).expect("its verifier");
    let hidden = keeping.beside(&graph, weights.as_ref(), CONTEXT).expect("it compiles");
    Arc::new(keeping.with_draft("model", Arc::clone(set)).with_draft("hidden_state", Arc::new(hidden)))
}

/// Tokens of the trimmed head.
fn kept_tokens() -> Vec<u32> {
    (0..VOCABULARY).step_by(3).collect()
}

fn session_options(threads: usize) -> SessionOptions {
    let tree_nodes = SHAPE.scratch_rows(Schedule::HeadAhead) + WINDOW;
    SessionOptions { context: CONTEXT, tree_nodes, threads, pinning: Pinning::Floating }
}

fn drafter(name: &str, session: &Session) -> Option<Box<dyn Drafter>> {
    let groups = session.set().groups();
    match name {
        "none" => None,
        "lookup" => Some(Box::new(Lookup::new(3, 1, &SHAPE).expect("lengths in order"))),
        "retrieval" => Some(Box::new(retrieval(60))),
        "retrieval_lookup" => {
            let lookup = Lookup::new(3, 1, &SHAPE).expect("lengths in order");
            Some(Box::new(retrieval(60).after_lookup(lookup)))
        }
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
            let skip = SkipSet::new(groups, &[2, 5, 6]).expect("groups of the model");
            Some(Box::new(SelfDrafter::layer_skip(session, skip, &SHAPE).expect("a planned width")))
        }
        "template" => {
            let skip = SkipSet::new(groups, &[2, 5, 6]).expect("groups of the model");
            let equal = SelfDrafter::layer_skip(session, skip, &SHAPE).expect("a planned width");
            let template = Template::kary(2, 3, 8);
            Some(Box::new(equal.with_template(&template, &SHAPE).expect("it fits the shape")))
        }
        "trimmed_head" => {
            let skip = SkipSet::new(groups, &[2, 5, 6]).expect("groups of the model");
            let head = session.set().head(&kept_tokens()).expect("it was made");
            Some(Box::new(
                SelfDrafter::layer_skip(session, skip, &SHAPE).expect("a planned width").with_variant(head),
            ))
        }
        "swift" => Some(Box::new(swift(session, DraftGrowth::Equal))),
        "confident_swift" => Some(Box::new(swift(session, DraftGrowth::Confident))),
        "model" | "hidden_state" => {
            let draft = session.set().draft(name).expect("it was made");
            Some(Box::new(ModelDrafter::new(session, draft, &SHAPE).expect("a planned width")))
        }
        "mixed" => {
            let parts = ["lookup", "suffix", "recycling", "ngram"].map(|part| drafter(part, session));
            Some(Box::new(Mixed::new(parts.into_iter().flatten().collect(), &SHAPE).expect("several")))
        }
        other => unreachable!("drafter {other}"),
    }
}

/// Retrieval from a store of the prompt and of some `texts` of 400 tokens.
fn retrieval(texts: u32) -> Retrieval {
    let mut corpus = Corpus::default();
    corpus.push(&prompt());
    for first in 0..texts {
        corpus.push(&(0..400).map(|i| (i * (first + 1) + first) % VOCABULARY).collect::<Vec<u32>>());
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("texts.store");
    std::fs::write(&path, corpus.encode(VOCABULARY, [0; 32]).expect("a small corpus")).expect("written");
    let store = CorpusStore::open(&path).expect("it was just written");
    Retrieval::new(store, 16, 1, &SHAPE).expect("lengths in order")
}

/// A drafter that tries another skip set before every step, every second one by the Gaussian process.
fn swift(session: &Session, growth: DraftGrowth) -> Swift {
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
fn prompt() -> Vec<u32> {
    (0..60).map(|i| i % 7).collect()
}

fn decode(decoder: &mut Decoder, steps: usize) {
    for _ in 0..steps {
        decoder.step(Limits { tokens: 100, ends: &[] }, None).expect("the step runs");
    }
}

/// Committed tokens from which the counted steps are in another range, like the first.
const FURTHER: usize = 75;

/// A decoder that is told how deep to draft and chooses its rows by calibrated values, under a guard that lets everything pass, within
/// both of its ranges.
fn planned(decoder: Decoder, schedule: Schedule) -> Decoder {
    let StepShape { depth, verify_width, .. } = SHAPE;
    let further = StepRange { from: FURTHER, drafts: true, depth, verify_width };
    let decoder = with_choices(decoder, schedule).with_range(further).expect("a shape like the first");
    with_choices(decoder, schedule).with_schedule(schedule).expect("a schedule that the drafter can keep")
}

/// The same decoder, whose newest range goes by predictions and calibrated values.
fn with_choices(decoder: Decoder, schedule: Schedule) -> Decoder {
    let widths = [1, 4, 8].map(|width| WidthCost { width, step_us: 10.0 + f64::from(width) }).to_vec();
    let knots = vec![Knot { score: 0.0, probability: 0.4 }, Knot { score: 0.5, probability: 0.9 }];
    let calibration = Some(Calibration { by_depth: vec![knots], fitted_nodes: 1, held_out: None });
    // Time is worth so little that all is verified, whatever the clock makes of its cost.
    let rule = if schedule.prunes_on_device() { RowRule::Widest } else { RowRule::BestRate };
    let choice = RowChoice { rule, widths, rate: 1e-9, calibration };
    let guard = GuardTerms { aal: 1.0, step_us: 1.0, plain_step_us: 1e9, limits: GuardLimits::DEFAULT };
    let policy = Policy { choice, guard: Some(guard), costs: Some(StepCosts::new(10.0)) };
    let decoder = decoder.with_policy(policy).expect("the widths of the shape");
    match schedule {
        // None of these leaves a hidden row to tell by.
        Schedule::HeadAhead | Schedule::DeviceWalk | Schedule::TwoLaunches | Schedule::WholeStep => decoder,
        Schedule::Plain | Schedule::OneLaunch => {
            // A depth more costs nothing, so that all is drafted whatever is told.
            let cost = |depth| DepthCost { depth, step_us: 10.0, saved_us: 0.0 };
            let depth = SHAPE.depth as u32;
            let costs = DepthCosts { reach: vec![1.0; SHAPE.depth], costs: (0..=depth).map(cost).collect() };
            let network = DepthNetwork::blank(2 * decoder.session().set().model_width(), SHAPE.depth);
            decoder.with_depths(costs, network).expect("a network for the model")
        }
    }
}

fn check_steps(
    set: &Arc<ExecutableSet>,
    (name, schedule): (&str, Schedule),
    threads: usize,
    sampling: Sampling,
) {
    let mut session = Session::open(Arc::clone(set), &session_options(threads)).expect("a session opens");
    if name == "hidden_state" {
        session.keep_hidden().expect("it was made for that");
    }
    let drafter = drafter(name, &session);
    let shape = if drafter.is_some() { SHAPE } else { StepShape::PLAIN };
    let decoder = Decoder::new(session, drafter, shape).expect("a planned width");
    let mut decoder = if name == "none" { decoder } else { planned(decoder, schedule) };
    decoder.start(&prompt(), sampling).expect("the prompt fits");
    decode(&mut decoder, 3);

    decoder.start(&prompt(), sampling).expect("the prompt fits");
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    decode(&mut decoder, 40);
    let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(
        allocations, 0,
        "{name} on {threads} threads, {schedule}, {sampling:?}: allocations in 40 steps"
    );
    assert_eq!(decoder.range(), usize::from(name != "none"), "{name} went on to its other range");
    assert_eq!(decoder.stats().drafted > 0, name != "none", "{name} drafted {}", decoder.stats().drafted);
    let walked = if schedule.walks_on_device() && sampling.is_greedy() { 40 } else { 0 };
    assert_eq!(decoder.stats().walked_by_device, walked, "{name}, {schedule}");
    let heads = if schedule == Schedule::HeadAhead { 39 } else { 0 };
    let tries = decoder.skip_searches().next().map_or(0, |search| search.counts().tries);
    assert_eq!(tries > 20, name.ends_with("swift"), "{name} tried {tries} sets");
    assert!(heads == 0 || name != "swift" || decoder.stats().heads_ahead > 10, "{name}, {schedule}");
    assert!(name == "swift" || decoder.stats().heads_ahead == heads, "{name}, {schedule}");
}

/// Requests that are adjusted and report log-probabilities, whose steps show whole rows.
fn check_terms(set: &Arc<ExecutableSet>, (name, schedule): (&str, Schedule), sampling: Sampling) {
    let session = Session::open(Arc::clone(set), &session_options(1)).expect("a session opens");
    let drafter = drafter(name, &session);
    let decoder = Decoder::new(session, drafter, SHAPE);
    let mut decoder = planned(decoder.expect("a planned width"), schedule);
    let adjustment =
        Adjustment { bias: vec![(3, 1.0), (9, -100.0)], repetition: 1.1, frequency: 0.2, presence: -0.1 };
    let prompt = prompt();
    let begin = Begin {
        adjustment: &adjustment,
        log_probs: Some(20),
        reuse: Reuse::Prefix,
        ..Begin::new(&prompt, sampling)
    };
    for request in 0..2 {
        decoder.begin(&begin).expect("the prompt fits").expect("nobody cancels it");
        assert_eq!(decoder.stats().reused > 0, request > 0);
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        decode(&mut decoder, 20);
        let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
        assert_eq!(allocations, 0, "{name}, adjusted, {sampling:?}: allocations in 20 steps");
        let (own, best) = decoder.log_probs().of(0).expect("it was asked for");
        assert!(own <= 0.0 && best.len() == 20);
    }
}

/// Requests of other temperatures, which other drafters serve, in turn.
fn check_ways(set: &Arc<ExecutableSet>, threads: usize) {
    let session = Session::open(Arc::clone(set), &session_options(threads)).expect("a session opens");
    let [lookup, skip] = ["lookup", "layer_skip"].map(|name| drafter(name, &session));
    let narrow = StepShape { depth: 2, draft_width: 1, verify_width: 3, ..SHAPE };
    let ahead = |decoder: Decoder| decoder.with_schedule(Schedule::HeadAhead);
    let mut decoder = Decoder::new(session, lookup, narrow)
        .and_then(|decoder| decoder.with_way(0.6, skip, SHAPE))
        .and_then(ahead)
        .and_then(|decoder| decoder.with_way(1.0, None, StepShape::PLAIN))
        .expect("planned widths");
    let mut begun = |temperature: f32| {
        let sampling = Sampling { temperature, seed: 3, ..Sampling::GREEDY };
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        decoder.start(&prompt(), sampling).expect("the prompt fits");
        let started = ALLOCATIONS.load(Ordering::SeqCst);
        decode(&mut decoder, 10);
        let stepped = ALLOCATIONS.load(Ordering::SeqCst) - started;
        assert_eq!(stepped, 0, "at {temperature} on {threads} threads: allocations in 10 steps");
        (started - before, decoder.way())
    };
    // The first request that samples makes room for that.
    begun(0.6);
    begun(0.0);
    // A change of temperature takes no more than the same again.
    for (temperature, way) in [(0.0, 0), (0.6, 1), (1.0, 2), (0.6, 1), (0.0, 0)] {
        let (changed, at) = begun(temperature);
        assert_eq!((changed, at), (begun(temperature).0, way), "at {temperature} on {threads} threads");
    }
}

/// Watching a forward changes nothing about it, and neither do exercises.
fn check_observed(set: &Arc<ExecutableSet>, threads: usize) {
    let mut session = Session::open(Arc::clone(set), &session_options(threads)).expect("a session opens");
    session.restart(&prompt()).expect("the prompt fits");
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let mut forward = session.forward(1).expect("a planned width");
    forward.push(1, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    let mut moments = 0;
    forward.run_observed(&mut |_| moments += 1);
    session.exercise(Exercise::ReadWeights { passes: 1 });
    session.exercise(Exercise::EmptySteps { steps: 3 });
    let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(allocations, 0, "an observed forward on {threads} threads of {moments} moments");
    assert!(moments > 20);
}

/// A store is mapped: of 200,000 tokens nothing is copied, and what the drafter reserves is small.
fn check_store_memory() {
    let (taken, drafter) = bytes_kept(|| retrieval(500));
    assert!(taken <= 16 << 10, "retrieval from 200,000 tokens took {taken} bytes");
    drop(drafter);
}

fn check_memory(set: &Arc<ExecutableSet>, threads: usize) {
    let options = session_options(threads);
    let announced = set.memory(&options).session_bytes;
    let open = || Session::open(Arc::clone(set), &options).expect("a session opens");
    let (taken, session) = bytes_kept(open);
    // Input rows and thread handles are small and not announced.
    let small = 64 << 10;
    assert!(
        taken >= announced && taken <= announced + small,
        "a session on {threads} threads took {taken} bytes, {announced} were announced"
    );
    drop(session);
}

/// The one test. It has no harness, whose notice of a test that takes long would be counted. Filters of `cargo test` leave it out as
/// they would with one.
#[allow(clippy::print_stdout, reason = "it stands for the harness")]
fn main() {
    const NAME: &str = "a_step_allocates_nothing_and_a_session_takes_what_it_announced";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let takes_a_value =
        |argument: &String| ["--skip", "--test-threads", "--format"].contains(&argument.as_str());
    let mut filters = Vec::new();
    for (place, argument) in arguments.iter().enumerate() {
        if !argument.starts_with('-')
            && !place.checked_sub(1).is_some_and(|before| takes_a_value(&arguments[before]))
        {
            filters.push(argument);
        }
    }
    let is_wanted = filters.is_empty() || filters.iter().any(|filter| NAME.contains(filter.as_str()));
    if is_wanted && !arguments.iter().any(|argument| argument == "--list") {
        a_step_allocates_nothing_and_a_session_takes_what_it_announced();
        println!("test {NAME} ... ok");
    }
}

/// Whether the environment asks for a GPU instead of this processor, as the other tests do.
fn is_cuda() -> bool {
    #[expect(clippy::disallowed_methods, reason = "which device is tested is told by the environment")]
    let device = std::env::var_os("YGG_TEST_DEVICE");
    device.is_some_and(|device| device == "cuda")
}

/// On a GPU, or its emulation, which allocates elsewhere: under every schedule, with what the host verifies by rule.
fn check_cuda(model: &Model, sampled: Sampling) {
    let set = with_drafts(&set(model, Tier::Cuda, Activations::Native), model);
    let others = [
        ("lookup", Schedule::Plain),
        ("lookup", Schedule::DeviceWalk),
        ("model", Schedule::HeadAhead),
        ("model", Schedule::TwoLaunches),
        ("hidden_state", Schedule::TwoLaunches),
        ("hidden_state", Schedule::WholeStep),
    ];
    let schedules = Schedule::ALL.map(|schedule| ("layer_skip", schedule));
    for (drafter, sampling) in schedules.into_iter().chain(others).map(|drafter| (drafter, Sampling::GREEDY))
    {
        check_steps(&set, drafter, 1, sampling);
    }
    check_steps(&set, ("layer_skip", Schedule::TwoLaunches), 1, sampled);
    let streamed = streaming(Tier::Cuda);
    check_observed(&streamed, 1);
    for drafter in [("none", Schedule::Plain), ("layer_skip", Schedule::WholeStep)] {
        check_steps(&streamed, drafter, 1, Sampling::GREEDY);
    }
}

/// Streamed weights are read by threads that allocate nothing either.
fn check_streamed(tier: Tier, sampled: Sampling) {
    let set = streaming(tier);
    for threads in [1, 2] {
        check_memory(&set, threads);
        check_observed(&set, threads);
        for name in ["none", "lookup", "layer_skip", "trimmed_head"] {
            check_steps(&set, (name, Schedule::Plain), threads, sampled);
        }
    }
}

fn a_step_allocates_nothing_and_a_session_takes_what_it_announced() {
    let model = model();
    if is_cuda() {
        let sampled = Sampling { temperature: 0.8, seed: 3, ..Sampling::GREEDY };
        return check_cuda(&model, sampled);
    }
    check_store_memory();
    let sampled = Sampling { temperature: 0.8, top_k: 0, top_p: 0.95, min_p: 0.02, seed: 3 };
    let cut = Sampling { top_k: 40, ..sampled };
    let tiers = yggc::backend::available_tiers();
    let fastest = *tiers.last().expect("a tier for every processor");
    check_streamed(fastest, sampled);
    for (tier, activations) in
        tiers.into_iter().flat_map(|tier| Activations::ALL.map(|activations| (tier, activations)))
    {
        let (taken, set) = bytes_kept(|| set(&model, tier, activations));
        let announced = set.memory(&session_options(1)).weight_bytes;
        // Programs of three widths are kept beside the weights.
        assert!(
            taken >= announced && taken <= announced + (1 << 20),
            "executables on {tier} took {taken} bytes, {announced} of weights were announced"
        );
        let trim =
            || Arc::new(set.with_heads(model.weights.as_ref(), &[kept_tokens()]).expect("tokens in order"));
        let (taken, trimmed) = bytes_kept(trim);
        let more = trimmed.memory(&session_options(1)).weight_bytes - announced;
        // Programs of both sets are kept; all weights but the head's are shared.
        assert!(
            more < announced / 2 && taken >= more && taken <= more + (2 << 20),
            "a trimmed head on {tier} took {taken} bytes, {more} of weights were announced"
        );
        for threads in [1, 2] {
            check_memory(&set, threads);
            check_memory(&trimmed, threads);
        }
        if tier == Tier::Reference {
            // The scalar judge makes copies; only the backends that serve promise to allocate nothing.
            continue;
        }
        for threads in [1, 2] {
            check_observed(&set, threads);
            check_ways(&set, threads);
        }
        // How tokens are drawn is the same code on every tier.
        let samplings = if tier == fastest { vec![Sampling::GREEDY, sampled, cut] } else { vec![sampled] };
        for name in ["none", "lookup", "suffix", "recycling", "ngram", "mixed", "layer_skip", "trimmed_head"]
        {
            for threads in [1, 2] {
                for sampling in &samplings {
                    check_steps(&trimmed, (name, Schedule::Plain), threads, *sampling);
                }
            }
        }
        let drafting = with_drafts(&set, &model);
        for (name, threads) in [("model", 1), ("model", 2), ("hidden_state", 1), ("hidden_state", 2)] {
            for sampling in &samplings {
                check_steps(&drafting, (name, Schedule::Plain), threads, *sampling);
            }
        }
        for (threads, sampling) in [(1, sampled), (2, Sampling::GREEDY)] {
            check_steps(&drafting, ("model", Schedule::HeadAhead), threads, sampling);
        }
        for (drafter, threads, sampling) in [
            (("swift", Schedule::Plain), 1, sampled),
            (("swift", Schedule::HeadAhead), 2, Sampling::GREEDY),
            (("confident_swift", Schedule::Plain), 2, Sampling::GREEDY),
        ] {
            check_steps(&set, drafter, threads, sampling);
        }
        check_terms(&set, ("mixed", Schedule::Plain), Sampling::GREEDY);
        check_terms(&set, ("layer_skip", Schedule::HeadAhead), sampled);
        // What looks into a store uses no threads.
        for (name, sampling) in [("retrieval", Sampling::GREEDY), ("retrieval_lookup", sampled)] {
            check_steps(&set, (name, Schedule::Plain), 1, sampling);
        }
        for (threads, sampling) in [(1, sampled), (2, Sampling::GREEDY), (2, cut)] {
            check_steps(&set, ("layer_skip", Schedule::HeadAhead), threads, sampling);
            // Those of every device.
            for schedule in [Schedule::Plain, Schedule::HeadAhead] {
                check_steps(&set, ("template", schedule), threads, sampling);
            }
        }
    }
}
