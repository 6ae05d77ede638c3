//! What was typed: the command line contract as `clap` types, and the only reading of the environment (`args/environment.rs`).
//!
//! Values are checked here as far as they can be without opening a file; a value out of range is a usage error
//! (exit code 2). What the values mean together is decided elsewhere.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, builder::PossibleValuesParser};
use clap_complete::Shell;
use ygg_profiler::CellSelection;
use yggc::{ir::WeightFormat, model::synthetic::SyntheticSpec, plan::Fix};

mod environment;
mod names;
mod numbers;
#[cfg(feature = "serve")]
mod serve;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use environment::Environment;
#[cfg(test)]
pub(crate) use environment::HubEnvironment;
pub(crate) use names::{
    ActivationsName, Arm, CacheName, DeviceName, DistilledKind, DraftGrowthName, DrafterName, IsaName,
    SkipObjectiveName, StageName,
};
#[cfg(feature = "serve")]
pub(crate) use serve::ServeArgs;
pub(crate) use verify::VerifyArgs;

use numbers::{at_least_one, min_p, temperature, threads, top_p, width, widths};

/// Exactly lossless speculative decoding, planned for this machine.
#[derive(Debug, Parser)]
#[command(name = "yggc", version, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Folder for fetched models, plans and packed weights [default: $XDG_CACHE_HOME/yggc, else ~/.cache/yggc]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Keep no packed weights in the cache folder, and use none: models are packed on every start
    #[arg(long, global = true)]
    pub(crate) no_packed_cache: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Get a known model, or one of the Hugging Face hub, into the cache and print its path
    Fetch(FetchArgs),
    /// Show a model's config, tensors, graph, passes, program and memory
    Inspect(InspectArgs),
    /// Score a text: negative log-likelihood and most probable id of each token
    Score(ScoreArgs),
    /// Measure this machine and the drafters on it; write a profile
    Profile(ProfileArgs),
    /// Search the fastest speculation plan of a profile, or show, explain or compare plans
    Plan(PlanArgs),
    /// Answer a prompt, or chat when no prompt is given
    Run(Box<RunArgs>),
    /// Build what retrieval drafts from
    Corpus(CorpusArgs),
    /// Make a drafter model: the model writes a corpus, a small one learns from it (needs python3 and PyTorch)
    Distill(DistillArgs),
    /// Compare plain decoding, plans and drafters on a set of prompts, or measure kernels
    Bench(BenchArgs),
    /// Prove on this machine that speculation changes no answer of the model
    Verify(VerifyArgs),
    /// Answer requests over HTTP, as OpenAI's API does
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Write completions of this command line for a shell
    Completions(CompletionsArgs),
    /// Write the manual page
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
    /// Write a page for every command into this folder instead
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Name of a known model, such as smollm2-135m-instruct, or of one at the Hugging Face hub: hf:OWNER/REPO[/FILE.gguf]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// A .gguf file, a folder with config.json + *.safetensors + tokenizer.json, a known name, or hf:OWNER/REPO[/FILE.gguf]
    /// [default: smollm2-135m-instruct, fetched on first use]
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Worker threads [default: one per processor that this process may use]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Where to run
    #[arg(long, value_enum, default_value_t = DeviceName::Cpu)]
    pub(crate) device: DeviceName,
    /// Instruction set of the CPU kernels [default: the fastest that this CPU has]
    #[arg(long, value_enum, env = "YGG_ISA")]
    pub(crate) isa: Option<IsaName>,
    /// What linears make of their inputs over quantised weights; another choice gives other answers [default: int8 on a
    /// CPU, native on a GPU]
    #[arg(long, value_enum)]
    pub(crate) activations: Option<ActivationsName>,
    /// Element type of the key/value cache; another choice gives other answers
    #[arg(long, value_enum, default_value_t = CacheName::F16)]
    pub(crate) cache: CacheName,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// Tokens of prompt and answer together [default: 4096, or the model's limit if that is lower]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) context: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Only this stage of the walk, whole: config, tensors, graph, passes, program, memory, or the name of a pass
    /// [default: a summary of all]
    #[arg(long, value_name = "STAGE")]
    pub(crate) stage: Option<StageName>,
    /// Write the graph (or program, or what a pass leaves) in Graphviz DOT
    #[arg(long)]
    pub(crate) dot: bool,
    /// Token rows that passes and program are for
    #[arg(long, value_name = "ROWS", value_parser = width, allow_negative_numbers = true, default_value_t = 4)]
    pub(crate) width: usize,
    /// Element type of the key/value cache
    #[arg(long, value_enum, default_value_t = CacheName::F16)]
    pub(crate) cache: CacheName,
    /// Write a model of this shape with random weights, and inspect that: to measure latencies of a size, never acceptance
    #[arg(long, value_name = "SHAPE", value_parser = PossibleValuesParser::new(SyntheticSpec::SHAPES),
          requires = "output", conflicts_with = "model")]
    pub(crate) synthesize: Option<String>,
    /// Format of its weights: f32, f16, bf16, q8_0, q4_0, q4_1, q4_k or q6_k
    #[arg(long, value_name = "FORMAT", value_parser = weight_format, default_value = "bf16", requires = "synthesize")]
    pub(crate) weights: WeightFormat,
    /// The model's file, a GGUF
    #[arg(short = 'o', long, value_name = "FILE", requires = "synthesize")]
    pub(crate) output: Option<PathBuf>,
}

fn weight_format(name: &str) -> Result<WeightFormat, String> {
    let known = || WeightFormat::ALL.map(WeightFormat::name).join(", ");
    let found = WeightFormat::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("expected one of {}", known()))
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("score_source").required(true).args(["text_file", "token_ids"])))]
pub(crate) struct ScoreArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Text to score (UTF-8; special tokens are recognised)
    #[arg(long, value_name = "FILE")]
    pub(crate) text_file: Option<PathBuf>,
    /// Token ids to score: a JSON list of numbers
    #[arg(long, value_name = "FILE.json")]
    pub(crate) token_ids: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    #[command(subcommand)]
    pub(crate) command: CorpusCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Score texts with the model and index those that it finds most probable; goes on where a killed build was
    Build(CorpusBuildArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CorpusBuildArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Texts: .jsonl files, a JSON object with a "text" or "turns" a line, or any other UTF-8 files
    #[arg(long = "input", value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// Where to write the store
    #[arg(short = 'o', long, value_name = "STORE")]
    pub(crate) output: PathBuf,
    /// Tokens of a snippet at most, which is scored and kept or left as a whole
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 128)]
    pub(crate) snippet: usize,
    /// Snippets to keep at most
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 100_000)]
    pub(crate) keep: usize,
    /// Tokens to keep at most
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true,
          default_value_t = 8_000_000)]
    pub(crate) tokens: usize,
}

#[derive(Debug, Args)]
pub(crate) struct DistillArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Folder of the drafter; the corpus and what training goes on from are in its folder `work`
    #[arg(short = 'o', long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// What to make: hidden, a layer that reads the model's hidden rows, or plain, a small model of its own
    #[arg(long, value_name = "K", value_enum, default_value_t = DistilledKind::Hidden)]
    pub(crate) kind: DistilledKind,
    /// Tokens that the model writes
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 1_000_000)]
    pub(crate) tokens: usize,
    /// Tokens to train on, repetitions counted [default: three times what the model writes]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) seen: Option<usize>,
    /// Prompts that the corpus begins with, JSON lines; may be repeated [default: the calibration set shipped with yggc]
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) prompts: Vec<PathBuf>,
    /// Prompts that must not be in the corpus, such as those of a benchmark, JSON lines; may be repeated
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) exclude: Vec<PathBuf>,
    /// Decides the corpus and the order of training
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads of PyTorch [default: one per processor that this process may use]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Go on with what an earlier run left in the folder
    #[arg(long)]
    pub(crate) resume: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The corpus store that the retrieval drafter needs, as `yggc corpus build` writes it
    /// [default: where it was when it was profiled]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// A drafter to measure; may be repeated [default: all that this model allows]
    #[arg(long = "drafter", value_name = "D", value_enum, conflicts_with = "again")]
    pub(crate) drafters: Vec<DrafterName>,
    /// A corpus store to measure retrieval with, as `yggc corpus build` writes it [default: retrieval is not measured]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
    /// A drafter model to measure: a small model of the same vocabulary, or a hidden-state drafter for this one; may be
    /// repeated; with --again, where one of the profile's is now [default: the one that is
    /// shipped for the model, if there is one]
    #[arg(long = "draft-model", value_name = "PATH")]
    pub(crate) draft_models: Vec<PathBuf>,
    /// Calibration prompts [default: the set shipped with yggc]
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "again")]
    pub(crate) prompts: Option<PathBuf>,
    /// A profile of this machine whose latencies are measured again, in part, and which is kept otherwise
    #[arg(long, value_name = "FILE.profile")]
    pub(crate) again: Option<PathBuf>,
    /// Latencies to measure again: all, noisy, STAGE, STAGE@WIDTH or STAGE@WIDTHxCONTEXT, as in verify@4x128; may be repeated
    #[arg(long, value_name = "CELLS", requires = "again", default_values_t = [CellSelection::Noisy])]
    pub(crate) cells: Vec<CellSelection>,
    /// Seconds that measuring may take; half of them at most for latencies
    #[arg(long, value_name = "S", value_parser = at_least_one, allow_negative_numbers = true, default_value_t = 240)]
    pub(crate) budget: usize,
    /// Where to write the profile
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: PathBuf,
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
    /// Print what a plan says
    Show(PlanShowArgs),
    /// Say why a plan is as it is
    Explain(PlanExplainArgs),
    /// Say in what two plans differ
    Diff(PlanDiffArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlanShowArgs {
    /// The plan
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanExplainArgs {
    /// The plan
    pub(crate) file: PathBuf,
    /// For requests of this temperature; one table tells of all temperatures
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Write it, with plots, as one HTML page
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanDiffArgs {
    /// A plan
    pub(crate) a: PathBuf,
    /// Another plan
    pub(crate) b: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The search form of `plan`. It flattens nothing: of an optional group that does, `clap` forgets the arguments.
#[derive(Debug, Args)]
pub(crate) struct PlanSearchArgs {
    /// Refuse a profile that is not of this model: a path or a known name [default: any model's]
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    /// What `yggc profile` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: PathBuf,
    /// Where to write the plan
    #[arg(short = 'o', long, value_name = "FILE.plan")]
    pub(crate) output: PathBuf,
    /// Parts of the plan to fix instead of searching, as drafter=D,Dd=4,Wd=4,Wv=16,rows=all|best,predictor=on|off,
    /// growth=egt|sequoia|kary,schedule=plain|head_ahead|one_launch|device_walk|two_launches|whole_step,objective=speedup|aal, without blanks; Wv=nodes verifies whole trees
    #[arg(long, value_name = "PARTS", value_parser = Fix::parse)]
    pub(crate) fix: Option<Fix>,
    /// The profile's corpus store [default: where it was when it was profiled]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("prompt_source").args(["prompt", "prompt_file"])))]
pub(crate) struct RunArgs {
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
    /// The drafter model: where the plan's is now, or without --plan one that a plan is made with on first use
    /// [default: the one that is shipped for the model, else where the plan's was when it was profiled]
    #[arg(long, value_name = "PATH", conflicts_with = "no_spec")]
    pub(crate) draft_model: Option<PathBuf>,
    /// Plan to use [default: the cached plan of this machine and model, made on first use]
    #[arg(long, value_name = "FILE.plan")]
    pub(crate) plan: Option<PathBuf>,
    /// Use the plan even if it was made for another machine, model or build
    #[arg(long, requires = "plan")]
    pub(crate) force: bool,
    /// The prompt [default: an interactive chat]
    #[arg(short = 'p', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file (UTF-8)
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Tokens to generate at most
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true,
          default_value_t = 256)]
    pub(crate) max_tokens: usize,
    /// No chat template; special tokens in the prompt are recognised
    #[arg(long, requires = "prompt_source")]
    pub(crate) raw: bool,
    /// Always draft with D, in the plan's best shape for it
    #[arg(long, value_name = "D", value_enum)]
    pub(crate) drafter: Option<DrafterName>,
    #[command(flatten)]
    pub(crate) skip: SkipArgs,
    /// Go on from what drafter swift found out in earlier runs, and keep what it finds out in this one
    #[arg(long, value_name = "FILE", conflicts_with = "no_spec")]
    pub(crate) skip_state: Option<PathBuf>,
    /// Go on from the n-grams that drafter ngram knew at the end of an earlier run, and keep those that it knows at the end of this one
    #[arg(long, value_name = "FILE", conflicts_with = "no_spec")]
    pub(crate) ngram_state: Option<PathBuf>,
    /// Plain decoding
    #[arg(long, conflicts_with_all = ["drafter", "plan"])]
    pub(crate) no_spec: bool,
    /// End with what was measured: tokens/s, accepted length, time per token
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print one JSON object instead of the text
    #[arg(long, requires = "prompt_source")]
    pub(crate) json: bool,
}

/// How drafter swift goes about it.
#[derive(Debug, Args)]
pub(crate) struct SkipArgs {
    /// What drafter swift looks for in the layers it leaves out
    #[arg(long, value_name = "O", value_enum, default_value_t = SkipObjectiveName::Matchness)]
    pub(crate) skip_objective: SkipObjectiveName,
    /// How the drafts of drafter swift grow
    #[arg(long, value_name = "G", value_enum, default_value_t = DraftGrowthName::Equal)]
    pub(crate) draft_growth: DraftGrowthName,
}

#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// 0 is greedy: always the most probable token
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true, default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Keep the K most probable tokens
    #[arg(long, value_name = "K", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) top_k: Option<usize>,
    /// Keep the most probable tokens until their sum reaches P, in (0, 1]
    #[arg(long, value_name = "P", value_parser = top_p, allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Keep tokens of at least M times the highest probability, in [0, 1]
    #[arg(long, value_name = "M", value_parser = min_p, allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,
    /// Same seed, same answer
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
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
    /// The drafter model: where the plans' is now, or without --plan one that a plan is made with on first use
    /// [default: the one that is shipped for the model, else where the plans' was when it was profiled]
    #[arg(long, value_name = "PATH", conflicts_with = "kernels")]
    pub(crate) draft_model: Option<PathBuf>,
    /// A plan to compare; may be repeated; drafters take their shapes from the first [default: the cached plan]
    #[arg(long = "plan", value_name = "FILE.plan")]
    pub(crate) plans: Vec<PathBuf>,
    /// Use the plans even if they were made for another machine, model or build
    #[arg(long, requires = "plans")]
    pub(crate) force: bool,
    /// Prompts, one JSON object a line with a "text" or "turns"
    #[arg(long, value_name = "FILE.jsonl", required_unless_present = "kernels")]
    pub(crate) prompts: Option<PathBuf>,
    /// What to compare: ar, eager (plain decoding op by op, without static programs), plan, unguarded (the plan without
    /// falling back to plain decoding), or a drafter's name; ar is always among them
    #[arg(long, value_name = "ARM,...", value_delimiter = ',', default_values_t = [Arm::Ar, Arm::Plan])]
    pub(crate) arms: Vec<Arm>,
    /// Tokens to generate per prompt at most
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true,
          default_value_t = 128)]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) skip: SkipArgs,
    /// How often every arm answers every prompt [default: 5], or with --kernels every forward is measured [default: 30]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) repetitions: Option<usize>,
    /// Measure no answers but kernels: every op of a forward at every width, beside what bounds it on this machine;
    /// with --plan, its tunings beside the default
    #[arg(long, conflicts_with_all = ["prompts", "arms", "max_tokens", "context", "temperature", "top_k", "top_p",
                                      "min_p", "seed"])]
    pub(crate) kernels: bool,
    /// Rows of the forwards that --kernels measures, numbers and ranges such as 1-64 [default: those of a profile]
    #[arg(long, value_name = "W,...", value_delimiter = ',', value_parser = widths, requires = "kernels",
          conflicts_with = "prompts")]
    pub(crate) widths: Vec<RangeInclusive<usize>>,
    /// Print one JSON object, with every run
    #[arg(long)]
    pub(crate) json: bool,
}
