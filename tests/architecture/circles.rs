//! Circles inside a room: modules that can only be read together.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{
    algo::tarjan_scc,
    graph::{DiGraph, NodeIndex},
};

use super::{
    Source,
    rust_text::{code_of, names_below, tokens},
};

/// The module of a room that a source is of: a file or folder next to the room's door. The door has none, and tests may
/// name what they like.
fn module_of<'s>(source: &'s Source, room: &str) -> Option<&'s str> {
    let below = source.path.strip_prefix("src/")?.strip_prefix(room)?.strip_prefix('/')?;
    let mut parts = below.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let module = parts.next().filter(|module| *module != "mod" && *module != "tests")?;
    (!parts.any(|part| part == "tests")).then_some(module)
}

/// What a room's modules import from one another, by `super::`, by `crate::` and through what the door exports.
fn imports<'s>(room: &str, sources: &'s [Source]) -> DiGraph<&'s str, ()> {
    let mut graph = DiGraph::new();
    let modules: BTreeSet<&str> = sources.iter().filter_map(|source| module_of(source, room)).collect();
    let nodes: BTreeMap<&str, NodeIndex> =
        modules.iter().map(|module| (*module, graph.add_node(*module))).collect();
    let door = sources.iter().find(|source| source.path == format!("src/{room}/mod.rs"));
    let mut exported = BTreeMap::<String, &str>::new();
    if let Some(door) = door {
        let code = code_of(&door.text);
        let tokens = tokens(&code);
        for module in &modules {
            let items = names_below(&[module], &tokens);
            exported.extend(items.into_iter().map(|item| (item, *module)));
        }
    }
    for source in sources {
        let Some(own) = module_of(source, room) else { continue };
        let code = code_of(&source.text);
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let tokens = tokens(code);
        let is_beside_the_door = [format!("src/{room}/{own}.rs"), format!("src/{room}/{own}/mod.rs")];
        let mut named = names_below(&["crate", room], &tokens);
        if is_beside_the_door.contains(&source.path) {
            named.extend(names_below(&["super"], &tokens));
        }
        for name in named {
            let module = modules.get(&*name).or_else(|| exported.get(&name));
            if let Some(module) = module.filter(|module| **module != own) {
                graph.update_edge(nodes[own], nodes[module], ());
            }
        }
    }
    graph
}

/// The circles of a room, each as its modules in order.
pub(crate) fn circles(room: &str, sources: &[Source]) -> Vec<String> {
    let graph = imports(room, sources);
    let circles = tarjan_scc(&graph).into_iter().filter(|modules| modules.len() > 1);
    circles
        .map(|modules| {
            let modules: BTreeSet<&str> = modules.into_iter().map(|module| graph[module]).collect();
            let modules = Vec::from_iter(modules);
            format!("src/{room}: a circle of {}", modules.join(", "))
        })
        .collect()
}

#[test]
fn a_circle_is_found_through_files_folders_and_the_door() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let door = source("src/plan/mod.rs", "mod a; mod b; mod c; pub use b::{Thing, Other}; pub use c::Far;");
    let of = |texts: [(&str, &str); 3]| {
        let sources = [&[door.path.as_str()][..], &texts.map(|(path, _)| path)].concat();
        let all: Vec<Source> = sources
            .into_iter()
            .zip([&[door.text.as_str()][..], &texts.map(|(_, text)| text)].concat())
            .map(|(path, text)| source(path, text))
            .collect();
        circles("plan", &all)
    };
    let circle = ["src/plan: a circle of a, b"];
    let (a, b, c) = ("src/plan/a.rs", "src/plan/b.rs", "src/plan/c.rs");
    assert_eq!(of([(a, "use super::b::X;"), (b, "use super::a::Y;"), (c, "")]), circle);
    assert_eq!(of([(a, "use super::Thing;"), (b, "use super::{a, Far};"), (c, "")]), circle);
    let deep = "use crate::{ir::Op, plan::{Far, Other}};";
    assert_eq!(of([("src/plan/a/deep.rs", deep), (b, "use super::a::Y;"), (c, "")]), circle);
    assert!(of([(a, "use super::b::X;"), (b, "use super::Far;"), (c, "")]).is_empty());
    let only_in_tests = "#[cfg(test)]\nmod tests {\n    use super::a::Y;\n}";
    assert!(of([(a, "use super::b::X;"), (b, only_in_tests), (c, "")]).is_empty());
}
