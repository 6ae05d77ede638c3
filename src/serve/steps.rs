//! What speculation did, for clients that ask: the field `yggc` of a stream's chunks.

use std::collections::VecDeque;

use serde_json::{Value, json};
use yggc::{
    engine::{Report, StepTree},
    plan::DrafterId,
    text::Tokenizer,
};

/// Who drafted the tokens that are still to come of a step.
#[derive(Debug, Default)]
pub(super) struct StepView {
    drafters: VecDeque<Vec<&'static str>>,
}

impl StepView {
    /// The field of the chunk of a token. `tree` is that of its step, if it is the first of one.
    pub(super) fn token(&mut self, tree: Option<&StepTree>, tokenizer: &Tokenizer) -> Value {
        if let Some(tree) = tree {
            let names = |node: &Option<usize>| node.map_or_else(Vec::new, |node| names(tree, node));
            self.drafters = tree.emitted.iter().map(names).collect();
        }
        let mut field = json!({"drafters": self.drafters.pop_front().unwrap_or_default()});
        if let Some(tree) = tree {
            field["step"] = described(tree, tokenizer);
        }
        field
    }
}

/// A step: how many rows were verified, how many of their tokens accepted, and the tree.
fn described(tree: &StepTree, tokenizer: &Tokenizer) -> Value {
    let accepted = || tree.emitted.iter().flatten();
    let nodes = tree.nodes.iter().enumerate().map(|(place, node)| {
        json!({
            "text": tokenizer.spelling(node.token),
            "parent": node.parent,
            "drafters": names(tree, place),
            "accepted": accepted().any(|accepted| *accepted == place),
        })
    });
    json!({
        "rows": tree.nodes.len(),
        "accepted": accepted().count(),
        "tree": nodes.collect::<Vec<_>>(),
    })
}

fn names(tree: &StepTree, node: usize) -> Vec<&'static str> {
    tree.nodes[node].proposers.iter().copied().map(DrafterId::name).collect()
}

/// The field of the last chunk: the answer's numbers.
pub(super) fn report(report: &Report) -> Value {
    json!({"report": {
        "drafter": report.drafter,
        "steps": report.steps,
        "drafted": report.drafted,
        "accepted": report.accepted,
        "average_accepted_length": report.aal,
        "tokens_per_s": report.tokens_per_s,
        "predicted_speedup": report.predicted_speedup,
        "ttft_ms": report.ttft_ms,
        "speculation_off": report.spec_off_reason,
    }})
}
