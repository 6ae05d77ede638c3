//! Models by their names at the Hugging Face hub, against a hub that runs in the tests.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use self::stub::{COMMIT, Hub, Repository};
use crate::{
    program::{failure, success, yggc},
    split_models,
    tiny_commands::{json, model},
};

pub(crate) mod stub;

/// Variables that would have a say in where files come from and go to.
const OTHERS: [&str; 12] = [
    "ALL_PROXY",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "YGGC_API_KEY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// A folder for caches.
pub(crate) struct Scene(tempfile::TempDir);

impl Scene {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// `yggc` with these caches and the hub at `endpoint`.
    pub(crate) fn yggc(&self, endpoint: &str, arguments: &[&str]) -> Command {
        let mut command = yggc();
        for variable in OTHERS {
            command.env_remove(variable);
        }
        command.args(arguments).arg("--cache-dir").arg(self.0.path().join("cache"));
        command.env("HF_ENDPOINT", endpoint).env("HF_HOME", self.0.path().join("hf"));
        command
    }

    /// The folder that has both caches.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn fetch(&self, hub: &Hub, name: &str) -> Output {
        self.yggc(&hub.endpoint(), &["fetch", name]).output().expect("yggc starts")
    }

    fn repository(&self, folder: &str) -> PathBuf {
        self.0.path().join("hf/hub").join(folder)
    }
}

/// The files of a folder model, and others that a repository may have.
fn folder_model() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = crate::tiny_commands::spec();
    spec.write_folder(&folder.path().join("model")).expect("the model is written");
    let mut repository =
        Repository::new("tiny/folder", &[("README.md", b"words"), ("onnx/model.onnx", b"another")]);
    for entry in fs::read_dir(folder.path().join("model")).expect("it is there") {
        let path = entry.expect("listed").path();
        let name = path.file_name().expect("a file").to_str().expect("UTF-8").to_owned();
        repository.files.insert(name, fs::read(path).expect("readable"));
    }
    (folder, repository)
}

#[test]
fn names_of_hub_models_say_size_and_licence_before_the_download() {
    let file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
    let bytes = fs::read(model()).expect("the tiny model");
    let hub = Hub::new(Repository::new("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", &[(file, &bytes)]));
    let scene = Scene::new();
    let first = scene.fetch(&hub, "qwen2.5-coder-0.5b-instruct");
    assert_eq!(fs::read(line(&first)).expect("a path"), bytes);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(said.contains("491 MB, licence Apache-2.0"), "{said}");
    let again = scene.fetch(&hub, "qwen2.5-coder-0.5b-instruct");
    assert_eq!((line(&again), again.stderr.is_empty()), (line(&first), true));
}

fn line(output: &Output) -> PathBuf {
    PathBuf::from(success(output).trim_end())
}

#[test]
fn a_folder_is_fetched_once_without_what_is_not_of_the_model_and_runs() {
    let (folder, repository) = folder_model();
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    let path = line(&scene.fetch(&hub, "hf:tiny/folder"));
    assert_eq!(path, scene.repository("models--tiny--folder").join("snapshots").join(COMMIT));
    let asked = hub.take_requests();
    assert!(asked.iter().any(|path| path.contains("model.safetensors")), "{asked:?}");
    assert!(!asked.iter().any(|path| path.contains("README") || path.contains("onnx")), "{asked:?}");

    let run = |model: &str| {
        let arguments = ["run", "-m", model, "-p", "one and one", "-n", "8", "--no-spec", "--json"];
        json(&mut scene.yggc(&hub.endpoint(), &arguments))["token_ids"].clone()
    };
    let local = folder.path().join("model");
    assert_eq!(run("hf:tiny/folder"), run(local.to_str().expect("UTF-8")));
    assert_eq!(line(&scene.fetch(&hub, "hf:tiny/folder")), path);
    assert_eq!(hub.take_requests(), [""; 0], "what is cached needs no request");
}

#[test]
fn an_interrupted_download_is_gone_on_with() {
    let content = fs::read(model()).expect("the tiny model");
    let half = content.len() / 2;
    let mut repository = Repository::new("tiny/gguf", &[("README.md", b"words"), ("tiny.gguf", &content)]);
    repository.cut = Some(("tiny.gguf", half));
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    let said = failure(&scene.fetch(&hub, "hf:tiny/gguf"), 1);
    assert!(said.contains("try again") && said.contains("kept"), "{said}");
    hub.take_requests();

    let path = line(&scene.fetch(&hub, "hf:tiny/gguf"));
    assert_eq!(fs::read(&path).expect("it is there"), content);
    let asked = hub.take_requests();
    assert!(asked.iter().any(|path| path.ends_with(&format!("tiny.gguf bytes={half}-"))), "{asked:?}");

    assert_eq!(line(&scene.fetch(&hub, "hf:tiny/gguf")), path);
    assert_eq!(hub.take_requests(), [""; 0]);
    // A file that is named is another question, of the branch; its answer is kept as well.
    for _ in 0..2 {
        assert_eq!(line(&scene.fetch(&hub, "hf:tiny/gguf/tiny.gguf")), path);
    }
    let named = hub.take_requests().len();
    assert_eq!(line(&scene.fetch(&hub, "hf:tiny/gguf/tiny.gguf")), path);
    assert!(hub.take_requests().is_empty() && named > 0);
    drop(hub);
    assert_eq!(
        line(&scene.yggc("http://127.0.0.1:9", &["fetch", "hf:tiny/gguf"]).output().expect("yggc starts")),
        path
    );
}

#[test]
fn all_parts_of_a_gguf_are_fetched_and_run_whichever_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = split_models::write(folder.path(), 3, &|_, _| {});
    let part = |n: usize| split_models::part(n, 3);
    let read = |name: &str| fs::read(folder.path().join(name)).expect("it was written");
    let contents: Vec<(String, Vec<u8>)> =
        (1..=3).map(|n| (format!("Q4_1/{}", part(n)), read(&part(n)))).collect();
    let mut files: Vec<(&str, &[u8])> = contents.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    files.push(("README.md", b"words"));
    let mut repository = Repository::new("tiny/parts", &files);
    repository.cut = Some(("Q4_1/tiny-00002-of-00003.gguf", 100));
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    failure(&scene.fetch(&hub, "hf:tiny/parts"), 1);
    hub.take_requests();
    let path = line(&scene.fetch(&hub, "hf:tiny/parts"));
    let snapshot = scene.repository("models--tiny--parts").join("snapshots").join(COMMIT);
    assert_eq!(path, snapshot.join(&contents[0].0));
    for (name, content) in &contents {
        assert_eq!(&fs::read(snapshot.join(name)).expect("it is there"), content, "{name}");
    }
    let asked = hub.take_requests();
    assert!(!asked.iter().any(|path| path.contains("00001-of")), "a part was fetched twice: {asked:?}");
    assert!(asked.contains(&format!("/store/{} bytes=100-", contents[1].0)), "{asked:?}");

    let run = |model: &str| {
        let arguments = ["run", "-m", model, "-p", "one and one", "-n", "8", "--no-spec", "--json"];
        json(&mut scene.yggc(&hub.endpoint(), &arguments))["token_ids"].clone()
    };
    assert_eq!(run("hf:tiny/parts"), run(whole.to_str().expect("UTF-8")));
    assert_eq!(hub.take_requests(), [""; 0], "what is cached needs no request");

    // A part that is named is another question; its answer is kept as well.
    let named = "hf:tiny/parts/Q4_1/tiny-00002-of-00003.gguf";
    assert_eq!(line(&scene.fetch(&hub, named)), path);
    let asked = hub.take_requests();
    assert!(!asked.is_empty() && !asked.iter().any(|path| path.contains("store")), "{asked:?}");
    assert_eq!(line(&scene.fetch(&hub, named)), path);
    assert_eq!(hub.take_requests(), [""; 0]);

    fs::remove_file(snapshot.join(&contents[2].0)).expect("it is there");
    hub.repository().files.remove(&contents[2].0);
    let said = failure(&scene.fetch(&hub, named), 3);
    assert!(said.contains("no file `Q4_1/tiny-00003-of-00003.gguf`"), "{said}");
}

#[test]
fn weights_in_shards_are_fetched_as_their_index_names_them() {
    let index =
        br#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}}"#;
    let files: [(&str, &[u8]); 6] = [
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("m-1.safetensors", b"one"),
        ("m-2.safetensors", b"two"),
        ("m-3.safetensors", b"three"),
    ];
    let mut repository = Repository::new("tiny/shards", &files);
    repository.cut = Some(("m-2.safetensors", 1));
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    failure(&scene.fetch(&hub, "hf:tiny/shards"), 1);
    let path = line(&scene.fetch(&hub, "hf:tiny/shards"));
    for (name, content) in files {
        let found = fs::read(path.join(name)).ok();
        assert_eq!(found, (name != "m-3.safetensors").then(|| content.to_vec()), "{name}");
    }
    let asked = hub.take_requests();
    let times = |name: &str| {
        asked
            .iter()
            .filter(|path| path.starts_with(&format!("/store/{name} bytes=0-")))
            .filter(|path| !path.ends_with("0-0"))
            .count()
    };
    assert_eq!((times("m-1.safetensors"), times("m-2.safetensors")), (1, 1), "{asked:?}");
    assert!(asked.contains(&"/store/m-2.safetensors bytes=1-".to_owned()), "{asked:?}");
}

#[test]
fn what_came_damaged_is_removed_and_fetched_again() {
    let content = fs::read(model()).expect("the tiny model");
    let mut repository = Repository::new("tiny/gguf", &[("tiny.gguf", &content)]);
    repository.lies = true;
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    let said = failure(&scene.fetch(&hub, "hf:tiny/gguf"), 1);
    assert!(said.contains("damaged") && said.contains("SHA-256"), "{said}");
    hub.repository().lies = false;
    assert_eq!(fs::read(line(&scene.fetch(&hub, "hf:tiny/gguf"))).expect("it is there"), content);
}

#[test]
fn what_cannot_be_had_is_said_with_what_there_is() {
    let files: [(&str, &[u8]); 3] = [("a.gguf", b"a"), ("b/c.gguf", b"c"), ("config.json", b"{}")];
    let (scene, hub) = (Scene::new(), Hub::new(Repository::new("tiny/several", &files)));
    for (name, code, parts) in [
        ("hf:tiny/several", 3, ["several .gguf", "hf:tiny/several/a.gguf, hf:tiny/several/b/c.gguf"]),
        ("hf:tiny/several/d.gguf", 3, ["no file `d.gguf`", "hf:tiny/several/a.gguf"]),
        ("hf:tiny/none", 3, ["tiny/none", "HTTP 404"]),
        ("hf:tiny", 3, ["hf:OWNER/REPO", "no `/`"]),
    ] {
        let said = failure(&scene.fetch(&hub, name), code);
        assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
        // Wherever models are named.
        let arguments = ["run", "-m", name, "-p", "a", "--no-spec"];
        let output = scene.yggc(&hub.endpoint(), &arguments).output().expect("yggc starts");
        assert_eq!(failure(&output, code), said);
        let arguments = ["run", "-m", model().to_str().expect("UTF-8"), "-p", "a", "--draft-model", name];
        let output = scene.yggc(&hub.endpoint(), &arguments).output().expect("yggc starts");
        assert_eq!(failure(&output, code), said);
    }
    *hub.repository() = Repository::new("tiny/other", &[("pytorch_model.bin", b""), ("config.json", b"{}")]);
    let said = failure(&scene.fetch(&hub, "hf:tiny/other"), 3);
    assert!(said.contains("found config.json, pytorch_model.bin"), "{said}");

    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let endpoint = format!("http://{}", closed.expect("a free port"));
    let said = failure(&scene.yggc(&endpoint, &["fetch", "hf:a/b"]).output().expect("yggc starts"), 1);
    assert!(said.contains(&endpoint) && said.contains("cannot be reached"), "{said}");
}

#[test]
fn a_token_is_taken_from_where_the_hubs_own_programs_keep_it() {
    let mut repository = Repository::new("tiny/private", &[("a.gguf", b"a")]);
    repository.token = Some("secret");
    let (scene, hub) = (Scene::new(), Hub::new(repository));
    let said = failure(&scene.fetch(&hub, "hf:tiny/private"), 3);
    assert!(said.contains("HTTP 401") && said.contains("HF_TOKEN"), "{said}");
    let mut command = scene.yggc(&hub.endpoint(), &["fetch", "hf:tiny/private"]);
    success(&command.env("HF_TOKEN", "secret").output().expect("yggc starts"));

    let scene = Scene::new();
    fs::create_dir_all(scene.0.path().join("hf")).expect("writable");
    fs::write(scene.0.path().join("hf/token"), "secret\n").expect("writable");
    success(&scene.fetch(&hub, "hf:tiny/private"));
}

#[test]
fn without_the_network_what_others_cached_is_used() {
    let scene = Scene::new();
    let folder = scene.repository("models--tiny--others");
    let snapshot = folder.join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).expect("writable");
    fs::create_dir_all(folder.join("refs")).expect("writable");
    fs::write(folder.join("refs/main"), COMMIT).expect("writable");
    let offline = |name: &str| {
        let mut command = scene.yggc("http://127.0.0.1:9", &["fetch", name]);
        command.env("HF_HUB_OFFLINE", "1").output().expect("yggc starts")
    };
    let write = |name: &str| fs::write(snapshot.join(name), "{\"weight_map\": {\"a\": \"m.safetensors\"}}");
    for name in ["config.json", "tokenizer.json", "model.safetensors.index.json"] {
        write(name).expect("writable");
    }
    let said = failure(&offline("hf:tiny/others"), 3);
    assert!(said.contains("HF_HUB_OFFLINE") && said.contains("not whole"), "{said}");
    write("m.safetensors").expect("writable");
    assert_eq!(line(&offline("hf:tiny/others")), snapshot);
    let output =
        scene.yggc("http://127.0.0.1:9", &["fetch", "hf:tiny/others"]).output().expect("yggc starts");
    assert_eq!(line(&output), snapshot);
    assert!(String::from_utf8_lossy(&output.stderr).contains("as another program cached it"));
    assert!(Path::new(&snapshot).join("m.safetensors").exists());
}
