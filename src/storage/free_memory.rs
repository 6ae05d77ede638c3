//! Memory that this process may still allocate: free memory, within the limits of shell and container.

/// Bytes that the system can provide without swapping, within the limits of the process; `None` if unknown.
pub fn free_memory() -> Option<usize> {
    system::free()
}

#[cfg(windows)]
mod system {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

    pub(super) fn free() -> Option<usize> {
        let mut status =
            MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..MEMORYSTATUSEX::default() };
        // SAFETY: the structure is ours and says its size.
        let is_known = unsafe { GlobalMemoryStatusEx(&raw mut status) } != 0;
        // What may be promised at all counts too: with a small page file that can be less.
        let free = status.ullAvailPhys.min(status.ullAvailPageFile).min(status.ullAvailVirtual);
        is_known.then(|| usize::try_from(free).unwrap_or(usize::MAX))
    }
}

#[cfg(not(windows))]
mod system {
    //! What Linux says in files; a system without them says nothing.

    use std::fs;

    pub(super) fn free() -> Option<usize> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let free = read("/proc/meminfo").and_then(|text| available(&text));
        let limited = read("/proc/self/limits")
            .zip(read("/proc/self/status"))
            .and_then(|(limits, status)| left_of_address_space(&limits, &status));
        let group = |name: &str| read(&format!("/sys/fs/cgroup/memory.{name}"));
        let contained = group("max")
            .zip(group("current").zip(group("stat")))
            .and_then(|(most, (taken, stat))| left_of_container(&most, &taken, &stat));
        [free, limited, contained].into_iter().flatten().min()
    }

    /// By `/proc/meminfo`.
    fn available(meminfo: &str) -> Option<usize> {
        kib(meminfo, "MemAvailable:")
    }

    /// What remains of `ulimit -v`, by `/proc/self/limits` and `/proc/self/status`.
    fn left_of_address_space(limits: &str, status: &str) -> Option<usize> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let most: usize = line.split_whitespace().next()?.parse().ok()?;
        Some(most.saturating_sub(kib(status, "VmSize:")?))
    }

    /// What remains of a container's memory, by `memory.max`, `memory.current` and `memory.stat` of its control group.
    /// The page cache counts as free.
    fn left_of_container(most: &str, taken: &str, stat: &str) -> Option<usize> {
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let of_files =
            |name: &str| stat.lines().find_map(|line| number(line.strip_prefix(name)?)).unwrap_or(0);
        let files = of_files("active_file ") + of_files("inactive_file ");
        Some(number(most)?.saturating_sub(number(taken)?.saturating_sub(files)))
    }

    /// A number of kilobytes after a name, in bytes.
    fn kib(text: &str, name: &str) -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn free_memory_is_read_or_unknown() {
            let meminfo = "MemTotal:       24736824 kB\nMemFree:  1 kB\nMemAvailable:   22021396 kB\n";
            assert_eq!(available(meminfo), Some(22_021_396 * 1024));
            for text in ["", "MemAvailable: many kB", "MemAvailable: 5 MB", "MemFree: 1 kB"] {
                assert_eq!(available(text), None, "{text}");
            }
        }

        #[test]
        fn limits_count_where_there_are_some() {
            let limits = |most: &str| {
                format!(
                    "Limit  Soft Limit  Hard Limit  Units\nMax address space         {most}   unlimited   bytes\n"
                )
            };
            let status = "Name:\tyggc\nVmSize:\t    1000 kB\n";
            assert_eq!(left_of_address_space(&limits("2048000"), status), Some(1024 * 1000));
            assert_eq!(left_of_address_space(&limits("10"), status), Some(0));
            assert_eq!(left_of_address_space(&limits("unlimited"), status), None);
            assert_eq!(left_of_address_space("", status), None);
            let stat = "anon 600\nfile 400\nactive_file 100\ninactive_file 200\n";
            assert_eq!(left_of_container("3000\n", "1000\n", stat), Some(2300));
            assert_eq!(left_of_container("3000\n", "9000\n", ""), Some(0));
            assert_eq!(left_of_container("max\n", "1000\n", stat), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_runs_this_has_memory_left() {
        let says = cfg!(any(target_os = "linux", windows));
        assert_eq!(free_memory().is_some_and(|bytes| bytes > 0), says);
    }
}
