//! Arguments of `yggc doctor`.

use std::path::PathBuf;

use clap::Args;

use super::DeviceArgs;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Say how fast this model will be: a .gguf file, a folder, a known name, or hf:OWNER/REPO[/FILE.gguf], of which
    /// the header alone is read [default: none, the machine alone]
    #[arg(short = 'm', long, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Measure everything once over little memory, of an emulated GPU, too, as tests have one: times mean nothing
    #[arg(long)]
    pub(crate) rehearsal: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
