//! Arguments for where and with which numbers a model runs.

use clap::Args;
use yggc::engine::{Activations, KvFormat, Tier};

use super::{
    DeviceName, names,
    numbers::{size, threads},
};

#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Worker threads [default: one per processor that this process may use]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true, help_heading = "Machine")]
    pub(crate) threads: Option<usize>,
    /// Device that runs the model
    #[arg(long, value_enum, default_value_t = DeviceName::Cpu, help_heading = "Machine")]
    pub(crate) device: DeviceName,
    /// Instruction set of the CPU kernels [default: the fastest one that this CPU has]
    #[arg(long, value_parser = names::isa(), env = "YGG_ISA", help_heading = "Machine")]
    pub(crate) isa: Option<Tier>,
    /// Numbers that quantised weights are multiplied by; changes answers [default: int8 on a CPU, native on a GPU]
    #[arg(long, value_parser = names::activations(), help_heading = "Machine")]
    pub(crate) activations: Option<Activations>,
    /// Element type of the key/value cache; changes answers
    #[arg(long, value_parser = names::cache_format(), default_value = "f16", help_heading = "Machine")]
    pub(crate) cache: KvFormat,
    /// Most bytes of weights in memory, a GPU's own with --device cuda, as in 500M or 2G; for every forward the rest is
    /// read from disk, or copied to the GPU. Changes no answer [default: what the plan of --plan is for, else all in
    /// memory]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Machine")]
    pub(crate) resident: Option<u64>,
    /// Begin no GPU kernel while the one before it still runs; changes no answer
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_overlap: bool,
}
