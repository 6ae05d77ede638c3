//! The ways in which a budget can divide a model's weights between memory and the staging buffer, with what each takes.

use crate::ir::{GroupId, Program, WeightId, substitute_format};

use super::{PackedSizes, Placed, Units, Way, units};

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
        let ways = units.ways();
        let placed: Vec<Placed> = ways.iter().map(|way| units.placed(*way)).collect();
        let needed = |placed: &Placed| placed.resident + placed.staging;
        let whole = needed(&placed[placed.len() - 1]);
        let mut all = Vec::new();
        let mut budget = 0;
        for (place, (way, at)) in ways.iter().zip(&placed).enumerate() {
            budget = needed(at).max(budget);
            // Of some numbers the buffer shrinks by as much as the next matrix takes, which is then in memory, too.
            let is_last = |next: &Placed| needed(next) > budget && whole > budget;
            match placed.get(place + 1) {
                Some(next) if !is_last(next) => {}
                Some(_) => all.push(self.split(&units, (*way, *at), budget, sizes)),
                None => all.push(self.split(&units, (*way, *at), whole, sizes)),
            }
        }
        WeightSplits { fixed: units.fixed, all }
    }

    fn split(
        &self,
        units: &Units,
        (Way { first, places }, placed): (Way, Placed),
        budget: usize,
        sizes: PackedSizes,
    ) -> WeightSplit {
        let (in_memory, streamed) = units.units.split_at(first);
        let pools = if places.is_some() { &units.pools[..] } else { &[] };
        let is_whole = |group: GroupId| {
            streamed.iter().all(|unit| unit.group != group) && pools.iter().all(|pool| pool.group != group)
        };
        let whole = in_memory.iter().filter(|unit| is_whole(unit.group)).map(|unit| unit.bytes).sum();
        let stacks = || {
            let of_experts = pools.iter().flat_map(|pool| pool.matrices.chunks(1));
            streamed.iter().flat_map(|unit| unit.stacks.iter().map(Vec::as_slice)).chain(of_experts)
        };
        let of_bits = |bits: u32| Some((bits, self.substitute_of(stacks(), bits, sizes)?));
        let substitutes =
            if placed.streamed == 0 { Vec::new() } else { (1..=8).filter_map(of_bits).collect() };
        WeightSplit { budget, placed, whole, substitutes }
    }

    /// Packed bytes of the substitutes of matrices that are packed as one each; `None` where one is not smaller.
    fn substitute_of<'a>(
        &self,
        stacks: impl Iterator<Item = &'a [WeightId]>,
        bits: u32,
        sizes: PackedSizes,
    ) -> Option<usize> {
        let format = substitute_format(bits)?;
        let of = |stack: &[WeightId]| {
            let spec = |id: &WeightId| &self.weights[id.0 as usize];
            let is_smaller = |id| {
                let (stored, columns) = (spec(id).format, spec(id).columns);
                format.row_bytes(columns).zip(stored.row_bytes(columns)).is_some_and(|(a, b)| a < b)
            };
            let rows = stack.iter().map(|id| spec(id).rows).sum();
            stack.iter().all(is_smaller).then(|| (sizes.product)(format, rows, spec(&stack[0]).columns))
        };
        stacks.map(of).sum()
    }
}
