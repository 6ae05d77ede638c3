//! JSON whose objects keep their order and whose numbers keep their digits: templates print tools as they were defined,
//! and schemas hold to the last digit.

use std::{collections::BTreeMap, fmt};

use serde::de::{self, MapAccess, Visitor};
use serde::ser::{Error, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::chat::Place;

/// Deepest value within values, as serde_json has it for other types: reading recurses.
const MOST_NESTED: usize = 127;

/// A number of JSON, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonNumber(String);

impl JsonNumber {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for JsonNumber {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl Serialize for JsonNumber {
    /// For what knows no JSON, such as templates: integers of up to 128 bits, and else the nearest float.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(text) = self;
        if let Ok(value) = text.parse::<u64>() {
            return serializer.serialize_u64(value);
        }
        if let Ok(value) = text.parse::<i64>() {
            return serializer.serialize_i64(value);
        }
        if let Ok(value) = text.parse::<i128>() {
            return serializer.serialize_i128(value);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => serializer.serialize_f64(value),
            _ => Err(S::Error::custom(format!("expected a number below 1.8e308, found {text}"))),
        }
    }
}

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(JsonNumber),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object, in order.
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(super) fn visit_texts(&mut self, visit: &mut impl FnMut(Place, &mut String)) {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => {}
            Self::String(text) => visit(Place::Value, text),
            Self::Array(values) => values.iter_mut().for_each(|value| value.visit_texts(visit)),
            Self::Object(entries) => {
                for (key, value) in entries {
                    visit(Place::Key, key);
                    value.visit_texts(visit);
                }
            }
        }
    }
}

impl fmt::Display for Json {
    /// As JSON, without blanks, its numbers as they were written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::to_string(text).expect("a text is JSON");
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => f.write_str(value.as_str()),
            Self::String(text) => f.write_str(&quoted(text)),
            Self::Array(values) => {
                for (number, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if number == 0 { "[" } else { "," })?;
                }
                f.write_str(if values.is_empty() { "[]" } else { "]" })
            }
            Self::Object(entries) => {
                for (number, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{}:{value}", if number == 0 { "{" } else { "," }, quoted(key))?;
                }
                f.write_str(if entries.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::String(value) => serializer.serialize_str(value),
            Self::Array(values) => serializer.collect_seq(values),
            Self::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    /// Of JSON text alone: other forms have lost the digits.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(&raw, 0).map_err(de::Error::custom)
    }
}

impl Json {
    fn read(raw: &RawValue, level: usize) -> Result<Self, serde_json::Error> {
        if level > MOST_NESTED {
            return Err(de::Error::custom(format!("values nested deeper than {MOST_NESTED} levels")));
        }
        let text = raw.get();
        Ok(match text.as_bytes()[0] {
            b'n' => Self::Null,
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'"' => Self::String(serde_json::from_str(text)?),
            b'[' => {
                let values: Vec<&RawValue> = serde_json::from_str(text)?;
                Self::Array(
                    values.into_iter().map(|value| Self::read(value, level + 1)).collect::<Result<_, _>>()?,
                )
            }
            b'{' => {
                let Entries(entries) = serde_json::from_str(text)?;
                let read = |(key, value): (_, &RawValue)| Ok((key, Self::read(value, level + 1)?));
                Self::Object(entries.into_iter().map(read).collect::<Result<_, serde_json::Error>>()?)
            }
            _ => Self::Number(JsonNumber(text.to_owned())),
        })
    }
}

/// The entries of an object, in order; of those with one key the last value, in the first place.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, &RawValue)> = Vec::new();
                let mut places = BTreeMap::<String, usize>::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    // As other readers of JSON have it, the last of a key counts.
                    match places.get(&key) {
                        Some(place) => entries[*place].1 = value,
                        None => {
                            places.insert(key.clone(), entries.len());
                            entries.push((key, value));
                        }
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
