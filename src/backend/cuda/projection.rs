//! Products of queries, keys and values that leave them turned and stored: which steps of a program are one.

use ygg_kernels::{
    RopePairing,
    cuda::{
        abi::YGG_TILE_N,
        packing::{Layout, half_source},
    },
};

use crate::ir::{Op, Operand, Program, Region, RopeId, Step, WeightId};

/// Outputs of a tile.
const TILE_N: usize = YGG_TILE_N as usize;

/// In which order the outputs of heads are packed so that those that turn together lie in one tile: `YggProjection`
/// says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HalvesTogether {
    pub(super) head_dim: usize,
    /// Elements of a head that turn.
    pub(super) rotated: usize,
}

impl HalvesTogether {
    /// The output of the model that is packed as output `place`.
    pub(super) fn output(self, place: usize) -> usize {
        half_source(place, self.head_dim, self.rotated)
    }
}

/// A product whose outputs are queries, keys and values, read by nothing but the storage and the attention that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Projection {
    pub(super) layer: usize,
    /// Of queries.
    pub(super) heads: usize,
    pub(super) rope: Option<RopeId>,
    /// None where outputs lie in the order of the model.
    pub(super) order: Option<HalvesTogether>,
}

impl Projection {
    /// The projection that begins at step `number`, if heads and their rotated parts are whole tiles of outputs, which
    /// its kernel needs. Other projections run as separate steps.
    pub(super) fn of(program: &Program, number: usize) -> Option<Self> {
        let [product, append, attention] = program.steps.get(number..number + 3)? else { return None };
        let Op::Linear { weights, residual: false, .. } = &product.op else { return None };
        let Op::AppendKv { layer, rope } = append.op else { return None };
        let Op::Attention { layer: read, heads, rope: of_queries, .. } = attention.op else { return None };
        let is_one = read == layer && of_queries == rope;
        let is_together = [append, attention].iter().all(|step| step.group == product.group);
        if !is_one || !is_together || !is_packed(program, weights) {
            return None;
        }
        let [kv_heads, head_dim] = program.kv.heads(layer);
        let all = product.result.region()?;
        let part = |first: usize, heads: usize| Region {
            offset_bytes: all.offset_bytes + first * head_dim * size_of::<f32>(),
            columns: heads * head_dim,
            ..all
        };
        let expected = [(0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads)].map(|(a, n)| part(a, n));
        let found = [attention.operands.first(), append.operands.first(), append.operands.get(1)];
        let is_split = expected.iter().zip(found).all(|(e, f)| f.and_then(Operand::region) == Some(*e));
        let is_whole = all.columns == (heads + 2 * kv_heads) * head_dim;
        if !is_split || !is_whole || readers(program, &all) != 3 || !head_dim.is_multiple_of(TILE_N) {
            return None;
        }
        let order = match rope {
            None => None,
            Some(id) => {
                let spec = &program.ropes[id.0 as usize];
                let rotated = 2 * spec.inv_freq.len();
                if spec.head_dim != head_dim || !rotated.is_multiple_of(TILE_N) {
                    return None;
                }
                match spec.pairing {
                    RopePairing::Adjacent => None,
                    RopePairing::Halves => Some(HalvesTogether { head_dim, rotated }),
                }
            }
        };
        Some(Self { layer, heads, rope, order })
    }
}

/// Whether matrices lie in tiles.
fn is_packed(program: &Program, weights: &[WeightId]) -> bool {
    weights.iter().all(|id| Layout::of(program.weights[id.0 as usize].format) != Layout::F32)
}

/// Operands of steps that are of these bytes' value, and whether it is left to be read after the forward.
fn readers(program: &Program, all: &Region) -> usize {
    let of_step = |step: &Step| {
        step.operands.iter().filter_map(Operand::region).filter(|r| r.value == all.value).count()
    };
    program.steps.iter().map(of_step).sum::<usize>() + program.left().filter(|r| r.value == all.value).count()
}
