//! Names that arguments are given by: drafters, devices, stages, and what a bench compares.

use std::str::FromStr;

use clap::ValueEnum;
use yggc::compile::stage_names;

/// What a skip set is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SkipObjectiveName {
    /// Tokens reproduced, with as much skipped as at first
    Matchness,
    /// Predicted time per token, with any share skipped
    Speed,
}

/// How drafts grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DraftGrowthName {
    /// As planned: trees of equal growth
    Equal,
    /// A chain that ends where the drafter is unsure, with siblings where it is; no prediction is for it
    Confident,
}

/// What kinds of drafter model can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DistilledKind {
    /// One layer that reads the model's hidden rows and shares its head
    Hidden,
    /// A small model of its own, for any engine
    Plain,
}

impl DistilledKind {
    /// The name that the training program knows it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Plain => "plain",
        }
    }
}

/// The drafters that exist in this release, by their names in the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum DrafterName {
    /// Drafts nothing: plain decoding
    None,
    /// Continues from an earlier occurrence of the last tokens
    Lookup,
    /// The model itself with some of its layers left out
    LayerSkip,
    /// Continues as texts of a corpus store do
    Retrieval,
    /// Continues the longest suffix seen earlier, in this request or those before it
    Suffix,
    /// What the verifier last offered behind every token, along a fixed tree
    Recycling,
    /// Dictionaries of n-grams, of the text and of what the verifier makes of a pool of sequences
    Ngram,
    /// The model with layers left out that are chosen anew while it runs
    Swift,
    /// Those that run no model in one tree, each as far as it did well lately
    Mixed,
    /// A drafter model: a small model of the same vocabulary, or one for the model's hidden rows
    Model,
}

impl DrafterName {
    /// The name that plans know it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lookup => "lookup",
            Self::LayerSkip => "layer_skip",
            Self::Retrieval => "retrieval",
            Self::Suffix => "suffix",
            Self::Recycling => "recycling",
            Self::Ngram => "ngram",
            Self::Swift => "swift",
            Self::Mixed => "mixed",
            Self::Model => "model",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    Cpu,
    Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsaName {
    Portable,
    Avx2,
    Avx512,
    Amx,
}

/// What linears make of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationsName {
    /// Bytes with a scale per 32 or 256 values, as most engines do
    Int8,
    /// Floating-point numbers: more exact, slower
    Native,
}

/// Element type of the key/value cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheName {
    /// Halves
    F16,
    /// Bytes with a scale for each key and value: half the memory, less exact
    Q8,
}

/// A stage of the walk from file to program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageName {
    Config,
    Tensors,
    Graph,
    Passes,
    /// What one pass leaves, by the pass's name.
    Pass(&'static str),
    Program,
    Memory,
}

impl FromStr for StageName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "config" => Self::Config,
            "tensors" => Self::Tensors,
            "graph" => Self::Graph,
            "passes" => Self::Passes,
            "program" => Self::Program,
            "memory" => Self::Memory,
            _ => Self::Pass(stage_names().find(|name| *name == text).ok_or_else(|| {
                let passes: Vec<&str> = stage_names().collect();
                format!(
                    "expected config, tensors, graph, passes, program, memory or one of {}",
                    passes.join(", ")
                )
            })?),
        })
    }
}

/// One thing that `bench` compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Plain decoding.
    Ar,
    /// Plain decoding op by op, without static programs.
    Eager,
    /// Each plan, as it decides.
    Plan,
    /// Each plan, at every step.
    Unguarded,
    /// One drafter, forced.
    Drafter(DrafterName),
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ar" => Ok(Self::Ar),
            "eager" => Ok(Self::Eager),
            "plan" => Ok(Self::Plan),
            "unguarded" => Ok(Self::Unguarded),
            "none" => Err("plain decoding is the arm `ar`".to_owned()),
            name => match DrafterName::from_str(name, false) {
                Ok(drafter) => Ok(Self::Drafter(drafter)),
                Err(_) => Err("expected ar, eager, plan, unguarded or a drafter".to_owned()),
            },
        }
    }
}

impl std::fmt::Display for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ar => "ar",
            Self::Eager => "eager",
            Self::Plan => "plan",
            Self::Unguarded => "unguarded",
            Self::Drafter(drafter) => drafter.name(),
        })
    }
}
