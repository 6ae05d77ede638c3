//! `yggc corpus build` as a whole program: killed and resumed, refused, and used by a plan.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use yggc::{
    engine::{Activations, LoadOptions, Loaded, Tier},
    measure::{CorpusOptions, build_corpus, score},
    model::Model,
    runtime::Pinning,
    speculate::CorpusStore,
};

use crate::{
    program::{failure, success, yggc},
    tiny_commands::{json, model, on_machine, on_tiny, other_model, prompts},
};

/// Texts of both kinds, lines that resemble each other.
fn inputs() -> [PathBuf; 2] {
    static TEXTS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let write = |name: &str, line: fn(usize) -> String| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, (0..50).map(line).collect::<String>()).expect("the target folder is writable");
        path
    };
    let texts = TEXTS.get_or_init(|| {
        let plain = |i| format!("line {i} says: one and one and {} make a longer line, é.\n", i % 7);
        let json =
            |i| format!("{{\"turns\": [\"Which of {i} rivers is the longest?\", \"Name {i} more.\"]}}\n");
        [write("corpus.txt", plain), write("corpus.jsonl", json)]
    });
    texts.clone()
}

fn build(model: &Path, store: &Path) -> Command {
    let mut command = yggc();
    command.args(["corpus", "build", "-m"]).arg(model).args(["--threads", "1", "--isa", "portable"]);
    command.args(["--snippet", "24", "--keep", "100", "--input"]).args(inputs()).arg("-o").arg(store);
    command
}

/// A store of the tiny model, built once without a break.
fn store() -> &'static Path {
    static STORE: OnceLock<PathBuf> = OnceLock::new();
    STORE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny.store");
        let said = success(&build(model(), &path).output().expect("yggc starts"));
        assert!(said.contains("100 of") && !said.contains("earlier"), "{said}");
        path
    })
}

fn scores_of(store: &Path) -> PathBuf {
    store.with_file_name(format!(".{}.scores", store.file_name().expect("a name").to_string_lossy()))
}

fn loaded() -> Loaded {
    let options = LoadOptions {
        tier: Some(Tier::Portable),
        activations: Activations::Int8,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(1),
        widths: vec![64],
        resident: None,
    };
    Loaded::new(Model::open(model()).expect("it opens"), &options).expect("it loads")
}

#[test]
fn a_killed_build_goes_on_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.store");
    let scores = scores_of(&path);
    let expected = fs::read(store()).expect("built");
    let mut kills = 0;
    for least in [1, 20_000, 45_000, 100_000] {
        let mut child = build(model(), &path).stdout(Stdio::null()).spawn().expect("yggc starts");
        let size = || fs::metadata(&scores).map_or(0, |found| found.len());
        while size() < least && child.try_wait().expect("it can be asked").is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().expect("it can be killed");
        let ended = child.wait().expect("it ended");
        kills += usize::from(!ended.success());
        assert!(ended.success() || !path.exists(), "a store that is not whole");
    }
    assert!(kills >= 2, "{kills} builds were killed at work");
    let left = fs::read(&scores).expect("a killed build leaves its scores");
    // A writer of the store that was killed leaves this.
    let half = folder.path().join(".tiny.store.1234.partial");
    fs::write(&half, "YGGCORP").expect("writable");
    let said = success(&build(model(), &path).output().expect("yggc starts"));
    assert!(said.contains("by an earlier build"), "{said}");
    assert_eq!(fs::read(&path).expect("built"), expected);
    assert!(!scores.exists() && !half.exists());

    // Wherever the scores were cut, in the same process.
    let loaded = loaded();
    let options = CorpusOptions {
        snippet_tokens: 24,
        most_snippets: 100,
        pinning: Pinning::Floating,
        ..CorpusOptions::new(inputs().to_vec(), path.clone())
    };
    for length in [20, 44, left.len() / 2, left.len() - 1, left.len()] {
        fs::write(&scores, &left[..length]).expect("writable");
        fs::remove_file(&path).expect("it was there");
        build_corpus(&loaded, &options, &mut |_| {}).expect("it goes on");
        assert_eq!(fs::read(&path).expect("built"), expected, "{length} bytes of scores");
    }
}

#[test]
fn the_most_probable_snippets_are_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.store");
    let loaded = loaded();
    let text = fs::read_to_string(&inputs()[0]).expect("written");
    let ids = loaded.tokenizer().encode(&text[..2_500], yggc::engine::Special::Literal);
    let input = folder.path().join("part.txt");
    fs::write(&input, &text[..2_500]).expect("writable");
    let nll = |snippet| score(&loaded, snippet, Pinning::Floating).expect("it scores").mean_nll;
    let snippets = ids.chunks(32).filter(|snippet| snippet.len() >= 8);
    let mut expected: Vec<(f64, &[u32])> = snippets.map(|snippet| (nll(snippet), snippet)).collect();
    let all = expected.len();
    expected.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    expected.truncate(10);
    let options = CorpusOptions {
        snippet_tokens: 32,
        most_snippets: 10,
        pinning: Pinning::Floating,
        ..CorpusOptions::new(vec![input], path.clone())
    };
    let report = build_corpus(&loaded, &options, &mut |_| {}).expect("it builds");
    assert_eq!((report.snippets, report.kept_snippets, report.resumed), (all as u64, 10, 0));
    let highest = expected.last().expect("ten").0.exp();
    assert!((report.highest_perplexity / highest - 1.0).abs() < 1e-9, "{report:?}, {highest}");
    let store = CorpusStore::open(&path).expect("built");
    assert_eq!(store.snippets(), 10);
    assert_eq!(store.priors(), report.priors);
    let [ones, twos, threes] = report.priors;
    assert!(ones > 0 && twos > 0 && threes > 0, "{report:?}");
    for (_, snippet) in expected {
        let found = store.longest_match(&snippet[..16], 16, 16).expect("it was kept");
        let mut next = Vec::new();
        store.continuations(found.occurrences, 16, |token, _| next.push(token));
        assert!(next.contains(&snippet[16]));
    }
}

#[test]
fn a_plan_with_a_store_drafts_from_it_wherever_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    fs::copy(store(), at("first.store")).expect("copied");
    let mut command = on_tiny("profile");
    command
        .args(["--drafter", "retrieval", "--drafter", "lookup", "--budget", "20", "--prompts"])
        .arg(prompts());
    success(&command.arg("--store").arg(at("first.store")).arg("-o").arg(at("p")).output().expect("starts"));
    let search = |arguments: &[&Path]| {
        let mut command = yggc();
        command.args(["plan", "--profile"]).arg(at("p")).arg("-o").arg(at("plan"));
        command.args(["--fix", "drafter=retrieval,Dd=3,Wd=2"]).args(arguments).output().expect("starts")
    };
    let said = success(&search(&[]));
    assert!(said.contains("retrieval_lookup") && said.contains("first.store ("), "{said}");

    let run = |arguments: &[&str], store: Option<&Path>| {
        let mut command = on_tiny("run");
        command
            .args(["-p", "one and one and one", "-n", "24", "--json", "--plan"])
            .arg(at("plan"))
            .args(arguments);
        if let Some(store) = store {
            command.arg("--store").arg(store);
        }
        command
    };
    let plain = json(on_tiny("run").args(["-p", "one and one and one", "-n", "24", "--json", "--no-spec"]));
    let forced = json(&mut run(&["--drafter", "retrieval"], None));
    assert_eq!(forced["stats"]["drafter"], "retrieval");
    assert_eq!(forced["token_ids"], plain["token_ids"]);
    assert_eq!(json(&mut run(&[], None))["token_ids"], plain["token_ids"]);

    fs::rename(at("first.store"), at("second.store")).expect("renamed");
    let said = failure(&run(&[], None).output().expect("starts"), 3);
    assert!(said.contains("first.store") && said.contains("--store"), "{said}");
    let said = failure(&search(&[]), 3);
    assert!(said.contains("first.store") && said.contains("--store"), "{said}");
    let second = at("second.store");
    assert_eq!(json(&mut run(&[], Some(&second)))["token_ids"], plain["token_ids"]);
    success(&search(&[Path::new("--store"), &second]));
    // Other drafters of the plan need no store.
    fs::write(at("first.store"), "no store").expect("writable");
    assert_eq!(json(&mut run(&["--drafter", "lookup"], None))["token_ids"], plain["token_ids"]);

    let mut bytes = fs::read(&second).expect("it is there");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&second, &bytes).expect("writable");
    let said = failure(&run(&[], Some(&second)).output().expect("starts"), 3);
    assert!(said.contains("damaged") && said.contains("expected"), "{said}");

    let bench = json(
        on_tiny("bench")
            .args(["-n", "12", "--repetitions", "1", "--json", "--arms", "plan,retrieval", "--prompts"])
            .arg(prompts())
            .arg("--plan")
            .arg(at("plan"))
            .arg("--store")
            .arg(store()),
    );
    assert_eq!(bench["arms"].as_array().expect("a list").len(), 3);
}

#[test]
fn what_cannot_be_built_or_profiled_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let built = |input: &Path, arguments: &[&str]| {
        let mut command = yggc();
        command.args(["corpus", "build", "-m"]).arg(model()).args(["--threads", "1", "--isa", "portable"]);
        command.args(arguments).arg("--input").arg(input).arg("-o").arg(at("s")).output().expect("starts")
    };
    for (name, content, expected) in [
        ("short.txt", &b"few"[..], "no snippet to keep"),
        ("latin.txt", b"caf\xe9 and more and more and more", "found byte 0xe9 near line 1"),
        ("bad.jsonl", b"{\"text\": \"one and one and one and one\"}\n[1]\n", "line 2"),
        ("none.jsonl", b"{\"other\": 1}\n", "line 1: expected a JSON object with a `text` or `turns`"),
    ] {
        fs::write(at(name), content).expect("writable");
        let said = failure(&built(&at(name), &[]), 3);
        assert!(said.contains(expected), "{name}: {said}");
        assert!(!at("s").exists());
        fs::remove_file(scores_of(&at("s"))).expect("an unfinished build leaves its scores");
    }
    let said = failure(&built(&at("missing"), &[]), 3);
    assert!(said.contains("No such file"), "{said}");
    let said = failure(&built(folder.path(), &[]), 3);
    assert!(said.contains("is no file"), "{said}");
    let said = failure(&built(&inputs()[0], &["--snippet", "100000"]), 3);
    assert!(said.contains("--snippet"), "{said}");
    // Scores of other texts, and of another snippet length.
    fs::write(at("a.txt"), "one and one and one and one and one and one").expect("writable");
    let said = failure(&built(&at("a.txt"), &["--tokens", "1"]), 3);
    assert!(said.contains("--tokens"), "{said}");
    let said = failure(&built(&inputs()[0], &[]), 3);
    assert!(said.contains("scores of other texts"), "{said}");
    let said = failure(&built(&at("a.txt"), &["--snippet", "16"]), 3);
    assert!(said.contains("scores of another build"), "{said}");
    success(&built(&at("a.txt"), &[]));

    let profile = |model: &Path, arguments: &[&str], store: Option<&Path>| {
        let mut command = on_machine("profile", model);
        command.args(["--budget", "5"]).args(arguments).arg("-o").arg(at("p"));
        if let Some(store) = store {
            command.arg("--store").arg(store);
        }
        failure(&command.output().expect("starts"), 3)
    };
    let said = profile(model(), &["--drafter", "retrieval"], None);
    assert!(said.contains("yggc corpus build") && said.contains("--store"), "{said}");
    let said = profile(other_model(), &[], Some(store()));
    assert!(said.contains("built with another model"), "{said}");
}
