//! The numbers of requests, in one table: what each may be, on which paths, and what it is where a request does not
//! say. Those of sampling are the library's, as far as OpenAI has no others.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::Value;
use yggc::engine::{Parameter, Values};

use super::answers::{Endpoint, Refused};

/// A number that a body may have.
#[derive(Debug)]
pub(super) struct Field {
    parameter: Parameter,
    /// Paths that know it. On `/v1/responses` a request has become one of the chat.
    paths: &'static [Endpoint],
}

const ALL: &[Endpoint] = &[Endpoint::Chat, Endpoint::Completions];
/// Whole numbers up to this one are doubles.
const EXACT: f64 = (1_u64 << 53) as f64;
/// Most answers to one prompt.
const MOST_EACH: i128 = 4;
/// Most log-probabilities in addition to a token's own, as OpenAI has it.
const MOST_LOG_PROBS: i128 = 20;

const fn integer(name: &'static str, [least, most]: [i128; 2], neutral: Option<i128>) -> Parameter {
    Parameter { name, values: Values::Integer { least, most, neutral }, about: "" }
}

/// Most tokens of the answer.
pub(super) static MAX_TOKENS: Field =
    Field { parameter: integer("max_tokens", [1, u64::MAX as i128], None), paths: ALL };
/// OpenAI's newer name for it, in a chat.
pub(super) static MAX_COMPLETION_TOKENS: Field = Field {
    parameter: integer("max_completion_tokens", [1, u64::MAX as i128], None),
    paths: &[Endpoint::Chat],
};
pub(super) static TEMPERATURE: Field = Field { parameter: Parameter::TEMPERATURE, paths: ALL };
/// OpenAI has 0, too: the most probable token alone is kept.
pub(super) static TOP_P: Field = Field {
    parameter: Parameter {
        values: Values::Decimal { least: 0.0, above: false, most: 1.0, neutral: 1.0 },
        ..Parameter::TOP_P
    },
    paths: ALL,
};
/// vLLM keeps all by -1.
pub(super) static TOP_K: Field = Field {
    parameter: Parameter {
        values: Values::Integer { least: -1, most: u32::MAX as i128, neutral: Some(0) },
        ..Parameter::TOP_K
    },
    paths: ALL,
};
pub(super) static MIN_P: Field = Field { parameter: Parameter::MIN_P, paths: ALL };
/// OpenAI's are signed.
pub(super) static SEED: Field = Field {
    parameter: Parameter {
        values: Values::Integer { least: i64::MIN as i128, most: u64::MAX as i128, neutral: None },
        ..Parameter::SEED
    },
    paths: ALL,
};
pub(super) static REPETITION_PENALTY: Field = Field { parameter: Parameter::REPETITION_PENALTY, paths: ALL };
pub(super) static FREQUENCY_PENALTY: Field = Field { parameter: Parameter::FREQUENCY_PENALTY, paths: ALL };
pub(super) static PRESENCE_PENALTY: Field = Field { parameter: Parameter::PRESENCE_PENALTY, paths: ALL };
/// Answers to each prompt.
pub(super) static N: Field = Field { parameter: integer("n", [1, MOST_EACH], Some(1)), paths: ALL };
pub(super) static BEST_OF: Field = Field { parameter: integer("best_of", [1, MOST_EACH], None), paths: ALL };
/// Log-probabilities of a completion; in a chat the field of this name is true or false.
pub(super) static LOG_PROBS: Field =
    Field { parameter: integer("logprobs", [0, MOST_LOG_PROBS], None), paths: &[Endpoint::Completions] };
pub(super) static TOP_LOG_PROBS: Field =
    Field { parameter: integer("top_logprobs", [0, MOST_LOG_PROBS], None), paths: &[Endpoint::Chat] };

/// vLLM's, of the tokens of the prompt; it has -1 for the whole vocabulary.
pub(super) static PROMPT_LOG_PROBS: Field =
    Field { parameter: integer("prompt_logprobs", [0, MOST_LOG_PROBS], None), paths: ALL };

static TABLE: [&Field; 15] = [
    &MAX_TOKENS,
    &MAX_COMPLETION_TOKENS,
    &TEMPERATURE,
    &TOP_P,
    &TOP_K,
    &MIN_P,
    &SEED,
    &REPETITION_PENALTY,
    &FREQUENCY_PENALTY,
    &PRESENCE_PENALTY,
    &N,
    &BEST_OF,
    &LOG_PROBS,
    &TOP_LOG_PROBS,
    &PROMPT_LOG_PROBS,
];

/// The fields of a body that a request has no name for: numbers, flags, and settings of other servers.
#[derive(Debug)]
pub(super) struct Others(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Others {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Others;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Others, A::Error> {
                let mut others = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let known = TABLE.iter().find(|field| field.name() == name);
                    // Of what means nothing here the last counts, as other readers of JSON have it.
                    if others.insert(name, value).is_some()
                        && let Some(field) = known
                    {
                        return Err(A::Error::duplicate_field(field.name()));
                    }
                }
                Ok(Others(others))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// A number in its range.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Decimal(f32),
    Integer(i128),
}

/// The numbers of a body, each in its range.
#[derive(Debug)]
pub(super) struct Numbers([Option<Number>; TABLE.len()]);

impl Others {
    /// A field, unless it is absent or null, which OpenAI takes as absent.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Takes a field that is 0 out, in whatever form; whether it was there.
    pub(super) fn take_zero(&mut self, name: &str) -> bool {
        let is_zero = self.get(name).and_then(Value::as_f64) == Some(0.0);
        if is_zero {
            self.0.remove(name);
        }
        is_zero
    }

    /// A field that is true or false.
    ///
    /// # Errors
    /// A refusal of anything else.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, Refused> {
        let flag = |value: &Value| {
            value.as_bool().ok_or_else(|| {
                Refused::field(name, format!("found {} where true or false belongs", described(value)))
            })
        };
        self.get(name).map(flag).transpose()
    }

    /// The numbers that the path knows; those of other paths are fields that say nothing here.
    ///
    /// # Errors
    /// A refusal of the first that is no number of its range.
    pub(super) fn numbers(&self, path: Endpoint) -> Result<Numbers, Refused> {
        let mut numbers = Numbers([None; TABLE.len()]);
        for (field, number) in TABLE.iter().zip(&mut numbers.0) {
            if let Some(value) = self.get(field.name()).filter(|_| field.paths.contains(&path)) {
                *number = Some(read(&field.parameter, value)?);
            }
        }
        Ok(numbers)
    }
}

/// A value as a number of a parameter. A text is none, and neither is true or false. A number without a fraction is
/// whole, however it is written: to JSON, and to OpenAI's published schema, 5.0 is the integer 5.
fn read(parameter: &Parameter, value: &Value) -> Result<Number, Refused> {
    let refused = || {
        let what = format!("expected {}, found {}", parameter.expected(), described(value));
        Refused::field(parameter.name, what)
    };
    let Value::Number(number) = value else { return Err(refused()) };
    let double = number.as_f64().ok_or_else(refused)?;
    match parameter.values {
        Values::Decimal { .. } if parameter.allows(double) => Ok(Number::Decimal(double as f32)),
        Values::Decimal { .. } => Err(refused()),
        Values::Integer { least, most, neutral: _ } => {
            let exact = number.as_u64().map(i128::from).or(number.as_i64().map(i128::from));
            // Beyond what doubles tell apart, another number may have been meant.
            let is_whole = double.fract() == 0.0 && double.abs() <= EXACT;
            let whole = exact.or_else(|| is_whole.then_some(double as i128));
            let inside = whole.filter(|whole| (least..=most).contains(whole));
            inside.map(Number::Integer).ok_or_else(refused)
        }
    }
}

/// A value, for whoever sent it.
fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(is_true) => is_true.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("the text {:?}", text.chars().take(40).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The decimal number of a parameter that is no field by itself, such as each bias.
pub(super) fn decimal(parameter: &Parameter, value: &Value) -> Result<f32, Refused> {
    match read(parameter, value)? {
        Number::Decimal(number) => Ok(number),
        Number::Integer(_) => unreachable!("{} is decimal", parameter.name),
    }
}

impl Numbers {
    fn sent(&self, field: &'static Field) -> Option<Number> {
        let place = TABLE.iter().position(|known| std::ptr::eq(*known, field)).expect("a field of the table");
        self.0[place]
    }

    /// A decimal number, or what changes nothing.
    pub(super) fn decimal(&self, field: &'static Field) -> f32 {
        match (self.sent(field), field.parameter.values) {
            (Some(Number::Decimal(number)), _) => number,
            (None, Values::Decimal { neutral, .. }) => neutral,
            (sent, _) => unreachable!("{field:?} is decimal: {sent:?}"),
        }
    }

    /// A whole number, or what changes nothing, if anything does.
    pub(super) fn integer(&self, field: &'static Field) -> Option<i128> {
        match (self.sent(field), field.parameter.values) {
            (Some(Number::Integer(number)), _) => Some(number),
            (None, Values::Integer { neutral, .. }) => neutral,
            (sent, _) => unreachable!("{field:?} is whole: {sent:?}"),
        }
    }
}

impl Field {
    /// Its name.
    pub(super) const fn name(&self) -> &'static str {
        self.parameter.name
    }
}

#[cfg(test)]
#[path = "numbers/tests.rs"]
mod tests;
