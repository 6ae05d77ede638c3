//! The inputs of one forward, in buffers that are allocated once per executable.

use ygg_kernels::{Choice, KvLayer, candidates::RowNoise, noise::NoiseKey};

/// The noise that decides the tokens after the rows of a forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The request's seed.
    pub seed: u64,
    /// Divides the logits, positive.
    pub temperature: f32,
    /// The place in the text of the token after position 0.
    pub first: usize,
}

/// Row inputs of one forward of `width` rows. Rows after the used ones are padding: they store nothing, see nothing
/// and disturb nothing.
#[derive(Clone, Debug)]
pub struct RowInputs {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    prefix: Vec<u32>,
    tail_len: Vec<u32>,
    tails: Vec<u32>,
    tail_capacity: usize,
    output_rows: Vec<u32>,
    choice: Choice,
    noise: Option<Noise>,
    /// The keys of the rows' noise, `[W]`.
    keys: Vec<NoiseKey>,
    given: Vec<f32>,
    used: usize,
}

impl RowInputs {
    /// Buffers for `width` rows of which `outputs` get logits, with room for `tail_capacity` ancestors (self included)
    /// per row. All rows start as padding; the output rows start as the last `outputs` rows.
    pub fn new(width: usize, outputs: usize, tail_capacity: usize) -> Self {
        assert!(
            (1..=width).contains(&outputs) && tail_capacity > 0,
            "outputs within the width, tails not empty"
        );
        let mut inputs = Self {
            tokens: vec![0; width],
            positions: vec![0; width],
            slots: vec![0; width],
            prefix: vec![0; width],
            tail_len: vec![0; width],
            tails: vec![0; width * tail_capacity],
            tail_capacity,
            output_rows: vec![0; outputs],
            choice: Choice::ARGMAX,
            noise: None,
            keys: vec![NoiseKey([0; 4]); width],
            given: Vec::new(),
            used: 0,
        };
        inputs.clear();
        inputs
    }

    /// The same with room for a float row of `columns` elements for each row; zero until something is given.
    #[must_use]
    pub fn with_given(self, columns: usize) -> Self {
        let given = vec![0.0; self.width() * columns];
        Self { given, ..self }
    }

    /// Makes every row padding again.
    pub fn clear(&mut self) {
        self.used = 0;
        self.noise = None;
        for row in 0..self.width() {
            self.pad(row);
        }
        let (width, outputs) = (self.width(), self.outputs());
        for (i, row) in self.output_rows.iter_mut().enumerate() {
            *row = u32::try_from(width - outputs + i).expect("widths are small");
        }
    }

    fn pad(&mut self, row: usize) {
        self.tokens[row] = 0;
        self.positions[row] = 0;
        self.slots[row] = KvLayer::NO_SLOT;
        self.prefix[row] = 0;
        self.tail_len[row] = 0;
    }

    /// Appends a row: `token` at `position` written to `slot`, attending to committed positions `0..prefix` and then to
    /// the slots that `tail` writes (root .. self, self last) and counts. Rows of a block see one another, so that all
    /// of them have all of their slots: what convolutions and walks read of a tail's order is then not there to be
    /// read.
    ///
    /// # Panics
    /// If all rows are used or the tail is empty or too long: the caller plans widths and depths.
    pub fn push(
        &mut self,
        token: u32,
        position: u32,
        slot: u32,
        prefix: u32,
        tail: impl FnOnce(&mut [u32]) -> usize,
    ) {
        let row = self.used;
        assert!(row < self.width(), "forward of {} rows is full", self.width());
        self.tokens[row] = token;
        self.positions[row] = position;
        self.slots[row] = slot;
        self.prefix[row] = prefix;
        let start = row * self.tail_capacity;
        let len = tail(&mut self.tails[start..start + self.tail_capacity]);
        assert!(
            len >= 1 && len <= self.tail_capacity,
            "a row has itself and at most {} ancestors",
            self.tail_capacity
        );
        self.tail_len[row] = u32::try_from(len).expect("tails are short");
        self.used += 1;
    }

    /// The float row of the row pushed as number `row`, to be written; empty if the program takes none.
    ///
    /// # Panics
    /// If no such row was pushed.
    pub fn given_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.used, "row {row} of {}", self.used);
        let columns = self.given_columns();
        &mut self.given[row * columns..][..columns]
    }

    /// Names the row that output `index` shows.
    pub fn set_output(&mut self, index: usize, row: usize) {
        assert!(row < self.width(), "output of a row that exists");
        self.output_rows[index] = u32::try_from(row).expect("widths are small");
    }

    /// Says which candidates are wanted of every row, if the program shows candidates.
    pub fn set_choice(&mut self, choice: Choice) {
        self.choice = choice;
    }

    /// Lets candidates of the rows, all of which have an output, be ranked by the noise that decides the tokens after
    /// them, or such a token be drawn by it.
    ///
    /// # Panics
    /// If not every row has an output.
    pub fn set_noise(&mut self, noise: Noise) {
        assert_eq!(self.outputs(), self.width(), "noise is of rows with outputs");
        let Noise { seed, temperature: _, first } = noise;
        for (key, position) in self.keys.iter_mut().zip(&self.positions) {
            *key = NoiseKey::at(seed, u64::from(*position) + first as u64);
        }
        self.noise = Some(noise);
    }

    /// The noise, if any was set since the rows were cleared.
    pub fn noise(&self) -> Option<Noise> {
        self.noise
    }

    /// The noise as kernels of processors take it; `tokens` are those of a trimmed head.
    pub fn row_noise<'a>(&'a self, tokens: Option<&'a [u32]>) -> Option<RowNoise<'a>> {
        self.noise.map(|Noise { temperature, .. }| RowNoise { keys: &self.keys, temperature, tokens })
    }

    /// `W`.
    pub fn width(&self) -> usize {
        self.tokens.len()
    }

    /// `R`.
    pub fn outputs(&self) -> usize {
        self.output_rows.len()
    }

    /// Rows that are not padding.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Token ids `[W]`.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Position ids `[W]`.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Slots written `[W]`; [`KvLayer::NO_SLOT`] for rows that store nothing.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Committed prefix lengths `[W]`.
    pub fn prefix(&self) -> &[u32] {
        &self.prefix
    }

    /// Tail lengths `[W]`.
    pub fn tail_len(&self) -> &[u32] {
        &self.tail_len
    }

    /// Tail slots `[W, tail_capacity]`.
    pub fn tails(&self) -> &[u32] {
        &self.tails
    }

    /// Row length of [`tails`](Self::tails).
    pub fn tail_capacity(&self) -> usize {
        self.tail_capacity
    }

    /// Elements of a float row that is given; 0 if none is.
    pub fn given_columns(&self) -> usize {
        self.given.len() / self.width()
    }

    /// Float rows that are given, `[W, given_columns]`; of padding, what was given last.
    pub fn given(&self) -> &[f32] {
        &self.given
    }

    /// Rows that get logits `[R]`.
    pub fn output_rows(&self) -> &[u32] {
        &self.output_rows
    }

    /// Which candidates are wanted of every row; the best alone until something else is said.
    pub fn choice(&self) -> Choice {
        self.choice
    }
}
