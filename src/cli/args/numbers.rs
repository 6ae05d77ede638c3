//! Numeric arguments and their ranges.

use std::{num::IntErrorKind, ops::RangeInclusive};

use yggc::engine::Parameter;

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    let limit = || format!("expected a whole number from 1 to {}", usize::MAX);
    match text.parse::<usize>() {
        Ok(number) if number >= 1 => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err(limit()),
        Ok(_) | Err(_) => Err("expected a whole number, at least 1".to_owned()),
    }
}

/// Bytes: a number, alone or followed by K, M, G or T for powers of 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes, as in 500M or 20G".to_owned();
    let (number, unit) =
        text.split_at(text.len() - usize::from(text.ends_with(|c: char| c.is_ascii_alphabetic())));
    let unit: u64 = match unit {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        "T" | "t" => 1 << 40,
        _ => return Err(expected()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(expected)
}

/// As [`size`]; `off` is none.
pub(super) fn size_or_off(text: &str) -> Result<u64, String> {
    if text == "off" { Ok(0) } else { size(text).map_err(|expected| format!("{expected}, or off")) }
}

/// A width, or the first and the last of a range.
pub(super) fn widths(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (width(first)?, width(last)?);
    if first <= last { Ok(first..=last) } else { Err(format!("expected {last}-{first}, lowest width first")) }
}

/// More threads or rows than any present machine can use: a typing error.
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

/// A number of a request's sampling.
pub(super) fn decimal(parameter: &'static Parameter, text: &str) -> Result<f32, String> {
    let expected = || format!("expected {}", parameter.expected());
    let number = text.parse::<f32>().map_err(|_| expected())?;
    parameter.check(number).map_err(|_| expected())
}

pub(super) fn temperature(text: &str) -> Result<f32, String> {
    decimal(&Parameter::TEMPERATURE, text)
}

pub(super) fn top_p(text: &str) -> Result<f32, String> {
    decimal(&Parameter::TOP_P, text)
}

pub(super) fn min_p(text: &str) -> Result<f32, String> {
    decimal(&Parameter::MIN_P, text)
}
