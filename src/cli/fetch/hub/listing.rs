//! Which files of a repository are a model.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use yggc::{model::gguf::part_names, storage::json_fault};

use super::{HubError, HubName, name::is_inside};
use crate::cli::fetch::Part;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
/// Optional files of a folder: the chat template and the tokens that end an answer.
const OPTIONAL: [&str; 3] = ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Files that an error lists at most.
const LISTED: usize = 12;

/// What a model is made of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// A folder of safetensors, and its index if the weights are in shards.
    Folder { files: Vec<String>, index: Option<String> },
    /// A GGUF file, or all parts of one, the first of them first.
    Gguf(Vec<String>),
}

impl Choice {
    /// Its files, but for the shards that an index names.
    pub(super) fn files(&self) -> Vec<String> {
        match self {
            Self::Folder { files, .. } => files.clone(),
            Self::Gguf(parts) => parts.clone(),
        }
    }
}

/// The one model that is among `listed` files: a folder of safetensors, else the one GGUF file, which may be in parts.
///
/// # Errors
/// If there is none, or there are several GGUF files to choose from.
pub(super) fn choose(name: &HubName, listed: &[&str], part: Part) -> Result<Choice, HubError> {
    let has = |file: &str| listed.contains(&file);
    if let Some(file) = &name.file {
        let chosen = parts(file, has).map(Choice::Gguf);
        return chosen.map_err(|missing| no_file(name, &missing, listed));
    }
    let weights = [WEIGHTS, INDEX].into_iter().find(|file| has(file));
    let tokenizer = match part {
        Part::Verifier => [TOKENIZER].into_iter().find(|file| has(file)),
        // A hidden-state drafter shares its verifier's.
        Part::Drafter => Some(TOKENIZER),
    };
    if let (true, Some(tokenizer), Some(weights)) = (has(CONFIG), tokenizer, weights) {
        // The weights last: they take longest.
        let others = [CONFIG, tokenizer].into_iter().chain(OPTIONAL).filter(|file| has(file));
        let files = others.chain([weights]).map(str::to_owned).collect();
        return Ok(Choice::Folder { files, index: (weights == INDEX).then(|| weights.to_owned()) });
    }
    match &gguf_files(listed)[..] {
        [] => Err(HubError::NoModel { repository: name.repository(), found: some_of(listed) }),
        [only] => parts(only, has).map(Choice::Gguf).map_err(|missing| no_file(name, &missing, listed)),
        several => Err(HubError::Several { repository: name.repository(), names: names_of(name, several) }),
    }
}

/// Why a named file cannot be had.
pub(super) fn no_file(name: &HubName, file: &str, listed: &[&str]) -> HubError {
    let there_are = match &gguf_files(listed)[..] {
        [] => format!("it has no whole .gguf model, but {}", some_of(listed)),
        some => format!("it has {}", names_of(name, some)),
    };
    HubError::NoFile { repository: name.repository(), file: file.to_owned(), there_are }
}

/// The first part of the GGUF model that `file` is a part of; `file` itself if the model is in one file.
pub(super) fn first_part(file: &str) -> String {
    part_names(file).and_then(|mut names| names.next()).unwrap_or_else(|| file.to_owned())
}

/// All parts of the GGUF model whose first part is `file`, in order; a missing part is an error.
pub(super) fn parts(file: &str, is_there: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let check = |part: String| if is_there(&part) { Ok(part) } else { Err(part) };
    match part_names(file) {
        Some(names) => names.map(check).collect(),
        None => check(file.to_owned()).map(|file| vec![file]),
    }
}

/// GGUF models that are whole: single files, and first parts of those whose parts are all listed.
fn gguf_files<'a>(listed: &[&'a str]) -> Vec<&'a str> {
    let is_whole =
        |file: &&str| first_part(file) == **file && parts(file, |part| listed.contains(&part)).is_ok();
    let ggufs = listed.iter().copied().filter(|file| file.ends_with(".gguf") && is_inside(file));
    ggufs.filter(is_whole).collect()
}

fn names_of(name: &HubName, files: &[&str]) -> String {
    some(files.iter().map(|file| name.of_file(file).to_string()))
}

fn some_of(listed: &[&str]) -> String {
    if listed.is_empty() { "nothing".to_owned() } else { some(listed.iter().map(|file| (*file).to_owned())) }
}

fn some(files: impl ExactSizeIterator<Item = String>) -> String {
    let count = files.len();
    let mut text = files.take(LISTED).collect::<Vec<_>>().join(", ");
    if count > LISTED {
        text.push_str(&format!(" and {} more", count - LISTED));
    }
    text
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The shards that an index names.
///
/// # Errors
/// If it is no index, or names a file outside the repository.
pub(super) fn shards(name: &HubName, index: &[u8]) -> Result<Vec<String>, HubError> {
    let damaged = |why: String| HubError::Index { repository: name.repository(), why };
    let index: Index =
        serde_json::from_slice(index).map_err(|error| damaged(format!("it has {}", json_fault(&error))))?;
    let files: BTreeSet<String> = index.weight_map.into_values().collect();
    match files.iter().find(|file| !is_inside(file)) {
        Some(outside) => {
            Err(damaged(format!("it names `{outside}`, which is no path inside the repository")))
        }
        None => Ok(files.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(typed: &str) -> HubName {
        HubName::parse(typed).unwrap().unwrap()
    }

    fn chosen(listed: &[&str], part: Part) -> Result<Choice, String> {
        choose(&name("hf:a/b"), listed, part).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_is_taken_before_a_file_and_its_weights_come_last() {
        let listed = ["README.md", "b.gguf", WEIGHTS, "tokenizer_config.json", TOKENIZER, CONFIG];
        let files = [CONFIG, TOKENIZER, "tokenizer_config.json", WEIGHTS].map(str::to_owned).to_vec();
        assert_eq!(chosen(&listed, Part::Verifier), Ok(Choice::Folder { files, index: None }));
        let files = [CONFIG, TOKENIZER, INDEX].map(str::to_owned).to_vec();
        let expected = Choice::Folder { files, index: Some(INDEX.to_owned()) };
        assert_eq!(chosen(&[CONFIG, TOKENIZER, INDEX, "x.safetensors"], Part::Verifier), Ok(expected));
        assert_eq!(chosen(&["a.txt", "b.gguf"], Part::Verifier), Ok(Choice::Gguf(vec!["b.gguf".to_owned()])));
    }

    #[test]
    fn parts_are_one_model_and_taken_together() {
        let parts = ["q/m-00001-of-00002.gguf", "q/m-00002-of-00002.gguf"];
        let all = Choice::Gguf(parts.map(str::to_owned).to_vec());
        assert_eq!(chosen(&[parts[1], parts[0], "m-00001-of-00003.gguf"], Part::Verifier), Ok(all));
        let error = chosen(&[parts[0], parts[1], "b.gguf"], Part::Verifier).unwrap_err();
        assert!(error.contains("hf:a/b/q/m-00001-of-00002.gguf, hf:a/b/b.gguf"), "{error}");
        let error = chosen(&parts[..1], Part::Verifier).unwrap_err();
        assert!(error.contains(parts[0]) && error.contains("all parts"), "{error}");
        let named = name("hf:a/b/q/m-00001-of-00002.gguf");
        let error = choose(&named, &parts[..1], Part::Verifier).unwrap_err().to_string();
        assert!(error.contains("no file `q/m-00002-of-00002.gguf`"), "{error}");
        let endless = format!("m-00001-of-{}.gguf", u64::MAX);
        assert!(chosen(&[&endless], Part::Verifier).is_err());
    }

    #[test]
    fn a_drafter_may_do_without_a_tokenizer() {
        let files = [CONFIG, WEIGHTS].map(str::to_owned).to_vec();
        let folder = Choice::Folder { files, index: None };
        assert_eq!(chosen(&[CONFIG, WEIGHTS], Part::Drafter), Ok(folder));
        assert!(chosen(&[CONFIG, WEIGHTS], Part::Verifier).unwrap_err().contains("tokenizer.json"));
    }

    #[test]
    fn what_cannot_be_chosen_is_listed() {
        let error = chosen(&["b/q4.gguf", "q8.gguf"], Part::Verifier).unwrap_err();
        assert!(error.contains("hf:a/b/b/q4.gguf, hf:a/b/q8.gguf"), "{error}");
        let error = chosen(&[], Part::Verifier).unwrap_err();
        assert!(error.contains("nothing"), "{error}");
        let many: Vec<String> = (0..20).map(|n| format!("{n}.bin")).collect();
        let error = chosen(&many.iter().map(String::as_str).collect::<Vec<_>>(), Part::Verifier).unwrap_err();
        assert!(error.contains("11.bin and 8 more") && !error.contains("12.bin"), "{error}");
        let error = choose(&name("hf:a/b/c.gguf"), &["d.gguf"], Part::Verifier).unwrap_err().to_string();
        assert!(error.contains("`c.gguf`") && error.contains("hf:a/b/d.gguf"), "{error}");
    }

    #[test]
    fn an_index_names_files_inside_the_repository() {
        let read = |text: &str| shards(&name("hf:a/b"), text.as_bytes()).map_err(|error| error.to_string());
        let index = r#"{"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}"#;
        assert_eq!(read(index).unwrap(), ["a.safetensors", "b.safetensors"]);
        for (bad, why) in
            [("{", "breaks off"), ("{}", "weight_map"), (r#"{"weight_map": {"x": "../y"}}"#, "`../y`")]
        {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
