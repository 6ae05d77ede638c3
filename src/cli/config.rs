//! The file of `--config`: flags of `yggc serve` by their names, as TOML.
//!
//! A flag of the command line wins over the file, and so does a variable that stands for a flag. What the file adds is
//! appended to the command line, so that `clap` checks it as it checks flags.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, CommandFactory, Parser, error::ErrorKind, parser::ValueSource};
use toml::{Table, Value};

use crate::cli::{
    args::{Cli, Environment},
    error::Failure,
    settings,
};

/// Why a command line with its file was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The command line by itself.
    Usage(clap::Error),
    /// The file, or both together.
    File(Failure),
}

/// Parses a command line with what the file of its `--config` adds, if it has one.
pub(crate) fn parse(arguments: Vec<OsString>, environment: &Environment) -> Result<Cli, Refused> {
    let alone = Cli::try_parse_from(&arguments);
    let lenient = Cli::command().ignore_errors(true).try_get_matches_from(&arguments);
    let Ok(Some(("serve", given))) = lenient.as_ref().map(ArgMatches::subcommand) else {
        return alone.map_err(Refused::Usage);
    };
    let Some(file) = given.get_one::<PathBuf>("config") else { return alone.map_err(Refused::Usage) };
    match alone {
        // What a flag needs with it may be in the file.
        Err(usage) if usage.kind() != ErrorKind::MissingRequiredArgument => {
            return Err(Refused::Usage(usage));
        }
        Ok(_) | Err(_) => {}
    }
    let added = added(file, given, environment).map_err(Refused::File)?;
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (flags, trailing) = arguments.split_at(end);
    let all = flags.iter().chain(&added).chain(trailing);
    Cli::try_parse_from(all).map_err(|error| {
        let said = error.to_string();
        let said = said.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let found = format!("`{}`, with the command line: {said}; correct the file", file.display());
        Refused::File(Failure::Input(found))
    })
}

/// The flags that the file adds to those that are given.
fn added(file: &Path, given: &ArgMatches, environment: &Environment) -> Result<Vec<OsString>, Failure> {
    let refused = |what: String| Failure::Input(format!("`{}`: {what}", file.display()));
    let text = settings::read_text(file, "configuration")?;
    let table: Table = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        refused(format!("line {} is no TOML: {}", before.split('\n').count(), error.message()))
    })?;
    let mut command = Cli::command();
    command.build();
    let serve = command.find_subcommand("serve").expect("this program serves");
    let flags = || serve.get_arguments().filter(|arg| !["config", "help"].contains(&arg.get_id().as_str()));
    let mut added = Vec::new();
    for (name, value) in &table {
        let Some(arg) = flags().find(|arg| arg.get_long() == Some(name)) else {
            let nearest = flags().filter_map(Arg::get_long).min_by_key(|flag| distance(name, flag));
            let nearest = nearest.expect("it has flags");
            return Err(refused(format!(
                "{name:?} is no setting: expected the name of a flag of `yggc serve`, perhaps `{nearest}`; `yggc \
                 serve --help` lists them"
            )));
        };
        let is_set = match name.as_str() {
            "api-key" | "api-key-file" => environment.api_key.is_some(),
            _ => false,
        };
        let source = given.value_source(arg.get_id().as_str());
        if !is_set && !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            let found = flag(arg, name, value)
                .map_err(|expected| refused(format!("{name}: expected {expected}, found {value}")))?;
            added.extend(found);
        }
    }
    Ok(added)
}

/// A setting as it would be on the command line, or what is expected of it.
fn flag(arg: &Arg, name: &str, value: &Value) -> Result<Vec<OsString>, &'static str> {
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let is_repeated = matches!(arg.get_action(), ArgAction::Append);
    let may_be_bare = is_switch || arg.get_num_args().is_some_and(|number| number.min_values() == 0);
    let with = |value: &Value| -> Result<OsString, &'static str> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(_) | Value::Float(_) => value.to_string(),
            Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
                return Err("a text or a number");
            }
        };
        Ok(OsString::from(format!("--{name}={text}")))
    };
    match value {
        Value::Boolean(true) if may_be_bare => Ok(vec![OsStr::new(&format!("--{name}")).to_owned()]),
        Value::Boolean(false) if may_be_bare => Ok(Vec::new()),
        _ if is_switch => Err("true or false"),
        Value::Array(values) if is_repeated => values.iter().map(with).collect(),
        _ => with(value).map(|flag| vec![flag]),
    }
}

/// How many letters to insert, leave out or change make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::args::{Command, ServeArgs};

    fn parsed(line: &str, file: &str, environment: &Environment) -> Result<Box<ServeArgs>, Refused> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        fs::write(&path, file).unwrap();
        let words = ["yggc", "serve", "--config"].into_iter().map(OsString::from);
        let rest = line.split_whitespace().map(OsString::from);
        let Cli { command: Command::Serve(serve), .. } =
            parse(words.chain([path.into_os_string()]).chain(rest).collect(), environment)?
        else {
            panic!("not `serve`")
        };
        Ok(serve)
    }

    fn said(refused: Result<Box<ServeArgs>, Refused>) -> String {
        match refused.unwrap_err() {
            Refused::Usage(error) => error.to_string(),
            Refused::File(failure) => failure.to_string(),
        }
    }

    #[test]
    fn settings_of_the_file_are_flags_and_flags_win() {
        let none = Environment::default();
        let file = "port = 1\nqueue = 3\nmodel = 'a.gguf'\naccess-log = true\nno-spec = false\nrefine = true\n\
                    cors-origin = ['https://a.example', 'https://b.example']\nresident = '2G'\n";
        let serve = parsed("--port 2", file, &none).unwrap();
        assert_eq!((serve.port, serve.queue, serve.access_log, serve.no_spec), (2, 3, true, false));
        assert_eq!((serve.refine, serve.cors_origin.len()), (Some(60), 2));
        assert_eq!(
            (serve.model.model.as_deref(), serve.device.resident),
            (Some(Path::new("a.gguf")), Some(2 << 30))
        );
        assert_eq!(parsed("", "refine = 9", &none).unwrap().refine, Some(9));
        // What a flag needs may be in the file.
        assert!(parsed("--force", "plan = 'a.plan'", &none).unwrap().force);
    }

    #[test]
    fn variables_win_over_the_file() {
        let environment = Environment { api_key: Some("sesame".into()), ..Environment::default() };
        assert_eq!(parsed("", "api-key-file = 'a'", &environment).unwrap().api_key_file, None);
        let none = Environment::default();
        assert!(parsed("", "api-key-file = 'a'", &none).unwrap().api_key_file.is_some());
        let keys = |environment| parsed("", "api-key = ['a', 'b']", environment).unwrap().api_key.len();
        assert_eq!((keys(&environment), keys(&none)), (0, 2));
    }

    #[test]
    fn what_is_wrong_in_the_file_is_said() {
        for (line, file, part) in [
            ("", "prot = 1", "perhaps `port`"),
            ("", "max_prompt = 1", "perhaps `max-prompt`"),
            ("", "config = 'b'", "is no setting"),
            ("", "port = 1\nqueue = \n", "line 2 is no TOML"),
            ("", "port = 70000", "70000"),
            ("", "port = true", "port: expected a text or a number, found true"),
            ("", "port = [1, 2]", "port: expected a text or a number"),
            ("", "access-log = 1", "access-log: expected true or false, found 1"),
            ("", "[limits]\nqueue = 1", "\"limits\" is no setting"),
            ("--plan p", "no-spec = true", "cannot be used with"),
            ("--port x", "port = 1", "invalid value 'x'"),
            ("--force", "port = 1", "--plan"),
        ] {
            let said = said(parsed(line, file, &Environment::default()));
            assert!(said.contains(part), "{file}: {said}");
        }
        let missing = ["yggc", "serve", "--config", "/nowhere/serve.toml"].map(OsString::from).to_vec();
        assert!(matches!(parse(missing, &Environment::default()), Err(Refused::File(_))));
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(["", "port", "prot", "ports", "pot"].map(|name| distance(name, "port")), [4, 0, 2, 1, 1]);
    }
}
