//! What is searched and computed only to compare plans with: trees of one shape for all steps, the analysis
//! of chains, and the best shapes of narrower searches.

pub(in crate::planner) mod chains;
pub mod leviathan;
pub(in crate::planner) mod parts;
pub(in crate::planner) mod static_replay;
mod static_search;
