//! What a schema allows, as a union of forms: each of one type of JSON, and without `allOf`, `anyOf` and their like.

use std::collections::BTreeSet;

use super::{
    decimal::Decimal,
    document::SchemaId,
    number::Numbers,
    text::{Pattern, Strings},
};

/// Most properties of one object. Masks compare the optional ones with each other: above 1,500 they get stuck.
pub(super) const MOST_NAMES: usize = 1_000;

/// Schemas that a value has to fit all; of none, any value.
pub(super) type All = BTreeSet<SchemaId>;

/// Values of one type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    Null,
    Bool(bool),
    /// One number.
    Value(Decimal),
    Numbers(Numbers),
    /// One string.
    Text(String),
    Strings(Strings),
    Array(Array),
    Object(Object),
}

/// Arrays.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Array {
    /// The first items.
    pub(super) first: Vec<All>,
    /// Items after those.
    pub(super) rest: All,
    pub(super) least: u64,
    pub(super) most: Option<u64>,
    /// Whether no two may be equal.
    pub(super) unique: bool,
}

/// Objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Object {
    /// What each schema says of properties: what is additional is so to its own alone.
    pub(super) layers: Vec<Layer>,
    pub(super) required: Vec<String>,
    pub(super) least: u64,
    pub(super) most: Option<u64>,
}

/// What one schema says of properties.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Layer {
    pub(super) named: Vec<(String, All)>,
    pub(super) patterns: Vec<(Pattern, All)>,
    /// Of what matches none of these.
    pub(super) additional: All,
}

impl Array {
    /// What an item has to fit.
    pub(super) fn item(&self, number: usize) -> &All {
        self.first.get(number).unwrap_or(&self.rest)
    }

    pub(super) fn both(&self, other: &Self) -> Option<Self> {
        let longest = self.first.len().max(other.first.len());
        let of_both = |a: &All, b: &All| a | b;
        let both = Self {
            first: (0..longest).map(|number| of_both(self.item(number), other.item(number))).collect(),
            rest: of_both(&self.rest, &other.rest),
            least: self.least.max(other.least),
            most: self.most.into_iter().chain(other.most).min(),
            unique: self.unique || other.unique,
        };
        both.most.is_none_or(|most| both.least <= most).then_some(both)
    }
}

/// What is said of an object with more.
pub(super) fn too_many_names(found: usize) -> String {
    format!("expected at most {MOST_NAMES} properties of an object, found {found}")
}

/// As many parts as are copied and compared with a union.
pub(super) fn parts(union: &[Form]) -> usize {
    union.iter().map(|form| if let Form::Object(object) = form { object.parts() } else { 1 }).sum()
}

impl Object {
    /// Its names, each as often as a schema has it, and one.
    pub(super) fn parts(&self) -> usize {
        self.layers.iter().map(|layer| layer.named.len()).sum::<usize>() + self.required.len() + 1
    }

    /// Names that are written where they are allowed, in order.
    pub(super) fn names(&self) -> Vec<&str> {
        let named = self.layers.iter().flat_map(|layer| layer.named.iter().map(|(name, _)| name.as_str()));
        let mut seen = BTreeSet::new();
        named.chain(self.required.iter().map(String::as_str)).filter(|name| seen.insert(*name)).collect()
    }

    pub(super) fn both(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.layers.extend(other.layers.iter().filter(|layer| !self.layers.contains(layer)).cloned());
        both.required.extend(other.required.iter().filter(|name| !self.required.contains(name)).cloned());
        both.least = both.least.max(other.least);
        both.most = both.most.into_iter().chain(other.most).min();
        both.most.is_none_or(|most| both.least <= most).then_some(both)
    }
}
