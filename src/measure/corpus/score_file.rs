//! The scores of a build at work: every scored snippet, appended to a file, so that a killed build goes on where it
//! was.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `YGGSCOR\0` |
//! | 8..12 | format version, u32 little-endian |
//! | 12..44 | digest of what scores follow from, apart from the texts |
//! | 44.. | records: tokens (u32), mean negative log-likelihood (f64), the tokens (u32 each), what the model offered after each of them but the last ([`Offer::to_bytes`]), 8 bytes of BLAKE3 of the record's number and all of it before |
//!
//! Invariant: what follows the last whole record was being written when a build was killed, and is cut off.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::{engine::Error, speculate::corpus::Offer, storage::LockedFile};

use super::cannot;

const MAGIC: &[u8; 8] = b"YGGSCOR\0";
const FORMAT: u32 = 2;
const HEADER_BYTES: u64 = 44;
const CHECK_BYTES: usize = 8;
/// Of a record, up to its tokens.
const BEGIN_BYTES: usize = 12;
/// No snippet is longer: a greater count was not written by a build.
const MOST_TOKENS: u32 = 1 << 24;

/// A snippet with its score.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) snippet: Vec<u32>,
    pub(super) mean_nll: f64,
    /// What the model offered after each token but the last.
    pub(super) offers: Vec<Offer>,
}

/// The file, locked. Known scores are read first, then new ones are appended.
#[derive(Debug)]
pub(super) struct ScoreFile {
    path: PathBuf,
    file: BufReader<LockedFile>,
    /// Records read or appended.
    records: u64,
    /// Bytes up to their end.
    bytes: u64,
    /// Whether all that was there has been read.
    is_read: bool,
}

impl ScoreFile {
    /// Opens or creates the file, for scores that follow from `settings`.
    pub(super) fn open(path: &Path, settings: [u8; 32]) -> Result<Self, Error> {
        let io = |error: io::Error| cannot("keep scores in", path, &error);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let Some(mut file) = opened.and_then(LockedFile::take).map_err(io)? else {
            return Err(Error::input(format!(
                "another yggc builds this store: expected `{}` to be free, found it locked; wait for it, or choose \
                 another output",
                path.display()
            )));
        };
        let header = [&MAGIC[..], &FORMAT.to_le_bytes(), &settings].concat();
        let mut found = Vec::new();
        Read::by_ref(&mut file).take(HEADER_BYTES).read_to_end(&mut found).map_err(io)?;
        if found.len() < header.len() && header.starts_with(&found) {
            file.set_len(0).map_err(io)?;
            file.rewind().map_err(io)?;
            file.write_all(&header).map_err(io)?;
        } else if found != header {
            return Err(Error::input(format!(
                "`{}` holds scores of another build: expected those of this model, these kernels and this snippet length, found \
                 others; go on with what they were begun with, or remove the file to score again",
                path.display()
            )));
        }
        let mut this =
            Self { path: path.to_owned(), file: BufReader::new(file), records: 0, bytes: 0, is_read: false };
        this.rewind()?;
        Ok(this)
    }

    /// Reads from the first record again.
    pub(super) fn rewind(&mut self) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(HEADER_BYTES)).map_err(|error| self.failed(&error))?;
        (self.records, self.bytes, self.is_read) = (0, HEADER_BYTES, false);
        Ok(())
    }

    /// The next record that is there; what is no whole record after the last of them is cut off.
    pub(super) fn next_known(&mut self) -> Result<Option<Known>, Error> {
        if self.is_read {
            return Ok(None);
        }
        match read_record(&mut self.file, self.records) {
            Ok(Some(known)) => {
                self.records += 1;
                self.bytes += record_bytes(known.snippet.len());
                Ok(Some(known))
            }
            Ok(None) => {
                self.is_read = true;
                let (bytes, file) = (self.bytes, self.file.get_mut());
                let cut = file.set_len(bytes).and_then(|()| self.file.seek(SeekFrom::Start(bytes)));
                cut.map_err(|error| self.failed(&error))?;
                Ok(None)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Adds a record.
    ///
    /// # Panics
    /// If known ones are left to read.
    pub(super) fn append(&mut self, known: &Known) -> Result<(), Error> {
        assert!(self.is_read, "new scores come after the known ones");
        let record = encode_record(known, self.records);
        self.file.get_mut().write_all(&record).map_err(|error| self.failed(&error))?;
        self.records += 1;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Why a build whose inputs are not those of the scores cannot go on.
    pub(super) fn other_inputs(&self) -> Error {
        Error::input(format!(
            "`{}` holds scores of other texts: expected the snippets of the inputs, found others from snippet {} on; give the \
             inputs it was begun with, or remove the file to score again",
            self.path.display(),
            self.records
        ))
    }

    /// Removes the file: its store is written.
    pub(super) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(|error| cannot("remove", &self.path, &error))
    }

    fn failed(&self, error: &io::Error) -> Error {
        cannot("keep scores in", &self.path, error)
    }
}

fn record_bytes(tokens: usize) -> u64 {
    (BEGIN_BYTES + content_bytes(tokens) + CHECK_BYTES) as u64
}

/// Bytes of so many tokens, and of the offers after all but the last.
fn content_bytes(tokens: usize) -> usize {
    4 * tokens + Offer::BYTES * tokens.saturating_sub(1)
}

/// # Panics
/// If there are not as many offers as tokens but one.
fn encode_record(known: &Known, number: u64) -> Vec<u8> {
    let Known { snippet, mean_nll, offers } = known;
    assert_eq!(offers.len(), snippet.len().saturating_sub(1), "an offer after each token but the last");
    let tokens = u32::try_from(snippet.len()).expect("snippets are small");
    let mut record = tokens.to_le_bytes().to_vec();
    record.extend_from_slice(&mean_nll.to_le_bytes());
    record.extend(snippet.iter().flat_map(|token| token.to_le_bytes()));
    record.extend(offers.iter().flat_map(|offer| offer.to_bytes()));
    let check = check(&record, number);
    record.extend_from_slice(&check);
    record
}

/// The record that follows, if it is whole.
fn read_record(from: &mut impl Read, number: u64) -> io::Result<Option<Known>> {
    let mut begin = [0; BEGIN_BYTES];
    if !filled(from, &mut begin)? {
        return Ok(None);
    }
    let tokens = u32::from_le_bytes(begin[..4].try_into().expect("four bytes"));
    if tokens > MOST_TOKENS {
        return Ok(None);
    }
    let mut record = begin.to_vec();
    record.resize(BEGIN_BYTES + content_bytes(tokens as usize), 0);
    let mut found = [0; CHECK_BYTES];
    let is_whole = filled(from, &mut record[BEGIN_BYTES..])? && filled(from, &mut found)?;
    if !is_whole || found != check(&record, number) {
        return Ok(None);
    }
    let (words, offers) = record[BEGIN_BYTES..].split_at(4 * tokens as usize);
    Ok(Some(Known {
        snippet: words.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect(),
        mean_nll: f64::from_le_bytes(begin[4..].try_into().expect("eight bytes")),
        offers: offers.as_chunks().0.iter().map(Offer::from_bytes).collect(),
    }))
}

fn check(record: &[u8], number: u64) -> [u8; CHECK_BYTES] {
    let hash = blake3::Hasher::new().update(&number.to_le_bytes()).update(record).finalize();
    hash.as_bytes()[..CHECK_BYTES].try_into().expect("a hash is longer")
}

/// Whether there were bytes enough.
fn filled(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Candidate;

    fn offer(token: u32) -> Offer {
        let candidate = |token| Candidate { token, log_prob: -(token as f32) / 8.0 };
        Offer::of(&[candidate(token), candidate(token + 1)])
    }

    fn all(file: &mut ScoreFile) -> Vec<Known> {
        std::iter::from_fn(|| file.next_known().unwrap()).collect()
    }

    #[test]
    fn a_file_cut_or_damaged_anywhere_keeps_the_records_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scores");
        let open = || ScoreFile::open(&path, [3; 32]).unwrap();
        let records: Vec<Known> = [&[1, 2][..], &[7], &[5, 6, 7, 8]]
            .iter()
            .map(|snippet| Known {
                snippet: snippet.to_vec(),
                mean_nll: snippet.len() as f64 / 3.0,
                offers: snippet[1..].iter().map(|token| offer(*token)).collect(),
            })
            .collect();
        let mut file = open();
        assert_eq!(all(&mut file), []);
        records.iter().for_each(|known| file.append(known).unwrap());
        file.rewind().unwrap();
        assert_eq!(all(&mut file), records);
        drop(file);
        let good = fs::read(&path).unwrap();
        let mut ends = vec![HEADER_BYTES as usize];
        records.iter().for_each(|k| ends.push(ends.last().unwrap() + record_bytes(k.snippet.len()) as usize));
        for length in 0..good.len() {
            let whole = ends.iter().skip(1).filter(|end| **end <= length).count();
            let mut damaged = good.clone();
            damaged[length] ^= 0x10;
            for bytes in [&good[..length], &damaged] {
                if bytes.len() == good.len() && length < HEADER_BYTES as usize {
                    fs::write(&path, bytes).unwrap();
                    assert!(ScoreFile::open(&path, [3; 32]).is_err(), "byte {length}");
                    continue;
                }
                fs::write(&path, bytes).unwrap();
                let mut file = open();
                assert_eq!(all(&mut file), records[..whole], "{length} bytes");
                records[whole..].iter().for_each(|known| file.append(known).unwrap());
                drop(file);
                assert_eq!(fs::read(&path).unwrap(), good, "{length} bytes");
            }
        }
        assert!(ScoreFile::open(&path, [4; 32]).unwrap_err().to_string().contains("remove the file"));
        let first = open();
        assert!(ScoreFile::open(&path, [3; 32]).unwrap_err().to_string().contains("another yggc"));
        first.remove().unwrap();
        assert!(!path.exists());
    }
}
