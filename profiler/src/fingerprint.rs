//! What binds a measurement to a machine, a model and a build, and how two bindings are compared.
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::MachineFingerprint;

/// The machine, the model and the build that something was measured with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprints {
    /// Where.
    pub machine: MachineFingerprint,
    /// With which verifier.
    pub model: ModelFingerprint,
    /// By which kernels.
    pub build: BuildFingerprint,
}

/// A model, by a digest its owner computes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFingerprint {
    /// What people call it; never compared.
    pub name: String,
    /// Digest of header, tensor table and sampled blocks.
    pub digest: String,
}

/// A build: what decides plans and latencies in it, not its commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFingerprint {
    /// Version of the plan format.
    pub plan_format: u32,
    /// Digest of the set of kernels.
    pub kernels: String,
    /// The formats that drafter models are read in, as their reader says it.
    pub draft_formats: String,
}

/// One fact that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs.
    pub name: String,
    /// What was recorded.
    pub expected: String,
    /// What is here.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected `{}`, found `{}`", self.name, self.expected, self.found)
    }
}

impl Fingerprints {
    /// The facts in which `found` differs from these, the expected ones.
    pub fn differences(&self, found: &Self) -> Vec<Difference> {
        let Fingerprints { machine, model, build } = self;
        let mut differences = machine.differences(&found.machine);
        let ModelFingerprint { name: _, digest } = model;
        if *digest != found.model.digest {
            let describe = |m: &ModelFingerprint| format!("{} {}", m.name, m.digest);
            differences.push(Difference {
                name: "model".to_owned(),
                expected: describe(model),
                found: describe(&found.model),
            });
        }
        let BuildFingerprint { plan_format, kernels, draft_formats } = build;
        differences.extend(compare(
            "plan format",
            &plan_format.to_string(),
            &found.build.plan_format.to_string(),
        ));
        differences.extend(compare("kernel set", kernels, &found.build.kernels));
        differences.extend(compare("formats of drafter models", draft_formats, &found.build.draft_formats));
        differences
    }
}

/// The difference between two values of one fact, if there is one.
pub(crate) fn compare(name: &str, expected: &str, found: &str) -> Option<Difference> {
    (expected != found).then(|| Difference {
        name: name.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    })
}
