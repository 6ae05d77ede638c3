//! Self-drafting: the verifier, made cheaper, drafts a tree over its own cache, an Equal-Growth Tree or one of a
//! template.
//!
//! It is cheaper without some of its sub-layers (layer skip, here with a fixed skip set: SWIFT,
//! <https://arxiv.org/abs/2410.06916>), by a trimmed head, which knows some tokens only, or by matrices of fewer bits
//! (SubSpec, <https://arxiv.org/abs/2509.18344>). The drafter reads the committed keys and values of the layers it
//! keeps and writes its own rows to scratch slots; verification rewrites them, so there is nothing to clone, nothing to
//! prefill and nothing to commit.

use crate::{
    plan::{DrafterId, GrowthChoice},
    runtime::{
        Choice, DraftPhase, DraftPhaseSize, DraftVariant, ExecutableSet, GrowingTree, Session, SkipSet,
    },
    sample::Candidate,
    speculate::{SpeculateError, StepShape, StepStage, stats::Lap, tree_forward::tree_forward},
    tree::{NodeId, Source, Template, TokenTree},
};

use super::{
    AheadDrafter, Budget, Drafter, OneLaunchDrafter, TraceObserver, Verified,
    growth::{Growth, plant},
    heads::Heads,
    propose_in_one_launch,
    ranking::Ranking,
};

/// The verifier as its own drafter.
#[derive(Debug)]
pub struct SelfDrafter {
    source: Source,
    skip: SkipSet,
    variant: Option<DraftVariant>,
    choice: Choice,
    growth: Growth,
    rows: Vec<NodeId>,
    candidates: Vec<Candidate>,
    /// Rows of each forward of the last proposal.
    forwards: Vec<u32>,
    heads: Heads,
    /// Where the device grows the trees.
    phase: Option<DraftPhase>,
    /// Rows of its forwards there, but for the root's.
    growth_rows: u32,
}

impl SelfDrafter {
    /// Layer skip: a drafter that leaves out `skip` and grows trees of the given shape.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if no executable of the session holds a growth or gives as many candidates.
    pub fn layer_skip(session: &Session, skip: SkipSet, shape: &StepShape) -> Result<Self, SpeculateError> {
        Self::new(session, DrafterId::LayerSkip.source(), skip, shape)
    }

    /// A drafter that runs all sub-layers, by a variant, which is a substitute, and grows trees of the given shape.
    ///
    /// # Errors
    /// As [`layer_skip`](Self::layer_skip).
    pub fn substitute(
        session: &Session,
        variant: DraftVariant,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        let nothing = SkipSet::none(session.set().groups());
        let whole = Self::new(session, DrafterId::Substitute.source(), nothing, shape)?;
        Ok(whole.with_variant(variant))
    }

    fn new(
        session: &Session,
        source: Source,
        skip: SkipSet,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        Growth::expect_width(session.set(), shape)?;
        let (growth, choice) = Growth::equal(shape)?;
        let nodes = shape.tree_nodes();
        Ok(Self {
            source,
            skip,
            variant: None,
            choice,
            growth,
            rows: Vec::with_capacity(shape.draft_width),
            candidates: Vec::with_capacity(ExecutableSet::MOST_CANDIDATES),
            forwards: Vec::with_capacity(shape.depth),
            heads: Heads::with_capacity(nodes, nodes.min(shape.verify_width)),
            phase: None,
            growth_rows: u32::try_from(shape.draft_width).expect("widths are small"),
        })
    }

    /// The same, but drafting by a variant of the session's executables.
    #[must_use]
    pub fn with_variant(self, variant: DraftVariant) -> Self {
        Self { variant: Some(variant), ..self }
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

    /// The same with trees that grow as a plan says.
    pub(super) fn grown_as(self, growth: &GrowthChoice, shape: &StepShape) -> Result<Self, SpeculateError> {
        match growth.static_tree() {
            Some(tree) => self.with_template(&tree.template, shape),
            None => Ok(self),
        }
    }

    /// Offers the noted candidates of a node, after ranking them for the place of the token that follows it.
    fn expand(
        &mut self,
        tree: &mut TokenTree,
        (node, place): (NodeId, usize),
        ranking: &Ranking,
        observer: &mut Option<&mut dyn TraceObserver>,
    ) {
        ranking.rank(place, &mut self.candidates);
        if let Some(observer) = observer.as_deref_mut() {
            observer.expanded(node, &self.candidates);
        }
        let candidates = self.candidates.iter().map(|c| (c.token, c.log_prob));
        self.growth.expand(tree, node, candidates, self.source);
    }

    /// What it leaves out.
    pub(super) fn skip(&self) -> &SkipSet {
        &self.skip
    }

    /// Leaves out the groups that `is_skipped` names from now on. Heads drafted ahead are dropped: they left out
    /// others.
    pub(super) fn skip_instead(&mut self, is_skipped: impl Fn(u32) -> bool) {
        self.skip.assign(is_skipped);
        self.heads.forget();
    }

    /// Rows of each forward of the last proposal; heads drafted ahead are not among them.
    pub(super) fn forwards(&self) -> &[u32] {
        &self.forwards
    }
}

impl Drafter for SelfDrafter {
    /// `depth` forwards, the root's of one row and then one after each growth but the last, of Wd rows (Yggdrasil,
    /// Equal-Growth Tree) or of the nodes that have children in the template: what has no children is never forwarded
    /// here, and neither is a root whose head was drafted ahead.
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let Budget { session, history, depth, rows, coupling, stats, mut observer } = budget;
        let ranking = Ranking::new(self.choice, coupling, session);
        if self.phase.is_some() && observer.is_none() && ranking.suits_devices() {
            return propose_in_one_launch(
                self,
                tree,
                Budget { session, history, depth, rows, coupling, stats, observer },
            );
        }
        self.growth.restart();
        self.forwards.clear();
        self.rows.clear();
        self.rows.push(NodeId::ROOT);
        let mut lap = Lap::start();
        let head = self.heads.take(tree.token(NodeId::ROOT), session.committed());
        let has_head = head.is_some();
        if let Some(candidates) = head {
            self.candidates.clear();
            self.candidates.extend_from_slice(candidates);
            self.expand(tree, (NodeId::ROOT, history.len()), &ranking, &mut observer);
            stats.heads_ahead += 1;
        }
        for growth in 0..depth {
            if growth > 0 || !has_head {
                let (forward, choice) = ranking.asked(tree_forward(session, tree, &self.rows)?, 0);
                let choices = forward.choose_of(self.variant, choice, Some(&self.skip));
                stats.add_time(StepStage::Draft, lap.next());
                self.forwards.push(u32::try_from(self.rows.len()).expect("widths are small"));
                for row in 0..self.rows.len() {
                    let candidates = choices.row(row).iter();
                    self.candidates.clear();
                    self.candidates.extend(candidates.map(|(token, log_prob)| Candidate { token, log_prob }));
                    let node = (self.rows[row], history.len() + growth);
                    self.expand(tree, node, &ranking, &mut observer);
                }
            }
            self.growth.grow(tree, self.source, &mut self.rows);
            stats.add_time(StepStage::Grow, lap.next());
            if self.rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn ahead(&mut self) -> Option<&mut dyn AheadDrafter> {
        Some(self)
    }

    fn in_one_launch(&mut self) -> Option<&mut dyn OneLaunchDrafter> {
        match self.growth {
            Growth::Equal { .. } => Some(self),
            Growth::Static(_) => None,
        }
    }
}

impl OneLaunchDrafter for SelfDrafter {
    fn prepare(&mut self, session: &mut Session, shape: &StepShape) -> Result<bool, SpeculateError> {
        let size = DraftPhaseSize {
            depth: shape.depth,
            width: shape.draft_width,
            kept: self.choice.k,
            root_rows: 1,
            vocabulary: session.set().vocabulary(),
        };
        self.phase = session.prepare_phase(size, self.variant)?;
        Ok(self.phase.is_some())
    }

    fn growing(&mut self, session: &mut Session) -> GrowingTree {
        session.growing(self.phase.expect("it was prepared"))
    }

    fn begin(&mut self, budget: Budget<'_>) -> Result<bool, SpeculateError> {
        let Budget { session, history, depth, coupling, .. } = budget;
        self.forwards.clear();
        self.forwards.push(1);
        self.forwards.extend((1..depth).map(|_| self.growth_rows));
        let ranking = Ranking::new(self.choice, coupling, session);
        let mut forward = session.forward(1)?;
        forward.push_behind(history[history.len() - 1]);
        let (forward, choice) = ranking.asked_of_growth(forward, 0);
        forward.begin_growth(self.phase.expect("it was prepared"), depth, choice, Some(&self.skip));
        Ok(true)
    }

    fn plant(&mut self, tree: &mut TokenTree, session: &mut Session) {
        plant(session.grown(self.phase.expect("it was prepared")), self.source, tree);
    }
}

impl AheadDrafter for SelfDrafter {
    fn draft_heads(&mut self, verified: &Verified<'_>, session: &mut Session) -> Result<(), SpeculateError> {
        let ranking = Ranking::new(self.choice, verified.coupling, session);
        self.heads.draft(verified, session, self.variant, &ranking, Some(&self.skip))
    }

    fn keep_head(&mut self, row: usize, _history: &[u32], session: &mut Session) {
        self.heads.keep(row, session);
    }

    fn forget_heads(&mut self) {
        self.heads.forget();
    }
}
