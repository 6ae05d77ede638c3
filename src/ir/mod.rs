//! The two intermediate representations of the walk and the law they obey.
//!
//! [`Graph`] is an SSA dag of [`Op`]s whose number of token rows is symbolic; a model family builds it and
//! passes rewrite it. [`Program`] is what `compile` makes of it for one width: ordered steps over one arena
//! with byte offsets. [`verify`] is the law of graphs; the arena's law is judged in `compile`.
//! This room imports no other room and holds no weight bytes: a [`WeightSource`] lends them.
//!
//! Letters in shapes are those of the [crate](crate#letters).
#![forbid(unsafe_code)]

mod block_rows;
mod device_spec;
mod dump;
mod graph;
mod ids;
mod inner_rows;
mod linear_shape;
mod op;
mod op_weights;
mod placement;
mod program;
mod row_inputs;
mod sampled_groups;
mod substitute;
mod text_rows;
mod trimmed_head;
mod value_type;
pub mod verify;
mod work;

pub use block_rows::BlockRows;
pub use device_spec::{DeviceSpec, KernelChoice};
pub use dump::{graph_dot, graph_text, program_dot, program_text, step_name};
pub use graph::{
    Binding, ConvSpec, Elements, Graph, GroupId, KvSpec, LongRope, Node, OtherHeads, RopeId, RopeSpec,
    SharedBytes, StateSpec, ValueId, WeightId, WeightSource, WeightSpec,
};
pub(crate) use ids::id;
pub use ids::{Id, IdVec, OutputId, ProgramId, StepId};
pub use linear_shape::LinearShape;
pub use op::{GraphError, Head, Input, Norm, Op};
pub use op_weights::OpWeights;
pub use placement::{
    BudgetError, PAGE, PackedSizes, Placed, Residence, Staging, StagingPlace, WeightSplit, WeightSplits,
};
pub use program::{Operand, Program, Region, Step};
pub use row_inputs::{Noise, RowInputs};
pub use sampled_groups::SampledGroups;
pub use substitute::{Substituted, substitute_format};
pub use text_rows::{Joining, TextGraph, TextRows};
pub use trimmed_head::{HeadTokens, HeadTokensError, ReducedHead};
pub use value_type::{Dtype, Rows, ValueType};
pub use work::Work;
pub use ygg_kernels::{Candidates, Choice, WeightFormat};
