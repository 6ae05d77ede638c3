//! What a priced shape says of other prompts, and which of them a plan takes.

pub(in crate::planner) mod guard_limits;
pub(in crate::planner) mod paired;
pub(in crate::planner) mod point;
pub(in crate::planner) mod selection;
pub(in crate::planner) mod unseen;
