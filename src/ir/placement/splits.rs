//! The ways in which a budget can divide a model's weights between memory and the staging buffer, with what each takes.

use crate::ir::{GroupId, Program, WeightId, substitute_format};

use super::{PackedSizes, Placed, Unit, Units, units};

/// One way to divide weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSplit {
    /// The least budget that gives it.
    pub budget: usize,
    /// Bytes in memory, read, and of the buffer.
    pub placed: Placed,
    /// Bytes of the matrices of groups of which none is streamed.
    pub whole: usize,
    /// Packed bytes of the substitutes of all streamed matrices, by bits: of those that make each of these matrices
    /// smaller.
    pub substitutes: Vec<(u32, usize)>,
}

/// All ways to divide the weights of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSplits {
    /// Bytes of what always stays in memory.
    pub fixed: usize,
    /// What [`Graph::place`](crate::ir::Graph::place) finds within any budget, the least in memory first.
    pub all: Vec<WeightSplit>,
}

impl Program {
    /// All ways to divide the weights of this program's graph, on a device on which weights have these sizes.
    ///
    /// # Panics
    /// If the device does not read one of the formats.
    pub fn weight_splits(&self, sizes: PackedSizes) -> WeightSplits {
        let units = units(self, sizes);
        let placed: Vec<Placed> = (0..=units.units.len()).map(|first| units.placed(first)).collect();
        let needed = |placed: &Placed| placed.resident + placed.staging;
        let whole = needed(&placed[units.units.len()]);
        let mut all = Vec::new();
        let mut budget = 0;
        for (first, at) in placed.iter().enumerate() {
            budget = needed(at).max(budget);
            // Of some numbers the buffer shrinks by as much as the next matrix takes, which is then in memory, too.
            let is_last = |next: &Placed| needed(next) > budget && whole > budget;
            match placed.get(first + 1) {
                Some(next) if !is_last(next) => {}
                Some(_) => all.push(self.split(&units, (first, *at), budget, sizes)),
                None => all.push(self.split(&units, (first, *at), whole, sizes)),
            }
        }
        WeightSplits { fixed: units.fixed, all }
    }

    fn split(
        &self,
        units: &Units,
        (first, placed): (usize, Placed),
        budget: usize,
        sizes: PackedSizes,
    ) -> WeightSplit {
        let (in_memory, streamed) = units.units.split_at(first);
        let is_whole = |group: GroupId| streamed.iter().all(|unit| unit.group != group);
        let whole = in_memory.iter().filter(|unit| is_whole(unit.group)).map(|unit| unit.bytes).sum();
        let of_bits = |bits: u32| Some((bits, self.substitute_of(streamed, bits, sizes)?));
        let substitutes =
            if streamed.is_empty() { Vec::new() } else { (1..=8).filter_map(of_bits).collect() };
        WeightSplit { budget, placed, whole, substitutes }
    }

    /// Packed bytes of the substitutes of some matrices; `None` where one of them is not smaller.
    fn substitute_of(&self, streamed: &[Unit], bits: u32, sizes: PackedSizes) -> Option<usize> {
        let format = substitute_format(bits)?;
        let of = |unit: &Unit| {
            let spec = |id: &WeightId| &self.weights[id.0 as usize];
            let is_smaller = |id| {
                let (stored, columns) = (spec(id).format, spec(id).columns);
                format.row_bytes(columns).zip(stored.row_bytes(columns)).is_some_and(|(a, b)| a < b)
            };
            let packed = |stack: &[WeightId]| {
                let rows = stack.iter().map(|id| spec(id).rows).sum();
                (sizes.product)(format, rows, spec(&stack[0]).columns)
            };
            let stacks = unit.stacks.iter().map(|stack| packed(stack));
            unit.stacks.iter().flatten().all(is_smaller).then(|| stacks.sum::<usize>())
        };
        streamed.iter().map(of).sum()
    }
}
