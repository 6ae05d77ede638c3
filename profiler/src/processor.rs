//! What processor this is, in the words of Linux's `/proc/cpuinfo`, whatever the system.

use std::io;

/// The text of `/proc/cpuinfo`.
///
/// # Errors
/// If it cannot be read.
#[cfg(not(all(windows, target_arch = "x86_64")))]
pub(crate) fn cpuinfo() -> io::Result<String> {
    std::fs::read_to_string("/proc/cpuinfo")
}

/// As Linux says it, by the processor itself.
#[cfg(all(windows, target_arch = "x86_64"))]
pub(crate) fn cpuinfo() -> io::Result<String> {
    Ok(by_cpuid())
}

/// The lines that identify a processor, by its instruction CPUID (Intel, *Software Developer's Manual*, volume 2A;
/// AMD, *Architecture Programmer's Manual*, volume 3, appendix E). Features are those that the system lets programs
/// use. AMX is left out: the program uses no tiles on Windows.
#[cfg(all(target_arch = "x86_64", any(windows, all(test, target_os = "linux"))))]
fn by_cpuid() -> String {
    use std::arch::x86_64::{__cpuid, CpuidResult};

    fn text(words: impl IntoIterator<Item = u32>) -> String {
        let bytes: Vec<u8> =
            words.into_iter().flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    let CpuidResult { ebx, ecx, edx, .. } = __cpuid(0);
    let vendor = text([ebx, edx, ecx]);
    let signature = __cpuid(1).eax;
    let part = |at: u32, bits: u32| signature >> at & ((1 << bits) - 1);
    // The upper parts count only in these families.
    let family = if part(8, 4) == 15 { 15 + part(20, 8) } else { part(8, 4) };
    let model = if family >= 6 { part(16, 4) << 4 | part(4, 4) } else { part(4, 4) };
    let stepping = part(0, 4);
    let has_name = __cpuid(0x8000_0000).eax >= 0x8000_0004;
    let of_leaf = |CpuidResult { eax, ebx, ecx, edx }| [eax, ebx, ecx, edx];
    let name = if has_name {
        text((0x8000_0002..=0x8000_0004).flat_map(|leaf| of_leaf(__cpuid(leaf))))
    } else {
        String::new()
    };
    let flags = features();
    format!(
        "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n\
         stepping\t: {stepping}\nflags\t\t: {flags}\n"
    )
}

/// Features that decide which kernels run, under Linux's names.
#[cfg(all(target_arch = "x86_64", any(windows, all(test, target_os = "linux"))))]
fn features() -> String {
    macro_rules! found {
        ($($name:literal is $feature:tt),* $(,)?) => {
            [$((std::arch::is_x86_feature_detected!($feature), $name)),*]
        };
    }
    let all = found![
        "avx" is "avx",
        "avx2" is "avx2",
        "avx512_bf16" is "avx512bf16",
        "avx512_fp16" is "avx512fp16",
        "avx512_vnni" is "avx512vnni",
        "avx512bw" is "avx512bw",
        "avx512cd" is "avx512cd",
        "avx512dq" is "avx512dq",
        "avx512f" is "avx512f",
        "avx512vbmi" is "avx512vbmi",
        "avx512vl" is "avx512vl",
        "avx_vnni" is "avxvnni",
        "bmi2" is "bmi2",
        "f16c" is "f16c",
        "fma" is "fma",
        "sse4_2" is "sse4.2",
    ];
    let names: Vec<&str> = all.into_iter().filter(|(is_found, _)| *is_found).map(|(_, name)| name).collect();
    names.join(" ")
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::MachineFingerprint;

    #[test]
    fn the_processor_says_what_linux_says_of_it() {
        let of = |text: &str| MachineFingerprint::from_cpuinfo(text, 2, "portable").unwrap();
        let mut expected = of(&cpuinfo().unwrap());
        expected.flags.retain(|flag| !flag.starts_with("amx_"));
        let found = of(&by_cpuid());
        assert_eq!(expected, found);
        assert!(found.flags.iter().any(|flag| flag == "avx2") && !found.name.is_empty(), "{found:?}");
    }
}
