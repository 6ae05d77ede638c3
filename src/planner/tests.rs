//! Tests of the planner against synthetic drafters and plain re-implementations.
mod artefact;
mod bands;
mod block_drafters;
mod contexts;
mod depths;
mod diff;
mod drafter_models;
mod explain;
mod memory;
mod replay;
mod schedules;
mod search;
mod sharpening;
mod show;
mod static_trees;
mod synthetic;
mod unseen;
