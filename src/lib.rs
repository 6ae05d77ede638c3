//! Yggdrasil: a compiler-style static-graph runtime for exactly lossless speculative decoding, one request at a time.
//!
//! A drafter proposes a tree of tokens, the verifier (the model whose output is served) checks the whole tree in one
//! forward, and what it would have said itself is kept. Output is plain decoding's, bit for bit, greedy or sampled with a
//! seed. Which drafter, how deep and how wide is not guessed: it is measured once per machine and kept in a plan.
//!
//! ```
//! use yggc::engine::{Engine, Options, Prompt, Request};
//! # let folder = tempfile::tempdir()?;
//! # let model = folder.path().join("tiny.gguf");
//! # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
//!
//! let mut engine = Engine::open(&Options::new(&model))?;
//! let request = Request { max_tokens: 8, ..Request::new(Prompt::Raw("Once upon a time".to_owned())) };
//! let answer = engine.generate(&request)?.collect_answer()?;
//! assert!((1..=8).contains(&answer.token_ids.len()));
//! assert_eq!(answer.report.spec_off_reason.as_deref(), Some("no plan"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The walk
//!
//! Data moves in one direction; every arrow is a room, and a room's `mod.rs` is its door.
//!
//! 1. [`model`] opens a GGUF file or a safetensors folder, whose bytes stay in memory maps of [`storage`], and builds a
//!    verified [`ir::Graph`], in which the number of token rows is a symbol.
//! 2. [`compile`] turns the graph into an [`ir::Program`] for one width: rewritten pass by pass, kernels selected by rule,
//!    steps ordered, every value at a fixed offset of one arena.
//! 3. [`backend`] loads programs with weights; what it opens for a request replays them without allocating.
//! 4. [`runtime`] keeps the executables of every planned width and runs them over one cache: [`runtime::Session`] writes
//!    rows to slots, commits those that were accepted and discards the rest.
//! 5. [`speculate`] is the step: a drafter fills a token tree ([`tree`]), one forward verifies it, acceptance walks it with
//!    the tokens that [`sample`] draws, keyed by seed and position.
//! 6. [`plan`] is the file, bound to machine, model and build, that says how to step; [`policy`] decides by it while decoding.
//!    [`planner`] finds the step that makes a token cheapest from latencies and acceptance that [`measure`] recorded with the
//!    same sessions.
//! 7. [`engine`] wires all this behind [`Engine`](engine::Engine), with [`text`] at both ends.
//! 8. [`verify`] proves on the machine at hand that no answer depends on speculation.
//!
//! # Which rooms to use
//!
//! To embed a model, [`engine`] is enough, with [`plan::read`] for a plan file, and [`measure::autoplan`], of the feature
//! `planner`, to make one on the machine at hand: the library never plans by itself. The other rooms are public because the `yggc` program, the
//! tests and whoever adds a drafter or a backend look inside; before 1.0 they change without notice.
//!
//! # Features
//!
//! `planner` adds what is done offline: the rooms [`planner`], [`measure`] and [`verify`]. A library that decodes by a plan needs none
//! of it. The program has it. `compare`, which `planner` implies, adds what exists only to compare with: eager execution, the search for
//! templates, Lookahead decoding, the analysis of chains.
//!
//! # Letters
//!
//! Shapes are written in brackets, `q: [W, H, E]`, with one meaning for each letter everywhere: `W` token rows of a forward
//! (the width), `R` rows that get logits, `D` model width, `F` feed-forward width, `H` query heads, `G` key/value heads, `E`
//! head width, `V` vocabulary. Of a step, `Dd` is its depth (growths), `Wd` the nodes of a growth, `Wv` the rows verified.

pub mod backend;
pub mod compile;
pub mod engine;
pub mod ir;
#[cfg(feature = "planner")]
pub mod measure;
pub mod model;
pub mod plan;
#[cfg(feature = "planner")]
pub mod planner;
pub mod policy;
pub mod runtime;
pub mod sample;
pub mod speculate;
pub mod storage;
pub mod text;
pub mod tree;
#[cfg(feature = "planner")]
pub mod verify;

/// The examples of README and `docs/`, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/architecture.md")]
#[doc = include_str!("../docs/benchmarks.md")]
#[doc = include_str!("../docs/contributing.md")]
#[doc = include_str!("../docs/embedding.md")]
#[doc = include_str!("../docs/glossary.md")]
#[doc = include_str!("../docs/gpu.md")]
#[doc = include_str!("../docs/guarantees.md")]
#[doc = include_str!("../docs/guide.md")]
#[doc = include_str!("../docs/serving.md")]
mod documents {}
