//! Recording a drafter along answers that are known: it drafts at every step of them, and nothing needs to be verified.
//!
//! What the verifier says to a drafted tree is how the recorded answer goes on, since every recorded output is plain
//! decoding's. So a second drafter is recorded without the wide forwards that verification takes, and on the same texts as
//! the first. The judge, in `tests/it/trimming.rs`, takes every recorded step with a decoder that verifies.

use std::time::Instant;

use ygg_profiler::{DrafterName, PromptTrace, StepTrace, TokenTrace, Trace};

use crate::{
    engine::{Error, Loaded},
    plan::DrafterKind,
    runtime::Session,
    speculate::{Budget, Drafter, Stats, make_drafter},
    tree::{NodeId, TokenTree},
};

use super::trace::{Recorder, TraceOptions, step_trace, trace};

/// A drafter over a session, and the tree that it fills.
#[derive(Debug)]
struct Drafting {
    session: Session,
    drafter: Box<dyn Drafter>,
    tree: TokenTree,
}

/// Records the widest trees of a model drafter along `answers`, in order, until the time is over.
///
/// # Panics
/// If the drafter runs no model.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the recording")]
pub(super) fn redraft(
    loaded: &Loaded,
    (name, kind): (&DrafterName, &DrafterKind),
    answers: &[TokenTrace],
    options: &TraceOptions<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Trace, Error> {
    let shape = options.shape;
    let longest = answers.iter().map(|answer| answer.prompt.len() + answer.output.len()).max().unwrap_or(0);
    // Room for a tree at the last token.
    let context = (longest + shape.depth + 1).clamp(2, loaded.set().model_context());
    let session = options.session(loaded, context, &shape, Some(kind))?;
    let drafter = make_drafter(kind, &shape, &session)?.expect("a drafter that runs a model");
    let mut drafting = Drafting { session, drafter, tree: TokenTree::with_capacity(shape.tree_nodes()) };
    let mut prompts = Vec::new();
    let start = Instant::now();
    for (i, answer) in answers.iter().enumerate() {
        if i > 0 && start.elapsed() > options.budget {
            break;
        }
        let is_over = || start.elapsed() > options.budget;
        let steps = drafting.answer(answer, loaded.end_ids(), shape.depth, is_over)?;
        prompts.push(PromptTrace { kind: answer.kind.clone(), steps });
        progress(i + 1, answers.len());
    }
    Ok(trace(name, options, prompts))
}

impl Drafting {
    /// The steps of one answer.
    fn answer(
        &mut self,
        TokenTrace { kind: _, temperature: _, prompt, output }: &TokenTrace,
        ends: &[u32],
        depth: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<StepTrace>, Error> {
        let text = [&prompt[..], output].concat();
        let mut steps = Vec::new();
        self.session.restart(prompt)?;
        // Tokens known to the step: all but the last of them are committed.
        let mut len = prompt.len() + 1;
        while len < text.len() && len + depth <= self.session.context() {
            if is_over() && !steps.is_empty() {
                break;
            }
            let mut recorder = Recorder::default();
            self.tree.reset(text[len - 1]);
            let budget = Budget {
                session: &mut self.session,
                history: &text[..len],
                depth,
                stats: &mut Stats::default(),
                observer: Some(&mut recorder),
            };
            self.drafter.propose(&mut self.tree, budget)?;
            let Some(emitted) = emitted(&self.tree, &text[len..], ends) else { break };
            let context = u32::try_from(len - 1).expect("contexts are below 2^32");
            steps.push(step_trace(&self.tree, context, recorder.expanded, &text[len..len + emitted]));
            self.session.score(&text[len - 1..len - 1 + emitted], |_, _| {})?;
            len += emitted;
        }
        Ok(steps)
    }
}

/// How many tokens a step with this tree emits of how the text goes on; `None` if the text ends before the step would.
fn emitted(tree: &TokenTree, rest: &[u32], ends: &[u32]) -> Option<usize> {
    let mut node = NodeId::ROOT;
    for (i, token) in rest.iter().enumerate() {
        match tree.child(node, *token) {
            Some(child) if !ends.contains(token) => node = child,
            Some(_) | None => return Some(i + 1),
        }
    }
    None
}
