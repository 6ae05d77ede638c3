//! What is counted of a grammar before anything recurses over it: bytes, rules, brackets. Schemas have counts of their
//! own (`schema`).
//!
//! Compiling recurses over rules and cannot be interrupted. So its depth is bounded here against the
//! [stack](super::compiling::STACK_BYTES) that it runs on.

use super::GrammarError;

/// Most bytes of a regular expression: each mask follows what is forced to its end.
const REGEX_BYTES: usize = 32 << 10;
/// Most bytes of a Lark grammar.
const LARK_BYTES: usize = 128 << 10;
/// Deepest brackets of a grammar or an expression.
const BRACKETS: u64 = 64;
/// Most rules and brackets of a Lark grammar, each of which takes up to 3 kB of stack when rules follow from one
/// another in a chain.
const RULES: u64 = 4_000;
/// Most rules of a grammar in which schemas were written out: half of the stack where they follow from one another in a
/// chain. Their brackets are those of expressions.
const WRITTEN_RULES: u64 = 40_000;
/// Most bytes of such a grammar.
const WRITTEN_BYTES: u64 = 4 << 20;

/// Checks the counts of a regular expression.
///
/// # Errors
/// [`GrammarError`] that names the limit.
pub(super) fn check_regex(what: &'static str, text: &str) -> Result<(), GrammarError> {
    check_bytes(what, REGEX_BYTES, text)?;
    limited(what, "levels of brackets", BRACKETS, nesting(text.as_bytes()), "flatten it")
}

/// Checks the counts of a Lark grammar, but for the schemas in it.
///
/// # Errors
/// [`GrammarError`] that names the limit.
pub(super) fn check_lark(what: &'static str, text: &str) -> Result<(), GrammarError> {
    check_bytes(what, LARK_BYTES, text)?;
    limited(what, "levels of brackets", BRACKETS, nesting(text.as_bytes()), "flatten it")?;
    limited(what, "rules and brackets", RULES, rules_and_brackets(text), "use fewer rules")
}

/// Checks the counts of a grammar in which schemas were written out.
///
/// # Errors
/// [`GrammarError`] that names the limit.
pub(super) fn check_written(what: &'static str, lark: &str) -> Result<(), GrammarError> {
    let advice = "use smaller schemas";
    limited(what, "bytes of the grammar that schemas become", WRITTEN_BYTES, lark.len() as u64, advice)?;
    limited(what, "rules of the grammar that schemas become", WRITTEN_RULES, rules(lark), advice)
}

/// Lines that may begin a rule.
fn rules(lark: &str) -> u64 {
    lark.lines().filter(|line| line.contains(':')).count() as u64
}

/// The same and brackets.
fn rules_and_brackets(lark: &str) -> u64 {
    let brackets = lark.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'~')).count();
    rules(lark) + brackets as u64
}

/// Checks the length of a text.
pub(super) fn check_bytes(what: &'static str, most: usize, text: &str) -> Result<(), GrammarError> {
    if text.len() <= most {
        return Ok(());
    }
    Err(GrammarError::TooLong { what, most, found: text.len() })
}

fn limited(
    what: &'static str,
    of: &'static str,
    most: u64,
    found: u64,
    advice: &'static str,
) -> Result<(), GrammarError> {
    if found <= most {
        return Ok(());
    }
    Err(GrammarError::TooMuch { what, of, most, found, advice })
}

/// The deepest brackets of a text, those within literals counted like others.
fn nesting(text: &[u8]) -> u64 {
    let (mut level, mut deepest) = (0_u64, 0);
    for byte in text {
        match byte {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

#[cfg(test)]
mod tests;
