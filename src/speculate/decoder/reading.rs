//! Texts that are read and not answered: how probable their tokens are, and continuations of them.

use std::time::Duration;

use crate::{
    prefix::Owner,
    speculate::{
        LogProbs, SpeculateError,
        branches::{BranchScores, score_branches},
        stats::Lap,
    },
    tree::{NodeId, Source, TokenTree},
};

use super::{Decoder, KeptPrefixes, Reuse, begin::prefill};

/// A text to read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The text, 1 token or more.
    pub prompt: &'a [u32],
    /// What is taken of earlier requests.
    pub reuse: Reuse,
    /// Where prefixes are kept, if they are.
    pub prefixes: Option<&'a KeptPrefixes>,
    /// Whose request it is.
    pub owner: Owner,
    /// Asked before every forward.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl<'a> Reading<'a> {
    /// A text to read, of nobody in particular, which takes nothing of earlier requests.
    pub fn new(prompt: &'a [u32]) -> Self {
        Self {
            prompt,
            reuse: Reuse::Nothing,
            prefixes: None,
            owner: Owner::default(),
            is_cancelled: &|| false,
        }
    }
}

impl std::fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { prompt, reuse, prefixes, owner, is_cancelled: _ } = self;
        f.debug_struct("Reading")
            .field("prompt", prompt)
            .field("reuse", reuse)
            .field("prefixes", prefixes)
            .field("owner", owner)
            .finish_non_exhaustive()
    }
}

/// How probable continuations of a text are.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadBranches {
    /// Of every continuation, the log-probability in nats of each of its tokens after the text and its tokens before.
    pub log_probs: Vec<Vec<f64>>,
    /// Time of the continuations, after the text.
    pub time: Duration,
    /// Forwards over the continuations.
    pub forwards: u64,
    /// Rows of them: one for the end of the text, and one for each different beginning of a continuation that goes on.
    pub rows: u64,
}

impl Decoder {
    /// How probable each of `texts` is as a continuation of the text that is read. The prompt is run as far as the
    /// cache has it not, and stays in the cache; of the continuations nothing does. By row invariance the numbers are
    /// those of a forward over the text and that continuation alone. `None` if it was cancelled; what was run of the
    /// prompt is kept.
    ///
    /// # Errors
    /// [`SpeculateError`] for an empty prompt, unknown tokens, and a continuation that does not fit the context with
    /// the prompt; the last request is then as it was. [`SpeculateError`] when the device fails.
    ///
    /// # Panics
    /// If one of `texts` is empty.
    pub fn read_branches(
        &mut self,
        reading: &Reading<'_>,
        texts: &[&[u32]],
    ) -> Result<Option<ReadBranches>, SpeculateError> {
        let Reading { prompt, reuse, prefixes, owner, is_cancelled } = *reading;
        let Some(last) = prompt.last() else { return Err(SpeculateError::EmptyPrompt) };
        self.session.accepts(prompt)?;
        texts.iter().try_for_each(|text| self.session.accepts(text))?;
        if let Some(longest) = texts.iter().max_by_key(|text| text.len()) {
            self.session.accepts(&[prompt, longest].concat())?;
        }
        assert!(texts.iter().all(|text| !text.is_empty()), "a continuation has at least one token");
        let mut lap = Lap::start();
        let on_the_way = self.take(prompt, owner, reuse, prefixes)?;
        let before = &prompt[..prompt.len() - 1];
        if self.session.committed() < before.len()
            && prefill(&mut self.session, before, &on_the_way, is_cancelled)?.is_none()
        {
            return Ok(None);
        }
        self.sequence.stats.prefill = lap.next();
        let nodes = texts.iter().map(|text| text.len()).sum::<usize>() + 1;
        let mut tree = TokenTree::with_capacity(nodes);
        tree.reset(*last);
        let paths: Vec<Vec<NodeId>> = texts.iter().map(|text| insert(&mut tree, text)).collect();
        let Some(scores) = score_branches(&mut self.session, &tree, is_cancelled)? else { return Ok(None) };
        let BranchScores { log_probs, forwards, rows } = scores;
        let time = lap.next();
        let of_path = |path: Vec<NodeId>| path.into_iter().map(|node| log_probs[node.index()]).collect();
        let log_probs = paths.into_iter().map(of_path).collect();
        Ok(Some(ReadBranches { log_probs, time, forwards, rows }))
    }

    /// How probable the tokens of the text are that is read, but the first, each with the `most` most probable tokens
    /// at its place: number `i` is of token `i + 1`. All of it is run, whatever the cache has, and stays in the cache.
    /// `None` if it was cancelled.
    ///
    /// # Errors
    /// [`SpeculateError`] for an empty prompt, one that does not fit the context or has unknown tokens, and `most`
    /// above the vocabulary; the last request is then as it was. [`SpeculateError`] when the device fails.
    pub fn read_tokens(
        &mut self,
        prompt: &[u32],
        owner: Owner,
        most: usize,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<LogProbs>, SpeculateError> {
        if prompt.is_empty() {
            return Err(SpeculateError::EmptyPrompt);
        }
        self.session.accepts(prompt)?;
        let mut log_probs = LogProbs::default();
        self.sequence.sampler.check_log_probs(Some(most))?;
        log_probs.begin(Some(most), prompt.len() - 1);
        let mut lap = Lap::start();
        self.take(prompt, owner, Reuse::Nothing, None)?;
        let widest = *self.session.set().widths().last().expect("width 1 is always planned");
        for begin in (0..prompt.len() - 1).step_by(widest) {
            if is_cancelled() {
                return Ok(None);
            }
            let end = (begin + widest).min(prompt.len() - 1);
            self.session.score(&prompt[begin..end], |row, logits| {
                log_probs.note(logits, prompt[begin + row + 1]);
            })?;
        }
        self.sequence.stats.prefill = lap.next();
        Ok(Some(log_probs))
    }
}

/// Adds a path to a tree that has room for it; its nodes below the root.
fn insert(tree: &mut TokenTree, text: &[u32]) -> Vec<NodeId> {
    let mut end = NodeId::ROOT;
    let mut path = Vec::with_capacity(text.len());
    for token in text {
        end = tree.insert(end, *token, 1.0, 0, Source::NONE).node().expect("room was made for all");
        path.push(end);
    }
    path
}
