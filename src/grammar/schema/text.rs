//! Sets of strings, and the expressions of their JSON.

use std::collections::BTreeMap;

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Work that one question about an expression may take, in the parser's units: about a millisecond.
const FUEL: u64 = 10_000;
/// Questions about expressions that one schema may ask: about a second.
const MOST_QUESTIONS: usize = 1_000;
/// Deepest groups of a pattern: parsers recurse.
const MOST_NESTED: u32 = 64;
/// One character of a JSON string. Each character has one text only, so that a name is told from others by its text.
pub(super) const CHARACTER: &str = r#"([^"\\\x00-\x1f\x7f]|\\(["\\bfnrt]|u00(0[0-7bef]|1[0-9a-f]|7f)))"#;

/// An expression that a string has to match as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Of the string itself.
    plain: String,
    /// Of its JSON, without the quotes.
    pub(super) quoted: String,
}

/// Strings of some lengths that match all patterns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Strings {
    pub(super) least: u32,
    pub(super) most: Option<u32>,
    pub(super) patterns: Vec<Pattern>,
}

impl Strings {
    /// What is in both; `None` if the lengths exclude it.
    pub(super) fn both(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.least = both.least.max(other.least);
        both.most = both.most.into_iter().chain(other.most).min();
        both.patterns.extend(other.patterns.iter().filter(|new| !self.patterns.contains(new)).cloned());
        both.most.is_none_or(|most| both.least <= most).then_some(both)
    }

    /// What writes them, as an atom of Lark.
    pub(super) fn lark(&self) -> String {
        let Self { least, most, patterns } = self;
        let length = match (least, most) {
            (0, None) => format!("{CHARACTER}*"),
            (least, most) => {
                format!("{CHARACTER}{{{least},{}}}", most.map_or(String::new(), |most| most.to_string()))
            }
        };
        if patterns.is_empty() {
            return format!("/\"{length}\"/");
        }
        let mut all: Vec<String> = patterns.iter().map(|pattern| format!("/{}/", pattern.quoted)).collect();
        if *least > 0 || most.is_some() {
            all.push(format!("/{length}/"));
        }
        format!("(\"\\\"\" ({}) \"\\\"\")", all.join(" & "))
    }

    fn expression(&self) -> RegexAst {
        let Self { least, most, patterns } = self;
        let length = format!("(?s:.{{{least},{}}})", most.map_or(String::new(), |most| most.to_string()));
        let patterns = patterns.iter().map(|pattern| RegexAst::Regex(pattern.plain.clone()));
        RegexAst::And(patterns.chain([RegexAst::Regex(length)]).collect())
    }
}

/// Answers questions about strings, as far as work goes.
#[derive(Default)]
pub(super) struct Questions {
    asked: usize,
    matching: BTreeMap<String, Regex>,
}

impl Questions {
    /// Whether some string is in all `within`, matches none of `without`, and is none of `others`.
    pub(super) fn is_some(
        &mut self,
        within: &[&Strings],
        without: &[&Pattern],
        others: &[&str],
    ) -> Result<bool, String> {
        let without = without.iter().map(|pattern| RegexAst::Regex(pattern.plain.clone()));
        let without = without.chain(others.iter().map(|text| RegexAst::Literal((*text).to_owned())));
        let without = RegexAst::Not(Box::new(RegexAst::Or(without.collect())));
        let within = within.iter().map(|strings| strings.expression());
        let expression = RegexAst::And(within.chain([without]).collect());
        Ok(!self.compiled(&expression)?.always_empty())
    }

    /// Whether a text is in a set.
    pub(super) fn contain(&mut self, strings: &Strings, text: &str) -> Result<bool, String> {
        let length = text.chars().count();
        if length < strings.least as usize || strings.most.is_some_and(|most| length > most as usize) {
            return Ok(false);
        }
        for pattern in &strings.patterns {
            if !self.matches(pattern, text)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a text matches a pattern.
    pub(super) fn matches(&mut self, pattern: &Pattern, text: &str) -> Result<bool, String> {
        if !self.matching.contains_key(&pattern.plain) {
            let regex = self.compiled(&RegexAst::Regex(pattern.plain.clone()))?;
            self.matching.insert(pattern.plain.clone(), regex);
        }
        Ok(self.matching.get_mut(&pattern.plain).expect("it is there").is_match(text))
    }

    fn compiled(&mut self, expression: &RegexAst) -> Result<Regex, String> {
        self.asked += 1;
        if self.asked > MOST_QUESTIONS {
            return Err(format!("patterns that take more than {MOST_QUESTIONS} comparisons"));
        }
        let mut builder = RegexBuilder::new();
        let root = builder.mk(expression).map_err(|fault| format!("a pattern: {fault}"))?;
        let too_large = |_| {
            "`pattern`, `format` or names of `patternProperties` whose expressions are too large to compare"
                .to_owned()
        };
        builder.to_regex_limited(root, FUEL).map_err(too_large)
    }
}

impl Pattern {
    /// Of a `pattern`, which looks for a place in the string.
    pub(super) fn search(source: &str) -> Result<Self, String> {
        Self::of(source, &translated(source).map_err(|what| format!("pattern {source:?}: {what}"))?)
    }

    /// Of an expression of ours.
    pub(super) fn whole(source: &str) -> Self {
        Self::of(source, &format!("^(?:{source})$")).expect("expressions of formats are well formed")
    }

    fn of(source: &str, expression: &str) -> Result<Self, String> {
        let fault = |fault: String| format!("pattern {source:?}: {fault}");
        let parsed = regex_syntax::ParserBuilder::new().nest_limit(MOST_NESTED).build().parse(expression);
        // The last line of a fault says what it is.
        let parsed =
            parsed.map_err(|said| fault(said.to_string().lines().last().unwrap_or_default().to_owned()))?;
        let written = |quoted| {
            let mut out = String::new();
            write_search(&parsed, quoted, &mut out).map(|()| out).map_err(fault)
        };
        Ok(Self { plain: written(false)?, quoted: written(true)? })
    }
}

/// A pattern of ECMA 262 in the syntax of `regex_syntax`, as far as both mean the same.
fn translated(source: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = source.chars().peekable();
    let mut in_class = false;
    while let Some(next) = rest.next() {
        match next {
            '\\' => {
                let escaped = rest.next().ok_or("it ends in a backslash")?;
                escape(escaped, &mut rest, &mut out, in_class)?;
            }
            '[' if in_class => out.push_str("\\["),
            '&' | '~' if in_class => out.extend(['\\', next]),
            '-' if in_class && out.ends_with('-') => out.push_str("\\-"),
            '[' => {
                in_class = true;
                out.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                if rest.peek() == Some(&']') {
                    return Err("an empty class".to_owned());
                }
            }
            ']' => {
                in_class = false;
                out.push_str(if out.is_empty() { "\\]" } else { "]" });
            }
            '.' if !in_class => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            '(' if !in_class && rest.next_if_eq(&'?').is_some() => {
                let kind: String = rest.clone().take(2).collect();
                let known = kind.starts_with(':')
                    || (kind.starts_with('<') && !kind.starts_with("<=") && !kind.starts_with("<!"));
                if !known {
                    return Err(format!("`(?{kind}`: look-around and flags are not supported"));
                }
                out.push_str("(?");
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// What follows a backslash.
fn escape(
    escaped: char,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    out: &mut String,
    in_class: bool,
) -> Result<(), String> {
    let blanks =
        r"\t\n\x0B\x0C\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
    match escaped {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str(&format!("[{blanks}]")),
        'S' => out.push_str(&format!("[^{blanks}]")),
        't' | 'n' | 'r' | 'f' | 'v' => out.extend(['\\', escaped]),
        'b' if in_class => out.push_str("\\x08"),
        'p' | 'P' if rest.peek() == Some(&'{') => out.extend(['\\', escaped]),
        '0' => out.push_str("\\x00"),
        'c' => {
            let letter = rest.next().filter(char::is_ascii_alphabetic).ok_or("`\\c` without a letter")?;
            out.push_str(&format!("\\x{:02X}", u32::from(letter) % 32));
        }
        'x' => out.push_str(&format!("\\x{{{:X}}}", hex(rest, 2)?)),
        'u' if rest.peek() == Some(&'{') => out.push_str("\\u"),
        'u' => {
            let mut value = hex(rest, 4)?;
            if (0xd800..0xdc00).contains(&value) {
                let following: String = rest.by_ref().take(6).collect();
                let low = following.strip_prefix("\\u").and_then(|low| u32::from_str_radix(low, 16).ok());
                let low =
                    low.filter(|low| (0xdc00..0xe000).contains(low)).ok_or("half of a surrogate pair")?;
                value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
            }
            out.push_str(&format!("\\x{{{value:X}}}"));
        }
        mark if mark.is_ascii_punctuation() && mark != '_' => {
            out.push_str(&regex_syntax::escape(&mark.to_string()))
        }
        other => return Err(format!("`\\{other}` is not supported")),
    }
    Ok(())
}

fn hex(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, digits: usize) -> Result<u32, String> {
    let text: String = rest.by_ref().take(digits).collect();
    let value = u32::from_str_radix(&text, 16).ok().filter(|_| text.len() == digits);
    value.ok_or_else(|| format!("expected {digits} hexadecimal digits, found {text:?}"))
}

/// An expression that matches whole strings for one that looks for a place in them: what its `^` and `$` do not hold is
/// any text.
fn write_search(hir: &Hir, quoted: bool, out: &mut String) -> Result<(), String> {
    let any = if quoted { format!("{CHARACTER}*") } else { "(?s:.)*".to_owned() };
    match hir.kind() {
        HirKind::Capture(capture) => write_search(&capture.sub, quoted, out),
        HirKind::Alternation(options) => {
            for (number, option) in options.iter().enumerate() {
                out.push_str(if number == 0 { "(?:" } else { "|" });
                write_search(option, quoted, out)?;
            }
            out.push(')');
            Ok(())
        }
        HirKind::Concat(parts) => write_anchored(parts, quoted, &any, out),
        _ => write_anchored(std::slice::from_ref(hir), quoted, &any, out),
    }
}

fn write_anchored(parts: &[Hir], quoted: bool, any: &str, out: &mut String) -> Result<(), String> {
    let is = |part: &Hir, look: Look| matches!(part.kind(), HirKind::Look(found) if *found == look);
    let begins = parts.iter().take_while(|part| is(part, Look::Start)).count();
    let ends = parts[begins..].iter().rev().take_while(|part| is(part, Look::End)).count();
    let inner = &parts[begins..parts.len() - ends];
    // A group with anchors of its own: `^(a|b$)`, `(^a|b)$`, `^(a$)`.
    if let [only] = inner
        && matches!(only.kind(), HirKind::Capture(_) | HirKind::Alternation(_))
        && !only.properties().look_set().is_empty()
    {
        let start = if begins > 0 { Hir::look(Look::Start) } else { Hir::empty() };
        let end = if ends > 0 { Hir::look(Look::End) } else { Hir::empty() };
        return match only.kind() {
            HirKind::Capture(capture) => {
                write_search(&Hir::concat(vec![start, (*capture.sub).clone(), end]), quoted, out)
            }
            HirKind::Alternation(options) => {
                for (number, option) in options.iter().enumerate() {
                    out.push_str(if number == 0 { "(?:" } else { "|" });
                    let option = Hir::concat(vec![start.clone(), option.clone(), end.clone()]);
                    write_search(&option, quoted, out)?;
                }
                out.push(')');
                Ok(())
            }
            _ => unreachable!("it is one of these"),
        };
    }
    if begins == 0 {
        out.push_str(any);
    }
    for part in inner {
        write(part, quoted, out)?;
    }
    if ends == 0 {
        out.push_str(any);
    }
    Ok(())
}

fn write(hir: &Hir, quoted: bool, out: &mut String) -> Result<(), String> {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).map_err(|_| "bytes that are no text")?;
            text.chars().for_each(|next| write_class(&[(next, next)], quoted, out));
        }
        HirKind::Class(Class::Unicode(class)) => {
            let ranges: Vec<(char, char)> =
                class.ranges().iter().map(|range| (range.start(), range.end())).collect();
            write_class(&ranges, quoted, out);
        }
        HirKind::Class(Class::Bytes(_)) => return Err("bytes that are no text".to_owned()),
        HirKind::Look(_) => {
            return Err("`^` and `$` are supported at its ends only, and `\\b` nowhere".to_owned());
        }
        HirKind::Repetition(repetition) => {
            out.push_str("(?:");
            write(&repetition.sub, quoted, out)?;
            let most = repetition.max.map_or(String::new(), |most| most.to_string());
            out.push_str(&format!("){{{},{most}}}", repetition.min));
        }
        HirKind::Capture(capture) => write(&capture.sub, quoted, out)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write(part, quoted, out)?;
            }
        }
        HirKind::Alternation(options) => {
            for (number, option) in options.iter().enumerate() {
                out.push_str(if number == 0 { "(?:" } else { "|" });
                write(option, quoted, out)?;
            }
            out.push(')');
        }
    }
    Ok(())
}

/// One character of some ranges; `quoted` as JSON writes it.
fn write_class(ranges: &[(char, char)], quoted: bool, out: &mut String) {
    let must_escape = |code: u32| code < 0x20 || matches!(code, 0x22 | 0x5c | 0x7f);
    let mut class = String::new();
    let mut escapes = Vec::new();
    let mut put = |from: u32, to: u32| class.push_str(&format!("\\x{{{from:X}}}-\\x{{{to:X}}}"));
    for (from, to) in ranges {
        let (mut from, to) = (u32::from(*from), u32::from(*to));
        for code in (from..=to.min(0x7f)).filter(|code| quoted && must_escape(*code)) {
            if from < code {
                put(from, code - 1);
            }
            from = code + 1;
            let text = char::from_u32(code).map(String::from).unwrap_or_default();
            let text = if code == 0x7f {
                "\"\\u007f\"".to_owned()
            } else {
                serde_json::to_string(&text).expect("a text")
            };
            escapes.push(regex_syntax::escape(&text[1..text.len() - 1]));
        }
        if from <= to {
            put(from, to);
        }
    }
    match (class.is_empty(), escapes.is_empty()) {
        (true, true) => out.push_str("[^\\x{0}-\\x{10FFFF}]"),
        (false, true) => out.push_str(&format!("[{class}]")),
        (true, false) => out.push_str(&format!("(?:{})", escapes.join("|"))),
        (false, false) => out.push_str(&format!("(?:[{class}]|{})", escapes.join("|"))),
    }
}

/// A string as JSON in our form.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON").replace('\u{7f}', "\\u007f")
}
