//! Tests of first divisions, over made-up splits.
use crate::runtime::Placed;

use super::*;

/// Ten layers of 100 bytes in addition to 50 that always stay, of which as many as the number of a split are in memory.
fn splits() -> WeightSplits {
    let split = |layers: usize| {
        let (resident, streamed) = (50 + 100 * layers, 100 * (10 - layers));
        let staging = if streamed == 0 { 0 } else { 20 };
        let substitutes = [(2, 30), (3, 40), (4, 50)].map(|(bits, share)| (bits, streamed * share / 100));
        WeightSplit {
            budget: resident + staging,
            placed: Placed { resident, streamed, staging },
            whole: 100 * layers,
            substitutes: if streamed == 0 { Vec::new() } else { substitutes.to_vec() },
        }
    };
    WeightSplits { fixed: 50, all: (0..=10).map(split).collect() }
}

fn divided(bytes: u64, drafts: bool) -> Result<FirstDivision, SearchError> {
    FirstDivision::of(&splits(), MemoryBudget { bytes, context: 64 }, 30, drafts)
}

#[test]
fn the_substitute_of_the_most_bits_that_leaves_a_layer_comes_first() {
    let found = |bytes| match divided(bytes, true).expect("enough") {
        FirstDivision::Whole => (usize::MAX, None),
        FirstDivision::Streamed { resident, substitute_bits } => (resident, substitute_bits),
    };
    assert_eq!(found(1080), (usize::MAX, None), "all of it");
    // 9 layers, the buffer, the substitute of the tenth and a session; a byte less is a layer less.
    assert_eq!(found(1050), (970, Some(4)));
    assert_eq!(found(1049), (870, Some(4)));
    assert_eq!(found(650), (170, Some(4)), "one layer");
    assert_eq!(found(649), (270, Some(3)), "two layers with fewer bits");
    assert_eq!(found(470), (170, Some(2)));
    // No room for a layer with a substitute.
    assert_eq!(found(469), (370, None));
    assert_eq!(found(100), (70, None));
}

#[test]
fn plain_decoding_keeps_as_many_weights_as_fit() {
    let found = divided(1050, false).expect("enough");
    assert_eq!(found, FirstDivision::Streamed { resident: 970, substitute_bits: None });
    let found = divided(650, false).expect("enough");
    assert_eq!((found.resident(), found.substitute_bits()), (Some(570), None));
    assert_eq!(divided(1080, false).expect("enough").resident(), None);
}

#[test]
fn a_budget_that_holds_nothing_is_refused_with_the_least() {
    for drafts in [false, true] {
        let error = divided(99, drafts).expect_err("too few").to_string();
        assert!(
            error.contains("99 bytes of memory are too few") && error.contains("at least 100"),
            "{error}"
        );
    }
}
