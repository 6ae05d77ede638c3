//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use ygg_profiler::Profile;

use crate::{
    engine::Error,
    plan::{DrafterKind, Fix, FreeDrafter, Plan, ProposalLimits, ReplayDrafter, make_plan},
    speculate::{Lookup, Shape},
    tree::TokenTree,
};

/// Depths of lookup that are tried.
const DEPTHS: [u32; 7] = [1, 2, 3, 5, 7, 11, 15];
/// Numbers of continuations that are tried.
const BRANCHES: [u32; 3] = [1, 2, 3];

/// The lookup drafter as the planner replays it.
#[derive(Debug)]
struct ReplayLookup {
    longest: usize,
    shortest: usize,
    made_for: Option<(ProposalLimits, Lookup)>,
}

impl ReplayDrafter for ReplayLookup {
    fn propose(&mut self, history: &[u32], limits: &ProposalLimits, tree: &mut TokenTree) {
        if self.made_for.as_ref().is_none_or(|(made, _)| made != limits) {
            let shape = Shape {
                depth: limits.depth as usize,
                draft_width: limits.width as usize,
                verify_width: limits.nodes as usize,
                top_k: 0,
                draft_temperature: 1.0,
            };
            let lookup = Lookup::new(self.longest, self.shortest, &shape);
            self.made_for = Some((*limits, lookup.expect("the description was validated")));
        }
        let (_, lookup) = self.made_for.as_mut().expect("made above");
        lookup.propose_into(history, limits.depth as usize, tree);
    }
}

/// Searches the plan that a profile speaks for, within what `fix` leaves open.
///
/// # Errors
/// [`Error`] of kind `Input` when the profile cannot be used or nothing satisfies the fix.
pub fn plan_from_profile(profile: &Profile, fix: &Fix) -> Result<Plan, Error> {
    let mut lookups = Vec::new();
    for description in &profile.drafters {
        match DrafterKind::from_description(description)? {
            DrafterKind::Lookup { longest_match, shortest_match } => {
                let (longest, shortest) = (longest_match as usize, shortest_match as usize);
                lookups.push((description.name.clone(), ReplayLookup { longest, shortest, made_for: None }));
            }
            DrafterKind::None | DrafterKind::LayerSkip { .. } => {}
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
