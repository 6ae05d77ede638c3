//! Metrics in the text format of Prometheus, checked as `promtool check metrics` does.

use std::collections::{BTreeMap, BTreeSet};

/// The families of a page, by name with their type.
///
/// # Panics
/// If the page breaks a rule of the format or of its names.
#[track_caller]
pub(crate) fn checked(page: &str) -> BTreeMap<String, String> {
    assert!(page.ends_with('\n'), "the last line has no end");
    let (mut helped, mut types) = (BTreeSet::new(), BTreeMap::new());
    let (mut family, mut series) = (String::new(), BTreeSet::new());
    // Cumulative counts of the histogram that is read, by its other labels.
    let mut buckets: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap_or_else(|| panic!("no text: {line}"));
            assert!(helped.insert(name.to_owned()) && !text.is_empty(), "{line}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b"_:2".contains(&b))
                    && (name.starts_with("yggc_") || name.starts_with("vllm:")),
                "{line}"
            );
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "a type without help: {line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "a second type: {line}");
            name.clone_into(&mut family);
        } else {
            assert!(!line.starts_with('#') || line.starts_with("# UNIT "), "{line}");
            if line.starts_with('#') {
                continue;
            }
            let (place, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(series.insert(place.to_owned()), "twice: {line}");
            let (name, labels) = place.split_once('{').unwrap_or((place, "}"));
            let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("an open brace: {line}"));
            let suffix =
                name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("not of {family}: {line}"));
            match types.get(&family).map(String::as_str) {
                Some("histogram") => {
                    assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}");
                    let (others, le) = match labels.split_once("le=\"") {
                        Some((others, le)) => (others.trim_end_matches(','), Some(le.trim_end_matches('"'))),
                        None => (labels, None),
                    };
                    let key = format!("{family}{{{others}}}");
                    let (last, count) = buckets.entry(key).or_insert((f64::NEG_INFINITY, 0.0));
                    if let Some(le) = le {
                        let le: f64 = le.parse().unwrap_or_else(|_| panic!("no bound: {line}"));
                        assert!(le > *last && value >= *count, "buckets do not grow: {line}");
                        (*last, *count) = (le, value);
                    }
                }
                _ => assert!(suffix.is_empty(), "{line}"),
            }
        }
    }
    assert!(buckets.values().all(|(last, _)| *last == f64::INFINITY), "a histogram does not end at +Inf");
    assert_eq!(types.keys().collect::<Vec<_>>(), helped.iter().collect::<Vec<_>>(), "help and types");
    types
}
