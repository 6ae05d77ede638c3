//! Yggdrasil: a compiler-style static-graph runtime for exactly lossless speculative decoding.

pub mod backend;
pub mod compile;
pub mod engine;
pub mod ir;
pub mod measure;
pub mod model;
pub mod plan;
pub mod runtime;
pub mod sample;
pub mod speculate;
pub mod storage;
pub mod text;
pub mod tree;
