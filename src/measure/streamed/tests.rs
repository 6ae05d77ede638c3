//! Tests of what is recorded, by what forwards take.
use ygg_profiler::Cell;

use super::*;
use crate::plan::SubstituteSettings;

fn substitute() -> [(DrafterName, DrafterKind); 1] {
    let settings = SubstituteSettings { bits: 4, head_tokens: None };
    [(DrafterName::new("substitute4").expect("a name"), settings.into())]
}

/// Forwards of `forward_ms`, growths of one node of `growth_ms`, and of several of so many times as long.
fn measured(forward_ms: f64, growth_ms: f64, wider: f64) -> Vec<CellSamples> {
    let [(name, _)] = substitute();
    let cell = |stage: &Stage, width: u32, ms: f64| {
        let cell = Cell { stage: stage.clone(), width, context: 128 };
        CellSamples { cell, samples_us: vec![ms * 1e3, ms * 1e3, 9.0 * ms * 1e3] }
    };
    let draft = Stage::Draft(name);
    let verify =
        [1, 4, 8, 16].map(|rows| cell(&Stage::Verify, rows, forward_ms * if rows > 8 { 2.0 } else { 1.1 }));
    let growths = [(1, 1.0), (2, wider.sqrt()), (4, wider)];
    let growths = growths.map(|(width, times)| cell(&draft, width, growth_ms * times));
    [&verify[..], &growths].concat()
}

#[test]
fn trees_are_as_deep_as_drafting_takes_as_long_as_a_forward() {
    let drafters = substitute();
    let shape = |forward_ms, growth_ms, wider| {
        let measured = measured(forward_ms, growth_ms, wider);
        let pace = pace(&measured, &drafters, 64).expect("it was measured");
        (pace.shape().depth, pace.shape().draft_width, pace.answering().rows)
    };
    assert_eq!(shape(1000.0, 100.0, 1.2), (11, 4, 8));
    assert_eq!(shape(1000.0, 100.0, 2.0), (11, 2, 8), "four nodes take too long");
    assert_eq!(shape(1000.0, 100.0, 4.0), (11, 1, 8));
    assert_eq!(shape(9000.0, 100.0, 1.2).0, 15, "the most");
    assert_eq!(shape(100.0, 100.0, 1.2).0, 4, "the fewest");
}

#[test]
fn answers_are_as_long_as_leaves_time_for_the_fewest_prompts() {
    let (drafters, measured) = (substitute(), measured(1000.0, 100.0, 1.2));
    let pace = pace(&measured, &drafters, 64).expect("it was measured");
    let tokens = |seconds| pace.tokens(Duration::from_secs(seconds), 96);
    assert_eq!(tokens(10), 24, "two steps");
    assert!(tokens(120) > 24 && tokens(120) < 96, "{}", tokens(120));
    assert_eq!(tokens(1000), 96);
    // All of them within the time, if steps give what is expected of them.
    let steps = tokens(120) as f64 / (pace.depth + 1) as f64 * 2.0;
    let each_us = READINGS * pace.forward_us + steps * pace.step_us;
    assert!(FEWEST_PROMPTS * each_us <= 120.0 * 1e6);
}

#[test]
fn without_a_measured_drafter_that_streams_nothing_there_is_no_pace() {
    let drafters = substitute();
    let all = measured(1000.0, 100.0, 1.2);
    assert!(pace(&all, &drafters, 64).is_some());
    assert!(pace(&all, &[crate::measure::drafters::that_skips("a", 1)], 64).is_none());
    let of_verifier: Vec<_> = all.iter().filter(|cell| cell.cell.stage == Stage::Verify).cloned().collect();
    assert!(pace(&of_verifier, &drafters, 64).is_none());
    let narrow: Vec<_> = all.into_iter().filter(|cell| cell.cell.width == 1).collect();
    assert!(pace(&narrow, &drafters, 64).is_none(), "one row verifies nothing");
}
