//! Profiles, and the plans that are searched from them.

use ygg_profiler::{Profile, UnixTime};
use yggc::{
    measure::profile_file::{self, PROFILE_FORMAT},
    plan,
    planner::{Fix, plan_from_profile},
};

use super::sealed::Seal;

const SEAL: Seal = Seal { magic: b"YGGPROF\0", version: PROFILE_FORMAT };

/// Largest number in a drafter's parameters with which it is replayed: more is memory that a profile may ask for, and
/// not searched here.
const MOST: u32 = 1 << 12;
/// Most recorded tokens and measured cells that are replayed.
const MOST_RECORDED: usize = 1 << 10;

/// Reads a profile file in the form of [`Seal::deflated_file`], writes it again and plans from it.
pub fn check(input: &[u8]) -> bool {
    let Ok(profile) = profile_file::decode(&SEAL.deflated_file(input)) else { return false };
    let written = profile_file::encode(&profile).expect("a profile that was read can be written");
    assert_eq!(profile_file::decode(&written).expect("what was written can be read"), profile);
    if is_small(&profile)
        && let Ok(plan) = plan_from_profile(&profile, &Fix::default(), UnixTime::default())
    {
        plan::encode(&plan).expect("a plan that was made can be written");
    }
    true
}

fn is_small(profile: &Profile) -> bool {
    let parameters = profile.drafters.iter().flat_map(|drafter| drafter.parameters.values().flatten());
    let recorded: usize =
        profile.token_traces.iter().map(|trace| trace.prompt.len() + trace.output.len()).sum();
    // A store would be looked for where the profile says.
    let needs_no_file = profile.drafters.iter().all(|drafter| drafter.file.is_none());
    needs_no_file
        && parameters.copied().all(|number| number <= MOST)
        && recorded + profile.measurements.len() <= MOST_RECORDED
}
