//! The `yggc` program: hands over to the command line.

mod cli;
#[cfg(feature = "serve")]
mod serve;

fn main() -> std::process::ExitCode {
    cli::main()
}
