//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use std::path::Path;

use ygg_profiler::{DrafterName, Profile};

use crate::{
    engine::{Error, ErrorKind, Hint},
    plan::{DrafterKind, Plan, ReplayDrafter},
    planner::{Fix, FreeDrafter, SearchError, make_plan},
    speculate::{CorpusStore, Lookup, Retrieval, Shape, Suffix},
};

/// Depths of lookup that are tried.
const DEPTHS: [u32; 7] = [1, 2, 3, 5, 7, 11, 15];
/// Numbers of continuations that are tried.
const BRANCHES: [u32; 3] = [1, 2, 3];
/// Depths of retrieval that are tried: no path is deeper.
const RETRIEVED_DEPTHS: [u32; 6] = [1, 2, 3, 5, 7, 10];
/// Numbers of continuations of a node that are tried.
const RETRIEVED_BRANCHES: [u32; 4] = [1, 2, 4, 8];

/// Depths that are tried of drafters that remember requests, whose replays are slower.
const REMEMBERED_DEPTHS: [u32; 4] = [2, 4, 7, 11];
/// Numbers of their continuations that are tried.
const REMEMBERED_BRANCHES: [u32; 2] = [1, 3];

/// A drafter to replay, with the depths and widths to try.
struct Replayed {
    name: DrafterName,
    drafter: Box<dyn ReplayDrafter>,
    depths: &'static [u32],
    widths: &'static [u32],
}

/// Searches the plan that a profile speaks for, within what `fix` leaves open.
///
/// # Errors
/// [`Error`] of kind `Input` when the profile cannot be used, a corpus store of it is absent or another, or nothing satisfies the
/// fix.
pub fn plan_from_profile(profile: &Profile, fix: &Fix) -> Result<Plan, Error> {
    let mut replayed = Vec::new();
    for description in &profile.drafters {
        let name = description.name.clone();
        // The search gives the limits with every proposal.
        let lookup =
            |longest: u32, shortest: u32| Lookup::new(longest as usize, shortest as usize, &Shape::PLAIN);
        match DrafterKind::from_description(description)? {
            DrafterKind::Lookup { longest_match, shortest_match } => {
                let drafter = Box::new(lookup(longest_match, shortest_match)?);
                replayed.push(Replayed { name, drafter, depths: &DEPTHS, widths: &BRANCHES });
            }
            DrafterKind::Retrieval { store, longest_match, shortest_match, lookup_match } => {
                let store = CorpusStore::open_expecting(Path::new(&store.path), &store.digest)?;
                let (longest, shortest) = (longest_match as usize, shortest_match as usize);
                let mut retrieval = Retrieval::new(store, longest, shortest, &Shape::PLAIN)?;
                if let Some((longest, shortest)) = lookup_match {
                    retrieval = retrieval.after_lookup(lookup(longest, shortest)?);
                }
                let (depths, widths) = (&RETRIEVED_DEPTHS, &RETRIEVED_BRANCHES);
                replayed.push(Replayed { name, drafter: Box::new(retrieval), depths, widths });
            }
            DrafterKind::Suffix(settings) => {
                let drafter = Box::new(Suffix::new(settings, &Shape::PLAIN));
                let (depths, widths) = (&REMEMBERED_DEPTHS, &REMEMBERED_BRANCHES);
                replayed.push(Replayed { name, drafter, depths, widths });
            }
            DrafterKind::None
            | DrafterKind::LayerSkip { .. }
            | DrafterKind::Swift { .. }
            | DrafterKind::Model { .. }
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_)
            | DrafterKind::Mixed(_) => {}
        }
    }
    let mut free: Vec<FreeDrafter<'_>> = replayed
        .iter_mut()
        .map(|Replayed { name, drafter, depths, widths }| FreeDrafter {
            name: name.clone(),
            drafter: &mut **drafter,
            depths: depths.to_vec(),
            widths: widths.to_vec(),
        })
        .collect();
    Ok(make_plan(profile, &mut free, fix)?)
}

impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Plan(error) => error.into(),
            SearchError::NoEvidence { .. } => Self::of(ErrorKind::Input, Some(Hint::Recording), error),
            SearchError::Table(_)
            | SearchError::Profile(_)
            | SearchError::IncompleteTrace { .. }
            | SearchError::FixSyntax { .. }
            | SearchError::FixImpossible { .. } => Self::of(ErrorKind::Input, None, error),
        }
    }
}
