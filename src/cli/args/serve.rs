//! What `yggc serve` is given.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

use super::{ContextArgs, DeviceArgs, DrafterName, ModelArgs, StoreArgs, numbers::at_least_one};

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Plan to use [default: the cached plan of this machine and model, made on first use]
    #[arg(long, value_name = "FILE.plan")]
    pub(crate) plan: Option<PathBuf>,
    /// Use the plan even if it was made for another machine, model or build
    #[arg(long, requires = "plan")]
    pub(crate) force: bool,
    /// Who drafts for requests that do not say [default: what the plan chose]
    #[arg(long, value_name = "D", value_enum)]
    pub(crate) drafter: Option<DrafterName>,
    /// No plan: plain decoding for every request
    #[arg(long, conflicts_with_all = ["drafter", "plan"])]
    pub(crate) no_spec: bool,
    /// Address to listen on; other machines reach none of the default
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// What requests call the model [default: its known name, or the name of its file or folder]
    #[arg(long, value_name = "NAME")]
    pub(crate) model_name: Option<String>,
    /// File with the key that requests must bring as a bearer token [default: $YGGC_API_KEY, else none is needed]
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Requests that may wait while one is answered; others are refused with 429
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) queue: usize,
    /// Connections at once
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 256)]
    pub(crate) connections: usize,
    /// Bytes of a request's body at most
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 1 << 20)]
    pub(crate) max_body: usize,
    /// Tokens of a prompt at most [default: what the context holds]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) max_prompt: Option<usize>,
    /// Tokens of an answer at most [default: what the context holds]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) max_output: Option<usize>,
    /// Seconds from a request's arrival to the end of its answer at most
    #[arg(long, value_name = "S", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 600)]
    pub(crate) timeout: usize,
    /// Seconds that are waited for answers when a signal ends the service
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub(crate) drain: u64,
}
