//! Replaying what was recorded: which tokens the steps of a shape would have accepted.

pub(in crate::planner) mod acceptance;
pub(in crate::planner) mod calibration;
pub(in crate::planner) mod depth_replay;
pub(in crate::planner) mod free_replay;
pub(in crate::planner) mod grown_trees;
pub(in crate::planner) mod head_coverage;
pub(in crate::planner) mod live_replay;
pub(in crate::planner) mod merged_replay;
pub(in crate::planner) mod recorded;
pub(in crate::planner) mod sharpening;
pub(in crate::planner) mod tree_replay;
pub(in crate::planner) mod trimming;
