//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use ygg_profiler::Profile;

use crate::{
    engine::Error,
    plan::{DrafterKind, Fix, FreeDrafter, Plan, make_plan},
    speculate::{Lookup, Shape, Suffix},
};

/// Depths of lookup that are tried.
const DEPTHS: [u32; 7] = [1, 2, 3, 5, 7, 11, 15];
/// Numbers of continuations that are tried.
const BRANCHES: [u32; 3] = [1, 2, 3];

/// Depths and numbers of continuations that are tried of drafters that remember requests, whose replays are slower.
const REMEMBERING: ([u32; 4], [u32; 2]) = ([2, 4, 7, 11], [1, 3]);

/// Searches the plan that a profile speaks for, within what `fix` leaves open.
///
/// # Errors
/// [`Error`] of kind `Input` when the profile cannot be used or nothing satisfies the fix.
pub fn plan_from_profile(profile: &Profile, fix: &Fix) -> Result<Plan, Error> {
    let (mut lookups, mut suffixes) = (Vec::new(), Vec::new());
    for description in &profile.drafters {
        let name = description.name.clone();
        match DrafterKind::from_description(description)? {
            // The search gives the limits with every proposal.
            DrafterKind::Lookup { longest_match, shortest_match } => {
                let lookup = Lookup::new(longest_match as usize, shortest_match as usize, &Shape::PLAIN)?;
                lookups.push((name, lookup));
            }
            DrafterKind::Suffix(settings) => suffixes.push((name, Suffix::new(settings, &Shape::PLAIN))),
            DrafterKind::None
            | DrafterKind::LayerSkip { .. }
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_) => {}
        }
    }
    let lookups = lookups.iter_mut().map(|(name, drafter)| FreeDrafter {
        name: name.clone(),
        drafter,
        depths: DEPTHS.to_vec(),
        widths: BRANCHES.to_vec(),
    });
    let (depths, widths) = REMEMBERING;
    let suffixes = suffixes.iter_mut().map(|(name, drafter)| FreeDrafter {
        name: name.clone(),
        drafter,
        depths: depths.to_vec(),
        widths: widths.to_vec(),
    });
    let mut free: Vec<FreeDrafter<'_>> = lookups.chain(suffixes).collect();
    Ok(make_plan(profile, &mut free, fix)?)
}
