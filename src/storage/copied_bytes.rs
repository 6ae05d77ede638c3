//! Bytes in memory of this process's own, copied from a map by all processors.

use std::{fmt, io, num::NonZero, thread};

use memmap2::{Mmap, MmapMut};

/// Threads that copy, at most: a few reach the bandwidth of the memory.
const MOST_THREADS: usize = 8;
/// Each thread begins at a multiple of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A copy in huge pages, where the system grants them: a processor walks fewer page tables for it than for a mapped
/// file, whose pages are small on most file systems.
pub struct CopiedBytes {
    map: Mmap,
}

impl CopiedBytes {
    /// Copies.
    ///
    /// # Errors
    /// What the system says if it refuses the memory.
    pub fn of(bytes: &[u8]) -> io::Result<Self> {
        let mut map = MmapMut::map_anon(bytes.len())?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        let share = bytes.len().div_ceil(threads).next_multiple_of(HUGE_PAGE);
        thread::scope(|scope| {
            let mut shares = map.chunks_mut(share).zip(bytes.chunks(share));
            let own = shares.next();
            for (to, from) in shares {
                let copy = thread::Builder::new().spawn_scoped(scope, || to.copy_from_slice(from));
                copy.map(drop)?;
            }
            if let Some((to, from)) = own {
                to.copy_from_slice(from);
            }
            Ok::<_, io::Error>(())
        })?;
        Ok(Self { map: map.make_read_only()? })
    }
}

impl AsRef<[u8]> for CopiedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl fmt::Debug for CopiedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopiedBytes({})", self.map.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_whatever_the_shares() {
        for len in [1, HUGE_PAGE - 1, HUGE_PAGE + 1, 9 * HUGE_PAGE + 5] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            assert!(CopiedBytes::of(&bytes).unwrap().as_ref() == bytes, "{len} bytes");
        }
    }
}
