//! Packed weights on their way to a file and back: what backends and this room tell each other.

use std::{fs::File, io, panic::RefUnwindSafe, path::PathBuf, sync::Arc};

use crate::storage::read_at;

/// Names how a backend has packed weights: which, in what order, in which layout. All but the weights that decides the
/// packed bytes.
pub type PackedDigest = [u8; 32];

/// Bytes that were kept, the same ones as long as this lives; the first is aligned to [`KEPT_ALIGNMENT`].
pub type KeptBytes = Arc<dyn AsRef<[u8]> + Send + Sync + RefUnwindSafe>;

/// Where parts of kept weights begin: multiples of this, one after the other. Of a page, since reads that pass the
/// system's cache by begin at pages, and a part may be read to any place.
pub const KEPT_ALIGNMENT: usize = 4096;

/// Takes bytes of a part, in order.
pub type Append<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Packs the part of a number, and hands its bytes on: parts need not be in memory at once. Its errors are the taker's,
/// or why the part cannot be packed.
pub type PackPart<'a> = dyn FnMut(usize, &mut Append<'_>) -> io::Result<()> + 'a;

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

impl PackedFile {
    /// Reads bytes from `offset` on, at least one unless the file ends there; how many.
    ///
    /// # Errors
    /// What the system says.
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at(&self.file, to, offset)
    }
}
