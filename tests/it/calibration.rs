//! The calibration prompts: well formed, of all kinds and lengths, short enough to plan with.

use std::{collections::BTreeMap, fs, path::Path};

/// Words of the longest prompts that are short, and of the longest that are of middle length.
const SHORT: usize = 40;
const MIDDLE: usize = 99;

#[test]
fn the_prompts_are_well_formed_and_mixed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/calibration/prompts.jsonl");
    let lines = fs::read_to_string(path).expect("the prompts are there");
    let mut of_kind: BTreeMap<String, usize> = BTreeMap::new();
    let (mut texts, mut lengths) = (Vec::new(), Vec::new());
    for line in lines.lines() {
        let prompt: BTreeMap<String, String> = serde_json::from_str(line).expect(line);
        assert_eq!(prompt.keys().map(String::as_str).collect::<Vec<_>>(), ["id", "kind", "text"], "{line}");
        let count = of_kind.entry(prompt["kind"].clone()).or_default();
        *count += 1;
        assert_eq!(prompt["id"], format!("{}-{count:02}", prompt["kind"]), "ids count up within a kind");
        let words = prompt["text"].split_whitespace().count();
        // Several texts at once are as long as requests with documents are.
        let lawful = if prompt["kind"] == "documents" { 450..=800 } else { 3..=300 };
        assert!(lawful.contains(&words), "{}: {words} words", prompt["id"]);
        lengths.push(words);
        texts.push(prompt["text"].clone());
    }
    let kinds: Vec<&str> = of_kind.keys().map(String::as_str).collect();
    let expected = [
        "chat",
        "code",
        "documents",
        "extraction",
        "maths",
        "qa",
        "rag",
        "reasoning",
        "rewrite",
        "roleplay",
        "steps",
        "summary",
        "table",
        "translation",
        "writing",
    ];
    assert_eq!(kinds, expected);
    assert!(of_kind.values().all(|&count| count >= 12), "{of_kind:?}");

    let all = lengths.len();
    let share = |from: usize, to: usize| {
        lengths.iter().filter(|words| (from..=to).contains(*words)).count() as f64 / all as f64
    };
    for (from, to) in [(0, SHORT), (SHORT + 1, MIDDLE), (MIDDLE + 1, usize::MAX)] {
        assert!(share(from, to) > 0.25, "{from} to {to} words: {} of all", share(from, to));
    }
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), all, "a prompt comes twice");
}
