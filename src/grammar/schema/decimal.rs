//! Numbers of schemas, to the last digit.

use std::cmp::Ordering;

/// Most digits of a number once its exponent is written out: more take long texts of few bytes.
const MOST_DIGITS: usize = 1_000;

/// A number in decimal digits, without zeros that say nothing; zero is not negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) negative: bool,
    /// Digits before the point; none for 0.
    pub(super) whole: String,
    /// Digits after it.
    pub(super) fraction: String,
}

impl Decimal {
    /// Of a JSON number; `None` for one of too many digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        if significant.is_empty() {
            return Some(Self { negative: false, whole: String::new(), fraction: String::new() });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let whole_digits = significant.len() as i64 - fraction.len() as i64;
        let point = whole_digits.checked_add(exponent)?;
        let most = MOST_DIGITS as i64;
        if significant.len() > MOST_DIGITS || !(-most..=most).contains(&point) {
            return None;
        }
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
        let padded = format!("{}{significant}{}", zeros(-point), zeros(point - significant.len() as i64));
        let (whole, fraction) = padded.split_at(usize::try_from(point).unwrap_or(0));
        let fraction = fraction.trim_end_matches('0').to_owned();
        Some(Self { negative, whole: whole.to_owned(), fraction })
    }

    /// The whole number of some digits.
    fn of_whole(whole: &str, negative: bool) -> Self {
        let whole = whole.trim_start_matches('0').to_owned();
        Self { negative: negative && !whole.is_empty(), whole, fraction: String::new() }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.fraction.is_empty()
    }

    /// As JSON: digits, never an exponent.
    pub(super) fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let whole = if self.whole.is_empty() { "0" } else { &self.whole };
        let point = if self.fraction.is_empty() { "" } else { "." };
        format!("{sign}{whole}{point}{}", self.fraction)
    }

    pub(super) fn negated(&self) -> Self {
        Self { negative: !self.negative && !self.is_zero(), ..self.clone() }
    }

    /// The least whole number that is not below it, or above it if `beyond`.
    pub(super) fn whole_above(&self, beyond: bool) -> Self {
        let goes_up = if self.is_whole() { beyond } else { !self.negative };
        let goes_down_in_size = self.negative && self.is_whole() && beyond;
        match (goes_up, goes_down_in_size) {
            (_, true) => Self::of_whole(&decremented(&self.whole), true),
            (true, false) => Self::of_whole(&incremented(&self.whole), false),
            (false, false) => Self::of_whole(&self.whole, self.negative),
        }
    }

    /// The number in units of 10 to the power of `-places`, if it is whole in them and small enough.
    fn scaled(&self, places: usize) -> Option<i128> {
        let zeros = places.checked_sub(self.fraction.len())?;
        let digits = format!("0{}{}{}", self.whole, self.fraction, "0".repeat(zeros));
        let value: i128 = digits.parse().ok()?;
        Some(if self.negative { -value } else { value })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let size = |a: &Self, b: &Self| {
            (a.whole.len(), &a.whole, &a.fraction).cmp(&(b.whole.len(), &b.whole, &b.fraction))
        };
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => size(self, other),
            (true, true) => size(other, self),
        }
    }
}

fn incremented(digits: &str) -> String {
    let kept = digits.trim_end_matches('9');
    let zeros = "0".repeat(digits.len() - kept.len());
    match kept.as_bytes().split_last() {
        None => format!("1{zeros}"),
        Some((last, _)) => format!("{}{}{zeros}", &kept[..kept.len() - 1], char::from(last + 1)),
    }
}

/// Of digits that are not 0.
fn decremented(digits: &str) -> String {
    let kept = digits.trim_end_matches('0');
    let nines = "9".repeat(digits.len() - kept.len());
    let last = kept.as_bytes()[kept.len() - 1];
    format!("{}{}{nines}", &kept[..kept.len() - 1], char::from(last - 1))
}

/// What `multipleOf` and its like leave: the multiples of one number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Multiples {
    /// In units of 10 to the power of `-places`; positive.
    step: i128,
    places: usize,
}

/// Most places of a step, and most digits: products of two stay within 128 bits.
const MOST_PLACES: usize = 18;

impl Multiples {
    /// Of a positive number; `None` for one of too many digits.
    pub(super) fn of(step: &Decimal) -> Option<Self> {
        let places = step.fraction.len();
        let step = step.scaled(places).filter(|step| (1..=1_000_000_000_000_000_000).contains(step))?;
        (places <= MOST_PLACES).then_some(Self { step, places })
    }

    /// The multiples of both; `None` if they have too many digits.
    pub(super) fn of_both(&self, other: &Self) -> Option<Self> {
        let places = self.places.max(other.places);
        let unit = |of: &Self| of.step.checked_mul(10_i128.pow(u32::try_from(places - of.places).ok()?));
        let (a, b) = (unit(self)?, unit(other)?);
        let (mut divisor, mut rest) = (a, b);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let mut both = Self { step: (a / divisor).checked_mul(b)?, places };
        while both.places > 0 && both.step % 10 == 0 {
            both = Self { step: both.step / 10, places: both.places - 1 };
        }
        Some(both)
    }

    /// Whether a number is one, if it is not too long to tell.
    pub(super) fn contain(&self, value: &Decimal) -> Option<bool> {
        if value.fraction.len() > self.places {
            return Some(false);
        }
        value.scaled(self.places).map(|value| value % self.step == 0)
    }

    /// Whether one is within two bounds, which may or may not be in it; `None` if the bounds are too long to tell.
    pub(super) fn are_within(&self, low: (&Decimal, bool), high: (&Decimal, bool)) -> Option<bool> {
        let places = self.places.max(low.0.fraction.len()).max(high.0.fraction.len());
        let step = self.step.checked_mul(10_i128.checked_pow(u32::try_from(places - self.places).ok()?)?)?;
        let (from, to) = (low.0.scaled(places)?, high.0.scaled(places)?);
        let first = from.checked_add((-from).rem_euclid(step))?;
        let first = if first == from && !low.1 { first.checked_add(step)? } else { first };
        Some(first < to || (first == to && high.1))
    }

    /// The step in its last digit's units.
    pub(super) fn step(&self) -> i128 {
        self.step
    }

    /// The step as JSON.
    pub(super) fn text(&self) -> String {
        let digits = format!("{:0>1$}", self.step, self.places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.places);
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
    }
}
