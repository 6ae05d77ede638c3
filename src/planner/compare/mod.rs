//! What is searched and computed only to compare plans with: trees of one shape for all steps, and the analysis of chains.

pub(in crate::planner) mod chains;
pub mod leviathan;
pub(in crate::planner) mod static_replay;
mod static_search;

pub(in crate::planner) use static_search::{PricedTemplate, RefusedTemplate, StaticSearch};
