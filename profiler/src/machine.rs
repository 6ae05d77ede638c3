//! What identifies the machine a profile was measured on.
use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    fingerprint::{Difference, compare},
    processor::cpuinfo,
};

/// Processor features that decide which kernels run or how fast; the rest of the flags come and go with kernel
/// versions.
const RELEVANT_FLAGS: &[&str] = &[
    "amx_bf16",
    "amx_complex",
    "amx_fp16",
    "amx_int8",
    "amx_tile",
    "asimd",
    "asimddp",
    "asimdhp",
    "avx",
    "avx2",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512f",
    "avx512vbmi",
    "avx512vl",
    "avx_vnni",
    "bf16",
    "bmi2",
    "f16c",
    "fma",
    "i8mm",
    "sse4_2",
    "sve",
    "sve2",
];

/// The machine as far as it decides latencies: two equal fingerprints may share a profile.
///
/// Absent facts are empty strings or `None`, never guesses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFingerprint {
    /// Processor vendor.
    pub vendor: String,
    /// Processor family.
    pub family: String,
    /// Processor model number.
    pub model: String,
    /// Processor stepping or revision.
    pub stepping: String,
    /// Processor name as it calls itself.
    pub name: String,
    /// Relevant processor features, ascending.
    pub flags: Vec<String>,
    /// Worker threads that replay a program.
    pub threads: u32,
    /// The kernel tier in use, as its owner names it.
    pub isa: String,
    /// The accelerator in use, if any.
    pub gpu: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// Most bytes of weights in memory; all without it.
    pub resident_bytes: Option<u64>,
}

impl MachineFingerprint {
    /// The fingerprint of the machine we run on, without an accelerator.
    ///
    /// # Errors
    /// [`MachineError`] if the processor cannot be identified: on Linux by `/proc/cpuinfo`, on macOS by `sysctl`, on
    /// Windows by itself.
    pub fn of_this_machine(threads: u32, isa: &str) -> Result<Self, MachineError> {
        MachineFingerprint::from_cpuinfo(&cpuinfo().map_err(MachineError::Unreadable)?, threads, isa)
    }

    /// The fingerprint described by the text of a `/proc/cpuinfo` (x86 or Arm), without an accelerator.
    ///
    /// # Errors
    /// [`MachineError::NoProcessor`] if the text names no vendor or implementer.
    pub fn from_cpuinfo(text: &str, threads: u32, isa: &str) -> Result<Self, MachineError> {
        let field = |names: [&str; 2]| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| names.contains(&key.trim()))
                .map(|(_, value)| value.trim().to_owned())
        };
        let vendor = field(["vendor_id", "CPU implementer"]).ok_or(MachineError::NoProcessor)?;
        let flags: BTreeSet<String> = field(["flags", "Features"])
            .unwrap_or_default()
            .split_whitespace()
            .filter(|flag| RELEVANT_FLAGS.contains(flag))
            .map(str::to_owned)
            .collect();
        Ok(MachineFingerprint {
            vendor,
            family: field(["cpu family", "CPU architecture"]).unwrap_or_default(),
            model: field(["model", "CPU part"]).unwrap_or_default(),
            stepping: field(["stepping", "CPU revision"]).unwrap_or_default(),
            name: field(["model name", "Processor"]).unwrap_or_default(),
            flags: flags.into_iter().collect(),
            threads,
            isa: isa.to_owned(),
            gpu: None,
            driver: None,
            resident_bytes: None,
        })
    }

    /// Every fact as (name, value), in a fixed order.
    fn facts(&self) -> [(&'static str, String); 11] {
        let MachineFingerprint {
            vendor,
            family,
            model,
            stepping,
            name,
            flags,
            threads,
            isa,
            gpu,
            driver,
            resident_bytes,
        } = self;
        let or_none = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "none".to_owned());
        [
            ("processor vendor", vendor.clone()),
            ("processor family", family.clone()),
            ("processor model", model.clone()),
            ("processor stepping", stepping.clone()),
            ("processor name", name.clone()),
            ("processor features", flags.join(" ")),
            ("threads", threads.to_string()),
            ("kernel tier", isa.clone()),
            ("gpu", or_none(gpu)),
            ("driver", or_none(driver)),
            ("weights in memory", resident_bytes.map_or("all".to_owned(), |bytes| format!("{bytes} bytes"))),
        ]
    }

    /// BLAKE3 over every fact, in hexadecimal.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, value) in self.facts() {
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            hasher.update(&(value.len() as u64).to_le_bytes()).update(value.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The facts in which `found` differs from this, the expected machine.
    pub fn differences(&self, found: &Self) -> Vec<Difference> {
        self.facts()
            .into_iter()
            .zip(found.facts())
            .filter_map(|((name, expected), (_, found))| compare(name, &expected, &found))
            .collect()
    }
}

impl fmt::Display for MachineFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { &self.vendor } else { &self.name };
        write!(
            f,
            "{name} (family {}, model {}, stepping {}), {} threads, {}",
            self.family, self.model, self.stepping, self.threads, self.isa
        )?;
        if let Some(gpu) = &self.gpu {
            write!(f, ", {gpu}")?;
        }
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        if let Some(bytes) = self.resident_bytes {
            write!(f, ", {bytes} bytes of weights in memory")?;
        }
        Ok(())
    }
}

/// Why the machine could not be identified.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// What identifies the processor cannot be read.
    #[error(
        "cannot read what identifies the processor: run on Linux with /proc mounted, on macOS with /usr/sbin/sysctl, \
         or on Windows on x86-64"
    )]
    Unreadable(#[source] std::io::Error),
    /// The text names no processor.
    #[error("/proc/cpuinfo names no processor: expected a `vendor_id` or `CPU implementer` line, found none")]
    NoProcessor,
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
        model name\t: Intel(R) Xeon(R)\nstepping\t: 8\nflags\t\t: fpu fma avx2 amx_tile avx\n\nprocessor\t: 1\n\
        vendor_id\t: Other\n";
    const ARM: &str = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU architecture: 8\n\
        CPU part\t: 0xd40\nCPU revision\t: 1\n";

    #[test]
    fn cpuinfo_of_both_architectures_is_read() {
        let x86 = MachineFingerprint::from_cpuinfo(X86, 2, "amx").unwrap();
        assert_eq!(x86.flags, ["amx_tile", "avx", "avx2", "fma"]);
        assert_eq!(x86.to_string(), "Intel(R) Xeon(R) (family 6, model 143, stepping 8), 2 threads, amx");
        let within = MachineFingerprint { resident_bytes: Some(5000), ..x86 };
        assert!(within.to_string().ends_with(", 2 threads, amx, 5000 bytes of weights in memory"));
        let arm = MachineFingerprint::from_cpuinfo(ARM, 4, "portable").unwrap();
        assert_eq!((arm.vendor.as_str(), arm.model.as_str(), arm.flags.len()), ("0x41", "0xd40", 2));
        assert!(matches!(
            MachineFingerprint::from_cpuinfo("hello\n", 1, "portable"),
            Err(MachineError::NoProcessor)
        ));
    }

    #[test]
    fn every_fact_counts_in_digest_and_differences() {
        let base = MachineFingerprint::from_cpuinfo(X86, 2, "amx").unwrap();
        assert!(base.differences(&base).is_empty());
        let changes: [fn(&mut MachineFingerprint); 11] = [
            |m| m.vendor.push('x'),
            |m| m.family.push('x'),
            |m| m.model.push('x'),
            |m| m.stepping.push('x'),
            |m| m.name.push('x'),
            |m| m.flags.truncate(1),
            |m| m.threads = 1,
            |m| m.isa.push('x'),
            |m| m.gpu = Some("H200".into()),
            |m| m.driver = Some("580".into()),
            |m| m.resident_bytes = Some(1 << 30),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(base.digest(), other.digest());
            let differences = base.differences(&other);
            assert_eq!(differences.len(), 1);
            assert_eq!(differences[0].name, base.facts()[i].0);
        }
    }

    #[test]
    fn this_machine_has_a_fingerprint() {
        let here = MachineFingerprint::of_this_machine(2, "portable").unwrap();
        assert!(!here.vendor.is_empty());
        assert_eq!(here.digest(), MachineFingerprint::of_this_machine(2, "portable").unwrap().digest());
    }
}
