//! Streamed weights: whatever is in memory and whatever is read for every forward, the bits are the same; and what goes wrong is told.

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
    ir::Placed,
    model::{KeptPlace, Model, synthetic::SyntheticSpec},
    runtime::{ExecutableSet, RuntimeError, SetOptions},
    storage::MappedFile,
};

use crate::program::{failure, success, yggc};
use crate::tiny_model::{Class, Dice, TinyModel, bits, is_cuda, session, tested_tiers};

/// Several layers of matrices of several pages: so some of them are streamed through a buffer that is smaller than they.
fn spec(format: WeightFormat, tied: bool) -> SyntheticSpec {
    SyntheticSpec {
        layers: 6,
        width: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        feed_forward: 512,
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

/// Writes a model and waits until a later change of it would show.
fn written(folder: &Path, name: &str, spec: &SyntheticSpec) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.{}", process::id())));
    // Other processes test by the same file.
    spec.write_gguf(&new).expect("the target folder is writable");
    fs::rename(&new, &path).expect("the target folder is writable");
    let stamp = || MappedFile::open(&path).expect("it was written").stamp().expect("the system says");
    while !stamp().expect("a system that notes changes").is_settled() {
        thread::sleep(Duration::from_millis(50));
    }
    path
}

/// The model, with a folder for its packed weights.
fn opened(path: &Path) -> Model {
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
    ExecutableSet::build(&model.graph, model.weights.as_ref(), &options).map(Arc::new)
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
        let open = |format: WeightFormat| {
            let model = opened(&written(&folder, &format!("{format}.gguf"), &spec(format, true)));
            let resident = least(&model, class()) + (200 << 10);
            TinyModel::of(format.to_string(), model, format).within(resident)
        };
        formats.map(open).into()
    })
}

/// Bits of what forwards of every width and a prefill show, some of them with layers left out.
fn shown(set: &Arc<ExecutableSet>, threads: usize) -> Vec<u32> {
    let mut session = session(set, 128, 8, threads);
    // An emulated device is a thousand times as slow.
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
    for tier in tested_tiers().into_iter().filter(|tier| *tier != Tier::Reference) {
        let class = class_of(tier, format);
        let expected = shown(&build(&model, class, None).expect("it fits"), 1);
        for (budget, threads) in budgets(least(&model, class)) {
            let set = build(&model, class, Some(budget)).expect("enough");
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
            vec![(least, 2), (least + (150 << 10), 1), (usize::MAX, 1)]
        });
    }
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

#[test]
fn a_file_that_is_cut_while_it_is_read_fails_the_session_and_says_so() {
    let path = written(&folder("cut"), "model.gguf", &spec(WeightFormat::Q8_0, true));
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
    command.arg("run").arg("-m").arg(model).args([
        "--raw",
        "-p",
        "one two",
        "-n",
        "12",
        "--no-spec",
        "--json",
    ]);
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
