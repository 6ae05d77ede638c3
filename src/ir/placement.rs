//! Which weights stay in the device's memory, and which every forward gets again: from the file that keeps them, or for a GPU from memory of the
//! host.
//!
//! The unit is a matrix as it is packed: queries, keys and values together, gate and up together. Vectors, the embedding and the head stay,
//! then the matrices of the first layers, as far as the budget goes; all others are *streamed* through a staging buffer in the order of use.

use std::collections::BTreeSet;

use ygg_kernels::{
    cpu::packed_bytes,
    cuda::packing::{ALIGNMENT, Layout},
};

use super::{Graph, Norm, OpWeights, Program, WeightFormat, WeightId, WeightSpec};

mod staging;

pub use staging::{PAGE, Staging, StagingPlace};

/// Where a weight is while forwards run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Residence {
    /// In memory of the device.
    #[default]
    Resident,
    /// Read by every forward from where the packed weights are kept.
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

/// How a device lays out weights, as far as their bytes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLayout {
    /// A processor: what is embedded may also be multiplied by.
    Cpu,
    /// A GPU: what is embedded lies as in the model's file, and everything is aligned.
    Cuda,
}

impl DeviceLayout {
    fn product(self, format: WeightFormat, rows: usize, columns: usize) -> usize {
        match self {
            Self::Cpu => packed_bytes(format, rows, columns),
            Self::Cuda => {
                let (codes, scales) = Layout::of(format).stack_bytes(rows, columns);
                codes + scales
            }
        }
    }

    /// Of a matrix whose rows are embedded, where it lies apart from the same one in products.
    fn rows(self, format: WeightFormat, rows: usize, columns: usize) -> Option<usize> {
        let row = || format.row_bytes(columns).expect("the model's loader has checked sizes");
        match self {
            Self::Cpu => None,
            Self::Cuda => Some((rows * row()).next_multiple_of(ALIGNMENT)),
        }
    }

    fn vector(self, numbers: usize) -> usize {
        let bytes = numbers * size_of::<f32>();
        match self {
            Self::Cpu => bytes,
            Self::Cuda => bytes.next_multiple_of(ALIGNMENT),
        }
    }
}

/// A matrix as it is packed.
struct Unit {
    weights: Vec<WeightId>,
    bytes: usize,
}

impl Graph {
    /// Decides where the weights of the graph's matrices are, for at most `budget` bytes of packed weights in memory, the staging buffer among
    /// them. `program` is a program of this graph for a device of this layout.
    ///
    /// # Errors
    /// [`BudgetError`] if the budget does not hold what always stays.
    ///
    /// # Panics
    /// If the layout has no room for one of the formats.
    pub fn place(
        &mut self,
        program: &Program,
        layout: DeviceLayout,
        budget: usize,
    ) -> Result<Placed, BudgetError> {
        let (fixed, units) = units(program, layout);
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
fn units(program: &Program, layout: DeviceLayout) -> (usize, Vec<Unit>) {
    let spec = |id: &WeightId| -> &WeightSpec { &program.weights[id.0 as usize] };
    let packed = |ids: &[WeightId]| {
        let rows = ids.iter().map(|id| spec(id).rows).sum();
        layout.product(spec(&ids[0]).format, rows, spec(&ids[0]).columns)
    };
    let (mut vectors, mut fixed) = (BTreeSet::<Vec<WeightId>>::new(), 0);
    let (mut units, mut seen, mut embedded) = (Vec::<Unit>::new(), BTreeSet::new(), BTreeSet::new());
    for step in &program.steps {
        let (weights, bytes) = match step.op.weights() {
            OpWeights::Nothing => continue,
            OpWeights::Gain(Norm { weight, .. }) | OpWeights::Vector(weight) => {
                vectors.insert(vec![weight]);
                continue;
            }
            OpWeights::Rows(weight) => {
                let WeightSpec { format, rows, columns, .. } = *spec(&weight);
                match layout.rows(format, rows, columns) {
                    None => (vec![weight], packed(&[weight])),
                    Some(bytes) => {
                        fixed += if embedded.insert(weight) { bytes } else { 0 };
                        continue;
                    }
                }
            }
            OpWeights::Stack { weights, biases, norm } => {
                vectors.extend((!biases.is_empty()).then(|| biases.to_vec()));
                vectors.extend(norm.map(|norm| vec![norm.weight]));
                (weights.to_vec(), packed(weights))
            }
            OpWeights::Gated { gate, up, norm } => {
                vectors.extend(norm.map(|norm| vec![norm.weight]));
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
    let numbers = |ids: &Vec<WeightId>| ids.iter().map(|id| spec(id).columns).sum();
    (fixed + vectors.iter().map(|ids| layout.vector(numbers(ids))).sum::<usize>(), units)
}

impl Graph {
    /// Whether any weight is streamed.
    pub fn streams(&self) -> bool {
        self.weights().iter().any(|weight| weight.residence == Residence::Streamed)
    }
}
