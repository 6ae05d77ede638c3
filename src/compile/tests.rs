//! The judges of this room: golden dumps, a scalar interpreter of graphs and of programs, and mutated arenas.

mod arena;
mod example;
mod golden;
mod interpreter;
mod meaning;
mod mixed_formats;
mod random_graphs;
mod refusals;
mod rewrites;
