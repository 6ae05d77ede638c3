//! A block drafter: one forward of mask tokens after the root proposes tokens for all places of a block.
//!
//! DFlash (<https://arxiv.org/abs/2602.06036>) drafts the best token of every place. Here its candidates grow a tree,
//! best first: of marginals, the best candidates are the same below every node of a depth; with the Markov head of
//! DSpark (<https://arxiv.org/abs/2607.05147>) those of a node are conditional on its token. Nodes cost no further
//! forward, so a tree may grow one node at a time, and its depth follows from what its nodes are worth.
//!
//! The drafter's cache holds keys and values of the text, made of the verifier's hidden rows. What a step adds to the
//! text is computed with the next proposal; the rows of a block are scratch.

use std::sync::Arc;

use crate::{
    plan::{BlockSettings, DrafterId},
    runtime::{BlockRows, Choice, ExecutableSet, MarkovHead, Session, SessionOptions},
    sample::Candidate,
    speculate::{CandidateRows, SpeculateError, StepShape, StepStage, stats::Lap},
    tree::{NodeId, Source, Template, TokenTree},
};

use super::{
    Budget, Drafter, OwnCache,
    growth::Growth,
    ranking::Ranking,
    registry::{MakeContext, MakeDrafter},
    text_parts::TextParts,
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Block.source();

/// The drafter that forwards blocks, with a cache of its own.
#[derive(Debug)]
pub struct BlockDrafter {
    own: Session,
    of_text: TextParts,
    block: BlockRows,
    markov: Option<Markov>,
    choice: Choice,
    growth: Growth,
    rows: Vec<NodeId>,
    candidates: Vec<Candidate>,
    /// The candidates of every place of the last block, before any is ranked.
    places: CandidateRows,
    /// The text whose keys and values are committed.
    text: Vec<u32>,
    /// Tokens that the verifier knows.
    vocabulary: usize,
}

/// A Markov head at work.
#[derive(Debug)]
struct Markov {
    head: Arc<MarkovHead>,
    /// The row of the node's token, `[rank]`.
    row: Vec<f32>,
}

impl BlockDrafter {
    /// A drafter that runs the executables of `set` on the threads of `session`, the verifier's, and grows trees of the
    /// given shape: `depth` growths of `draft_width` nodes each.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the executables are of no blocks, give fewer candidates, or read rows of another
    /// width; [`SpeculateError::Runtime`] if the verifier's session does not keep the hidden rows that they read, or
    /// memory is refused.
    pub fn new(
        session: &Session,
        set: &Arc<ExecutableSet>,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        let block = set.block_rows().ok_or_else(|| {
            let expected = "1 or more, of a block drafter".to_owned();
            SpeculateError::Shape { what: "rows of a block", expected, found: 0 }
        })?;
        let (growth, choice) = Growth::equal(shape)?;
        let of_text = TextParts::of(session, set)?;
        let own =
            Session::open_beside(Arc::clone(set), &Self::session_options(&session.options(), set), session)?;
        let most = ExecutableSet::MOST_CANDIDATES;
        let markov = set.markov().map(|head| Markov { head: Arc::clone(head), row: vec![0.0; head.rank()] });
        Ok(Self {
            of_text,
            block,
            markov,
            choice,
            growth,
            rows: Vec::with_capacity(shape.draft_width),
            candidates: Vec::with_capacity(most),
            places: CandidateRows::with_capacity(block.depth(), most),
            text: Vec::with_capacity(session.context() + 1),
            vocabulary: session.set().vocabulary(),
            own,
        })
    }

    /// How the drafter's own session is opened in addition to the verifier's: with room for a block.
    pub fn session_options(options: &SessionOptions, set: &ExecutableSet) -> SessionOptions {
        let context = options.context.min(set.model_context());
        SessionOptions { context, tree_nodes: set.block_rows().map_or(1, |block| block.size), ..*options }
    }

    /// The same, but filling a template by the ranks of candidates instead of growing best first. It must fit the shape
    /// that the drafter was made for.
    ///
    /// # Errors
    /// As [`ModelDrafter::with_template`](super::ModelDrafter::with_template).
    pub fn with_template(self, template: &Template, shape: &StepShape) -> Result<Self, SpeculateError> {
        let growth = Growth::by_template(template, shape, self.choice)?;
        Ok(Self { growth, ..self })
    }

    /// Brings the cache to the root of `history`, whose last token that is; whether a block fits behind it.
    fn come_to_root(&mut self, history: &[u32], session: &Session) -> Result<bool, SpeculateError> {
        let before = &history[..history.len() - 1];
        let same = self.text.iter().zip(before).take_while(|(own, said)| own == said).count();
        if same < self.text.len() {
            self.text.truncate(same);
            self.own.truncate(same);
        }
        let known = self.own.set().vocabulary();
        // All rows of a block see one another, so that a part of one would be another.
        let fits = before.len() + self.block.size <= self.own.context();
        let can_read = history[same..].iter().all(|token| (*token as usize) < known)
            && (same..before.len()).all(|place| session.committed_hidden(place).is_some());
        if !fits || !can_read {
            return Ok(false);
        }
        self.read(&before[same..], session)?;
        Ok(true)
    }

    /// Commits the keys and values of the tokens that follow the text.
    fn read(&mut self, lacking: &[u32], session: &Session) -> Result<(), SpeculateError> {
        if lacking.is_empty() {
            return Ok(());
        }
        let Self { own, of_text, text, .. } = self;
        let from = text.len();
        if own.set().width_for(lacking.len()).is_some() {
            let mut forward = own.forward_text(lacking.len())?;
            for (row, token) in lacking.iter().enumerate() {
                forward.push_behind(*token);
                of_text.write(session, from + row, forward.given_mut(row));
            }
            forward.run(None);
            own.commit_behind(lacking.len());
        } else {
            own.prefill_with(lacking, |index, row| of_text.write(session, from + index, row))?;
        }
        text.extend_from_slice(lacking);
        Ok(())
    }

    /// Forwards the block of a root, and notes the candidates of its places.
    fn forward(&mut self, root: u32, ranking: &Ranking) -> Result<(), SpeculateError> {
        let Self { own, block, markov, places, vocabulary, .. } = self;
        let mut forward = own.forward(block.size)?;
        forward.push_block(root, *block);
        // The logits of row `i` are for the token after it, or for its own place.
        let (forward, choice) = ranking.asked_at(forward, 1 - block.first);
        // What the token before adds may put any of them in front.
        let k = if markov.is_some() { ExecutableSet::MOST_CANDIDATES } else { choice.k };
        let choices = forward.choose(Choice { k, ..choice }, None);
        places.clear();
        for row in block.first..block.size {
            places.add_row(|candidates| {
                let all = choices.row(row).iter().map(|(token, log_prob)| Candidate { token, log_prob });
                candidates.extend(all.filter(|candidate| (candidate.token as usize) < *vocabulary));
            });
        }
        Ok(())
    }

    /// Offers the candidates of a node, ranked for the token that follows it.
    fn expand(&mut self, tree: &mut TokenTree, node: NodeId, ranking: &Ranking, budget: &mut Budget<'_>) {
        let depth = tree.depth(node) as usize;
        self.candidates.clear();
        if depth < self.block.depth() {
            self.candidates.extend_from_slice(self.places.row(depth));
            if let Some(Markov { head, row }) = &mut self.markov {
                head.write_row(tree.token(node), row);
                ranking.correct(&mut self.candidates, |token| head.logit(row, token));
            }
            ranking.rank(budget.history.len() + depth, &mut self.candidates);
        }
        if let Some(observer) = budget.observer.as_deref_mut() {
            observer.expanded(node, &self.candidates);
        }
        let candidates = self.candidates.iter().map(|c| (c.token, c.log_prob));
        self.growth.expand(tree, node, candidates, SOURCE);
    }
}

impl MakeDrafter for BlockSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth, shape, session } = *context;
        let mut drafter = BlockDrafter::new(session, session.set().draft(&self.model.digest)?, shape)?;
        if let Some(tree) = growth.static_tree() {
            drafter = drafter.with_template(&tree.template, shape)?;
        }
        Ok(Some(Box::new(drafter)))
    }
}

impl Drafter for BlockDrafter {
    /// One forward of what the text lacks, one of the block, and as many growths as the budget is deep. Nothing where a
    /// block does not fit into its context, after a token that it has not, or after tokens whose hidden rows the
    /// verifier's session did not keep.
    fn propose(&mut self, tree: &mut TokenTree, mut budget: Budget<'_>) -> Result<(), SpeculateError> {
        let mut lap = Lap::start();
        let ranking = Ranking::new(self.choice, budget.coupling, &self.own);
        self.growth.restart();
        if budget.depth == 0 || !self.come_to_root(budget.history, budget.session)? {
            return Ok(());
        }
        self.forward(tree.token(NodeId::ROOT), &ranking)?;
        self.rows.clear();
        self.rows.push(NodeId::ROOT);
        for _ in 0..budget.depth {
            for place in 0..self.rows.len() {
                self.expand(tree, self.rows[place], &ranking, &mut budget);
            }
            self.growth.grow(tree, SOURCE, &mut self.rows);
            if self.rows.is_empty() {
                break;
            }
        }
        // Growths cost no forward, and are measured with the one there is.
        budget.stats.add_time(StepStage::Draft, lap.next());
        Ok(())
    }

    fn prefill(&mut self, history: &[u32], session: &Session) -> Result<(), SpeculateError> {
        self.come_to_root(history, session).map(drop)
    }

    fn own_cache(&mut self) -> Option<OwnCache<'_>> {
        let Self { own: session, text, .. } = self;
        Some(OwnCache { session, text, skipped: 0 })
    }
}
