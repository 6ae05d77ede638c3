//! What a new field of a plan touches: every file that names all fields of its struct, to make one or to take one
//! apart.

use std::collections::BTreeSet;

use super::{OUTSIDE, ROOMS, Source, code_of, sources, tokens};

/// Most files that a field may touch, with the one that holds the number of the format.
const MOST: usize = 6;
const FORMAT: &str = "src/plan/file.rs";

/// The files, tests aside, of which a new field of the struct needs a line: its definition, and the places that say all
/// fields.
fn touched_by_a_field<'s>(sources: &'s [Source], name: &str) -> BTreeSet<&'s str> {
    let is_test = |path: &str| path.contains("/tests") || path.starts_with("tests/");
    let knows_plans = |path: &str| {
        let knows = |(room, imported): &(&str, &[&str])| {
            let may = *room == "plan" || imported.contains(&"plan") || OUTSIDE.contains(room);
            may && path.starts_with(&format!("src/{room}/"))
        };
        ROOMS.iter().any(knows)
    };
    let of_code = sources.iter().filter(|source| !is_test(&source.path) && knows_plans(&source.path));
    let touched = of_code.filter(|source| {
        let code = code_of(&source.text);
        let all = tokens(&code);
        let end = all.windows(3).position(|window| window == ["mod", "tests", "{"]).unwrap_or(all.len());
        says_all_fields(&all[..end], name)
    });
    touched.map(|source| source.path.as_str()).collect()
}

/// Whether the struct is defined here, or `name { .. }` says all of its fields: without a `..` that stands for the
/// others.
fn says_all_fields(tokens: &[&str], name: &str) -> bool {
    (1..tokens.len().saturating_sub(1)).any(|at| {
        let is_body =
            matches!(&tokens[..at], [.., "impl" | "for" | ">"] | [.., ">", "&"] | [.., ">", "&", "mut"]);
        tokens[at] == name && tokens[at + 1] == "{" && !is_body && !has_rest(&tokens[at + 1..])
    })
}

/// Whether a group in braces has a `..` of its own, before which a comma or the brace stands.
fn has_rest(group: &[&str]) -> bool {
    let mut depth = 0;
    for (at, token) in group.iter().enumerate() {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            "." if depth == 1 && group.get(at + 1) == Some(&".") && matches!(group[at - 1], "," | "{") => {
                return true;
            }
            _ => {}
        }
        if depth == 0 {
            return false;
        }
    }
    false
}

#[test]
fn a_field_of_a_plan_or_of_a_range_touches_six_files_at_most() {
    let sources = sources();
    for name in ["Plan", "Band", "SubPlan", "ContextRange"] {
        let mut touched = touched_by_a_field(&sources, name);
        assert!(
            touched.iter().any(|path| path.starts_with("src/plan/")),
            "{name} is not defined in src/plan"
        );
        touched.insert(FORMAT);
        assert!(
            touched.len() <= MOST,
            "a field of `{name}` touches {} files: expected {MOST} at most, found {touched:?}",
            touched.len()
        );
    }
}

#[test]
fn places_that_say_all_fields_are_told_apart() {
    let says = |text: &str| says_all_fields(&tokens(&code_of(text)), "Range");
    for text in [
        "pub struct Range { from: u32 }",
        "let made = Range { from: 0, to: a[0..3].len() };",
        "let Range { from, to } = range;",
        "f(Range { from: Other { to, ..other } })",
    ] {
        assert!(says(text), "{text}");
    }
    for text in [
        "let made = Range { from: 0, ..range };",
        "let Range { from, .. } = range;",
        "let Range { .. } = range;",
        "impl Range { fn from() {} }",
        "impl Display for Range { }",
        "fn made() -> Range { range }",
        "fn first(&self) -> &Range { &self.ranges[0] }",
        "// Range { from, to }",
        "OtherRange { from, to }",
    ] {
        assert!(!says(text), "{text}");
    }
}
