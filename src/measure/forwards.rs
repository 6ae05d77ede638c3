//! The forwards whose kernels are measured: a session opened for them, their rows, and the times of their steps.

use std::time::{Duration, Instant};

use crate::{
    engine::{Error, Loaded},
    runtime::{Forward, Id, Moment, Pinning, Session, SessionOptions},
};

/// Rows of a forward stand at this many positions after the committed tokens.
const POSITIONS: usize = 2;

/// The most of `context` committed tokens that leave room for a forward.
pub(super) fn usable(loaded: &Loaded, context: usize) -> usize {
    context.min(loaded.set().model_context().saturating_sub(POSITIONS))
}

/// A session for forwards after at most `longest` tokens, its cache filled with noise.
///
/// # Errors
/// [`Error`] of kind `Input` if the context is impossible, `Device` if memory or threads are refused.
pub(super) fn open(loaded: &Loaded, longest: usize, pinning: Pinning) -> Result<Session, Error> {
    open_with(loaded, loaded.threads(), longest, pinning)
}

/// The same with so many threads.
///
/// # Errors
/// As [`open`].
pub(super) fn open_with(
    loaded: &Loaded,
    threads: usize,
    longest: usize,
    pinning: Pinning,
) -> Result<Session, Error> {
    let options = SessionOptions {
        context: (longest + POSITIONS).min(loaded.set().model_context()),
        tree_nodes: *loaded.set().widths().last().expect("width 1 is always planned"),
        threads,
        pinning,
    };
    let mut session = Session::open(loaded.set().clone(), &options)?;
    session.poison_scratch(1);
    Ok(session)
}

/// A forward of one row and its `width - 1` children, each another token.
pub(super) fn forward(session: &mut Session, width: usize, context: usize) -> Result<Forward<'_>, Error> {
    let vocabulary = u32::try_from(session.set().vocabulary()).expect("token ids are 32 bits");
    session.assume_committed(context);
    let mut forward = session.forward(width)?;
    for row in 0..u32::try_from(width).expect("widths are small") {
        let token = row.wrapping_mul(7919) % vocabulary;
        forward.push(token, u32::from(row > 0), row, |tail| {
            let len = 1 + usize::from(row > 0);
            tail[0] = 0;
            tail[len - 1] = row;
            len
        });
    }
    Ok(forward)
}

/// One step of an observed forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTime {
    /// Its place in the program.
    pub(super) step: usize,
    /// Microseconds until its streamed weights had come; 0 where nothing is streamed.
    pub(super) fetch_us: f64,
    /// Microseconds from then until all threads were done.
    pub(super) whole_us: f64,
    /// Microseconds of that during which the first thread waited for the others.
    pub(super) wait_us: f64,
}

/// The steps of one observed forward, in order.
///
/// # Panics
/// If the first moment is not the forward's beginning.
pub(super) fn step_times(moments: &[(Moment, Instant)]) -> impl Iterator<Item = StepTime> + '_ {
    let first = moments[0].1;
    assert!(matches!(moments[0].0, Moment::Begun), "a forward begins before its steps end");
    let (mut begun, mut share_done, mut fetch_us) = (first, first, 0.0);
    moments.iter().filter_map(move |(moment, at)| match moment {
        Moment::Begun => None,
        Moment::Fetched(_) => {
            (fetch_us, begun) = (us(*at - begun), *at);
            None
        }
        Moment::ShareDone(_) => {
            share_done = *at;
            None
        }
        Moment::StepDone(step) => {
            let time = StepTime {
                step: step.index(),
                fetch_us,
                whole_us: us(*at - begun),
                wait_us: us(*at - share_done),
            };
            (fetch_us, begun) = (0.0, *at);
            Some(time)
        }
    })
}

#[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
pub(super) fn now() -> Instant {
    Instant::now()
}

pub(super) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::StepId;

    #[test]
    fn a_step_lasts_from_the_end_of_the_one_before() {
        let start = now();
        let at = |us| start + Duration::from_micros(us);
        let moments = [
            (Moment::Begun, at(0)),
            (Moment::ShareDone(StepId::new(0)), at(3)),
            (Moment::StepDone(StepId::new(0)), at(5)),
            (Moment::ShareDone(StepId::new(4)), at(6)),
            (Moment::StepDone(StepId::new(4)), at(10)),
            (Moment::Fetched(StepId::new(5)), at(17)),
            (Moment::ShareDone(StepId::new(5)), at(18)),
            (Moment::StepDone(StepId::new(5)), at(20)),
        ];
        let times: Vec<_> =
            step_times(&moments).map(|t| (t.step, t.fetch_us, t.whole_us, t.wait_us)).collect();
        assert_eq!(times, [(0, 0.0, 5.0, 2.0), (4, 0.0, 5.0, 4.0), (5, 7.0, 3.0, 2.0)]);
    }
}
