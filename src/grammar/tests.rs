//! Masks, forced tokens and ends over a small byte-level vocabulary; what is refused.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{Constraint, GrammarError, GrammarTokens, Matcher};
use crate::text::{Special, TokenKind, Tokenizer, Vocabulary};

/// Every printable ASCII character, space and newline, some merges, one control token; and unused rows of the head
/// after them.
fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
    tokens.extend(["Ġ", "Ċ", "{\"", "na", "nam", "name", "\":", "Ġ\"", "\":Ġ", "<|end|>"].map(String::from));
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    *kinds.last_mut().unwrap() = TokenKind::Control;
    let merges = ["{ \"", "n a", "na m", "nam e", "\" :", "Ġ \"", "\": Ġ"].map(String::from).into();
    let vocabulary = Vocabulary {
        model: "gpt2".into(),
        pre_tokenizer: "smollm".into(),
        merges,
        tokens,
        kinds,
        ..Vocabulary::default()
    };
    Arc::new(Tokenizer::from_vocabulary(vocabulary).unwrap())
}

/// Rows of the head, some of them without a token.
pub(crate) const ROWS: usize = 120;

/// The tokenizer, and its tokens for grammars.
pub(crate) fn tokens() -> (Arc<Tokenizer>, GrammarTokens) {
    let tokenizer = tokenizer();
    let grammar = GrammarTokens::new(Arc::clone(&tokenizer), ROWS, tokenizer.end_ids()).unwrap();
    (tokenizer, grammar)
}

fn end(tokenizer: &Tokenizer) -> u32 {
    tokenizer.encode("<|end|>", Special::Parse)[0]
}

/// The texts of the allowed tokens.
fn allowed(tokenizer: &Tokenizer, matcher: &mut Matcher) -> Vec<String> {
    let mask = matcher.mask().unwrap().clone();
    let ids = (0..ROWS as u32).filter(|id| mask.allows(*id));
    let texts: Vec<String> = ids.map(|id| tokenizer.spelling(id)).collect();
    assert_eq!(texts.len(), mask.count());
    texts
}

pub(crate) fn accept(tokenizer: &Tokenizer, matcher: &mut Matcher, text: &str) {
    for id in tokenizer.encode_continuation(text) {
        assert!(matcher.mask().unwrap().allows(id), "{text}: {}", tokenizer.spelling(id));
        matcher.accept(id).unwrap();
    }
}

#[test]
fn a_mask_allows_what_the_grammar_can_take_and_the_end_where_it_may_end() {
    let (tokenizer, grammar) = tokens();
    let mut matcher = grammar.matcher(&Constraint::Regex("na+|b[01]{2}".to_owned())).unwrap();
    assert_eq!(allowed(&tokenizer, &mut matcher), ["b", "n", "na"]);
    accept(&tokenizer, &mut matcher, "na");
    assert_eq!(allowed(&tokenizer, &mut matcher), ["a", "<|end|>"]);
    assert!(matcher.may_end().unwrap() && !matcher.is_complete());
    matcher.accept(end(&tokenizer)).unwrap();
    assert!(matcher.is_complete());
    let mut row = [1.0_f32; ROWS];
    let mut other = grammar.matcher(&Constraint::Regex("b".to_owned())).unwrap();
    other.mask().unwrap().apply(&mut row);
    let kept: Vec<usize> = (0..ROWS).filter(|id| row[*id] == 1.0).collect();
    assert_eq!(kept, [tokenizer.encode_continuation("b")[0] as usize]);
    assert!(row.iter().filter(|logit| **logit != 1.0).all(|logit| *logit == f32::NEG_INFINITY));
}

#[test]
fn an_answer_that_nothing_can_follow_is_complete() {
    let (tokenizer, grammar) = tokens();
    let mut matcher = grammar.matcher(&Constraint::Regex("b[01]{2}".to_owned())).unwrap();
    accept(&tokenizer, &mut matcher, "b0");
    assert!(!matcher.may_end().unwrap());
    accept(&tokenizer, &mut matcher, "1");
    assert!(matcher.is_complete() && matcher.may_end().unwrap());
    matcher.rollback(2).unwrap();
    assert_eq!(matcher.tokens(), 1);
    assert_eq!(allowed(&tokenizer, &mut matcher), ["0", "1"]);
}

#[test]
fn what_can_be_written_in_one_way_only_is_forced_token_by_token() {
    let (tokenizer, grammar) = tokens();
    let schema = r#"{"type": "object", "properties": {"name": {"enum": ["b0", "b1"]}}, "required": ["name"], "additionalProperties": false}"#;
    let mut matcher = grammar.matcher(&Constraint::JsonSchema(schema.to_owned())).unwrap();
    let mut text = String::new();
    let mut forced = Vec::new();
    loop {
        forced.clear();
        matcher.forced(&mut forced);
        let Some(first) = forced.first() else { break };
        assert_eq!(allowed(&tokenizer, &mut matcher), [tokenizer.spelling(*first)], "the first is certain");
        matcher.accept(*first).unwrap();
        text.push_str(&tokenizer.spelling(*first));
    }
    assert!(text.starts_with(r#"{"name": "#), "{text}");
    let rest = r#"{"name": "b1"}"#.strip_prefix(&text).unwrap();
    accept(&tokenizer, &mut matcher, rest);
    assert!(matcher.is_complete());
}

#[test]
fn masks_follow_from_the_accepted_tokens_alone() {
    let (tokenizer, grammar) = tokens();
    let schema = r#"{"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 4}}, "required": ["n", "s"]}"#;
    let constraint = Constraint::JsonSchema(schema.to_owned());
    let answer = tokenizer.encode_continuation(r#"{"n": -120, "s": "name"}"#);
    let mut straight = grammar.matcher(&constraint).unwrap();
    let mut wandering = grammar.matcher(&constraint).unwrap();
    for (place, token) in answer.iter().enumerate() {
        let expected = allowed(&tokenizer, &mut straight);
        // Other branches are looked into and left.
        let mask = wandering.mask().unwrap().clone();
        for other in (0..ROWS as u32).filter(|id| mask.allows(*id)).take(4) {
            wandering.accept(other).unwrap();
            if !wandering.is_complete() {
                wandering.mask().unwrap();
            }
            wandering.rollback(1).unwrap();
        }
        assert_eq!(allowed(&tokenizer, &mut wandering), expected, "after {place} tokens");
        assert_eq!(wandering.fitting(&answer[place..]), answer.len() - place);
        straight.accept(*token).unwrap();
        wandering.accept(*token).unwrap();
    }
    assert!(straight.is_complete() && wandering.is_complete());
}

#[test]
fn constraints_that_cannot_be_kept_are_refused_by_name() {
    let (_, grammar) = tokens();
    let schema = |text: &str| Constraint::JsonSchema(text.to_owned());
    for (constraint, parts) in [
        (schema("{"), ["JSON schema", "expected JSON"]),
        (schema("3"), ["JSON schema", "an object or true"]),
        (schema("false"), ["JSON schema", "an object or true"]),
        (schema(r#"{"type": "strang"}"#), ["JSON schema", "strang"]),
        (
            schema(r#"{"type": "object", "unevaluatedProperties": false}"#),
            ["JSON schema", "unevaluatedProperties"],
        ),
        (schema(r#"{"not": {"type": "string"}}"#), ["JSON schema", "not"]),
        (schema(r#"{"$ref": "https://example.org/other"}"#), ["JSON schema", "ref"]),
        (schema(r##"{"$ref": "#/$defs/none"}"##), ["JSON schema", "none"]),
        (schema(r#"{"x-guidance": {"lenient": true}}"#), ["JSON schema", "x-guidance"]),
        (schema(r#"{"type": "integer", "minimum": 3, "maximum": 2}"#), ["JSON schema", "minimum"]),
        (Constraint::Regex("(".to_owned()), ["regular expression", "("]),
        (Constraint::Regex("(?=a)b".to_owned()), ["regular expression", "look"]),
        (Constraint::Regex("(".repeat(100)), ["regular expression", "at most 64 levels of brackets"]),
        (Constraint::Lark("start: nobody".to_owned()), ["grammar", "nobody"]),
        (Constraint::Lark(" ".repeat(2 << 20)), ["grammar", "at most 1048576 bytes"]),
    ] {
        let shown = format!("{constraint:?}").chars().take(80).collect::<String>();
        let error = grammar.matcher(&constraint).expect_err(&shown);
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{shown}: {message}");
    }
}

#[test]
fn a_text_that_the_vocabulary_cannot_write_is_an_error() {
    let (tokenizer, grammar) = tokens();
    let mut matcher = match grammar.matcher(&Constraint::Regex("b(é|ü)".to_owned())) {
        Ok(matcher) => matcher,
        Err(error) => {
            assert!(matches!(error, GrammarError::Stuck { tokens: 0, .. }), "{error}");
            return;
        }
    };
    let id = tokenizer.encode_continuation("b")[0];
    let stuck = matcher.accept(id).and_then(|()| matcher.mask().map(|_| ())).unwrap_err();
    assert!(matches!(stuck, GrammarError::Stuck { .. }) && stuck.to_string().contains("simplify"), "{stuck}");
    assert!(matcher.mask().is_err() && !matcher.is_complete());
}

/// A text of `n` after `b`, which `count` rules read at once, each from every place of the text on.
fn read_often(count: usize) -> Constraint {
    let rules: Vec<String> =
        (0..count).map(|number| format!("r{number}: \"n\" r{number} | \"n\"\n")).collect();
    let names: Vec<String> = (0..count).map(|number| format!("r{number}")).collect();
    Constraint::Lark(format!("start: \"b\" text\ntext: {}\n{}", names.join(" | "), rules.concat()))
}

#[test]
fn a_grammar_that_takes_long_becomes_slow_without_another_mask_and_is_stuck_beyond_its_limits() {
    let (tokenizer, grammar) = tokens();
    let id = |text: &str| tokenizer.encode_continuation(text)[0];
    let mut matcher = grammar.matcher(&read_often(250)).unwrap();
    assert_eq!(allowed(&tokenizer, &mut matcher), ["b"]);
    matcher.accept(id("b")).unwrap();
    assert_eq!(allowed(&tokenizer, &mut matcher), ["n"]);
    assert!(!matcher.is_slow());
    let mut slow_behind = None;
    let stuck = loop {
        if let Err(stuck) = matcher.accept(id("n")) {
            break stuck;
        }
        assert!(matcher.tokens() < 200, "some place has too many items");
        assert_eq!(allowed(&tokenizer, &mut matcher), ["n", "<|end|>"]);
        if matcher.is_slow() {
            slow_behind.get_or_insert(matcher.tokens());
        }
    };
    let tokens = matcher.tokens();
    assert!(slow_behind.is_some_and(|slow| slow > 2 && 2 * slow < tokens), "{slow_behind:?} of {tokens}");
    assert!(matches!(stuck, GrammarError::Stuck { tokens: at, .. } if at == tokens), "{stuck}");
    assert!(["items", "simplify"].iter().all(|part| stuck.to_string().contains(part)), "{stuck}");
    assert!(matcher.mask().is_err() && matcher.fitting(&[id("n")]) == 0 && !matcher.is_complete());
    matcher.rollback(2).unwrap();
    assert_eq!((matcher.tokens(), matcher.is_slow()), (tokens - 2, true));
    assert_eq!(allowed(&tokenizer, &mut matcher), ["n", "<|end|>"]);
    matcher.accept(end(&tokenizer)).unwrap();
    assert!(matcher.is_complete());
}

#[test]
fn a_text_that_leads_nowhere_can_be_taken_back() {
    let (tokenizer, grammar) = tokens();
    let id = |text: &str| tokenizer.encode_continuation(text)[0];
    let mut matcher = grammar.matcher(&Constraint::Regex("a(x|(é|ü))|nn".to_owned())).unwrap();
    matcher.accept(id("n")).unwrap();
    let expected = allowed(&tokenizer, &mut matcher);
    matcher.rollback(1).unwrap();
    matcher.accept(id("n")).unwrap();
    matcher.accept(id("n")).unwrap();
    assert!(matcher.is_complete());
    // What may not follow leaves the answer stuck until it is taken back.
    matcher.rollback(1).unwrap();
    matcher.accept(id("b")).unwrap_err();
    assert!(matcher.mask().is_err());
    matcher.rollback(0).unwrap();
    assert_eq!((allowed(&tokenizer, &mut matcher), matcher.is_slow()), (expected, false));
}

/// Text that is forced without end: the parser would follow it for ever.
fn endless() -> Constraint {
    Constraint::Lark("start: /a+/ /a+/".to_owned())
}

#[test]
fn work_that_never_ends_is_given_up() {
    let (_, grammar) = tokens();
    let error = grammar.matcher(&endless()).unwrap_err();
    assert!(matches!(error, GrammarError::Stuck { tokens: 0, .. }), "{error}");
    assert!(
        ["that takes longer than", "simplify"].iter().all(|part| error.to_string().contains(part)),
        "{error}"
    );
    // Others are compiled as before.
    grammar.matcher(&Constraint::Regex("b".to_owned())).unwrap();
}

/// Schemas of about a megabyte reach it, which are no matter for a unit test.
#[test]
fn symbols_that_run_out_are_a_limit() {
    let fault = "panic: assertion failed: grammar.symbols.len() < u16::MAX as usize - 10";
    let said = super::tokens::refused("JSON schema", &fault).to_string();
    assert!(said.contains("less than 65,535 symbols") && !said.contains("panic"), "{said}");
    let other = super::tokens::refused("JSON schema", &"no such format").to_string();
    assert!(other.contains("no such format"), "{other}");
}

#[test]
fn what_ended_work_that_tells_of_no_fault_is_told_by_the_next_mask() {
    let (tokenizer, grammar) = tokens();
    let mut matcher = grammar.matcher(&Constraint::Lark("start: /[bc]/ /a+/ /a+/".to_owned())).unwrap();
    matcher.accept(tokenizer.encode_continuation("b")[0]).unwrap();
    let mut forced = Vec::new();
    matcher.forced(&mut forced);
    assert_eq!(forced, [0; 0]);
    let error = matcher.mask().unwrap_err();
    assert!(error.to_string().contains("after 1 tokens of the answer: that takes longer than"), "{error}");
}

#[test]
fn work_ends_with_its_request() {
    let (tokenizer, grammar) = tokens();
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_cancelled);
    let compiling = std::thread::spawn(move || {
        let (_, grammar) = tokens();
        grammar.matcher_unless(&endless(), move || asked.load(Ordering::Acquire)).map(|_| ())
    });
    is_cancelled.store(true, Ordering::Release);
    let error = compiling.join().unwrap().unwrap_err();
    assert_eq!(error, GrammarError::Cancelled { what: "grammar" });

    // After the beginning: the answer's own work.
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_cancelled);
    let later = Constraint::Lark("start: \"b\" /a+/ /a+/ | \"n\"".to_owned());
    let matcher = grammar.matcher(&later).unwrap();
    let mut matcher = matcher.unless(move || asked.load(Ordering::Acquire)).unwrap();
    is_cancelled.store(true, Ordering::Release);
    let id = tokenizer.encode_continuation("b")[0];
    let error = matcher.accept(id).and_then(|()| matcher.mask().map(|_| ())).unwrap_err();
    assert_eq!(error, GrammarError::Cancelled { what: "grammar" });
}
