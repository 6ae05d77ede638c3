//! Which weights stay in memory, and which every forward reads again from the file that keeps them.
//!
//! The unit is a matrix as it is packed: queries, keys and values together, gate and up together. Vectors, the embedding and the head stay,
//! then the matrices of the first layers, as far as the budget goes; all others are *streamed* through a staging buffer in the order of use.

use std::collections::BTreeSet;

use ygg_kernels::cpu::packed_bytes;

use super::{Graph, Norm, OpWeights, Program, WeightId, WeightSpec};

mod staging;

pub use staging::{PAGE, Staging, StagingPlace};

/// Where a weight is while forwards run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Residence {
    /// In memory.
    #[default]
    Resident,
    /// Read by every forward from the file that keeps the packed weights.
    Streamed,
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
    "{found} bytes for weights in memory are too few: expected at least {least}, for embedding, head, norms and a buffer that holds two \
     matrices; give it more, or take a smaller model"
)]
pub struct BudgetError {
    /// The budget.
    pub found: usize,
    /// The least that works.
    pub least: usize,
}

/// A matrix as it is packed.
struct Unit {
    weights: Vec<WeightId>,
    bytes: usize,
}

impl Graph {
    /// Decides where the weights of the graph's matrices are, for at most `budget` bytes of packed weights in memory, the staging buffer among
    /// them. `program` is a program of this graph.
    ///
    /// # Errors
    /// [`BudgetError`] if the budget does not hold what always stays.
    pub fn place(&mut self, program: &Program, budget: usize) -> Result<Placed, BudgetError> {
        let (fixed, units) = units(program);
        let total: usize = units.iter().map(|unit| unit.bytes).sum();
        if fixed + total <= budget {
            return Ok(Placed { resident: fixed + total, streamed: 0, staging: 0 });
        }
        let mut resident = fixed;
        let sizes: Vec<usize> = units.iter().map(|unit| unit.bytes).collect();
        let staging_behind = |first: usize| Staging::of(&sizes[first..]).bytes;
        let mut first = 0;
        if resident + staging_behind(0) > budget {
            return Err(BudgetError { found: budget, least: resident + staging_behind(0) });
        }
        while resident + units[first].bytes + staging_behind(first + 1) <= budget {
            resident += units[first].bytes;
            first += 1;
        }
        for id in units[first..].iter().flat_map(|unit| &unit.weights) {
            self.stream(*id);
        }
        let streamed = total - (resident - fixed);
        Ok(Placed { resident, streamed, staging: staging_behind(first) })
    }
}

/// Bytes of what always stays, and the matrices of layers in the order of use.
fn units(program: &Program) -> (usize, Vec<Unit>) {
    let spec = |id: &WeightId| -> &WeightSpec { &program.weights[id.0 as usize] };
    let packed = |ids: &[WeightId]| {
        let rows = ids.iter().map(|id| spec(id).rows).sum();
        packed_bytes(spec(&ids[0]).format, rows, spec(&ids[0]).columns)
    };
    let (mut vectors, mut fixed) = (BTreeSet::new(), 0);
    let (mut units, mut seen) = (Vec::<Unit>::new(), BTreeSet::new());
    for step in &program.steps {
        let (weights, bytes) = match step.op.weights() {
            OpWeights::Nothing => continue,
            OpWeights::Gain(Norm { weight, .. }) | OpWeights::Vector(weight) => {
                vectors.insert(weight);
                continue;
            }
            OpWeights::Rows(weight) => (vec![weight], packed(&[weight])),
            OpWeights::Stack { weights, biases, norm } => {
                vectors.extend(biases.iter().copied().chain(norm.map(|norm| norm.weight)));
                (weights.to_vec(), packed(weights))
            }
            OpWeights::Gated { gate, up, norm } => {
                vectors.extend(norm.map(|norm| norm.weight));
                (vec![gate, up], packed(&[gate]) + packed(&[up]))
            }
        };
        if !seen.insert(weights.clone()) {
            continue;
        }
        if step.group.is_some() {
            units.push(Unit { weights, bytes });
        } else {
            fixed += bytes;
        }
    }
    let numbers: usize = vectors.iter().map(|id| spec(id).columns).sum();
    (fixed + numbers * size_of::<f32>(), units)
}

impl Graph {
    /// Whether any weight is streamed.
    pub fn streams(&self) -> bool {
        self.weights().iter().any(|weight| weight.residence == Residence::Streamed)
    }
}
