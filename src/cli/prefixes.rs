//! Kept prefixes of commands that answer: how much of memory and disk they take, and where.

use std::{fs, path::Path, sync::Arc};

use yggc::{
    prefix::{PrefixDisk, PrefixLimits, PrefixStore, prefix_files},
    storage::free_bytes,
};

use crate::cli::{args::PrefixArgs, cache::CachePlace, error::Failure, output, settings::Machine};

/// Default limit in memory: an eighth of what is free, as models and other programs need the rest, and at most this,
/// some ten long conversations of a small model.
const MOST_MEMORY: u64 = 2 << 30;
/// Default limit on disk: a tenth of what is free without it, and at most this, some hundred of them.
const MOST_DISK: u64 = 8 << 30;

/// Where prefixes are kept, as the arguments say; `None` if nowhere.
///
/// # Errors
/// [`Failure::Input`] if a disk was asked for and there is no cache folder.
pub(crate) fn store(
    args: &PrefixArgs,
    machine: Machine,
    cache: &CachePlace,
) -> Result<Option<Arc<PrefixStore>>, Failure> {
    // A budget for everything has no room for more unless that was asked for.
    let is_usual = machine.memory.is_none();
    let of_memory = || yggc::storage::free_memory().map_or(0, |free| (free as u64 / 8).min(MOST_MEMORY));
    let memory_bytes = args.prefix_memory.unwrap_or_else(|| if is_usual { of_memory() } else { 0 });
    let disk = match args.prefix_disk {
        Some(0) => None,
        Some(bytes) => Some(PrefixDisk { folder: cache.dir()?.prefixes(), bytes }),
        None if is_usual => cache.dir().ok().map(|cache| {
            let folder = cache.prefixes();
            PrefixDisk { bytes: share_of_disk(&folder), folder }
        }),
        None => None,
    };
    if memory_bytes == 0 && disk.is_none() {
        return Ok(None);
    }
    let limits = PrefixLimits { memory_bytes, disk };
    Ok(Some(Arc::new(PrefixStore::open(&limits, |note| output::remark(format_args!("warning: {note}"))))))
}

/// The usual limit of a folder of prefixes, which need not exist.
fn share_of_disk(folder: &Path) -> u64 {
    let held: u64 = prefix_files(folder).map_or(0, |files| files.iter().map(|file| file.bytes).sum());
    // Of the nearest folder that there is.
    let place = folder.ancestors().find(|place| fs::metadata(place).is_ok());
    let free = place.and_then(free_bytes);
    free.map_or(MOST_DISK, |free| (free.saturating_add(held) / 10).min(MOST_DISK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Environment;

    fn place(flag: Option<&Path>) -> CachePlace {
        CachePlace {
            flag: flag.map(Path::to_owned),
            environment: Environment::default(),
            keeps_packed: true,
            packed_limit: None,
        }
    }

    #[test]
    fn what_is_switched_off_is_off_and_what_is_asked_for_needs_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (with, without) = (place(Some(folder.path())), place(None));
        let args = |prefix_memory, prefix_disk| PrefixArgs { prefix_memory, prefix_disk };
        let machine = Machine::whole();
        assert!(store(&args(Some(0), Some(0)), machine, &with).unwrap().is_none());
        assert!(store(&args(Some(1 << 20), Some(0)), machine, &without).unwrap().is_some());
        assert!(store(&args(None, None), machine, &with).unwrap().is_some());
        let error = store(&args(Some(0), Some(1 << 20)), machine, &without).unwrap_err();
        assert!(error.to_string().contains("--cache-dir"), "{error}");
        let within = machine.within_memory(Some(1 << 30), None).unwrap();
        assert!(store(&args(None, None), within, &with).unwrap().is_none());
        assert!(store(&args(Some(1 << 20), None), within, &with).unwrap().is_some());
    }

    #[test]
    fn the_usual_share_is_of_the_disk_that_the_folder_will_be_on() {
        let folder = tempfile::tempdir().unwrap();
        let share = share_of_disk(&folder.path().join("a/b/prefixes"));
        assert!(share > 0 && share <= MOST_DISK, "{share}");
    }
}
