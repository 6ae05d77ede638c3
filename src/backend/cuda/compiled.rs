//! Kernels that NVRTC compiled, kept in a folder so that the next process need not.
//!
//! A file is named after everything that decides what is in it. It begins with a checksum of its name and the rest. A
//! file that is damaged or was made for other sources is replaced. A folder that cannot be read or written costs only
//! time.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use blake3::{Hash, Hasher, OUT_LEN};

use crate::storage::rename_over;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Keeps what is compiled from now on in `folder`, which need not exist yet, and takes it from there. Without this call
/// every opened model compiles its kernels. The first call of a process counts.
pub fn keep_compiled_kernels(folder: PathBuf) {
    FOLDER.get_or_init(|| folder);
}

/// What decides the result of a compilation.
pub(super) struct Recipe<'a> {
    /// Major and minor version of the compiler.
    pub(super) compiler: (i32, i32),
    pub(super) options: &'a [String],
    /// Names and texts.
    pub(super) sources: &'a [(&'a str, &'a str)],
}

impl Recipe<'_> {
    fn key(&self) -> Hash {
        let Self { compiler: (major, minor), options, sources } = self;
        let mut hasher = Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        add(&format!("{major}.{minor}, {} options", options.len()));
        options.iter().for_each(|option| add(option));
        for (name, text) in *sources {
            add(name);
            add(text);
        }
        hasher.finalize()
    }

    /// What was kept of this recipe, else what `compile` makes, kept.
    pub(super) fn kept_or<E>(&self, compile: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        match FOLDER.get() {
            Some(folder) => self.kept_in(folder, compile),
            None => compile(),
        }
    }

    fn kept_in<E>(&self, folder: &Path, compile: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        let key = self.key();
        let path = folder.join(format!("{}.cubin", key.to_hex()));
        if let Some(image) = fs::read(&path).ok().and_then(|file| opened(&key, file)) {
            return Ok(image);
        }
        let image = compile()?;
        // If it cannot be kept, the next process compiles again.
        let _is_kept = keep(&key, &path, &image);
        Ok(image)
    }
}

fn checksum(key: &Hash, image: &[u8]) -> Hash {
    Hasher::new().update(key.as_bytes()).update(image).finalize()
}

/// The image of a file, if it is whole and of this key.
fn opened(key: &Hash, mut file: Vec<u8>) -> Option<Vec<u8>> {
    let image = file.get(OUT_LEN..)?;
    if checksum(key, image).as_bytes()[..] != file[..OUT_LEN] {
        return None;
    }
    file.drain(..OUT_LEN);
    Some(file)
}

fn keep(key: &Hash, path: &Path, image: &[u8]) -> std::io::Result<()> {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // A name of its own for every thread and process that writes the same file.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_extension(format!("{}.{number}", std::process::id()));
    let file = [&checksum(key, image).as_bytes()[..], image].concat();
    let done = fs::write(&unfinished, file).and_then(|()| rename_over(&unfinished, path));
    if done.is_err() {
        let _is_gone = fs::remove_file(&unfinished);
    }
    done
}

#[cfg(test)]
mod tests {
    //! Files that are whole are taken; all others are made anew.

    use std::convert::Infallible;

    use super::*;

    fn recipe<'a>(options: &'a [String], sources: &'a [(&'a str, &'a str)]) -> Recipe<'a> {
        Recipe { compiler: (13, 0), options, sources }
    }

    /// Number of compilations after which `recipe` has its image.
    fn compilations(recipe: &Recipe<'_>, folder: &Path) -> usize {
        let mut count = 0;
        let image = recipe.kept_in(folder, || {
            count += 1;
            Ok::<_, Infallible>(b"image".to_vec())
        });
        assert_eq!(image, Ok(b"image".to_vec()));
        count
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable").path()).collect()
    }

    #[test]
    fn a_recipe_is_compiled_once_and_every_part_of_it_counts() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path().join("kernels");
        let options = [["-a", "-b"], ["-a", "-bc"]].map(|options| options.map(str::to_owned));
        let sources =
            [[("one", "text"), ("two", "")], [("one", "texts"), ("two", "")], [("on", "e"), ("text", "two")]];
        let newer = Recipe { compiler: (13, 1), ..recipe(&options[0], &sources[0]) };
        let recipes = [
            recipe(&options[0], &sources[0]),
            recipe(&options[1], &sources[0]),
            recipe(&options[0], &sources[1]),
            recipe(&options[0], &sources[2]),
            recipe(&options[0][..1], &sources[0]),
            newer,
        ];
        for expected in [1, 0] {
            for recipe in &recipes {
                assert_eq!(compilations(recipe, &folder), expected);
            }
        }
        assert_eq!(files(&folder).len(), recipes.len());
    }

    #[test]
    fn damaged_and_foreign_files_are_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [one, other] = [[("one", "text")], [("other", "text")]];
        let one = recipe(&[], &one);
        assert_eq!(compilations(&one, folder.path()), 1);
        let path = files(folder.path()).remove(0);
        let whole = fs::read(&path).expect("readable");
        let mut flipped = whole.clone();
        *flipped.last_mut().expect("not empty") ^= 1;
        compilations(&recipe(&[], &other), folder.path());
        let foreign = files(folder.path()).into_iter().find(|file| *file != path).expect("two files");
        let foreign = fs::read(foreign).expect("readable");
        for damaged in [&flipped[..], &whole[..whole.len() - 1], &whole[..OUT_LEN - 1], &[], &foreign] {
            fs::write(&path, damaged).expect("writable");
            assert_eq!(compilations(&one, folder.path()), 1);
            assert_eq!(fs::read(&path).expect("readable"), whole);
            assert_eq!(compilations(&one, folder.path()), 0);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        for _ in 0..2 {
            assert_eq!(compilations(&recipe(&[], &[("one", "text")]), &file.path().join("kernels")), 1);
        }
    }
}
