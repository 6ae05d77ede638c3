//! The calibration prompts: well formed, of all kinds, short enough to plan with.

use std::{collections::BTreeMap, fs, path::Path};

#[test]
fn the_prompts_are_well_formed_and_mixed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/calibration/prompts.jsonl");
    let lines = fs::read_to_string(path).expect("the prompts are there");
    let mut of_kind: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines.lines() {
        let prompt: BTreeMap<String, String> = serde_json::from_str(line).expect(line);
        assert_eq!(prompt.keys().map(String::as_str).collect::<Vec<_>>(), ["id", "kind", "text"], "{line}");
        let count = of_kind.entry(prompt["kind"].clone()).or_default();
        *count += 1;
        assert_eq!(prompt["id"], format!("{}-{count:02}", prompt["kind"]), "ids count up within a kind");
        let words = prompt["text"].split_whitespace().count();
        assert!((3..=250).contains(&words), "{}: {words} words", prompt["id"]);
    }
    let kinds: Vec<&str> = of_kind.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["chat", "code", "extraction", "maths", "qa", "rewrite", "summary", "translation"]);
    assert!(of_kind.values().all(|&count| count >= 5), "{of_kind:?}");
}
