//! Sets of numbers, and the expressions of their texts.

use super::decimal::{Decimal, Multiples};

/// Most digits of a bound: the expression of a bound grows with their square.
pub(super) const MOST_BOUND_DIGITS: usize = 64;

/// Largest step of `multipleOf`: its expression has a state for each remainder.
const MOST_STEP: i128 = 10_000;

/// Decimal digits that every float of 64 bits keeps.
const FLOAT_DIGITS: usize = 15;

/// A bound; `included` if the number itself is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) value: Decimal,
    pub(super) included: bool,
}

impl Bound {
    /// Whether it allows a value of a place like that: above it for a low bound, below it for a high one.
    fn allows(&self, place: std::cmp::Ordering, inside: std::cmp::Ordering) -> bool {
        place == inside || (place.is_eq() && self.included)
    }
}

/// Numbers between bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Numbers {
    pub(super) low: Option<Bound>,
    pub(super) high: Option<Bound>,
    pub(super) whole: bool,
    pub(super) multiples: Option<Multiples>,
}

impl Numbers {
    /// What is in both; `None` if nothing is.
    pub(super) fn both(&self, other: &Self) -> Result<Option<Self>, String> {
        let stricter = |a: &Option<Bound>, b: &Option<Bound>, inside: std::cmp::Ordering| match (a, b) {
            (Some(a), Some(b)) => {
                let place = a.value.cmp(&b.value);
                Some(if place == inside || (place.is_eq() && !a.included) { a } else { b }.clone())
            }
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        let multiples = match (&self.multiples, &other.multiples) {
            (Some(a), Some(b)) => {
                Some(a.of_both(b).ok_or("`multipleOf` of several schemas: too many digits together")?)
            }
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Self {
            low: stricter(&self.low, &other.low, std::cmp::Ordering::Greater),
            high: stricter(&self.high, &other.high, std::cmp::Ordering::Less),
            whole: self.whole || other.whole,
            multiples,
        }
        .reduced()
    }

    /// The same set with bounds that are in it where it is of whole numbers; `None` if it is empty.
    pub(super) fn reduced(mut self) -> Result<Option<Self>, String> {
        if self.whole {
            if let Some(low) = &mut self.low {
                *low = Bound { value: low.value.whole_above(!low.included), included: true };
            }
            if let Some(high) = &mut self.high {
                let mirrored = high.value.negated().whole_above(!high.included);
                *high = Bound { value: mirrored.negated(), included: true };
            }
            let one = Decimal::parse("1").and_then(|one| Multiples::of(&one)).expect("1 is short");
            if let Some(multiples) = &self.multiples {
                self.multiples =
                    Some(multiples.of_both(&one).ok_or("`multipleOf` of an integer: too many digits")?);
            }
        }
        if let (Some(low), Some(high)) = (&self.low, &self.high) {
            if low.value > high.value || (low.value == high.value && !(low.included && high.included)) {
                return Ok(None);
            }
            if let Some(multiples) = &self.multiples {
                let ends = ((&low.value, low.included), (&high.value, high.included));
                let some = multiples.are_within(ends.0, ends.1);
                if !some.ok_or("`multipleOf` with bounds of too many digits")? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(self))
    }

    /// Whether a number is in it.
    pub(super) fn contain(&self, value: &Decimal) -> Result<bool, String> {
        use std::cmp::Ordering::{Greater, Less};
        let inside = |bound: &Option<Bound>, side| {
            bound.as_ref().is_none_or(|bound| bound.allows(value.cmp(&bound.value), side))
        };
        let is_multiple = match &self.multiples {
            None => true,
            Some(multiples) => {
                multiples.contain(value).ok_or("a number of too many digits together with `multipleOf`")?
            }
        };
        Ok(inside(&self.low, Greater)
            && inside(&self.high, Less)
            && (!self.whole || value.is_whole())
            && is_multiple)
    }

    /// Whether no number is in both, as far as bounds and multiples show.
    pub(super) fn are_apart(&self, other: &Self) -> bool {
        matches!(self.both(other), Ok(None))
    }

    /// What writes them, as an atom of Lark.
    pub(super) fn lark(&self, layout: &str) -> Result<String, String> {
        if let Some(multiples) = &self.multiples {
            return self.multiples_lark(multiples, layout);
        }
        if self.low.is_none() && self.high.is_none() {
            // Exponents of two digits: what reads them as floats finds none infinite.
            let free = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?";
            return Ok(format!("/{}/", if self.whole { "0|-?[1-9][0-9]*" } else { free }));
        }
        let zero = Bound { value: Decimal::parse("0").expect("0 is short"), included: true };
        let above_zero = Bound { included: false, ..zero.clone() };
        let mirrored = |bound: &Option<Bound>| {
            bound.as_ref().map(|bound| Bound { value: bound.value.negated(), included: bound.included })
        };
        let reaches = |bound: &Option<Bound>, from: &Bound| {
            bound.as_ref().is_none_or(|bound| {
                bound.value > from.value || (bound.included && from.included && bound.value == from.value)
            })
        };
        let mut parts = Vec::new();
        if reaches(&self.high, &zero) {
            let low = self.low.clone().filter(|low| !low.value.negative);
            parts.extend(self.sized(&low.unwrap_or_else(|| zero.clone()), self.high.as_ref()));
        }
        let (low, high) = (mirrored(&self.high), mirrored(&self.low));
        if reaches(&high, &above_zero) {
            let low = low.filter(|low| !low.value.negative && !low.value.is_zero());
            let sizes = self.sized(&low.unwrap_or(above_zero), high.as_ref());
            parts.extend(sizes.map(|sizes| format!("\"-\" {sizes}")));
        }
        Ok(format!("({})", parts.join(" | ")))
    }

    /// Numbers without a sign between bounds that are not negative.
    fn sized(&self, low: &Bound, high: Option<&Bound>) -> Option<String> {
        let from = at_least(low, self.whole);
        match high {
            None => Some(format!("/{from}/")),
            Some(high) => at_most(high, self.whole).map(|to| format!("(/{from}/ & /{to}/)")),
        }
    }

    /// Multiples are the parser's own: it counts remainders. Its bounds are floats, which hold up to 15 digits; so are
    /// the numbers of many who read answers, whose remainders of longer ones would be chance.
    fn multiples_lark(&self, multiples: &Multiples, layout: &str) -> Result<String, String> {
        if multiples.step() > MOST_STEP {
            return Err(format!(
                "`multipleOf` {}: expected at most {MOST_STEP} in units of its last digit",
                multiples.text()
            ));
        }
        let mut entries = format!("\"type\": \"number\", \"multipleOf\": {}", multiples.text());
        let names = [("inimum", &self.low), ("aximum", &self.high)];
        for (name, bound) in names {
            let longest = Decimal::parse("999999999999999").expect("it is short");
            let longest = if name == "inimum" { longest.negated() } else { longest };
            let Bound { value, included } = bound.clone().unwrap_or(Bound { value: longest, included: true });
            if value.whole.len() + value.fraction.len() > FLOAT_DIGITS {
                return Err(format!(
                    "`multipleOf` with a bound of more than {FLOAT_DIGITS} digits, {}",
                    value.text()
                ));
            }
            let key = if included { format!("m{name}") } else { format!("exclusiveM{name}") };
            entries.push_str(&format!(", \"{key}\": {}", value.text()));
        }
        if self.whole {
            entries = entries.replacen("number", "integer", 1);
        }
        Ok(format!("%json {{{entries}, {layout}}}"))
    }
}

/// Digits above those of a whole number; some text always.
fn digits_above(digits: &str) -> Vec<String> {
    let mut parts = vec![format!("[1-9][0-9]{{{},}}", digits.len())];
    for (place, digit) in digits.bytes().enumerate().filter(|(_, digit)| *digit < b'9') {
        let (kept, further) = (&digits[..place], digits.len() - place - 1);
        parts.push(format!("{kept}[{}-9][0-9]{{{further}}}", char::from(digit + 1)));
    }
    parts
}

/// Digits of whole numbers below one.
fn digits_below(digits: &str) -> Vec<String> {
    let mut parts = Vec::new();
    if !digits.is_empty() {
        parts.push("0".to_owned());
    }
    if digits.len() > 1 {
        parts.push(format!("[1-9][0-9]{{0,{}}}", digits.len() - 2));
    }
    for (place, digit) in digits.bytes().enumerate() {
        let least = if place == 0 { b'1' } else { b'0' };
        if digit > least {
            let (kept, further) = (&digits[..place], digits.len() - place - 1);
            parts.push(format!("{kept}[{}-{}][0-9]{{{further}}}", char::from(least), char::from(digit - 1)));
        }
    }
    parts
}

/// The expression of what is not below a bound, which is not negative.
fn at_least(bound: &Bound, whole: bool) -> String {
    let Bound { value: Decimal { whole: digits, fraction, .. }, included } = bound;
    let own = if digits.is_empty() { "0" } else { digits };
    let above = digits_above(digits).join("|");
    if whole {
        return if *included { format!("{above}|{own}") } else { above };
    }
    let mut parts = vec![format!(r"({above})(\.[0-9]+)?")];
    match (fraction.is_empty(), included) {
        (true, true) => parts.push(format!(r"{own}(\.[0-9]+)?")),
        (true, false) => parts.push(format!(r"{own}\.[0-9]*[1-9][0-9]*")),
        (false, _) => {
            let more_digits = if *included { "[0-9]*" } else { "[0-9]*[1-9][0-9]*" };
            let mut ends = vec![format!("{fraction}{more_digits}")];
            for (place, digit) in fraction.bytes().enumerate().filter(|(_, digit)| *digit < b'9') {
                ends.push(format!("{}[{}-9][0-9]*", &fraction[..place], char::from(digit + 1)));
            }
            parts.push(format!(r"{own}\.({})", ends.join("|")));
        }
    }
    parts.join("|")
}

/// The expression of what is not above a bound, which is not negative; `None` if nothing is.
fn at_most(bound: &Bound, whole: bool) -> Option<String> {
    let Bound { value: Decimal { whole: digits, fraction, .. }, included } = bound;
    let own = if digits.is_empty() { "0" } else { digits };
    let below = digits_below(digits).join("|");
    let mut parts = Vec::new();
    if !below.is_empty() {
        parts.push(if whole { below } else { format!(r"({below})(\.[0-9]+)?") });
    }
    match (fraction.is_empty(), included) {
        (true, true) => parts.push(if whole { own.to_owned() } else { format!(r"{own}(\.0+)?") }),
        (true, false) => {}
        (false, _) => {
            let mut ends: Vec<String> = (1..fraction.len()).map(|end| fraction[..end].to_owned()).collect();
            if *included {
                ends.push(format!("{fraction}0*"));
            }
            for (place, digit) in fraction.bytes().enumerate().filter(|(_, digit)| *digit > b'0') {
                ends.push(format!("{}[0-{}][0-9]*", &fraction[..place], char::from(digit - 1)));
            }
            parts.push(format!(r"{own}(\.({}))?", ends.join("|")));
        }
    }
    (!parts.is_empty()).then(|| parts.join("|"))
}
