//! What the system says of itself, as far as it decides how fast forwards are. Absent facts are `None`, never guesses.

use std::{
    fs,
    path::{Path, PathBuf},
};

use yggc::engine::default_threads;

/// Facts of a Linux system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    /// What the processor calls itself.
    pub(super) processor: Option<String>,
    /// Processors that this process may use.
    pub(super) processors: usize,
    /// Bytes of the largest cache that the first processor reads through.
    pub(super) last_cache_bytes: Option<u64>,
    /// Bytes of memory in all.
    pub(super) memory_bytes: Option<u64>,
    /// When the system uses huge pages: `always`, `madvise` or `never`.
    pub(super) huge_pages: Option<String>,
    /// The rule by which the clock of the first processor is chosen.
    pub(super) governor: Option<String>,
    /// Processors' worth of time that the container may use, if it is limited.
    pub(super) quota: Option<f64>,
}

impl System {
    /// Reads what is below `root`.
    pub(super) fn at(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let cpu = root.join("sys/devices/system/cpu/cpu0");
        Self {
            processor: read("proc/cpuinfo").and_then(|text| field(&text, &["model name", "Processor"])),
            processors: default_threads(),
            last_cache_bytes: last_cache(&cpu.join("cache")),
            memory_bytes: read("proc/meminfo").and_then(|text| {
                let kib = field(&text, &["MemTotal"])?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
                kib.checked_mul(1024)
            }),
            huge_pages: read("sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
            governor: fs::read_to_string(cpu.join("cpufreq/scaling_governor"))
                .ok()
                .map(|text| text.trim().to_owned()),
            quota: read("sys/fs/cgroup/cpu.max").and_then(|text| quota(&text)),
        }
    }
}

/// The value of the first of lines `NAME: VALUE` with one of these names.
fn field(text: &str, names: &[&str]) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(name, _)| names.contains(&name.trim()));
    values.next().map(|(_, value)| value.trim().to_owned())
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Processors' worth of `QUOTA PERIOD`; none of `max PERIOD`.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then_some(quota / period)
}

/// The size of the cache of the highest level.
fn last_cache(folder: &Path) -> Option<u64> {
    let read = |index: &Path, name: &str| fs::read_to_string(index.join(name)).ok();
    let of = |index: PathBuf| {
        let level: u32 = read(&index, "level")?.trim().parse().ok()?;
        let size = read(&index, "size")?;
        let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
        Some((level, kib.checked_mul(1024)?))
    };
    let found = fs::read_dir(folder).ok()?.filter_map(|entry| of(entry.ok()?.path()));
    found.max().map(|(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_read_from_its_files_and_what_is_missing_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let nothing = System::at(root.path());
        assert_eq!((nothing.processor, nothing.last_cache_bytes, nothing.memory_bytes), (None, None, None));
        assert_eq!((nothing.huge_pages, nothing.governor, nothing.quota), (None, None, None));
        write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\n\nmodel name\t: Another\n");
        write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");
        write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        write("sys/fs/cgroup/cpu.max", "150000 100000\n");
        let cpu = "sys/devices/system/cpu/cpu0";
        write(&format!("{cpu}/cpufreq/scaling_governor"), "powersave\n");
        for (index, level, size) in [(0, "1", "48K"), (3, "3", "32768K"), (2, "2", "2048K")] {
            write(&format!("{cpu}/cache/index{index}/level"), level);
            write(&format!("{cpu}/cache/index{index}/size"), size);
        }
        let found = System::at(root.path());
        assert_eq!(found.processor.as_deref(), Some("A Processor"));
        assert_eq!((found.last_cache_bytes, found.memory_bytes), (Some(32 << 20), Some(2 << 20)));
        assert_eq!(found.huge_pages.as_deref(), Some("madvise"));
        assert_eq!((found.governor.as_deref(), found.quota), (Some("powersave"), Some(1.5)));
        write("sys/fs/cgroup/cpu.max", "max 100000\n");
        assert_eq!(System::at(root.path()).quota, None);
    }
}
