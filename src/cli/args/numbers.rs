//! Numbers that arguments are given by, each within what makes sense.

use std::ops::RangeInclusive;

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number >= 1 => Ok(number),
        _ => Err("expected a whole number, at least 1".to_owned()),
    }
}

/// A width, or the first and the last of a range.
pub(super) fn widths(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (width(first)?, width(last)?);
    if first <= last { Ok(first..=last) } else { Err(format!("expected {last}-{first}, lowest width first")) }
}

/// More threads or rows than any machine of today has use for are a typing error.
pub(super) fn up_to(most: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a whole number from 1 to {most}")),
    }
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    up_to(1024)(text)
}

pub(super) fn width(text: &str) -> Result<usize, String> {
    up_to(4096)(text)
}

pub(super) fn number(text: &str, inside: impl FnOnce(f32) -> bool, expected: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if number.is_finite() && inside(number) => Ok(number),
        _ => Err(format!("expected a number {expected}")),
    }
}

pub(super) fn temperature(text: &str) -> Result<f32, String> {
    number(text, |t| t >= 0.0, "that is 0 or more")
}

pub(super) fn top_p(text: &str) -> Result<f32, String> {
    number(text, |p| p > 0.0 && p <= 1.0, "above 0 and at most 1")
}

pub(super) fn min_p(text: &str) -> Result<f32, String> {
    number(text, |m| (0.0..=1.0).contains(&m), "from 0 to 1")
}
