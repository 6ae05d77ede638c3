//! The temperature of a substitute's values: searched on the records, against trees grown the long way at every
//! temperature.
use ygg_profiler::{Candidate, Expansion, Profile, PromptTrace, StepTrace, Trace};

use super::{
    search::{DRAFT_WIDTHS, VERIFY_WIDTHS, plan},
    synthetic::{in_full, naive_tree, name, profile, samples},
};
use crate::plan::{DrafterKind, LayerSkipSettings, PricedShape, SubstituteSettings};

/// Candidates of every node, and how many there are; the verifier follows the first.
const PROBABILITIES: [f64; 5] = [0.4, 0.3, 0.2, 0.06, 0.04];
const DEPTH: u32 = 3;
const TEMPERATURES: [f32; 4] = [1.0, 0.7, 0.5, 0.35];

/// The candidates at a temperature, which are the whole vocabulary.
fn candidates(temperature: f32) -> Vec<Candidate> {
    let raised = PROBABILITIES.map(|p| p.powf(1.0 / f64::from(temperature)));
    let sum: f64 = raised.iter().sum();
    (0..).zip(raised).map(|(token, p)| Candidate { token, log_prob: (p / sum).ln() as f32 }).collect()
}

/// A step as it is recorded at temperature 1, after which the verifier follows first candidates for so many tokens.
fn step(context: u32, follows: usize) -> StepTrace {
    let tree = naive_tree(|_| Some(candidates(1.0)), 9, PROBABILITIES.len() as u32, DEPTH);
    let expanded = |node: &usize| Expansion { node: *node as u32, candidates: candidates(1.0) };
    StepTrace {
        context,
        parents: tree.nodes.iter().map(|node| node.parent as u32).collect(),
        tokens: tree.nodes.iter().map(|node| *node.path.last().unwrap()).collect(),
        expanded: tree.forwarded.iter().map(expanded).collect(),
        verified: std::iter::repeat_n(0, follows).chain([7]).collect(),
        predicted: Vec::new(),
    }
}

fn recorded(kind: DrafterKind) -> Profile {
    let drafter = name("drafter");
    let steps: Vec<StepTrace> =
        (0..30).map(|i| step(100 + 20 * i, [3, 3, 2, 1, 0][i as usize % 5])).collect();
    let trace = Trace {
        drafter: drafter.clone(),
        temperature: 0.0,
        draft_temperature: 1.0,
        depth: DEPTH,
        width: PROBABILITIES.len() as u32,
        top_k: PROBABILITIES.len() as u32,
        prompts: vec![PromptTrace { kind: "synthetic".into(), steps }],
    };
    let verify = VERIFY_WIDTHS.map(|width| samples("verify", width, 100.0 + f64::from(width)));
    let draft = DRAFT_WIDTHS.map(|width| samples("draft:drafter", width, 8.0 + f64::from(width)));
    let mut profile = profile([&verify[..], &draft].concat(), Vec::new(), Vec::new());
    profile.drafters.push(kind.describe(drafter));
    profile.traces.push(trace);
    profile
}

/// The most tokens a step of a shape, over the temperatures, of trees grown the long way.
fn most_tokens(profile: &Profile, (depth, width, rows): (u32, u32, u32), temperatures: &[f32]) -> f64 {
    let tokens = |temperature: &f32| {
        let steps: Vec<&StepTrace> = profile.traces[0].steps().collect();
        let emitted = |step: &&StepTrace| {
            let tree = naive_tree(|_| Some(candidates(*temperature)), step.tokens[0], width, depth);
            tree.accepted(&step.verified, rows) + 1
        };
        steps.iter().map(emitted).sum::<usize>() as f64 / steps.len() as f64
    };
    temperatures.iter().map(tokens).fold(0.0, f64::max)
}

#[test]
fn a_substitute_is_planned_at_the_temperature_that_gives_most() {
    let substitute = recorded(SubstituteSettings { bits: 4, head_tokens: None }.into());
    let planned = plan(&substitute, "rows=all").unwrap();
    for priced in planned.bands[0].priced().filter(|priced| priced.shape.depth > 0) {
        let shape = (priced.shape.depth, priced.shape.draft_width, priced.shape.verify_width);
        let expected = most_tokens(&substitute, shape, &TEMPERATURES);
        let is_planned = priced.name == planned.bands[0].chosen().name
            && priced.shape == planned.bands[0].chosen().shape();
        assert!(
            (priced.aal - expected).abs() < 1e-9 || is_planned,
            "{shape:?}: {} for {expected}",
            priced.aal
        );
    }
    let chosen = planned.bands[0].chosen();
    assert!(TEMPERATURES[1..].contains(&chosen.draft_temperature));
    let shape = (chosen.shape().depth, chosen.shape().draft_width, chosen.shape().verify_width);
    let own = most_tokens(&substitute, shape, &[chosen.draft_temperature]);
    assert!(
        (chosen.first().predicted.aal - own).abs() < 1e-9 && own > most_tokens(&substitute, shape, &[1.0])
    );
    assert!(
        in_full(&planned).contains("drafter")
            && super::synthetic::shown(&planned).contains("values at temperature 0.")
    );
    // A shape is listed once, whatever its values, but for that of the sub-plan.
    let priced: Vec<_> = planned.bands[0].priced().collect();
    let is_again = |(i, shape): &(usize, &PricedShape)| {
        priced[..*i].iter().any(|before| (before.shape, before.schedule) == (shape.shape, shape.schedule))
    };
    let again: Vec<_> = priced.iter().enumerate().filter(is_again).collect();
    assert!(again.len() <= 1 && again.iter().all(|(_, shape)| shape.shape == chosen.shape()));
    assert!(priced.contains(&chosen.priced()));

    let other = recorded(LayerSkipSettings { skipped: vec![2], head_tokens: None }.into());
    let other = plan(&other, "rows=all").unwrap();
    let drafted = other.bands[0].for_drafter("layer_skip").unwrap();
    assert_eq!(drafted.draft_temperature, 1.0);
    assert!(drafted.first().predicted.speedup < chosen.first().predicted.speedup);
}
