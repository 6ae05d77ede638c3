//! Constraints made large by a few bytes: deep and wide schemas, grammars and expressions, compiled and followed under
//! small stacks.
//!
//! The first byte is the kind, the next two how large, the rest how parts are chosen. Most sizes are beyond what may be
//! compiled: these must be refused by a limit that the error names, before anything recurses. What is accepted must
//! have few masks that take little stack.

use std::{fmt::Write, thread};

use yggc::{engine::Constraint, grammar::GrammarError};

use super::{size::size, tiny::loaded};

/// Stack of the thread that asks: compiling has another, and all else takes little.
const STACK_BYTES: usize = 256 << 10;
/// Tokens that an accepted answer is followed for.
const TOKENS: usize = 4;
/// How large the largest are, before parts are nested or multiplied.
const MOST: usize = 3_000;

/// Compiles what the bytes say; returns whether it was accepted.
///
/// # Panics
/// If a refusal names no limit and no fault, or an accepted answer has no next token.
pub fn check(input: &[u8]) -> bool {
    let [kind, low, high, choices @ ..] = input else { return false };
    let size = size([*low, *high], MOST);
    let constraint = Maker { choices, place: 0 }.constraint(*kind, size);
    let small = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || follow(&constraint));
    small.expect("a thread").join().expect("no panic")
}

fn follow(constraint: &Constraint) -> bool {
    let mut matcher = match loaded().matcher(constraint) {
        Ok(matcher) => matcher,
        Err(error) => {
            let source = std::error::Error::source(&error).and_then(|of| of.downcast_ref::<GrammarError>());
            match source.expect("an error of the grammar") {
                GrammarError::TooMuch { most, found, .. } => assert!(found > most, "{error}"),
                GrammarError::TooLong { most, found, .. } => assert!(found > most, "{error}"),
                // On a busy machine what is quick elsewhere may be late.
                GrammarError::TooSlow { most_s, .. } => assert!(*most_s > 0, "{error}"),
                GrammarError::Refused { fault, .. } | GrammarError::Stuck { fault, .. } => {
                    assert!(!fault.is_empty(), "{error}: {constraint:?}");
                }
                other => panic!("{other}: {constraint:?}"),
            }
            return false;
        }
    };
    for number in 0..TOKENS {
        let mut copy = matcher.clone();
        if matcher.is_complete() {
            break;
        }
        let Ok(mask) = copy.mask() else { break };
        let allowed = (0..300).filter(|token| mask.allows(*token)).cycle().nth(number);
        if matcher.accept(allowed.expect("an answer that may go on has a next token")).is_err() {
            break;
        }
    }
    true
}

/// Makes texts of parts that the bytes choose.
struct Maker<'c> {
    choices: &'c [u8],
    place: usize,
}

impl Maker<'_> {
    /// One of several, by the next byte.
    fn choice<'t>(&mut self, of: &[&'t str]) -> &'t str {
        let byte = self.choices.get(self.place % self.choices.len().max(1)).copied().unwrap_or_default();
        self.place += 1;
        of[usize::from(byte) % of.len()]
    }

    fn constraint(&mut self, kind: u8, size: usize) -> Constraint {
        match kind % 8 {
            0 => Constraint::JsonSchema(self.chain(size)),
            1 => Constraint::JsonSchema(self.nested(size % 160)),
            2 => Constraint::JsonSchema(self.wide(size)),
            3 => Constraint::Regex(self.expression(size)),
            4 => Constraint::Regex(self.nested_expression(size % 100)),
            5 => Constraint::Lark(self.rules(size)),
            6 => Constraint::Lark(self.terminals(size)),
            _ => Constraint::Lark(format!("start: %json {}\n", self.chain(size))),
        }
    }

    /// Definitions that refer from one to the next, the last to any.
    fn chain(&mut self, size: usize) -> String {
        let mut text = String::from("{\"$ref\": \"#/$defs/d0\", \"$defs\": {");
        for number in 0..size {
            let wraps = [
                "{\"$ref\": \"R\"}",
                "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"R\"}}, \"required\": [\"a\"]}",
                "{\"anyOf\": [{\"$ref\": \"R\"}, {\"type\": \"string\"}]}",
                "{\"allOf\": [{\"$ref\": \"R\"}, {\"type\": \"object\"}]}",
                "{\"type\": \"array\", \"items\": {\"$ref\": \"R\"}}",
                "{\"$ref\": \"R\", \"maxLength\": 9}",
            ];
            let wrap = self.choice(&wraps).replace('R', &format!("#/$defs/d{}", number + 1));
            write!(text, "\"d{number}\": {wrap}, ").expect("a text");
        }
        let last =
            self.choice(&["{\"type\": \"null\"}", "{\"$ref\": \"#\"}", "{\"$ref\": \"#/$defs/d0\"}", "true"]);
        write!(text, "\"d{size}\": {last}}}}}").expect("a text");
        text
    }

    fn nested(&mut self, levels: usize) -> String {
        let (mut before, mut behind) = (String::new(), String::new());
        for _ in 0..levels {
            let wraps = [
                "{\"type\": \"array\", \"items\": |}",
                "{\"type\": \"object\", \"properties\": {\"a\": |}}",
                "{\"additionalProperties\": |}",
                "{\"anyOf\": [|, {\"type\": \"null\"}]}",
                "{\"allOf\": [|]}",
                "{\"oneOf\": [|, {\"type\": \"null\"}]}",
                "{\"const\": [|]}",
            ];
            let (first, last) = self.choice(&wraps).split_once('|').expect("both sides");
            before.push_str(first);
            behind.insert_str(0, last);
        }
        format!("{before}{{\"type\": \"null\"}}{behind}")
    }

    fn wide(&mut self, size: usize) -> String {
        let list = |of: &dyn Fn(usize) -> String| (0..size).map(of).collect::<Vec<_>>().join(", ");
        let schema = self.choice(&[
            "{\"type\": \"integer\"}",
            "{\"type\": \"string\", \"format\": \"email\"}",
            "{\"pattern\": \"^a.*b$\", \"maxLength\": 9}",
            "true",
        ]);
        let named = list(&|number| format!("\"p{number}\": {schema}"));
        match self.choice(&["properties", "patterns", "alternatives", "all", "enum", "both", "items"]) {
            "properties" => format!("{{\"type\": \"object\", \"properties\": {{{named}}}}}"),
            "patterns" => format!("{{\"type\": \"object\", \"patternProperties\": {{{named}}}}}"),
            "alternatives" => format!(
                "{{\"{}\": [{}]}}",
                self.choice(&["anyOf", "oneOf"]),
                list(&|number| format!("{{\"const\": \"v{number}\"}}"))
            ),
            "all" => format!(
                "{{\"allOf\": [{}]}}",
                list(&|number| format!("{{\"properties\": {{\"p{number}\": {schema}}}}}"))
            ),
            "enum" => format!("{{\"enum\": [{}]}}", list(&|number| format!("\"v{number}\""))),
            "both" => format!(
                "{{\"type\": \"object\", \"properties\": {{{named}}}, \"anyOf\": [{}]}}",
                list(&|number| format!("{{\"required\": [\"p{number}\"]}}"))
            ),
            _ => format!("{{\"type\": \"array\", \"items\": {schema}, \"minItems\": {size}}}"),
        }
    }

    fn expression(&mut self, size: usize) -> String {
        const PARTS: [&str; 14] = [
            "a",
            "b?",
            "[a-c]*",
            "(ab|cd)+",
            ".{3}",
            "\\w",
            "|",
            "(.*a)",
            "x{1,4}",
            "(a{2}b){3}",
            "\\p{L}",
            "(?i)q",
            "[^a]",
            "(a|b|c?)*",
        ];
        (0..size).map(|_| self.choice(&PARTS)).collect()
    }

    fn nested_expression(&mut self, levels: usize) -> String {
        let mut text = String::from("a");
        for _ in 0..levels {
            let behind = self.choice(&["?", "*", "+", "{2}", "{0,3}", "b", "|c", ".*"]);
            text = format!("({text}){behind}");
        }
        text
    }

    fn rules(&mut self, size: usize) -> String {
        let mut text = String::from("start: r0\n");
        for number in 0..size {
            let next = number + 1;
            let body = self.choice(&[
                "r",
                "(\"a\" r)?",
                "\"a\"? r",
                "\"a\" r | \"b\"",
                "r r",
                "r \"c\"",
                "(r \"d\")*",
                "r+",
            ]);
            writeln!(text, "r{number}: {}", body.replace('r', &format!("r{next}"))).expect("a text");
        }
        writeln!(text, "r{size}: \"x\"").expect("a text");
        text
    }

    fn terminals(&mut self, size: usize) -> String {
        let mut text = String::from("start: T0\n");
        for number in 0..size {
            let next = number + 1;
            let body = self.choice(&["T", "\"a\" T", "T?", "\"a\" T | \"b\"", "/[ab]+/ T", "T \"c\""]);
            writeln!(text, "T{number}: {}", body.replace('T', &format!("T{next}"))).expect("a text");
        }
        writeln!(text, "T{size}: \"x\"").expect("a text");
        text
    }
}
