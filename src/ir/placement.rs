//! Which weights stay in the device's memory, and which every forward gets again: from the file that keeps them, or for
//! a GPU from memory of the host.
//!
//! The unit is a matrix as it is packed: queries, keys and values together, gate and up together. Vectors, the
//! embedding and the head stay, then the matrices of the first layers, as far as the budget goes; all others are
//! *streamed* through a staging buffer in the order of use.
//!
//! Experts come last: a row uses few of them, and all rows use every other matrix. Those of a product share *places* in
//! memory, in every layer as many as the budget goes for, and are read when rows use them and they lie in none.

use std::collections::BTreeSet;

use super::{Graph, GroupId, Norm, Op, OpWeights, Program, Step, WeightFormat, WeightId, WeightSpec};

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
    /// An expert's: in one of the places that the experts of its product share, or read when rows use it.
    Pooled {
        /// Experts that have a place at a time.
        places: u32,
    },
    /// In the model's files, mapped: of a matrix that no row is multiplied by, and too large to be in memory for the
    /// few rows that texts need.
    Mapped,
}

impl Residence {
    /// Whether forwards read it from where the packed weights are kept.
    pub fn is_streamed(self) -> bool {
        matches!(self, Self::Streamed | Self::Pooled { .. })
    }
}

/// How many bytes of packed weights are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Placed {
    /// In memory, without the staging buffer: places that experts share are.
    pub resident: usize,
    /// Read again by every forward; of experts, those that have no place at a time.
    pub streamed: usize,
    /// The staging buffer; 0 if nothing is streamed.
    pub staging: usize,
}

/// A budget below what a model cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found} bytes for weights in memory are too few: expected at least {least}, for embedding, head, norms, a buffer \
     that holds two matrices, and the experts of a row where there are experts; give it more, or take a smaller model"
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
    /// Whether experts can be read when rows use them.
    pub pools: bool,
}

/// A matrix as it is packed.
struct Unit {
    /// What is packed as one product each.
    stacks: Vec<Vec<WeightId>>,
    bytes: usize,
    group: GroupId,
}

/// The experts of a product, which can share places.
struct Pool {
    /// Of all experts the first matrix, then the second where each has two.
    matrices: Vec<WeightId>,
    /// Of one matrix.
    bytes: usize,
    experts: usize,
    /// Experts that a row uses.
    used: usize,
    group: GroupId,
}

impl Pool {
    /// Of the experts that have no place, and of all places.
    fn bytes(&self, places: usize) -> [usize; 2] {
        let of_each = self.matrices.len() / self.experts;
        let places = places.min(self.experts);
        // Reads are of whole pages.
        [(self.experts - places) * of_each * self.bytes, places * of_each * self.bytes.next_multiple_of(PAGE)]
    }
}

/// One way to divide what can be streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    /// The number of matrices in memory, all later ones being streamed.
    first: usize,
    /// How many experts of each product have a place; all are in memory without.
    places: Option<usize>,
}

/// What can be streamed of a model.
struct Units {
    /// Bytes of what always stays.
    fixed: usize,
    /// The matrices of layers in the order of use.
    units: Vec<Unit>,
    /// Experts, in the order of use.
    pools: Vec<Pool>,
    /// Bytes of all experts.
    expert_bytes: usize,
}

impl Units {
    /// All ways, the least in memory first.
    fn ways(&self) -> Vec<Way> {
        let all = self.units.len();
        let of = |used: fn(&Pool) -> usize| self.pools.iter().map(used).max().unwrap_or(0);
        let (least, experts) = (of(|pool| pool.used), of(|pool| pool.experts));
        // Where a row uses all experts, places save nothing.
        let places = (least < experts).then_some(least);
        let matrices = (0..all).map(|first| Way { first, places });
        let experts = (least..experts).map(|places| Way { first: all, places: Some(places) });
        matrices.chain(experts).chain([Way { first: all, places: None }]).collect()
    }

    /// The way for a budget.
    fn within(&self, budget: usize) -> Result<Way, BudgetError> {
        let ways = self.ways();
        let needed = |way: &Way| {
            let Placed { resident, staging, .. } = self.placed(*way);
            resident + staging
        };
        let (whole, least) = (ways[ways.len() - 1], needed(&ways[0]));
        if needed(&whole) <= budget {
            return Ok(whole);
        }
        if least > budget {
            return Err(BudgetError { found: budget, least });
        }
        Ok(*ways.iter().take_while(|way| needed(way) <= budget).last().expect("the first fits"))
    }

    /// What is where.
    fn placed(&self, Way { first, places }: Way) -> Placed {
        let sizes: Vec<usize> = self.units.iter().map(|unit| unit.bytes).collect();
        let (in_memory, streamed) = sizes.split_at(first);
        let (without_place, places) = match places {
            None => (0, self.expert_bytes),
            Some(places) => self.pools.iter().fold((0, 0), |(without, with), pool| {
                let [own_without, own_with] = pool.bytes(places);
                (without + own_without, with + own_with)
            }),
        };
        Placed {
            resident: self.fixed + in_memory.iter().sum::<usize>() + places,
            streamed: streamed.iter().sum::<usize>() + without_place,
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
        let way = units.within(budget)?;
        for id in units.units[way.first..].iter().flat_map(|unit| unit.stacks.iter().flatten()) {
            self.lay(*id, Residence::Streamed);
        }
        if let Some(places) = way.places {
            let places = u32::try_from(places).expect("as many as experts at most");
            for id in units.pools.iter().flat_map(|pool| &pool.matrices) {
                self.lay(*id, Residence::Pooled { places });
            }
        }
        Ok(units.placed(way))
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
    let (mut pools, mut expert_bytes) = (Vec::new(), 0);
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
            OpWeights::Experts { experts, biases } => {
                vectors.extend((!biases.is_empty()).then(|| biases.to_vec()));
                let bytes = packed(&experts[..1]);
                if !embedded.insert(experts[0]) {
                    continue;
                }
                match step.group.filter(|_| sizes.pools) {
                    Some(group) => {
                        expert_bytes += experts.len() * bytes;
                        pools.push(pool(step, experts, bytes, group));
                    }
                    None => fixed += experts.len() * bytes,
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
    let fixed = fixed + vectors.iter().map(|ids| (sizes.vector)(numbers(ids))).sum::<usize>();
    Units { fixed, units, pools, expert_bytes }
}

/// The experts of a step, of which each matrix takes so many bytes.
fn pool(step: &Step, experts: &[WeightId], bytes: usize, group: GroupId) -> Pool {
    let of_each = if matches!(step.op, Op::RoutedGated { .. }) { 2 } else { 1 };
    let routes = step.operands[1].region().expect("a routed product has routes");
    let matrices = experts.to_vec();
    Pool { experts: matrices.len() / of_each, matrices, bytes, used: routes.columns / 2, group }
}

impl Graph {
    /// Whether any weight is streamed.
    pub fn streams(&self) -> bool {
        self.weights().iter().any(|weight| weight.residence.is_streamed())
    }

    /// How many experts of each product have a place in memory at a time, where they share places.
    pub fn expert_places(&self) -> Option<u32> {
        self.weights().iter().find_map(|weight| match weight.residence {
            Residence::Pooled { places } => Some(places),
            Residence::Resident | Residence::Streamed | Residence::Mapped => None,
        })
    }

    /// The groups of which a weight is streamed, ascending.
    pub fn streamed_groups(&self) -> Vec<u32> {
        let streams = |id: &WeightId| self.weight(*id).residence.is_streamed();
        let group = |value| {
            let node = self.node(value);
            let streams = match node.op.weights() {
                OpWeights::Stack { weights, .. } => weights.iter().any(streams),
                OpWeights::Gated { gate, up, .. } => streams(&gate) || streams(&up),
                OpWeights::Experts { experts, .. } => experts.iter().any(streams),
                OpWeights::Nothing | OpWeights::Rows(_) | OpWeights::Gain(_) | OpWeights::Vectors(_) => false,
            };
            node.group.filter(|_| streams).map(|GroupId(group)| group)
        };
        let groups: BTreeSet<u32> = self.topological().into_iter().filter_map(group).collect();
        groups.into_iter().collect()
    }
}
