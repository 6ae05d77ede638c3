//! `yggc completions` and `yggc man`, generated from the definition of the command line.

use std::{fs, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{
    args::{Cli, CompletionsArgs, ManArgs},
    error::Failure,
    output,
};

/// Runs `yggc completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    output::text(script(args.shell)?)
}

/// Runs `yggc man`.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    match &args.output {
        None => output::text(page()?),
        Some(folder) => pages(folder),
    }
}

fn script(shell: Shell) -> Result<String, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "yggc", &mut script);
    text(script)
}

/// The page of the program itself.
fn page() -> Result<String, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::Output)?;
    text(page)
}

/// Writes a page for the program and one for each command into a folder.
fn pages(folder: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        Failure::Input(format!(
            "cannot write the pages to `{}`: {error}; choose another folder with -o DIR",
            folder.display()
        ))
    })
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| Failure::Internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn commands() -> Vec<String> {
        let names = Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        assert!(Vec::len(&names) > 10, "{names:?}");
        names
    }

    #[test]
    fn every_shells_completions_name_every_command_and_its_flags() {
        for shell in Shell::value_variants() {
            let script = script(*shell).unwrap();
            for name in commands().iter().map(String::as_str).chain(["skip-objective", "max-body", "show"]) {
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
    }

    #[test]
    fn pages_name_every_command_and_its_flags() {
        let page = page().unwrap();
        let folder = tempfile::tempdir().unwrap();
        pages(&folder.path().join("man1")).unwrap();
        for name in commands() {
            assert!(page.contains(&format!("yggc\\-{name}(1)")), "{name}: {page}");
            let own = fs::read_to_string(folder.path().join(format!("man1/yggc-{name}.1"))).unwrap();
            assert!(own.starts_with(".ie"), "{name}: {own}");
        }
        let run = fs::read_to_string(folder.path().join("man1/yggc-run.1")).unwrap();
        assert!(run.contains("\\-\\-temperature") && run.contains("[default: 0]"), "{run}");
        assert!(folder.path().join("man1/yggc-plan-show.1").exists());
    }
}
