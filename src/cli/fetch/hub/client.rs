//! Requests to the hub through the `hf-hub` crate, and checks of the downloads.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata},
};
use indicatif::ProgressBar;
use ureq::config::RedirectAuthHeaders;

use super::{HubError, HubName, HubSettings, listing::no_file, outline::exactly};
use crate::cli::{
    cache::{CacheError, sha256_of},
    progress,
};

/// Digits of a SHA-256; a cached file whose name is that long is named by its hash.
const SHA256_DIGITS: usize = 64;

/// One repository at the hub.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) name: &'a HubName,
    settings: &'a HubSettings,
    api: Api,
}

impl<'a> Client<'a> {
    pub(super) fn new(name: &'a HubName, settings: &'a HubSettings) -> Result<Self, HubError> {
        let api = ApiBuilder::from_cache(Cache::new(settings.cache.clone()))
            .with_endpoint(settings.endpoint.clone())
            .with_token(settings.token.clone())
            .with_user_agent("yggc", env!("CARGO_PKG_VERSION"))
            .build();
        let api = api.map_err(|error| failure(settings, error))?;
        Ok(Self { name, settings, api })
    }

    fn at(&self, revision: &str) -> (Repo, ApiRepo) {
        let repo = Repo::with_revision(self.name.repository(), RepoType::Model, revision.to_owned());
        (repo.clone(), self.api.repo(repo))
    }

    /// The commit of the main branch, and the paths of its files.
    pub(super) fn listing(&self) -> Result<(String, Vec<String>), HubError> {
        let (_, repo) = self.at("main");
        let info = repo.info().map_err(|error| match status(&error) {
            Some(status @ (401 | 403 | 404)) => self.no_repository(status),
            _ => failure(self.settings, error),
        })?;
        let is_commit = !info.sha.is_empty() && info.sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_commit {
            return Err(self.answers_oddly(&format!("`{}` is no commit", info.sha)));
        }
        Ok((info.sha, info.siblings.into_iter().map(|file| file.rfilename).collect()))
    }

    /// Downloads one file of a revision into the hub's cache, resuming a partial download, and checks it.
    pub(super) fn file(&self, revision: &str, file: &str) -> Result<PathBuf, HubError> {
        let (repo, remote) = self.at(revision);
        let announced = self.api.metadata(&remote.url(file)).map_err(|error| match status(&error) {
            Some(404) => match self.listing() {
                Ok((_, listed)) => {
                    no_file(self.name, file, &listed.iter().map(String::as_str).collect::<Vec<_>>())
                }
                Err(error) => error,
            },
            Some(status @ (401 | 403)) => self.no_repository(status),
            _ => failure(self.settings, error),
        })?;
        if !is_content(announced.etag()) || !is_content(announced.commit_hash()) {
            return Err(self.answers_oddly("its headers name no content"));
        }
        let blob = Cache::new(self.settings.cache.clone()).repo(repo).blob_path(announced.etag());
        discard_unusable_part(&blob, announced.size())?;
        let bar = Bar(progress::bytes(&format!("downloading {file}"), announced.size() as u64));
        let path = remote.download_with_progress(file, bar).map_err(|error| failure(self.settings, error))?;
        self.check(file, &announced, &blob, &path)?;
        Ok(path)
    }

    /// Some bytes of a file, fewer where it ends before, and how many it has in all. None of it is cached.
    pub(super) fn part(
        &self,
        revision: &str,
        file: &str,
        bytes: Range<u64>,
    ) -> Result<(Vec<u8>, u64), HubError> {
        let (_, remote) = self.at(revision);
        // The crate `hf-hub` reads whole files.
        let agent: ureq::Agent =
            ureq::Agent::config_builder().redirect_auth_headers(RedirectAuthHeaders::SameHost).build().into();
        let mut request = agent
            .get(remote.url(file))
            .header("User-Agent", concat!("yggc/", env!("CARGO_PKG_VERSION")))
            .header("Range", format!("bytes={}-{}", bytes.start, bytes.end - 1));
        if let Some(token) = &self.settings.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answer = request
            .call()
            .map_err(|error| failure(self.settings, ApiError::RequestError(Box::new(error))))?;
        let range = answer.headers().get("Content-Range").and_then(|range| range.to_str().ok());
        let Some((start, end, size)) =
            range.and_then(content_range).filter(|(start, ..)| *start == bytes.start)
        else {
            return Err(self.answers_oddly("it sends whole files where a part is asked for"));
        };
        if end != bytes.end.min(size) {
            return Err(self.answers_oddly("it sends another part than was asked for"));
        }
        let read = exactly(answer.into_body().into_reader(), end - start);
        let read = read.map_err(|error| self.cut_off(&error))?;
        Ok((read, size))
    }

    fn cut_off(&self, error: &io::Error) -> HubError {
        HubError::Network { endpoint: self.settings.endpoint.clone(), why: error.to_string() }
    }

    /// Checks the size and, if the hub announced it, the SHA-256 of a download; removes a wrong one.
    fn check(&self, file: &str, announced: &Metadata, blob: &Path, path: &Path) -> Result<(), HubError> {
        let size = fs::metadata(blob).map_err(CacheError::at("look at", blob))?.len();
        let (expected, found) = if size != announced.size() as u64 {
            (format!("{} bytes", announced.size()), format!("{size}"))
        } else if announced.etag().len() == SHA256_DIGITS {
            let spinner = progress::spinner(&format!("verifying {file}"));
            let found = sha256_of(blob)?;
            spinner.finish_and_clear();
            (format!("SHA-256 {}", announced.etag()), found)
        } else {
            return Ok(());
        };
        if expected.ends_with(&found) {
            return Ok(());
        }
        for damaged in [path, blob] {
            fs::remove_file(damaged).map_err(CacheError::at("remove", damaged))?;
        }
        let (repository, file) = (self.name.repository(), file.to_owned());
        Err(HubError::Damaged { repository, file, expected, found })
    }

    fn no_repository(&self, status: u16) -> HubError {
        let (endpoint, repository) = (self.settings.endpoint.clone(), self.name.repository());
        HubError::NoRepository { endpoint, repository, status }
    }

    fn answers_oddly(&self, why: &str) -> HubError {
        HubError::NoHub { endpoint: self.settings.endpoint.clone(), why: why.to_owned() }
    }
}

/// An interrupted download is resumed, unless it is already as long as the file or longer.
fn discard_unusable_part(blob: &Path, size: usize) -> Result<(), HubError> {
    let part = blob.with_extension("part");
    let is_too_long = fs::metadata(&part).is_ok_and(|found| found.len() >= size as u64);
    if is_too_long {
        fs::remove_file(&part).map_err(CacheError::at("remove", &part))?;
    }
    Ok(())
}

/// Whether an entity tag is safe as a file name; weak tags are stored in a folder `W`.
fn is_content(header: &str) -> bool {
    let name = header.strip_prefix("W/").unwrap_or(header);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Start, end and size of `bytes START-LAST/SIZE`.
fn content_range(range: &str) -> Option<(u64, u64, u64)> {
    let (part, size) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (start, last) = part.split_once('-')?;
    Some((start.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?, size.parse().ok()?))
}

/// The HTTP status of an error, if it has one.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    }
}

fn failure(settings: &HubSettings, error: ApiError) -> HubError {
    let endpoint = settings.endpoint.clone();
    match error {
        ApiError::IoError(error) if is_of_disk(&error) => {
            CacheError::at("write to", &settings.cache)(error).into()
        }
        ApiError::LockAcquisition(path) => HubError::Busy { path },
        ApiError::MissingHeader(_) | ApiError::InvalidHeader(_) | ApiError::ParseIntError(_) => {
            HubError::NoHub { endpoint, why: error.to_string() }
        }
        other => HubError::Network { endpoint, why: other.to_string() },
    }
}

/// Whether an I/O error of a transfer comes from the disk.
fn is_of_disk(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::NotFound
            | Kind::NotADirectory
            | Kind::AlreadyExists
    )
}

/// Progress of a download.
struct Bar(ProgressBar);

impl hf_hub::api::Progress for Bar {
    fn init(&mut self, size: usize, _file: &str) {
        self.0.set_length(size as u64);
        self.0.set_position(0);
    }

    fn update(&mut self, bytes: usize) {
        self.0.inc(bytes as u64);
    }

    fn finish(&mut self) {
        self.0.finish_and_clear();
    }
}
