//! The search: every drafter, shape, schedule and division of memory.

pub(in crate::planner) mod depth_search;
pub(in crate::planner) mod divisions;
pub(in crate::planner) mod fix;
pub(in crate::planner) mod free_search;
pub(in crate::planner) mod from_profile;
pub(in crate::planner) mod longer_contexts;
pub(in crate::planner) mod make_plan;
pub(in crate::planner) mod memory_search;
pub(in crate::planner) mod merged_search;
pub(in crate::planner) mod origin;
pub(in crate::planner) mod side_by_side;
pub(in crate::planner) mod tree_search;
pub(in crate::planner) mod tunings;
