//! The inputs of the op that lets states follow rows, and keeps what they need for it.

use super::{
    KvLayer, Tails,
    states::{StateLayer, StateRule, StateShape},
};
use crate::{Rows, RowsMut};
use std::{cmp::Ordering, ops::Range};

/// In which order value heads lie, what a stored decay means, and how long steps may be: files differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateForm {
    /// Whether value heads that read one key head lie together; else head `h` reads key head `h % J`.
    pub is_grouped: bool,
    /// Whether the decay `A` of a head is stored as `ln A`; else as `-A`.
    pub is_logarithm: bool,
    /// The shortest and the longest step.
    pub steps: [f32; 2],
}

impl StateForm {
    /// Steps of any length.
    pub const ALL_STEPS: [f32; 2] = [0.0, f32::INFINITY];

    /// Whether kernels take it.
    pub fn is_lawful(&self) -> bool {
        let [shortest, longest] = self.steps;
        0.0 <= shortest && shortest <= longest
    }
}

/// The weights of a recurrence.
#[derive(Clone, Copy, Debug)]
pub struct StateWeights<'a> {
    /// `[C, T]`: of each channel, the tap of the row itself last.
    pub taps: &'a [f32],
    /// `[H]`: the decay of each value head, as the form says.
    pub decays: &'a [f32],
    /// `[H]`: added to what a row says of its step.
    pub biases: &'a [f32],
    /// What only scans have.
    pub scan: Option<ScanWeights<'a>>,
}

/// The weights of a selective scan that a delta rule has not.
#[derive(Clone, Copy, Debug)]
pub struct ScanWeights<'a> {
    /// `[C]`: added to the convolution of each channel.
    pub channels: &'a [f32],
    /// `[H]`: factors of values that are added to results.
    pub skips: &'a [f32],
}

/// Inputs of `recurrence`: the states of all heads along each row's logical sequence.
///
/// A row keeps what goes in. Its channels are convolved with those of the rows before it, zeros before the first, and
/// go through `silu`: queries `q` and keys `k` of `J` heads, values `v` of `H` heads. The length of a row's step in a
/// head is `softplus(a + bias)`, held between the form's bounds. The state `S` (`[A, B]`, zeros before the first row)
/// decays to
///
/// ```text
/// S' = exp(-A_h step) S
/// ```
///
/// By the gated delta rule (arXiv 2412.06464, section 3.1) `q` is divided by `sqrt(A (q . q + 1e-6))`, `k` by
/// `sqrt(k . k + 1e-6)`, and the row gives `qᵀ S` of
///
/// ```text
/// S = S' + k (sigmoid(b) (v - kᵀ S'))ᵀ
/// ```
///
/// By a selective scan (arXiv 2405.21060, section 2.1, where keys are `B`, queries `C` and values `X`) each channel has
/// a bias in front of `silu`, and the row gives `qᵀ S + D_h v` of
///
/// ```text
/// S = S' + k (step v)ᵀ
/// ```
///
/// A row's state comes from that of the row before it in its sequence, in one order of operations, whatever else is in
/// the forward.
#[derive(Clone, Copy, Debug)]
pub struct Recurrence<'a> {
    /// `[W, C]`, before the convolution: queries, keys and values; of a scan values, keys and queries.
    pub x: Rows<'a>,
    /// `[W, H]`: what each row says of its step in each value head, `a`.
    pub steps: Rows<'a>,
    /// `[W, H]`, of a delta rule: what each row says of how far the state follows it, `b`.
    pub rates: Option<Rows<'a>>,
    /// The weights.
    pub weights: StateWeights<'a>,
    /// How heads and decays lie.
    pub form: StateForm,
    /// `[W]`: where each row goes, or [`KvLayer::NO_SLOT`]: padding, which gives zeros.
    pub slots: &'a [u32],
    /// What each row sees.
    pub tails: Tails<'a>,
    /// What rows keep.
    pub memory: StateLayer<'a>,
}

/// Added to the sum of squares that a query or a key is divided by.
pub(crate) const LEAST_SQUARES: f32 = 1e-6;

/// What went in of one row.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Of a row of this forward, which the op may be writing to memory now.
    Own { channels: &'a [f32], steps: &'a [f32], rates: &'a [f32] },
    /// Of an earlier one: its channels, and then what it says.
    Kept(&'a [f32]),
}

impl<'a> Source<'a> {
    /// What begins with its channels.
    #[inline(always)]
    pub(crate) fn channels(&self) -> &'a [f32] {
        match *self {
            Self::Own { channels, .. } => channels,
            Self::Kept(row) => row,
        }
    }
}

impl<'a> Recurrence<'a> {
    /// Independent pieces of work: some of the value heads that read a key head, of all rows.
    pub fn units(&self) -> usize {
        self.memory.shape().units()
    }

    /// The key head that the value heads of a unit read.
    fn key_head(&self, unit: usize) -> usize {
        unit / self.memory.shape().parts()
    }

    /// The value head of number `member` among those of a unit.
    #[inline(always)]
    pub(crate) fn value_head(&self, unit: usize, member: usize) -> usize {
        let shape = self.memory.shape();
        let number = unit * shape.unit_heads() + member;
        if self.form.is_grouped {
            return number;
        }
        number % shape.group() * shape.key_heads + self.key_head(unit)
    }

    /// Channels of the query of a unit.
    #[inline(always)]
    pub(crate) fn query(&self, unit: usize) -> Range<usize> {
        let shape = self.memory.shape();
        let before = match shape.rule {
            StateRule::Delta => 0,
            StateRule::Scan => shape.values() + shape.key_heads * shape.key_dim,
        };
        let first = before + self.key_head(unit) * shape.key_dim;
        first..first + shape.key_dim
    }

    /// Channels of the key of a unit.
    #[inline(always)]
    pub(crate) fn key(&self, unit: usize) -> Range<usize> {
        let shape = self.memory.shape();
        let before = match shape.rule {
            StateRule::Delta => shape.key_heads * shape.key_dim,
            StateRule::Scan => shape.values(),
        };
        let first = before + self.key_head(unit) * shape.key_dim;
        first..first + shape.key_dim
    }

    /// Channels of a value head.
    #[inline(always)]
    pub(crate) fn value(&self, head: usize) -> Range<usize> {
        let shape = self.memory.shape();
        let before = match shape.rule {
            StateRule::Delta => 2 * shape.key_heads * shape.key_dim,
            StateRule::Scan => 0,
        };
        let first = before + head * shape.value_dim;
        first..first + shape.value_dim
    }

    /// Rows that are no padding, with their slots.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (usize, usize)> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| **slot != KvLayer::NO_SLOT).map(|(w, slot)| (w, *slot as usize))
    }

    /// Committed rows that all rows of the forward follow, and the state that their states come from; `None` if all are
    /// padding.
    pub(crate) fn committed(&self) -> Option<usize> {
        self.stored().map(|(w, _)| self.tails.prefix[w] as usize).min()
    }

    /// Keeps what goes in of a unit, of all rows that have a slot.
    ///
    /// # Safety
    /// The unit is the caller's alone.
    pub(crate) unsafe fn keep(&self, unit: usize) {
        let shape = self.memory.shape();
        let heads = || (0..shape.unit_heads()).map(|member| self.value_head(unit, member));
        // Queries and keys are those of all units of a key head; the first has them.
        let shared = [self.query(unit), self.key(unit)];
        let shared = shared.into_iter().filter(|_| unit.is_multiple_of(shape.parts()));
        for (w, slot) in self.stored() {
            let x = self.x.row(w);
            for part in shared.clone().chain(heads().map(|head| self.value(head))) {
                // SAFETY: channels of the unit, of a row of this forward.
                unsafe { self.memory.kept_mut(slot, part.clone()) }.copy_from_slice(&x[part]);
            }
            for (number, said) in [Some(self.steps), self.rates].into_iter().flatten().enumerate() {
                for head in heads() {
                    let at = shape.channels() + number * shape.value_heads + head;
                    // SAFETY: what a row of this forward says of a value head of the unit.
                    unsafe { self.memory.kept_mut(slot, at..at + 1)[0] = said.row(w)[head] };
                }
            }
        }
    }

    /// What the taps read at a position of the sequence of row `w`, from the row there backwards: how much there is, and
    /// what. The first `from` positions are committed rows.
    #[inline(always)]
    pub(crate) fn read(
        &self,
        from: usize,
        w: usize,
        position: usize,
    ) -> ([Source<'_>; StateShape::MOST_TAPS], usize) {
        let count = self.memory.shape().taps.min(position + 1);
        let mut sources = [Source::Kept(&[]); StateShape::MOST_TAPS];
        for (back, source) in sources[..count].iter_mut().enumerate() {
            let slot = self.tails.slot(w, position - back);
            let own = if position - back < from { None } else { self.own(slot) };
            *source = match own {
                Some(own) => Source::Own {
                    channels: self.x.row(own),
                    steps: self.steps.row(own),
                    rates: self.rates.map_or(&[] as &[f32], |rates| rates.row(own)),
                },
                // SAFETY: of no row of this forward, so that nobody writes it now.
                None => Source::Kept(unsafe { self.memory.kept_row(slot) }),
            };
        }
        (sources, count)
    }

    /// The row of this forward that goes to a slot.
    #[inline(always)]
    fn own(&self, slot: usize) -> Option<usize> {
        let is_there = |w: &usize| self.slots.get(*w).is_some_and(|found| *found as usize == slot);
        // Rows of a forward nearly always go to slots one after the other.
        let guess = slot.wrapping_sub(self.slots[0] as usize);
        Some(guess).filter(is_there).or_else(|| (0..self.slots.len()).find(is_there))
    }

    /// What a row says of its step in a head, and of how far the state follows it; of a scan 0.
    #[inline(always)]
    pub(crate) fn said(&self, source: &Source<'_>, head: usize) -> [f32; 2] {
        let shape = self.memory.shape();
        let (steps, rates) = match *source {
            Source::Own { steps, rates, .. } => (steps, rates),
            Source::Kept(row) => row[shape.channels()..].split_at(shape.value_heads),
        };
        [steps[head], if rates.is_empty() { 0.0 } else { rates[head] }]
    }

    /// The order in which rows are walked, by their sequences after the first `from` positions: each after those that
    /// its own begins with, so that a state is handed on as far as sequences agree. Writes it to `order`, of which as
    /// many numbers are used as rows are no padding; gives how many.
    pub(crate) fn order(&self, from: usize, order: &mut [u32]) -> usize {
        let mut count = 0;
        for (w, _) in self.stored() {
            order[count] = w as u32;
            count += 1;
        }
        let slots =
            |w: u32| (from..self.tails.len(w as usize)).map(move |at| self.tails.slot(w as usize, at));
        // Rows of one sequence are equal in all that is computed of them; their numbers decide.
        order[..count].sort_unstable_by(|a, b| match slots(*a).cmp(slots(*b)) {
            Ordering::Equal => a.cmp(b),
            other => other,
        });
        count
    }

    /// Positions from `from` on that the sequences of two rows begin with alike.
    pub(crate) fn common(&self, from: usize, [a, b]: [usize; 2]) -> usize {
        let len = self.tails.len(a).min(self.tails.len(b));
        (from..len).take_while(|at| self.tails.slot(a, *at) == self.tails.slot(b, *at)).count()
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self, out: &RowsMut<'_>) {
        let (width, shape) = (self.x.width(), self.memory.shape());
        let heads = shape.value_heads;
        assert!(
            self.x.columns() == shape.channels() && out.columns() == shape.values() && out.width() == width,
            "[{width}, {}] to [{}, {}] of {shape:?}",
            self.x.columns(),
            out.width(),
            out.columns()
        );
        let said = [Some(self.steps), self.rates];
        assert_eq!(said.into_iter().flatten().count(), shape.said(), "what rows say, of {shape:?}");
        for rows in said.into_iter().flatten() {
            assert!((rows.width(), rows.columns()) == (width, heads), "what rows say of {heads} heads");
        }
        let StateWeights { taps, decays, biases, scan } = self.weights;
        assert_eq!(
            [taps.len(), decays.len(), biases.len()],
            [shape.channels() * shape.taps, heads, heads],
            "weights of {shape:?}"
        );
        let of_scans = scan.map(|ScanWeights { channels, skips }| [channels.len(), skips.len()]);
        let expected = (shape.rule == StateRule::Scan).then_some([shape.channels(), heads]);
        assert_eq!(of_scans, expected, "weights of scans, of {shape:?}");
        assert!(self.form.is_lawful(), "{:?}", self.form);
        assert_eq!(self.slots.len(), width, "slots of the rows");
        self.tails.check(width, usize::MAX);
    }
}
