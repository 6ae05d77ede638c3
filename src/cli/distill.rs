//! `yggc distill`: runs the training program, which is embedded in this binary, with the shell's `python3`.
//!
//! The program is written into a folder `program` below the output and run there as a module. Its progress is passed
//! on; its refusals become refusals of this command.

use std::{
    ffi::OsString,
    fs, io,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use ygg_profiler::{
    DISTILL_MODULES, DISTILL_PACKAGE, DISTILL_PYTHON, DISTILL_REQUIREMENTS, distill_packages,
};
use yggc::{engine::tokenizer_files, measure::SHIPPED_PROMPTS, model::Model};

use crate::cli::{args::DistillArgs, cache::CachePlace, error::Failure, fetch, output};

/// Why no drafter was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DistillError {
    #[error(
        "`python3` was not found, and it is needed to train a drafter; install python3 ({}.{} or newer), then: \
         {install}",
        DISTILL_PYTHON.0,
        DISTILL_PYTHON.1
    )]
    NoPython { install: String },
    #[error(
        "`python3` is {found}, and training a drafter needs {}.{} or newer; put a newer one first in PATH, then: \
         {install}",
        DISTILL_PYTHON.0,
        DISTILL_PYTHON.1
    )]
    OldPython { found: String, install: String },
    #[error(
        "`python3` has no {}, which training a drafter needs; get what is missing with: {install}", missing.join(", ")
    )]
    NoPackages { missing: Vec<String>, install: String },
    #[error("`python3` did not say what it has: it said \"{said}\"; try `python3 --version`")]
    StrangePython { said: String },
    /// Bad input: the model, the prompts or the state of an earlier run cannot be used.
    #[error("{said}")]
    Refused { said: String },
    #[error(
        "the training program ended with {status}: it said \"{said}\"; what it finished is kept, go on with --resume"
    )]
    Failed { status: ExitStatus, said: String },
    /// Bad input: the folder holds results of another run.
    #[error(
        "`{folder}` holds what an earlier run left; go on with it by --resume, or choose another folder with -o"
    )]
    Taken { folder: String },
    /// Bad input: there is no run to resume.
    #[error("--resume goes on with an earlier run, and `{folder}` holds none; leave --resume out to begin")]
    NothingThere { folder: String },
    #[error("cannot {what} `{path}`: {error}; check the folder given with -o")]
    Folder { what: &'static str, path: String, error: io::Error },
    #[error("cannot start `python3`: {0}")]
    Start(io::Error),
}

/// Python code that prints the version of Python and the packages that it cannot find, one word each.
const PROBE: &str = "\
import importlib.util, sys
print('%d.%d' % sys.version_info[:2], *[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])";

/// Runs `yggc distill`.
pub(crate) fn command(args: &DistillArgs, cache: &CachePlace) -> Result<(), Failure> {
    let work = args.output.join("work");
    match (work.join("started").exists(), args.resume) {
        (true, false) => return Err(DistillError::Taken { folder: args.output.display().to_string() }.into()),
        (false, true) => {
            return Err(DistillError::NothingThere { folder: args.output.display().to_string() }.into());
        }
        (true, true) | (false, false) => {}
    }
    for file in args.prompts.iter().chain(&args.exclude) {
        if !file.is_file() {
            return Err(Failure::Input(format!(
                "cannot read the prompts `{}`: no such file; check the path",
                file.display()
            )));
        }
    }
    for folder in &args.corpus {
        if !corpus_of(folder).join("corpus.json").is_file() {
            return Err(Failure::Input(format!(
                "`{}` holds no corpus, expected `work/corpus/corpus.json` in it; give --corpus a folder that \
                 --corpus-only has written",
                folder.display()
            )));
        }
    }
    let program = write_program(&work)?;
    probe(&program)?;
    let model = fetch::resolve(args.model.model.as_deref(), cache)?;
    let tokenizer = write_tokenizer(&model, &work)?;
    let arguments = arguments(args, &model, tokenizer.as_deref(), &program)?;
    write(&work.join("started"), "a run of `yggc distill` began here\n")?;
    train(&program, &arguments)?;
    output::text(format_args!("{}\n", args.output.display()))
}

/// The corpus of a run in `output`.
fn corpus_of(output: &Path) -> PathBuf {
    output.join("work").join("corpus")
}

/// Writes the modules of the program, its requirements and the shipped prompts; returns their folder.
fn write_program(work: &Path) -> Result<PathBuf, DistillError> {
    let program = work.join("program");
    let package = program.join(DISTILL_PACKAGE);
    fs::create_dir_all(&package).map_err(at("create", &package))?;
    for (name, text) in DISTILL_MODULES {
        write(&package.join(name), text)?;
    }
    write(&requirements(&program), DISTILL_REQUIREMENTS)?;
    write(&program.join("prompts.jsonl"), SHIPPED_PROMPTS)?;
    Ok(program)
}

/// Writes the tokenizer of a GGUF file into a folder as the program reads it; folders have their own.
fn write_tokenizer(model: &Path, work: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some([tokenizer, config]) = tokenizer_files(&Model::open(model)?)? else { return Ok(None) };
    let folder = work.join("tokenizer");
    fs::create_dir_all(&folder).map_err(at("create", &folder))?;
    write(&folder.join("tokenizer.json"), &tokenizer)?;
    write(&folder.join("tokenizer_config.json"), &config)?;
    Ok(Some(folder))
}

fn requirements(program: &Path) -> PathBuf {
    program.join("requirements.txt")
}

fn write(path: &Path, text: &str) -> Result<(), DistillError> {
    fs::write(path, text).map_err(at("write", path))
}

fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DistillError {
    let path = path.display().to_string();
    move |error| DistillError::Folder { what, path, error }
}

/// Refuses a Python that lacks a package, with the command that installs it.
fn probe(program: &Path) -> Result<(), DistillError> {
    let install = format!("python3 -m pip install -r {}", requirements(program).display());
    let asked =
        Command::new("python3").args(["-c", PROBE]).args(distill_packages()).stdin(Stdio::null()).output();
    let output = match asked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DistillError::NoPython { install });
        }
        Err(error) => return Err(DistillError::Start(error)),
        Ok(output) => output,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let mut words = said.split_whitespace().map(str::to_owned);
    let found = words.next().filter(|_| output.status.success());
    let version = found.as_deref().and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    let (Some(found), Some(version)) = (found, version) else {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(DistillError::StrangePython {
            said: if complaint.trim().is_empty() { said.into_owned() } else { complaint },
        });
    };
    if version < DISTILL_PYTHON {
        return Err(DistillError::OldPython { found, install });
    }
    let missing: Vec<String> = words.collect();
    if missing.is_empty() { Ok(()) } else { Err(DistillError::NoPackages { missing, install }) }
}

/// The program's arguments. It runs in a folder of its own, so paths are absolute.
fn arguments(
    args: &DistillArgs,
    model: &Path,
    tokenizer: Option<&Path>,
    program: &Path,
) -> Result<Vec<OsString>, DistillError> {
    let absolute = |path: &Path| fs::canonicalize(path).map(OsString::from).map_err(at("find", path));
    let mut given: Vec<OsString> = Vec::new();
    if let Some(threads) = args.threads {
        given.extend(["--threads".into(), threads.to_string().into()]);
    }
    let output = absolute(&args.output)?;
    if args.corpus_only {
        given.extend(["generate".into(), "--corpus".into(), corpus_of(Path::new(&output)).into()]);
        given.extend(["--kind".into(), args.kind.name().into()]);
    } else {
        given.extend(["make".into(), "--output".into(), output]);
        given.extend(["--kind".into(), args.kind.name().into()]);
        let all_thrice = args.corpus.is_empty().then(|| args.tokens.saturating_mul(3));
        if let Some(seen) = args.seen.or(all_thrice) {
            given.extend(["--seen".into(), seen.to_string().into()]);
        }
    }
    given.extend(["--model".into(), absolute(model)?]);
    if let Some(tokenizer) = tokenizer {
        given.extend(["--tokenizer".into(), absolute(tokenizer)?]);
    }
    if args.corpus.is_empty() {
        given.extend(["--tokens".into(), args.tokens.to_string().into()]);
    }
    for folder in &args.corpus {
        given.extend(["--part".into(), absolute(&corpus_of(folder))?]);
    }
    given.extend(["--seed".into(), args.seed.to_string().into()]);
    for prompts in &args.prompts {
        given.extend(["--prompts".into(), absolute(prompts)?]);
    }
    // Profiles record these: a drafter that has learned their answers would be promised too much.
    let recorded = program.join("prompts.jsonl");
    for excluded in [&recorded].into_iter().chain(&args.exclude) {
        given.extend(["--exclude".into(), absolute(excluded)?]);
    }
    Ok(given)
}

/// Runs the program, passes its output to stderr line by line, and returns its last error message.
fn train(program: &Path, arguments: &[OsString]) -> Result<(), DistillError> {
    // Compiled modules hold times and paths, which would make folders of equal runs unequal.
    let mut child = Command::new("python3")
        .args(["-B", "-m", DISTILL_PACKAGE])
        .args(arguments)
        .current_dir(program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(DistillError::Start)?;
    let mut complaint = None;
    let mut last = String::new();
    for line in BufReader::new(child.stderr.take().expect("it is piped")).split(b'\n') {
        let line = line.map_err(DistillError::Start)?;
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix("error: ") {
            Some(said) => complaint = Some(said.to_owned()),
            None => output::remark(&line),
        }
        if !line.trim().is_empty() {
            last = line.into_owned();
        }
    }
    let status = child.wait().map_err(DistillError::Start)?;
    match (status.code(), complaint) {
        (Some(0), _) => Ok(()),
        (Some(3), Some(said)) => Err(DistillError::Refused { said }),
        (_, complaint) => Err(DistillError::Failed { status, said: complaint.unwrap_or(last) }),
    }
}
