//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use ygg_profiler::Profile;

use crate::{
    engine::Error,
    plan::{DrafterKind, Fix, FreeDrafter, Plan, make_plan},
    speculate::{Lookup, Shape},
};

/// Depths of lookup that are tried.
const DEPTHS: [u32; 7] = [1, 2, 3, 5, 7, 11, 15];
/// Numbers of continuations that are tried.
const BRANCHES: [u32; 3] = [1, 2, 3];

/// Searches the plan that a profile speaks for, within what `fix` leaves open.
///
/// # Errors
/// [`Error`] of kind `Input` when the profile cannot be used or nothing satisfies the fix.
pub fn plan_from_profile(profile: &Profile, fix: &Fix) -> Result<Plan, Error> {
    let mut lookups = Vec::new();
    for description in &profile.drafters {
        match DrafterKind::from_description(description)? {
            DrafterKind::Lookup { longest_match, shortest_match } => {
                // The search gives the limits with every proposal.
                let lookup = Lookup::new(longest_match as usize, shortest_match as usize, &Shape::PLAIN)?;
                lookups.push((description.name.clone(), lookup));
            }
            DrafterKind::None | DrafterKind::LayerSkip { .. } | DrafterKind::Swift { .. } => {}
        }
    }
    let mut free: Vec<FreeDrafter<'_>> = lookups
        .iter_mut()
        .map(|(name, drafter)| FreeDrafter {
            name: name.clone(),
            drafter,
            depths: DEPTHS.to_vec(),
            widths: BRANCHES.to_vec(),
        })
        .collect();
    Ok(make_plan(profile, &mut free, fix)?)
}
