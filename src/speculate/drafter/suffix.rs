//! Suffix: continues the longest suffix of the sequence that occurred earlier, in this request or those before it, by
//! how often it went on in each way, and the deeper the longer the match.
//!
//! After SuffixDecoding (<https://arxiv.org/abs/2411.04975>), over an automaton instead of trees. A proposal is a
//! function of the committed tokens of all requests so far, so the planner replays this very drafter without any model.

mod automaton;

use crate::{
    plan::{DrafterId, ProposalLimits, ReplayDrafter, SuffixSettings},
    sample::Coupling,
    speculate::{SpeculateError, StepShape},
    tree::{NodeId, Source, TokenTree},
};

use self::automaton::{Automaton, Match, Place};
use super::{
    Budget, Drafter, propose_by_history,
    registry::{MakeContext, MakeDrafter, Replay},
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Suffix.source();
/// Most continuations of a string that are looked at.
const MOST_CONTINUATIONS: usize = 32;

/// A token that may be drafted.
#[derive(Clone, Copy, Debug)]
struct Continuation {
    parent: NodeId,
    token: u32,
    /// What precedes it.
    context: Place,
    value: f32,
    /// Share of a value that each further token keeps.
    keep: f32,
    /// Tokens that may follow it.
    depth_left: u32,
}

/// The suffix drafter.
#[derive(Clone, Debug)]
pub struct Suffix {
    settings: SuffixSettings,
    limits: ProposalLimits,
    automaton: Automaton,
    /// Tokens of the request that the automaton knows, and the last of them.
    known: usize,
    last: u32,
    /// Best first.
    frontier: Vec<Continuation>,
}

impl Suffix {
    /// A drafter that remembers nothing yet, for proposals within [`StepShape::limits`]. Reserves all of its memory.
    ///
    /// # Panics
    /// If the settings are not valid ([`DrafterKind::validate`](crate::plan::DrafterKind::validate)).
    pub fn new(settings: SuffixSettings, shape: &StepShape) -> Self {
        let limits = shape.limits();
        Self {
            settings,
            limits,
            automaton: Automaton::with_capacity(settings.remembered as usize, settings.counted),
            known: 0,
            last: 0,
            frontier: Vec::with_capacity(limits.nodes as usize * limits.width.max(1) as usize + 1),
        }
    }

    /// Tokens remembered, one for every end of a request among them.
    pub fn remembered(&self) -> usize {
        self.automaton.len()
    }

    /// Begins a request with these tokens.
    fn remember(&mut self, history: &[u32]) {
        self.automaton.begin(history.len());
        self.known = 0;
        self.catch_up(history);
    }

    /// Takes note of the tokens that are new.
    fn catch_up(&mut self, history: &[u32]) {
        for token in &history[self.known..] {
            self.automaton.push(*token);
        }
        self.known = history.len();
        self.last = history.last().copied().unwrap_or_default();
    }

    /// Whether `history` goes on where the known tokens end.
    fn is_continued_by(&self, history: &[u32]) -> bool {
        self.known <= history.len() && (self.known == 0 || history[self.known - 1] == self.last)
    }

    /// Offers what follows `context` as children of `parent`, by how often it did.
    fn expand(
        &mut self,
        (parent, context): (NodeId, Place),
        (value, keep): (f32, f32),
        (depth, most): (u32, usize),
        noise: Option<(&Coupling, usize)>,
    ) {
        let Some(depth_left) = depth.checked_sub(1) else { return };
        let odds = |token| noise.map_or(1.0, |(coupling, place)| coupling.odds(place, token));
        let weighted = |(token, count): (u32, u32)| (token, count as f32 * odds(token));
        let continuations = || self.automaton.continuations(context).take(MOST_CONTINUATIONS).map(weighted);
        let all: f32 = continuations().map(|(_, weight)| weight).sum();
        // Half an occurrence more stands for what was never seen.
        let unseen = 0.5 * noise.map_or(1.0, |_| Coupling::UNKNOWN_ODDS);
        for (token, weight) in continuations() {
            let value = value * keep * weight / (all + unseen);
            let place = self.frontier.partition_point(|other| other.value >= value);
            if place < most {
                self.frontier.truncate(most - 1);
                let new = Continuation { parent, token, context, value, keep, depth_left };
                self.frontier.insert(place, new);
            }
        }
    }
}

impl ReplayDrafter for Suffix {
    fn forget(&mut self) {
        self.automaton.clear();
        self.known = 0;
    }

    fn begin(&mut self, history: &[u32]) {
        self.remember(history);
    }

    /// Continues the `limits.width` longest suffixes that differ in where they occurred, each at most
    /// `tokens_per_match` tokens deep for every token that matched, `limits.depth` at most; the best continuations of
    /// all together fill the tree to `limits.nodes`. The value of a node is the product of the shares of its path among
    /// what was seen, less for shorter matches: it ranks nodes for pruning and claims no probability.
    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        let noise = |depth: u32| coupling.map(|coupling| (coupling, history.len() + depth as usize));
        if self.is_continued_by(history) {
            self.catch_up(history);
        } else {
            self.remember(history);
        }
        let ProposalLimits { depth, width, nodes } = *limits;
        let nodes = (nodes as usize).min(tree.capacity());
        // As many as nodes are left, of each of the matches: several may name one node.
        let most = |tree: &TokenTree| (nodes - tree.len()) * width.max(1) as usize;
        self.frontier.clear();
        let mut width_left = width;
        let mut matched = u32::MAX;
        while width_left > 0 {
            let next = self.automaton.matches().find(|m| m.length < matched);
            let Some(Match { length, context }) = next else { break };
            let keep = 1.0 - 1.0 / (1.0 + length as f32);
            let depth = depth.min(length.saturating_mul(self.settings.tokens_per_match));
            self.expand((NodeId::ROOT, context), (1.0, keep), (depth, most(tree)), noise(0));
            (matched, width_left) = (length, width_left - 1);
        }
        while tree.len() < nodes && !self.frontier.is_empty() {
            let Continuation { parent, token, context, value, keep, depth_left } = self.frontier.remove(0);
            let Some(node) = tree.insert(parent, token, value, 0, SOURCE).node() else { return };
            let context = self.automaton.follow(context, token).expect("it was a continuation");
            let left = (depth_left, most(tree));
            self.expand((node, context), (value, keep), left, noise(tree.depth(node)));
        }
    }
}

impl MakeDrafter for SuffixSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        Ok(Some(Box::new(Suffix::new(*self, context.shape))))
    }

    /// Fewer shapes than of others: it remembers requests, which makes its replays slower.
    fn replay(&self) -> Result<Option<Replay>, SpeculateError> {
        let drafter = Box::new(Suffix::new(*self, &StepShape::PLAIN));
        Ok(Some(Replay { drafter, depths: &[2, 4, 7, 11], widths: &[1, 3] }))
    }
}

impl Drafter for Suffix {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        propose_by_history(self.limits, self, tree, budget);
        Ok(())
    }

    fn begin(&mut self, history: &[u32]) {
        self.remember(history);
    }

    fn forget_texts(&mut self) {
        ReplayDrafter::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::shape, *};
    use crate::speculate::{StepStage, stats::Lap};

    const SETTINGS: SuffixSettings = SuffixSettings { tokens_per_match: 2, counted: 16, remembered: 4096 };

    fn propose(drafter: &mut Suffix, history: &[u32]) -> TokenTree {
        let limits = drafter.limits;
        let mut tree = TokenTree::with_capacity(64);
        tree.reset(*history.last().unwrap());
        ReplayDrafter::propose(drafter, history, &limits, None, &mut tree);
        tree.check().unwrap();
        assert!(tree.len() <= limits.nodes as usize);
        tree
    }

    fn drafted(requests: &[&[u32]], shape: &StepShape) -> Vec<u32> {
        let mut drafter = Suffix::new(SETTINGS, shape);
        let mut tree = TokenTree::with_capacity(1);
        for request in requests {
            drafter.remember(request);
            tree = propose(&mut drafter, request);
        }
        tree.nodes().skip(1).map(|n| tree.token(n)).collect()
    }

    #[test]
    fn the_longest_match_goes_on_as_it_did_most_often_and_twice_as_deep_as_it_is_long() {
        // `2 3` went on with 7 once and with 8 twice; `3` alone with 9 as well.
        let history = [2, 3, 7, 4, 2, 3, 8, 5, 5, 2, 3, 8, 6, 6, 6, 3, 9, 2, 3];
        assert_eq!(drafted(&[&history], &shape(4, 1, 2)), [8]);
        let two = drafted(&[&history], &shape(2, 1, 3));
        assert_eq!(two, [8, 7]);
        let three = drafted(&[&history], &shape(1, 3, 4));
        assert_eq!(three, [8, 7, 9]);
        // One token that matched is worth two drafted ones, two are worth four.
        assert_eq!(drafted(&[&[1, 5, 6, 7, 8, 9, 1]], &shape(8, 1, 9)), [5, 6]);
        assert_eq!(drafted(&[&[1, 2, 5, 6, 7, 8, 9, 4, 1, 2]], &shape(8, 1, 9)), [5, 6, 7, 8]);
        assert_eq!(drafted(&[&[1, 2, 5, 6, 7, 8, 9, 4, 1, 2]], &shape(3, 1, 4)), [5, 6, 7]);
    }

    #[test]
    fn past_requests_count_and_their_ends_are_no_continuation() {
        assert_eq!(drafted(&[&[1, 2, 3, 4], &[9, 1, 2]], &shape(8, 1, 9)), [3, 4]);
        assert_eq!(drafted(&[&[5, 1, 2], &[9, 1, 2]], &shape(4, 1, 5)), [0_u32; 0]);
        assert_eq!(drafted(&[&[1, 2, 3, 4], &[8, 7]], &shape(4, 1, 5)), [0_u32; 0]);
    }

    #[test]
    fn a_history_is_read_on_or_begun_anew_and_forgotten_when_asked() {
        let shape = shape(4, 2, 6);
        let mut drafter = Suffix::new(SETTINGS, &shape);
        let text = [4, 5, 6, 7, 4, 5, 6, 8, 4, 5];
        for end in 1..=text.len() {
            let on = propose(&mut drafter, &text[..end]);
            let mut fresh = Suffix::new(SETTINGS, &shape);
            let anew = propose(&mut fresh, &text[..end]);
            let tokens = |tree: &TokenTree| tree.nodes().map(|n| tree.token(n)).collect::<Vec<_>>();
            assert_eq!(tokens(&on), tokens(&anew));
        }
        assert_eq!(drafter.remembered(), text.len());
        propose(&mut drafter, &text[..3]);
        assert_eq!(drafter.remembered(), text.len() + 1 + 3, "a shorter history is another request");
        drafter.forget();
        assert_eq!(propose(&mut drafter, &[4, 5]).len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_a_lookup_takes_microseconds() {
        let settings = SuffixSettings { remembered: 16_384, ..SETTINGS };
        let shape = shape(8, 2, 16);
        let mut drafter = Suffix::new(settings, &shape);
        let mut tree = TokenTree::with_capacity(shape.tree_nodes());
        let (mut history, mut state, mut drafted) = (Vec::new(), 1_u32, 0);
        let mut stats = crate::speculate::Stats::default();
        let mut lap = Lap::start();
        for i in 0..200_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if i % 700 == 0 {
                history.clear();
            }
            // Texts over a small alphabet, with passages that return.
            history.push(if i % 50 < 25 { i % 50 } else { state >> 26 });
            if history.len() == 1 {
                drafter.remember(&history);
            }
            tree.reset(*history.last().unwrap());
            ReplayDrafter::propose(&mut drafter, &history, &shape.limits(), None, &mut tree);
            drafted += tree.len() - 1;
            assert!(drafter.remembered() <= 16_384 && drafter.frontier.capacity() <= 33);
        }
        stats.add_time(StepStage::Draft, lap.next());
        let us = stats.stage_time(StepStage::Draft).as_secs_f64() * 1e6 / 200_000.0;
        #[expect(clippy::print_stderr, reason = "a figure to read, not to judge by")]
        {
            eprintln!("a token learned and a proposal made: {us:.2} us");
        }
        assert!(drafted > 200_000, "only {drafted} tokens were drafted");
    }
}
