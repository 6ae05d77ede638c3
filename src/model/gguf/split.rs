//! Models in several GGUF files, as llama.cpp's `gguf-split` writes them.
//!
//! Part `n` of `N` is called `NAME-0000n-of-0000N.gguf` and says `split.no` (`n - 1`), `split.count` (`N`) and
//! `split.tensors.count` (those of all parts). The first part has the model's metadata; each has some of the tensors.

use std::path::{Path, PathBuf};

use super::{GgufFile, MAGIC, parse};
use crate::{
    model::{ModelError, config::Fields},
    storage::MappedFile,
};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Digits of a number in the name of a part.
const DIGITS: usize = 5;

/// One file of a model.
pub(super) struct Opened {
    path: PathBuf,
    pub(super) map: MappedFile,
    pub(super) file: GgufFile,
}

/// The files of the model that `map` is, or is a part of, in order.
pub(super) fn all_of(path: &Path, map: MappedFile) -> Result<Vec<Opened>, ModelError> {
    let opened = Opened::new(path.to_owned(), map)?;
    let Some(count) = opened.count()? else { return Ok(vec![opened]) };
    let number = opened.number(count)?;
    let name = opened.stem(number, count)?;
    let mut opened = Some(opened);
    let mut parts = Vec::new();
    for i in 0..count {
        let part = match opened.take_if(|_| i == number) {
            Some(opened) => opened,
            None => Opened::part(path.with_file_name(part_name(&name, i, count)), i, count)?,
        };
        parts.push(part);
    }
    check_tensors(&parts)?;
    Ok(parts)
}

/// What a model is called that says no name: its file's name, without the numbers of a part.
pub(super) fn model_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    numbers_of(&stem).map_or(&*stem, |(name, ..)| name).to_owned()
}

impl Opened {
    fn new(path: PathBuf, map: MappedFile) -> Result<Self, ModelError> {
        let file = parse(map.bytes()).map_err(|error| error.in_file(&path))?;
        Ok(Self { path, map, file })
    }

    /// Opens a part other than the given one.
    fn part(path: PathBuf, number: usize, count: usize) -> Result<Self, ModelError> {
        let what = || format!("part {} of {count} of the model", number + 1);
        let expected = format!("`{}`", path.display());
        if !path.exists() {
            let found =
                "no such file; put all parts into one folder, under the names that they were published with";
            return Err(ModelError::invalid(what(), expected, found));
        }
        let map = MappedFile::open(&path)?;
        if !map.bytes().starts_with(MAGIC) {
            return Err(ModelError::invalid(
                what(),
                format_args!("a GGUF file at {expected}"),
                "something else",
            ));
        }
        let part = Self::new(path, map)?;
        let found = part.count()?.unwrap_or(1);
        if found != count {
            let found = format!("{found}; the files are parts of different models: get all parts again");
            return Err(ModelError::invalid(format_args!("key `{COUNT}`"), count, found).in_file(&part.path));
        }
        let found = part.number(count)?;
        if found != number {
            let found = format!("{found}; give the part the name that it was published with");
            return Err(
                ModelError::invalid(format_args!("key `{NUMBER}`"), number, found).in_file(&part.path)
            );
        }
        Ok(part)
    }

    fn key(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.file.count(key).map_err(|error| error.in_file(&self.path))
    }

    /// Parts of the model; `None` if it is in one file.
    fn count(&self) -> Result<Option<usize>, ModelError> {
        Ok(self.key(COUNT)?.filter(|count| *count > 1))
    }

    /// This part's number, from 0.
    fn number(&self, count: usize) -> Result<usize, ModelError> {
        let what = format_args!("key `{NUMBER}`");
        match self.key(NUMBER)? {
            Some(number) if number < count => Ok(number),
            Some(number) => {
                let expected = format!("a number below the {count} of `{COUNT}`");
                Err(ModelError::invalid(what, expected, number).in_file(&self.path))
            }
            None => Err(ModelError::MissingKey { key: NUMBER.to_owned(), expected: "the part's number" }
                .in_file(&self.path)),
        }
    }

    /// What the names of all parts begin with.
    fn stem(&self, number: usize, count: usize) -> Result<String, ModelError> {
        let found = self.path.file_name().unwrap_or_default().to_string_lossy();
        let numbers = found.strip_suffix(".gguf").and_then(numbers_of);
        match numbers {
            Some((name, n, of)) if (n, of) == (number + 1, count) => Ok(name.to_owned()),
            Some(_) | None => {
                let expected = format!("`{}`, as its metadata says", part_name("NAME", number, count));
                let found = format!("`{found}`; give all parts the names that they were published with");
                Err(ModelError::invalid("name of a part of a model", expected, found).in_file(&self.path))
            }
        }
    }
}

/// The names of all parts of the model that a file called `name` is a part of, the first part first; `None` if the name
/// is no part's.
///
/// ```
/// let mut names = yggc::model::gguf::part_names("m-00002-of-00002.gguf").expect("a part's name");
/// assert_eq!(names.next().as_deref(), Some("m-00001-of-00002.gguf"));
/// assert!(yggc::model::gguf::part_names("m.gguf").is_none());
/// ```
pub fn part_names(name: &str) -> Option<impl Iterator<Item = String>> {
    let (stem, number, count) = numbers_of(name.strip_suffix(".gguf")?)?;
    (1..=count).contains(&number).then(|| (0..count).map(move |i| part_name(stem, i, count)))
}

fn part_name(name: &str, number: usize, count: usize) -> String {
    format!("{name}-{:0DIGITS$}-of-{count:0DIGITS$}.gguf", number + 1)
}

/// Takes `NAME-00001-of-00003` apart.
fn numbers_of(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(number) && is_number(count)).then_some((name, number.parse().ok()?, count.parse().ok()?))
}

/// Every tensor is in one part, and all are there.
fn check_tensors(parts: &[Opened]) -> Result<(), ModelError> {
    for (i, part) in parts.iter().enumerate() {
        for (name, before) in
            part.file.tensors.keys().flat_map(|name| parts[..i].iter().map(move |p| (name, p)))
        {
            if before.file.tensors.contains_key(name) {
                let found = format!("a second one in `{}`; get all parts again", before.path.display());
                let what = format!("tensor `{name}`");
                return Err(ModelError::invalid(what, "one entry in all parts", found).in_file(&part.path));
            }
        }
    }
    let found = parts.iter().map(|part| part.file.tensors.len()).sum::<usize>();
    let Some(first) = parts.first() else { return Ok(()) };
    match first.key(TENSORS)? {
        Some(count) if count != found => {
            let found = format!("{found} in all {} parts; get all parts again", parts.len());
            Err(ModelError::invalid(format_args!("key `{TENSORS}`"), format_args!("{count} tensors"), found)
                .in_file(&first.path))
        }
        Some(_) | None => Ok(()),
    }
}
