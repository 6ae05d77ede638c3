//! What a gated delta rule keeps, and the inputs of the op that keeps and reads it.

use super::{KvLayer, Tails};
use crate::{Rows, RowsMut};
use std::{cell::UnsafeCell, cmp::Ordering, marker::PhantomData, ops::Range};

/// Columns of a state that lie together: lanes of the vectors that work on them.
pub(crate) const STATE_LANES: usize = 16;

/// Sizes of a gated delta rule; zeros for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys, `J`.
    pub key_heads: usize,
    /// Heads of values, `H`: a multiple of `J`. Each has a state.
    pub value_heads: usize,
    /// Elements of a query and of a key, `A`.
    pub key_dim: usize,
    /// Elements of a value, `B`.
    pub value_dim: usize,
    /// Taps of the convolution of every channel, `T`.
    pub taps: usize,
}

impl DeltaShape {
    /// Most taps of a channel.
    pub const MOST_TAPS: usize = 8;
    /// Most elements of a key or a value. With [`MOST_GROUP`](Self::MOST_GROUP) it bounds a thread's scratch.
    pub const MOST_DIM: usize = 512;
    /// Most value heads of a key head.
    pub const MOST_GROUP: usize = 16;

    /// Whether kernels take it.
    pub fn is_lawful(&self) -> bool {
        let Self { key_heads, value_heads, key_dim, value_dim, taps } = *self;
        let dims = 1..=Self::MOST_DIM;
        key_heads > 0
            && value_heads.is_multiple_of(key_heads)
            && (1..=Self::MOST_GROUP).contains(&(value_heads / key_heads))
            && dims.contains(&key_dim)
            && dims.contains(&value_dim)
            && (1..=Self::MOST_TAPS).contains(&taps)
    }

    /// Channels that are convolved, `C`: queries, keys and values of all heads.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Elements of a row of results: values of all heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Value heads that read one key head.
    pub fn group(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// What is kept of a row: its channels, and two numbers for each value head.
    fn row(&self) -> usize {
        self.channels() + 2 * self.value_heads
    }

    /// Elements of the state of a value head: `[B / 16, A, 16]`, columns beyond `B` zero.
    pub(crate) fn head_state(&self) -> usize {
        self.value_dim.div_ceil(STATE_LANES) * self.key_dim * STATE_LANES
    }

    /// Elements of the states that read one key head.
    pub(crate) fn unit_state(&self) -> usize {
        self.group() * self.head_state()
    }
}

/// In which order value heads lie, and what a stored decay means: files differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeltaForm {
    /// Whether value heads that read one key head lie together; else head `h` reads key head `h % J`.
    pub is_grouped: bool,
    /// Whether the decay `A` of a head is stored as `ln A`; else as `-A`.
    pub is_logarithm: bool,
}

/// Which of a unit's states.
const NEWEST: usize = 0;
const NEWER: usize = 1;
const OLDER: usize = 2;
/// States that are kept.
const STATES: usize = 3;
/// Rows before a state's end that taps of rows after it reach, at most.
const READ_ROWS: usize = DeltaShape::MOST_TAPS - 1;
/// Of a state that holds nothing.
const NOTHING: u32 = u32::MAX;

/// What the gated delta rule of one layer keeps, of f32 in every format of keys and values: what went in of the last
/// rows, `[R, C + 2 H]`, where slot `s` is row `s mod R`; and for every key head three states, each after so many
/// committed rows.
///
/// Rows of a tree are what went in, as small as keys and values. The newest state follows the committed rows when a
/// forward begins, so that what is accepted is nowhere copied but as what went in; a row's own state is made from it
/// while a forward runs. Two older states, at multiples of [`STRIDE`](Self::STRIDE), let a text be cut by up to so many
/// rows: what went in of the rows after them is kept.
#[derive(Clone, Copy, Debug)]
pub struct DeltaLayer<'a> {
    start: *mut f32,
    ring: usize,
    shape: DeltaShape,
    memory: PhantomData<&'a UnsafeCell<f32>>,
}

// SAFETY: `from_raw` promises that the memory is shared by the rules it states, whichever thread uses the view.
unsafe impl Send for DeltaLayer<'_> {}
// SAFETY: as above.
unsafe impl Sync for DeltaLayer<'_> {}

impl DeltaLayer<'_> {
    /// Rows between two older states, and so the fewest rows by which a text can be cut. As many as a block of kept
    /// prefixes: a prompt whose end differs is read again from its last forward at most.
    pub const STRIDE: usize = 64;

    /// Rows `R` that are kept with `scratch` slots after the committed ones: those that a forward writes, those that
    /// were accepted since the newest state was made, those after the oldest state, and those that taps reach.
    pub const fn ring(scratch: usize) -> usize {
        2 * scratch + 2 * Self::STRIDE + DeltaShape::MOST_TAPS
    }

    /// Bytes of a layer.
    pub fn bytes(shape: DeltaShape, ring: usize) -> usize {
        let states = STATES * shape.key_heads * shape.unit_state();
        (ring * shape.row() + states + STATES * shape.key_heads) * size_of::<f32>()
    }

    /// A view of memory that a cache owns.
    ///
    /// # Safety
    /// For the view's lifetime `start` points to [`DeltaLayer::bytes`] initialised bytes, aligned to 64, zeros at first
    /// and written by ops and methods of this view alone. While an op works on a key head, nothing else touches what is
    /// kept of it and of the value heads that read it.
    ///
    /// # Panics
    /// If the shape is not lawful.
    pub unsafe fn from_raw(start: *mut f32, ring: usize, shape: DeltaShape) -> Self {
        assert!(ring > 0 && shape.is_lawful(), "{ring} rows of {shape:?}");
        Self { start, ring, shape, memory: PhantomData }
    }

    /// Its sizes.
    pub fn shape(&self) -> DeltaShape {
        self.shape
    }

    /// # Safety
    /// Nobody writes these elements of the row while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn kept(&self, slot: usize, part: Range<usize>) -> &[f32] {
        // SAFETY: inside the memory that `from_raw` was promised; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(slot, &part), part.len()) }
    }

    /// # Safety
    /// Nothing else touches these elements of the row while the slice lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user")]
    pub(crate) unsafe fn kept_mut(&self, slot: usize, part: Range<usize>) -> &mut [f32] {
        // SAFETY: inside the memory that `from_raw` was promised; ours alone by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at(slot, &part), part.len()) }
    }

    #[inline(always)]
    fn at(&self, slot: usize, part: &Range<usize>) -> *mut f32 {
        let row = self.shape.row();
        assert!(part.start <= part.end && part.end <= row, "elements {part:?} of a row of {self:?}");
        // SAFETY: inside the memory by the assertion and the modulus.
        unsafe { self.start.add(slot % self.ring * row + part.start) }
    }

    /// The states of a unit.
    ///
    /// # Safety
    /// Nothing else touches them while the slices live.
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user")]
    unsafe fn states(&self, unit: usize) -> [&mut [f32]; STATES] {
        let (units, len) = (self.shape.key_heads, self.shape.unit_state());
        assert!(unit < units, "unit {unit} of {self:?}");
        [NEWEST, NEWER, OLDER].map(|which| {
            let offset = self.ring * self.shape.row() + (which * units + unit) * len;
            // SAFETY: inside the memory, apart for every state; ours alone by the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), len) }
        })
    }

    /// After how many committed rows each state of a unit is.
    ///
    /// # Safety
    /// Nothing else touches them while the array lives.
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user")]
    unsafe fn held(&self, unit: usize) -> &mut [u32; STATES] {
        let units = self.shape.key_heads;
        assert!(unit < units, "unit {unit} of {self:?}");
        let offset = self.ring * self.shape.row() + STATES * units * self.shape.unit_state() + unit * STATES;
        // SAFETY: inside the memory, whose last elements are these numbers; ours alone by the caller's promise.
        unsafe { &mut *self.start.add(offset).cast() }
    }

    /// The newest state of a unit, brought to the first `to` committed rows by `absorb(state, row)`.
    ///
    /// # Safety
    /// Nothing else touches the unit's states while the slice lives.
    ///
    /// # Panics
    /// If all states are after more rows: whoever cuts a text asks [`resume_point`](Self::resume_point) first.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user")]
    pub(crate) unsafe fn advance(
        &self,
        unit: usize,
        to: usize,
        mut absorb: impl FnMut(&mut [f32], usize),
    ) -> &mut [f32] {
        // SAFETY: promised by the caller.
        let ([newest, newer, older], held) = unsafe { (self.states(unit), self.held(unit)) };
        let to = u32::try_from(to).expect("contexts are far below 2^32");
        if held[NEWEST] > to {
            let (from, state) = if held[NEWER] <= to { (NEWER, &*newer) } else { (OLDER, &*older) };
            assert!(held[from] <= to, "a state after {} rows for {to} rows", held[from]);
            newest.copy_from_slice(state);
            held[NEWEST] = held[from];
        }
        while held[NEWEST] < to {
            absorb(newest, held[NEWEST] as usize);
            held[NEWEST] += 1;
            let is_at_stride = held[NEWEST].is_multiple_of(Self::STRIDE as u32);
            if is_at_stride && held[NEWER] == NOTHING {
                newer.copy_from_slice(newest);
                held[NEWER] = held[NEWEST];
            } else if is_at_stride && held[NEWEST] > held[NEWER] {
                older.copy_from_slice(newer);
                newer.copy_from_slice(newest);
                (held[OLDER], held[NEWER]) = (held[NEWER], held[NEWEST]);
            }
        }
        newest
    }

    /// The longest beginning of `len` committed rows that others can follow: all of it, unless it ends before the
    /// oldest state of some head; then none.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    pub unsafe fn resume_point(&self, len: usize) -> usize {
        // SAFETY: promised by the caller.
        let oldest = (0..self.shape.key_heads).map(|unit| unsafe { self.held(unit) }[OLDER]).max();
        if oldest.is_some_and(|oldest| len < oldest as usize) { 0 } else { len }
    }

    /// Forgets all rows but the first `len`.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    ///
    /// # Panics
    /// If rows cannot follow those: [`resume_point`](Self::resume_point).
    pub unsafe fn forget(&self, len: usize) {
        // SAFETY: promised by the caller.
        assert_eq!(unsafe { self.resume_point(len) }, len, "rows that states can return to");
        for unit in 0..self.shape.key_heads {
            // SAFETY: promised by the caller.
            let held = unsafe { self.held(unit) };
            if held[OLDER] as usize > len || len == 0 {
                // SAFETY: promised by the caller.
                let [_, _, older] = unsafe { self.states(unit) };
                older.fill(0.0);
                *held = [NOTHING, NOTHING, 0];
            }
            for state in [NEWEST, NEWER] {
                if held[state] as usize > len {
                    held[state] = NOTHING;
                }
            }
        }
    }

    /// Takes the oldest states for those after `len` rows, whatever they are.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    pub unsafe fn assume(&self, len: usize) {
        let len = u32::try_from(len).expect("contexts are far below 2^32");
        for unit in 0..self.shape.key_heads {
            // SAFETY: promised by the caller.
            *unsafe { self.held(unit) } = [NOTHING, NOTHING, len];
        }
    }

    /// Bytes of a state as [`copy_state_out`](Self::copy_state_out) gives it: of all heads, with what went in of the
    /// rows before it that taps reach.
    pub fn moved_bytes(shape: DeltaShape) -> usize {
        (READ_ROWS * shape.row() + shape.key_heads * shape.unit_state()) * size_of::<f32>()
    }

    /// After how many committed rows, a multiple of [`STRIDE`](Self::STRIDE), the latest state that every head keeps
    /// is; `None` before the first such.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    pub unsafe fn state_end(&self) -> Option<usize> {
        let of_unit = |unit| {
            // SAFETY: promised by the caller.
            let held = unsafe { self.held(unit) };
            let older = [held[NEWER], held[OLDER]].into_iter().filter(|rows| *rows != NOTHING).max();
            older.filter(|rows| *rows > 0 && rows.is_multiple_of(Self::STRIDE as u32))
        };
        let all = (0..self.shape.key_heads).map(of_unit).min().flatten();
        all.map(|rows| rows as usize)
    }

    /// Copies the state after `end` committed rows, a [`state_end`](Self::state_end), to `to`.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    ///
    /// # Panics
    /// If there is no such state, or another number of bytes than [`moved_bytes`](Self::moved_bytes).
    pub unsafe fn copy_state_out(&self, end: usize, to: &mut [u8]) {
        assert_eq!(to.len(), Self::moved_bytes(self.shape), "bytes of a state of {self:?}");
        let (to, _) = to.as_chunks_mut::<4>();
        let (rows, states) = to.split_at_mut(READ_ROWS * self.shape.row());
        let copy = |to: &mut [[u8; 4]], from: &[f32]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_ne_bytes());
        };
        for (slot, row) in (end - READ_ROWS..end).zip(rows.chunks_exact_mut(self.shape.row())) {
            // SAFETY: promised by the caller.
            copy(row, unsafe { self.kept(slot, 0..self.shape.row()) });
        }
        for (unit, of_unit) in states.chunks_exact_mut(self.shape.unit_state()).enumerate() {
            // SAFETY: promised by the caller.
            let ([_, newer, older], held) = unsafe { (self.states(unit), self.held(unit)) };
            let state =
                [(NEWER, newer), (OLDER, older)].into_iter().find(|(which, _)| held[*which] as usize == end);
            let (_, state) = state.unwrap_or_else(|| panic!("a state after {end} rows: there is {held:?}"));
            copy(of_unit, state);
        }
    }

    /// Takes what [`copy_state_out`](Self::copy_state_out) made of a state after `end` committed rows, in a layer of
    /// the same shape, for the oldest: no state of fewer rows is left.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    ///
    /// # Panics
    /// If fewer rows than taps reach are before the end, or there is another number of bytes.
    pub unsafe fn copy_state_in(&self, end: usize, from: &[u8]) {
        assert_eq!(from.len(), Self::moved_bytes(self.shape), "bytes of a state of {self:?}");
        let (from, _) = from.as_chunks::<4>();
        let (rows, states) = from.split_at(READ_ROWS * self.shape.row());
        let copy = |to: &mut [f32], from: &[[u8; 4]]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_ne_bytes(*from));
        };
        for (slot, row) in (end - READ_ROWS..end).zip(rows.chunks_exact(self.shape.row())) {
            // SAFETY: promised by the caller.
            copy(unsafe { self.kept_mut(slot, 0..self.shape.row()) }, row);
        }
        let rows = u32::try_from(end).expect("contexts are far below 2^32");
        for (unit, of_unit) in states.chunks_exact(self.shape.unit_state()).enumerate() {
            // SAFETY: promised by the caller.
            let ([_, _, older], held) = unsafe { (self.states(unit), self.held(unit)) };
            copy(older, of_unit);
            *held = [NOTHING, NOTHING, rows];
        }
    }

    /// Copies what is kept of one slot's row to another's.
    ///
    /// # Safety
    /// Nothing else touches the two rows meanwhile.
    pub unsafe fn copy_slot(&self, from: usize, to: usize) {
        let all = 0..self.shape.row();
        // SAFETY: inside the memory, and ours by the caller's promise.
        unsafe { std::ptr::copy(self.at(from, &all), self.at(to, &all), all.len()) };
    }

    /// Overwrites what is kept of a slot's row, element by element.
    ///
    /// # Safety
    /// Nothing else touches the row meanwhile.
    pub unsafe fn fill_slot(&self, slot: usize, mut next: impl FnMut() -> f32) {
        // SAFETY: promised by the caller.
        unsafe { self.kept_mut(slot, 0..self.shape.row()) }.fill_with(&mut next);
    }
}

/// The weights of a gated delta rule.
#[derive(Clone, Copy, Debug)]
pub struct DeltaWeights<'a> {
    /// `[C, T]`: of each channel, the tap of the row itself last.
    pub taps: &'a [f32],
    /// `[H]`: the decay of each value head, as the form says.
    pub decays: &'a [f32],
    /// `[H]`: added to what a row says of its decay.
    pub biases: &'a [f32],
}

/// Inputs of `delta_rule`: gated delta rules of all heads along each row's logical sequence (arXiv 2412.06464, section
/// 3.1).
///
/// A row keeps what goes in. Its channels are convolved with those of the rows before it, zeros before the first, and
/// go through `silu`: queries `q` and keys `k` of `J` heads, values `v` of `H` heads. `q` is divided by
/// `sqrt(A (q . q + 1e-6))`, `k` by `sqrt(k . k + 1e-6)`. Of every value head the state `S` (`[A, B]`, zeros before the
/// first row) becomes
///
/// ```text
/// S' = exp(-A_h softplus(a + bias)) S
/// S  = S' + k (sigmoid(b) (v - kᵀ S'))ᵀ
/// ```
///
/// and the row gives `qᵀ S`. A row's state comes from that of the row before it in its sequence, in one order of
/// operations, whatever else is in the forward.
#[derive(Clone, Copy, Debug)]
pub struct DeltaRule<'a> {
    /// `[W, C]`: queries, keys and values, before the convolution.
    pub x: Rows<'a>,
    /// `[W, H]`: what each row says of the decay of each value head, `a`.
    pub decays: Rows<'a>,
    /// `[W, H]`: what each row says of how far the state follows it, `b`.
    pub rates: Rows<'a>,
    /// The weights.
    pub weights: DeltaWeights<'a>,
    /// How heads and decays lie.
    pub form: DeltaForm,
    /// `[W]`: where each row goes, or [`KvLayer::NO_SLOT`]: padding, which gives zeros.
    pub slots: &'a [u32],
    /// What each row sees.
    pub tails: Tails<'a>,
    /// What rows keep.
    pub memory: DeltaLayer<'a>,
}

/// Added to the sum of squares that a query or a key is divided by.
pub(crate) const LEAST_SQUARES: f32 = 1e-6;

impl DeltaRule<'_> {
    /// Independent pieces of work: a key head and the value heads that read it, of all rows.
    pub fn units(&self) -> usize {
        self.memory.shape.key_heads
    }

    /// The value head of number `member` among those of a unit.
    #[inline(always)]
    pub(crate) fn value_head(&self, unit: usize, member: usize) -> usize {
        let shape = self.memory.shape;
        if self.form.is_grouped { unit * shape.group() + member } else { member * shape.key_heads + unit }
    }

    /// Channels of the query of a unit.
    #[inline(always)]
    pub(crate) fn query(&self, unit: usize) -> Range<usize> {
        let dim = self.memory.shape.key_dim;
        unit * dim..(unit + 1) * dim
    }

    /// Channels of the key of a unit.
    #[inline(always)]
    pub(crate) fn key(&self, unit: usize) -> Range<usize> {
        let shape = self.memory.shape;
        let first = (shape.key_heads + unit) * shape.key_dim;
        first..first + shape.key_dim
    }

    /// Channels of a value head.
    #[inline(always)]
    pub(crate) fn value(&self, head: usize) -> Range<usize> {
        let shape = self.memory.shape;
        let first = 2 * shape.key_heads * shape.key_dim + head * shape.value_dim;
        first..first + shape.value_dim
    }

    /// Where a row has what it says of a value head's decay, and of how far its state follows.
    #[inline(always)]
    pub(crate) fn said(&self, head: usize) -> [usize; 2] {
        let shape = self.memory.shape;
        [shape.channels() + head, shape.channels() + shape.value_heads + head]
    }

    /// Rows that are no padding, with their slots.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (usize, usize)> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| **slot != KvLayer::NO_SLOT).map(|(w, slot)| (w, *slot as usize))
    }

    /// Committed rows that all rows of the forward follow, and the state that their states come from; `None` if all are
    /// padding.
    pub(crate) fn committed(&self) -> Option<usize> {
        self.stored().map(|(w, _)| self.tails.prefix[w] as usize).min()
    }

    /// Keeps what goes in of a unit, of all rows that have a slot.
    ///
    /// # Safety
    /// The unit is the caller's alone.
    pub(crate) unsafe fn keep(&self, unit: usize) {
        for (w, slot) in self.stored() {
            let x = self.x.row(w);
            let copy = |part: Range<usize>| {
                // SAFETY: channels of the unit.
                unsafe { self.memory.kept_mut(slot, part.clone()) }.copy_from_slice(&x[part]);
            };
            copy(self.query(unit));
            copy(self.key(unit));
            for head in (0..self.memory.shape.group()).map(|member| self.value_head(unit, member)) {
                copy(self.value(head));
                let [decay, rate] = self.said(head);
                // SAFETY: what a row says of a value head of the unit.
                unsafe {
                    self.memory.kept_mut(slot, decay..decay + 1)[0] = self.decays.row(w)[head];
                    self.memory.kept_mut(slot, rate..rate + 1)[0] = self.rates.row(w)[head];
                }
            }
        }
    }

    /// The slots that the taps read at a position of the sequence of row `w`, from the row there backwards: how many
    /// there are, and which.
    #[inline(always)]
    pub(crate) fn read(&self, w: usize, position: usize) -> ([usize; DeltaShape::MOST_TAPS], usize) {
        let count = self.memory.shape.taps.min(position + 1);
        let mut slots = [0; DeltaShape::MOST_TAPS];
        for (back, slot) in slots[..count].iter_mut().enumerate() {
            *slot = self.tails.slot(w, position - back);
        }
        (slots, count)
    }

    /// The order in which rows are walked, by their sequences after the first `from` positions: each after those that
    /// its own begins with, so that a state is handed on as far as sequences agree. Writes it to `order`, of which as
    /// many numbers are used as rows are no padding; gives how many.
    pub(crate) fn order(&self, from: usize, order: &mut [u32]) -> usize {
        let mut count = 0;
        for (w, _) in self.stored() {
            order[count] = w as u32;
            count += 1;
        }
        let slots =
            |w: u32| (from..self.tails.len(w as usize)).map(move |at| self.tails.slot(w as usize, at));
        // Rows of one sequence are equal in all that is computed of them; their numbers decide.
        order[..count].sort_unstable_by(|a, b| match slots(*a).cmp(slots(*b)) {
            Ordering::Equal => a.cmp(b),
            other => other,
        });
        count
    }

    /// Positions from `from` on that the sequences of two rows begin with alike.
    pub(crate) fn common(&self, from: usize, [a, b]: [usize; 2]) -> usize {
        let len = self.tails.len(a).min(self.tails.len(b));
        (from..len).take_while(|at| self.tails.slot(a, *at) == self.tails.slot(b, *at)).count()
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self, out: &RowsMut<'_>) {
        let (width, shape) = (self.x.width(), self.memory.shape);
        let heads = shape.value_heads;
        assert!(
            self.x.columns() == shape.channels() && out.columns() == shape.values() && out.width() == width,
            "[{width}, {}] to [{}, {}] of {shape:?}",
            self.x.columns(),
            out.width(),
            out.columns()
        );
        for (what, rows) in [("decays", self.decays), ("rates", self.rates)] {
            assert!((rows.width(), rows.columns()) == (width, heads), "{what} of {heads} heads");
        }
        let DeltaWeights { taps, decays, biases } = self.weights;
        assert_eq!(
            [taps.len(), decays.len(), biases.len()],
            [shape.channels() * shape.taps, heads, heads],
            "weights of {shape:?}"
        );
        assert_eq!(self.slots.len(), width, "slots of the rows");
        self.tails.check(width, usize::MAX);
    }
}
