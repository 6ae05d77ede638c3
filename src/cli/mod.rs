//! The command line: arguments, their meaning, and one file per command.
//!
//! Invariants: stdout carries only a command's result, everything else goes to stderr; the environment is read in
//! `args/environment.rs` alone; every failure is one paragraph and an exit code (`error.rs`). The room belongs to the
//! program, not to the library, and uses only the library's public API.

mod args;
mod bench;
mod cache;
mod chat;
mod choose;
#[cfg(feature = "serve")]
mod config;
mod contents;
mod corpus;
mod definition;
mod distill;
mod doctor;
mod drafter_state;
mod error;
mod fetch;
mod inspect;
mod kept_chat;
mod loading;
mod models;
mod output;
mod plan;
mod plan_cache;
mod planning;
mod prefixes;
mod profile;
mod progress;
mod refine;
#[cfg(feature = "serve")]
mod refinement;
mod report;
mod run;
mod score;
#[cfg(feature = "serve")]
mod serve;
mod settings;
mod stats;
mod stream;
mod verify;

use std::process::ExitCode;

use self::{
    args::{Cli, Command, Environment},
    cache::CachePlace,
    error::Failure,
};

/// Parses the command line, runs the command and reports how it ended.
pub(crate) fn main() -> ExitCode {
    yggc::storage::tell_file_faults();
    let environment = Environment::read();
    #[cfg(feature = "serve")]
    let cli = match config::parse(std::env::args_os().collect(), &environment) {
        Ok(cli) => cli,
        Err(config::Refused::Usage(usage)) => return misused(&usage),
        Err(config::Refused::File(failure)) => return failure.report(),
    };
    #[cfg(not(feature = "serve"))]
    let cli = match <Cli as clap::Parser>::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return misused(&usage),
    };
    match run(cli, environment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints what `clap` says: of a usage error, or the help that was asked for.
fn misused(usage: &clap::Error) -> ExitCode {
    // With stderr closed, the error cannot be reported.
    let _ = usage.print();
    ExitCode::from(if usage.use_stderr() { 2 } else { 0 })
}

fn run(cli: Cli, environment: Environment) -> Result<(), Failure> {
    let cache = CachePlace {
        flag: cli.cache_dir,
        environment,
        keeps_packed: !cli.no_packed_cache,
        packed_limit: cli.packed_limit,
    };
    #[cfg(feature = "cuda")]
    cache.keep_compiled_kernels();
    match cli.command {
        Command::Fetch(args) => fetch::command(&args, &cache),
        Command::Models(args) => models::command(&args),
        Command::Doctor(args) => doctor::command(&args, &cache),
        Command::Cache(args) => cache::command(&args, &cache),
        Command::Inspect(args) => inspect::command(&args, &cache),
        Command::Score(args) => score::command(&args, &cache),
        Command::Choose(args) => choose::command(&args, &cache),
        Command::Profile(args) => profile::command(&args, &cache),
        Command::Plan(args) => plan::command(&args, &cache),
        Command::Run(args) => run::command(&args, &cache),
        Command::Corpus(args) => corpus::command(&args, &cache),
        Command::Distill(args) => distill::command(&args, &cache),
        Command::Bench(args) => bench::command(&args, &cache),
        Command::Verify(args) => verify::command(&args, &cache),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::command(&args, &cache),
        Command::Completions(args) => definition::completions(&args),
        Command::Man(args) => definition::man(&args),
    }
}
