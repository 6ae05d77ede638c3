//! Arguments for what may be in memory.

use clap::Args;

use super::numbers::{at_least_one, size};

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// Most tokens of prompt and answer together [default: 4096, or the model's limit if that is lower]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, help_heading = "Machine")]
    pub(crate) context: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Most bytes of weights, substitute, cache and buffers together, as in 500M or 4G: what does not fit is read from
    /// disk for every forward, and the plan divides the memory. Changes no answer [default: all weights in memory]
    #[arg(
        long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["resident", "plan"],
        help_heading = "Machine"
    )]
    pub(crate) memory: Option<u64>,
}
