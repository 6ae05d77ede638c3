//! The pip client as a child process that downloads one wheel.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use crate::cli::{cache::CacheError, fetch::FetchError};

/// Runs pip, without input, below a thread that ends the process when the input that it was started with ends: that is
/// when this program has ended, however it did.
const WATCHED_PIP: &str = "\
import os, runpy, sys, threading
started_with = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
def watch():
    while os.read(started_with, 1):
        pass
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
sys.argv[0] = 'pip'
runpy.run_module('pip', run_name='__main__', alter_sys=True)
";

/// What is said where there is no pip: by Python, and by what stands for Python on a Windows that has none.
const NO_PIP: [&str; 2] = ["No module named pip", "Python was not found"];

/// Interval of progress updates.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How to start pip.
#[derive(Debug, Clone)]
pub(super) struct Pip {
    program: OsString,
    first_args: Vec<OsString>,
}

impl Pip {
    /// The pip of the shell's `python3`.
    pub(super) fn of_path() -> Self {
        Self::new("python3", ["-c", WATCHED_PIP])
    }

    pub(super) fn new(
        program: impl Into<OsString>,
        first_args: impl IntoIterator<Item: Into<OsString>>,
    ) -> Self {
        Self { program: program.into(), first_args: first_args.into_iter().map(Into::into).collect() }
    }

    /// Downloads the wheel of `requirement` into the folder `work` (an absolute path) and returns its path, or nothing
    /// where there is no pip. `on_bytes` is called with the bytes downloaded so far.
    ///
    /// Uses the user's pip settings and index. Accepts only wheels, so no code of the package runs.
    pub(super) fn download(
        &self,
        requirement: &'static str,
        work: &Path,
        on_bytes: impl Fn(u64),
    ) -> Result<Option<PathBuf>, FetchError> {
        let [wheels, temporary] = ["wheel", "tmp"].map(|name| work.join(name));
        for folder in [&wheels, &temporary] {
            fs::create_dir_all(folder).map_err(CacheError::at("create", folder))?;
        }
        let log_path = work.join("pip.log");
        let log = fs::File::create(&log_path).map_err(CacheError::at("create", &log_path))?;
        let log_copy = log.try_clone().map_err(CacheError::at("open", &log_path))?;

        let started = Command::new(&self.program)
            .args(&self.first_args)
            .args(["download", "--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir"])
            .args(["--disable-pip-version-check", "--progress-bar", "off", "--retries", "2", "--dest"])
            .arg(&wheels)
            .arg(requirement)
            // Python would run a file called pip.py from the folder it is started in.
            .current_dir(&temporary)
            .env("TMPDIR", &temporary)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(log_copy)
            .spawn();
        let failed = |error: io::Error| FetchError::PipFailed { requirement, last_words: error.to_string() };
        let mut child = match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            started => started.map_err(failed)?,
        };
        let status = wait(&mut child, || on_bytes(bytes_in(work))).map_err(failed)?;

        if !status.success() {
            let output = fs::read(&log_path).map_err(CacheError::at("read", &log_path))?;
            let output = String::from_utf8_lossy(&output);
            return if NO_PIP.iter().any(|words| output.contains(words)) {
                Ok(None)
            } else {
                Err(failure(requirement, &output, status))
            };
        }
        only_wheel(requirement, &wheels).map(Some)
    }
}

/// Waits for the child to end, calling `meanwhile` at intervals.
fn wait(child: &mut Child, meanwhile: impl Fn()) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        meanwhile();
        thread::sleep(LOOK_EVERY);
    }
}

fn failure(requirement: &'static str, output: &str, status: ExitStatus) -> FetchError {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last_words = match &lines[lines.len().saturating_sub(3)..] {
        [] => status.to_string(),
        last => last.join(" / "),
    };
    FetchError::PipFailed { requirement, last_words }
}

fn only_wheel(requirement: &'static str, folder: &Path) -> Result<PathBuf, FetchError> {
    let mut wheels = Vec::new();
    for entry in fs::read_dir(folder).map_err(CacheError::at("list", folder))? {
        let path = entry.map_err(CacheError::at("list", folder))?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            wheels.push(path);
        }
    }
    match wheels.len() {
        1 => Ok(wheels.remove(0)),
        found => Err(FetchError::NoWheel { requirement, found }),
    }
}

/// Bytes of all files under a folder. Files come and go while pip works, so unreadable ones count as empty.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
            _ => 0,
        })
        .sum()
}
