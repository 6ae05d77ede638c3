//! Yggdrasil: a compiler-style static-graph runtime for exactly lossless speculative decoding, one request at a time.
//!
//! A drafter proposes a tree of tokens. The verifier, the model whose output is served, checks the whole tree in one
//! forward, and the longest path of tokens that it would have chosen itself is kept. Output equals that of plain
//! decoding, bit for bit, greedy or sampled with a seed. The drafter and the depth and width of its trees are measured
//! once per machine and stored in a plan.
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
//! Data moves in one direction. A folder of `src/` is a *room*; its `mod.rs` documents it.
//!
//! 1. [`model`] opens a GGUF file or a safetensors folder, whose bytes stay in memory maps of [`storage`], and builds a
//!    verified [`ir::Graph`], in which the number of token rows is a symbol.
//! 2. [`compile`] turns the graph into an [`ir::Program`] for one width: rewritten pass by pass, kernels selected by
//!    rule, steps ordered, every value at a fixed offset of one arena.
//! 3. [`backend`] loads programs with weights into executables, which run without allocating; [`packed`] keeps the
//!    weights as it packed them.
//! 4. [`runtime`] holds the executables of every planned width and runs them over one key/value cache:
//!    [`runtime::Session`] writes rows to slots, commits the accepted ones and discards the rest. [`prefix`] keeps
//!    blocks of what was committed, for later requests.
//! 5. [`speculate`] performs a step: a drafter fills a token tree ([`tree`]), one forward verifies it, and acceptance
//!    walks it by the tokens that [`sample`] draws, keyed by seed and position.
//! 6. [`plan`] is the file that configures steps, bound to machine, model and build; [`policy`] makes the decisions
//!    that are left to decoding time. [`planner`] searches for the step with the least time per token, given latencies
//!    and acceptance that [`measure`] recorded with the same sessions.
//! 7. [`engine`] combines these rooms into [`Engine`](engine::Engine), with [`text`] for prompts and answers.
//! 8. [`verify`] tests on the present machine that no answer depends on speculation.
//!
//! # Which rooms to use
//!
//! To embed a model, use [`engine`], and [`plan::read`] for a plan file. [`measure::profile`] and
//! [`planner::plan_first`], of the feature `planner`, make a plan on the present machine; the library never plans by
//! itself. The other rooms are public for
//! the `yggc` program, for tests, and for authors of drafters and backends; before 1.0 they change without notice.
//!
//! # Features
//!
//! `planner` adds the offline rooms [`planner`], [`measure`] and [`verify`], and what exists only to compare with:
//! eager execution, the search for templates, Lookahead's ablations, the analysis of chains. The program has them; a
//! library that decodes by a plan does not need them.
//!
//! # Letters
//!
//! Shapes are written in brackets, `q: [W, H, E]`, with one meaning for each letter everywhere: `W` token rows of a
//! forward (the width), `R` rows that get logits, `D` hidden size, `F` hidden size of the MLPs, `H` query heads, `G`
//! key/value heads, `E` elements of a head, `C` channels of a short convolution, `T` its taps, `V` vocabulary. Of a
//! step, `Dd` is its depth (growths), `Wd` the nodes of a growth, `Wv` the rows verified.

pub mod backend;
pub mod compile;
pub mod engine;
pub mod grammar;
pub mod ir;
#[cfg(feature = "planner")]
pub mod measure;
pub mod model;
pub mod packed;
pub mod plan;
#[cfg(feature = "planner")]
pub mod planner;
pub mod policy;
pub mod prefix;
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
