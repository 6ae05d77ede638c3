//! Which weights stay in the device's memory, and which every forward gets again: from the file that keeps them, or for
//! a GPU from memory of the host.
//!
//! The unit is a matrix as it is packed: queries, keys and values together, gate and up together. Vectors, the
//! embedding and the head stay, then the matrices of the first layers, as far as the budget goes; all others are
//! *streamed* through a staging buffer in the order of use.

use std::collections::BTreeSet;

use super::{Graph, GroupId, Norm, OpWeights, Program, WeightFormat, WeightId, WeightSpec};

mod splits;
mod staging;

pub use splits::{WeightSplit, WeightSplits};
pub use staging::{PAGE, Staging, StagingPlace};

/// Where a weight is while forwards run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Residence {
    /// In memory of the device.
    #[default]
    Resident,
    /// Read by every forward from where the packed weights are kept.
    Streamed,
    /// In the model's files, mapped: of a matrix that no row is multiplied by, and too large to be in memory for the
    /// few rows that texts need.
    Mapped,
}

/// How many bytes of packed weights are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Placed {
    /// In memory, without the staging buffer.
    pub resident: usize,
    /// Read again by every forward.
    pub streamed: usize,
    /// The staging buffer; 0 if nothing is streamed.
    pub staging: usize,
}

/// A budget below what a model cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found} bytes for weights in memory are too few: expected at least {least}, for embedding, head, norms and a \
     buffer that holds two matrices; give it more, or take a smaller model"
)]
pub struct BudgetError {
    /// The budget.
    pub found: usize,
    /// The least that works.
    pub least: usize,
}

/// How many bytes weights take as a device lays them out.
#[derive(Clone, Copy, Debug)]
pub struct PackedSizes {
    /// Of the matrix of a product: format, rows, columns.
    pub product: fn(WeightFormat, usize, usize) -> usize,
    /// Of a matrix whose rows are embedded, where it lies apart from the same one in products.
    pub rows: Option<fn(WeightFormat, usize, usize) -> usize>,
    /// Of so many numbers one after the other.
    pub vector: fn(usize) -> usize,
}

/// A matrix as it is packed.
struct Unit {
    /// What is packed as one product each.
    stacks: Vec<Vec<WeightId>>,
    bytes: usize,
    group: GroupId,
}

/// What can be streamed of a model.
struct Units {
    /// Bytes of what always stays.
    fixed: usize,
    /// The matrices of layers in the order of use.
    units: Vec<Unit>,
}

impl Units {
    fn sizes(&self) -> Vec<usize> {
        self.units.iter().map(|unit| unit.bytes).collect()
    }

    /// The number of matrices that a budget holds in memory, all others being streamed.
    fn first_streamed(&self, budget: usize) -> Result<usize, BudgetError> {
        let (Self { fixed, units }, sizes) = (self, self.sizes());
        if fixed + sizes.iter().sum::<usize>() <= budget {
            return Ok(units.len());
        }
        let staging_behind = |first: usize| Staging::of(&sizes[first..]).bytes;
        let (mut resident, mut first) = (*fixed, 0);
        if resident + staging_behind(0) > budget {
            return Err(BudgetError { found: budget, least: resident + staging_behind(0) });
        }
        while resident + units[first].bytes + staging_behind(first + 1) <= budget {
            resident += units[first].bytes;
            first += 1;
        }
        Ok(first)
    }

    /// What is where with so many matrices in memory.
    fn placed(&self, first: usize) -> Placed {
        let sizes = self.sizes();
        let (in_memory, streamed) = sizes.split_at(first);
        Placed {
            resident: self.fixed + in_memory.iter().sum::<usize>(),
            streamed: streamed.iter().sum(),
            staging: Staging::of(streamed).bytes,
        }
    }
}

impl Graph {
    /// Decides where the weights of the graph's matrices are, for at most `budget` bytes of packed weights in memory,
    /// the staging buffer among them. `program` is a program of this graph for a device on which weights have these
    /// sizes.
    ///
    /// # Errors
    /// [`BudgetError`] if the budget does not hold what always stays.
    ///
    /// # Panics
    /// If the device does not read one of the formats.
    pub fn place(
        &mut self,
        program: &Program,
        sizes: PackedSizes,
        budget: usize,
    ) -> Result<Placed, BudgetError> {
        let units = units(program, sizes);
        let first = units.first_streamed(budget)?;
        for id in units.units[first..].iter().flat_map(|unit| unit.stacks.iter().flatten()) {
            self.stream(*id);
        }
        Ok(units.placed(first))
    }
}

/// What can be streamed of the graph of a program.
fn units(program: &Program, sizes: PackedSizes) -> Units {
    let spec = |id: &WeightId| -> &WeightSpec { &program.weights[id.0 as usize] };
    let packed = |ids: &[WeightId]| {
        let rows = ids.iter().map(|id| spec(id).rows).sum();
        (sizes.product)(spec(&ids[0]).format, rows, spec(&ids[0]).columns)
    };
    let (mut vectors, mut fixed) = (BTreeSet::<Vec<WeightId>>::new(), 0);
    let (mut units, mut seen, mut embedded) = (Vec::<Unit>::new(), BTreeSet::new(), BTreeSet::new());
    for step in &program.steps {
        let (stacks, bytes) = match step.op.weights() {
            OpWeights::Nothing => continue,
            OpWeights::Gain(Norm { weight, .. }) => {
                vectors.insert(vec![weight]);
                continue;
            }
            OpWeights::Vectors(weights) => {
                vectors.extend(weights.iter().map(|weight| vec![*weight]));
                continue;
            }
            OpWeights::Rows(weight) => {
                let WeightSpec { format, rows, columns, residence, .. } = *spec(&weight);
                match sizes.rows {
                    _ if residence == Residence::Mapped => continue,
                    None => (vec![vec![weight]], packed(&[weight])),
                    Some(bytes) => {
                        fixed += if embedded.insert(weight) { bytes(format, rows, columns) } else { 0 };
                        continue;
                    }
                }
            }
            OpWeights::Stack { weights, biases, norm } => {
                vectors.extend((!biases.is_empty()).then(|| biases.to_vec()));
                vectors.extend(norm.map(|norm| vec![norm.weight]));
                (vec![weights.to_vec()], packed(weights))
            }
            // Which of them a forward reads is known too late for reading ahead: they stay in memory.
            OpWeights::Experts { experts, biases } => {
                vectors.extend((!biases.is_empty()).then(|| biases.to_vec()));
                for expert in experts {
                    fixed += if embedded.insert(*expert) { packed(&[*expert]) } else { 0 };
                }
                continue;
            }
            OpWeights::Gated { gate, up, norm } => {
                vectors.extend(norm.map(|norm| vec![norm.weight]));
                (vec![vec![gate], vec![up]], packed(&[gate]) + packed(&[up]))
            }
        };
        if !seen.insert(stacks.clone()) {
            continue;
        }
        match step.group {
            Some(group) => units.push(Unit { stacks, bytes, group }),
            None => fixed += bytes,
        }
    }
    let numbers = |ids: &Vec<WeightId>| ids.iter().map(|id| spec(id).columns).sum();
    Units { fixed: fixed + vectors.iter().map(|ids| (sizes.vector)(numbers(ids))).sum::<usize>(), units }
}

impl Graph {
    /// Whether any weight is streamed.
    pub fn streams(&self) -> bool {
        self.weights().iter().any(|weight| weight.residence == Residence::Streamed)
    }

    /// The groups of which a weight is streamed, ascending.
    pub fn streamed_groups(&self) -> Vec<u32> {
        let streams = |id: &WeightId| self.weight(*id).residence == Residence::Streamed;
        let group = |value| {
            let node = self.node(value);
            let streams = match node.op.weights() {
                OpWeights::Stack { weights, .. } => weights.iter().any(streams),
                OpWeights::Gated { gate, up, .. } => streams(&gate) || streams(&up),
                OpWeights::Nothing
                | OpWeights::Rows(_)
                | OpWeights::Gain(_)
                | OpWeights::Vectors(_)
                | OpWeights::Experts { .. } => false,
            };
            node.group.filter(|_| streams).map(|GroupId(group)| group)
        };
        let groups: BTreeSet<u32> = self.topological().into_iter().filter_map(group).collect();
        groups.into_iter().collect()
    }
}
