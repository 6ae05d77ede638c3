//! The command line contract as `clap` types, and the only code that reads the environment (`args/environment.rs`).
//!
//! Values are checked here as far as possible without opening a file; a value out of range is a usage error
//! (exit code 2). `cli/settings.rs` interprets them together.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, builder::PossibleValuesParser};
use clap_complete::Shell;
use ygg_profiler::CellSelection;
use yggc::{
    engine::KvFormat,
    ir::WeightFormat,
    model::{InflatedShape, synthetic::SyntheticSpec},
    planner::Fix,
    policy::SkipObjective,
    speculate::DraftGrowth,
};

mod answer;
mod cache;
mod constraint;
mod device;
mod doctor;
mod environment;
mod memory;
mod names;
mod numbers;
mod reading;
#[cfg(feature = "serve")]
mod serve;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use answer::{AnswerArgs, SamplingArgs};
use cache::session_name;
pub(crate) use cache::{CacheArgs, CacheCommand, EntryKind};
pub(crate) use constraint::ConstraintArgs;
pub(crate) use device::DeviceArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use environment::Environment;
#[cfg(test)]
pub(crate) use environment::HubEnvironment;
pub(crate) use memory::{ContextArgs, MemoryArgs, PrefixArgs};
pub(crate) use names::{
    Arm, DeviceName, DistilledKind, DrafterName, DrafterNames, KindName, PropertyName, StageName,
};
pub(crate) use reading::{ChooseArgs, ScoreArgs};
#[cfg(feature = "serve")]
pub(crate) use serve::ServeArgs;
pub(crate) use verify::VerifyArgs;

use numbers::{at_least_one, size, size_or_off, temperature, threads, width, widths};

/// Exactly lossless speculative decoding, planned for this machine
#[derive(Debug, Parser)]
#[command(name = "yggc", version, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Folder for fetched models, plans and packed weights [default: $XDG_CACHE_HOME/yggc, else ~/.cache/yggc; on
    /// Windows %LOCALAPPDATA%\yggc]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Cache")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Neither read nor write packed weights in the cache folder: pack the model at every start
    #[arg(long, global = true, help_heading = "Cache")]
    pub(crate) no_packed_cache: bool,
    /// Most bytes of packed weights to keep, as in 20G; the least recently used go first [default: 32G, or half of
    /// the free disk if that is less]
    #[arg(long, global = true, value_name = "SIZE", value_parser = size, allow_negative_numbers = true,
          env = "YGG_PACKED_LIMIT", help_heading = "Cache")]
    pub(crate) packed_limit: Option<u64>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Download a known model, or one of the Hugging Face hub, into the cache; print its path
    Fetch(FetchArgs),
    /// List the families, formats, instruction sets and names of models, and how each was tested
    Models(ModelsArgs),
    /// Say what this machine is, what would make it faster, and how fast a model will be before it is downloaded
    Doctor(DoctorArgs),
    /// List, check and remove cached models, packed weights and plans
    Cache(CacheArgs),
    /// Show a model's config, tensors, graph, passes, program and memory
    Inspect(InspectArgs),
    /// Score a text: negative log-likelihood and most probable id of each token
    Score(ScoreArgs),
    /// Say how probable each of some given texts is after a prompt
    Choose(ChooseArgs),
    /// Measure this machine and the drafters on it and write a profile, or show one
    Profile(ProfileArgs),
    /// Search for the fastest plan of a profile, or show, explain or compare plans
    Plan(PlanArgs),
    /// Answer a prompt, or chat when no prompt is given
    Run(Box<RunArgs>),
    /// Build the corpus store of the drafters `retrieval` and `prior`
    Corpus(CorpusArgs),
    /// Train a drafter model on a corpus that the model writes (needs python3 and PyTorch)
    Distill(DistillArgs),
    /// Compare plain decoding, plans and drafters on a set of prompts, or measure kernels
    Bench(BenchArgs),
    /// Prove on this machine that speculation changes no answer of the model
    Verify(VerifyArgs),
    /// Serve OpenAI's API over HTTP
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for each command
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page per command into this folder
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// A known name, such as smollm2-135m-instruct, or a model of the Hugging Face hub: hf:OWNER/REPO[/FILE.gguf]
    pub(crate) name: String,
    /// Read the model whole and compare it with what was published, and with what it held when it was first opened
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// A .gguf file, a folder with config.json + *.safetensors + tokenizer.json, a known name, or
    /// hf:OWNER/REPO[/FILE.gguf] [default: smollm2-135m-instruct, downloaded on first use]
    #[arg(short = 'm', long, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("written_model").args(["synthesize", "inflate"])))]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Print this stage in full: config, tensors, graph, passes, program, memory, or the name of a pass
    /// [default: a summary of all; without memory, for which weights are packed, where a model is written]
    #[arg(long, value_name = "STAGE")]
    pub(crate) stage: Option<StageName>,
    /// Print the graph, the program, or the graph after a pass, in Graphviz DOT
    #[arg(long)]
    pub(crate) dot: bool,
    /// Token rows that passes and program are compiled for
    #[arg(long, value_name = "ROWS", value_parser = width, allow_negative_numbers = true, default_value_t = 4)]
    pub(crate) width: usize,
    /// Element type of the key/value cache
    #[arg(long, value_parser = names::cache_format(), default_value = "f16")]
    pub(crate) cache: KvFormat,
    /// Write a model of this shape with random weights and inspect it; for measuring latencies only
    #[arg(long, value_name = "SHAPE", value_parser = PossibleValuesParser::new(SyntheticSpec::SHAPES),
          requires = "output", conflicts_with = "model")]
    pub(crate) synthesize: Option<String>,
    /// Weight format of the synthesized model, such as bf16, q8_0 or q4_k
    #[arg(long, value_name = "FORMAT", value_parser = weight_format, default_value = "bf16", requires = "synthesize")]
    pub(crate) weights: WeightFormat,
    /// Write the model inflated and inspect that: the same answers at the cost of 1b, 3b or 7b, or of sizes such as
    /// layers=32,width=4096,mlp=11008,heads=32,kv_heads=8
    #[arg(long, value_name = "SHAPE", requires = "output")]
    pub(crate) inflate: Option<InflatedShape>,
    /// GGUF file of the synthesized or inflated model
    #[arg(short = 'o', long, value_name = "FILE", requires = "written_model")]
    pub(crate) output: Option<PathBuf>,
}

fn weight_format(name: &str) -> Result<WeightFormat, String> {
    let mut written = WeightFormat::of_gguf();
    let known: Vec<&str> = written.clone().map(WeightFormat::name).collect();
    written
        .find(|format| format.name() == name)
        .ok_or_else(|| format!("expected one of {}", known.join(", ")))
}

#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    #[command(subcommand)]
    pub(crate) command: CorpusCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Score texts with the model and index the most probable ones; an interrupted build resumes
    Build(CorpusBuildArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CorpusBuildArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Texts: .jsonl files with one JSON object per line that has "text" or "turns", or any other UTF-8 files
    #[arg(long = "input", value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// File to write the store to
    #[arg(short = 'o', long, value_name = "STORE")]
    pub(crate) output: PathBuf,
    /// Most tokens of a snippet, the unit that is scored and kept or dropped
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 128)]
    pub(crate) snippet: usize,
    /// Most snippets to keep
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 100_000)]
    pub(crate) keep: usize,
    /// Most tokens to keep
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true,
          default_value_t = 8_000_000)]
    pub(crate) tokens: usize,
}

#[derive(Debug, Args)]
pub(crate) struct DistillArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Folder to write the drafter to; its subfolder `work` holds the corpus and checkpoints
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Kind of drafter
    #[arg(long, value_name = "K", value_enum, default_value_t = DistilledKind::Hidden)]
    pub(crate) kind: DistilledKind,
    /// Tokens of the corpus that the model writes
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 1_000_000)]
    pub(crate) tokens: usize,
    /// Write the corpus and train nothing: a part of a larger one, if its --seed is no other part's
    #[arg(long, conflicts_with_all = ["corpus", "seen"])]
    pub(crate) corpus_only: bool,
    /// Train on the corpora of these folders, which --corpus-only has written, in this order instead of writing one
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["tokens", "prompts"])]
    pub(crate) corpus: Vec<PathBuf>,
    /// Tokens to train on, repetitions counted [default: three times those of the corpus]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) seen: Option<usize>,
    /// First prompts of the corpus, JSON lines; may be repeated [default: none; the model writes them all]
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) prompts: Vec<PathBuf>,
    /// Prompts to keep out of the corpus, as those of the shipped calibration set always are, JSON lines; may be
    /// repeated
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) exclude: Vec<PathBuf>,
    /// Seed of the corpus and of the order of training
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// PyTorch's threads [default: one per processor that this process may use]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Continue an interrupted run in the same folder
    #[arg(long)]
    pub(crate) resume: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Corpus store of `retrieval` and `prior`, from `yggc corpus build` [default: where it was when it was profiled]
    #[arg(long, value_name = "STORE", help_heading = "Drafting")]
    pub(crate) store: Option<PathBuf>,
}

/// The form that measures flattens others, so it is no optional group as that of `plan` is: `output` is there unless a
/// command is.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ProfileCommand>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Drafter to measure; may be repeated [default: all that this model allows]
    #[arg(long = "drafter", value_name = "D", value_enum, conflicts_with = "again")]
    pub(crate) drafters: Vec<KindName>,
    /// Corpus store to measure `retrieval` and `prior` with, from `yggc corpus build` [default: neither is measured]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
    /// Drafter model to measure: a small model of the same vocabulary, or a hidden-state drafter for this model; may be
    /// repeated; with --again, the present path of one that the profile has [default: none is measured]
    #[arg(long = "draft-model", value_name = "PATH")]
    pub(crate) draft_models: Vec<PathBuf>,
    /// Calibration prompts, JSON lines [default: the set shipped with yggc]
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "again")]
    pub(crate) prompts: Option<PathBuf>,
    /// Committed tokens to measure latencies at, from the shortest; a plan has steps for each [default: 128,1024,4096,
    /// as far as the model's context reaches]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = at_least_one, allow_negative_numbers = true,
        conflicts_with = "again")]
    pub(crate) contexts: Vec<usize>,
    /// Existing profile of this machine: measure some of its latencies again and keep the rest
    #[arg(long, value_name = "FILE.profile")]
    pub(crate) again: Option<PathBuf>,
    /// Latencies to measure again: all, noisy, STAGE, STAGE@WIDTH or STAGE@WIDTHxCONTEXT, as in verify@4x128; may be
    /// repeated
    #[arg(long, value_name = "CELLS", requires = "again", default_values_t = [CellSelection::Noisy])]
    pub(crate) cells: Vec<CellSelection>,
    /// Most seconds to measure; at most half of them go to latencies
    #[arg(long, value_name = "S", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 240)]
    pub(crate) budget: usize,
    /// Take one sample of everything, of an emulated GPU, too, as tests have one: times mean nothing
    #[arg(long)]
    pub(crate) rehearsal: bool,
    /// File to write the profile to
    #[arg(short = 'o', long, value_name = "FILE", required = true)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Print what a profile holds
    Show(ProfileShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfileShowArgs {
    /// Profile file
    pub(crate) file: PathBuf,
    /// Print the whole profile as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PlanCommand>,
    #[command(flatten)]
    pub(crate) search: Option<PlanSearchArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Print a plan on one screen
    Show(PlanShowArgs),
    /// Explain why the planner chose this plan, and print all that it holds
    Explain(PlanExplainArgs),
    /// Compare two plans
    Diff(PlanDiffArgs),
    /// Measure longer than a first use did, and keep the better plan for the next start
    Refine(PlanRefineArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlanRefineArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The budget of memory that the plan is for, as `run --memory` and `serve --memory` take it
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "resident")]
    pub(crate) memory: Option<u64>,
    /// Most tokens of prompt and answer together within that memory [default: 4096, or the model's limit if lower]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, requires = "memory")]
    pub(crate) context: Option<usize>,
    /// Drafter model to measure too [default: none is measured]
    #[arg(long, value_name = "PATH")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Most seconds to measure [default: 240, or 600 where weights are read from disk for every forward]
    #[arg(long, value_name = "S", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) budget: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanShowArgs {
    /// Plan file
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanExplainArgs {
    /// Plan file
    pub(crate) file: PathBuf,
    /// Explain the part for requests of this temperature; one table covers all temperatures
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Write the explanation with plots as one HTML page
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanDiffArgs {
    /// First plan file
    pub(crate) a: PathBuf,
    /// Second plan file
    pub(crate) b: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The search form of `plan`. It flattens nothing: of an optional group that does, `clap` forgets the arguments.
#[derive(Debug, Args)]
pub(crate) struct PlanSearchArgs {
    /// Refuse a profile of another model than this one: a path or a known name [default: accept any]
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    /// Profile from `yggc profile`
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: PathBuf,
    /// File to write the plan to
    #[arg(short = 'o', long, value_name = "FILE.plan")]
    pub(crate) output: PathBuf,
    /// Parts of the plan to fix instead of searching for them, separated by commas: drafter=D, Dd=4, Wd=4, Wv=16
    /// (Wv=nodes verifies whole trees), rows=all|best, predictor=on|off, growth=egt|sequoia|kary,
    /// objective=speedup|aal, schedule=plain|head_ahead|one_launch|device_walk|two_launches|whole_step
    #[arg(long, value_name = "PARTS", value_parser = Fix::parse)]
    pub(crate) fix: Option<Fix>,
    /// Corpus store of the profile [default: where it was when it was profiled]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
    /// Most bytes of weights, substitute, cache and buffers together, as in 500M or 4G: how many weights stay in memory
    /// is chosen with the drafter, and the plan is for that. Needs a profile of streamed weights [default: as many as
    /// were profiled]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Most tokens of prompt and answer together within that memory [default: 4096, or the model's limit if lower]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, requires = "memory")]
    pub(crate) context: Option<usize>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("prompt_source").args(["prompt", "prompt_file"])))]
pub(crate) struct RunArgs {
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
    pub(crate) answer: AnswerArgs,
    #[command(flatten)]
    pub(crate) constraint: ConstraintArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Drafter model: the present path of the plan's, or, without --plan, one to make a plan with on first use
    /// [default: where the plan's was when it was profiled]
    #[arg(long, value_name = "PATH", conflicts_with = "no_spec", help_heading = "Drafting")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Plan to use [default: the cached plan of this machine and model, made on first use]
    #[arg(long, value_name = "FILE.plan", help_heading = "Drafting")]
    pub(crate) plan: Option<PathBuf>,
    /// Use the plan even if it was made for another machine, model or build
    #[arg(long, requires = "plan", help_heading = "Drafting")]
    pub(crate) force: bool,
    /// Prompt, - for standard input [default: standard input if that is no terminal, else a chat]
    #[arg(short = 'p', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file (UTF-8), - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Go on with the conversation of this name, which is kept in the cache folder; a new one if there is none
    #[arg(long, value_name = "NAME", value_parser = session_name, conflicts_with = "raw")]
    pub(crate) session: Option<String>,
    /// Chat even if standard input is no terminal; every line is a message
    #[arg(long, conflicts_with = "prompt_source")]
    pub(crate) chat: bool,
    /// Use no chat template, and recognise special tokens in the prompt
    #[arg(long, requires = "prompt_source")]
    pub(crate) raw: bool,
    /// Always draft with D, in the plan's best shape for D; never fall back to plain decoding. D may also be a variant
    /// that the plan has, such as lookup_short
    #[arg(long, value_name = "D", value_parser = DrafterNames, help_heading = "Drafting")]
    pub(crate) drafter: Option<DrafterName>,
    #[command(flatten)]
    pub(crate) skip: SkipArgs,
    /// File that keeps what drafters swift and ngram learn from run to run
    // The aliases are the two options of version 0.1 that it replaced; they leave with the next version.
    #[arg(long, value_name = "FILE", aliases = ["skip-state", "ngram-state"], conflicts_with = "no_spec",
          help_heading = "Drafting")]
    pub(crate) drafter_state: Option<PathBuf>,
    /// Decode plainly, without speculation
    #[arg(long, conflicts_with_all = ["drafter", "plan"], help_heading = "Drafting")]
    pub(crate) no_spec: bool,
    /// Print statistics after the answer: tokens per second, tokens per step, time per token and per stage
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print one JSON object instead of the text
    #[arg(long, requires = "prompt_source")]
    pub(crate) json: bool,
}

/// Settings of drafter swift.
#[derive(Debug, Args)]
pub(crate) struct SkipArgs {
    /// What drafter swift optimises when it chooses the layers to leave out
    #[arg(long, value_name = "O", value_parser = names::skip_objective(), default_value = "matchness", help_heading = "Drafting")]
    pub(crate) skip_objective: SkipObjective,
    /// Shape of the drafts of drafter swift
    #[arg(long, value_name = "G", value_parser = names::draft_growth(), default_value = "equal", help_heading = "Drafting")]
    pub(crate) draft_growth: DraftGrowth,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Drafter model: the present path of the plans', or, without --plan, one to make a plan with on first use
    /// [default: where the plans' was when it was profiled]
    #[arg(long, value_name = "PATH", conflicts_with = "kernels")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Plan to compare; may be repeated; drafters take their shapes from the first [default: the cached plan]
    #[arg(long = "plan", value_name = "FILE.plan")]
    pub(crate) plans: Vec<PathBuf>,
    /// Use the plans even if they were made for another machine, model or build
    #[arg(long, requires = "plans")]
    pub(crate) force: bool,
    /// Prompts: one JSON object per line that has "text" or "turns"
    #[arg(long, value_name = "FILE.jsonl", required_unless_present = "kernels")]
    pub(crate) prompts: Option<PathBuf>,
    /// Arms to compare: ar (plain decoding), eager (plain decoding op by op, without static programs), plan, unguarded
    /// (the plan without its fallback to plain decoding), or a drafter's name; ar always takes part
    #[arg(long, value_name = "ARM,...", value_delimiter = ',', default_values_t = [Arm::Ar, Arm::Plan])]
    pub(crate) arms: Vec<Arm>,
    /// Most tokens to generate per prompt
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true,
          default_value_t = 128)]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) skip: SkipArgs,
    /// How often each arm answers each prompt [default: 5], or, with --kernels, each forward is measured [default: 30]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) repetitions: Option<usize>,
    /// Keep the prompts' keys and values in so much memory, as in 2G: each prompt is read once for all arms and
    /// repetitions, which shortens a comparison of steps; times to the first token then mean nothing
    #[arg(long, value_name = "SIZE", value_parser = size_or_off, allow_negative_numbers = true,
          conflicts_with = "kernels")]
    pub(crate) prefix_memory: Option<u64>,
    /// Measure kernels instead of answers: every op of a forward at every width, compared with this machine's roofline;
    /// with --plan, the plan's tunings compared with the defaults
    #[arg(long, conflicts_with_all = ["prompts", "arms", "max_tokens", "context", "temperature", "top_k", "top_p",
                                      "min_p", "seed"])]
    pub(crate) kernels: bool,
    /// Widths that --kernels measures: numbers and ranges such as 1-64 [default: those of a profile]
    #[arg(long, value_name = "W,...", value_delimiter = ',', value_parser = widths, requires = "kernels",
          conflicts_with = "prompts")]
    pub(crate) widths: Vec<RangeInclusive<usize>>,
    /// Print one JSON object with every run
    #[arg(long)]
    pub(crate) json: bool,
}
