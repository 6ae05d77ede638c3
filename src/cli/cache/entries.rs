//! Entries of the cache folder: listed, checked, removed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use yggc::{
    measure::profile_file,
    packed::{KeptFile, kept_files},
    plan,
    prefix::{PrefixFile, prefix_files},
};

use super::{CacheDir, CacheError, CachePlace, proof_path, sha256_of, take_lock};
use crate::cli::{
    args::EntryKind,
    error::Failure,
    fetch::{HubSettings, KNOWN_MODELS},
    kept_chat, output,
};

/// An entry, which is removed as a whole.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    /// Unique within its kind.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// When it was last written; of packed weights, last used. `None` where the file system does not say.
    pub(crate) last_used: Option<SystemTime>,
    /// A description for users.
    pub(crate) about: String,
    /// Its files and folders, the main one first.
    pub(crate) paths: Vec<PathBuf>,
    /// The file whose lock its writers hold, if they hold one.
    lock: Option<PathBuf>,
}

/// Everything in the cache, by kind and name.
///
/// # Errors
/// If there is no cache folder, or a part of it cannot be listed.
pub(crate) fn entries(place: &CachePlace) -> Result<Vec<Entry>, Failure> {
    let cache = place.dir()?;
    let mut entries = models(&cache)?;
    entries.extend(hub(&cache, place)?);
    entries.extend(packed(&cache)?);
    entries.extend(prefixes(&cache)?);
    entries.extend(plans(&cache)?);
    entries.extend(sessions(&cache)?);
    let folders = [
        (EntryKind::Kernels, "kernels", None),
        (EntryKind::Contents, "contents", None),
        (EntryKind::Partial, "partial", Some(cache.root.join("lock"))),
    ];
    for (kind, name, lock) in folders {
        let path = cache.root.join(name);
        if size_of(&path)? > 0 {
            entries.push(Entry::new(kind, name.to_owned(), String::new(), vec![path], lock)?);
        }
    }
    entries.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    Ok(entries)
}

impl Entry {
    fn new(
        kind: EntryKind,
        name: String,
        about: String,
        paths: Vec<PathBuf>,
        lock: Option<PathBuf>,
    ) -> Result<Self, CacheError> {
        let bytes = paths.iter().map(|path| size_of(path)).sum::<Result<u64, _>>()?;
        let last_used = fs::metadata(&paths[0]).and_then(|found| found.modified()).ok();
        Ok(Self { kind, name, bytes, last_used, about, paths, lock })
    }

    /// Whether the user means this entry by `typed`.
    pub(crate) fn is_called(&self, typed: &str) -> bool {
        self.name == typed || self.about == typed || self.paths.iter().any(|path| path == Path::new(typed))
    }

    /// Whether it is packed weights of the model at `path`.
    pub(crate) fn is_packed_from(&self, path: &Path) -> bool {
        self.kind == EntryKind::Packed
            && fs::canonicalize(path).is_ok_and(|path| self.about == path.display().to_string())
    }

    /// Removes it, after waiting for a process that writes entries of its kind.
    ///
    /// # Errors
    /// [`CacheError::Io`] if the system refuses.
    pub(crate) fn remove(&self) -> Result<(), CacheError> {
        let wait = || output::remark(format_args!("waiting for another yggc that is writing {}", self.name));
        let _lock = self.lock.as_deref().map(|lock| take_lock(lock, wait)).transpose()?;
        for path in &self.paths {
            let removed = match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(path),
                Ok(_) => fs::remove_file(path),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(CacheError::at("remove", path)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Reads it whole and returns what is wrong with it, if anything. Files of the hub and compiled kernels are not
    /// checked, since no digest of them was recorded.
    ///
    /// # Errors
    /// If a model cannot be read.
    pub(crate) fn check(&self) -> Result<Option<String>, CacheError> {
        let path = &self.paths[0];
        match self.kind {
            EntryKind::Model => {
                let expected = known(&self.name).map(|model| model.identity.sha256);
                let found = sha256_of(path)?;
                let differs = expected.filter(|expected| *expected != found);
                Ok(differs.map(|expected| format!("expected SHA-256 {expected}, found {found}")))
            }
            EntryKind::Packed => {
                let file = KeptFile { path: path.clone(), bytes: self.bytes, last_used: None, model: None };
                Ok(file.check().err())
            }
            EntryKind::Prefixes => {
                let file = PrefixFile { path: path.clone(), bytes: self.bytes, last_used: None, name: None };
                Ok(file.check().err())
            }
            EntryKind::Plan => {
                let of_file = |path: &PathBuf| match path.extension().and_then(|extension| extension.to_str())
                {
                    Some("plan") => plan::read(path).err().map(|error| error.to_string()),
                    Some("profile") => profile_file::read(path).err().map(|error| error.to_string()),
                    Some(_) | None => None,
                };
                Ok(self.paths.iter().find_map(of_file))
            }
            EntryKind::Session => Ok(kept_chat::turns(&self.paths[0]).err().map(|error| error.to_string())),
            EntryKind::Hub
            | EntryKind::Failure
            | EntryKind::Kernels
            | EntryKind::Contents
            | EntryKind::Partial => Ok(None),
        }
    }
}

fn known(name: &str) -> Option<&'static crate::cli::fetch::KnownModel> {
    KNOWN_MODELS.iter().find(|model| model.name == name)
}

fn models(cache: &CacheDir) -> Result<Vec<Entry>, CacheError> {
    let lock = cache.root.join("lock");
    let of_file = |path: PathBuf| {
        let file = file_name(&path);
        let known = KNOWN_MODELS.iter().find(|model| model.identity.file_name == file);
        let name = known.map_or(file, |model| model.name.to_owned());
        let (about, proof) = (path.display().to_string(), proof_path(&path));
        Entry::new(EntryKind::Model, name, about, vec![path, proof], Some(lock.clone()))
    };
    let files = listed(&cache.models())?.into_iter().filter(|path| !has_extension(path, "sha256"));
    files.map(of_file).collect()
}

/// Repositories that were fetched by name: the hub's folder of each, with the records of what it meant.
fn hub(cache: &CacheDir, place: &CachePlace) -> Result<Vec<Entry>, Failure> {
    let mut records = BTreeMap::<String, Vec<PathBuf>>::new();
    for path in listed(&cache.hub())? {
        let name = file_name(&path);
        let repository = name.strip_suffix(".json").unwrap_or(&name).to_owned();
        records.entry(repository).or_default().push(path);
    }
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let settings = HubSettings::new(&place.environment).map_err(crate::cli::fetch::FetchError::from)?;
    let of_repository = |(repository, records): (String, Vec<PathBuf>)| {
        let folder = format!("models--{repository}");
        let lock = settings.cache.join(".locks").join(&folder).join("yggc.lock");
        let files = settings.cache.join(folder);
        let (name, about) =
            (format!("hf:{}", repository.replacen("--", "/", 1)), files.display().to_string());
        let paths = std::iter::once(files).chain(records).collect();
        let lock = lock.exists().then_some(lock);
        Ok(Entry::new(EntryKind::Hub, name, about, paths, lock)?)
    };
    records.into_iter().map(of_repository).collect()
}

fn packed(cache: &CacheDir) -> Result<Vec<Entry>, CacheError> {
    let folder = cache.packed();
    let files = kept_files(&folder).map_err(CacheError::at("list", &folder))?;
    let of_file = |file: KeptFile| {
        let about = file.model.map_or_else(
            || "cannot be read by this version; packed again when its model is used".to_owned(),
            |model| model.display().to_string(),
        );
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Entry {
            kind: EntryKind::Packed,
            name,
            bytes: file.bytes,
            last_used: file.last_used,
            about,
            paths: vec![file.path],
            lock: Some(folder.join("lock")),
        }
    };
    Ok(files.into_iter().map(of_file).collect())
}

/// One entry for every file. Its own lock is held by whoever writes it.
fn prefixes(cache: &CacheDir) -> Result<Vec<Entry>, CacheError> {
    let folder = cache.prefixes();
    let files = prefix_files(&folder).map_err(CacheError::at("list", &folder))?;
    let of_file = |file: PrefixFile| {
        let about = file.name.unwrap_or_else(|| "cannot be read by this version; begun anew".to_owned());
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Entry {
            kind: EntryKind::Prefixes,
            name,
            bytes: file.bytes,
            last_used: file.last_used,
            about,
            lock: Some(file.path.clone()),
            paths: vec![file.path],
        }
    };
    Ok(files.into_iter().map(of_file).collect())
}

/// One entry for every key: its plan with the profile, or the reason why there is none.
fn plans(cache: &CacheDir) -> Result<Vec<Entry>, CacheError> {
    let folder = cache.plans();
    let mut by_key = BTreeMap::<String, Vec<PathBuf>>::new();
    for path in listed(&folder)? {
        if ["failure", "plan", "profile", "refined"].iter().any(|extension| has_extension(&path, extension)) {
            let key = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            by_key.entry(key).or_default().push(path);
        }
    }
    let of_key = |(name, mut paths): (String, Vec<PathBuf>)| {
        // The plan, else the failure, decides what the entry is.
        paths.sort_by_key(|path| (!has_extension(path, "plan"), !has_extension(path, "failure")));
        let is_failure = has_extension(&paths[0], "failure");
        let (kind, about) = if is_failure {
            let reason = fs::read_to_string(&paths[0]).unwrap_or_default();
            (EntryKind::Failure, reason.lines().next().unwrap_or_default().to_owned())
        } else {
            (EntryKind::Plan, about_plan(&paths[0]))
        };
        Entry::new(kind, name, about, paths, Some(folder.join("lock")))
    };
    by_key.into_iter().map(of_key).collect()
}

/// Conversations that go on.
fn sessions(cache: &CacheDir) -> Result<Vec<Entry>, CacheError> {
    let folder = cache.sessions();
    let of_file = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let lock = kept_chat::lock_of(&folder, &name);
        let about = match kept_chat::turns(&path) {
            Ok(turns) => format!("turns: {turns}"),
            Err(error) => format!("cannot be used: {error}"),
        };
        Entry::new(EntryKind::Session, name, about, vec![path, lock.clone()], Some(lock))
    };
    let files = listed(&folder)?.into_iter().filter(|path| has_extension(path, kept_chat::EXTENSION));
    files.map(of_file).collect()
}

fn about_plan(path: &Path) -> String {
    if !has_extension(path, "plan") {
        return "a profile without a plan".to_owned();
    }
    match plan::read(path) {
        Ok(plan) => {
            format!("{} on {}", plan.header.fingerprints.model.name, plan.header.fingerprints.machine)
        }
        Err(error) => format!("cannot be used: {error}"),
    }
}

/// What is in a folder, in order; nothing if there is no such folder.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, CacheError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(CacheError::at("list", folder))?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Bytes of a file, or of all files below a folder; links are not followed. 0 if there is nothing.
fn size_of(path: &Path) -> Result<u64, CacheError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(CacheError::at("look at", path)(error)),
        Ok(found) if found.is_dir() => listed(path)?.iter().map(|path| size_of(path)).sum(),
        Ok(found) => Ok(found.len()),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}
