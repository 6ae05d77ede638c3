//! Tests of the registry of drafters.

use std::{fs, path::Path};

use super::*;
use crate::storage::Seal;

fn layer_skip(skipped: &[u32], head_tokens: Option<&[u32]>) -> DrafterKind {
    LayerSkipSettings { skipped: skipped.to_vec(), head_tokens: head_tokens.map(<[u32]>::to_vec) }.into()
}

fn retrieval(longest_match: u32, shortest_match: u32, lookup_match: Option<(u32, u32)>) -> DrafterKind {
    let store = DrafterFile { path: "a.store".to_owned(), digest: "0a".repeat(32) };
    RetrievalSettings { store, longest_match, shortest_match, lookup_match }.into()
}

fn lookup(longest_match: u32, shortest_match: u32) -> DrafterKind {
    LookupSettings { longest_match, shortest_match }.into()
}

fn swift(skipped: &[u32]) -> DrafterKind {
    SwiftSettings { skipped: skipped.to_vec() }.into()
}

fn mixed(parts: &[DrafterKind]) -> DrafterKind {
    DrafterKind::Mixed(Mixture::of(parts).unwrap())
}

fn mixed_steps(growths: u32, certain_percent: u32) -> DrafterKind {
    let mixture = Mixture::of(&[lookup(4, 2), substitute(4, None)]).unwrap();
    DrafterKind::Mixed(mixture.with_model_steps(growths, certain_percent))
}

fn model(path: &str, head_tokens: Option<&[u32]>) -> DrafterKind {
    let model = DrafterFile { path: path.to_owned(), digest: "b1".repeat(32) };
    ModelSettings { model, head_tokens: head_tokens.map(<[u32]>::to_vec) }.into()
}

fn substitute(bits: u32, head_tokens: Option<&[u32]>) -> DrafterKind {
    SubstituteSettings { bits, head_tokens: head_tokens.map(<[u32]>::to_vec) }.into()
}

fn prior(path: &str) -> DrafterKind {
    PriorSettings { store: DrafterFile { path: path.to_owned(), digest: "0b".repeat(32) } }.into()
}

fn block(path: &str) -> DrafterKind {
    let model = DrafterFile { path: path.to_owned(), digest: "b1".repeat(32) };
    BlockSettings { model }.into()
}

fn all() -> [DrafterKind; 23] {
    let short = lookup(4, 2);
    let (ngram, suffix) =
        (DrafterKind::Ngram(NgramSettings::DEFAULT), DrafterKind::Suffix(SuffixSettings::DEFAULT));
    [
        mixed(&[DrafterKind::Recycling, short.clone()]),
        mixed(&[retrieval(16, 2, None), ngram, DrafterKind::Recycling, suffix, short]),
        mixed(&[prior("a.store"), DrafterKind::Recycling]),
        DrafterKind::None,
        lookup(4, 2),
        layer_skip(&[2, 3, 9], None),
        retrieval(16, 2, None),
        retrieval(16, 2, Some((3, 1))),
        DrafterKind::Suffix(SuffixSettings::DEFAULT),
        DrafterKind::Recycling,
        DrafterKind::Ngram(NgramSettings::DEFAULT),
        swift(&[2, 3, 9]),
        layer_skip(&[2, 3, 9], Some(&[0, 7, 8])),
        model("a", None),
        model("a", Some(&[0, 7, 8])),
        mixed(&[lookup(4, 2), substitute(4, None)]),
        mixed(&[retrieval(16, 2, None), layer_skip(&[2, 3, 9], None)]),
        mixed(&[DrafterKind::Suffix(SuffixSettings::DEFAULT), model("a", Some(&[0, 7, 8])), lookup(4, 2)]),
        DrafterKind::Mixed(
            Mixture::of(&[lookup(4, 2), substitute(2, Some(&[0, 7, 8]))]).unwrap().with_model_steps(3, 55),
        ),
        substitute(4, None),
        substitute(2, Some(&[0, 7, 8])),
        prior("a.store"),
        block("b"),
    ]
}

#[test]
fn every_kind_survives_its_description() {
    let names = all().map(|kind| kind.name());
    assert!(
        DrafterKind::NAMES.iter().all(|name| names.contains(name))
            && names.iter().all(|n| DrafterKind::NAMES.contains(n))
    );
    for kind in all() {
        let description = kind.describe(DrafterName::new("any").unwrap());
        assert_eq!(DrafterKind::from_description(&description).unwrap(), kind);
    }
}

#[test]
fn other_descriptions_are_refused() {
    for kind in all() {
        let good = kind.describe(DrafterName::new("any").unwrap());
        let mut extra = good.clone();
        extra.parameters.insert("more".into(), vec![1]);
        let mut other_file = good.clone();
        other_file.file = match &good.file {
            Some(_) => None,
            None => Some(DrafterFile { path: "x".to_owned(), digest: "0".repeat(64) }),
        };
        assert!(matches!(
            DrafterKind::from_description(&other_file),
            Err(PlanError::DrafterParameters { .. })
        ));
        let mut unknown = good;
        unknown.kind = "oracle".into();
        assert!(matches!(DrafterKind::from_description(&extra), Err(PlanError::DrafterParameters { .. })));
        assert!(matches!(DrafterKind::from_description(&unknown), Err(PlanError::UnknownDrafter { .. })));
    }
    for kind in [
        lookup(1, 2),
        lookup(1, 0),
        retrieval(1, 2, None),
        retrieval(2, 0, None),
        retrieval(2, 1, Some((1, 2))),
        retrieval(2, 1, None).with_store_at(""),
        prior(""),
        layer_skip(&[], None),
        layer_skip(&[3, 2], None),
        layer_skip(&[2, 2], None),
        layer_skip(&[2], Some(&[])),
        layer_skip(&[2], Some(&[3, 2])),
        layer_skip(&[2], Some(&[4, 4])),
        DrafterKind::Suffix(SuffixSettings { counted: 1, ..SuffixSettings::DEFAULT }),
        DrafterKind::Suffix(SuffixSettings { remembered: 1 << 25, ..SuffixSettings::DEFAULT }),
        DrafterKind::Ngram(NgramSettings { order: 1, ..NgramSettings::DEFAULT }),
        DrafterKind::Ngram(NgramSettings { order: 9, ..NgramSettings::DEFAULT }),
        DrafterKind::Ngram(NgramSettings { explored_percent: 101, ..NgramSettings::DEFAULT }),
        swift(&[]),
        swift(&[2, 2]),
        swift(&[2, 512]),
        model("", None),
        model("a", Some(&[7, 0])),
        mixed_steps(0, 50),
        mixed_steps(65, 50),
        mixed_steps(3, 0),
        mixed_steps(3, 101),
    ] {
        let description = kind.describe(DrafterName::new("any").unwrap());
        assert!(DrafterKind::from_description(&description).is_err(), "{kind:?}");
    }
}

/// The files under `folder` outside of tests, by their paths from `root`, that name a drafter.
fn naming(root: &Path, folder: &Path, name: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            naming(root, &entry, name, found);
            continue;
        }
        let path = entry.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        let is_code = path.ends_with(".rs") && !path.contains("tests");
        let text = fs::read_to_string(&entry).unwrap_or_default().to_lowercase();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        if is_code && !path.contains(&format!("drafter/{name}")) && code.contains(name) {
            found.push(path);
        }
    }
}

#[test]
fn few_files_beside_its_own_name_a_drafter() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    naming(&src, &src, RecyclingSettings::NAME, &mut found);
    found.sort_unstable();
    assert_eq!(found, ["plan/drafter.rs", "plan/drafter/mixed.rs", "speculate/drafter/mod.rs"]);
}

#[test]
fn encodings_are_those_of_the_plan_format() {
    const SEAL: Seal = Seal { magic: b"YGGTEST\0", format: 1, most_payload_bytes: 1 << 20 };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    for (kind, json, bytes) in [
        (DrafterKind::None, r#""none""#, words(&[0])),
        (lookup(4, 2), r#"{"lookup":{"longest_match":4,"shortest_match":2}}"#, words(&[1, 4, 2])),
        (
            DrafterKind::Suffix(SuffixSettings::DEFAULT),
            r#"{"suffix":{"tokens_per_match":2,"counted":16,"remembered":32768}}"#,
            words(&[4, 2, 16, 32768]),
        ),
        (DrafterKind::Recycling, r#""recycling""#, words(&[5])),
        (swift(&[3]), r#"{"swift":{"skipped":[3]}}"#, words(&[7, 1, 0, 3])),
        (
            mixed(&[lookup(4, 2), substitute(3, None)]),
            concat!(
                r#"{"mixed":{"lookup":[4,2],"suffix":null,"retrieval":null,"prior":null,"ngram":null,"recycling":false,"#,
                r#""model":{"drafter":{"substitute":{"bits":3,"head_tokens":null}},"growths":6,"certain_percent":90}}}"#,
            ),
            // A byte says whether there is something.
            [
                &words(&[8])[..],
                &[1],
                &words(&[4, 2]),
                &[0, 0, 0, 0, 0, 1],
                &words(&[2, 3]),
                &[0],
                &words(&[6, 90]),
            ]
            .concat(),
        ),
    ] {
        assert_eq!(serde_json::to_string(&kind).unwrap(), json);
        let file = SEAL.encode(&kind).unwrap();
        assert_eq!(SEAL.open(&file).unwrap(), bytes, "{json}");
    }
}
