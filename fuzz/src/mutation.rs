//! Mutations of seeds without coverage feedback, for tests without libFuzzer.

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
pub struct Mutator(u64);

impl Mutator {
    /// The mutations of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }

    /// One of the seeds with one to four edits.
    ///
    /// # Panics
    /// If there are no seeds.
    pub fn of(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let other = self.below(seeds.len());
            self.edit(&mut bytes, &seeds[other]);
        }
        bytes
    }

    fn edit(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        let rest = bytes.len() - at;
        match self.below(9) {
            _ if bytes.is_empty() => bytes.push(self.bits() as u8),
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.bits() as u8,
            2 => bytes[at] = MARKS[self.below(MARKS.len())],
            3 => {
                let width = (1 << self.below(4)).min(rest);
                let number = INTERESTING[self.below(INTERESTING.len())].to_le_bytes();
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            4 => bytes[at] = bytes[at].wrapping_add(if self.below(2) == 0 { 1 } else { 255 }),
            5 => drop(bytes.drain(at..at + (1 + self.below(8)).min(rest))),
            6 => {
                let end = at + (1 + self.below(16)).min(rest);
                bytes.extend_from_within(at..end);
                bytes[at..].rotate_right(end - at);
            }
            7 => {
                let from = self.below(other.len());
                let end = from + (1 + self.below(32)).min(other.len() - from);
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
