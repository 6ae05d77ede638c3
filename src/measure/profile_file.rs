//! The profile file: a [sealed file](crate::storage::Seal) of a [`Profile`], its recorded steps in columns.
use std::{io, path::Path};

use serde::{Deserialize, Serialize};
use ygg_profiler::{LivePrompt, LiveTrace, Profile, ProfileError, PromptTrace, Trace};

use crate::storage::{Seal, SealError, replace_file};

use self::columns::{LiveColumns, StepColumns};

mod columns;
#[cfg(test)]
mod tests;

/// The version of the format this build reads and writes; it changes with every field of [`Profile`] and with the
/// layout of the columns.
pub const PROFILE_FORMAT: u32 = 4;

const SEAL: Seal = Seal { magic: b"YGGPROF\0", format: PROFILE_FORMAT, most_payload_bytes: 256 << 20 };

/// Why a profile file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileFileError {
    /// The file system refused.
    #[error("cannot {action} the profile `{path}`")]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The content of a file is not one, or not valid.
    #[error("profile file `{path}`: {reason}")]
    InFile {
        /// The file.
        path: String,
        /// Why.
        reason: Box<ProfileFileError>,
    },
    /// The bytes are a text: profiles of former versions are JSON.
    #[error(
        "not a usable profile: expected a file of format {PROFILE_FORMAT}, found JSON, which former versions wrote; \
         measure again with `yggc profile`"
    )]
    Json,
    /// The bytes are not a whole, unchanged profile of this build's format.
    #[error("not a usable profile: {0}; measure again with `yggc profile`")]
    Sealed(#[from] SealError),
    /// The parts of the profile contradict each other.
    #[error(transparent)]
    Invalid(#[from] ProfileError),
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The profile, its traces without their steps.
    outline: Profile,
    steps: StepColumns,
    live_steps: LiveColumns,
}

/// The bytes of a profile file.
///
/// # Errors
/// [`ProfileFileError`] if the profile is not valid or larger than any reader accepts.
pub fn encode(profile: &Profile) -> Result<Vec<u8>, ProfileFileError> {
    profile.validate()?;
    let content = Content {
        outline: outline(profile),
        steps: StepColumns::of(&profile.traces),
        live_steps: LiveColumns::of(&profile.live_traces),
    };
    Ok(SEAL.encode_deflated(&content)?)
}

/// The profile in the bytes of a profile file, validated.
///
/// # Errors
/// [`ProfileFileError`] says in what the bytes are not a whole, unchanged, valid profile of this format.
pub fn decode(bytes: &[u8]) -> Result<Profile, ProfileFileError> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Err(ProfileFileError::Json);
    }
    let Content { outline: mut profile, steps, live_steps } = SEAL.decode_deflated(bytes)?;
    steps.fill(&mut profile.traces)?;
    live_steps.fill(&mut profile.live_traces)?;
    profile.validate()?;
    Ok(profile)
}

/// Writes a profile to `path`, replacing the whole file or nothing.
///
/// # Errors
/// [`ProfileFileError`] if the profile cannot be encoded or the file not written.
pub fn write(profile: &Profile, path: &Path) -> Result<(), ProfileFileError> {
    let bytes = encode(profile).map_err(|reason| in_file(path, reason))?;
    replace_file(path, &bytes).map_err(|source| io_error("write", path, source))
}

/// Reads and validates the profile at `path`.
///
/// # Errors
/// [`ProfileFileError`] if the file cannot be read or [`decode`] refuses it.
pub fn read(path: &Path) -> Result<Profile, ProfileFileError> {
    let bytes = SEAL.read(path).map_err(|source| io_error("read", path, source))?;
    decode(&bytes).map_err(|reason| in_file(path, reason))
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> ProfileFileError {
    ProfileFileError::Io { action, path: path.display().to_string(), source }
}

fn in_file(path: &Path, reason: ProfileFileError) -> ProfileFileError {
    ProfileFileError::InFile { path: path.display().to_string(), reason: Box::new(reason) }
}

/// The profile without the steps of its traces, which are most of it.
fn outline(profile: &Profile) -> Profile {
    let Profile {
        created_by,
        measured_at,
        fingerprints,
        calibration,
        noise_threshold,
        memory,
        drafters,
        tunings,
        measurements,
        visits,
        traces,
        token_traces,
        live_traces,
        predictors,
    } = profile;
    let of_trace = |trace: &Trace| {
        let of_prompt = |prompt: &PromptTrace| PromptTrace { kind: prompt.kind.clone(), steps: Vec::new() };
        let Trace { drafter, temperature, draft_temperature, depth, width, top_k, prompts } = trace;
        Trace {
            drafter: drafter.clone(),
            temperature: *temperature,
            draft_temperature: *draft_temperature,
            depth: *depth,
            width: *width,
            top_k: *top_k,
            prompts: prompts.iter().map(of_prompt).collect(),
        }
    };
    let of_live_trace = |trace: &LiveTrace| {
        let of_prompt = |prompt: &LivePrompt| LivePrompt { kind: prompt.kind.clone(), steps: Vec::new() };
        let LiveTrace { drafter, temperature, depth, width, nodes, prompts } = trace;
        LiveTrace {
            drafter: drafter.clone(),
            temperature: *temperature,
            depth: *depth,
            width: *width,
            nodes: *nodes,
            prompts: prompts.iter().map(of_prompt).collect(),
        }
    };
    Profile {
        created_by: created_by.clone(),
        measured_at: *measured_at,
        fingerprints: fingerprints.clone(),
        calibration: calibration.clone(),
        noise_threshold: *noise_threshold,
        memory: memory.clone(),
        drafters: drafters.clone(),
        tunings: tunings.clone(),
        measurements: measurements.clone(),
        visits: visits.clone(),
        traces: traces.iter().map(of_trace).collect(),
        token_traces: token_traces.clone(),
        live_traces: live_traces.iter().map(of_live_trace).collect(),
        predictors: predictors.clone(),
    }
}
