//! Checks all properties, one after the other.

use std::{sync::Arc, time::Duration};

use crate::engine::{Error, Loaded};

use super::{
    Property, Verdict, Verification, VerifyOptions, answers, cache, conformance, distribution, extent::Clock,
    halt::Halt, rows, subject::Subject, ties,
};

/// Progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress<'a> {
    /// A property is being checked.
    Checking {
        /// Its name.
        what: &'static str,
        /// Cases done of it.
        done: usize,
        /// Cases in all; fewer are run if they take long.
        total: usize,
        /// Time until the end of the whole verification at the latest ([`Extent::longest`](super::Extent::longest)).
        left: Duration,
    },
    /// It has been checked.
    Checked(&'a Property),
}

/// Reports how many cases of a property are done, of how many.
pub(super) type Tell<'a> = &'a mut dyn FnMut(usize, usize);

/// A check returns what it compared, or why it stopped early.
type Check = fn(&Subject<'_>, &VerifyOptions, Clock, Tell<'_>) -> Result<String, Halt>;

/// The properties; those that others rely on come first.
const PROPERTIES: [(&str, Check); 8] = [
    ("plan", conformance::plan_fits),
    ("kernels", conformance::kernels_follow_the_reference),
    ("ties", ties::the_lowest_token_wins),
    ("row invariance", rows::rows_do_not_depend_on_company),
    ("cache", cache::any_history_leaves_the_sequence),
    ("greedy answers", answers::greedy_answers_are_plain_ones),
    ("sampled answers", answers::sampled_answers_are_plain_ones),
    ("draws", distribution::draws_follow_the_distribution),
];

/// The names of all properties, in the order in which they are checked.
pub fn property_names() -> [&'static str; PROPERTIES.len()] {
    PROPERTIES.map(|(name, _)| name)
}

/// Checks the properties that losslessness rests on, all of them or those that the options name, with `loaded`, which
/// must have been loaded with the widths of the plan that the options name.
///
/// Takes [`Extent::longest`](super::Extent::longest) at most, and some megabytes more than an engine: hundreds of
/// forwards of one row, some tokens of the scalar reference, and answers of every drafter of the plan. A property that
/// does not hold is not an error but part of the result.
///
/// # Errors
/// [`Error`] of kind `Device` where memory or threads are refused, of kind `Input` where the prompts or the model
/// cannot be used.
pub fn verify(
    loaded: &Arc<Loaded>,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Verification, Error> {
    let subject = Subject {
        loaded: Arc::clone(loaded),
        tied: Arc::new(ties::tied_model(loaded)?),
        draw: &|sampler, logits, position| sampler.draw(logits, position),
    };
    verify_subject(&subject, options, progress)
}

pub(super) fn verify_subject(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Verification, Error> {
    let is_wanted = |name: &&str| options.only.as_ref().is_none_or(|only| only.contains(name));
    let wanted: Vec<_> = PROPERTIES.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let mut properties = Vec::with_capacity(wanted.len());
    let whole = Clock::start(options.extent.longest());
    for (place, (name, check)) in wanted.iter().copied().enumerate() {
        // What a check leaves of its share is for the later ones.
        let clock = Clock::start(whole.left() / (wanted.len() - place) as u32);
        let mut tell =
            |done, total| progress(Progress::Checking { what: name, done, total, left: whole.left() });
        tell(0, 1);
        let (verdict, said) = match check(subject, options, clock, &mut tell) {
            Ok(compared) => (Verdict::Holds, compared),
            Err(Halt::Broken(found)) => (Verdict::Broken, found),
            Err(Halt::NotChecked(why)) => (Verdict::NotChecked, why),
            Err(Halt::Failed(error)) => return Err(error.while_doing(&format!("verifying `{name}`"))),
        };
        let property = Property { name, verdict, said, seconds: clock.elapsed().as_secs_f64() };
        progress(Progress::Checked(&property));
        properties.push(property);
    }
    Ok(Verification { properties })
}
