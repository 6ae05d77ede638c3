//! Constraints of answers, which come from clients: schemas, expressions, grammars.

use yggc::engine::Constraint;

use super::tiny::loaded;

/// Most tokens of an answer.
const TOKENS: usize = 12;

/// Compiles a constraint, a letter of its kind and its text, and follows it: by allowed tokens that the text chooses,
/// some of which are taken back. The mask after tokens is the same whatever was taken back before.
pub fn check(input: &[u8]) -> bool {
    let Some((kind, text)) = input.split_first() else { return false };
    let said = String::from_utf8_lossy(text).into_owned();
    let constraint = match kind % 4 {
        0 => Constraint::JsonSchema(said),
        1 => Constraint::Regex(said),
        2 => Constraint::Lark(said),
        _ => Constraint::JsonObject,
    };
    let Ok(mut matcher) = loaded().matcher(&constraint) else { return false };
    let mut straight = matcher.clone();
    for (place, choice) in text.iter().cycle().take(TOKENS).enumerate() {
        if matcher.is_complete() {
            break;
        }
        let Ok(mask) = matcher.mask() else { break };
        assert!(mask.count() > 0, "an answer that may go on has a next token");
        let allowed: Vec<u32> = (0..300).filter(|token| mask.allows(*token)).collect();
        let chosen = |number: usize| allowed[number % allowed.len()];
        let (next, other) = (chosen(usize::from(*choice)), chosen(usize::from(*choice) + place));
        let mut forced = Vec::new();
        matcher.forced(&mut forced);
        assert!(forced.first().is_none_or(|only| allowed == [*only]), "a forced token is the only one");
        if matcher.accept(other).is_err() || matcher.rollback(1).is_err() || straight.accept(next).is_err() {
            break;
        }
        matcher.accept(next).expect("it was accepted before");
        assert_eq!(matcher.tokens(), place + 1);
        assert_eq!(matcher.is_complete(), straight.is_complete());
        if !matcher.is_complete()
            && let (Ok(here), Ok(there)) = (matcher.mask().cloned(), straight.mask())
        {
            assert!((0..300).all(|token| here.allows(token) == there.allows(token)), "{constraint:?}");
        }
    }
    true
}
