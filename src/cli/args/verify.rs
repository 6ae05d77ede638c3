//! Arguments of `yggc verify`.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceArgs, ModelArgs, PropertyName, StoreArgs};

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Drafter model: the present path of the plan's, or, without --plan, one to make a plan with on first use
    /// [default: where the plan's was when it was profiled]
    #[arg(long, value_name = "PATH")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Plan to verify [default: the cached plan of this machine and model, made on first use]
    #[arg(long, value_name = "FILE.plan")]
    pub(crate) plan: Option<PathBuf>,
    /// Prompts to compare answers on: one JSON object per line that has "text" or "turns" [default: the set shipped
    /// with yggc]
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) prompts: Option<PathBuf>,
    /// Check fewer cases: three minutes at most instead of fifteen, unless one case of every kind takes longer
    #[arg(long)]
    pub(crate) quick: bool,
    /// Check these properties alone: model, plan, kernels, ties, row-invariance, cache, greedy-answers,
    /// sampled-answers, draws
    #[arg(long, value_name = "PROPERTY,...", value_delimiter = ',')]
    pub(crate) only: Vec<PropertyName>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
