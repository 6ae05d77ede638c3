//! Settings of the n-gram drafter: its dictionaries, and the pool of sequences that fills one of them.

use super::{settings::*, *};

/// Tokens of the longest n-grams that dictionaries hold.
pub const MOST_ORDER: usize = 8;

/// Settings of the n-gram drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NgramSettings {
    /// Tokens of an n-gram, N.
    pub order: u32,
    /// Sequences of the candidate pool, of N - 1 tokens each.
    pub pool: u32,
    /// In how many of a hundred refreshments a sequence goes on with the best token that is not in the forward
    /// dictionary already, instead of the best: the paper's tau.
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

    /// Lookahead decoding with the same pool (Fu et al., <https://arxiv.org/abs/2402.02057>): whole n-grams that begin
    /// with the last token, and the best token for every sequence.
    #[cfg(feature = "planner")]
    #[must_use]
    pub const fn lookahead(self) -> Self {
        Self { explored_percent: 0, backward: false, parts: false, ..self }
    }

    /// Rows of the pool.
    pub fn pool_rows(&self) -> u32 {
        self.pool * (self.order - 1)
    }
}

impl DrafterSettings for NgramSettings {
    const NAME: &'static str = "ngram";
    const SUMMARY: &'static str =
        "N-grams from dictionaries of the text and of a candidate pool that the model extends";
    const RECORDED_AS: RecordedAs = RecordedAs::LiveSteps;

    parameters!(order, pool, explored_percent, forward_guesses, backward, parts, entries);

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts { pinned_rows: self.pool_rows(), ..DrafterFacts::of(Self::RECORDED_AS) }
    }

    fn validate(&self) -> Result<(), PlanError> {
        let Self { order, pool, explored_percent, forward_guesses, backward, parts: _, entries } = *self;
        let holds = (2..=MOST_ORDER as u32).contains(&order)
            && pool <= 64
            && explored_percent <= 100
            && forward_guesses <= 64
            && (forward_guesses > 0 || backward)
            && (16..=1 << 22).contains(&entries);
        let expected = "order 2 to 8, pool up to 64, explored_percent up to 100, guesses up to 64 and from some dictionary, \
                        entries 16 to 4194304";
        expect::<Self>(holds, expected, || format!("{self:?}"))
    }

    fn profiled(_: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let pool = Self { pool: 1, ..Self::DEFAULT };
        vec![("ngram".to_owned(), Self::DEFAULT), ("ngram_pool".to_owned(), pool)]
    }
}
