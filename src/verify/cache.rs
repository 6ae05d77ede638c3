//! The cache over a session's life: logits depend on the committed sequence only, whatever was forwarded, discarded or
//! poisoned before. The judge is a fresh session that prefills the sequence.

use ygg_profiler::Random;

use crate::runtime::{Pinning, Session};

use super::{
    VerifyOptions,
    extent::Clock,
    halt::Halt,
    subject::{Subject, bits},
    walk::Tell,
};

/// Tokens of a sequence at most.
const MOST_TOKENS: usize = 96;
/// Nodes of a tree at most.
const MOST_NODES: usize = 24;

/// Random histories of appends, trees, commits, discards and poison. After each, logits must equal those of a fresh
/// prefill.
pub(super) fn any_history_leaves_the_sequence(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let cases = options.extent.of(24, 200);
    let threads = subject.loaded.threads();
    let mut history = History {
        session: subject.session(threads, Pinning::Floating)?,
        tokens: Vec::new(),
        vocabulary: subject.loaded.set().vocabulary(),
        most_tokens: subject.context().min(MOST_TOKENS),
        most_nodes: subject.widest().min(MOST_NODES),
    };
    let mut fresh = subject.session(1, Pinning::Floating)?;
    let (mut done, mut actions) = (0, 0);
    while done < cases && (done == 0 || !clock.is_up()) {
        let mut seed = Random::new(done as u64);
        history.truncate(0);
        for _ in 0..seed.within(4, 16) {
            history.act(&mut seed)?;
            actions += 1;
        }
        history.compare(&mut fresh, &mut seed, &format!("history {done}"))?;
        done += 1;
        tell(done, cases);
    }
    Ok(format!(
        "{done} histories of {actions} appends, trees, commits, discards and poisonings: the logits after each have \
         the bits of a fresh prefill"
    ))
}

/// A session and the sequence that it should hold.
struct History {
    session: Session,
    tokens: Vec<u32>,
    vocabulary: usize,
    most_tokens: usize,
    most_nodes: usize,
}

impl History {
    fn room(&self) -> usize {
        self.most_tokens - self.tokens.len()
    }

    fn act(&mut self, seed: &mut Random) -> Result<(), Halt> {
        match seed.below(6) {
            0 if self.room() > 0 => self.append(seed),
            1 => {
                self.truncate(seed.within(0, self.tokens.len()));
                Ok(())
            }
            2 => {
                self.session.poison_scratch(seed.bits());
                Ok(())
            }
            _ if self.room() > 0 => self.forward_and_commit(seed),
            _ => {
                self.truncate(seed.within(0, self.tokens.len()));
                Ok(())
            }
        }
    }

    fn append(&mut self, seed: &mut Random) -> Result<(), Halt> {
        let len = seed.within(1, self.room().min(40));
        let piece = seed.tokens(len, self.vocabulary);
        if seed.chance(50) {
            self.session.prefill(&piece)?;
        } else {
            self.session.score(&piece, |_, _| ())?;
        }
        self.tokens.extend(piece);
        Ok(())
    }

    /// Forwards some nodes of a random tree, as pruning would, and commits a path of them, or nothing.
    fn forward_and_commit(&mut self, seed: &mut Random) -> Result<(), Halt> {
        let nodes = seed.within(1, self.most_nodes);
        let tokens = seed.tokens(nodes, self.vocabulary);
        let (mut parents, mut paths) = (vec![0], vec![vec![0u32]]);
        for node in 1..nodes {
            let parent = seed.below(node);
            let is_full = paths[parent].len() == self.room();
            let parent = if is_full { 0 } else { parent };
            parents.push(parent);
            paths.push([&paths[parent][..], &[node as u32]].concat());
        }
        let mut kept = vec![true; nodes];
        for node in 1..nodes {
            kept[node] = kept[parents[node]] && paths[node].len() <= self.room() && seed.chance(80);
        }
        let rows: Vec<usize> = (0..nodes).filter(|node| kept[*node]).collect();
        let mut forward = self.session.forward(rows.len())?;
        for row in &rows {
            let path = &paths[*row];
            forward.push(tokens[*row], path.len() as u32 - 1, *row as u32, |tail| {
                tail[..path.len()].copy_from_slice(path);
                path.len()
            });
        }
        forward.run(None);
        if seed.chance(75) {
            let path = &paths[*seed.pick(&rows)];
            self.session.commit(path);
            self.tokens.extend(path.iter().map(|node| tokens[*node as usize]));
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.session.truncate(len);
        self.tokens.truncate(len);
    }

    /// Continues the sequence and compares with a session that has run nothing else.
    fn compare(&mut self, fresh: &mut Session, seed: &mut Random, what: &str) -> Result<(), Halt> {
        self.truncate(self.tokens.len().min(self.most_tokens - 1));
        self.session.poison_scratch(seed.bits());
        let len = seed.within(1, self.room().min(3));
        let next = seed.tokens(len, self.vocabulary);
        let found = bits(self.session.prefill(&next)?);
        self.tokens.extend(next);
        fresh.truncate(0);
        fresh.poison_scratch(seed.bits());
        let expected = bits(fresh.prefill(&self.tokens)?);
        let Some(token) = expected.iter().zip(&found).position(|(e, f)| e != f) else { return Ok(()) };
        Err(Halt::Broken(format!(
            "{what}, {} tokens committed: expected the logit {:e} of token {token}, as a fresh prefill has it, found \
             {:e}",
            self.tokens.len(),
            f32::from_bits(expected[token]),
            f32::from_bits(found[token])
        )))
    }
}
