//! Prompts that traces are recorded on: the shipped set, or the user's own file.

use std::path::Path;

use serde::Deserialize;

use crate::{
    engine::{Error, Loaded, Message, Prompt, Role},
    storage::json_fault,
};

/// The shipped set: JSON lines with `id`, `kind` and `text`.
pub const SHIPPED_PROMPTS: &str = include_str!("../../plans/calibration/prompts.jsonl");

/// One prompt, to be asked as a user's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationPrompt {
    /// What kind of task it is.
    pub kind: String,
    /// The message.
    pub text: String,
}

impl CalibrationPrompt {
    /// Its token ids: asked as a user, or raw where the model has no chat template.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` when the model's chat template is broken or refuses.
    pub fn token_ids(&self, loaded: &Loaded) -> Result<Vec<u32>, Error> {
        let asked = match loaded.chat_template()? {
            Some(_) => Prompt::chat(vec![Message::new(Role::User, self.text.as_str())]),
            None => Prompt::Raw(self.text.clone()),
        };
        asked.token_ids(loaded)
    }
}

/// One line of a prompt file: our own form, or Spec-Bench's.
#[derive(Deserialize)]
struct Line {
    #[serde(alias = "category")]
    kind: Option<String>,
    #[serde(alias = "prompt", alias = "question")]
    text: Option<String>,
    turns: Option<Vec<String>>,
}

/// The prompts shipped with the project: about 200 of mixed kinds and lengths.
///
/// # Panics
/// If the shipped file is broken, which a test excludes.
pub fn calibration_prompts() -> Vec<CalibrationPrompt> {
    parse(SHIPPED_PROMPTS, "the shipped calibration set").expect("the shipped prompts are well formed")
}

/// Reads a JSONL file of `{"kind", "text"}` lines; `{"category", "turns"}` (first turn), `{"prompt"}` and
/// `{"question"}` are understood too.
///
/// # Errors
/// [`Error`] of kind `Input` naming file and line.
pub fn read_prompts(path: &Path) -> Result<Vec<CalibrationPrompt>, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::input(format!(
            "cannot read the prompts `{}`: {e}; expected a UTF-8 JSONL file",
            path.display()
        ))
    })?;
    parse(&text, &path.display().to_string())
}

fn parse(text: &str, name: &str) -> Result<Vec<CalibrationPrompt>, Error> {
    let mut prompts = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let refused = |found: String| {
            Error::input(format!(
                "{name}, line {}: expected a JSON object with `text` (or `prompt`, `question`, `turns`), found {found}",
                number + 1
            ))
        };
        let line: Line = serde_json::from_str(line).map_err(|e| refused(json_fault(&e)))?;
        let text = line.text.or_else(|| line.turns.and_then(|t| t.into_iter().next()));
        let text = text.filter(|t| !t.trim().is_empty()).ok_or_else(|| refused("none of them".to_owned()))?;
        prompts.push(CalibrationPrompt { kind: line.kind.unwrap_or_else(|| "prompt".to_owned()), text });
    }
    if prompts.is_empty() {
        return Err(Error::input(format!("{name}: expected at least one prompt, found none")));
    }
    Ok(prompts)
}

/// The prompts in an order that takes one of each kind in turn, so that a part of them is mixed too.
pub(crate) fn interleaved(prompts: &[CalibrationPrompt]) -> Vec<&CalibrationPrompt> {
    let mut kinds: Vec<&str> = Vec::new();
    for prompt in prompts {
        if !kinds.contains(&prompt.kind.as_str()) {
            kinds.push(&prompt.kind);
        }
    }
    let mut ranked: Vec<(usize, usize, &CalibrationPrompt)> = Vec::with_capacity(prompts.len());
    let mut seen = vec![0; kinds.len()];
    for prompt in prompts {
        let kind = kinds.iter().position(|k| *k == prompt.kind).expect("collected above");
        ranked.push((seen[kind], kind, prompt));
        seen[kind] += 1;
    }
    ranked.sort_by_key(|(round, kind, _)| (*round, *kind));
    ranked.into_iter().map(|(_, _, prompt)| prompt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_set_is_mixed_and_any_beginning_of_it_too() {
        let prompts = calibration_prompts();
        assert!((180..=220).contains(&prompts.len()));
        let mut kinds: Vec<_> = prompts.iter().map(|p| p.kind.clone()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert!(kinds.len() >= 6, "{kinds:?}");
        let order = interleaved(&prompts);
        assert_eq!(order.len(), prompts.len());
        let mut first: Vec<_> = order[..kinds.len()].iter().map(|p| p.kind.clone()).collect();
        first.sort_unstable();
        assert_eq!(first, kinds);
    }

    #[test]
    fn other_forms_are_read_and_broken_lines_named() {
        let text = "{\"category\": \"qa\", \"turns\": [\"a\", \"b\"]}\n\n{\"prompt\": \"c\"}\n";
        let prompts = parse(text, "x").unwrap();
        assert_eq!((prompts[0].text.as_str(), prompts[1].text.as_str()), ("a", "c"));
        for bad in ["{}", "[1]", "{\"text\": \"\"}", "nonsense"] {
            let error = parse(&format!("{{\"text\": \"ok\"}}\n{bad}"), "x").unwrap_err().to_string();
            assert!(error.contains("line 2"), "{error}");
        }
        assert!(parse("\n", "x").is_err());
    }
}
