//! Row invariance: the bits of a row's logits depend on its logical sequence and nothing else.
//!
//! The judge decodes every sequence one token at a time on one thread. Equality is of bits; there is no tolerance.

use ygg_profiler::Random;

use crate::{
    ir::Choice,
    runtime::{Forward, Pinning, RuntimeError, Session},
    sample::{Candidate, top},
};

use super::{
    VerifyOptions,
    extent::Clock,
    halt::Halt,
    subject::{SPARE_SLOTS, Subject, bits},
    walk::Tell,
};

/// Candidates of a row that are compared with its logits.
const CANDIDATES: usize = 8;

/// Longest prefix of the first round, in tokens.
const SHORT_PREFIX: usize = 40;

/// Every planned width, with all rows used and with some, of random trees in any order and slots, after prefixes that
/// were committed in any pieces, on one thread and on several.
pub(super) fn rows_do_not_depend_on_company(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let set = subject.loaded.set();
    let rounds = options.extent.of(3, 16);
    let widths = set.widths();
    let most_threads = subject.loaded.threads().max(2);
    let mut judge = Judge::new(subject)?;
    let mut sessions = [1, most_threads]
        .into_iter()
        .map(|threads| subject.session(threads, Pinning::Floating))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut rows_compared, mut done) = (0, 0);
    for round in 0..rounds {
        for width in widths {
            if round > 0 && clock.is_up() {
                break;
            }
            let mut seed = Random::new((round * widths.len() + done) as u64);
            let used = if round % 2 == 0 { *width } else { seed.within(1, *width) };
            let place = seed.below(sessions.len());
            let session = &mut sessions[place];
            let what =
                format!("{used} rows at width {width}, {} threads, case {done}", session.options().threads);
            // Every width is tried before patience ends, so the first round is short.
            let longest = if round == 0 { SHORT_PREFIX } else { subject.context() };
            let len = prefix_len(longest.min(subject.context()), &mut seed);
            let prefix = seed.tokens(len, set.vocabulary());
            let room = subject.context() - len;
            let rows = Rows::random(used, room.min(subject.widest()), *width, set.vocabulary(), &mut seed);
            load(session, &prefix, &mut judge, &mut seed, &what)?;
            session.poison_scratch(seed.bits());
            let found = rows.run(session, *width)?;
            rows.compare(&prefix, &found, &mut judge, &what)?;
            rows.compare_candidates(session, *width, &found, &what)?;
            rows_compared += used;
            done += 1;
            tell(done, rounds * widths.len());
        }
    }
    let widths = widths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(format!(
        "{rows_compared} rows of {done} random trees at widths {widths} on 1 and {most_threads} threads: every logit \
         has the bits of that row decoded alone, and the best tokens are those of the logits"
    ))
}

/// Forwards one row and commits it; gives its logits.
fn step(session: &mut Session, token: u32) -> Result<Vec<u32>, RuntimeError> {
    let mut forward = session.forward(1)?;
    forward.push(token, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    let logits = bits(forward.run(None).row(0));
    session.commit(&[0]);
    Ok(logits)
}

/// Decodes plainly: one row per forward, one thread.
struct Judge {
    session: Session,
    tokens: Vec<u32>,
}

impl Judge {
    fn new(subject: &Subject<'_>) -> Result<Self, RuntimeError> {
        Ok(Self { session: subject.session(1, Pinning::Floating)?, tokens: Vec::new() })
    }

    /// Bits of the logits after `sequence`, which is not empty.
    fn logits(&mut self, sequence: &[u32]) -> Result<Vec<u32>, RuntimeError> {
        let common = self.tokens.iter().zip(sequence).take_while(|(a, b)| a == b).count();
        let kept = common.min(sequence.len() - 1);
        self.session.truncate(kept);
        self.tokens.truncate(kept);
        let mut last = Vec::new();
        for token in &sequence[kept..] {
            last = step(&mut self.session, *token)?;
            self.tokens.push(*token);
        }
        Ok(last)
    }
}

/// Refuses logits that are not the expected ones to the bit.
fn expect(expected: &[u32], found: &[u32], what: &str) -> Result<(), Halt> {
    let Some(token) = expected.iter().zip(found).position(|(e, f)| e != f) else { return Ok(()) };
    Err(Halt::Broken(format!(
        "{what}: expected the logit {:e} of token {token}, as the row has it alone, found {:e}",
        f32::from_bits(expected[token]),
        f32::from_bits(found[token])
    )))
}

/// Rows to forward together: trees with any number of roots, each row in a slot of its own.
#[derive(Debug)]
struct Rows {
    tokens: Vec<u32>,
    parents: Vec<Option<usize>>,
    /// Scratch offset of each row.
    offsets: Vec<u32>,
    /// Row numbers in the order in which they are pushed.
    order: Vec<usize>,
}

impl Rows {
    /// `count` rows that form no path longer than `deepest`, over some more scratch slots than `width`.
    fn random(count: usize, deepest: usize, width: usize, vocabulary: usize, seed: &mut Random) -> Self {
        let mut parents: Vec<Option<usize>> = vec![None];
        let mut depths = vec![1];
        let chains = seed.chance(25);
        for row in 1..count {
            let parent = if chains { row - 1 } else { seed.below(row) };
            let is_root = seed.chance(5) || depths[parent] == deepest;
            parents.push((!is_root).then_some(parent));
            depths.push(if is_root { 1 } else { depths[parent] + 1 });
        }
        let mut offsets: Vec<u32> = (0..(width + SPARE_SLOTS) as u32).collect();
        let mut order: Vec<usize> = (0..count).collect();
        if seed.chance(75) {
            seed.shuffle(&mut offsets);
            seed.shuffle(&mut order);
        }
        offsets.truncate(count);
        Self { tokens: seed.tokens(count, vocabulary), parents, offsets, order }
    }

    /// The rows from a root to `row`, which is last.
    fn path(&self, row: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(row), |row| self.parents[*row]).collect();
        path.reverse();
        path
    }

    fn fill<'s>(&self, session: &'s mut Session, width: usize) -> Result<Forward<'s>, RuntimeError> {
        let mut forward = session.forward(width)?;
        for row in &self.order {
            let path = self.path(*row);
            let depth = path.len() as u32 - 1;
            forward.push(self.tokens[*row], depth, self.offsets[*row], |tail| {
                for (slot, ancestor) in tail.iter_mut().zip(&path) {
                    *slot = self.offsets[*ancestor];
                }
                path.len()
            });
        }
        Ok(forward)
    }

    /// Forwards them at a planned width and gives the bits of each one's logits.
    fn run(&self, session: &mut Session, width: usize) -> Result<Vec<Vec<u32>>, RuntimeError> {
        let logits = self.fill(session, width)?.run(None);
        let mut by_row = vec![Vec::new(); self.order.len()];
        for (pushed, row) in self.order.iter().enumerate() {
            by_row[*row] = bits(logits.row(pushed));
        }
        Ok(by_row)
    }

    fn compare(&self, prefix: &[u32], found: &[Vec<u32>], judge: &mut Judge, what: &str) -> Result<(), Halt> {
        for (row, found) in found.iter().enumerate() {
            let path = self.path(row);
            let sequence: Vec<u32> =
                prefix.iter().copied().chain(path.iter().map(|row| self.tokens[*row])).collect();
            let expected = judge.logits(&sequence)?;
            expect(&expected, found, &format!("{what}, row {row} after {} tokens", prefix.len()))?;
        }
        Ok(())
    }

    /// Forwards them again for candidates, which must be those of the logits.
    fn compare_candidates(
        &self,
        session: &mut Session,
        width: usize,
        logits: &[Vec<u32>],
        what: &str,
    ) -> Result<(), Halt> {
        let choices = self.fill(session, width)?.choose(Choice { k: CANDIDATES, temperature: None }, None);
        for (pushed, row) in self.order.iter().enumerate() {
            let logits: Vec<f32> = logits[*row].iter().map(|bits| f32::from_bits(*bits)).collect();
            let mut expected: Vec<Candidate> = Vec::new();
            top(&logits, CANDIDATES, &mut Vec::new(), &mut expected);
            let expected: Vec<u32> = expected.iter().map(|candidate| candidate.token).collect();
            let found: Vec<u32> = choices.row(pushed).iter().map(|(token, _)| token).collect();
            if expected != found {
                return Err(Halt::Broken(format!(
                    "{what}, row {row}: expected the best tokens {expected:?} by the logits, found {found:?}"
                )));
            }
        }
        Ok(())
    }
}

/// Commits `prefix` in pieces of any size, by appends and trees, and compares the logits on the way.
fn load(
    session: &mut Session,
    prefix: &[u32],
    judge: &mut Judge,
    seed: &mut Random,
    what: &str,
) -> Result<(), Halt> {
    session.truncate(0);
    let mut done = 0;
    while done < prefix.len() {
        session.poison_scratch(seed.bits());
        let len = seed.within(1, 70.min(prefix.len() - done));
        let piece = &prefix[done..done + len];
        match seed.below(3) {
            0 => {
                let found = bits(session.prefill(piece)?);
                done += len;
                expect(&judge.logits(&prefix[..done])?, &found, &format!("{what}, prefill to token {done}"))?;
            }
            1 => {
                let mut shown = Vec::with_capacity(len);
                session.score(piece, |_, logits| shown.push(bits(logits)))?;
                for found in shown {
                    done += 1;
                    expect(
                        &judge.logits(&prefix[..done])?,
                        &found,
                        &format!("{what}, score at token {done}"),
                    )?;
                }
            }
            _ => {
                let found = step(session, piece[0])?;
                done += 1;
                expect(&judge.logits(&prefix[..done])?, &found, &format!("{what}, step at token {done}"))?;
            }
        }
    }
    Ok(())
}

/// Prefixes around the blocks that attention and prefill work in, and of any length.
fn prefix_len(context: usize, seed: &mut Random) -> usize {
    let most = context - context.min(16) / 2;
    let edge = *seed.pick(&[1, 16, 32, 64, 128]);
    let len = if seed.chance(50) { (edge + seed.below(3)).saturating_sub(1) } else { seed.below(100) };
    len.min(most)
}
