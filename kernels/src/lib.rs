//! What each op of `yggc` computes, and fast ways to compute it. No graph types.
//!
//! | module | what it is |
//! |---|---|
//! | [`format`](mod@format) | how a weight matrix lies in a model file, and its exact meaning |
//! | [`rows`] | views of `[W, columns]` buffers |
//! | [`kv`] | views of what a layer keeps of every slot, and of the rows' ancestors in it |
//! | [`rope`] | rotary tables, shared by every implementation |
//! | [`candidates`] | what is kept of a row of logits, to the last bit |
//! | [`routing`] | how rows choose among experts |
//! | [`noise`] | what tokens are drawn by, to the last bit |
//! | [`id`] | names of kernels and their numeric classes |
//! | [`mod@reference`] | scalar meaning of every op: the judge of the fast ones |
//! | [`cuda`] | source and parameters of the kernels in `kernels/cuda`, and weights as they read them |
//! | [`cpu`] | packed weights and the portable, AVX2, AVX-512 and AMX implementations |
//!
//! **Row invariance.** The bits of a row of any op depend on that row's inputs and on the numeric class alone: never
//! on the number of rows, the row's place, how work was split between threads, or the KV slots its ancestors use.
//! There is one numeric class per (op, operand format, activations, tier), by rule ([`id::KernelId`]).
//!
//! Letters in shapes: `W` token rows, `K` input columns, `N` output columns, `H` query heads, `G` KV heads,
//! `D` head dimension, `C` channels and `T` taps of a short convolution, `J` key heads with `A` elements and `B` elements
//! of a value of a recurrence,
//! `E` experts, of which a row uses `k`, `S` slots.
//!
//! No op of [`cpu`] allocates.

pub mod candidates;
pub mod cpu;
pub mod cuda;
pub mod format;
pub mod id;
pub mod kv;
pub mod noise;
mod nonlinearity;
mod philox;
pub mod reference;
pub mod rope;
pub mod routing;
pub mod rows;

#[cfg(feature = "testing")]
pub mod testing;

pub use candidates::{Candidates, Choice};
pub use format::{Matrix, WeightFormat, requantised};
pub use id::{Activations, KernelId, NumericClass, OpKind, Operand, Tier};
pub use kv::{
    AppendKv, Attention, ConvLayer, KvFormat, KvLayer, PartialsShape, Recurrence, ScanWeights, Scoring,
    ShortConv, StateForm, StateLayer, StateRule, StateShape, StateWeights, Tails,
};
pub use nonlinearity::Nonlinearity;
pub use rope::{Rope, RopePairing, RopeTable};
pub use routing::{Gating, RouteVector, Routes, Routing};
pub use rows::{Norm, Rows, RowsMut};
