//! What is kept of the states of rows: their sizes, and the memory of one layer.

use std::{cell::UnsafeCell, marker::PhantomData, ops::Range};

/// Columns of a state that lie together: lanes of the vectors that work on them.
pub(crate) const STATE_LANES: usize = 16;

/// How a state follows a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StateRule {
    /// By the gated delta rule: what the state knows of a key is changed towards the value.
    #[default]
    Delta,
    /// By a selective scan, as in Mamba 2: the product of key and value is added.
    Scan,
}

impl StateRule {
    /// What layers with it have.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delta => "gated delta rules",
            Self::Scan => "selective scans",
        }
    }
}

/// Sizes of what a recurrence works on; zeros for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateShape {
    /// What is computed, which decides what is kept of rows.
    pub rule: StateRule,
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

impl StateShape {
    /// Most taps of a channel.
    pub const MOST_TAPS: usize = 8;
    /// Most elements of a key or a value, which bound a thread's scratch.
    pub const MOST_DIM: usize = 512;
    /// Most value heads of a unit. Queries and keys are convolved in each unit again, which of 4 heads costs a small
    /// part of what their states do; more would leave threads without work where all heads read one key head.
    const UNIT_HEADS: usize = 4;

    /// Whether kernels take it.
    pub fn is_lawful(&self) -> bool {
        let Self { rule: _, key_heads, value_heads, key_dim, value_dim, taps } = *self;
        let dims = 1..=Self::MOST_DIM;
        key_heads > 0
            && value_heads > 0
            && value_heads.is_multiple_of(key_heads)
            && dims.contains(&key_dim)
            && dims.contains(&value_dim)
            && (1..=Self::MOST_TAPS).contains(&taps)
    }

    /// Channels that are convolved, `C`: queries, keys and values of all heads.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.values()
    }

    /// Elements of a row of results: values of all heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Numbers that a row says of each value head, in addition to its channels.
    pub fn said(&self) -> usize {
        match self.rule {
            StateRule::Delta => 2,
            StateRule::Scan => 1,
        }
    }

    /// Value heads that read one key head.
    pub fn group(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// Value heads of a unit, which all read one key head.
    pub(crate) fn unit_heads(&self) -> usize {
        let group = self.group();
        (1..=Self::UNIT_HEADS.min(group)).rev().find(|heads| group.is_multiple_of(*heads)).unwrap_or(1)
    }

    /// Units of one key head.
    pub(crate) fn parts(&self) -> usize {
        self.group() / self.unit_heads()
    }

    /// Independent pieces of work: some of the value heads that read a key head.
    pub fn units(&self) -> usize {
        self.key_heads * self.parts()
    }

    /// What is kept of a row: its channels, and what it says of each value head.
    fn row(&self) -> usize {
        self.channels() + self.said() * self.value_heads
    }

    /// Elements of the state of a value head: `[B / 16, A, 16]`, columns beyond `B` zero.
    pub(crate) fn head_state(&self) -> usize {
        self.value_dim.div_ceil(STATE_LANES) * self.key_dim * STATE_LANES
    }

    /// Elements of the states of a unit.
    pub(crate) fn unit_state(&self) -> usize {
        self.unit_heads() * self.head_state()
    }
}

/// Which of a unit's states.
const NEWEST: usize = 0;
const NEWER: usize = 1;
const OLDER: usize = 2;
/// States that are kept.
const STATES: usize = 3;
/// Rows before a state's end that taps of rows after it reach, at most.
const READ_ROWS: usize = StateShape::MOST_TAPS - 1;
/// Of a state that holds nothing.
const NOTHING: u32 = u32::MAX;

/// What the recurrence of one layer keeps, of f32 in every format of keys and values: what went in of the last rows,
/// `[R, C + 2 H]` of a delta rule and `[R, C + H]` of a scan, where slot `s` is row `s mod R`; and for every unit three
/// states, each after so many committed rows.
///
/// Rows of a tree are what went in, as small as keys and values. The newest state follows the committed rows when a
/// forward begins, so that what is accepted is nowhere copied but as what went in; a row's own state is made from it
/// while a forward runs. Two older states, at multiples of [`STRIDE`](Self::STRIDE), let a text be cut by up to so many
/// rows: what went in of the rows after them is kept.
#[derive(Clone, Copy, Debug)]
pub struct StateLayer<'a> {
    start: *mut f32,
    ring: usize,
    shape: StateShape,
    memory: PhantomData<&'a UnsafeCell<f32>>,
}

// SAFETY: `from_raw` promises that the memory is shared by the rules it states, whichever thread uses the view.
unsafe impl Send for StateLayer<'_> {}
// SAFETY: as above.
unsafe impl Sync for StateLayer<'_> {}

impl StateLayer<'_> {
    /// Rows between two older states, and so the fewest rows by which a text can be cut. As many as a block of kept
    /// prefixes: a prompt whose end differs is read again from its last forward at most.
    pub const STRIDE: usize = 64;

    /// Rows `R` that are kept with `scratch` slots after the committed ones: those that a forward writes, those that
    /// were accepted since the newest state was made, those after the oldest state, and those that taps reach.
    pub const fn ring(scratch: usize) -> usize {
        2 * scratch + 2 * Self::STRIDE + StateShape::MOST_TAPS
    }

    /// Bytes of a layer.
    pub fn bytes(shape: StateShape, ring: usize) -> usize {
        let states = STATES * shape.units() * shape.unit_state();
        (ring * shape.row() + states + STATES * shape.units()) * size_of::<f32>()
    }

    /// A view of memory that a cache owns.
    ///
    /// # Safety
    /// For the view's lifetime `start` points to [`StateLayer::bytes`] initialised bytes, aligned to 64, zeros at first
    /// and written by ops and methods of this view alone. While an op works on a unit, nothing else touches its states
    /// and what goes into it of the op's own rows, of which queries and keys belong to the first unit of a key head; and
    /// nothing writes what is kept of other rows.
    ///
    /// # Panics
    /// If the shape is not lawful.
    pub unsafe fn from_raw(start: *mut f32, ring: usize, shape: StateShape) -> Self {
        assert!(ring > 0 && shape.is_lawful(), "{ring} rows of {shape:?}");
        Self { start, ring, shape, memory: PhantomData }
    }

    /// Its sizes.
    pub fn shape(&self) -> StateShape {
        self.shape
    }

    /// What is kept of a row.
    ///
    /// # Safety
    /// Nobody writes the row while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn kept_row(&self, slot: usize) -> &[f32] {
        let all = 0..self.shape.row();
        // SAFETY: inside the memory that `from_raw` was promised; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(slot, &all), all.len()) }
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
        let (units, len) = (self.shape.units(), self.shape.unit_state());
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
        let units = self.shape.units();
        assert!(unit < units, "unit {unit} of {self:?}");
        let offset = self.ring * self.shape.row() + STATES * units * self.shape.unit_state() + unit * STATES;
        // SAFETY: inside the memory, whose last elements are these numbers; ours alone by the caller's promise.
        unsafe { &mut *self.start.add(offset).cast() }
    }

    /// The newest state of a unit that is after at most `to` committed rows, and which of them it is to follow next, none
    /// if it is after `to`: [`followed`](Self::followed) is told of them. An op that works by vectors asks for rows to
    /// follow instead of giving a closure, which would be compiled without the processor's features.
    ///
    /// # Safety
    /// Nothing else touches the unit's states while the slice lives.
    ///
    /// # Panics
    /// If all states are after more rows: whoever cuts a text asks [`resume_point`](Self::resume_point) first.
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user")]
    pub(crate) unsafe fn newest(&self, unit: usize, to: usize) -> (&mut [f32], Range<usize>) {
        // SAFETY: promised by the caller.
        let ([newest, newer, older], held) = unsafe { (self.states(unit), self.held(unit)) };
        let to = u32::try_from(to).expect("contexts are far below 2^32");
        if held[NEWEST] > to {
            let (from, state) = if held[NEWER] <= to { (NEWER, &*newer) } else { (OLDER, &*older) };
            assert!(held[from] <= to, "a state after {} rows for {to} rows", held[from]);
            newest.copy_from_slice(state);
            held[NEWEST] = held[from];
        }
        // A state at a multiple of the stride is kept.
        let end = to.min((held[NEWEST] + 1).next_multiple_of(Self::STRIDE as u32));
        (newest, held[NEWEST] as usize..end as usize)
    }

    /// Takes the newest state of a unit for one that has followed the rows that [`newest`](Self::newest) named, which end
    /// at `rows`.
    ///
    /// # Safety
    /// Nothing else touches the unit's states meanwhile.
    pub(crate) unsafe fn followed(&self, unit: usize, rows: usize) {
        // SAFETY: promised by the caller.
        let ([newest, newer, older], held) = unsafe { (self.states(unit), self.held(unit)) };
        held[NEWEST] = u32::try_from(rows).expect("contexts are far below 2^32");
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

    /// The longest beginning of `len` committed rows that others can follow: all of it, unless it ends before the
    /// oldest state of some head; then none.
    ///
    /// # Safety
    /// Nothing else touches the layer meanwhile.
    pub unsafe fn resume_point(&self, len: usize) -> usize {
        // SAFETY: promised by the caller.
        let oldest = (0..self.shape.units()).map(|unit| unsafe { self.held(unit) }[OLDER]).max();
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
        for unit in 0..self.shape.units() {
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
        for unit in 0..self.shape.units() {
            // SAFETY: promised by the caller.
            *unsafe { self.held(unit) } = [NOTHING, NOTHING, len];
        }
    }

    /// Bytes of a state as [`copy_state_out`](Self::copy_state_out) gives it: of all heads, with what went in of the
    /// rows before it that taps reach.
    pub fn moved_bytes(shape: StateShape) -> usize {
        (READ_ROWS * shape.row() + shape.units() * shape.unit_state()) * size_of::<f32>()
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
        let all = (0..self.shape.units()).map(of_unit).min().flatten();
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
            copy(row, unsafe { self.kept_row(slot) });
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
