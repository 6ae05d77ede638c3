//! Ways of stepping by temperature: a plan may draft otherwise for requests that accept less, and one decoder serves them all.
//!
//! All ways are made when the decoder is. A request goes by one of them, chosen when it starts; changing it moves what is there and
//! allocates nothing. The ways share session, tree and scratch, which are as large as the largest of them needs.

use crate::{
    plan::{Schedule, nearest},
    runtime::GrownVerification,
    sample::Sampling,
};

use super::{Drafter, Shape, decode::Lessons, depth::DepthPolicy, policy::Policing};

/// What a decoder steps by, while it does not.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) drafter: Option<Box<dyn Drafter>>,
    pub(super) shape: Shape,
    pub(super) schedule: Schedule,
    pub(super) policy: Option<Policing>,
    pub(super) depth: Option<DepthPolicy>,
    pub(super) grown: Vec<GrownVerification>,
    pub(super) lessons: Option<Lessons>,
}

impl Way {
    const PLAIN: Self = Self {
        drafter: None,
        shape: Shape::PLAIN,
        schedule: Schedule::Plain,
        policy: None,
        depth: None,
        grown: Vec::new(),
        lessons: None,
    };
}

/// The ways of a decoder. Invariant: the way at work is the decoder's own, and at its place here is a plain one in its stead.
#[derive(Debug)]
pub(super) struct Bands {
    /// Ascending from 0.
    temperatures: Vec<f32>,
    ways: Vec<Way>,
    current: usize,
}

impl Default for Bands {
    /// One way, for temperature 0, at work.
    fn default() -> Self {
        Self { temperatures: vec![0.0], ways: vec![Way::PLAIN], current: 0 }
    }
}

impl Bands {
    /// Another way, plain so far; gives its place.
    ///
    /// # Panics
    /// If its temperature is not above all others.
    pub(super) fn push(&mut self, temperature: f32) -> usize {
        let last = self.temperatures.last().expect("one at least");
        assert!(temperature > *last, "ways ascend in temperature: {temperature} after {last}");
        self.temperatures.push(temperature);
        self.ways.push(Way::PLAIN);
        self.ways.len() - 1
    }

    /// The place of the way for a temperature.
    pub(super) fn nearest(&self, temperature: f32) -> usize {
        nearest(self.temperatures.iter().copied(), temperature)
    }

    /// The place of the way at work.
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// The drafters that are put away.
    pub(super) fn drafters(&mut self) -> impl Iterator<Item = &mut Box<dyn Drafter>> {
        self.ways.iter_mut().filter_map(|way| way.drafter.as_mut())
    }

    /// Changes the way at work: `swap` exchanges the decoder's own with one that is put away.
    pub(super) fn exchange(&mut self, place: usize, mut swap: impl FnMut(&mut Way)) {
        if place != self.current {
            swap(&mut self.ways[self.current]);
            swap(&mut self.ways[place]);
            self.current = place;
        }
    }
}

/// The temperature that a request's way of stepping is chosen by: its own, whatever its filters leave, but 0 if they leave the
/// best token alone.
pub(super) fn planned_temperature(sampling: &Sampling) -> f32 {
    if sampling.is_greedy() || sampling.top_k == 1 { 0.0 } else { sampling.temperature }
}
