//! Mutations of seeds without coverage feedback, for tests without libFuzzer.

use ygg_profiler::Random;

/// Numbers at whose neighbours programs err.
const INTERESTING: [u64; 12] = [
    0,
    1,
    0x7F,
    0xFF,
    0x7FFF,
    1 << 31,
    0xFFFF_FFFF,
    1 << 32,
    1 << 60,
    1 << 63,
    u64::MAX,
    0x7FF0_0000_0000_0000,
];
/// Bytes that mean something to texts of any format.
const MARKS: &[u8] = b"\0\"\\{}[]()%<>|/:,.-+0159aeEtnf \n\xC3\xA9\xFF";

/// Reproducible mutations: those of a seed are always the same.
#[derive(Debug, Clone)]
pub struct Mutator(Random);

impl Mutator {
    /// The mutations of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// One of the seeds with one to four edits.
    ///
    /// # Panics
    /// If there are no seeds.
    pub fn of(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.0.below(seeds.len())].clone();
        for _ in 0..=self.0.below(4) {
            let other = self.0.below(seeds.len());
            self.edit(&mut bytes, &seeds[other]);
        }
        bytes
    }

    fn edit(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.0.below(bytes.len().max(1));
        let rest = bytes.len() - at;
        match self.0.below(9) {
            _ if bytes.is_empty() => bytes.push(self.0.bits() as u8),
            0 => bytes[at] ^= 1 << self.0.below(8),
            1 => bytes[at] = self.0.bits() as u8,
            2 => bytes[at] = MARKS[self.0.below(MARKS.len())],
            3 => {
                let width = (1 << self.0.below(4)).min(rest);
                let number = INTERESTING[self.0.below(INTERESTING.len())].to_le_bytes();
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            4 => bytes[at] = bytes[at].wrapping_add(if self.0.below(2) == 0 { 1 } else { 255 }),
            5 => drop(bytes.drain(at..at + (1 + self.0.below(8)).min(rest))),
            6 => {
                let end = at + (1 + self.0.below(16)).min(rest);
                bytes.extend_from_within(at..end);
                bytes[at..].rotate_right(end - at);
            }
            7 => {
                let from = self.0.below(other.len().max(1));
                let end = from + (1 + self.0.below(32)).min(other.len() - from);
                bytes.splice(at..at, other[from..end].iter().copied());
            }
            _ => bytes.truncate(at),
        }
    }
}

/// Runs `check` over all seeds, then over `executions` mutations of them; returns how many of the mutations it
/// accepted.
///
/// # Panics
/// As `check`, with the input at the end of the message, in Rust's escapes.
pub fn run(seeds: &[Vec<u8>], executions: usize, check: impl Fn(&[u8]) -> bool) -> usize {
    let caught = |input: &[u8]| {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(input)));
        outcome.unwrap_or_else(|_| panic!("a target panicked over b\"{}\"", input.escape_ascii()))
    };
    for seed in seeds {
        caught(seed);
    }
    let mut mutator = Mutator::new(seeds.len() as u64);
    (0..executions).filter(|_| caught(&mutator.of(seeds))).count()
}
