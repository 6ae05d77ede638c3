//! `yggc doctor`: what it says of machine and model, and that it reads no weights. No test depends on a time.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use serde_json::Value;
use yggc::{
    engine::{Activations, KvFormat, Tier},
    ir::WeightFormat,
    model::{Model, synthetic::SyntheticSpec},
    runtime::{Choice, ExecutableSet, Pinning, Session, SessionOptions, SetOptions, Work},
};

use crate::{
    hub::{
        Scene,
        stub::{Hub, Repository},
    },
    program::{failure, success, yggc},
    split_models,
    tiny_commands::{json, model, write},
};

/// Kernels that every machine has, int8 activations, one thread.
fn options(model: &Model) -> SetOptions {
    SetOptions {
        tier: Tier::Portable,
        kv_format: KvFormat::F16,
        activations: Activations::Int8,
        widths: vec![3],
        model_context: model.config.context,
        threads: 1,
        resident: None,
    }
}

/// Bytes and operations of a forward of three rows, in all steps of the whole model, which runs.
fn work(model: Model, bytes: usize) -> (f64, f64) {
    let (blank, stands_for) = model.blank(bytes);
    yggc::ir::verify::verify(&blank.graph).expect("a lawful graph");
    let set = ExecutableSet::build(&blank.graph, &*blank.weights, &options(&blank)).expect("a blank loads");
    let options = SessionOptions { context: 32, tree_nodes: 3, threads: 1, pinning: Pinning::Floating };
    let mut session = Session::open(Arc::new(set), &options).expect("it opens");
    session.assume_committed(9);
    let mut forward = session.forward(3).expect("a width of the set");
    for row in 0..3 {
        forward.push(row, 0, row, |tail| {
            tail[0] = row;
            1
        });
    }
    let (steps, groups) = (forward.choosing_steps(), forward.choosing_groups());
    forward.choose(Choice::ARGMAX, None);
    let count = |group: Option<u32>| group.map_or(1.0, |group| stands_for[&group]);
    let all = steps.iter().zip(groups).map(|(step, group)| (count(group), step.work));
    let sum = |of: fn(Work) -> u64| all.clone().map(|(count, work)| count * of(work) as f64).sum();
    (sum(|work| work.bytes), sum(|work| work.flops))
}

/// The judge of what is derived: the same of a blank that has all layers.
fn judge(path: &Path) -> Vec<f64> {
    let open = || Model::open(path).expect("a model of the tests");
    let whole = open().graph.groups();
    let (_, stands_for) = open().blank(0);
    let sum: f64 = stands_for.values().sum();
    assert!((sum - f64::from(whole)).abs() < 1e-9, "{}: {sum} of {whole}", path.display());
    let ((bytes, flops), expected) = (work(open(), 0), work(open(), usize::MAX));
    // Products are all there. What stands between groups, as Gemma 4's factors, becomes one step where those around it
    // are left out; it moves rows, no weights.
    let is_near = |a: f64, b: f64, part: f64| (a / b - 1.0).abs() < part;
    let is_derived = is_near(bytes, expected.0, 0.01) && is_near(flops, expected.1, 1e-9);
    assert!(is_derived, "{}: {bytes} and {flops} of {expected:?}", path.display());
    stands_for.into_values().collect()
}

#[test]
fn a_few_layers_of_every_kind_stand_for_all_in_every_family() {
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families");
    let mut seen = 0;
    for entry in fs::read_dir(families).expect("it is there") {
        let path = entry.expect("listed").path().join("model.gguf");
        if path.is_file() {
            judge(&path);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} families");
    // As many kinds of layers as Q4_K_M has, and more layers than are kept.
    let spec = SyntheticSpec {
        layers: 8,
        width: 256,
        head_dim: 64,
        feed_forward: 256,
        format: WeightFormat::Q4_K,
        ..SyntheticSpec::default()
    };
    assert_eq!(judge(&write("doctor-mixed.gguf", &spec)), [4.0; 4]);
}

/// The names of all fields, those of lists once.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                fields(value, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            values.iter().for_each(|value| fields(value, &format!("{path}[]"), found));
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

const ARGUMENTS: [&str; 7] = ["doctor", "--rehearsal", "--json", "--threads", "1", "--isa", "portable"];

#[test]
fn the_fields_of_the_object_are_a_contract() {
    let mut command = yggc();
    let said = json(command.args(ARGUMENTS).arg("-m").arg(model()));
    let mut found = BTreeSet::new();
    fields(&said, "", &mut found);
    let machine = "available_bytes disk_free_bytes disk_gb_per_s governor gpu gpu_missing huge_pages instruction_set \
                   last_cache_bytes memory_bytes processor processor_quota processors read.bytes read.gb_per_s \
                   read.high_gb_per_s read.low_gb_per_s threads threads_worth_using";
    let model = "bits_per_weight download_bytes family file_bytes fits header_bytes_read is_here layers name \
                 read.bytes read.gb_per_s read.high_gb_per_s read.low_gb_per_s session_bytes session_context \
                 threads[].one_row_us threads[].threads weight_bytes";
    let forwards = "bytes context expected_us flops high_us low_us measured memory_share rows";
    let decode = "high_tokens_per_s low_tokens_per_s tokens_per_s";
    let of = |part: &str, names: &str| -> Vec<String> {
        names.split(' ').filter(|name| !name.is_empty()).map(|name| format!(".{part}.{name}")).collect()
    };
    let mut expected: BTreeSet<String> = [
        of("machine", machine),
        of("model", model),
        of("forwards[]", forwards),
        of("decode", decode),
        [".version", ".date", ".plan", ".advice[]"].map(str::to_owned).to_vec(),
    ]
    .concat()
    .into_iter()
    .collect();
    // A machine with a GPU says what it is.
    if !said["machine"]["gpu"].is_null() {
        expected.remove(".machine.gpu");
        expected.extend(of("machine.gpu", "driver is_emulated name"));
    }
    assert_eq!(found, expected);

    let rows: Vec<_> =
        said["forwards"].as_array().expect("a list").iter().map(|f| f["rows"].clone()).collect();
    assert_eq!(rows, [1, 4, 16]);
    let number = |value: &Value| value.as_f64().expect("a number");
    for forward in said["forwards"].as_array().expect("a list") {
        let [low, expected, high] = ["low_us", "expected_us", "high_us"].map(|name| number(&forward[name]));
        assert!(0.0 < low && low <= expected && expected <= high, "{forward}");
    }
    let one_row = &said["forwards"][0];
    let per_s = 1e6 / number(&one_row["expected_us"]);
    assert!((number(&said["decode"]["tokens_per_s"]) / per_s - 1.0).abs() < 1e-9);
    assert_eq!(said["model"]["is_here"], true);
    assert_eq!(
        (&said["machine"]["threads"], &said["machine"]["instruction_set"]),
        (&1.into(), &"portable".into())
    );
}

#[test]
fn people_read_lines_and_a_machine_needs_no_model() {
    let scene = Scene::new();
    let run = |arguments: &[&str]| {
        let start = ["doctor", "--rehearsal", "--threads", "1", "--isa", "portable"];
        let output = scene.yggc("http://127.0.0.1:9", &[&start[..], arguments].concat()).output();
        success(&output.expect("yggc starts"))
    };
    let alone = run(&[]);
    for name in ["processor", "kernels       portable", "threads       1 of", "memory speed", "GPU", "disk"] {
        assert!(alone.contains(name), "{name}: {alone}");
    }
    assert!(!alone.contains("decode") && !alone.contains("a forward of"), "{alone}");
    let with = run(&["-m", model().to_str().expect("UTF-8")]);
    for part in ["synthetic, llama of 4 layers", "a forward of", "16 rows", "tokens per second expected"] {
        assert!(with.contains(part), "{part}: {with}");
    }
    let longest = with.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(200), "{with}");
}

/// What is said of a model at the hub.
fn at_hub(scene: &Scene, hub: &Hub, name: &str) -> Value {
    json(scene.yggc(&hub.endpoint(), &ARGUMENTS).args(["-m", name]))
}

/// What follows from the header alone.
fn facts(said: &Value) -> Vec<&Value> {
    let of_model = ["family", "layers", "file_bytes", "bits_per_weight", "weight_bytes", "session_bytes"];
    let of_forwards = ["rows", "context", "bytes", "flops"];
    let forwards = said["forwards"].as_array().expect("a list").iter();
    let forwards = forwards.flat_map(|forward| of_forwards.map(|name| &forward[name]));
    of_model.iter().map(|name| &said["model"][name]).chain(forwards).collect()
}

/// The bytes that requests asked for of a file's content.
fn bytes_asked(hub: &Hub, file: &str) -> u64 {
    let asked = hub.take_requests();
    let of_file = asked.iter().filter_map(|path| path.strip_prefix(&format!("/store/{file} bytes=")));
    let bytes = |range: &str| {
        let (first, last) = range.split_once('-').expect("a range");
        last.parse::<u64>().expect("an end") + 1 - first.parse::<u64>().expect("a start")
    };
    of_file.map(bytes).sum()
}

/// A model whose header is a small part of it.
fn large_spec() -> SyntheticSpec {
    SyntheticSpec { layers: 6, feed_forward: 4096, ..crate::tiny_commands::spec() }
}

#[test]
fn a_model_at_the_hub_is_described_by_its_header_alone() {
    let path = write("doctor-large.gguf", &large_spec());
    let content = fs::read(&path).expect("it was written");
    let (scene, hub) = (Scene::new(), Hub::new(Repository::new("tiny/gguf", &[("large.gguf", &content)])));
    let there = at_hub(&scene, &hub, "hf:tiny/gguf");
    let asked = bytes_asked(&hub, "large.gguf");
    assert!(asked > 0 && asked < content.len() as u64 / 4, "{asked} of {} bytes", content.len());
    let mut command = yggc();
    let here = json(command.args(ARGUMENTS).arg("-m").arg(&path));
    assert_eq!(facts(&there), facts(&here));
    assert_eq!(there["model"]["header_bytes_read"], asked);
    assert_eq!(there["model"]["download_bytes"], content.len() as u64);
    assert!(!scene.path().join("hf").exists(), "nothing is cached of it");
    let left: Vec<_> = fs::read_dir(scene.path().join("cache/outlines")).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");

    // Once it is fetched, no request is made.
    success(&scene.yggc(&hub.endpoint(), &["fetch", "hf:tiny/gguf"]).output().expect("yggc starts"));
    hub.take_requests();
    let fetched = at_hub(&scene, &hub, "hf:tiny/gguf");
    assert_eq!((facts(&fetched), &fetched["model"]["is_here"]), (facts(&here), &Value::Bool(true)));
    assert_eq!(hub.take_requests(), [""; 0]);
}

#[test]
fn folders_and_parts_are_described_by_their_headers_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model");
    large_spec().write_folder(&path).expect("it is written");
    let mut repository = Repository::new("tiny/folder", &[]);
    for entry in fs::read_dir(&path).expect("it is there") {
        let file = entry.expect("listed").path();
        let name = file.file_name().expect("a file").to_str().expect("UTF-8").to_owned();
        repository.files.insert(name, fs::read(file).expect("readable"));
    }
    let bytes = repository.files["model.safetensors"].len() as u64;
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    let there = at_hub(&scene, &hub, "hf:tiny/folder");
    let asked = bytes_asked(&hub, "model.safetensors");
    assert!(asked > 0 && asked < bytes / 4, "{asked} of {bytes} bytes");
    let mut command = yggc();
    let here = json(command.args(ARGUMENTS).arg("-m").arg(&path));
    assert_eq!(facts(&there), facts(&here));

    // Its rotary embedding is said by a tensor.
    let whole = split_models::write(folder.path(), 3, &|_, _| {});
    let read = |name: &str| fs::read(folder.path().join(name)).expect("it was written");
    let parts: Vec<(String, Vec<u8>)> = (1..=3)
        .map(|n| (format!("Q4_1/{}", split_models::part(n, 3)), read(&split_models::part(n, 3))))
        .collect();
    let files: Vec<(&str, &[u8])> = parts.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let hub = Hub::new(Repository::new("tiny/parts", &files));
    let there = at_hub(&scene, &hub, "hf:tiny/parts/Q4_1/tiny-00002-of-00003.gguf");
    let mut command = yggc();
    let here = json(command.args(ARGUMENTS).arg("-m").arg(&whole));
    assert_eq!(facts(&there), facts(&here));
}

#[test]
fn what_cannot_be_described_is_refused_with_what_to_do() {
    let (scene, bad) = (Scene::new(), [0x47; 300]);
    let files: [(&str, &[u8]); 2] = [("bad.gguf", &bad), ("cut.gguf", b"GGUF\x03\0\0\0")];
    let hub = Hub::new(Repository::new("tiny/bad", &files));
    for (arguments, code, parts) in [
        (&["-m", "hf:tiny/bad/bad.gguf"][..], 3, ["header of bad.gguf of tiny/bad", "GGUF"]),
        (&["-m", "hf:tiny/bad/cut.gguf"], 3, ["header of cut.gguf", "tensor count"]),
        (&["-m", "hf:tiny/bad/none.gguf"], 3, ["no file `none.gguf`", "bad.gguf"]),
        (&["-m", "smollm2-135m-instruct"], 3, ["archive of 92 MB", "yggc fetch smollm2-135m-instruct"]),
        (&["-m", "no-such-model"], 3, ["no known model", "yggc models"]),
        (&["-m", "no/such/model.gguf"], 3, ["no/such/model.gguf", ""]),
        (&["--resident", "1G"], 2, ["leave --resident out", "larger-than-memory"]),
        (&["--threads", "0"], 2, ["--threads", "1 to 1024"]),
    ] {
        let output = scene.yggc(&hub.endpoint(), &[&["doctor", "--rehearsal"], arguments].concat()).output();
        let said = failure(&output.expect("yggc starts"), code);
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    let mut offline = scene.yggc(&hub.endpoint(), &["doctor", "--rehearsal", "-m", "hf:tiny/bad/bad.gguf"]);
    let said = failure(&offline.env("HF_HUB_OFFLINE", "1").output().expect("yggc starts"), 3);
    assert!(said.contains("HF_HUB_OFFLINE"), "{said}");
}
