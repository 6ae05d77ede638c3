//! Token Recycling: a table of what the verifier last offered after every token fills one fixed tree by gathers.
//!
//! Luo et al. (<https://arxiv.org/abs/2408.08696>). The verifier's best continuations of every verified row are kept,
//! of rejected rows too, and the next step gathers them again along the template: no search, and the same shape at
//! every step.

use crate::{
    plan::{DrafterId, ProposalLimits, RecyclingSettings},
    sample::{Candidate, Coupling},
    speculate::{SpeculateError, StepOutcome, StepShape, StepStage, stats::Lap},
    tree::{NodeId, Source, TokenTree},
};

use self::template::{MOST_RANKS, Template};
use super::{
    Budget, Drafter,
    registry::{MakeContext, MakeDrafter},
};

mod template;

/// The drafter's mark.
const SOURCE: Source = DrafterId::Recycling.source();
/// No token of a model.
const NONE: Candidate = Candidate { token: u32::MAX, log_prob: f32::NEG_INFINITY };

/// The drafter that recycles what the verifier offered.
#[derive(Clone, Debug)]
pub struct Recycling {
    /// The last seen successors of every token with their logits, best first: `[V][MOST_RANKS]`, [`NONE`] after the
    /// last.
    successors: Vec<[Candidate; MOST_RANKS]>,
    template: Template,
    limits: ProposalLimits,
    /// The tree's node of every node of the template that was filled.
    filled: Vec<Option<NodeId>>,
    /// By the nodes of the tree: the successors that may follow, in the order in which ranks take them.
    ordered: Vec<[Candidate; MOST_RANKS]>,
}

impl Recycling {
    /// A drafter that has seen nothing of a vocabulary of `vocabulary` tokens, for proposals within
    /// [`StepShape::limits`]. Reserves all of its memory.
    pub fn new(vocabulary: usize, shape: &StepShape) -> Self {
        let limits = shape.limits();
        let template = Template::new(limits.depth, limits.nodes);
        let filled = Vec::with_capacity(template.len());
        let ordered = Vec::with_capacity(template.len() + 1);
        Self { successors: vec![[NONE; MOST_RANKS]; vocabulary], template, limits, filled, ordered }
    }

    /// The successors of a token, best first.
    pub fn successors(&self, token: u32) -> impl Iterator<Item = u32> {
        let row = self.successors.get(token as usize).into_iter().flatten();
        row.map(|successor| successor.token).take_while(|token| *token != NONE.token)
    }

    /// Fills the template from the root's token on, as deep as `depth`. Where fewer successors are known, the nodes
    /// that would carry them are left out with all below them. The value of a node is its template's: it ranks nodes
    /// for pruning. Under noise, which decides the tokens from `first` on, ranks are those of the likeliest winners.
    fn fill(&mut self, depth: u32, noise: Option<(&Coupling, usize)>, tree: &mut TokenTree) {
        self.filled.clear();
        self.ordered.clear();
        self.ordered.push(self.in_order(tree.token(NodeId::ROOT), noise, 0));
        for node in self.template.nodes() {
            let parent = match node.parent {
                None => Some(NodeId::ROOT),
                Some(parent) => self.filled[parent],
            };
            let filled = parent.filter(|parent| tree.depth(*parent) < depth).and_then(|parent| {
                // Nodes are added in the order of their ids.
                let Candidate { token, .. } = self.ordered[parent.index()][usize::from(node.rank)];
                (token != NONE.token)
                    .then(|| tree.insert(parent, token, node.value, node.rank, SOURCE).node())?
            });
            if let Some(filled) = filled {
                self.ordered.push(self.in_order(tree.token(filled), noise, tree.depth(filled) as usize));
            }
            self.filled.push(filled);
        }
    }

    /// The successors of a token so many places after the first.
    fn in_order(
        &self,
        token: u32,
        noise: Option<(&Coupling, usize)>,
        depth: usize,
    ) -> [Candidate; MOST_RANKS] {
        let mut row = self.successors.get(token as usize).copied().unwrap_or([NONE; MOST_RANKS]);
        if let Some((coupling, first)) = noise {
            coupling.order(first + depth, &mut row);
        }
        row
    }

    /// Keeps what the verifier offered after a row.
    fn note(&mut self, token: u32, offered: impl Iterator<Item = Candidate>) {
        let Some(row) = self.successors.get_mut(token as usize) else { return };
        *row = [NONE; MOST_RANKS];
        for (place, successor) in row.iter_mut().zip(offered) {
            *place = successor;
        }
    }
}

impl MakeDrafter for RecyclingSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        Ok(Some(Box::new(Recycling::new(context.session.set().vocabulary(), context.shape))))
    }
}

impl Drafter for Recycling {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let mut lap = Lap::start();
        let depth = self.limits.depth.min(u32::try_from(budget.depth).unwrap_or(u32::MAX));
        let noise = budget.coupling.as_ref().map(|coupling| (coupling, budget.history.len()));
        self.fill(depth, noise, tree);
        budget.stats.add_time(StepStage::Draft, lap.next());
        Ok(())
    }

    fn candidates_to_learn(&self) -> usize {
        MOST_RANKS
    }

    /// What follows a token in the prompt stands for what the verifier was never asked.
    fn begin(&mut self, history: &[u32]) {
        for pair in history.windows(2) {
            if let Some(row) = self.successors.get_mut(pair[0] as usize)
                && row[0] == NONE
            {
                row[0] = Candidate { token: pair[1], log_prob: 0.0 };
            }
        }
    }

    fn recall(&mut self, token: u32, offered: &[Candidate]) {
        self.note(token, offered.iter().copied());
    }

    fn forget_texts(&mut self) {
        self.successors.fill([NONE; MOST_RANKS]);
    }

    /// Rows of the accepted path come last, so that a token that was verified in several places keeps what it was
    /// offered in the true one.
    fn learn(&mut self, outcome: &StepOutcome<'_>) {
        let StepOutcome { tree, rows, offers, path, .. } = *outcome;
        for on_path in [false, true] {
            for (row, node) in rows.iter().enumerate() {
                if path.binary_search(node).is_ok() == on_path {
                    self.note(tree.token(*node), offers.row(row).iter().copied());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{super::testing::shape, *};
    use crate::speculate::CandidateRows;

    fn filled(drafter: &mut Recycling, root: u32, depth: u32) -> TokenTree {
        let mut tree = TokenTree::with_capacity(128);
        tree.reset(root);
        drafter.fill(depth, None, &mut tree);
        tree.check().unwrap();
        tree
    }

    /// Successors that are a function of the token: as many as `most`.
    fn offered(token: u32, most: usize) -> Vec<u32> {
        (0..most as u32).map(|rank| (token * 7 + rank * 3 + 1) % 50).collect()
    }

    fn candidates(tokens: &[u32]) -> impl Iterator<Item = Candidate> {
        tokens.iter().map(|token| Candidate { token: *token, log_prob: 0.0 })
    }

    fn teach(drafter: &mut Recycling, tree: &TokenTree, path: &[NodeId], most: usize) {
        let rows: Vec<NodeId> = tree.nodes().collect();
        let mut offers = CandidateRows::with_capacity(rows.len(), MOST_RANKS);
        for row in &rows {
            let candidates = offered(tree.token(*row), most).into_iter();
            offers.add_row(|out| out.extend(candidates.map(|token| Candidate { token, log_prob: 0.0 })));
        }
        drafter.learn(&StepOutcome { tree, rows: &rows, offers: &offers, path, history: &[1], emitted: 1 });
    }

    #[test]
    fn a_known_vocabulary_fills_the_whole_template_and_an_unknown_one_nothing() {
        let mut drafter = Recycling::new(50, &shape(6, 14, 80));
        assert_eq!(filled(&mut drafter, 3, 6).len(), 1);
        for token in 0..50 {
            drafter.note(token, candidates(&offered(token, MOST_RANKS)));
        }
        let tree = filled(&mut drafter, 3, 6);
        assert_eq!(tree.len(), 80);
        assert_eq!(tree.nodes().map(|n| tree.depth(n)).max(), Some(6));
        for node in tree.nodes().skip(1) {
            let parent = tree.parent(node).unwrap();
            let place = usize::from(tree.rank(node));
            assert_eq!(tree.token(node), offered(tree.token(parent), MOST_RANKS)[place]);
        }
        let shallow = filled(&mut drafter, 3, 2);
        assert_eq!(shallow.nodes().map(|n| shallow.depth(n)).max(), Some(2));
        let few = filled(&mut Recycling { template: Template::new(6, 10), ..drafter.clone() }, 3, 6);
        let first: Vec<u32> = tree.nodes().take(10).map(|n| tree.token(n)).collect();
        assert_eq!(few.nodes().map(|n| few.token(n)).collect::<Vec<_>>(), first);
    }

    #[test]
    fn what_the_verifier_said_last_is_kept_and_of_the_accepted_path_before_other_rows() {
        let mut drafter = Recycling::new(50, &shape(6, 8, 48));
        let mut judge: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut tree = TokenTree::with_capacity(8);
        for step in 0..40_u32 {
            tree.reset(step % 11);
            for i in 0..7 {
                let parent = NodeId::from_index((i * 5 + step as usize) % tree.len());
                let _ = tree.insert(parent, (step * 3 + i as u32 * 7) % 50, 0.5, 0, Source::NONE);
            }
            let most = (step % 9) as usize;
            teach(&mut drafter, &tree, &[NodeId::ROOT], most);
            judge.extend(tree.nodes().map(|n| (tree.token(n), offered(tree.token(n), most))));
            for token in 0..50 {
                let expected = judge.get(&token).cloned().unwrap_or_default();
                assert_eq!(drafter.successors(token).collect::<Vec<_>>(), expected);
            }
        }
        // Token 4 twice: under the root, on the path, and below a sibling that came later.
        tree.reset(1);
        let true_place = tree.insert(NodeId::ROOT, 4, 0.5, 0, Source::NONE).node().unwrap();
        let other = tree.insert(NodeId::ROOT, 5, 0.5, 0, Source::NONE).node().unwrap();
        let false_place = tree.insert(other, 4, 0.5, 0, Source::NONE).node().unwrap();
        let rows = [NodeId::ROOT, true_place, other, false_place];
        let mut offers = CandidateRows::with_capacity(4, MOST_RANKS);
        for token in [4, 20, 30, 40] {
            offers.add_row(|out| out.push(Candidate { token, log_prob: 0.0 }));
        }
        let path = [NodeId::ROOT, true_place];
        drafter.learn(&StepOutcome {
            tree: &tree,
            rows: &rows,
            offers: &offers,
            path: &path,
            history: &[1, 4, 20],
            emitted: 2,
        });
        assert_eq!(drafter.successors(4).collect::<Vec<_>>(), [20]);
        assert_eq!(drafter.successors(5).collect::<Vec<_>>(), [30]);
    }

    #[test]
    fn a_prompt_fills_only_what_is_unknown_and_unknown_tokens_harm_nothing() {
        let mut drafter = Recycling::new(10, &shape(2, 2, 4));
        drafter.note(3, candidates(&[5, 6]));
        drafter.begin(&[3, 7, 8, 7, 9, 400, 2]);
        let known = |token| drafter.successors(token).collect::<Vec<_>>();
        assert_eq!((known(3), known(7), known(8), known(9)), (vec![5, 6], vec![8], vec![7], vec![400]));
        assert_eq!((known(400), known(2)), (vec![], vec![]));
        assert_eq!(filled(&mut drafter, 9, 2).len(), 2, "nothing is known after token 400");
    }
}
