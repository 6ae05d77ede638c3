//! What processor this is, in the words of Linux's `/proc/cpuinfo`, whatever the system.

use std::io;

/// The text of `/proc/cpuinfo`.
///
/// # Errors
/// If it cannot be read.
#[cfg(not(any(target_os = "macos", all(windows, target_arch = "x86_64"))))]
pub(crate) fn cpuinfo() -> io::Result<String> {
    std::fs::read_to_string("/proc/cpuinfo")
}

/// As Linux says it, by what `sysctl` says. A name that this system lacks is left out.
#[cfg(target_os = "macos")]
pub(crate) fn cpuinfo() -> io::Result<String> {
    let output = std::process::Command::new("/usr/sbin/sysctl").args(SYSCTL).output()?;
    Ok(by_sysctl(&String::from_utf8_lossy(&output.stdout)))
}

/// Names of a processor and of its features.
#[cfg(any(target_os = "macos", test))]
const SYSCTL: [&str; 6] = [
    "machdep.cpu.brand_string",
    "hw.cpufamily",
    "hw.cpusubfamily",
    "hw.optional.arm.FEAT_DotProd",
    "hw.optional.arm.FEAT_I8MM",
    "hw.optional.arm.FEAT_BF16",
];

/// The lines that identify an Apple processor, from lines `NAME: VALUE`.
#[cfg(any(target_os = "macos", test))]
fn by_sysctl(said: &str) -> String {
    let [name, family, subfamily, dot, i8mm, bf16] = SYSCTL.map(|name| {
        let value =
            |line: &str| Some(line.split_once(':').filter(|(key, _)| *key == name)?.1.trim().to_owned());
        said.lines().find_map(value).unwrap_or_default()
    });
    let has = [(&dot, "asimddp"), (&i8mm, "i8mm"), (&bf16, "bf16")];
    let features: Vec<&str> =
        has.into_iter().filter(|(value, _)| *value == "1").map(|(_, flag)| flag).collect();
    format!(
        "CPU implementer\t: Apple\nCPU architecture: {family}\nCPU part\t: {subfamily}\nProcessor\t: {name}\n\
         Features\t: {}\n",
        features.join(" ")
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineFingerprint;

    #[test]
    fn an_apple_processor_is_identified_by_what_sysctl_says() {
        let said = "machdep.cpu.brand_string: Apple M2 Pro\nhw.cpufamily: -634136515\nhw.cpusubfamily: 4\n\
                    hw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_I8MM: 1\n";
        let found = MachineFingerprint::from_cpuinfo(&by_sysctl(said), 8, "neon").unwrap();
        let facts = [&found.vendor, &found.name, &found.family, &found.model];
        assert_eq!(facts, ["Apple", "Apple M2 Pro", "-634136515", "4"]);
        assert_eq!(found.flags, ["asimddp", "i8mm"]);
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
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
