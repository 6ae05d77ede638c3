//! Turns arguments into values of the library, or into a refusal with its exit code.

use std::{
    fs,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use yggc::{
    backend::{available_tiers, has_own_memory},
    engine::{
        Activations, Adjustment, Constraint, DrafterChoice, KvFormat, Options, PlanSource, Prompt, Request,
        Sampling, Speculation, Tier, default_threads, fingerprints,
    },
    model::Model,
    plan::{DEFAULT_CONTEXT, Fingerprints},
    planner::MemoryBudget,
    policy::SkipSearchSettings,
};

use crate::cli::{
    args::{AnswerArgs, ConstraintArgs, DeviceArgs, DeviceName, RunArgs, SamplingArgs, SkipArgs, StoreArgs},
    error::Failure,
    output,
};

/// Where and with which numeric class a model runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) tier: Tier,
    pub(crate) activations: Activations,
    pub(crate) cache: KvFormat,
    pub(crate) threads: usize,
    /// Most bytes of weights in memory; all without it.
    pub(crate) resident: Option<usize>,
    /// Most bytes in memory, of which a plan says how many are of weights.
    pub(crate) memory: Option<Memory>,
}

/// A budget of memory for everything, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    /// The longest context that has to have room in it; the usual one if `None`.
    pub(crate) context: Option<usize>,
}

impl Memory {
    /// The budget for a model.
    pub(crate) fn budget(self, model: &Model) -> MemoryBudget {
        let context = self.context.unwrap_or(DEFAULT_CONTEXT as usize).min(model.config.context);
        MemoryBudget { bytes: self.bytes, context: u32::try_from(context).unwrap_or(u32::MAX) }
    }
}

impl Machine {
    /// The defaults of commands without options for it.
    pub(crate) fn whole() -> Self {
        let tier = Tier::detect_best();
        let activations = tier.activations();
        Self {
            tier,
            activations,
            cache: KvFormat::F16,
            threads: default_threads(),
            resident: None,
            memory: None,
        }
    }

    /// # Errors
    /// [`Failure::Device`] if the device or instruction set is not built in or not available.
    pub(crate) fn new(args: &DeviceArgs) -> Result<Self, Failure> {
        let DeviceArgs { activations, cache, .. } = *args;
        let tier = match (args.device, args.isa) {
            (DeviceName::Cpu, isa) => isa.map_or(Ok(Tier::detect_best()), tier)?,
            (DeviceName::Cuda, Some(_)) => {
                return Err(Failure::Usage(
                    "--isa is for --device cpu: a GPU has no instruction set to choose; leave it out, and unset YGG_ISA"
                        .to_owned(),
                ));
            }
            (DeviceName::Cuda, None) if activations == Some(Activations::Int8) => {
                return Err(Failure::Usage(
                    "--activations int8 is for --device cpu: a GPU multiplies native activations; leave it out"
                        .to_owned(),
                ));
            }
            (DeviceName::Cuda, None) if cache == KvFormat::Q8 => {
                return Err(Failure::Usage(format!(
                    "--cache {cache} is for --device cpu: a GPU's kernels read f16; leave it out"
                )));
            }
            (DeviceName::Cuda, None) => Tier::Cuda,
        };
        match args.device {
            DeviceName::Cuda => cuda(args.no_overlap)?,
            DeviceName::Cpu if args.no_overlap => {
                return Err(Failure::Usage("--no-overlap is for --device cuda: leave it out".to_owned()));
            }
            DeviceName::Cpu => {}
        }
        let activations = activations.unwrap_or(tier.activations());
        let resident = args.resident.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(Self { tier, activations, cache, threads: threads(args.threads), resident, memory: None })
    }

    /// The same within so many bytes of memory for everything, if they are given, with room for a context.
    ///
    /// # Errors
    /// [`Failure::Usage`] on a GPU, whose memory no plan divides.
    pub(crate) fn within_memory(self, bytes: Option<u64>, context: Option<usize>) -> Result<Self, Failure> {
        if bytes.is_some() && has_own_memory(self.tier) {
            return Err(Failure::Usage(
                "--memory is for --device cpu: no plan divides the memory of a GPU; choose with --resident how many \
                 bytes of weights stay on it"
                    .to_owned(),
            ));
        }
        Ok(Self { memory: bytes.map(|bytes| Memory { bytes, context }), ..self })
    }

    /// Whether weights may be streamed.
    pub(crate) fn limits_weights(&self) -> bool {
        self.resident.is_some() || self.memory.is_some()
    }

    /// The same, with as many bytes of weights in memory as the first of the plans is for, unless that was typed.
    pub(crate) fn within<'p>(self, plans: impl IntoIterator<Item = &'p PlanSource>) -> Self {
        let of_plan = || plans.into_iter().next().and_then(|source| source.plan.resident());
        Self { resident: self.resident.or_else(of_plan), ..self }
    }

    /// Rows of forwards that read prompts and options. On a processor every row takes time, so a forward should have
    /// few to spare: 20 hold the last token of a prompt and 16 options of two tokens each. A GPU's take about the same
    /// time up to as many as a prefill has.
    pub(crate) fn read_widths(&self) -> Vec<usize> {
        if has_own_memory(self.tier) { vec![64] } else { vec![4, 8, 12, 16, 20, 24, 32] }
    }

    /// What a plan for a model must have been made for to be used here.
    ///
    /// # Errors
    /// [`Failure::Device`] if the machine cannot be read.
    pub(crate) fn fingerprints(&self, model: &Model) -> Result<Fingerprints, Failure> {
        let Self { tier, activations, cache, threads, resident, memory: _ } = *self;
        Ok(fingerprints(model, tier, activations, cache, threads, resident)?)
    }

    /// Options of an engine on this machine, without plan and drafter.
    pub(crate) fn options(&self, model: &Path, context: Option<usize>) -> Options {
        Options {
            tier: Some(self.tier),
            activations: Some(self.activations),
            cache: self.cache,
            threads: Some(self.threads),
            resident: self.resident,
            context,
            memory_limit: yggc::storage::free_memory(),
            ..Options::new(model)
        }
    }
}

/// The number of threads that was asked for, as far as there are processors: threads that wait for each other's turn
/// take many times as long.
fn threads(asked: Option<usize>) -> usize {
    let processors = default_threads();
    match asked {
        Some(asked) if asked > processors => {
            output::remark(format_args!(
                "--threads {asked}: this process may use {processors} processors, and so many threads work"
            ));
            processors
        }
        asked => asked.unwrap_or(processors),
    }
}

/// Refuses a missing GPU before anything is loaded.
#[cfg(feature = "cuda")]
fn cuda(keeps_kernels_apart: bool) -> Result<(), Failure> {
    if keeps_kernels_apart {
        yggc::backend::keep_kernels_apart();
    }
    yggc::backend::gpu(Tier::Cuda).map(|_| ()).map_err(|error| yggc::engine::Error::from(error).into())
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: bool) -> Result<(), Failure> {
    Err(Failure::Device(
        "the device `cuda` is not built into this version of yggc; build with `--features cuda`, or use --device cpu"
            .to_owned(),
    ))
}

/// An instruction set, which this processor must have.
fn tier(tier: Tier) -> Result<Tier, Failure> {
    let here = || {
        let offered = available_tiers().into_iter().filter(|tier| *tier != Tier::Reference);
        offered.map(Tier::name).collect::<Vec<_>>().join(", ")
    };
    if tier.is_available() {
        return Ok(tier);
    }
    Err(Failure::Device(format!(
        "this processor cannot run the instruction set `{tier}`; available: {}; choose one with --isa or leave it out",
        here()
    )))
}

/// The drafter choice of the arguments.
pub(crate) fn drafter(args: &RunArgs) -> DrafterChoice {
    match &args.drafter {
        _ if args.no_spec => DrafterChoice::Plain,
        None => DrafterChoice::Planned,
        Some(drafter) => DrafterChoice::named(drafter.name()),
    }
}

/// The options with the settings of drafter swift.
pub(crate) fn with_skip(args: &SkipArgs, options: Options) -> Options {
    let SkipArgs { skip_objective: objective, draft_growth } = *args;
    Options { skip_search: SkipSearchSettings { objective, ..options.skip_search }, draft_growth, ..options }
}

/// The sampling of the arguments.
pub(crate) fn sampling(args: &SamplingArgs) -> Sampling {
    Sampling {
        temperature: args.temperature,
        // Vocabularies have fewer than 2^32 tokens, so a larger number keeps all.
        top_k: args.top_k.map_or(0, |k| u32::try_from(k).unwrap_or(u32::MAX)),
        top_p: args.top_p.unwrap_or(1.0),
        min_p: args.min_p.unwrap_or(0.0),
        seed: args.seed,
    }
}

/// What is asked for in addition to the prompt.
pub(crate) fn request(args: &AnswerArgs, prompt: Prompt) -> Request {
    let adjustment = Adjustment {
        bias: args.logit_bias.clone(),
        repetition: args.repetition_penalty,
        frequency: args.frequency_penalty,
        presence: args.presence_penalty,
    };
    Request {
        // The context ends an answer that has no limit.
        max_tokens: args.max_tokens.unwrap_or(usize::MAX),
        sampling: sampling(&args.sampling),
        adjustment,
        stop: args.stop.clone(),
        ..Request::new(prompt)
    }
}

/// Whether requests draft. An engine that drafts nothing may still run the forced tokens of a constraint together.
pub(crate) fn speculation(args: &RunArgs) -> Speculation {
    if args.no_spec { Speculation::Off } else { Speculation::AsOpened }
}

/// What answers must be, as the arguments say; `None` for anything.
///
/// # Errors
/// [`Failure::Input`] if a file cannot be read.
pub(crate) fn constraint(args: &ConstraintArgs) -> Result<Option<Constraint>, Failure> {
    let ConstraintArgs { json_schema, json_object, regex, grammar } = args;
    Ok(if let Some(file) = json_schema {
        Some(Constraint::JsonSchema(read_text(file, "JSON schema")?))
    } else if let Some(file) = grammar {
        Some(Constraint::Lark(read_text(file, "grammar")?))
    } else if let Some(regex) = regex {
        Some(Constraint::Regex(regex.clone()))
    } else {
        json_object.then_some(Constraint::JsonObject)
    })
}

/// The prompt, or `None` for a chat. Text that is piped in without a prompt is the prompt.
///
/// # Errors
/// [`Failure::Input`] if it is empty or its file is not UTF-8.
pub(crate) fn prompt(args: &RunArgs) -> Result<Option<String>, Failure> {
    let (prompt, file) = (args.prompt.as_deref(), args.prompt_file.as_deref());
    if prompt.is_none() && file.is_none() && (args.chat || io::stdin().is_terminal()) {
        return Ok(None);
    }
    let prompt = given_text(prompt, file, "prompt")?;
    if prompt.is_empty() {
        return Err(Failure::Input(
            "the prompt is empty: expected some text; a chat without a terminal is `yggc run --chat`"
                .to_owned(),
        ));
    }
    Ok(Some(prompt))
}

/// The text that was typed, or of the file that was named, or of standard input, which `-` and neither of them mean.
///
/// # Errors
/// As [`read_text`].
pub(crate) fn given_text(typed: Option<&str>, file: Option<&Path>, what: &str) -> Result<String, Failure> {
    match (typed, file) {
        (Some(typed), _) if typed != "-" => Ok(typed.to_owned()),
        (Some(_), _) | (None, None) => read_text(Path::new("-"), what),
        (None, Some(file)) => read_text(file, what),
    }
}

/// The corpus store of the arguments.
///
/// # Errors
/// [`Failure::Input`] if it is not there.
pub(crate) fn store(args: &StoreArgs) -> Result<Option<PathBuf>, Failure> {
    match &args.store {
        Some(store) if !store.exists() => Err(Failure::Input(format!(
            "there is no corpus store `{}`: expected the file of `yggc corpus build`; check --store",
            store.display()
        ))),
        store => Ok(store.clone()),
    }
}

/// The text of a file, or of standard input, which `-` means.
///
/// # Errors
/// [`Failure::Input`] if it cannot be read or is not UTF-8.
pub(crate) fn read_text(file: &Path, what: &str) -> Result<String, Failure> {
    let read = if file == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    let bytes = read.map_err(|error| {
        Failure::Input(format!("cannot read the {what} `{}`: {error}; check the path", file.display()))
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Input(format!(
            "the {what} `{}` is not text: expected UTF-8, found byte 0x{:02x} at offset {at}; convert it, for instance \
             with iconv",
            file.display(),
            error.as_bytes()[at]
        ))
    })
}

/// Checks before long work that its result can be written.
///
/// # Errors
/// [`Failure::Input`] if `file` cannot be created or is a folder.
pub(crate) fn output_file(file: &Path) -> Result<(), Failure> {
    output_file_of(file, "-o FILE")
}

/// [`output_file`] for the file of option `flag`.
///
/// # Errors
/// As [`output_file`].
pub(crate) fn output_file_of(file: &Path, flag: &str) -> Result<(), Failure> {
    let folder = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let refused = |why: &str| {
        Err(Failure::Input(format!(
            "cannot write `{}`: {why}; choose another place with {flag}",
            file.display()
        )))
    };
    if file.is_dir() || file.file_name().is_none() {
        return refused("it is a folder");
    }
    match fs::metadata(folder) {
        Err(error) => refused(&format!("its folder: {error}")),
        Ok(found) if !found.is_dir() => refused("its folder is a file"),
        Ok(found) if found.permissions().readonly() => refused("its folder is read-only"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_sets_that_are_not_here_are_refused_with_those_that_are() {
        let sets = [Tier::Portable, Tier::Neon, Tier::Avx2, Tier::Avx512, Tier::Avx512Bf16, Tier::Amx];
        for meant in sets {
            match tier(meant) {
                Ok(found) => assert!(found == meant && meant.is_available()),
                Err(error) => {
                    assert!(matches!(error, Failure::Device(_)) && !meant.is_available());
                    let said = error.to_string();
                    assert!(said.contains(&format!("`{meant}`")) && said.contains("portable"), "{said}");
                    assert!(!said.contains("reference"), "{said}");
                }
            }
        }
        assert!(tier(Tier::Portable).is_ok());
    }

    #[test]
    fn no_budget_for_everything_is_divided_on_a_gpu() {
        let on = |tier| Machine { tier, ..Machine::whole() };
        let error = on(Tier::Cuda).within_memory(Some(1 << 30), None).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)) && error.to_string().contains("--resident"), "{error}");
        assert!(on(Tier::Cuda).within_memory(None, Some(64)).unwrap().memory.is_none());
        let within = on(Tier::Portable).within_memory(Some(1 << 30), Some(64)).unwrap();
        assert!(within.limits_weights() && !on(Tier::Portable).limits_weights());
    }

    #[test]
    fn a_result_that_cannot_be_written_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        assert!(output_file(&folder.path().join("new")).is_ok());
        assert!(output_file(Path::new("new")).is_ok());
        for bad in [folder.path(), &folder.path().join("missing/new"), Path::new("/"), Path::new("")] {
            assert!(matches!(output_file(bad), Err(Failure::Input(_))), "{}", bad.display());
        }
    }
}
