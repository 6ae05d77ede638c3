//! The `yggc` program: hands over to the command line.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
