//! What is measured of kernels, and what follows from it: rates, floors and shares of the roofline.

use serde::Serialize;
use ygg_profiler::statistics;

use crate::runtime::{Arithmetic, Work};

/// Measured durations of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Microseconds: half of the runs took less.
    pub median_us: f64,
    /// Microseconds of the fastest run.
    pub min_us: f64,
    /// Middle half of the runs by the median: `(p75 - p25) / median`; 0 where the clock saw nothing pass.
    pub spread: f64,
}

impl Timing {
    /// # Panics
    /// Without samples.
    pub(super) fn of(samples_us: &[f64]) -> Self {
        let sorted = statistics::sorted(samples_us);
        let median_us = statistics::quantile_of_sorted(&sorted, 0.5).expect("something was measured");
        let spread = statistics::relative_spread(samples_us).unwrap_or(0.0);
        Self { median_us, min_us: sorted[0], spread }
    }
}

/// What bounds every kernel here: measured in the same process, with the same threads.
///
/// The roofline model: Williams, Waterman and Patterson, <https://doi.org/10.1145/1498765.1498785>.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Bytes of packed weights, which were read to see how fast memory is.
    pub weight_bytes: u64,
    /// The fastest that all threads read them.
    pub bytes_per_s: f64,
    /// How fast half of the reads were at least: what medians of forwards compare with.
    pub median_bytes_per_s: f64,
    /// The fastest that all threads multiplied and added, by how the model's kernels do: operations per second.
    pub flops_per_s: Vec<(Arithmetic, f64)>,
    /// A step in which nothing is done: what its barrier takes.
    pub empty_step: Timing,
}

impl Roofline {
    /// The least time of some work in microseconds: that of its bytes or of its operations, whichever is more.
    ///
    /// # Panics
    /// If the work multiplies in a way that was not measured.
    pub fn floor_us(&self, arithmetic: Arithmetic, work: Work) -> f64 {
        let bytes_us = work.bytes as f64 / self.bytes_per_s * 1e6;
        if work.flops == 0 {
            return bytes_us;
        }
        let peak = self.flops_per_s.iter().find(|(known, _)| *known == arithmetic);
        let (_, peak) = peak.expect("every arithmetic of the model's kernels was measured");
        bytes_us.max(work.flops as f64 / peak * 1e6)
    }
}

/// One op of a forward: all steps that do the same work with different weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpReport {
    /// What it does, such as `linear ffn_down`.
    pub name: String,
    /// The kernel that does it.
    pub kernel: String,
    /// How its products are made.
    #[serde(skip)]
    pub arithmetic: Arithmetic,
    /// Calls per forward.
    pub calls: usize,
    /// What one call moves and computes at least.
    #[serde(flatten)]
    pub work: Work,
    /// One call, until all threads are done with it: measured over all calls of all forwards.
    pub call: Timing,
    /// Microseconds per forward: the medians of its steps, added.
    pub forward_us: f64,
    /// Part of it in which the first thread waited for the others.
    pub wait_us: f64,
}

impl OpReport {
    /// The least time of a call in microseconds.
    pub fn floor_us(&self, roofline: &Roofline) -> f64 {
        roofline.floor_us(self.arithmetic, self.work)
    }

    /// Floor by time: above 1 where what it reads is nearer than memory.
    pub fn share(&self, roofline: &Roofline) -> f64 {
        self.calls as f64 * self.floor_us(roofline) / self.forward_us
    }

    /// Bytes moved per second, in billions.
    pub fn gb_per_s(&self) -> f64 {
        self.calls as f64 * self.work.bytes as f64 / self.forward_us / 1e3
    }

    /// Operations per second, in billions.
    pub fn gflop_per_s(&self) -> f64 {
        self.calls as f64 * self.work.flops as f64 / self.forward_us / 1e3
    }
}

/// One forward, whole and in parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForwardReport {
    /// Token rows.
    pub width: usize,
    /// Committed tokens before them.
    pub context: usize,
    /// T(W): the forward that verifies greedy requests, without an observer. It ends with the best token of every row.
    pub forward: Timing,
    /// The observed forward, from its first step to its last.
    pub observed: Timing,
    /// Of that, what its steps waited for streamed matrices; on a GPU, which copies none ahead of an observed step, all
    /// their copies. None where nothing is streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Timing>,
    /// Its ops in the order of the program.
    #[serde(skip)]
    pub ops: Vec<OpReport>,
    /// What other forwards of these rows end with in place of the last op: candidates of drafts, and logits, which are
    /// for sampling and scoring. No part of this forward.
    #[serde(skip)]
    pub heads: Vec<OpReport>,
}

impl ForwardReport {
    /// Steps, each of which ends at a barrier.
    pub fn steps(&self) -> usize {
        self.ops.iter().map(|op| op.calls).sum()
    }

    /// Microseconds of all ops, their barriers included.
    pub fn steps_us(&self) -> f64 {
        self.ops.iter().map(|op| op.forward_us).sum()
    }

    /// Microseconds of [`steps_us`](Self::steps_us) that as many empty steps take.
    pub fn barriers_us(&self, roofline: &Roofline) -> f64 {
        self.steps() as f64 * roofline.empty_step.median_us
    }

    /// Microseconds of T(W) outside of steps: waking the threads, less the clock's own time inside steps.
    pub fn remainder_us(&self) -> f64 {
        self.forward.median_us - self.steps_us()
    }

    /// The least time of its ops in microseconds.
    pub fn floor_us(&self, roofline: &Roofline) -> f64 {
        self.ops.iter().map(|op| op.calls as f64 * op.floor_us(roofline)).sum()
    }

    /// Floor by T(W).
    pub fn share(&self, roofline: &Roofline) -> f64 {
        self.floor_us(roofline) / self.forward.median_us
    }
}

/// All that was measured of one model's kernels on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelReport {
    /// What bounds them.
    pub roofline: Roofline,
    /// One entry per context and width, in that order.
    pub forwards: Vec<ForwardReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roofline() -> Roofline {
        Roofline {
            weight_bytes: 1_000,
            bytes_per_s: 1e9,
            median_bytes_per_s: 8e8,
            flops_per_s: vec![(Arithmetic::F32, 4e9), (Arithmetic::Bf16, 8e9)],
            empty_step: Timing { median_us: 0.5, min_us: 0.4, spread: 0.1 },
        }
    }

    fn op(calls: usize, work: Work, forward_us: f64) -> OpReport {
        OpReport {
            name: "linear".to_owned(),
            kernel: "linear.f32.portable".to_owned(),
            arithmetic: Arithmetic::F32,
            calls,
            work,
            call: Timing::of(&[forward_us / calls as f64]),
            forward_us,
            wait_us: 0.0,
        }
    }

    #[test]
    fn the_floor_is_what_takes_longer_of_bytes_and_operations() {
        let roofline = roofline();
        let bound_by_memory = Work { bytes: 3_000, flops: 4_000 };
        let bound_by_products = Work { bytes: 3_000, flops: 16_000 };
        assert_eq!(roofline.floor_us(Arithmetic::F32, bound_by_memory), 3.0);
        assert_eq!(roofline.floor_us(Arithmetic::F32, bound_by_products), 4.0);
        assert_eq!(roofline.floor_us(Arithmetic::Bf16, bound_by_products), 3.0);
        let op = op(2, bound_by_products, 16.0);
        assert_eq!((op.share(&roofline), op.gb_per_s(), op.gflop_per_s()), (0.5, 0.375, 2.0));
    }

    #[test]
    fn parts_of_a_forward_add_up() {
        let roofline = roofline();
        let work = Work { bytes: 3_000, flops: 0 };
        let timing = Timing::of(&[40.0]);
        let ops = vec![op(2, work, 16.0), op(1, work, 20.0)];
        let forward = ForwardReport {
            width: 1,
            context: 5,
            forward: timing,
            observed: timing,
            fetched: None,
            ops,
            heads: Vec::new(),
        };
        assert_eq!((forward.steps(), forward.steps_us(), forward.remainder_us()), (3, 36.0, 4.0));
        assert_eq!((forward.barriers_us(&roofline), forward.floor_us(&roofline)), (1.5, 9.0));
        assert_eq!(forward.share(&roofline), 9.0 / 40.0);
    }

    #[test]
    fn a_timing_has_the_middle_and_the_fastest() {
        let timing = Timing::of(&[5.0, 1.0, 2.0, 4.0, 3.0]);
        assert_eq!(timing, Timing { median_us: 3.0, min_us: 1.0, spread: 2.0 / 3.0 });
        assert_eq!(Timing::of(&[0.0, 0.0]).spread, 0.0);
    }
}
