//! Packed weights on their way to a file and back: what backends and the sources of weights tell each other.

use std::{fs::File, io, panic::RefUnwindSafe, path::PathBuf, sync::Arc};

/// Names how a backend has packed weights: which, in what order, in which layout.
pub type PackedDigest = [u8; 32];

/// Bytes that were kept, the same ones as long as this lives; the first is aligned to [`KEPT_ALIGNMENT`].
pub type KeptBytes = Arc<dyn AsRef<[u8]> + Send + Sync + RefUnwindSafe>;

/// Where parts of kept weights begin: multiples of this, one after the other.
pub const KEPT_ALIGNMENT: usize = 64;

/// Packed weights, part by part: they need not be in memory at once.
pub trait PackedParts {
    /// Bytes of every part.
    fn sizes(&self) -> &[usize];

    /// Hands the bytes of a part to `write`.
    ///
    /// # Errors
    /// What `write` returns, or why the part cannot be packed.
    fn part(&mut self, part: usize, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// Parts that are in memory.
#[derive(Debug)]
pub struct PartsInMemory<'a> {
    parts: &'a [&'a [u8]],
    sizes: Vec<usize>,
}

impl<'a> PartsInMemory<'a> {
    /// These parts.
    pub fn new(parts: &'a [&'a [u8]]) -> Self {
        Self { parts, sizes: parts.iter().map(|part| part.len()).collect() }
    }
}

impl PackedParts for PartsInMemory<'_> {
    fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    fn part(&mut self, part: usize, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        write(self.parts[part])
    }
}

/// A file of packed weights that is open to be read again and again.
#[derive(Debug)]
pub struct PackedFile {
    /// The file.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
    /// Where its first part begins: a multiple of a page.
    pub start: u64,
    /// Whether reads pass the system's cache by, so that they have to begin and end at pages.
    pub is_direct: bool,
}
