//! The cache over a session's life: whatever was forwarded, committed, dropped and poisoned, what counts is the
//! committed sequence. The judge is a fresh session that prefills it.

use std::sync::Arc;

use ygg_kernels::Tier;
use yggc::runtime::{ExecutableSet, Session};

use crate::tiny_model::{Dice, bits, cases, session, some_models};

const CONTEXT: usize = 96;
const TREE_NODES: usize = 24;

/// A session and the sequence that it should hold.
struct Subject {
    session: Session,
    tokens: Vec<u32>,
    vocabulary: usize,
}

impl Subject {
    fn room(&self) -> usize {
        CONTEXT - self.tokens.len()
    }

    fn append(&mut self, dice: &mut Dice) {
        let len = dice.within(1, self.room().min(40));
        let piece = dice.tokens(len, self.vocabulary);
        if dice.chance(50) {
            self.session.prefill(&piece).expect("it fits");
        } else {
            self.session.score(&piece, |_, _| ()).expect("it fits");
        }
        self.tokens.extend(piece);
    }

    /// Forwards some nodes of a random tree, as pruning would, and commits a path of them, or nothing.
    fn forward_and_commit(&mut self, dice: &mut Dice) {
        let nodes = dice.within(1, TREE_NODES);
        let tokens = dice.tokens(nodes, self.vocabulary);
        let (mut parents, mut paths) = (vec![0], vec![vec![0u32]]);
        for node in 1..nodes {
            let parent = dice.below(node);
            let full = paths[parent].len() == self.room();
            let parent = if full { 0 } else { parent };
            parents.push(parent);
            paths.push([&paths[parent][..], &[node as u32]].concat());
        }
        let mut kept = vec![true; nodes];
        for node in 1..nodes {
            kept[node] = kept[parents[node]] && paths[node].len() <= self.room() && dice.chance(80);
        }
        let rows: Vec<usize> = (0..nodes).filter(|node| kept[*node]).collect();
        let mut forward = self.session.forward(rows.len()).expect("the width is planned");
        for row in &rows {
            let path = &paths[*row];
            forward.push(tokens[*row], path.len() as u32 - 1, *row as u32, |tail| {
                tail[..path.len()].copy_from_slice(path);
                path.len()
            });
        }
        forward.run(None);
        if dice.chance(75) {
            let path = &paths[*dice.pick(&rows)];
            self.session.commit(path);
            self.tokens.extend(path.iter().map(|node| tokens[*node as usize]));
        }
    }

    fn truncate(&mut self, len: usize) {
        self.session.truncate(len);
        self.tokens.truncate(len);
    }

    fn check(&mut self, set: &Arc<ExecutableSet>, dice: &mut Dice, what: &str) {
        assert_eq!(self.session.committed(), self.tokens.len(), "{what}");
        self.truncate(self.tokens.len().min(CONTEXT - 1));
        self.session.poison_scratch(dice.bits());
        let len = dice.within(1, self.room().min(3));
        let next = dice.tokens(len, self.vocabulary);
        let found = bits(self.session.prefill(&next).expect("it fits"));
        self.tokens.extend(next);
        let mut fresh = session(set, CONTEXT, 1, 1);
        let expected = bits(fresh.prefill(&self.tokens).expect("it fits"));
        assert!(found == expected, "{what}: after {:?}", self.tokens);
    }
}

#[test]
fn any_history_of_a_session_leaves_the_committed_sequence_alone() {
    histories(5);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn any_of_many_histories_leaves_the_committed_sequence_alone() {
    histories(40);
}

fn histories(usual: u64) {
    for model in some_models() {
        for class in model.classes() {
            let set = model.set(class);
            for case in 0..if class.tier == Tier::Reference { 1 } else { cases(class, usual) } {
                let what = format!("{} on {class}, case {case}", model.name);
                let mut dice = Dice::new(case);
                let session = session(set, CONTEXT, TREE_NODES, dice.within(1, 2));
                let mut subject = Subject { session, tokens: Vec::new(), vocabulary: set.vocabulary() };
                for _ in 0..dice.within(4, 20) {
                    match dice.below(6) {
                        0 if subject.room() > 0 => subject.append(&mut dice),
                        1 => subject.truncate(dice.within(0, subject.tokens.len())),
                        2 => subject.session.poison_scratch(dice.bits()),
                        _ if subject.room() > 0 => subject.forward_and_commit(&mut dice),
                        _ => subject.truncate(dice.within(0, CONTEXT)),
                    }
                }
                subject.check(set, &mut dice, &what);
            }
        }
    }
}
