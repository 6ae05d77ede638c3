//! A drafter model: another model of the verifier's vocabulary, or one that reads the verifier's hidden rows, with a
//! cache of its own.
//!
//! Its cache holds the text, as the verifier's does, and nodes go to scratch slots after it. Tokens missing from the
//! cache are computed with the next proposal, in one forward with the tree's root. A model of tokens keeps the rows of
//! accepted nodes; only the last one is missing, if it was grown last and never forwarded. A model of hidden rows keeps
//! the root's and lacks those of accepted nodes: they were drafted from its own hidden rows, but the text is
//! conditioned on the verifier's (EAGLE, <https://arxiv.org/abs/2401.15077>), of one or several of its layers (EAGLE-3,
//! <https://arxiv.org/abs/2503.01840>). Either lacks what another drafter of a mixture proposed. With heads drafted
//! ahead a model of tokens lacks nothing: the last growth is forwarded in parallel with the verification, on a GPU on a
//! stream of its own (Yggdrasil, <https://arxiv.org/abs/2512.23858>, ahead-of-time tail draft). What was accepted is
//! read from the history.

use std::sync::Arc;

use crate::{
    plan::{DrafterId, ModelSettings, Schedule},
    runtime::{
        Choice, DraftPhase, DraftPhaseSize, DraftVariant, ExecutableSet, Forward, GrowingTree, Session,
        SessionOptions,
    },
    sample::Candidate,
    speculate::{SpeculateError, Stats, StepShape, StepStage, stats::Lap, tree_forward::tree_forward},
    tree::{NodeId, Source, Template, TokenTree},
};

use super::{
    AheadDrafter, Budget, Drafter, OneLaunchDrafter, OwnCache, Verified,
    growth::{Growth, plant},
    heads::Heads,
    propose_in_one_launch,
    ranking::Ranking,
    registry::{MakeContext, MakeDrafter},
    text_parts::TextParts,
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Model.source();

/// A node that was forwarded.
#[derive(Clone, Copy, Debug)]
struct Forwarded {
    node: NodeId,
    parent: NodeId,
    token: u32,
}

/// What the model reads in addition to tokens.
#[derive(Debug)]
enum Reads {
    /// Nothing.
    Tokens,
    /// The hidden row of the token before: the verifier's of the text, its own of drafted nodes, `[nodes, D]`, kept by
    /// their ids.
    HiddenRows { own: Vec<f32>, columns: usize, of_text: TextParts },
}

impl Reads {
    /// Tokens of the text before the first that has a row.
    fn skipped(&self) -> usize {
        match self {
            Reads::Tokens => 0,
            Reads::HiddenRows { .. } => 1,
        }
    }
}

/// The drafter that runs a model with a cache of its own.
///
/// Of a model that reads hidden rows, the text begins with the second token, since nothing is before the first.
#[derive(Debug)]
pub struct ModelDrafter {
    own: Session,
    reads: Reads,
    trimmed: Option<DraftVariant>,
    choice: Choice,
    growth: Growth,
    rows: Vec<NodeId>,
    candidates: Vec<Candidate>,
    /// The text whose rows are committed, with what is before the first of them.
    text: Vec<u32>,
    /// The forwarded nodes of the last tree, whose rows are in scratch after the text; none where they are of no
    /// further use.
    forwarded: Vec<Forwarded>,
    path: Vec<u32>,
    heads: Heads,
    /// Most tokens that are computed together with a root: as many as a step leaves.
    joined: usize,
    /// Tokens that the verifier knows.
    vocabulary: usize,
    /// Where the device grows the trees.
    phase: Option<DraftPhase>,
}

impl ModelDrafter {
    /// A drafter that runs the executables of `set` on the threads of `session`, the verifier's, and grows trees of the
    /// given shape.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if no executable holds a growth or gives as many candidates, or the model reads rows
    /// of another width; [`SpeculateError::Runtime`] if the verifier's session keeps no hidden rows for a model that
    /// reads them, or memory is refused.
    pub fn new(
        session: &Session,
        set: &Arc<ExecutableSet>,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        Growth::expect_width(set, shape)?;
        let (growth, choice) = Growth::equal(shape)?;
        let columns = set.given_columns();
        let reads = match columns {
            0 => Reads::Tokens,
            _ => Reads::HiddenRows {
                own: vec![0.0; shape.tree_nodes() * columns],
                columns,
                of_text: TextParts::of(session, set)?,
            },
        };
        let options = Self::session_options(&session.options(), set, shape);
        let own = Session::open_beside(Arc::clone(set), &options, session)?;
        let verified = shape.verify_width.min(shape.tree_nodes());
        Ok(Self {
            reads,
            trimmed: None,
            choice,
            growth,
            rows: Vec::with_capacity(shape.draft_width.max(verified)),
            candidates: Vec::with_capacity(ExecutableSet::MOST_CANDIDATES),
            text: Vec::with_capacity(session.context() + 1),
            forwarded: Vec::with_capacity(shape.tree_nodes()),
            path: Vec::with_capacity(shape.tree_nodes()),
            heads: Heads::with_capacity(shape.tree_nodes(), verified),
            // Verified nodes, of whichever drafter: in a mixture copies are deeper than its own trees.
            joined: shape
                .verify_width
                .min(*set.widths().last().expect("width 1 is planned"))
                .saturating_sub(1),
            vocabulary: session.set().vocabulary(),
            phase: None,
            own,
        })
    }

    /// How the drafter's own session is opened in addition to the verifier's: with room for heads drafted ahead, if it
    /// can draft them.
    pub fn session_options(
        options: &SessionOptions,
        set: &ExecutableSet,
        shape: &StepShape,
    ) -> SessionOptions {
        let context = options.context.min(set.model_context());
        let schedule = if set.given_columns() == 0 { Schedule::HeadAhead } else { Schedule::Plain };
        SessionOptions { context, tree_nodes: shape.scratch_rows(schedule), ..*options }
    }

    /// The same, but drafting the tokens of a trimmed head of its executables only.
    #[must_use]
    pub fn with_head(self, head: DraftVariant) -> Self {
        Self { trimmed: Some(head), ..self }
    }

    /// The same, but filling a template by the ranks of candidates instead of growing equally. It must fit the shape
    /// that the drafter was made for.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the shape is less deep, has fewer nodes on a level or keeps fewer candidates of a
    /// node.
    pub fn with_template(self, template: &Template, shape: &StepShape) -> Result<Self, SpeculateError> {
        let growth = Growth::by_template(template, shape, self.choice)?;
        Ok(Self { growth, ..self })
    }

    /// Keeps of the cache what is of the sequence `history`, whose last token is the next root, and commits what was
    /// drafted of it.
    fn follow(&mut self, history: &[u32]) {
        let committed = &history[..history.len() - 1];
        let mut same = self.text.iter().zip(committed).take_while(|(own, said)| own == said).count();
        if same < self.text.len() {
            // Of a text that rows cannot follow from there, less is kept.
            let wanted = same.saturating_sub(self.reads.skipped());
            let kept = self.own.resume_point(wanted);
            same -= wanted - kept;
            self.text.truncate(same);
            self.own.truncate(kept);
            self.forwarded.clear();
        }
        let (mut node, mut rest) = (None, &committed[same..]);
        self.path.clear();
        while let Some((token, later)) = rest.split_first() {
            let follows = |f: &&Forwarded| match node {
                None => f.node == NodeId::ROOT && f.token == *token,
                Some(parent) => f.node != NodeId::ROOT && f.parent == parent && f.token == *token,
            };
            let Some(found) = self.forwarded.iter().find(follows) else { break };
            node = Some(found.node);
            self.path.push(found.node.get());
            self.text.push(*token);
            rest = later;
        }
        if !self.path.is_empty() {
            self.own.commit(&self.path);
        }
        self.forwarded.clear();
        if self.text.len() < self.reads.skipped() && !committed.is_empty() {
            self.text.push(committed[0]);
        }
    }

    /// Whether it has what rows for `history[from..]` need: the tokens, and the hidden rows before them.
    fn can_read(&self, from: usize, history: &[u32], session: &Session) -> bool {
        let known = self.own.set().vocabulary();
        history[from..].iter().all(|token| (*token as usize) < known)
            && match self.reads {
                Reads::Tokens => true,
                Reads::HiddenRows { .. } => {
                    (from..history.len()).all(|place| session.committed_hidden(place - 1).is_some())
                }
            }
    }

    /// Commits the rows of `history[text.len()..]`.
    fn catch_up(&mut self, history: &[u32], session: &Session) -> Result<(), SpeculateError> {
        let from = self.text.len();
        let lacking = &history[from..];
        if lacking.is_empty() {
            return Ok(());
        }
        self.own.prefill_with(lacking, |index, row| match &self.reads {
            Reads::Tokens => {}
            Reads::HiddenRows { of_text, .. } => of_text.write(session, from + index - 1, row),
        })?;
        self.text.extend_from_slice(lacking);
        Ok(())
    }

    /// Rows that its context still holds after the text before the root at `root`.
    fn room(&self, root: usize) -> usize {
        root.checked_sub(self.reads.skipped()).map_or(0, |place| self.own.context().saturating_sub(place))
    }

    /// Brings the cache so far that a forward of the root holds what it lacks; how deep can be drafted from there,
    /// `most` at most.
    fn come_to_root(
        &mut self,
        history: &[u32],
        most: usize,
        session: &Session,
        stats: &mut Stats,
    ) -> Result<usize, SpeculateError> {
        self.follow(history);
        let root = history.len() - 1;
        let depth = most.min(self.room(root));
        if depth == 0 || !self.can_read(self.text.len(), history, session) {
            return Ok(0);
        }
        if root - self.text.len() > self.joined {
            stats.texts_read += 1;
            self.catch_up(&history[..root], session)?;
        }
        Ok(depth)
    }

    /// Forwards what the cache lacks of the text with the root after it, and commits the former. The root's candidates
    /// are left.
    fn forward_root(
        &mut self,
        history: &[u32],
        ranking: &Ranking,
        session: &Session,
    ) -> Result<(), SpeculateError> {
        let lacking = history.len() - 1 - self.text.len();
        let forward = behind_text(&mut self.own, &self.reads, self.text.len(), history, session)?;
        let (forward, choice) = ranking.asked(forward, self.reads.skipped());
        let choices = forward.choose_of(self.trimmed, choice, None);
        note(&mut self.candidates, choices.row(lacking).iter(), self.vocabulary);
        if let Reads::HiddenRows { own, columns, .. } = &mut self.reads {
            own[..*columns].copy_from_slice(choices.hidden(lacking));
        }
        self.commit_text(history);
        Ok(())
    }

    /// Commits what was forwarded of the text before the root.
    fn commit_text(&mut self, history: &[u32]) {
        let read = &history[self.text.len()..history.len() - 1];
        self.own.commit_behind(read.len());
        self.text.extend_from_slice(read);
    }

    /// Offers the noted candidates of a node, ranked for the token that follows it.
    fn expand(&mut self, tree: &mut TokenTree, node: NodeId, ranking: &Ranking, budget: &mut Budget<'_>) {
        ranking.rank(budget.history.len() + tree.depth(node) as usize, &mut self.candidates);
        if let Some(observer) = budget.observer.as_deref_mut() {
            observer.expanded(node, &self.candidates);
        }
        let candidates = self.candidates.iter().map(|c| (c.token, c.log_prob));
        self.growth.expand(tree, node, candidates, SOURCE);
    }
}

/// A forward of what follows the first `from` tokens of a text, which are in the cache.
fn behind_text<'s>(
    own: &'s mut Session,
    reads: &Reads,
    from: usize,
    history: &[u32],
    session: &Session,
) -> Result<Forward<'s>, SpeculateError> {
    let mut forward = own.forward_text(history.len() - from)?;
    for (row, token) in history[from..].iter().enumerate() {
        forward.push_behind(*token);
        match reads {
            Reads::Tokens => {}
            Reads::HiddenRows { of_text, .. } => {
                of_text.write(session, from + row - 1, forward.given_mut(row));
            }
        }
    }
    Ok(forward)
}

/// Keeps the candidates that the verifier knows: a model may have more rows in its head.
fn note(kept: &mut Vec<Candidate>, found: impl Iterator<Item = (u32, f32)>, vocabulary: usize) {
    kept.clear();
    let all = found.map(|(token, log_prob)| Candidate { token, log_prob });
    kept.extend(all.filter(|candidate| (candidate.token as usize) < vocabulary));
}

impl MakeDrafter for ModelSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth, shape, session } = *context;
        let set = session.set().draft(&self.model.digest)?;
        let mut drafter = ModelDrafter::new(session, set, shape)?;
        if let Some(tree) = growth.static_tree() {
            drafter = drafter.with_template(&tree.template, shape)?;
        }
        if let Some(tokens) = &self.head_tokens {
            drafter = drafter.with_head(set.head(tokens)?);
        }
        Ok(Some(Box::new(drafter)))
    }
}

impl Drafter for ModelDrafter {
    /// `depth` forwards, the root's with what the cache lacks before it, unless its head was drafted ahead, and then
    /// one after each growth but the last, as [`SelfDrafter`](super::SelfDrafter). Nothing where its context ends,
    /// after a token that it has not, or after tokens whose hidden rows the verifier's session did not keep.
    fn propose(&mut self, tree: &mut TokenTree, mut budget: Budget<'_>) -> Result<(), SpeculateError> {
        let ranking = Ranking::new(self.choice, budget.coupling, &self.own);
        if self.phase.is_some() && budget.observer.is_none() && ranking.suits_devices() {
            return propose_in_one_launch(self, tree, budget);
        }
        let mut lap = Lap::start();
        self.growth.restart();
        let history = budget.history;
        let depth = self.come_to_root(history, budget.depth, budget.session, budget.stats)?;
        if depth == 0 {
            return Ok(());
        }
        match self.heads.take(tree.token(NodeId::ROOT), history.len() - 1) {
            Some(candidates) => {
                let candidates = candidates.iter().map(|c| (c.token, c.log_prob));
                note(&mut self.candidates, candidates, self.vocabulary);
                budget.stats.heads_ahead += 1;
            }
            None => self.forward_root(history, &ranking, budget.session)?,
        }
        budget.stats.add_time(StepStage::Draft, lap.next());
        self.rows.clear();
        self.rows.push(NodeId::ROOT);
        self.note_forwarded(tree);
        self.expand(tree, NodeId::ROOT, &ranking, &mut budget);
        for growth in 0..depth {
            if growth > 0 {
                self.forward_rows(tree, &ranking, &mut budget, &mut lap)?;
            }
            self.growth.grow(tree, SOURCE, &mut self.rows);
            budget.stats.add_time(StepStage::Grow, lap.next());
            if self.rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn prefill(&mut self, history: &[u32], session: &Session) -> Result<(), SpeculateError> {
        self.follow(history);
        let root = history.len() - 1;
        let from = self.text.len();
        if self.room(root) == 0 || !self.can_read(from, &history[..root], session) {
            return Ok(());
        }
        self.catch_up(&history[..root], session)
    }

    /// Nodes of the last tree, whose rows are in scratch, are forgotten: others are written there.
    fn own_cache(&mut self) -> Option<OwnCache<'_>> {
        self.forwarded.clear();
        let Self { own: session, text, reads, .. } = self;
        Some(OwnCache { session, text, skipped: reads.skipped() })
    }

    fn ahead(&mut self) -> Option<&mut dyn AheadDrafter> {
        match self.reads {
            Reads::Tokens => Some(self),
            // The text stands on the verifier's rows, which are not known before.
            Reads::HiddenRows { .. } => None,
        }
    }

    fn in_one_launch(&mut self) -> Option<&mut dyn OneLaunchDrafter> {
        match self.growth {
            Growth::Equal { .. } => Some(self),
            Growth::Static(_) => None,
        }
    }
}

impl OneLaunchDrafter for ModelDrafter {
    fn prepare(&mut self, _session: &mut Session, shape: &StepShape) -> Result<bool, SpeculateError> {
        let size = DraftPhaseSize {
            depth: shape.depth,
            width: shape.draft_width,
            kept: self.choice.k,
            root_rows: self.joined + 1,
            vocabulary: self.vocabulary,
        };
        self.phase = self.own.prepare_phase(size, self.trimmed)?;
        Ok(self.phase.is_some())
    }

    fn growing(&mut self, _session: &mut Session) -> GrowingTree {
        self.own.growing(self.phase.expect("it was prepared"))
    }

    fn begin(&mut self, budget: Budget<'_>) -> Result<bool, SpeculateError> {
        let Budget { session, history, depth, coupling, stats, .. } = budget;
        let depth = self.come_to_root(history, depth, session, stats)?;
        if depth == 0 {
            return Ok(false);
        }
        let ranking = Ranking::new(self.choice, coupling, &self.own);
        let forward = behind_text(&mut self.own, &self.reads, self.text.len(), history, session)?;
        let (forward, choice) = ranking.asked_of_growth(forward, self.reads.skipped());
        forward.begin_growth(self.phase.expect("it was prepared"), depth, choice, None);
        self.commit_text(history);
        Ok(true)
    }

    fn plant(&mut self, tree: &mut TokenTree, _session: &mut Session) {
        let grown = self.own.grown(self.phase.expect("it was prepared"));
        let forwarded = grown.forwarded;
        plant(grown, SOURCE, tree);
        self.rows.clear();
        self.rows.extend(tree.nodes().take(forwarded));
        self.note_forwarded(tree);
    }
}

impl AheadDrafter for ModelDrafter {
    /// Begins one forward of the verified nodes that no growth forwarded, where the context holds them. Of what it
    /// computes keys and values are used alone.
    fn draft_tail(&mut self, tree: &TokenTree, rows: &[NodeId]) -> Result<(), SpeculateError> {
        let room = self.own.context() - self.own.committed();
        let forwarded = &self.forwarded;
        let lacks = |node: &NodeId| {
            (tree.depth(*node) as usize) < room && forwarded.iter().all(|other| other.node != *node)
        };
        self.rows.clear();
        self.rows.extend(rows.iter().copied().filter(lacks));
        if self.rows.is_empty() {
            return Ok(());
        }
        let forward = tree_forward(&mut self.own, tree, &self.rows)?;
        forward.begin_choice_of(self.trimmed, Choice::ARGMAX, None);
        self.note_forwarded(tree);
        Ok(())
    }

    /// As of any forward of its session, that of the tail has run before that of the heads begins.
    fn draft_heads(&mut self, verified: &Verified<'_>, _session: &mut Session) -> Result<(), SpeculateError> {
        let ranking = Ranking::new(self.choice, verified.coupling, &self.own);
        self.heads.draft(verified, &mut self.own, self.trimmed, &ranking, None)
    }

    fn keep_head(&mut self, row: usize, history: &[u32], _session: &mut Session) {
        self.follow(history);
        self.heads.keep(row, &mut self.own);
    }

    fn forget_heads(&mut self) {
        self.heads.forget();
    }
}

impl ModelDrafter {
    /// Forwards the nodes in `rows` and expands them.
    fn forward_rows(
        &mut self,
        tree: &mut TokenTree,
        ranking: &Ranking,
        budget: &mut Budget<'_>,
        lap: &mut Lap,
    ) -> Result<(), SpeculateError> {
        let mut forward = tree_forward(&mut self.own, tree, &self.rows)?;
        if let Reads::HiddenRows { own, columns, .. } = &self.reads {
            for (row, node) in self.rows.iter().enumerate() {
                let parent = tree.parent(*node).expect("grown nodes have parents");
                forward.give(row, &own[parent.index() * columns..][..*columns]);
            }
        }
        let (forward, choice) = ranking.asked(forward, self.reads.skipped());
        let choices = forward.choose_of(self.trimmed, choice, None);
        budget.stats.add_time(StepStage::Draft, lap.next());
        if let Reads::HiddenRows { own, columns, .. } = &mut self.reads {
            for (row, node) in self.rows.iter().enumerate() {
                own[node.index() * *columns..][..*columns].copy_from_slice(choices.hidden(row));
            }
        }
        for (row, node) in self.rows.iter().enumerate() {
            note(&mut self.candidates, choices.row(row).iter(), self.vocabulary);
            ranking.rank(budget.history.len() + tree.depth(*node) as usize, &mut self.candidates);
            if let Some(observer) = budget.observer.as_deref_mut() {
                observer.expanded(*node, &self.candidates);
            }
            let candidates = self.candidates.iter().map(|c| (c.token, c.log_prob));
            self.growth.expand(tree, *node, candidates, SOURCE);
        }
        self.note_forwarded(tree);
        Ok(())
    }

    /// Notes the nodes in `rows` as forwarded, where their rows can be those of the text: of hidden rows the root's,
    /// which stands on the verifier's.
    fn note_forwarded(&mut self, tree: &TokenTree) {
        let is_of_text = |node: &NodeId| match self.reads {
            Reads::HiddenRows { .. } => *node == NodeId::ROOT,
            Reads::Tokens => true,
        };
        self.forwarded.extend(self.rows.iter().copied().filter(is_of_text).map(|node| Forwarded {
            node,
            parent: tree.parent(node).unwrap_or(NodeId::ROOT),
            token: tree.token(node),
        }));
    }
}
