//! States of rows in device memory: where they are, the kernels that let them follow rows, and what the host asks of
//! them between forwards. All columns of all heads are after as many rows, since every launch treats them alike.

use cudarc::driver::{CudaStream, result};
use ygg_kernels::{StateForm, StateLayer, StateRule, StateShape, cuda::abi::*};

use crate::ir::{KvSpec, Op, Program, Step, WeightId};

use super::{
    super::{BackendError, ReplayOptions},
    device::{Launch, check},
    launches::{Launches, float, float_mut},
    layout::number,
};

const _: () = assert!(
    StateShape::MOST_TAPS == YGG_MOST_TAPS as usize && StateLayer::STRIDE == YGG_STATE_STRIDE as usize,
    "as kernels have it"
);

/// States of a head that are kept: the newest, and two older ones.
const KEPT: usize = 3;
/// Rows before a state that taps of rows after it reach, at most.
const READ_ROWS: usize = StateShape::MOST_TAPS - 1;
/// Where nothing is held.
const NOTHING: u32 = YGG_NO_SLOT;

/// Sizes of what the recurrences of a session keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateSizes {
    pub(super) layers: usize,
    shape: StateShape,
    /// Rows that are kept: slot `s` is row `s mod ring`.
    pub(super) ring: usize,
}

impl StateSizes {
    pub(super) fn of(kv: &KvSpec, options: &ReplayOptions) -> Self {
        let ring = StateLayer::ring(options.layout.scratch);
        Self { layers: kv.states.layers, shape: kv.states.shape, ring }
    }

    /// Elements of a row that a layer keeps.
    pub(super) fn row(&self) -> usize {
        2 * self.shape.channels() + 2 * self.shape.value_heads
    }

    /// Elements of one state of all heads.
    fn state(&self) -> usize {
        self.shape.values() * self.shape.key_dim
    }

    /// Blocks of the columns of a head.
    fn tiles(&self) -> usize {
        self.shape.value_dim.div_ceil(YGG_STATE_COLUMNS as usize)
    }

    /// Numbers of rows that a layer holds.
    fn held(&self) -> usize {
        KEPT * self.shape.value_heads * self.tiles()
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.layers * self.ring * self.row() * size_of::<f32>()
    }

    pub(super) fn matrices_bytes(&self) -> usize {
        self.layers * KEPT * self.state() * size_of::<f32>()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.layers * self.held() * size_of::<u32>()
    }

    /// Bytes of states that the walk of one layer saves.
    pub(super) fn saved_bytes(&self) -> usize {
        if self.layers == 0 { 0 } else { YGG_SAVED_STATES as usize * self.state() * size_of::<f32>() }
    }

    /// Most committed rows that some row of a forward sees and others do not, with its own tail after them.
    pub(super) fn longest_path(width: usize, tail_capacity: usize) -> usize {
        width + tail_capacity
    }

    /// Bytes of the walk of a forward: two counts, then its steps.
    pub(super) fn walk_bytes(&self, width: usize, tail_capacity: usize) -> usize {
        let steps = width * Self::longest_path(width, tail_capacity);
        if self.layers == 0 { 0 } else { 2 * size_of::<u32>() + steps * size_of::<YggStateStep>() }
    }
}

/// What the recurrences of a session keep, and where that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct States {
    pub(super) sizes: StateSizes,
    /// `[layers][ring][row]`.
    pub(super) kept: u64,
    /// `[layers][newest, newer, older][H][A][B]`.
    pub(super) matrices: u64,
    /// `[layers][H][tiles][newest, newer, older]`.
    pub(super) held: u64,
    pub(super) saved: u64,
    pub(super) walk: u64,
}

impl States {
    fn matrix_at(&self, layer: usize, which: usize) -> u64 {
        self.matrices + ((layer * KEPT + which) * self.sizes.state() * size_of::<f32>()) as u64
    }

    fn row_at(&self, layer: usize, slot: usize) -> u64 {
        let row = layer * self.sizes.ring + slot % self.sizes.ring;
        self.kept + (row * self.sizes.row() * size_of::<f32>()) as u64
    }

    /// After how many rows each state of each layer is.
    fn held(&self, stream: &CudaStream) -> Result<Vec<[u32; KEPT]>, BackendError> {
        check("wait for a forward", stream.synchronize())?;
        let each = self.sizes.held();
        let mut held = vec![0; self.sizes.layers * each];
        // SAFETY: what all layers hold, inside the session's block.
        check("fetch what states hold", unsafe { result::memcpy_dtoh_sync(&mut held, self.held) })?;
        Ok(held.chunks_exact(each).map(|layer| [layer[0], layer[1], layer[2]]).collect())
    }

    fn set_held(&self, held: &[[u32; KEPT]]) -> Result<(), BackendError> {
        let times = self.sizes.held() / KEPT;
        let words: Vec<u32> = held.iter().flat_map(|layer| layer.repeat(times)).collect();
        // SAFETY: as many words as there are, inside the session's block, which nothing uses now.
        check("send what states hold", unsafe { result::memcpy_htod_sync(self.held, &words) })
    }

    /// The longest beginning of `len` rows that others can follow.
    pub(super) fn resume_point(&self, len: usize, stream: &CudaStream) -> Result<usize, BackendError> {
        let can_follow = self.held(stream)?.iter().all(|[_, _, older]| *older as usize <= len);
        Ok(if can_follow { len } else { 0 })
    }

    /// Forgets all rows but the first `len`, a resume point.
    pub(super) fn forget(&self, len: usize, stream: &CudaStream) -> Result<(), BackendError> {
        let mut held = self.held(stream)?;
        for (layer, [newest, newer, older]) in held.iter_mut().enumerate() {
            assert!(len == 0 || *older as usize <= len, "rows that states can return to");
            if len == 0 {
                let (at, bytes) = (self.matrix_at(layer, 2), self.sizes.state() * size_of::<f32>());
                // SAFETY: one state, inside the session's block, which nothing uses now.
                check("clear a state", unsafe { result::memset_d8_async(at, 0, bytes, stream.cu_stream()) })?;
                *older = 0;
            }
            for state in [newest, newer] {
                if *state as usize > len || len == 0 {
                    *state = NOTHING;
                }
            }
        }
        check("clear states", stream.synchronize())?;
        self.set_held(&held)
    }

    /// Takes the oldest states for those after `len` rows, whatever they are.
    pub(super) fn assume(&self, len: usize, stream: &CudaStream) -> Result<(), BackendError> {
        check("wait for a forward", stream.synchronize())?;
        self.set_held(&vec![[NOTHING, NOTHING, number(len)]; self.sizes.layers])
    }

    /// Bytes of a state as it is read: of every layer what is kept of the rows before it that taps reach, then the
    /// state.
    pub(super) fn moved_bytes(&self) -> usize {
        let floats = READ_ROWS * self.sizes.row() + self.sizes.state();
        self.sizes.layers * floats * size_of::<f32>()
    }

    /// After how many rows, a multiple of the stride, the latest state is that every layer keeps.
    pub(super) fn state_end(&self, stream: &CudaStream) -> Result<Option<usize>, BackendError> {
        let of_layer = |[_, newer, older]: &[u32; KEPT]| {
            let latest = [*newer, *older].into_iter().filter(|rows| *rows != NOTHING).max();
            latest.filter(|rows| *rows > 0 && rows.is_multiple_of(YGG_STATE_STRIDE)).map(|rows| rows as usize)
        };
        Ok(self.held(stream)?.iter().map(of_layer).min().flatten())
    }

    /// Copies the state after `end` rows out.
    pub(super) fn read(&self, end: usize, bytes: &mut [u8], stream: &CudaStream) -> Result<(), BackendError> {
        assert_eq!(bytes.len(), self.moved_bytes(), "bytes of a state");
        let held = self.held(stream)?;
        let mut rest = bytes;
        let mut fetch = |at: u64, floats: usize| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(floats * size_of::<f32>());
            rest = after;
            // SAFETY: inside the session's block, which nothing writes now.
            check("fetch a state", unsafe { result::memcpy_dtoh_sync(to, at) })
        };
        for (layer, held) in held.iter().enumerate() {
            for back in (1..=READ_ROWS).rev() {
                fetch(self.row_at(layer, end - back), self.sizes.row())?;
            }
            let which = held.iter().skip(1).position(|rows| *rows as usize == end);
            let which = 1 + which.expect("a state after these rows is kept");
            fetch(self.matrix_at(layer, which), self.sizes.state())?;
        }
        Ok(())
    }

    /// Takes what was read for the only state that is kept.
    pub(super) fn write(&self, end: usize, bytes: &[u8], stream: &CudaStream) -> Result<(), BackendError> {
        assert_eq!(bytes.len(), self.moved_bytes(), "bytes of a state");
        check("wait for a forward", stream.synchronize())?;
        let mut rest = bytes;
        let mut send = |at: u64, floats: usize| {
            let (from, after) = rest.split_at(floats * size_of::<f32>());
            rest = after;
            // SAFETY: inside the session's block, which nothing uses now.
            check("send a state", unsafe { result::memcpy_htod_sync(at, from) })
        };
        for layer in 0..self.sizes.layers {
            for back in (1..=READ_ROWS).rev() {
                send(self.row_at(layer, end - back), self.sizes.row())?;
            }
            send(self.matrix_at(layer, 2), self.sizes.state())?;
        }
        self.assume(end, stream)
    }

    fn kernel_states(&self, layer: usize, form: StateForm) -> YggStates {
        let StateShape { rule, key_heads, value_heads, key_dim, value_dim, taps: _ } = self.sizes.shape;
        YggStates {
            is_scan: u32::from(rule == StateRule::Scan),
            is_grouped: u32::from(form.is_grouped),
            key_heads: number(key_heads),
            value_heads: number(value_heads),
            key_dim: number(key_dim),
            value_dim: number(value_dim),
            ring: number(self.sizes.ring),
            kept: float_mut(self.row_at(layer, 0)),
        }
    }

    fn counts(&self) -> *mut u32 {
        self.walk as *mut u32
    }

    fn steps(&self) -> *mut YggStateStep {
        (self.walk + 2 * size_of::<u32>() as u64) as *mut YggStateStep
    }
}

/// Whether a program lets states follow rows.
pub(super) fn has_states(program: &Program) -> bool {
    program.steps.iter().any(|step| matches!(step.op, Op::Recurrence { .. }))
}

impl Launches<'_> {
    /// The walk over the rows of a forward, which all its recurrences take.
    pub(super) fn state_order(&self) -> Result<Launch, BackendError> {
        let words = &self.at.words;
        let params = YggStateOrder {
            rows: number(self.program.binding.width),
            slots: self.input(words.slots),
            prefix: self.input(words.prefix),
            tail_len: self.input(words.tail_len),
            tails: self.input(words.tails),
            tail_capacity: number(words.tail_capacity),
            counts: self.at.states.counts(),
            steps: self.at.states.steps(),
        };
        self.launch("ygg_state_order", [1, 1, 1], YGG_MOST_WIDTH, 0, params)
    }

    pub(super) fn recurrence(
        &self,
        in_step: YggStep,
        step: &Step,
        (layer, vectors, form): (usize, &[WeightId], StateForm),
    ) -> Result<Vec<Launch>, BackendError> {
        let states = self.at.states;
        let shape = states.sizes.shape;
        let rows = |i: usize| self.rows(&step.operands[i].region().expect("what goes in has bytes"));
        let out = self.rows(&step.result.region().expect("the step has a result"));
        let vector = |i: usize| vectors.get(i).map_or(std::ptr::null(), |id| float(self.weights.vector(*id)));
        let words = &self.at.words;
        let (x, steps) = (rows(0), rows(1));
        let kernel_states = states.kernel_states(layer, form);
        let made = YggStateRows {
            step: in_step,
            states: kernel_states,
            x,
            steps,
            rates: if shape.said() > 1 { rows(2) } else { YggRows { data: float_mut(0), ..steps } },
            taps: vector(0),
            channel_biases: vector(3),
            decays: vector(1),
            step_biases: vector(2),
            tap_count: number(shape.taps),
            is_logarithm: u32::from(form.is_logarithm),
            shortest: form.steps[0],
            longest: form.steps[1],
            slots: self.input(words.slots),
            prefix: self.input(words.prefix),
            tail_len: self.input(words.tail_len),
            tails: self.input(words.tails),
            tail_capacity: number(words.tail_capacity),
            out,
        };
        let walk = YggStateWalk {
            step: in_step,
            states: kernel_states,
            matrices: float_mut(states.matrix_at(layer, 0)),
            held: (states.held + (layer * states.sizes.held() * size_of::<u32>()) as u64) as *mut u32,
            saved: float_mut(states.saved),
            skips: vector(4),
            counts: states.counts(),
            steps: states.steps(),
            out,
        };
        let columns = YGG_STATE_COLUMNS as usize;
        let shared = shape.key_dim * (columns + 2) + 2 * YGG_STATE_PARTS as usize * columns;
        let grid = [shape.value_heads, states.sizes.tiles(), 1];
        let threads = YGG_STATE_COLUMNS * YGG_STATE_PARTS;
        Ok(vec![
            self.launch("ygg_state_rows", [shape.key_heads, x.rows as usize, 1], YGG_ROW_THREADS, 0, made)?,
            self.launch("ygg_state_walk", grid, threads, shared * size_of::<f32>(), walk)?,
        ])
    }
}
