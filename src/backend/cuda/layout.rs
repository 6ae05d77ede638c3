//! Where everything of one request lies in device memory, and what travels between it and the host.

use std::ops::Range;

use ygg_kernels::cuda::abi::{YGG_NO_SLOT, YggNoise, YggRows};

use crate::ir::{Binding, Noise, Program, Region, RowInputs};

use super::{
    super::ReplayOptions,
    states::{StateSizes, has_states},
    weights::ALIGNMENT,
};

/// Hands out places in a block that does not exist yet.
#[derive(Debug, Default)]
pub(super) struct Bump {
    bytes: usize,
}

impl Bump {
    /// Offset of the next `bytes`.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        let offset = self.bytes;
        self.bytes = (offset + bytes).next_multiple_of(ALIGNMENT);
        offset
    }

    /// All that was handed out.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A size of a model, a tree or a cache, as kernels take it.
pub(super) fn number(n: usize) -> u32 {
    u32::try_from(n).expect("sizes are far below 2^32")
}

/// The rows of a region of an arena, as kernels take them.
pub(super) fn kernel_rows(arena: u64, region: &Region) -> YggRows {
    YggRows {
        data: (arena + region.offset_bytes as u64) as *mut f32,
        rows: number(region.rows),
        columns: number(region.columns),
        stride: number(region.row_stride),
    }
}

/// Words of the noise.
const NOISE: usize = size_of::<YggNoise>() / size_of::<u32>();

/// Words of one forward's inputs, one array after the other: where each begins, in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputWords {
    width: usize,
    outputs: usize,
    groups: usize,
    pub(super) tail_capacity: usize,
    given_columns: usize,
    context: usize,
    /// Positions from the first row's end of common ones to the last of any, at most.
    longest_path: usize,
    slot_count: usize,
    pub(super) tokens: usize,
    pub(super) positions: usize,
    pub(super) slots: usize,
    pub(super) prefix: usize,
    pub(super) tail_len: usize,
    pub(super) output_rows: usize,
    pub(super) choice: usize,
    pub(super) noise: usize,
    pub(super) skipped: usize,
    pub(super) tails: usize,
    pub(super) given: usize,
    /// Words of all.
    pub(super) words: usize,
}

impl InputWords {
    pub(super) fn of(program: &Program, options: &ReplayOptions) -> Self {
        let Binding { width, outputs } = program.binding;
        let (groups, tail_capacity) = (program.groups as usize, options.tail_capacity);
        let given_columns = program.given_columns();
        let mut end = 0;
        let mut array = |words: usize| {
            end += words;
            end - words
        };
        Self {
            width,
            outputs,
            groups,
            tail_capacity,
            given_columns,
            context: options.layout.context,
            longest_path: match has_states(program) {
                true => StateSizes::longest_path(width, tail_capacity),
                false => usize::MAX,
            },
            slot_count: options.layout.slots(),
            tokens: array(width),
            positions: array(width),
            slots: array(width),
            prefix: array(width),
            tail_len: array(width),
            output_rows: array(outputs),
            choice: array(2),
            noise: array(NOISE),
            skipped: array(groups),
            tails: array(width * tail_capacity),
            given: array(width * given_columns),
            words: array(0),
        }
    }

    pub(super) fn padding(&self) -> RowInputs {
        RowInputs::new(self.width, self.outputs, self.tail_capacity).with_given(self.given_columns)
    }

    /// A root at the first place, and padding: what graphs are tried on before they are captured.
    pub(super) fn first_root(&self) -> RowInputs {
        let mut rows = self.padding();
        rows.push(0, 0, 0, 0, |tail| {
            tail[0] = 0;
            1
        });
        rows
    }

    /// Writes what the host supplies.
    ///
    /// # Panics
    /// If the inputs are of another program, or name places that the memory has not got: a kernel would not notice.
    pub(super) fn write(&self, inputs: &RowInputs, skipped: &[bool], to: &mut [u32]) {
        assert_eq!(
            (inputs.width(), inputs.outputs(), inputs.tail_capacity(), inputs.given_columns(), skipped.len()),
            (self.width, self.outputs, self.tail_capacity, self.given_columns, self.groups),
            "inputs of this program"
        );
        let stored = || (0..self.width).filter(|w| inputs.slots()[*w] != YGG_NO_SLOT);
        let common = stored().map(|w| inputs.prefix()[w] as usize).min().unwrap_or(0);
        let is_inside = |w: usize| {
            let (prefix, tail_len) = (inputs.prefix()[w] as usize, inputs.tail_len()[w] as usize);
            let tail = &inputs.tails()[w * self.tail_capacity..][..tail_len];
            let slot = inputs.slots()[w];
            prefix + tail_len <= self.context
                && (slot == YGG_NO_SLOT || prefix + tail_len - common <= self.longest_path)
                && (inputs.positions()[w] as usize) < self.context
                && (slot == YGG_NO_SLOT || (slot as usize) < self.slot_count)
                && tail.iter().all(|slot| (*slot as usize) < self.slot_count)
        };
        let (context, slots) = (self.context, self.slot_count);
        assert!((0..self.width).all(is_inside), "rows within {context} positions and {slots} slots");
        for (start, values) in [
            (self.tokens, inputs.tokens()),
            (self.positions, inputs.positions()),
            (self.slots, inputs.slots()),
            (self.prefix, inputs.prefix()),
            (self.tail_len, inputs.tail_len()),
            (self.output_rows, inputs.output_rows()),
            (self.tails, &inputs.tails()[..self.width * self.tail_capacity]),
        ] {
            to[start..][..values.len()].copy_from_slice(values);
        }
        self.write_choice(inputs, skipped, to);
        for (word, x) in to[self.given..self.words].iter_mut().zip(inputs.given()) {
            *word = x.to_bits();
        }
    }

    /// Writes only which candidates are wanted, by which noise if there is some, and which groups are skipped.
    pub(super) fn write_choice(&self, inputs: &RowInputs, skipped: &[bool], to: &mut [u32]) {
        let choice = inputs.choice();
        // Values under noise are not summed.
        let divides = choice.temperature.filter(|_| inputs.noise().is_none());
        to[self.choice] = u32::try_from(choice.k).expect("few candidates");
        to[self.choice + 1] = divides.map_or(0.0, |t| 1.0 / t).to_bits();
        if let Some(Noise { seed, temperature, first }) = inputs.noise() {
            let sharpness = choice.temperature.map_or(0.0, |valued_at| temperature / valued_at);
            let [temperature, inverse, sharpness] =
                [temperature, 1.0 / temperature, sharpness].map(f32::to_bits);
            let words: [u32; NOISE] =
                [seed as u32, (seed >> 32) as u32, number(first), temperature, inverse, sharpness];
            to[self.noise..][..NOISE].copy_from_slice(&words);
        }
        for (word, skip) in to[self.skipped..self.tails].iter_mut().zip(skipped) {
            *word = u32::from(*skip);
        }
    }
}

/// Floats of a region from its first element to its last.
pub(super) fn floats_of(region: &Region) -> usize {
    (region.rows - 1) * region.row_stride + region.columns
}

/// What a program leaves to be read, in order: the words of the host that it is fetched to, and its region.
pub(super) fn left_of(program: &Program) -> impl Iterator<Item = (Range<usize>, &Region)> {
    program.left().scan(0, |end, region| {
        let start = *end;
        *end += floats_of(region);
        Some((start..*end, region))
    })
}

/// Words of the host that what a program leaves is fetched to.
pub(super) fn words_left(program: &Program) -> usize {
    program.left().map(floats_of).sum()
}
