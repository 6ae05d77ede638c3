//! The training program for drafters: Python sources embedded as text, which a binary writes to a folder and runs.

/// Name of the package, as `python3 -m` takes it.
pub const DISTILL_PACKAGE: &str = "distill";

/// Python packages that the program needs, in pip's format.
pub const DISTILL_REQUIREMENTS: &str = include_str!("../distill/requirements.txt");

/// Least version of Python that the program runs on.
pub const DISTILL_PYTHON: (u32, u32) = (3, 11);

macro_rules! modules {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../distill/", $name)))),*] };
}

/// The modules of the package: file names and texts.
pub const DISTILL_MODULES: &[(&str, &str)] = modules![
    "__init__.py",
    "__main__.py",
    "agreement.py",
    "card.py",
    "checkpoint.py",
    "commands.py",
    "corpus.py",
    "eagle3.py",
    "family.py",
    "generate.py",
    "gguf_file.py",
    "hidden.py",
    "initial.py",
    "layer.py",
    "llama.py",
    "loss.py",
    "overlap.py",
    "plain.py",
    "refusal.py",
    "rotation.py",
    "seed_words.py",
    "seeds.py",
    "train.py",
    "trim.py",
    "vocabulary.py",
];

/// The packages that [`DISTILL_REQUIREMENTS`] names, without their versions.
pub fn distill_packages() -> impl Iterator<Item = &'static str> {
    let lines = DISTILL_REQUIREMENTS.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split("==").next().unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_module_is_brought_along() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("distill");
        let mut found: Vec<String> = fs::read_dir(folder)
            .expect("the program is in the crate's folder")
            .map(|entry| entry.expect("listed").file_name().into_string().expect("UTF-8"))
            .filter(|name| name.ends_with(".py"))
            .collect();
        found.sort();
        let brought: Vec<&str> = DISTILL_MODULES.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, brought);
    }

    #[test]
    fn requirements_are_pinned() {
        let packages: Vec<&str> = distill_packages().collect();
        assert!(packages.contains(&"torch") && packages.len() >= 5, "{packages:?}");
        for line in DISTILL_REQUIREMENTS.lines().filter(|line| !line.starts_with('#')) {
            assert_eq!(line.split("==").count(), 2, "{line}");
        }
    }

    #[test]
    fn every_module_says_what_it_is_and_is_short() {
        for (name, text) in DISTILL_MODULES {
            assert!(text.starts_with("\"\"\""), "{name}: the first line must say what the file is");
            assert!(text.lines().count() <= 400, "{name} is too long");
        }
    }
}
