//! Names of models of the hub: `hf:OWNER/REPO` and `hf:OWNER/REPO/FILE.gguf`.

use std::fmt;

use super::HubError;

/// A repository of the hub, and a file of it if one was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubName {
    owner: String,
    repo: String,
    /// Path in the repository.
    pub(super) file: Option<String>,
}

impl HubName {
    const PREFIX: &str = "hf:";

    /// Parses a name of the hub; `None` if it is not one.
    pub(crate) fn parse(typed: &str) -> Option<Result<Self, HubError>> {
        let path = typed.strip_prefix(Self::PREFIX)?;
        let refused = |why| HubError::Name { typed: typed.to_owned(), why };
        Some(Self::of_path(path).map_err(refused))
    }

    fn of_path(path: &str) -> Result<Self, &'static str> {
        let (owner, rest) = path.split_once('/').ok_or("it has no `/` between an owner and a repository")?;
        let (repo, file) = rest.split_once('/').map_or((rest, None), |(repo, file)| (repo, Some(file)));
        if ![owner, repo].into_iter().all(is_plain) {
            return Err("owner and repository consist of letters, digits, `-`, `_` and `.`");
        }
        if let Some(file) = file {
            if !file.ends_with(".gguf") {
                return Err("a file that is named must be a .gguf; leave it out for a folder of safetensors");
            }
            if !is_inside(file) {
                return Err("it is no path inside a repository");
            }
        }
        Ok(Self { owner: owner.to_owned(), repo: repo.to_owned(), file: file.map(str::to_owned) })
    }

    /// Owner and repository.
    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.owner, &self.repo)
    }

    /// `OWNER/REPO`.
    pub(super) fn repository(&self) -> String {
        format!("{}/{}", self.owner, self.repo)
    }

    /// The name of a file of this repository.
    pub(super) fn of_file(&self, file: &str) -> Self {
        Self { file: Some(file.to_owned()), ..self.clone() }
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", Self::PREFIX, self.owner, self.repo)?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, "/{file}"))
    }
}

/// The hub's rule for owners and repositories, which also makes them safe folder names.
fn is_plain(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.chars().all(is_known)
        && !name.starts_with(['-', '.'])
        && !["--", ".."].into_iter().any(|pair| name.contains(pair))
}

/// Whether a path stays inside its folder and needs no escaping in a URL.
pub(super) fn is_inside(path: &str) -> bool {
    let means_something =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#' | '%' | '\\');
    !path.contains(means_something) && path.split('/').all(|step| !matches!(step, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for typed in ["hf:a/b", "hf:HuggingFaceTB/SmolLM2-135M-Instruct", "hf:a-1/b_2.c/sub/model.Q4_0.gguf"]
        {
            let name = HubName::parse(typed).unwrap().unwrap();
            assert_eq!(name.to_string(), typed);
        }
        let name = HubName::parse("hf:a/b/c/d.gguf").unwrap().unwrap();
        assert_eq!((name.parts(), name.file.as_deref()), (("a", "b"), Some("c/d.gguf")));
        assert_eq!(
            (name.repository(), name.of_file("e.gguf").to_string()),
            ("a/b".into(), "hf:a/b/e.gguf".into())
        );
    }

    #[test]
    fn what_names_no_model_is_refused_with_what_was_expected() {
        for (typed, why) in [
            ("hf:", "no `/`"),
            ("hf:gpt2", "no `/`"),
            ("hf:/b", "letters"),
            ("hf:a/", "letters"),
            ("hf:a/..", "letters"),
            ("hf:../b", "letters"),
            ("hf:a--b/c", "letters"),
            ("hf:a/b c", "letters"),
            ("hf:a/b/", "must be a .gguf"),
            ("hf:a/b/model.safetensors", "must be a .gguf"),
            ("hf:a/b/../../c.gguf", "no path inside"),
            ("hf:a/b//c.gguf", "no path inside"),
            ("hf:a/b/c?d.gguf", "no path inside"),
            ("hf:a/b/c%2f.gguf", "no path inside"),
        ] {
            let error = HubName::parse(typed).unwrap().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("hf:OWNER/REPO"), "{typed}: {error}");
        }
        for path in ["model.gguf", "./hf:a/b", "smollm2-135m-instruct", ""] {
            assert!(HubName::parse(path).is_none(), "{path}");
        }
    }
}
