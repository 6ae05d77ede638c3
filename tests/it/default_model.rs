//! Whole commands over the default model: few tokens, so that a build without optimisation has no long wait.

use std::fs;

use crate::{
    program::{default_model, yggc},
    tiny_commands::{json, keys},
};

#[test]
fn the_default_model_answers() {
    let mut command = yggc();
    command.arg("run").arg("-m").arg(default_model());
    let answer = json(command.args(["-p", "Name the capital of France.", "-n", "12", "--json", "--no-spec"]));
    let text = answer["text"].as_str().expect("text");
    assert!(text.contains("Paris"), "{text}");
    assert_eq!(answer["prompt_token_ids"][0], 1, "the chat template begins with <|im_start|>");
}

#[test]
fn the_default_model_finds_english_probable() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("text");
    let perplexity = |text: &str| {
        fs::write(&file, text).expect("writable");
        let mut command = yggc();
        command.arg("score").arg("-m").arg(default_model()).arg("--text-file").arg(&file).arg("--json");
        let score = json(&mut command);
        assert_eq!(keys(&score), ["mean_nll", "perplexity", "tokens"]);
        score["perplexity"].as_f64().expect("a number")
    };
    let english = perplexity("The quick brown fox jumps over the lazy dog.");
    let noise = perplexity("dog The lazy over brown quick the jumps fox.");
    assert!(english < 100.0 && noise > 4.0 * english, "{english} {noise}");
}
