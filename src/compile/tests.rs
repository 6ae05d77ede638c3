//! The judges of this room: golden dumps, a scalar interpreter of graphs and of programs, mutated arenas, and work by
//! hand.

mod arena;
mod example;
mod golden;
mod inner_rows;
mod interpreter;
mod meaning;
mod mixed_formats;
mod random_graphs;
mod refusals;
mod rewrites;
mod substitute;
mod trimmed_head;
mod work;
