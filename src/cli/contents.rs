//! What models held when they were first opened: digests of their tensors, kept in the cache folder and compared later.
//!
//! ```text
//! <cache>/contents/KEY.json   the key is a digest of the model's path
//! ```
//!
//! A plan's fingerprint samples a model, so it misses a changed byte between the samples. After a model's first use an
//! idle thread hashes all of it. As long as size, times and inode of its files stay the same, the digests are trusted.
//! Files that were touched are hashed again, and a difference is told; [`Remembered::compare`] always hashes. Files
//! with a published SHA-256 must have that. A model that shares less than half of its tensors with the one remembered
//! is another model, and begins anew.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use yggc::{
    model::{Contents, Model},
    storage::{FileStamp, replace_file, when_idle},
};

use crate::cli::{
    cache::{CacheError, CachePlace, hex, sha256_of},
    error::Failure,
    fetch::published_sha256,
    output::remark,
};

/// Tensors that are named if many differ.
const NAMED: usize = 4;

/// The record of one model.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// For people.
    model: String,
    stamps: String,
    /// By tensor.
    digests: BTreeMap<String, String>,
}

/// A model as it is now, and the place of its record.
#[derive(Debug)]
pub(crate) struct Remembered {
    contents: Contents,
    model: PathBuf,
    file: PathBuf,
    /// Its files whose SHA-256 was published.
    published: Vec<(PathBuf, String)>,
}

/// How a model compares with its record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// There was no record; so many tensors are remembered now.
    First(usize),
    /// All of so many tensors are as they were.
    Same(usize),
    /// What differs, in words.
    Differs(String),
}

impl Remembered {
    /// `None` without a cache folder, which other commands tell of.
    pub(crate) fn new(model: &Model, cache: &CachePlace) -> Option<Self> {
        let cache = cache.dir().ok()?;
        let (model, contents) = (fs::canonicalize(&model.path).ok()?, model.contents());
        let key = hex(&Sha256::digest(model.as_os_str().as_encoded_bytes())[..16]);
        let published = contents.paths().filter_map(|path| published_sha256(path, &cache));
        Some(Self {
            file: cache.contents().join(format!("{key}.json")),
            published: published.collect(),
            model,
            contents,
        })
    }

    /// Hashes the model when a processor is idle, unless it is as it was at its last hashing; says on stderr what
    /// differs.
    pub(crate) fn watch(self) {
        let watched = when_idle(move || {
            match self.is_trusted().and_then(|is_trusted| match is_trusted {
                true => Ok(None),
                false => self.compare().map(Some),
            }) {
                Ok(Some(Compared::Differs(how))) => remark(format_args!("warning: {how}")),
                Ok(None | Some(Compared::First(_) | Compared::Same(_))) => {}
                Err(error) => {
                    remark(format_args!("warning: what the model holds is not remembered: {error}"))
                }
            }
        });
        if let Err(error) = watched {
            remark(format_args!("warning: the model is not hashed: {error}"));
        }
    }

    fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(&self.file).ok()?).ok()
    }

    fn is_trusted(&self) -> Result<bool, Failure> {
        let stamps = self.contents.stamps()?;
        Ok(self.record().zip(stamps).is_some_and(|(record, stamps)| record.stamps == text(&stamps)))
    }

    /// Hashes the model now and compares it with its record, which is written or renewed unless something differs.
    ///
    /// # Errors
    /// If the model changes meanwhile, or the record cannot be written.
    pub(crate) fn compare(&self) -> Result<Compared, Failure> {
        let stamps = self.contents.stamps()?;
        let digests = self.contents.digests()?;
        let count = digests.len();
        let record = self.record().filter(|record| record.is_of_same_model(&digests));
        for (file, expected) in &self.published {
            let found = sha256_of(file)?;
            if found != *expected {
                return Ok(Compared::Differs(format!(
                    "`{}` is damaged{}: expected the published SHA-256 {expected}, found {found}; remove it and fetch \
                     the model again",
                    file.display(),
                    record.map_or(String::new(), |record| record.differing(&digests)),
                )));
            }
        }
        if let Some(record) = &record
            && record.digests != digests
            && self.published.is_empty()
        {
            return Ok(Compared::Differs(format!(
                "`{}` has changed since it was first opened{}; if you did not change it, get it again; if you did, \
                 `yggc cache rm contents` forgets its earlier state",
                self.model.display(),
                record.differing(&digests)
            )));
        }
        if let Some(stamps) = stamps.filter(|stamps| stamps.iter().all(FileStamp::is_settled)) {
            self.keep(&Record { model: self.model.display().to_string(), stamps: text(&stamps), digests })?;
        }
        let is_known = record.is_some() || !self.published.is_empty();
        Ok(if is_known { Compared::Same(count) } else { Compared::First(count) })
    }

    fn keep(&self, record: &Record) -> Result<(), CacheError> {
        let folder = self.file.parent().expect("it is below the cache");
        fs::create_dir_all(folder).map_err(CacheError::at("create", folder))?;
        let text = serde_json::to_vec(record).expect("names are text");
        replace_file(&self.file, &text).map_err(CacheError::at("write", &self.file))
    }
}

fn text(stamps: &[FileStamp]) -> String {
    stamps.iter().map(|stamp| hex(&stamp.to_bytes())).collect()
}

impl Record {
    fn is_same(&self, (name, digest): (&String, &String)) -> bool {
        self.digests.get(name) == Some(digest)
    }

    fn is_of_same_model(&self, digests: &BTreeMap<String, String>) -> bool {
        2 * digests.iter().filter(|tensor| self.is_same(*tensor)).count() >= digests.len()
    }

    /// The tensors that differ, in words; nothing if none does.
    fn differing(&self, digests: &BTreeMap<String, String>) -> String {
        let differ = digests.iter().filter(|tensor| !self.is_same(*tensor));
        let names: Vec<&str> = differ.map(|(name, _)| name.as_str()).collect();
        let named = names[..names.len().min(NAMED)].join("`, `");
        match names.len() {
            0 => String::new(),
            count if count <= NAMED => format!(", in `{named}`"),
            count => format!(", in {count} of {} tensors, `{named}` among them", digests.len()),
        }
    }
}

/// How the model at `path` compares with what it was; `None` without a cache folder.
///
/// # Errors
/// If it is no model that opens, or as [`Remembered::compare`].
pub(crate) fn check(path: &Path, cache: &CachePlace) -> Result<Option<Compared>, Failure> {
    Remembered::new(&Model::open(path)?, cache).map(|model| model.compare()).transpose()
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write, time::Duration};

    use yggc::{
        model::synthetic::SyntheticSpec,
        storage::{read_exact_at, write_all_at},
    };

    use super::*;
    use crate::cli::args::Environment;

    struct Place {
        folder: tempfile::TempDir,
        cache: CachePlace,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cache = CachePlace {
                flag: Some(folder.path().join("cache")),
                environment: Environment::default(),
                keeps_packed: false,
                packed_limit: None,
            };
            let place = Self { folder, cache };
            place.write(1);
            place
        }

        fn model(&self) -> PathBuf {
            self.folder.path().join("tiny.gguf")
        }

        fn write(&self, seed: u64) {
            SyntheticSpec { seed, ..SyntheticSpec::default() }.write_gguf(&self.model()).unwrap();
        }

        fn compared(&self) -> Compared {
            check(&self.model(), &self.cache).unwrap().unwrap()
        }

        fn is_trusted(&self) -> bool {
            Remembered::new(&Model::open(&self.model()).unwrap(), &self.cache).unwrap().is_trusted().unwrap()
        }

        /// Flips a bit in the middle of the second quarter of a tensor, where no fingerprint looks, keeping the length
        /// and the time of change.
        fn damage(&self, tensor: &str) {
            let model = Model::open(&self.model()).unwrap();
            let bytes = &model.tensors[tensor].bytes;
            let place = (bytes.start + bytes.len() * 3 / 8) as u64;
            let fingerprint = model.fingerprint();
            drop(model);
            let file = OpenOptions::new().read(true).write(true).open(self.model()).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            let mut byte = [0];
            read_exact_at(&file, &mut byte, place).unwrap();
            write_all_at(&file, &[byte[0] ^ 1], place).unwrap();
            (&file).flush().unwrap();
            file.set_modified(modified).unwrap();
            assert_eq!(Model::open(&self.model()).unwrap().fingerprint(), fingerprint, "the sample saw it");
        }
    }

    #[test]
    fn a_changed_byte_is_found_by_its_tensor_until_it_is_forgotten() {
        let place = Place::new();
        // Only a file that has not just been written is remembered by its stamp.
        std::thread::sleep(Duration::from_millis(2100));
        let Compared::First(tensors) = place.compared() else { panic!("nothing was remembered before") };
        assert!(place.is_trusted());
        assert_eq!(place.compared(), Compared::Same(tensors));
        place.damage("blk.1.ffn_up.weight");
        assert!(!place.is_trusted(), "the length and the time are the same, and yet it was changed");
        for _ in 0..2 {
            let Compared::Differs(how) = place.compared() else { panic!("a changed byte went unnoticed") };
            assert!(
                how.contains("in `blk.1.ffn_up.weight`;") && how.contains("yggc cache rm contents"),
                "{how}"
            );
        }
        place.damage("blk.1.ffn_up.weight");
        assert_eq!(place.compared(), Compared::Same(tensors), "it was put right");
        place.write(2);
        assert_eq!(place.compared(), Compared::First(tensors), "another model");
    }

    #[test]
    fn an_idle_thread_remembers() {
        let place = Place::new();
        std::thread::sleep(Duration::from_millis(2100));
        assert!(!place.is_trusted());
        Remembered::new(&Model::open(&place.model()).unwrap(), &place.cache).unwrap().watch();
        while !place.is_trusted() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_published_digest_decides() {
        let place = Place::new();
        let model = Model::open(&place.model()).unwrap();
        let published = |digest: String| Remembered {
            published: vec![(place.model(), digest)],
            ..Remembered::new(&model, &place.cache).unwrap()
        };
        let right = sha256_of(&place.model()).unwrap();
        assert!(matches!(published(right.clone()).compare(), Ok(Compared::Same(_))));
        let Ok(Compared::Differs(how)) = published("0".repeat(64)).compare() else { panic!("not published") };
        assert!(how.contains(&right) && how.contains("fetch the model again"), "{how}");
    }
}
