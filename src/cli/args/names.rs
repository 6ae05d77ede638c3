//! Values of arguments that are names: drafters, devices, stages, arms of a bench.

use std::str::FromStr;

use clap::ValueEnum;
use yggc::compile::stage_names;

/// Objective of a skip set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SkipObjectiveName {
    /// Most tokens reproduced, with a constant number of layers left out
    Matchness,
    /// Least predicted time per token, with any number of layers left out
    Speed,
}

/// Growth of drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DraftGrowthName {
    /// Trees of equal growth, as planned
    Equal,
    /// A chain that ends at the first uncertain token, with its siblings; the plan's predictions do not apply
    Confident,
}

/// Kinds of drafter model that can be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DistilledKind {
    /// One layer that reads the model's hidden rows and shares its head
    Hidden,
    /// A small model of its own, which any engine can load
    Plain,
}

impl DistilledKind {
    /// Its name in the training program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Plain => "plain",
        }
    }
}

/// The drafters of this release, by their names in the command line contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum DrafterName {
    /// Nothing: plain decoding
    None,
    /// The continuation of an earlier occurrence of the last tokens
    Lookup,
    /// The model with a fixed set of layers left out
    LayerSkip,
    /// Continuations found in a corpus store
    Retrieval,
    /// The continuation of the longest matching suffix in this or earlier requests
    Suffix,
    /// The tokens last found most probable behind each token, in a fixed tree
    Recycling,
    /// N-grams from dictionaries of the text and of a candidate pool that the model extends
    Ngram,
    /// The model with a set of layers left out that is tuned while it runs
    Swift,
    /// All drafters without a model in one tree, weighted by their recent success
    Mixed,
    /// A drafter model: a small model of the same vocabulary, or a layer over the model's hidden rows
    Model,
}

impl DrafterName {
    /// Its name in plans.
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

/// Activations of linears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationsName {
    /// Bytes with a scale per 32 or 256 values, as most engines use
    Int8,
    /// Floating-point numbers: more exact and slower
    Native,
}

/// Element type of the key/value cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheName {
    /// Floating-point numbers of 16 bits
    F16,
    /// Bytes with a scale per key and value: half the memory, less exact
    Q8,
}

/// A stage between model file and program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageName {
    Config,
    Tensors,
    Graph,
    Passes,
    /// The graph after one pass, by the pass's name.
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

/// One arm of `bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Plain decoding.
    Ar,
    /// Plain decoding op by op, without static programs.
    Eager,
    /// Each plan, as it serves.
    Plan,
    /// Each plan, without its guard.
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
