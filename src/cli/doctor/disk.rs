//! How fast a model's file is read from its disk, past the system's cache.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use yggc::storage::{open_direct, read_at};

/// Bytes of a read: as many as make a read long compared with its beginning.
const PART: usize = 4 << 20;
/// Where reads begin in memory and in the file.
const PAGE: usize = 4096;
const ENOUGH_BYTES: u64 = 256 << 20;
const ENOUGH_TIME: Duration = Duration::from_secs(1);

/// The model's file, or the largest of its folder.
pub(super) fn largest_file(model: &Path) -> Option<PathBuf> {
    if model.is_file() {
        return Some(model.to_owned());
    }
    let files = fs::read_dir(model).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.max_by_key(|file| fs::metadata(file).map_or(0, |found| found.len()))
}

/// The speed of one reader that passes the system's cache by; `None` where the file system offers no such reads, or the
/// file is shorter than one.
#[expect(clippy::disallowed_methods, reason = "the speed of a disk is what is measured")]
pub(super) fn bytes_per_s(file: &Path) -> Option<f64> {
    let (file, is_direct) = open_direct(file).ok()?;
    if !is_direct || file.metadata().ok()?.len() < PART as u64 {
        return None;
    }
    let mut buffer = vec![0; PART + PAGE];
    let start = buffer.as_ptr().align_offset(PAGE);
    let part = buffer.get_mut(start..start + PART)?;
    let (begun, mut read) = (Instant::now(), 0_u64);
    while read < ENOUGH_BYTES && begun.elapsed() < ENOUGH_TIME {
        let count = read_at(&file, part, read).ok()?;
        read += count as u64;
        if count < PART {
            break;
        }
    }
    Some(read as f64 / begun.elapsed().as_secs_f64())
}
