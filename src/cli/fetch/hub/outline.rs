//! Outlines of models: what their files say of themselves, read in parts of a few kilobytes to megabytes, with holes in
//! place of the weights.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use yggc::model::{gguf, safetensors_outline_bytes};

use super::{
    HubError, Kept,
    client::Client,
    listing::{Choice, choose, shards},
};
use crate::cli::{cache::CacheError, fetch::Part, progress};

/// First bytes that are read of a file: most small files are shorter, and so are headers without a vocabulary.
const FIRST: u64 = 64 << 10;
/// How many times as much is read when that was not enough.
const GROWTH: u64 = 4;
/// No header is longer: the largest vocabularies have a tenth of it.
const MOST: u64 = 128 << 20;

/// A model whose files have holes in place of its weights, in a folder that goes with it.
#[derive(Debug)]
pub(crate) struct Outline {
    folder: PathBuf,
    /// The file or folder to open.
    pub(crate) path: PathBuf,
    /// Bytes of the files with weights.
    pub(crate) weight_file_bytes: u64,
    /// Bytes that were read of all files.
    pub(crate) read_bytes: u64,
}

impl Drop for Outline {
    fn drop(&mut self) {
        // The next outline of a process of this number removes what cannot be removed now.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Kept<'_> {
    /// The outline of the model as the hub has it now, in `folder`, which is emptied first.
    pub(super) fn outline(&self, client: &Client<'_>, folder: PathBuf) -> Result<Outline, HubError> {
        let _ = fs::remove_dir_all(&folder);
        let place = folder.join(self.name.repository().replace('/', "--"));
        let mut outline = Outline { folder, path: place.clone(), weight_file_bytes: 0, read_bytes: 0 };
        fs::create_dir_all(&place).map_err(CacheError::at("create", &place))?;
        let spinner = progress::spinner("reading the header");
        let (commit, listed) = client.listing()?;
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let choice = choose(self.name, &listed, Part::Verifier)?;
        let mut weights = Vec::new();
        match &choice {
            Choice::Gguf(parts) => {
                weights.clone_from(parts);
                let first = Path::new(&parts[0]).file_name().expect("a path of the hub names a file");
                outline.path = place.join(first);
            }
            Choice::Folder { files, index } => {
                let (last, others) = files.split_last().expect("a folder has weights");
                for file in others.iter().chain(index) {
                    let mut remote = Remote::new(client, &commit, file);
                    let path = place.join(file);
                    fs::write(&path, remote.whole()?).map_err(CacheError::at("write", &path))?;
                    outline.read_bytes += remote.read.len() as u64;
                }
                match index {
                    Some(index) => {
                        let path = place.join(index);
                        let index = fs::read(&path).map_err(CacheError::at("read", &path))?;
                        weights = shards(self.name, &index)?;
                    }
                    None => weights.push(last.clone()),
                }
            }
        }
        for file in &weights {
            let name = match &choice {
                // Parts of a model lie beside each other.
                Choice::Gguf(_) => Path::new(file).file_name().expect("a path of the hub names a file"),
                Choice::Folder { .. } => file.as_ref(),
            };
            let path = place.join(name);
            let folder = path.parent().expect("it is in a folder");
            fs::create_dir_all(folder).map_err(CacheError::at("create", folder))?;
            let mut remote = Remote::new(client, &commit, file);
            remote.outline(&path)?;
            outline.weight_file_bytes += remote.size;
            outline.read_bytes += remote.read.len() as u64;
        }
        spinner.finish_and_clear();
        Ok(outline)
    }
}

/// A file at the hub, and what was read from its beginning.
struct Remote<'a> {
    client: &'a Client<'a>,
    commit: &'a str,
    file: &'a str,
    read: Vec<u8>,
    /// 0 before anything is read.
    size: u64,
}

impl<'a> Remote<'a> {
    fn new(client: &'a Client<'a>, commit: &'a str, file: &'a str) -> Self {
        Self { client, commit, file, read: Vec::new(), size: 0 }
    }

    /// Reads on until `end`, or to the end of the file.
    fn read_to(&mut self, end: u64) -> Result<(), HubError> {
        let start = self.read.len() as u64;
        let end = if start == 0 { end } else { end.min(self.size) };
        if start < end {
            let (part, size) = self.client.part(self.commit, self.file, start..end)?;
            self.read.extend_from_slice(&part);
            self.size = size;
        }
        Ok(())
    }

    /// All of a small file.
    fn whole(&mut self) -> Result<&[u8], HubError> {
        self.read_to(FIRST)?;
        if self.size > MOST {
            return Err(self.too_long("file without weights"));
        }
        self.read_to(self.size)?;
        Ok(&self.read)
    }

    /// Writes a file that is as long as this one and has what describes the model.
    fn outline(&mut self, path: &Path) -> Result<(), HubError> {
        self.read_to(FIRST)?;
        let described_at = if self.file.ends_with(".gguf") {
            self.gguf()?.described_at
        } else {
            let header = safetensors_outline_bytes(&self.read).map_err(|error| self.unreadable(&error))?;
            self.read_to(header)?;
            Vec::new()
        };
        let parts = described_at
            .into_iter()
            .filter(|at| at.end > self.read.len() as u64)
            .map(|at| Ok((at.start, self.client.part(self.commit, self.file, at)?.0)))
            .collect::<Result<Vec<_>, HubError>>()?;
        let write = || -> io::Result<()> {
            let mut out = File::create(path)?;
            out.set_len(self.size)?;
            out.write_all(&self.read)?;
            for (start, bytes) in &parts {
                out.seek(SeekFrom::Start(*start))?;
                out.write_all(bytes)?;
            }
            Ok(())
        };
        Ok(write().map_err(CacheError::at("write", path))?)
    }

    fn gguf(&mut self) -> Result<gguf::GgufOutline, HubError> {
        let mut end = FIRST;
        loop {
            let size = usize::try_from(self.size).unwrap_or(usize::MAX);
            match gguf::outline(&self.read, size) {
                Ok(outline) => return Ok(outline),
                // A header that breaks off may be unlawful in any way.
                Err(error) if self.read.len() as u64 >= self.size.min(MOST) => {
                    return Err(self.unreadable(&error));
                }
                Err(_) => {
                    end = (end * GROWTH).min(MOST);
                    self.read_to(end)?;
                }
            }
        }
    }

    fn unreadable(&self, why: &dyn std::fmt::Display) -> HubError {
        let (repository, file) = (self.client.name.repository(), self.file.to_owned());
        HubError::Header { repository, file, why: why.to_string() }
    }

    fn too_long(&self, what: &str) -> HubError {
        self.unreadable(&format_args!("expected a {what} of at most {MOST} bytes, found {}", self.size))
    }
}

/// Reads the body of an answer that should have `expected` bytes, and no more than that.
pub(super) fn exactly(body: impl Read, expected: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    body.take(expected + 1).read_to_end(&mut read)?;
    if read.len() as u64 == expected {
        return Ok(read);
    }
    let said = format!("a part of {expected} bytes was asked for, {} came", read.len());
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, said))
}
