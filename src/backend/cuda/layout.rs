//! Where everything of one request lies in device memory, and what travels between it and the host.

use ygg_kernels::cuda::abi::YGG_NO_SLOT;

use crate::ir::{Choice, Program, Region, RowInputs};

use super::{super::ReplayOptions, weights::ALIGNMENT};

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

/// Words of one forward's inputs, one array behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputWords {
    width: usize,
    outputs: usize,
    groups: usize,
    tail_capacity: usize,
    given_columns: usize,
    context: usize,
    slots: usize,
}

impl InputWords {
    pub(super) fn of(program: &Program, options: &ReplayOptions) -> Self {
        let binding = program.binding;
        Self {
            width: binding.width,
            outputs: binding.outputs,
            groups: program.groups as usize,
            tail_capacity: options.tail_capacity,
            given_columns: program.given_columns(),
            context: options.layout.context,
            slots: options.layout.slots(),
        }
    }

    /// First words of: tokens, positions, slots, prefix, tail lengths, output rows, the choice, skipped groups, tails, given rows; and
    /// the end.
    fn starts(&self) -> [usize; 11] {
        let w = self.width;
        let (tails, given) = (w * self.tail_capacity, w * self.given_columns);
        let lengths = [w, w, w, w, w, self.outputs, 2, self.groups, tails, given];
        let mut starts = [0; 11];
        for (i, len) in lengths.into_iter().enumerate() {
            starts[i + 1] = starts[i] + len;
        }
        starts
    }

    pub(super) fn tokens(&self) -> usize {
        self.starts()[0]
    }

    pub(super) fn positions(&self) -> usize {
        self.starts()[1]
    }

    pub(super) fn slots(&self) -> usize {
        self.starts()[2]
    }

    pub(super) fn prefix(&self) -> usize {
        self.starts()[3]
    }

    pub(super) fn tail_len(&self) -> usize {
        self.starts()[4]
    }

    pub(super) fn output_rows(&self) -> usize {
        self.starts()[5]
    }

    pub(super) fn choice(&self) -> usize {
        self.starts()[6]
    }

    pub(super) fn skipped(&self) -> usize {
        self.starts()[7]
    }

    pub(super) fn tails(&self) -> usize {
        self.starts()[8]
    }

    pub(super) fn given(&self) -> usize {
        self.starts()[9]
    }

    pub(super) fn words(&self) -> usize {
        self.starts()[10]
    }

    pub(super) fn tail_capacity(&self) -> usize {
        self.tail_capacity
    }

    /// Rows that are all padding.
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
        let is_inside = |w: usize| {
            let (prefix, tail_len) = (inputs.prefix()[w] as usize, inputs.tail_len()[w] as usize);
            let tail = &inputs.tails()[w * self.tail_capacity..][..tail_len];
            let slot = inputs.slots()[w];
            prefix + tail_len <= self.context
                && (inputs.positions()[w] as usize) < self.context
                && (slot == YGG_NO_SLOT || (slot as usize) < self.slots)
                && tail.iter().all(|slot| (*slot as usize) < self.slots)
        };
        let (context, slots) = (self.context, self.slots);
        assert!((0..self.width).all(is_inside), "rows within {context} positions and {slots} slots");
        let rows = [inputs.tokens(), inputs.positions(), inputs.slots(), inputs.prefix(), inputs.tail_len()];
        let starts = self.starts();
        for (start, values) in starts.iter().zip(rows) {
            to[*start..][..values.len()].copy_from_slice(values);
        }
        to[starts[5]..][..self.outputs].copy_from_slice(inputs.output_rows());
        self.write_choice(inputs.choice(), skipped, to);
        to[starts[8]..starts[9]].copy_from_slice(&inputs.tails()[..self.width * self.tail_capacity]);
        for (word, x) in to[starts[9]..starts[10]].iter_mut().zip(inputs.given()) {
            *word = x.to_bits();
        }
    }

    /// Writes only which candidates are wanted and which groups are skipped.
    pub(super) fn write_choice(&self, choice: Choice, skipped: &[bool], to: &mut [u32]) {
        let starts = self.starts();
        to[starts[6]] = u32::try_from(choice.k).expect("few candidates");
        to[starts[6] + 1] = choice.temperature.map_or(0.0, |t| 1.0 / t).to_bits();
        for (word, skip) in to[starts[7]..starts[8]].iter_mut().zip(skipped) {
            *word = u32::from(*skip);
        }
    }
}

/// Floats of a region from its first element to its last.
pub(super) fn floats_of(region: &Region) -> usize {
    (region.rows - 1) * region.row_stride + region.columns
}

/// Floats that a program leaves to be read: what it shows, and its hidden rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultWords {
    pub(super) shown: usize,
    pub(super) hidden: usize,
}

impl ResultWords {
    pub(super) fn of(program: &Program) -> Self {
        Self { shown: floats_of(&program.shown), hidden: program.hidden.as_ref().map_or(0, floats_of) }
    }

    pub(super) fn words(&self) -> usize {
        self.shown + self.hidden
    }
}
