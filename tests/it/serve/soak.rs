//! The soak of `benches/soak.py`, for some seconds over a tiny model.

use std::{path::Path, process::Command};

use crate::{
    program::success,
    tiny_commands::{drafting_plan, model},
};

#[test]
fn clients_of_every_kind_at_once_get_their_own_answers_and_leave_nothing() {
    let mut soak = Command::new("python3");
    soak.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/soak.py"));
    soak.args([
        "--yggc",
        env!("CARGO_BIN_EXE_yggc"),
        "--seconds",
        "20",
        "--tokens",
        "16",
        "--alone",
        "1",
        "--",
        "-m",
    ]);
    soak.arg(model()).args(["--threads", "1", "--isa", "portable", "--plan"]).arg(drafting_plan());
    let output = soak.env_remove("YGGC_API_KEY").output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let summary: serde_json::Value = serde_json::from_str(&success(&output)).expect("one JSON value");
    assert_eq!(summary["wrong"], serde_json::json!([]));
    let answered = summary["counts"]["answered: streams"].as_u64();
    assert!(answered.is_some_and(|count| count >= 5), "{summary}");
}
