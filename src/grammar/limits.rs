//! How much work a grammar may take. Counts and not the clock limit it, so machines agree.

use llguidance::api::ParserLimits;

/// Work that compiling a constraint may take, in the parser's units: about 20 ms.
const COMPILE_FUEL: u64 = 1_000_000;
/// Work that one mask may take, in the parser's units of the lexer: about 15 ms.
const MASK_FUEL: u64 = 200_000;
/// Items of the parser that one mask may take: about 3 ms.
const MASK_ITEMS: usize = 50_000;
/// Items of the parser at one place of the text.
const PLACE_ITEMS: usize = 2_000;
/// States of the lexer, of 1 to 2 kB each.
const LEXER_STATES: usize = 50_000;
/// Symbols of a grammar.
const GRAMMAR_SYMBOLS: usize = 200_000;
/// Times the lexer's work that a mask of a slow grammar may take.
const SLOW_FUEL: u64 = 10;
/// Times the items, each of which is compared with the others of its place.
const SLOW_ITEMS: usize = 3;

/// How much work the masks of an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Masks that a forward hides, or that delay it little: about 20 ms a mask.
    Usual,
    /// Of a grammar that needed more: about 200 ms.
    Slow,
}

impl Effort {
    /// The limits of the parser.
    pub(super) fn limits(self) -> ParserLimits {
        let (fuel, items) = match self {
            Self::Usual => (1, 1),
            Self::Slow => (SLOW_FUEL, SLOW_ITEMS),
        };
        ParserLimits {
            initial_lexer_fuel: COMPILE_FUEL,
            step_lexer_fuel: MASK_FUEL * fuel,
            step_max_items: MASK_ITEMS * items,
            max_items_in_row: PLACE_ITEMS * items,
            max_lexer_states: LEXER_STATES,
            max_grammar_size: GRAMMAR_SYMBOLS,
            verbose_errors: false,
            ..ParserLimits::default()
        }
    }
}
