//! Arguments of the commands that read a text and answer nothing: `yggc score` and `yggc choose`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use yggc::engine::Normalisation;

use super::{ConstraintArgs, DeviceArgs, ModelArgs};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("score_source").required(true).args(["text_file", "token_ids"])))]
pub(crate) struct ScoreArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Text file to score (UTF-8; special tokens are recognised), - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) text_file: Option<PathBuf>,
    /// File of token ids to score: a JSON list of numbers, - for standard input
    #[arg(long, value_name = "FILE.json")]
    pub(crate) token_ids: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("choose_prompt").required(true).args(["prompt", "prompt_file"])))]
#[command(group(ArgGroup::new("choose_options").required(true).multiple(true).args(["options", "options_file"])))]
pub(crate) struct ChooseArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) constraint: ConstraintArgs,
    /// Prompt, - for standard input
    #[arg(short = 'p', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file (UTF-8), - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Instructions to the model, before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Use no chat template, and recognise special tokens in the prompt and the options; an option then continues the
    /// prompt's last character: begin it with the space between both
    #[arg(long)]
    pub(crate) raw: bool,
    /// A text that may follow; may be repeated
    #[arg(long = "option", value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
    /// File with texts that may follow, one a line, without empty lines (UTF-8), - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) options_file: Option<PathBuf>,
    /// What probabilities are made of: the log-probability of the whole option, or its mean over the option's tokens
    #[arg(long, value_name = "BY", value_enum, default_value_t = NormaliseBy::None)]
    pub(crate) normalize: NormaliseBy,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A [`Normalisation`] by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NormaliseBy {
    /// The whole option
    None,
    /// The mean of its tokens
    Length,
}

impl From<NormaliseBy> for Normalisation {
    fn from(by: NormaliseBy) -> Self {
        match by {
            NormaliseBy::None => Self::None,
            NormaliseBy::Length => Self::Length,
        }
    }
}
