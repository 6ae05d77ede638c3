//! Making the drafter that tunes its skip set while it serves, and the room that its tries need.

use crate::{
    engine::Error,
    plan::{GroupSet, SubPlan},
    policy::{SkipCosts, SkipSearch, SkipTimes},
    runtime::{Session, SkipSet},
    speculate::{Drafter, SpeculateError, StepShape, Swift},
};

use super::{Options, drafting::Drafting};

impl Drafting {
    /// Widths to load a model with: the planned ones, those for reading, and one that holds a try if no other width
    /// does, so that a try is one forward.
    pub(super) fn widths_to_load(&self, options: &Options) -> Vec<usize> {
        let tries = self.bands.iter().any(|steps| steps.sub_plan.drafter.facts().tunes_itself);
        let window = tries.then_some(options.skip_search.window);
        let mut widths = self.widths.clone();
        widths.extend(&options.read_widths);
        widths.extend(window.filter(|window| widths.iter().all(|width| width < window)));
        widths
    }

    /// Rows after the committed prefix that steps write, of the band that needs most: those of its shape, and after
    /// them those of tries. No fewer than the rows for reading, so that one forward may have a branch of so many.
    pub(super) fn scratch_rows(&self, options: &Options) -> usize {
        let rows = self.bands.iter().map(|steps| {
            let SubPlan { drafter, schedule, .. } = &steps.sub_plan;
            let tries = if drafter.facts().tunes_itself { options.skip_search.window } else { 0 };
            StepShape::of(&steps.sub_plan).scratch_rows(*schedule) + tries
        });
        rows.chain(options.read_widths.iter().copied()).max().unwrap_or(1)
    }
}

/// The drafter of `sub_plan` that leaves out `skipped` at first. Its tries write after the rows that its steps use,
/// and are counted by `times`.
///
/// # Errors
/// [`Error`] of kind `Input` if the model has too many sub-layers or not those that are skipped, or the search's
/// settings are impossible.
pub(super) fn self_tuning(
    skipped: &[u32],
    times: SkipTimes,
    sub_plan: &SubPlan,
    session: &Session,
    options: &Options,
) -> Result<Box<dyn Drafter>, Error> {
    let groups = session.set().groups();
    if groups > GroupSet::MOST_GROUPS {
        return Err(Error::input(format!(
            "drafter `swift` searches at most {} sub-layers, found {groups}; force another drafter or plan again without it",
            GroupSet::MOST_GROUPS
        )));
    }
    // Names the group that the model has not, if there is one.
    SkipSet::new(groups, skipped).map_err(SpeculateError::from)?;
    let settings = options.skip_search;
    if settings.window == 0 || settings.interval == 0 {
        return Err(Error::input(format!(
            "the search for a skip set: expected a window and an interval of 1 or more, found {} and {}",
            settings.window, settings.interval
        )));
    }
    let costs = SkipCosts::new(times, 1.0 - skipped.len() as f64 / f64::from(groups));
    let search = SkipSearch::new(groups, skipped, sub_plan.largest_shape().depth, costs, settings);
    let shape = StepShape::of(sub_plan);
    let bank = shape.scratch_rows(sub_plan.schedule);
    Ok(Box::new(Swift::new(session, search, &shape, options.draft_growth, bank)?))
}
