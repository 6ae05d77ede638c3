//! The command line: what was typed, what it means, and what each command does.
//!
//! Invariants: stdout carries only a command's result, everything else goes to stderr; the environment is read in
//! `args.rs` alone; every failure is one paragraph and an exit code (`error.rs`). The room belongs to the
//! program, not to the library, and uses only the library's public API.

mod args;
mod cache;
mod error;
#[cfg_attr(not(test), expect(dead_code, reason = "the commands that take -m are not wired yet"))]
mod fetch;
#[cfg_attr(not(test), expect(dead_code, reason = "the commands that hide progress are not wired yet"))]
mod progress;

use std::process::ExitCode;

use clap::Parser;

use self::{
    args::{Cli, Command, Environment},
    cache::CacheDir,
    error::Failure,
    progress::Progress,
};

/// Parses the command line, runs the command and reports how it ended.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // A closed stderr leaves nobody to tell.
            let _ = usage.print();
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let cache = CacheDir::resolve(cli.cache_dir, &Environment::read())?;
    match cli.command {
        Command::Fetch(args) => fetch::command(&args.name, &cache, Progress::OnStderr),
        Command::Inspect(_) => Err(Failure::NotWired("inspect")),
        Command::Score(_) => Err(Failure::NotWired("score")),
        Command::Profile(_) => Err(Failure::NotWired("profile")),
        Command::Plan(_) => Err(Failure::NotWired("plan")),
        Command::Run(_) => Err(Failure::NotWired("run")),
        Command::Bench(_) => Err(Failure::NotWired("bench")),
    }
}
