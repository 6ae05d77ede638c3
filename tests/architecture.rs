//! The room map as a test: who may import whom, where crates and `unsafe` live, and how files are named and opened.
//!
//! The rules read the text of the sources, not resolved names: comments and literals are blanked, then paths are
//! followed from `crate`, `super` and crate names. Each rule has a made-up bad source below which it must refuse.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use self::rust_text::{children_of, code_of, named_crates, tokens};

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/each_rule_can_fail.rs"]
mod each_rule_can_fail;
#[path = "architecture/fields.rs"]
mod fields;
#[path = "architecture/rust_text.rs"]
mod rust_text;

/// `(room, rooms it may import)` in walking order: a room imports only rooms above it.
const ROOMS: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("storage", &[]),
    ("sample", &[]),
    ("tree", &[]),
    ("text", &["storage"]),
    ("grammar", &["text"]),
    ("packed", &["storage"]),
    ("prefix", &["storage"]),
    ("model", &["ir", "storage", "packed"]),
    ("compile", &["ir"]),
    ("backend", &["ir", "storage", "packed"]),
    ("runtime", &["ir", "compile", "backend"]),
    ("plan", &["tree", "sample", "storage"]),
    ("policy", &["tree", "plan", "storage"]),
    ("speculate", &["runtime", "tree", "plan", "policy", "prefix", "sample", "grammar", "storage"]),
    (
        "engine",
        &[
            "model",
            "backend",
            "runtime",
            "tree",
            "plan",
            "policy",
            "prefix",
            "speculate",
            "sample",
            "text",
            "grammar",
        ],
    ),
    ("planner", &["tree", "sample", "plan", "policy", "speculate", "engine"]),
    (
        "measure",
        &["storage", "engine", "runtime", "tree", "speculate", "sample", "plan", "policy", "planner"],
    ),
    ("verify", &["ir", "model", "backend", "runtime", "engine", "plan", "sample", "measure"]),
    // These see the library from outside, as `yggc::`: two belong to the program, the others are packages of their own.
    ("serve", &[]),
    ("cli", &["serve"]),
    ("c_api", &[]),
    ("python", &[]),
];

/// Rooms that reach the library through its public paths only.
const OUTSIDE: &[&str] = &["serve", "cli", "c_api", "python"];

/// Rooms that work offline, which the library has with its feature `planner` alone: what decodes links none of them.
const OFFLINE: &[&str] = &["planner", "measure", "verify"];

/// Rooms that are packages of their own: there `crate` is the room.
const PACKAGES: &[&str] = &["c_api", "python"];

/// `(crate, places that may name it)`: rooms, or the member crates `kernels` and `profiler`. `*` is any place.
const CRATES: &[(&str, &[&str])] = &[
    ("ygg_kernels", &["ir", "sample", "model", "compile", "backend", "kernels"]),
    ("ygg_profiler", &["model", "plan", "policy", "planner", "speculate", "measure", "verify", "cli"]),
    ("yggc", OUTSIDE),
    ("axum", &["serve"]),
    ("bincode", &["storage"]),
    // In the service, it compares keys in constant time.
    (
        "blake3",
        &[
            "packed",
            "prefix",
            "model",
            "backend",
            "storage",
            "speculate",
            "planner",
            "measure",
            "serve",
            "profiler",
            "kernels",
        ],
    ),
    ("cbindgen", &["c_api"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("criterion", &["kernels"]),
    ("cudarc", &["backend"]),
    ("flate2", &["storage"]),
    ("half", &["kernels", "model", "backend"]),
    ("hf_hub", &["cli"]),
    ("hyper", &["serve"]),
    ("hyper_util", &["serve"]),
    ("indicatif", &["cli"]),
    ("llguidance", &["grammar"]),
    ("libc", &["kernels", "storage"]),
    ("memmap2", &["storage"]),
    ("base64", &["text"]),
    ("chrono", &["text", "engine", "profiler"]),
    ("minijinja", &["text"]),
    ("minijinja_contrib", &["text"]),
    ("opentelemetry", &["serve"]),
    ("opentelemetry_http", &["serve"]),
    ("opentelemetry_otlp", &["serve"]),
    ("opentelemetry_sdk", &["serve"]),
    ("petgraph", &["ir", "compile", "planner"]),
    ("plotters", &["cli"]),
    ("pyo3", &["python"]),
    ("prometheus_client", &["serve"]),
    ("regex_syntax", &["grammar"]),
    ("rustyline", &["cli"]),
    ("safetensors", &["model"]),
    ("serde", &["*"]),
    ("serde_json", &["*"]),
    ("serde_path_to_error", &["serve"]),
    ("sha2", &["cli"]),
    ("signal_hook", &["storage"]),
    ("terminal_size", &["cli"]),
    ("thiserror", &["*"]),
    ("tokenizers", &["text"]),
    ("tokio", &["serve"]),
    ("toml", &["cli"]),
    ("toktrie", &["grammar"]),
    ("tracing_subscriber", &["serve"]),
    ("unicode_width", &["cli"]),
    ("tower_http", &["serve"]),
    ("ureq", &["cli", "serve"]),
    ("windows_sys", &["storage"]),
    ("zip", &["cli"]),
];

/// Places where `unsafe` may be written. The C interface follows pointers of its callers; the tests need it once, to
/// count allocations.
const UNSAFE_PLACES: &[&str] = &["kernels", "backend", "storage", "c_api", "tests"];

/// `(beginning of a path, why it may ask which system it is built for)`. Tests in `tests/` run on Linux.
const SYSTEM_DOORS: &[(&str, &str)] = &[
    ("src/storage/", "the doors of all rooms"),
    ("kernels/src/cpu/memory.rs", "huge pages of Linux, of which this crate's buffers are made"),
    ("kernels/src/cpu/amx/", "Linux gives programs tiles that ask for them"),
    (
        "kernels/src/cpu/isa.rs",
        "the proof that such code runs, and its emulation by signals of Linux in tests",
    ),
    ("kernels/tests/ops/amx.rs", "tests of that emulation"),
    ("profiler/src/processor.rs", "Linux says in a file what the processor is"),
    ("tests/", "tests run on Linux"),
];

/// Longest file without a reason to be longer.
const MAX_LINES: usize = 600;

/// `(file, why it is longer than MAX_LINES)`.
const LONG_FILES: &[(&str, &str)] =
    &[("kernels/src/cuda/abi.rs", "bindgen makes it of one header, with an assertion for every field")];

/// Rooms with modules that can only be read together, which are to become fewer.
const CIRCULAR: &[&str] = &[
    "storage", "ir", "text", "model", "grammar", "sample", "backend", "runtime", "engine", "verify", "serve",
    "cli",
];

/// Names that say nothing about what is inside.
const BANNED_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "misc", "base", "stuff", "shared"];

/// One source file.
struct Source {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// The room or member crate that the file belongs to, `src` for the two crate roots.
    fn place(&self) -> &str {
        let mut parts = self.path.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("src"), Some(room), Some(_)) => room,
            (Some(first), ..) => first,
            (None, ..) => unreachable!("`split` yields at least one part"),
        }
    }

    fn complaint(&self, what: impl std::fmt::Display) -> String {
        format!("{}: {what}", self.path)
    }
}

/// Everything that is wrong with one file.
fn complaints(source: &Source) -> Vec<String> {
    let code = code_of(&source.text);
    let tokens = tokens(&code);
    [
        first_line(source),
        file_length(source, LONG_FILES),
        file_name(source),
        location(source),
        room_imports(source, &tokens),
        crate_homes(source, &tokens),
        unsafe_homes(source, &tokens),
        system_homes(source, &tokens),
        flags(source),
    ]
    .concat()
}

fn first_line(source: &Source) -> Vec<String> {
    let first = source.text.lines().next().unwrap_or_default();
    match first.strip_prefix("//! ") {
        Some(said) if said.trim().len() >= 8 => Vec::new(),
        _ => vec![source.complaint("the first line must say what the file is: `//! What this is.`")],
    }
}

fn file_length(source: &Source, exceptions: &[(&str, &str)]) -> Vec<String> {
    let lines = source.text.lines().count();
    let excepted = exceptions.iter().any(|(path, _)| *path == source.path);
    match (lines > MAX_LINES, excepted) {
        (true, false) => {
            vec![source.complaint(format_args!("{lines} lines; split it, or give a reason in LONG_FILES"))]
        }
        (false, true) => vec![source.complaint("is short enough now; take it off LONG_FILES")],
        (true, true) | (false, false) => Vec::new(),
    }
}

fn file_name(source: &Source) -> Vec<String> {
    let names = source.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let is_version =
        |name: &str| name.rsplit_once("_v").is_some_and(|(_, version)| version.parse::<u32>().is_ok());
    names
        .filter(|name| BANNED_NAMES.contains(name) || is_version(name))
        .map(|name| source.complaint(format_args!("`{name}` does not say what is inside")))
        .collect()
}

/// A folder of `src/` is a room of the map, and what is in `tests/` is compiled.
fn location(source: &Source) -> Vec<String> {
    let parts: Vec<&str> = source.path.split('/').collect();
    match parts[..] {
        ["src", "lib.rs" | "main.rs"] => Vec::new(),
        ["src", room, _, ..] if ROOMS.iter().any(|(name, _)| *name == room) => Vec::new(),
        ["src", ..] => vec![source.complaint("is in no room of the map")],
        ["tests", "architecture.rs"] | ["tests", "architecture" | "it", ..] => Vec::new(),
        // A global allocator belongs to a whole program, so this one cannot be a module of another.
        ["tests", "steps_allocate_nothing", ..] => Vec::new(),
        ["tests", ..] => {
            vec![source.complaint("is compiled by nothing: tests are modules of tests/it/main.rs")]
        }
        _ => Vec::new(),
    }
}

fn room_imports(source: &Source, tokens: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    if tokens.windows(3).any(|three| three == ["super", "::", "super"]) {
        found.push(source.complaint("`super::super` hides where it leads; start at `crate::`"));
    }
    if !source.path.starts_with("src/") {
        return found;
    }
    let room = source.place();
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return found;
    };
    // From a room's door, `super::` is the crate's root.
    let door = source.path == format!("src/{room}/mod.rs");
    let through_super = children_of("super", tokens).filter(|_| door).filter(|name| is_room(name));
    let through_crate = children_of("crate", tokens).filter(|_| !PACKAGES.contains(&room));
    for used in through_crate.chain(through_super) {
        if used != room && !allowed.contains(&used) {
            found.push(source.complaint(format_args!("room `{room}` may not import `{used}`")));
        }
    }
    if !OUTSIDE.contains(&room) && children_of("yggc", tokens).next().is_some() {
        found.push(source.complaint("a room of the library says `crate::`, not `yggc::`"));
    }
    found
}

fn crate_homes(source: &Source, tokens: &[&str]) -> Vec<String> {
    let place = source.place();
    if ["tests", "fuzz"].contains(&place) {
        return Vec::new();
    }
    named_crates(tokens)
        .into_iter()
        .filter_map(|name| CRATES.iter().find(|(known, _)| *known == name))
        .filter(|(_, homes)| !homes.contains(&"*") && !homes.contains(&place))
        .map(|(name, homes)| {
            source.complaint(format_args!(
                "`{place}` may not use the crate {name}; its home is {}",
                homes.join(", ")
            ))
        })
        .collect()
}

fn unsafe_homes(source: &Source, tokens: &[&str]) -> Vec<String> {
    if UNSAFE_PLACES.contains(&source.place()) || !tokens.contains(&"unsafe") {
        return Vec::new();
    }
    vec![source.complaint(format_args!("`unsafe` lives only in {}", UNSAFE_PLACES.join(", ")))]
}

/// Which system it is built for is asked behind doors alone, by `cfg` or by paths of `std::os`.
fn system_homes(source: &Source, tokens: &[&str]) -> Vec<String> {
    if SYSTEM_DOORS.iter().any(|(door, _)| source.path.starts_with(door)) {
        return Vec::new();
    }
    let mut found = rust_text::conditions(tokens);
    found.extend(children_of("os", tokens));
    let systems = ["unix", "linux", "macos", "windows", "fd", "target_os", "target_family", "target_env"];
    found.retain(|word| systems.contains(word));
    found
        .into_iter()
        .map(|word| source.complaint(format_args!("asks for the system (`{word}`); use a door in `storage`")))
        .collect()
}

/// Callers of the library, in C or over HTTP, have no command line: what would help is an `engine::Hint`.
fn flags(source: &Source) -> Vec<String> {
    let is_library =
        source.path.starts_with("src/") && is_room(source.place()) && !OUTSIDE.contains(&source.place());
    let is_test = source.path.split('/').any(|part| part == "tests" || part == "tests.rs");
    if !is_library || is_test {
        return Vec::new();
    }
    let code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names_a_flag = |line: &str| {
        // The compiler of CUDA takes options that look alike.
        line.split("--")
            .skip(1)
            .any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()) && !rest.starts_with("gpu-"))
    };
    code.filter(|line| names_a_flag(line))
        .map(|line| source.complaint(format_args!("the library names a flag: {}", line.trim())))
        .collect()
}

fn is_room(name: &str) -> bool {
    ROOMS.iter().any(|(room, _)| *room == name)
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source of the repository that rules apply to.
fn sources() -> Vec<Source> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for path in entries.map(|entry| entry.expect("the repository can be listed").path()) {
            if path.is_dir() {
                if !path.ends_with("target") {
                    walk(&path, files);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for folder in ["src", "kernels", "profiler", "tests", "fuzz"] {
        walk(&repository().join(folder), &mut files);
    }
    files.extend(Some(repository().join("build.rs")).filter(|path| path.exists()));
    files.sort();
    files
        .into_iter()
        .map(|file| Source {
            path: file
                .strip_prefix(repository())
                .expect("walked from there")
                .to_str()
                .expect("UTF-8")
                .to_owned(),
            text: fs::read_to_string(&file).expect("sources are UTF-8"),
        })
        .collect()
}

/// Names under `[dependencies]` in a manifest, and under those of some targets, as they are written in code.
fn dependencies(manifest: &str) -> Vec<String> {
    let is_linked = |section: &str| {
        section == "[dependencies]" || section.starts_with("[target.") && section.ends_with(".dependencies]")
    };
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if is_linked(section) && !line.starts_with('#') && line.contains('=') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            names.push(name.replace('-', "_"));
        }
    }
    names
}

#[test]
fn every_file_keeps_the_rules() {
    let sources = sources();
    assert!(sources.len() > 20, "the sources were not found");
    let wrong: Vec<String> = sources.iter().flat_map(complaints).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn no_room_has_a_circle_of_modules() {
    let sources = sources();
    for (room, _) in ROOMS {
        let found = circles::circles(room, &sources);
        if CIRCULAR.contains(room) {
            assert!(!found.is_empty(), "`{room}` has no circle any more: take it off CIRCULAR");
        } else {
            assert!(found.is_empty(), "\n{}\n", found.join("\n"));
        }
    }
}

#[test]
fn every_room_has_a_door() {
    for entry in fs::read_dir(repository().join("src")).expect("src/ can be listed") {
        let path = entry.expect("src/ can be listed").path();
        if path.is_dir() {
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            assert!(is_room(name), "src/{name} is in no room of the map");
            assert!(path.join("mod.rs").exists(), "src/{name} has no door (mod.rs)");
        }
    }
}

#[test]
fn the_map_has_no_cycle() {
    for (at, (room, allowed)) in ROOMS.iter().enumerate() {
        for used in *allowed {
            let above = ROOMS[..at].iter().any(|(name, _)| name == used);
            assert!(above, "`{room}` imports `{used}`, which is not above it in the map");
        }
    }
}

#[test]
fn what_decodes_links_nothing_that_works_offline() {
    let library = fs::read_to_string(repository().join("src/lib.rs")).expect("the library has a root");
    for (room, allowed) in ROOMS.iter().filter(|(room, _)| !OUTSIDE.contains(room)) {
        let module = format!("pub mod {room};");
        let gated = library.contains(&format!("#[cfg(feature = \"planner\")]\n{module}"));
        assert!(library.contains(&module), "{module} is not in src/lib.rs");
        assert_eq!(gated, OFFLINE.contains(room), "whether `{room}` is behind the feature `planner`");
        let offline = allowed.iter().find(|used| OFFLINE.contains(used));
        assert!(gated || offline.is_none(), "`{room}` decodes and imports {offline:?}");
    }
}

/// Whoever writes a backend writes these; what else it can do are capabilities.
#[test]
fn a_replay_has_at_most_seven_methods() {
    let door = fs::read_to_string(repository().join("src/backend/mod.rs")).expect("a source file is UTF-8");
    let (_, replay) = door.split_once("pub trait Replay").expect("the trait is there");
    let (replay, _) = replay.split_once("\n}").expect("it ends");
    let methods = replay.matches("\n    fn ").count();
    assert!((1..=7).contains(&methods), "`Replay` has {methods} methods, expected at most 7");
}

#[test]
fn long_files_exist_and_have_reasons() {
    for (path, reason) in LONG_FILES {
        assert!(repository().join(path).exists(), "{path} is on LONG_FILES but gone");
        assert!(reason.len() > 20, "{path}: the reason says nothing");
    }
}

#[test]
fn doors_to_the_system_exist_and_ask() {
    let sources = sources();
    for (door, reason) in SYSTEM_DOORS {
        let mut inside = sources.iter().filter(|source| source.path.starts_with(door));
        let asks = |source: &Source| {
            let elsewhere = Source { path: "src/ir/op.rs".to_owned(), text: source.text.clone() };
            !system_homes(&elsewhere, &tokens(&code_of(&source.text))).is_empty()
        };
        assert!(inside.any(asks), "{door} asks for no system any more: take it off SYSTEM_DOORS");
        assert!(reason.len() > 15, "{door}: the reason says nothing");
    }
}

#[test]
fn every_dependency_has_a_home() {
    for (manifest, member) in [
        ("Cargo.toml", None),
        ("kernels/Cargo.toml", Some("kernels")),
        ("profiler/Cargo.toml", Some("profiler")),
        ("src/c_api/Cargo.toml", Some("c_api")),
        ("src/python/Cargo.toml", Some("python")),
    ] {
        let text = fs::read_to_string(repository().join(manifest)).expect("the manifest can be read");
        let names = dependencies(&text);
        assert!(!names.is_empty(), "{manifest}: no dependencies found");
        for name in names {
            let home = CRATES.iter().find(|(known, _)| *known == name);
            let (_, homes) = home.unwrap_or_else(|| panic!("{manifest}: {name} has no home in CRATES"));
            let fits = member.is_none_or(|member| homes.contains(&member) || homes.contains(&"*"));
            assert!(fits, "{manifest}: {name} is at home in {}", homes.join(", "));
        }
    }
}

/// Crates that whoever embeds the library must not get: HTTP, async, the command line, plots, training.
const NEVER_EMBEDDED: &[&str] = &[
    "axum",
    "candle-core",
    "candle-nn",
    "clap",
    "cudarc",
    "hf-hub",
    "hyper",
    "indicatif",
    "openssl",
    "opentelemetry",
    "plotters",
    "prometheus-client",
    "reqwest",
    "rustls",
    "rustyline",
    "sha2",
    "tokio",
    "tower",
    "ureq",
    "zip",
];

/// The names of the crates that a build with these features links, by cargo.
fn linked(features: &[&str]) -> Vec<String> {
    let arguments =
        ["tree", "--locked", "--offline", "-p", "yggc", "-e", "normal", "--prefix", "none", "-f", "{lib}"];
    let mut cargo = Command::new(env!("CARGO"));
    let tree = cargo.current_dir(repository()).args(arguments).args(features).output().expect("cargo starts");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let names = String::from_utf8(tree.stdout).expect("UTF-8");
    names.lines().filter_map(|line| Some(line.split_whitespace().next()?.replace('_', "-"))).collect()
}

#[test]
fn the_library_alone_brings_no_http_no_command_line_and_no_training() {
    let found = |features: &[&str]| {
        let linked = linked(features);
        assert!(linked.iter().any(|name| name == "tokenizers"), "{linked:?}");
        NEVER_EMBEDDED.iter().copied().filter(|name| linked.iter().any(|l| l == name)).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--no-default-features"]), [""; 0]);
    // The program has them, so the rule can fail.
    for name in ["axum", "clap", "tokio"] {
        assert!(found(&[]).contains(&name), "{name}");
    }
}
