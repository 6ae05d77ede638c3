//! Models of the Hugging Face hub, named `hf:OWNER/REPO` or `hf:OWNER/REPO/FILE.gguf` (a file in one piece, or any part
//! of one), in the cache that its other programs use.
//!
//! A model that was fetched once is used without a request, as its files were then. What one repository means is kept
//! below the program's own cache (`hub/OWNER--REPO.json`, or `hub/OWNER--REPO/FILE.json` where a file was named): the
//! commit, and which of its files the model is, written when all of them are there. So a fetch that was interrupted is
//! not taken for a model, and goes on where it was.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use yggc::{model::gguf::part_names, storage::replace_file};

use self::{
    client::Client,
    listing::{Choice, choose, first_part, parts, shards},
};
pub(crate) use self::{error::HubError, name::HubName, outline::Outline, settings::HubSettings};
use crate::cli::{
    cache::{CacheDir, CacheError, take_lock},
    fetch::Part,
    output::remark,
    progress,
};

mod client;
mod error;
mod listing;
mod name;
mod outline;
mod settings;

/// What a repository meant when it was fetched.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    commit: String,
    files: Vec<String>,
}

/// One model of the hub, and where it is kept.
#[derive(Debug)]
struct Kept<'a> {
    name: &'a HubName,
    /// Folder of the repository in the hub's cache.
    repository: PathBuf,
    /// The repository's [`Record`].
    record: PathBuf,
}

/// The path of the model, a file or a folder; downloads what is not cached of it, after a call of `announce`.
pub(crate) fn fetch(
    name: &HubName,
    part: Part,
    settings: &HubSettings,
    cache: &CacheDir,
    announce: impl FnOnce(),
) -> Result<PathBuf, HubError> {
    let name = &whole(name);
    let kept = Kept::new(name, settings, cache);
    if let Some(path) = kept.find(part) {
        return Ok(path);
    }
    if settings.offline {
        let missing = || HubError::Offline { name: name.to_string(), cache: settings.cache.clone() };
        return kept.find_anything(part).ok_or_else(missing);
    }
    let locks = settings.cache.join(".locks").join(folder_of(name));
    fs::create_dir_all(&locks).map_err(CacheError::at("create", &locks))?;
    let mut waiting = None;
    let _lock = take_lock(&locks.join("yggc.lock"), || {
        waiting = Some(progress::waiting("waiting for another yggc that is fetching"));
    })?;
    drop(waiting);
    // The process waited for has usually fetched the same.
    if let Some(path) = kept.find(part) {
        return Ok(path);
    }
    announce();
    match kept.download(part, settings) {
        Err(HubError::Network { why, .. }) if let Some(path) = kept.find_anything(part) => {
            remark(format_args!(
                "the hub cannot be reached ({why}): using {name} as another program cached it"
            ));
            Ok(path)
        }
        other => other,
    }
}

/// A model of the hub as far as its size and shape go.
#[derive(Debug)]
pub(crate) enum Described {
    /// It was fetched before.
    Here(PathBuf),
    /// It was not, and its weights are left there.
    There(Outline),
}

/// Looks at a model without downloading its weights.
pub(crate) fn describe(
    name: &HubName,
    settings: &HubSettings,
    cache: &CacheDir,
) -> Result<Described, HubError> {
    let name = &whole(name);
    let kept = Kept::new(name, settings, cache);
    if let Some(path) = kept.find(Part::Verifier) {
        return Ok(Described::Here(path));
    }
    if settings.offline {
        let missing = || HubError::Offline { name: name.to_string(), cache: settings.cache.clone() };
        return kept.find_anything(Part::Verifier).map(Described::Here).ok_or_else(missing);
    }
    Ok(Described::There(kept.outline(&Client::new(name, settings)?, cache.outlines())?))
}

/// The model that is named, whichever of its parts the name is of.
fn whole(name: &HubName) -> HubName {
    name.file.as_deref().map_or_else(|| name.clone(), |file| name.of_file(&first_part(file)))
}

/// The folder of a repository in the hub's cache.
fn folder_of(name: &HubName) -> String {
    let (owner, repo) = name.parts();
    format!("models--{owner}--{repo}")
}

impl<'a> Kept<'a> {
    fn new(name: &'a HubName, settings: &HubSettings, cache: &CacheDir) -> Self {
        let (owner, repo) = name.parts();
        let record = match &name.file {
            Some(file) => cache.hub().join(format!("{owner}--{repo}")).join(format!("{file}.json")),
            None => cache.hub().join(format!("{owner}--{repo}.json")),
        };
        Self { name, repository: settings.cache.join(folder_of(name)), record }
    }

    /// The model, if it was fetched whole.
    fn find(&self, part: Part) -> Option<PathBuf> {
        if let (Some(file), Some(main)) = (&self.name.file, self.main())
            && parts(file, |part| main.join(part).is_file()).is_ok()
        {
            return Some(main.join(file));
        }
        let Record { commit, files } = serde_json::from_slice(&fs::read(&self.record).ok()?).ok()?;
        let snapshot = self.snapshot(&commit);
        let is_whole = files.iter().all(|file| snapshot.join(file).is_file());
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        // What a drafter needs may be less than what is needed now.
        let choice = choose(self.name, &names, part).ok().filter(|_| is_whole)?;
        Some(choice.path(&snapshot))
    }

    /// The model as whatever program cached it, of the last commit that was seen.
    fn find_anything(&self, part: Part) -> Option<PathBuf> {
        let snapshot = self.main()?;
        let names: Vec<String> = fs::read_dir(&snapshot)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| snapshot.join(name).is_file())
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let choice = choose(self.name, &names, part).ok()?;
        let is_whole = match &choice {
            Choice::Folder { index: Some(index), .. } => {
                let named = shards(self.name, &fs::read(snapshot.join(index)).ok()?).ok()?;
                named.iter().all(|shard| snapshot.join(shard).is_file())
            }
            Choice::Folder { index: None, .. } | Choice::Gguf(_) => true,
        };
        is_whole.then(|| choice.path(&snapshot))
    }

    /// The snapshot that the hub's main branch was last seen at.
    fn main(&self) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.repository.join("refs/main")).ok()?;
        Some(self.snapshot(commit.trim()))
    }

    fn snapshot(&self, commit: &str) -> PathBuf {
        self.repository.join("snapshots").join(commit)
    }

    fn download(&self, part: Part, settings: &HubSettings) -> Result<PathBuf, HubError> {
        let client = Client::new(self.name, settings)?;
        if let Some(file) = &self.name.file
            && part_names(file).is_none()
        {
            let path = client.file("main", file)?;
            let commit =
                path.strip_prefix(self.repository.join("snapshots")).ok().and_then(|path| path.iter().next());
            if let Some(commit) = commit.and_then(|commit| commit.to_str()) {
                // The file is found without it; only `yggc cache` does not list what it does not know.
                let _ = self.keep(&Record { commit: commit.to_owned(), files: vec![file.clone()] });
            }
            return Ok(path);
        }
        let (commit, listed) = client.listing()?;
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let choice = choose(self.name, &listed, part)?;
        let snapshot = self.snapshot(&commit);
        let mut files = choice.files();
        let get = |file: &String| match snapshot.join(file) {
            path if path.is_file() => Ok(path),
            _ => client.file(&commit, file),
        };
        for file in &files {
            get(file)?;
        }
        if let Choice::Folder { index: Some(index), .. } = &choice {
            let path = snapshot.join(index);
            let shards = shards(self.name, &fs::read(&path).map_err(CacheError::at("read", &path))?)?;
            for shard in &shards {
                get(shard)?;
            }
            files.extend(shards);
        }
        self.keep(&Record { commit, files })?;
        Ok(choice.path(&snapshot))
    }

    fn keep(&self, record: &Record) -> Result<(), HubError> {
        let folder = self.record.parent().expect("it is below the cache");
        fs::create_dir_all(folder).map_err(CacheError::at("create", folder))?;
        let text = serde_json::to_vec(record).expect("names are text");
        Ok(replace_file(&self.record, &text).map_err(CacheError::at("write", &self.record))?)
    }
}

impl Choice {
    /// Where a model is that is so chosen.
    fn path(&self, snapshot: &Path) -> PathBuf {
        match self {
            Self::Folder { .. } => snapshot.to_owned(),
            Self::Gguf(parts) => snapshot.join(&parts[0]),
        }
    }
}

/// The SHA-256 by which the hub's cache names a file, if `path` is one of its blobs.
pub(crate) fn digest_in_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let is_blob = path.parent()?.file_name()? == "blobs";
    let is_sha256 = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_blob && is_sha256).then(|| name.to_owned())
}
