//! Streamed weights: whatever is in memory and whatever is read for every forward, the bits are the same; and what goes
//! wrong is told.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use serde_json::Value;
use ygg_kernels::{Activations, KvFormat, Tier, WeightFormat};
use yggc::{
    engine::{Engine, LoadOptions, Loaded, Options},
    ir::Placed,
    model::{
        Model,
        synthetic::{SyntheticExperts, SyntheticSpec},
    },
    packed::KeptPlace,
    plan::Schedule,
    runtime::{Choice, ExecutableSet, RuntimeError, SetOptions, SkipSet, VariantChange},
    sample::Sampling,
    speculate::{BandSteps, Decoder, Drafter, Limits, SelfDrafter, StepShape},
    storage::MappedFile,
};

use crate::emulated_cuda::on_cuda;
use crate::program::{failure, success, yggc};
use crate::tiny_model::{Class, Dice, TinyModel, bits, is_cuda, loading, session, tested_tiers};

/// Several layers of matrices of several pages: so some of them are streamed through a buffer that is smaller than
/// they.
fn spec(format: WeightFormat, tied: bool) -> SyntheticSpec {
    // An emulated device is a thousand times as slow.
    let (layers, feed_forward) = if is_cuda() { (4, 256) } else { (6, 512) };
    SyntheticSpec {
        layers,
        width: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        feed_forward,
        vocabulary: 300,
        context: crate::tiny_model::MODEL_CONTEXT,
        format,
        tied,
        ..SyntheticSpec::default()
    }
}

fn folder(name: &str) -> PathBuf {
    let device = if is_cuda() { "cuda" } else { "cpu" };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streaming").join(device).join(name);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Writes a model and, where packed weights are kept, waits until a later change of it would show.
pub(crate) fn written(folder: &Path, name: &str, spec: &SyntheticSpec) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join(format!("{}.{name}", process::id())));
    // Other processes test by the same file.
    spec.write_gguf(&new).expect("the target folder is writable");
    fs::rename(&new, &path).expect("the target folder is writable");
    if is_cuda() {
        return path;
    }
    settled(&path);
    path
}

/// Waits until a change of the file would be noticed.
fn settled(path: &Path) {
    let stamp = || MappedFile::open(path).expect("it was written").stamp().expect("the system says");
    while !stamp().expect("a system that notes changes").is_settled() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// The model, with a folder for its packed weights; of a GPU none are kept.
pub(crate) fn opened(path: &Path) -> Model {
    if is_cuda() {
        return Model::open(path).expect("a generated model opens");
    }
    let folder = path.with_extension("kept");
    let place = KeptPlace { folder, least_bytes: usize::MAX, most_bytes: None, most_read_bytes: 0 };
    let model = Model::open(path).expect("a generated model opens");
    model.kept_in(place, |_| ()).expect("the system says how old it is")
}

fn build(model: &Model, class: Class, resident: Option<usize>) -> Result<Arc<ExecutableSet>, RuntimeError> {
    let Class { tier, activations } = class;
    let options = SetOptions {
        tier,
        kv_format: KvFormat::F16,
        activations,
        widths: vec![2, 8],
        model_context: model.config.context,
        threads: 2,
        resident,
    };
    ExecutableSet::load(&model.graph, &loading(model), &options).map(Arc::new)
}

/// A class of a tier that streams: int8 where there is that.
fn class_of(tier: Tier, format: WeightFormat) -> Class {
    let activations = if tier == Tier::Cuda { Activations::Native } else { Activations::Int8.over(format) };
    Class { tier, activations }
}

/// Of the device that is tested, or of the plainest kernels of a processor.
fn class() -> Class {
    class_of(if is_cuda() { Tier::Cuda } else { Tier::Portable }, WeightFormat::Q8_0)
}

/// The least budget that works.
fn least(model: &Model, class: Class) -> usize {
    match build(model, class, Some(0)) {
        Err(RuntimeError::Budget(error)) => error.least,
        other => panic!("expected a budget that is too small, found {other:?}"),
    }
}

/// Models of which a part is streamed, of a format of each kind of kernel.
pub(crate) fn models() -> &'static [TinyModel] {
    static MODELS: OnceLock<Vec<TinyModel>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let folder = folder("models");
        let formats = [WeightFormat::BF16, WeightFormat::Q8_0, WeightFormat::Q4_K];
        let open = |format: WeightFormat, experts: Option<SyntheticExperts>| {
            let name = if experts.is_some() { format!("{format} experts") } else { format.to_string() };
            let spec = SyntheticSpec { experts, ..spec(format, true) };
            let model = opened(&written(&folder, &format!("{name}.gguf"), &spec));
            let resident = least(&model, class()) + (200 << 10);
            TinyModel::of(name, model, format).within(resident)
        };
        let experts = SyntheticExperts { count: 5, used: 2, are_copies: false };
        let dense = formats.map(|format| open(format, None));
        dense.into_iter().chain([open(WeightFormat::Q8_0, Some(experts))]).collect()
    })
}

/// Bits of what forwards of every width and a prefill show, some of them with layers left out.
fn shown(set: &Arc<ExecutableSet>, threads: usize) -> Vec<u32> {
    let mut session = session(set, 128, 8, threads);
    let tokens = Dice::new(5).tokens(if is_cuda() { 9 } else { 70 }, set.vocabulary());
    let mut all = bits(session.prefill(&tokens).expect("tokens of the model"));
    for rows in [1, 2, 7, 1] {
        let mut forward = session.forward(rows).expect("a planned width");
        for row in 0..rows as u32 {
            forward.push(row + 3, row, row, |tail| {
                tail.iter_mut().zip(0..=row).for_each(|(slot, above)| *slot = above);
                row as usize + 1
            });
        }
        let logits = forward.run(None);
        (0..rows).for_each(|row| all.extend(bits(logits.row(row))));
    }
    all
}

/// Compares the bits of a model in memory and within budgets, of which each has a number of threads.
fn streams_alike(
    folder: &Path,
    (format, tied): (WeightFormat, bool),
    budgets: impl Fn(usize) -> Vec<(usize, usize)>,
) {
    let model = opened(&written(folder, &format!("{format}.gguf"), &spec(format, tied)));
    model_streams_alike(&model, format, budgets);
}

pub(crate) fn model_streams_alike(
    model: &Model,
    format: WeightFormat,
    budgets: impl Fn(usize) -> Vec<(usize, usize)>,
) {
    for tier in tested_tiers().into_iter().filter(|tier| *tier != Tier::Reference) {
        let class = class_of(tier, format);
        let expected = shown(&build(model, class, None).expect("it fits"), 1);
        for (budget, threads) in budgets(least(model, class)) {
            let set = build(model, class, Some(budget)).expect("enough");
            let Placed { resident, streamed, staging } = set.placed().expect("there is a budget");
            assert!(resident + staging <= budget, "{resident} and {staging} within {budget}");
            assert_eq!(streamed > 0, budget != usize::MAX, "{format} within {budget}");
            assert!(staging < streamed || streamed == 0, "a buffer of {staging} for {streamed}");
            assert_eq!(set.memory(&session(&set, 64, 1, 1).options()).weight_bytes, resident + staging);
            assert!(shown(&set, threads) == expected, "{format} on {tier} within {budget}");
        }
    }
}

#[test]
fn the_bits_are_those_of_a_model_in_memory() {
    for case in [(WeightFormat::BF16, false), (WeightFormat::Q8_0, true), (WeightFormat::Q4_K, false)] {
        streams_alike(&folder("bits"), case, |least| {
            let more = (least + (150 << 10), 1);
            if is_cuda() { vec![more] } else { vec![(least, 2), more, (usize::MAX, 1)] }
        });
    }
}

/// Layers whose keys others read stay in memory, and embeddings of layers in the model's file.
#[test]
fn layers_that_share_are_streamed_to_the_bit() {
    if is_cuda() {
        return;
    }
    let path = folder("sharing").join("model.gguf");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families/gemma4/model.gguf");
    // Another process may have it open.
    let new = path.with_extension(process::id().to_string());
    fs::copy(stored, &new).expect("the target folder is writable");
    fs::rename(&new, &path).expect("the target folder is writable");
    settled(&path);
    model_streams_alike(&opened(&path), WeightFormat::F16, |least| vec![(least, 1), (least + (40 << 10), 2)]);
}

/// What faults are tried on.
#[test]
fn a_forward_streams_within_the_least() {
    streams_alike(&folder("least"), (WeightFormat::Q8_0, true), |least| vec![(least, 1)]);
}

#[test]
fn sessions_over_one_model_take_turns() {
    let model = &models()[1];
    let set = model.set(model.classes().pop().expect("a tier"));
    let expected = shown(set, 1);
    let (sessions, times) = if is_cuda() { (2, 1) } else { (3, 4) };
    thread::scope(|scope| {
        for _ in 0..sessions {
            scope.spawn(|| assert!((0..times).all(|_| shown(set, 1) == expected)));
        }
    });
}

/// Of a GPU what is in its own memory does not count, and of a processor what is in a file.
#[test]
fn what_streamed_weights_take_of_the_host_counts_in_the_limit_of_memory() {
    let Class { tier, activations } = class();
    let path = written(&folder("limit"), "model.gguf", &spec(WeightFormat::Q8_0, true));
    let resident = Some(least(&opened(&path), class()));
    let (cache, threads, widths) = (KvFormat::F16, Some(1), Vec::new());
    let options = LoadOptions { tier: Some(tier), activations, cache, threads, widths, resident };
    let loaded = Arc::new(Loaded::new(opened(&path), &options).expect("enough"));
    let engine = |limit| {
        let options = Options { memory_limit: Some(limit), context: Some(64), ..Options::new(&path) };
        Engine::with_loaded(Arc::clone(&loaded), &options)
    };
    let unlimited = engine(usize::MAX).expect("there is no limit");
    let (memory, of_session) = (unlimited.memory(), unlimited.session_host_bytes());
    assert!(memory.streamed_bytes > memory.weight_bytes, "{memory:?}");
    let (pinned, counted, said) = if is_cuda() {
        (memory.streamed_bytes, memory.streamed_bytes, "pinned memory of the host")
    } else {
        (0, memory.weight_bytes + memory.session_bytes, "a shorter context")
    };
    assert_eq!((memory.pinned_bytes, of_session), (pinned, if is_cuda() { 0 } else { memory.session_bytes }));
    engine(counted).expect("as much as it takes");
    let refused = engine(counted - 1).expect_err("a byte is missing").to_string();
    assert!(refused.contains(said), "{refused}");
}

/// Draft phases and verifications without the host stream too: of the model without a sub-layer, and of a substitute in
/// addition to streamed forwards.
#[test]
fn steps_without_the_host_are_those_of_a_model_in_memory() {
    if !is_cuda() {
        return;
    }
    let (streaming, class) = (&models()[1], class());
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
    let change = VariantChange { head_tokens: None, substitute_bits: Some(4) };
    let with_substitute = |set: &ExecutableSet| {
        let set = set.with_variants(streaming.model.weights.as_ref(), &[change]).expect("fewer bits");
        Arc::new(set)
    };
    let streamed = with_substitute(streaming.set(class));
    let in_memory = with_substitute(&build(&streaming.model, class, None).expect("it fits"));
    let answer = |set: &Arc<ExecutableSet>, drafts: Option<bool>| {
        let session = session(set, 64, shape.tree_nodes(), 1);
        let drafter = drafts.map(|is_substitute| {
            let drafter = if is_substitute {
                let variant = set.variant(change).expect("it was made").expect("fewer bits");
                SelfDrafter::substitute(&session, variant, &shape)
            } else {
                let skip = SkipSet::new(set.groups(), &[set.groups() - 1]).expect("a group of the model");
                SelfDrafter::layer_skip(&session, skip, &shape)
            };
            Box::new(drafter.expect("a planned width")) as Box<dyn Drafter>
        });
        let (shape, schedule) = match drafts {
            Some(_) => (shape, Schedule::WholeStep),
            None => (StepShape::PLAIN, Schedule::Plain),
        };
        let mut steps = BandSteps::unplanned(drafter, &shape);
        steps.sub_plan.schedule = schedule;
        let mut decoder = Decoder::new(session, vec![steps]).expect("a device that does it all");
        decoder.start(&[1, 2, 3, 1, 2], Sampling::GREEDY).expect("the prompt fits");
        while decoder.history().len() < 14 {
            let tokens = 14 - decoder.history().len();
            decoder.step(Limits { tokens, ends: &[] }, None).expect("the step runs");
        }
        decoder.history().to_vec()
    };
    let expected = answer(&in_memory, None);
    for drafts in [None, Some(false), Some(true)] {
        assert_eq!(answer(&streamed, drafts), expected, "a substitute drafts: {drafts:?}");
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_read_fails_the_session_and_says_so() {
    let experts = SyntheticExperts { count: 5, used: 2, are_copies: false };
    for experts in [None, Some(experts)] {
        a_cut_file_is_told(&SyntheticSpec { experts, ..spec(WeightFormat::Q8_0, true) });
    }
}

fn a_cut_file_is_told(spec: &SyntheticSpec) {
    let path =
        written(&folder("cut"), if spec.experts.is_some() { "experts.gguf" } else { "model.gguf" }, spec);
    let model = opened(&path);
    let class = Class { tier: Tier::Portable, activations: Activations::Int8 };
    let set = build(&model, class, Some(least(&model, class))).expect("enough");
    let mut session = session(&set, 64, 1, 2);
    session.prefill(&[1, 2, 3]).expect("nothing is wrong yet");
    let kept = fs::read_dir(path.with_extension("kept")).expect("it is there").flatten().map(|e| e.path());
    let kept = kept.filter(|path| path.extension().is_some_and(|extension| extension == "packed"));
    for file in kept {
        File::options().write(true).open(file).expect("it is ours").set_len(8192).expect("it is shortened");
    }
    // What was read ahead is still good.
    let failed = (0..20).find_map(|_| session.prefill(&[4]).err()).expect("it fails").to_string();
    assert!(failed.contains(".packed") && failed.contains("it was cut"), "{failed}");
    assert!(session.prefill(&[4]).is_err(), "it stays failed");
    // The next start makes the file again.
    let again = build(&model, class, Some(least(&model, class))).expect("it is packed again");
    assert_eq!(shown(&again, 1), shown(&build(&model, class, None).expect("it fits"), 1));
}

#[test]
fn without_a_place_for_packed_weights_nothing_is_streamed() {
    let path = written(&folder("nowhere"), "model.gguf", &spec(WeightFormat::Q8_0, true));
    let class = Class { tier: Tier::Portable, activations: Activations::Int8 };
    let model = Model::open(&path).expect("a generated model opens");
    let refused = build(&model, class, Some(least(&model, class))).expect_err("it cannot be").to_string();
    assert!(refused.contains("cannot be streamed") && refused.contains("no folder"), "{refused}");
}

/// Answers of the program with these arguments.
fn answer(model: &Path, cache: &Path, arguments: &[&str]) -> process::Output {
    let mut command = yggc();
    asked(command.arg("run").arg("-m").arg(model), cache, arguments)
}

fn asked(command: &mut process::Command, cache: &Path, arguments: &[&str]) -> process::Output {
    command.args(["--raw", "-p", "one two", "-n", "12", "--no-spec", "--json"]);
    command.arg("--cache-dir").arg(cache).args(arguments).output().expect("yggc starts")
}

fn tokens(output: &process::Output) -> Value {
    let value: Value = serde_json::from_str(&success(output)).expect("JSON");
    value["token_ids"].clone()
}

#[test]
fn the_program_answers_alike_and_names_the_least_that_works() {
    let folder = folder("program");
    let model = written(&folder, "model.gguf", &spec(WeightFormat::Q8_0, true));
    let cache = folder.join("cache");
    let expected = tokens(&answer(&model, &cache, &[]));
    assert!(expected.as_array().is_some_and(|tokens| !tokens.is_empty()));
    let said = failure(&answer(&model, &cache, &["--resident", "100K"]), 3);
    let least = said.split("at least ").nth(1).and_then(|rest| rest.split(',').next()).expect("the least");
    assert!(said.contains("--resident"), "{said}");
    assert_eq!(tokens(&answer(&model, &cache, &["--resident", least])), expected);
    assert_eq!(tokens(&answer(&model, &cache, &["--resident", "1T"])), expected);
    let said = failure(&answer(&model, &cache, &["--resident", least, "--no-packed-cache"]), 4);
    assert!(said.contains("no folder") && said.contains("--cache-dir"), "{said}");
    let said = failure(&answer(&model, &cache, &["--resident", "many"]), 2);
    assert!(said.contains("500M"), "{said}");
}

#[test]
fn the_program_answers_alike_on_a_gpu_and_says_what_is_missing() {
    let folder = folder("gpu");
    let spec = SyntheticSpec { layers: 3, width: 128, feed_forward: 128, ..spec(WeightFormat::Q8_0, true) };
    let (model, cache) = (written(&folder, "model.gguf", &spec), folder.join("cache"));
    let answer = |environment: &[(&str, &str)], arguments: &[&str]| {
        asked(&mut on_cuda("run", &model, environment), &cache, arguments)
    };
    let expected = tokens(&answer(&[], &[]));
    let said = failure(&answer(&[], &["--resident", "100K"]), 3);
    let least = said.split("at least ").nth(1).and_then(|rest| rest.split(',').next()).expect("the least");
    assert!(said.contains("--resident"), "{said}");
    // No file is streamed from, so none is needed.
    let streamed = answer(&[], &["--resident", least, "--no-packed-cache", "--stats"]);
    assert_eq!(tokens(&streamed), expected);
    let said = String::from_utf8_lossy(&streamed.stderr);
    assert!(said.contains("of weights are streamed for every forward from pinned memory"), "{said}");
    let said = failure(&answer(&[("YGG_EMULATION_PINNED", "200000")], &["--resident", least]), 4);
    assert!(said.contains("pinned memory") && said.contains("--resident"), "{said}");
}

/// Bytes of anonymous memory of a process at most, seen while it ran to its end.
#[cfg(target_os = "linux")]
fn most_memory(command: &mut process::Command) -> usize {
    let mut child = command.stdout(process::Stdio::null()).spawn().expect("yggc starts");
    let mut most = 0;
    while child.try_wait().expect("it is our child").is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().expect("it has ended").success());
    most
}

#[test]
#[cfg(target_os = "linux")]
fn memory_stays_within_the_budget() {
    const BUDGET: usize = 24 << 20;
    let folder = folder("memory");
    let larger = SyntheticSpec { layers: 20, feed_forward: 8192, ..spec(WeightFormat::Q8_0, true) };
    let model = written(&folder, "model.gguf", &SyntheticSpec { distinct_rows: 64, ..larger });
    let run = |arguments: &[&str]| {
        let mut command = yggc();
        command.arg("run").arg("-m").arg(&model).args(["--raw", "-p", "one two", "-n", "12", "--no-spec"]);
        most_memory(
            command.args(["--context", "128", "--cache-dir"]).arg(folder.join("cache")).args(arguments),
        )
    };
    // The first start packs: matrix by matrix.
    let budget = BUDGET.to_string();
    let [packing, streaming] = [(); 2].map(|()| run(&["--resident", &budget]));
    let whole = run(&[]);
    let beside = 16 << 20;
    assert!(whole > 120 << 20, "in memory it takes {whole} bytes");
    for taken in [packing, streaming] {
        assert!(taken < BUDGET + beside, "{taken} bytes were taken within {BUDGET}");
    }
}

/// Tells a run of this program that it is the one whose memory is watched.
#[cfg(target_os = "linux")]
const DRAFTS_BY_A_SUBSTITUTE: &str = "YGG_TEST_DRAFTS_BY_A_SUBSTITUTE";

#[test]
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a test that runs itself tells itself so")]
fn memory_stays_within_the_budget_while_a_substitute_is_made() {
    const BUDGET: usize = 16 << 20;
    // Program, session, and the substitute of one matrix as it is made.
    const BESIDE: usize = 16 << 20;
    if is_cuda() {
        return;
    }
    let folder = folder("substitute_memory");
    let path = folder.join("model.gguf");
    let class = class();
    let load = |model: &Model| build(model, class, Some(BUDGET)).expect("enough");
    if std::env::var_os(DRAFTS_BY_A_SUBSTITUTE).is_some() {
        let model = opened(&path);
        let change = VariantChange { head_tokens: None, substitute_bits: Some(4) };
        let set = load(&model).with_variants(model.weights.as_ref(), &[change]).expect("four bits");
        let variant = set.variant(change).expect("it was made");
        let mut session = session(&Arc::new(set), 64, 1, 2);
        let mut forward = session.forward(1).expect("a planned width");
        forward.push_behind(3);
        forward.choose_of(variant, Choice::ARGMAX, None);
        return;
    }
    let larger =
        SyntheticSpec { layers: 12, feed_forward: 8192, distinct_rows: 64, ..spec(WeightFormat::Q8_0, true) };
    written(&folder, "model.gguf", &larger);
    // Packs what the other run streams.
    let substitute: usize = load(&opened(&path)).graph().substitute_sizes(4).iter().sum();
    assert!(substitute > 2 * BESIDE, "a second copy of {substitute} bytes would show");
    let this_test = "streaming::memory_stays_within_the_budget_while_a_substitute_is_made";
    let mut this_program = process::Command::new(std::env::current_exe().expect("it runs"));
    this_program.args(["--exact", this_test, "--test-threads", "1"]).env(DRAFTS_BY_A_SUBSTITUTE, "1");
    let taken = most_memory(&mut this_program);
    assert!(taken > substitute, "{taken} bytes were taken with a substitute of {substitute}");
    let most = BUDGET + substitute + BESIDE;
    assert!(taken < most, "{taken} bytes were taken, {most} at most were expected");
}
