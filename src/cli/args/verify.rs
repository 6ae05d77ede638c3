//! What `yggc verify` is given.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceArgs, ModelArgs, StoreArgs};

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The drafter model: where the plan's is now, or without --plan one that a plan is made with on first use
    /// [default: the one that is shipped for the model, else where the plan's was when it was profiled]
    #[arg(long, value_name = "PATH")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Plan to verify [default: the cached plan of this machine and model, made on first use]
    #[arg(long, value_name = "FILE.plan")]
    pub(crate) plan: Option<PathBuf>,
    /// Prompts that answers are compared on, one JSON object a line with a "text" or "turns" [default: the set shipped with yggc]
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) prompts: Option<PathBuf>,
    /// Fewer cases of everything: under three minutes for the default model
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
