//! The time of a step, from the latency table: stages, their overlap, and time per token by prompt.

pub(in crate::planner) mod makespan;
pub mod objective;
pub(in crate::planner) mod pricing;
pub(in crate::planner) mod prompt_speed;
pub(in crate::planner) mod rates;
pub(in crate::planner) mod splits;
pub(in crate::planner) mod stages;
pub(in crate::planner) mod tally;
