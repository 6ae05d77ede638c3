//! Arguments of `yggc serve`.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use clap::Args;

use crate::serve::ApiKey;

use super::{
    ContextArgs, DeviceArgs, DrafterName, DrafterNames, MemoryArgs, ModelArgs, PrefixArgs, StoreArgs,
    numbers::at_least_one,
};

/// An address, or `localhost`.
fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        text => text.parse().map_err(|_| "expected an IP address of this machine, or localhost".to_owned()),
    }
}

/// An origin as browsers send it: scheme, host and perhaps a port.
fn origin(text: &str) -> Result<String, String> {
    let host = text.split_once("://").map_or("", |(_, host)| host);
    let is_origin = !host.is_empty() && !host.contains(['/', ' ']) && text.is_ascii();
    if text == "*" || is_origin {
        return Ok(text.to_ascii_lowercase());
    }
    Err("expected a scheme and a host without a path, as in https://example.org, or *".to_owned())
}

fn api_key(text: &str) -> Result<ApiKey, String> {
    ApiKey::new(text).ok_or_else(|| "expected some text, found none".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// File with settings by the names of these flags, as TOML; a flag wins over it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
    #[command(flatten)]
    pub(crate) prefixes: PrefixArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Drafter model: the present path of the plan's, or, without --plan, one to make a plan with on first use
    /// [default: where the plan's was when it was profiled]
    #[arg(long, value_name = "PATH", conflicts_with = "no_spec")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Plan to use [default: the cached plan of this machine and model, made on first use]
    #[arg(long, value_name = "FILE.plan")]
    pub(crate) plan: Option<PathBuf>,
    /// Use the plan even if it was made for another machine, model or build
    #[arg(long, requires = "plan")]
    pub(crate) force: bool,
    /// Drafter of requests that name none: a kind, or a variant that the plan has [default: the plan's choice]
    #[arg(long, value_name = "D", value_parser = DrafterNames)]
    pub(crate) drafter: Option<DrafterName>,
    /// Use no plan: decode every request plainly
    #[arg(long, conflicts_with_all = ["drafter", "plan"])]
    pub(crate) no_spec: bool,
    /// While no request has come for S seconds, measure longer than the first use did and keep the better plan for the
    /// next start; a request ends that at once. 0 switches it off [default: off, or 60 with --memory or --resident;
    /// without S 60]
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "60",
          conflicts_with_all = ["plan", "no_spec"])]
    pub(crate) refine: Option<usize>,
    /// Address to listen on; the default is reachable from this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 chooses a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Name of the model in requests [default: its known name, or the name of its file or folder]
    #[arg(long, value_name = "NAME")]
    pub(crate) model_name: Option<String>,
    /// File with keys, one a line, of which requests must send one as a bearer token; empty lines and those that begin
    /// with # are none [default: $YGGC_API_KEY, else no key is required]
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// A key, in addition to those of --api-key-file; may be repeated. All users of this machine can read it in the
    /// list of its processes: prefer a file or the variable
    #[arg(long, value_name = "KEY", value_parser = api_key)]
    pub(crate) api_key: Vec<ApiKey>,
    /// Folder for texts that clients save by POST /slots/0?action=save, and restore, as in llama.cpp [default: neither]
    #[arg(long, value_name = "DIR")]
    pub(crate) slot_save_path: Option<PathBuf>,
    /// Web page that may use the service, as in https://example.org, or * for all; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) cors_origin: Vec<String>,
    /// Serve no page at /
    #[arg(long)]
    pub(crate) no_page: bool,
    /// Print a line on stderr for every request
    #[arg(long)]
    pub(crate) access_log: bool,
    /// Most requests that wait while one is answered; others get status 429
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) queue: usize,
    /// Most open connections
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 256)]
    pub(crate) connections: usize,
    /// Most bytes of a request's body
    #[arg(
        long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 1 << 20
    )]
    pub(crate) max_body: usize,
    /// Most tokens of a prompt [default: what the context holds]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) max_prompt: Option<usize>,
    /// Most tokens of an answer [default: what the context holds]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) max_output: Option<usize>,
    /// Most seconds from a request's arrival to the end of its answer
    #[arg(long, value_name = "S", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 600)]
    pub(crate) timeout: usize,
    /// Most seconds to finish answers after SIGTERM or Ctrl-C; a second signal exits at once
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub(crate) drain: u64,
}
