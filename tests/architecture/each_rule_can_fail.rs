//! Made-up bad sources, each refused for the reason it was made for, and good ones that look alike.

use super::*;

/// What the rules say to `text` at `path`, below a good first line.
fn said(path: &str, text: &str) -> Vec<String> {
    complaints(&Source { path: path.to_owned(), text: format!("//! A made-up file.\n{text}\n") })
}

#[track_caller]
fn refused(path: &str, text: &str, why: &str) {
    let said = said(path, text);
    assert!(said.iter().any(|complaint| complaint.contains(why)), "{path}: {text:?} gave {said:?}");
}

#[track_caller]
fn accepted(path: &str, text: &str) {
    assert_eq!(said(path, text), [""; 0], "{path}: {text:?}");
}

#[test]
fn first_line() {
    for text in ["", "use std::fs;", "//!", "//! x", "// A comment.", "#![forbid(unsafe_code)]\n//! Late."] {
        let source = Source { path: "src/ir/op.rs".to_owned(), text: text.to_owned() };
        assert_eq!(complaints(&source).len(), 1, "{text:?}");
    }
}

#[test]
fn file_length() {
    let at = |lines: usize| Source { path: "src/ir/op.rs".to_owned(), text: "\n".repeat(lines) };
    let excepted = [("src/ir/op.rs", "one table that is read as a whole")];
    assert_eq!(super::file_length(&at(MAX_LINES), &[]).len(), 0);
    assert_eq!(super::file_length(&at(MAX_LINES + 1), &[]).len(), 1);
    assert_eq!(super::file_length(&at(MAX_LINES + 1), &excepted).len(), 0);
    assert_eq!(super::file_length(&at(MAX_LINES), &excepted).len(), 1);
}

#[test]
fn names_and_places() {
    refused("src/ir/utils.rs", "", "`utils`");
    refused("kernels/src/common/dot.rs", "", "`common`");
    refused("src/tree/growth_v2.rs", "", "`growth_v2`");
    refused("src/planning/mod.rs", "", "no room");
    refused("src/stray.rs", "", "no room");
    refused("tests/lossless.rs", "", "compiled by nothing");
    accepted("tests/it/lossless.rs", "");
    accepted("src/tree/growth.rs", "");
    accepted("src/model/family/llama_v.rs", "");
}

#[test]
fn imports_between_rooms() {
    for text in [
        "use crate::engine::Engine;",
        "use crate::{ir::Op, engine::Engine};",
        "use crate :: { ir::{Op, Graph},\n engine };",
        "fn f() { crate::engine::open() }",
        "use crate::*;",
        "use crate as root;",
        "pub(in crate::engine) struct A;",
        "const A: char = '\"'; use crate::engine::Engine; const B: char = '\"';",
        "/* /* nested */ */ use crate::engine::Engine;",
    ] {
        refused("src/model/config.rs", text, "room `model` may not import");
    }
    for text in [
        "use crate::{ir::{Op, Graph}, model::Config, storage::Map};",
        "// use crate::engine::Engine;",
        "/* use /* nested */ crate::engine::Engine; */",
        "const A: &str = \"crate::engine\"; const B: &str = r#\"a \" crate::engine\"#;",
        "pub(crate) fn f<'a>(x: &'a str) -> &'a str { x }",
        "#[cfg(test)] mod tests { use super::*; }",
    ] {
        accepted("src/model/config.rs", text);
    }
    refused("src/model/mod.rs", "use super::engine::Engine;", "may not import `engine`");
    refused("src/model/mod.rs", "use super::{engine::Engine};", "may not import `engine`");
    refused("src/model/family/llama.rs", "use super::super::Config;", "super::super");
    refused("src/model/config.rs", "use yggc::engine::Engine;", "not `yggc::`");
    accepted("src/c_api/engine.rs", "use yggc::engine::Engine; use crate::status::Status;");
    refused("src/c_api/mod.rs", "use super::engine::Engine;", "may not import `engine`");
    refused("src/cli/settings.rs", "use crate::engine::Engine;", "may not import `engine`");
    accepted("src/cli/settings.rs", "use crate::{cli::args::Cli, serve}; use yggc::engine::Engine;");
    refused("src/serve/http.rs", "use crate::cli::args::Cli;", "may not import `cli`");
}

#[test]
fn homes_of_crates() {
    for text in [
        "use petgraph::Graph;",
        "use {petgraph::Graph, std::fs};",
        "fn f(g: &petgraph::Graph<(), ()>) {}",
        "use ::petgraph::Graph;",
        "use petgraph;",
        "use petgraph as p;",
        "extern crate petgraph;",
    ] {
        refused("src/tree/growth.rs", text, "may not use the crate petgraph");
        accepted("src/ir/graph.rs", text);
    }
    refused("src/model/gguf.rs", "use memmap2::Mmap;", "its home is storage");
    refused("profiler/src/lib.rs", "use half::f16;", "`profiler` may not use the crate half");
    accepted("kernels/src/lib.rs", "use half::f16;");
    accepted("src/text/chat.rs", "let pairs = a.zip(b); // zip::ZipArchive");
    accepted("tests/it/fetch.rs", "use zip::ZipWriter;");
}

#[test]
fn flags_are_the_programs() {
    let text = "fn f() -> &'static str { \"ask for a longer --context\" }";
    refused("src/engine/mod.rs", text, "names a flag");
    accepted("src/cli/error.rs", text);
    accepted("src/engine/mod.rs", "// `--context` of the program\nfn f() -> u32 { 3 - -2 }");
}

#[test]
fn homes_of_unsafe() {
    refused("src/tree/growth.rs", "fn f() { unsafe { g() } }", "`unsafe` lives only in");
    accepted("src/backend/cpu/pool.rs", "fn f() { unsafe { g() } }");
    accepted("src/tree/mod.rs", "#![forbid(unsafe_code)] // no unsafe here");
}

#[test]
fn homes_of_systems() {
    for text in [
        "#[cfg(unix)] fn f() {}",
        "#[cfg(not(any(test, target_os = \"linux\")))] fn f() {}",
        "#[cfg_attr(windows, path = \"a.rs\")] mod a;",
        "fn f() -> bool { cfg!(all(target_arch = \"x86_64\", target_env = \"gnu\")) }",
        "use std::os::unix::ffi::OsStrExt;",
        "use std::{fs, os::windows::fs::OpenOptionsExt};",
    ] {
        refused("src/packed/folder.rs", text, "use a door in `storage`");
        refused("profiler/src/machine.rs", text, "use a door in `storage`");
        accepted("src/storage/disk.rs", text);
        accepted("tests/it/streaming.rs", text);
    }
    for text in [
        "#[cfg(test)] mod tests { fn unix() {} }",
        "#[cfg(target_arch = \"x86_64\")] fn windows(windows: u32) { f(unix) }",
        "#[cfg(feature = \"unix\")] fn f() {}",
        "fn f(cfg: Config) { g(cfg, windows) }",
    ] {
        accepted("src/packed/folder.rs", text);
    }
}

#[test]
fn dependencies_of_a_manifest() {
    let manifest = "[package]\nname = \"a\"\n[dependencies]\n# a = 1\nygg-kernels = { path = \"k\" }\n\
                    serde.workspace = true\n[dev-dependencies]\ninsta = \"1\"\n\
                    [target.'cfg(windows)'.dependencies]\nwindows-sys = \"0.61\"\n\
                    [target.'cfg(windows)'.dev-dependencies]\ntempfile = \"3\"\n";
    assert_eq!(dependencies(manifest), ["ygg_kernels", "serde", "windows_sys"]);
}
