//! Reads Rust source as far as the room map needs it: code without comments and literals, words, and paths.

use std::collections::BTreeSet;

/// The code alone: comments and literals replaced by blanks, so that nothing said in them counts.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' | 'b' | 'c' if !code.ends_with(is_word) => prefixed_string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped > 0 {
            code.push(' ');
            rest = &rest[skipped..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of the block comment at the start of `text`; they nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of the string literal at the start of `text`.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a literal like `r#"..."#` or `b"..."` at the start of `text`, 0 if there is none.
fn prefixed_string(text: &str) -> usize {
    let letters = text.len() - text.trim_start_matches(['r', 'b', 'c']).len();
    let after = &text[letters..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    if letters > 2 || !after[hashes..].starts_with('"') {
        return 0;
    }
    if !text[..letters].contains('r') {
        return if hashes == 0 { letters + string(after) } else { 0 };
    }
    let (body, end) = (letters + hashes + 1, format!("\"{}", "#".repeat(hashes)));
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

/// Length of the character literal at the start of `text`, 0 if it is a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(text.len(), |at| at + 4),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

/// Words, `::`, and single other characters.
pub(crate) fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// What is named right below `root`: `a` and `b` for `root::{a::x, b}`, `a` for `root::a::x`, `as` for a renamed root.
pub(crate) fn children_of<'a>(root: &'static str, tokens: &[&'a str]) -> impl Iterator<Item = &'a str> {
    let mut children = Vec::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at] == root) {
        match tokens[at + 1..] {
            ["::", "{", ref group @ ..] => {
                let (mut depth, mut at_start) = (1, true);
                for token in group {
                    match *token {
                        "{" => depth += 1,
                        "}" if depth == 1 => break,
                        "}" => depth -= 1,
                        "," if depth == 1 => at_start = true,
                        name if at_start => {
                            children.push(name);
                            at_start = false;
                        }
                        _ => {}
                    }
                }
            }
            ["::", name, ..] => children.push(name),
            ["as", ..] => children.push("as"),
            _ => {}
        }
    }
    children.into_iter()
}

/// All words of the conditions of `#[cfg(...)]`, `#[cfg_attr(...)]` and `cfg!(...)`; of `cfg_attr` also what they add.
pub(crate) fn conditions<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut words = Vec::new();
    for at in (0..tokens.len()).filter(|&at| matches!(tokens[at], "cfg" | "cfg_attr")) {
        let after = &tokens[at + 1..];
        let after = after.strip_prefix(&["!"]).unwrap_or(after);
        let mut depth = 0;
        for token in after {
            match *token {
                "(" => depth += 1,
                ")" => depth -= 1,
                word if depth > 0 => words.push(word),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    words
}

/// The names right below a path such as `crate::plan`, in every group that leads to it: `a` and `b` of
/// `crate::{ir, plan::{a::x, b}}`.
pub(crate) fn names_below(path: &[&str], tokens: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let starts = tokens[at] == path[0] && (at == 0 || tokens[at - 1] != "::");
        at += 1;
        if starts {
            let mut prefix = vec![path[0]];
            at = branches(&mut prefix, path, &tokens[at..], &mut names) + at;
        }
    }
    names
}

/// Follows a path, or the tree of a `use`, on from `prefix`; returns how many tokens it has.
fn branches<'a>(
    prefix: &mut Vec<&'a str>,
    path: &[&str],
    tokens: &[&'a str],
    names: &mut Vec<String>,
) -> usize {
    match tokens {
        ["::", "{", group @ ..] => {
            let mut at = 0;
            while at < group.len() && group[at] != "}" {
                if group[at] == "," {
                    at += 1;
                    continue;
                }
                let depth = prefix.len();
                if prefix[..] == *path {
                    names.push(group[at].to_owned());
                }
                prefix.push(group[at]);
                at += 1 + branches(prefix, path, &group[at + 1..], names);
                prefix.truncate(depth);
            }
            at + 3
        }
        ["::", name, rest @ ..] => {
            if prefix[..] == *path {
                names.push((*name).to_owned());
            }
            prefix.push(name);
            2 + branches(prefix, path, rest, names)
        }
        // Not the new name.
        ["as", _, ..] => 2,
        _ => 0,
    }
}

/// Words that stand where a crate's name would: first in a path, or alone in a `use`.
pub(crate) fn named_crates<'a>(tokens: &[&'a str]) -> BTreeSet<&'a str> {
    let back = |at: usize, by: usize| at.checked_sub(by).map_or("", |before| tokens[before]);
    let continues = |at: usize| back(at, 1) == "::" && back(at, 2) != "use" && back(at, 2).ends_with(is_word);
    let is_path = |at: usize| tokens.get(at + 1) == Some(&"::");
    let is_whole_use = |at: usize| matches!(back(at, 1), "use" | "crate");
    (0..tokens.len())
        .filter(|&at| !continues(at) && (is_path(at) || is_whole_use(at)))
        .map(|at| tokens[at])
        .collect()
}
