//! How rows choose among experts.

use crate::{Rows, RowsMut};

/// How scores of experts become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gating {
    /// `exp(score) / sum of exp(score)` over all experts.
    Softmax,
    /// `1 / (1 + exp(-score))`, each by itself.
    Sigmoid,
}

impl Gating {
    /// Name in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Sigmoid => "sigmoid",
        }
    }
}

/// A number for each expert, `[E]`, that a router has in addition to its matrix; `T` is where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteVector<T> {
    /// Added to weights where experts are chosen; no part of a weight.
    Bias(T),
    /// Factors of the weights, after they were divided by their sum.
    Factors(T),
}

impl<T> RouteVector<T> {
    /// Where they are.
    pub const fn place(&self) -> &T {
        let (Self::Bias(place) | Self::Factors(place)) = self;
        place
    }

    /// The same, elsewhere.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> RouteVector<U> {
        match self {
            Self::Bias(place) => RouteVector::Bias(to(place)),
            Self::Factors(place) => RouteVector::Factors(to(place)),
        }
    }
}

impl<'a> RouteVector<&'a [f32]> {
    /// What is added where experts are chosen, and the factors of weights.
    pub(crate) fn apart(vector: Option<Self>) -> [Option<&'a [f32]>; 2] {
        match vector {
            None => [None, None],
            Some(Self::Bias(bias)) => [Some(bias), None],
            Some(Self::Factors(factors)) => [None, Some(factors)],
        }
    }
}

/// Which experts a row uses and with what weights, by a score for each: those of the largest scores, of equal ones the
/// lowest numbers. With a bias, those of the largest sums of weight and bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts of a row, at least 1.
    pub used: usize,
    /// What weights are made of.
    pub gating: Gating,
    /// Whether weights are divided by the sum of those that are used and this number.
    pub normalised: Option<f32>,
    /// Factor on weights.
    pub scale: f32,
}

impl Routing {
    /// Most experts that a row may use: a scan of so few finds its place among them.
    pub const MOST_USED: usize = 64;

    /// Columns of routes: numbers of experts, ascending, then their weights.
    pub const fn columns(&self) -> usize {
        2 * self.used
    }

    /// # Panics
    /// If shapes disagree.
    pub(crate) fn check(&self, scores: Rows<'_>, vector: Option<RouteVector<&[f32]>>, out: &RowsMut<'_>) {
        let experts = scores.columns();
        assert!(
            (1..=experts.min(Self::MOST_USED)).contains(&self.used),
            "{} of {experts} experts",
            self.used
        );
        assert!(
            vector.is_none_or(|vector| vector.place().len() == experts),
            "a number for each of {experts} experts"
        );
        assert!(
            out.width() == scores.width() && out.columns() == self.columns(),
            "routes of {} rows",
            scores.width()
        );
    }
}

/// Routes `[W, 2 k]` of rows: of each the numbers of its experts, ascending, then their weights.
#[derive(Clone, Copy, Debug)]
pub struct Routes<'a>(Rows<'a>);

impl<'a> Routes<'a> {
    /// Routes as [`Routing`] leaves them.
    ///
    /// # Panics
    /// If the columns are no pairs.
    pub fn new(rows: Rows<'a>) -> Self {
        assert!(rows.columns().is_multiple_of(2), "numbers and weights in {} columns", rows.columns());
        Self(rows)
    }

    /// Rows, `W`.
    pub fn width(self) -> usize {
        self.0.width()
    }

    /// Experts of a row, `k`.
    pub fn used(self) -> usize {
        self.0.columns() / 2
    }

    /// Numbers of the experts of row `w`, ascending.
    pub fn experts(self, w: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.0.row(w)[..self.used()].iter().map(|number| *number as usize)
    }

    /// The weight of the expert at `place` among those of row `w`.
    pub fn weight(self, w: usize, place: usize) -> f32 {
        self.0.row(w)[self.used() + place]
    }

    /// # Panics
    /// If rows `x` and `out` are not as many as there are routes, or have other columns than these.
    pub(crate) fn check(self, x: Rows<'_>, columns: [usize; 2], out: &RowsMut<'_>) {
        assert!(
            x.width() == self.width() && out.width() == self.width(),
            "products of {} rows by {} routes to {} rows",
            x.width(),
            self.width(),
            out.width()
        );
        assert_eq!([x.columns(), out.columns()], columns, "columns of rows and products");
    }

    /// The rows that use an expert, ascending, with its place among those of each.
    pub fn of(self, expert: usize) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        (0..self.width())
            .filter_map(move |w| self.experts(w).position(|number| number == expert).map(|place| (w, place)))
    }
}
