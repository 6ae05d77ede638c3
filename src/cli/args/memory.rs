//! Arguments for what may be in memory.

use clap::Args;

use super::numbers::{at_least_one, size, size_or_off};

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

#[derive(Debug, Args)]
pub(crate) struct PrefixArgs {
    /// Most bytes of memory for what was computed of earlier prompts and answers, as in 500M: none is read twice. 0 or
    /// off keeps the text before alone. Changes no answer [default: an eighth of the free memory, at most 2G; off with
    /// --memory]
    #[arg(long, value_name = "SIZE", value_parser = size_or_off, allow_negative_numbers = true,
          env = "YGG_PREFIX_MEMORY", help_heading = "Cache")]
    pub(crate) prefix_memory: Option<u64>,
    /// Most bytes of the cache folder for the same, as in 4G, so that it is there after a restart; texts are readable
    /// there. 0 or off keeps nothing on disk [default: a tenth of the free disk, at most 8G; off with --memory]
    #[arg(long, value_name = "SIZE", value_parser = size_or_off, allow_negative_numbers = true,
          env = "YGG_PREFIX_DISK", help_heading = "Cache")]
    pub(crate) prefix_disk: Option<u64>,
}
