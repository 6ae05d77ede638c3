//! `yggc corpus build`: scores texts with the model and writes the corpus store of `retrieval` and `prior`.

use yggc::{
    engine::Loaded,
    measure::{self, CorpusOptions, CorpusReport},
};

use crate::cli::{
    args::{CorpusArgs, CorpusBuildArgs, CorpusCommand},
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::load_options,
    progress,
    settings::{self, Machine},
};

/// Rows per forward. The number changes the time, not the result.
const WIDTH: usize = 64;

/// Runs `yggc corpus`.
pub(crate) fn command(args: &CorpusArgs, cache: &CachePlace) -> Result<(), Failure> {
    match &args.command {
        CorpusCommand::Build(args) => build(args, cache),
    }
}

fn build(args: &CorpusBuildArgs, cache: &CachePlace) -> Result<(), Failure> {
    settings::output_file(&args.output)?;
    let machine = Machine::new(&args.device)?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let loaded = Loaded::new(loading::open(&path, cache)?, &load_options(machine, vec![WIDTH]))?;
    let options = CorpusOptions {
        snippet_tokens: args.snippet,
        most_snippets: args.keep,
        most_tokens: args.tokens,
        ..CorpusOptions::new(args.inputs.clone(), args.output.clone())
    };
    let bar = progress::parts();
    let built = measure::build_corpus(&loaded, &options, &mut |step| {
        bar.set_length(step.total as u64);
        bar.set_position(step.done as u64);
        bar.set_message(step.what);
    });
    bar.finish_and_clear();
    let CorpusReport { snippets, resumed, kept_snippets, kept_tokens, highest_perplexity, priors, bytes } =
        built?;
    let [ones, twos, threes] = priors;
    let resumed =
        if resumed == 0 { String::new() } else { format!(", {resumed} of them by an earlier build") };
    output::text(format_args!(
        "{}: {kept_snippets} of {snippets} snippets kept, {kept_tokens} tokens of perplexity {highest_perplexity:.1} \
         or less; what follows {ones} tokens, {twos} pairs and {threes} triples; {bytes} bytes; {snippets} scored{resumed}\n",
        args.output.display()
    ))
}
