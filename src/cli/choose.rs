//! `yggc choose`: how probable each of some given texts is after a prompt.

use std::{path::Path, sync::Arc};

use serde::Serialize;
use yggc::engine::{
    Choices, ChooseReport, ChooseRequest, Continuation, DrafterChoice, Engine, Loaded, Message, OptionToken,
    Options, Prompt, Role, ScoredOption,
};

use crate::cli::{
    args::ChooseArgs,
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::load_options,
    settings::{self, Machine},
};

/// The object that `choose --json` prints; its fields are a contract.
#[derive(Debug, Serialize)]
struct ChoicesJson<'a> {
    options: Vec<OptionJson<'a>>,
    prompt_token_ids: &'a [u32],
    stats: StatsJson,
}

#[derive(Debug, Serialize)]
struct OptionJson<'a> {
    text: &'a str,
    token_ids: Vec<u32>,
    log_prob: f64,
    probability: f64,
    /// Whether the constraint takes it; true without one.
    admitted: bool,
    tokens: Vec<TokenJson>,
}

#[derive(Debug, Serialize)]
struct TokenJson {
    id: u32,
    log_prob: f64,
}

#[derive(Debug, Serialize)]
struct StatsJson {
    prefill_ms: f64,
    options_ms: f64,
    forwards: u64,
    rows: u64,
}

/// Runs `yggc choose`.
pub(crate) fn command(args: &ChooseArgs, cache: &CachePlace) -> Result<(), Failure> {
    expect_one_use_of_stdin(args)?;
    let text = settings::given_text(args.prompt.as_deref(), args.prompt_file.as_deref(), "prompt")?;
    if text.is_empty() {
        return Err(Failure::Input(
            "the prompt is empty: expected some text that the options continue".to_owned(),
        ));
    }
    let texts = texts(args)?;
    let constraint = settings::constraint(&args.constraint)?;
    let machine = Machine::new(&args.device)?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let widths = machine.read_widths();
    let loaded = Arc::new(Loaded::new(loading::open(&path, cache)?, &load_options(machine, widths.clone()))?);
    let prompt = if args.raw {
        Prompt::Raw(text)
    } else {
        let system = args.system.iter().map(|system| Message::new(Role::System, system));
        Prompt::chat(system.chain([Message::new(Role::User, text)]).collect())
    };
    let options = texts.iter().cloned().map(Continuation::Text).collect();
    let request = ChooseRequest {
        constraint,
        normalisation: args.normalize.into(),
        ..ChooseRequest::new(prompt, options)
    };
    let request = request.encoded(&loaded)?;
    // No more than the texts need.
    let context = Some(request.tokens().clamp(2, loaded.set().model_context()));
    let engine =
        Options { drafter: DrafterChoice::Plain, read_widths: widths, ..machine.options(&path, context) };
    let choices = Engine::with_loaded(loaded, &engine)?.choose(&request)?.expect("nobody cancels it");
    if args.json {
        return output::json(&ChoicesJson::new(&texts, &choices));
    }
    let mut rows = vec![["option", "probability", "log-probability", "tokens"].map(str::to_owned)];
    for place in choices.ranked() {
        let ScoredOption { tokens, log_prob, probability, is_admitted } = &choices.options[place];
        let probability =
            if *is_admitted { format!("{:.2} %", 100.0 * probability) } else { "not admitted".to_owned() };
        rows.push([
            format!("{:?}", texts[place]),
            probability,
            format!("{log_prob:.4}"),
            tokens.len().to_string(),
        ]);
    }
    output::text(output::table(&rows))
}

/// # Errors
/// [`Failure::Usage`] if prompt and options are both to be read from standard input.
fn expect_one_use_of_stdin(args: &ChooseArgs) -> Result<(), Failure> {
    let is_stdin = |path: Option<&Path>| path == Some(Path::new("-"));
    let prompt = is_stdin(args.prompt.as_deref().map(Path::new)) || is_stdin(args.prompt_file.as_deref());
    if prompt && is_stdin(args.options_file.as_deref()) {
        return Err(Failure::Usage(
            "prompt and options cannot both be standard input: give one of them in another way".to_owned(),
        ));
    }
    Ok(())
}

/// The options of the arguments, those of flags first.
fn texts(args: &ChooseArgs) -> Result<Vec<String>, Failure> {
    let mut texts = args.options.clone();
    if let Some(file) = &args.options_file {
        let given = settings::read_text(file, "list of options")?;
        texts.extend(given.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    }
    Ok(texts)
}

impl<'a> ChoicesJson<'a> {
    fn new(texts: &'a [String], choices: &'a Choices) -> Self {
        let Choices { options, prompt_token_ids, report } = choices;
        let option = |(option, text): (&ScoredOption, &'a String)| {
            let ScoredOption { tokens, log_prob, probability, is_admitted } = option;
            OptionJson {
                text,
                token_ids: tokens.iter().map(|token| token.id).collect(),
                log_prob: *log_prob,
                probability: *probability,
                admitted: *is_admitted,
                tokens: tokens
                    .iter()
                    .map(|OptionToken { id, log_prob }| TokenJson { id: *id, log_prob: *log_prob })
                    .collect(),
            }
        };
        let ChooseReport { reused_tokens: _, prefill_ms, options_ms, forwards, rows } = *report;
        Self {
            options: options.iter().zip(texts).map(option).collect(),
            prompt_token_ids,
            stats: StatsJson { prefill_ms, options_ms, forwards, rows },
        }
    }
}
