//! How drafters that run no model are set: numbers, as profiles write them down.

use serde::{Deserialize, Serialize};

/// What is wrong with settings: the rule, and what breaks it.
pub(super) type Fault = (&'static str, String);

/// Settings of the suffix drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuffixSettings {
    /// Most tokens drafted for every token that matched.
    pub tokens_per_match: u32,
    /// Tokens of the longest strings whose occurrences are counted, continuations included.
    pub counted: u32,
    /// Tokens kept of this request and those before it.
    pub remembered: u32,
}

impl SuffixSettings {
    /// What profiles measure.
    pub const DEFAULT: Self = Self { tokens_per_match: 2, counted: 16, remembered: 32_768 };

    pub(super) const NAMES: [&'static str; 3] = ["counted", "remembered", "tokens_per_match"];

    pub(super) fn values(&self) -> [u32; 3] {
        let Self { tokens_per_match, counted, remembered } = *self;
        [counted, remembered, tokens_per_match]
    }

    pub(super) fn from_values([counted, remembered, tokens_per_match]: [u32; 3]) -> Self {
        Self { tokens_per_match, counted, remembered }
    }

    pub(super) fn validate(&self) -> Result<(), Fault> {
        let Self { tokens_per_match, counted, remembered } = *self;
        let good = tokens_per_match >= 1 && counted >= 2 && (16..=1 << 24).contains(&remembered);
        if good {
            return Ok(());
        }
        let rule = "tokens_per_match from 1, counted from 2, remembered from 16 to 16777216";
        Err((rule, format!("{tokens_per_match}, {counted}, {remembered}")))
    }
}

/// Tokens of the longest n-grams that dictionaries hold.
pub const MOST_ORDER: usize = 8;

/// Settings of the n-gram drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NgramSettings {
    /// Tokens of an n-gram, N.
    pub order: u32,
    /// Sequences of the candidate pool, of N - 1 tokens each.
    pub pool: u32,
    /// In how many of a hundred refreshments a sequence goes on with the best token that is not in the forward dictionary
    /// already, instead of the best: the paper's tau.
    pub explored_percent: u32,
    /// Most guesses of the forward dictionary, G; 0 for none.
    pub forward_guesses: u32,
    /// Whether the backward dictionary grows a guess.
    pub backward: bool,
    /// Whether dictionaries hold all parts of an n-gram, not only the whole.
    pub parts: bool,
    /// N-grams that each dictionary holds.
    pub entries: u32,
}

impl NgramSettings {
    /// What profiles measure: no pool, since its rows cost as much as others.
    pub const DEFAULT: Self = Self {
        order: 4,
        pool: 0,
        explored_percent: 10,
        forward_guesses: 15,
        backward: true,
        parts: true,
        entries: 1 << 16,
    };

    /// Lookahead decoding with the same pool (Fu et al., <https://arxiv.org/abs/2402.02057>): whole n-grams that begin with the
    /// last token, and the best token for every sequence.
    #[cfg(feature = "compare")]
    #[must_use]
    pub const fn lookahead(self) -> Self {
        Self { explored_percent: 0, backward: false, parts: false, ..self }
    }

    pub(super) const NAMES: [&'static str; 7] =
        ["backward", "entries", "explored_percent", "forward_guesses", "order", "parts", "pool"];

    pub(super) fn values(&self) -> [u32; 7] {
        let Self { order, pool, explored_percent, forward_guesses, backward, parts, entries } = *self;
        [u32::from(backward), entries, explored_percent, forward_guesses, order, u32::from(parts), pool]
    }

    pub(super) fn from_values(values: [u32; 7]) -> Self {
        let [backward, entries, explored_percent, forward_guesses, order, parts, pool] = values;
        let (backward, parts) = (backward != 0, parts != 0);
        Self { order, pool, explored_percent, forward_guesses, backward, parts, entries }
    }

    /// Rows of the pool.
    pub fn pool_rows(&self) -> u32 {
        self.pool * (self.order - 1)
    }

    pub(super) fn validate(&self) -> Result<(), Fault> {
        let Self { order, pool, explored_percent, forward_guesses, backward, parts: _, entries } = *self;
        let good = (2..=MOST_ORDER as u32).contains(&order)
            && pool <= 64
            && explored_percent <= 100
            && forward_guesses <= 64
            && (forward_guesses > 0 || backward)
            && (16..=1 << 22).contains(&entries);
        if good {
            return Ok(());
        }
        let rule = "order 2 to 8, pool up to 64, explored_percent up to 100, guesses up to 64 and from some dictionary, \
                    entries 16 to 4194304";
        Err((rule, format!("{self:?}")))
    }
}
