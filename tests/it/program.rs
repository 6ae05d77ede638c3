//! The built `yggc` program as the tests start it, and the default model that they run.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

/// The program, to be given arguments. It keeps no prefixes on disk unless it is told to: programs of one cache folder
/// would find those of others, and one of them says that the file is in use.
pub(crate) fn yggc() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yggc"));
    command.env("YGG_PREFIX_DISK", "off");
    command
}

/// The default model, in the user's own cache. Fetched by the first test on this machine that asks; the lock of the
/// cache makes other test programs wait for it.
pub(crate) fn default_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let output = yggc().args(["fetch", "smollm2-135m-instruct"]).output().expect("yggc starts");
        PathBuf::from(success(&output).trim_end())
    })
}

/// Runs a command with text on its standard input.
pub(crate) fn with_input(command: &mut Command, text: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("yggc starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// The stdout of a run that ended well.
#[track_caller]
pub(crate) fn success(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).expect("stdout is UTF-8")
}

/// The stderr of a run that ended with `code` and said nothing on stdout.
#[track_caller]
pub(crate) fn failure(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("stderr is UTF-8");
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "a failed command wrote to stdout");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}
