//! `yggc score`: the model's probability of each token of a text.

use std::{path::Path, sync::Arc};

use serde::Serialize;
use yggc::{
    engine::{Loaded, Pinning},
    measure::{self, Score, ScoredToken},
    storage::json_fault,
};

use crate::cli::{
    args::ScoreArgs,
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::load_options,
    settings::{self, Machine},
};

/// Rows per forward. The number changes the time, not the result.
const WIDTH: usize = 64;

/// The object that `score --json` prints; its fields are a contract.
#[derive(Debug, Serialize)]
struct ScoreJson {
    tokens: Vec<TokenJson>,
    mean_nll: f64,
    perplexity: f64,
}

#[derive(Debug, Serialize)]
struct TokenJson {
    id: u32,
    nll: f64,
    argmax: u32,
}

enum Source {
    Text(String),
    Ids(Vec<u32>),
}

/// Runs `yggc score`.
pub(crate) fn command(args: &ScoreArgs, cache: &CachePlace) -> Result<(), Failure> {
    let source = source(args)?;
    let machine = Machine::new(&args.device)?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let loaded = Arc::new(Loaded::new(loading::open(&path, cache)?, &load_options(machine, vec![WIDTH]))?);
    let ids = match source {
        Source::Text(text) => loaded.tokenizer().encode_prompt(&text),
        Source::Ids(ids) => ids,
    };
    let most = loaded.set().model_context();
    if ids.len() > most {
        return Err(Failure::Input(format!(
            "the text has {} tokens: expected at most {most}, which the model's context holds; score a part of it",
            ids.len()
        )));
    }
    let Score { tokens, mean_nll, perplexity } = measure::score(&loaded, &ids, Pinning::default())?;
    if args.json {
        let token = |ScoredToken { id, nll, argmax }| TokenJson { id, nll, argmax };
        let tokens = tokens.into_iter().map(token).collect();
        return output::json(&ScoreJson { tokens, mean_nll, perplexity });
    }
    output::text(format_args!(
        "{} tokens predicted, mean negative log-likelihood {mean_nll:.4} nats, perplexity {perplexity:.3}\n",
        tokens.len()
    ))
}

fn source(args: &ScoreArgs) -> Result<Source, Failure> {
    match (&args.text_file, &args.token_ids) {
        (Some(file), _) => Ok(Source::Text(settings::read_text(file, "text")?)),
        (None, Some(file)) => read_ids(file).map(Source::Ids),
        (None, None) => unreachable!("the command line needs one of them"),
    }
}

fn read_ids(file: &Path) -> Result<Vec<u32>, Failure> {
    serde_json::from_str(&settings::read_text(file, "list of token ids")?).map_err(|error| {
        Failure::Input(format!(
            "`{}` is no list of token ids: expected a JSON array of whole numbers such as [1, 2, 3], found {}",
            file.display(),
            json_fault(&error)
        ))
    })
}
