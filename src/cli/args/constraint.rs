//! What `yggc run` lets an answer be.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Clone, Args)]
#[group(id = "constraint", multiple = false)]
pub(crate) struct ConstraintArgs {
    /// Answer with JSON that fits the schema of this file
    #[arg(long, value_name = "FILE", help_heading = "Structured output")]
    pub(crate) json_schema: Option<PathBuf>,
    /// Answer with a JSON object
    #[arg(long, help_heading = "Structured output")]
    pub(crate) json_object: bool,
    /// Answer with a text that this regular expression matches as a whole
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true, help_heading = "Structured output")]
    pub(crate) regex: Option<String>,
    /// Answer with a text of the Lark grammar of this file
    #[arg(long, value_name = "FILE", help_heading = "Structured output")]
    pub(crate) grammar: Option<PathBuf>,
}
