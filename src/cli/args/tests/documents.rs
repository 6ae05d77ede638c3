//! Commands and options that README and documents name, as the command line takes them.

use std::collections::BTreeSet;

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::cli::args::Cli;

/// What describes the program.
const DOCUMENTS: [&str; 11] = [
    include_str!("../../../../README.md"),
    include_str!("../../../../docs/architecture.md"),
    include_str!("../../../../docs/benchmarks.md"),
    include_str!("../../../../docs/contributing.md"),
    include_str!("../../../../docs/embedding.md"),
    include_str!("../../../../docs/gpu.md"),
    include_str!("../../../../docs/guarantees.md"),
    include_str!("../../../../docs/guide.md"),
    include_str!("../../../../docs/larger-than-memory.md"),
    include_str!("../../../../docs/scale-out.md"),
    include_str!("../../../../docs/serving.md"),
];

/// What describes scripts as well.
const BENCHES: [&str; 2] =
    [include_str!("../../../../benches/README.md"), include_str!("../../../../benches/results/README.md")];

/// The words of a shell's command, up to a comment, a pipe, a redirection or `&`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('|' | '>' | '&' | '#', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Lines of the blocks of shell commands.
fn shell_lines(document: &str) -> impl Iterator<Item = &str> {
    let blocks = document.split("```sh\n").skip(1).filter_map(|tail| tail.split("```").next());
    blocks.flat_map(str::lines)
}

/// Code spans outside blocks.
fn spans(document: &str) -> impl Iterator<Item = &str> {
    let texts = document.split("```").step_by(2);
    texts.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn error_of(words: &[String]) -> Option<clap::Error> {
    Cli::try_parse_from(words).err().filter(|error| error.kind() != ErrorKind::DisplayHelp)
}

#[test]
fn commands_of_shell_blocks_are_accepted() {
    let mut seen = 0;
    for line in DOCUMENTS.into_iter().flat_map(shell_lines) {
        let line = line.replace("cargo run --release -- ", "yggc ");
        if line.starts_with("yggc ") {
            seen += 1;
            let error = error_of(&words(&line));
            assert!(error.is_none(), "{line}: {}", error.expect("checked"));
        }
    }
    assert!(seen > 30, "{seen} commands were found");
}

/// Those of running text may leave out what is needed with it.
#[test]
fn commands_and_options_of_running_text_exist() {
    let mut options = BTreeSet::from(["help".to_owned(), "version".to_owned()]);
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        options.extend(command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned));
        commands.extend(command.get_subcommands().cloned());
    }
    let mut seen = 0;
    for span in DOCUMENTS.into_iter().chain(BENCHES).flat_map(spans) {
        if span.starts_with("yggc ") && span.contains(" -") && !span.contains("COMMAND") {
            seen += 1;
            let error = error_of(&words(span)).filter(|e| e.kind() != ErrorKind::MissingRequiredArgument);
            assert!(error.is_none(), "{span}: {}", error.expect("checked"));
        }
    }
    for span in DOCUMENTS.into_iter().flat_map(spans) {
        if let Some(option) = span.strip_prefix("--") {
            seen += 1;
            let name = option.split([' ', '=']).next().unwrap_or_default();
            assert!(options.contains(name), "`{span}`: no command has it");
        }
    }
    assert!(seen > 30, "{seen} commands and options were found");
}

#[test]
fn words_are_a_shells() {
    assert_eq!(words("yggc run -p \"a # b\" '' > c"), ["yggc", "run", "-p", "a # b", ""]);
    assert_eq!(words("yggc serve & # d"), ["yggc", "serve"]);
}
