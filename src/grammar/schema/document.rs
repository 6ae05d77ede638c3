//! The schemas of a document, and what their references lead to.

use std::collections::BTreeMap;

use crate::text::Json;

/// Most schemas of a document that are looked at.
const MOST_SCHEMAS: usize = 20_000;

/// A schema of a document, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchemaId(u32);

/// What a number stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Node<'a> {
    /// A schema.
    Schema(&'a Json),
    /// The schema of one value.
    Constant(&'a Json),
}

/// A document and those of its schemas that were looked at.
#[derive(Debug)]
pub(super) struct Document<'a> {
    root: &'a Json,
    /// The root's own address, without a fragment.
    address: &'a str,
    nodes: Vec<Node<'a>>,
    /// By their places in memory, and whether they are constants.
    known: BTreeMap<(usize, bool), SchemaId>,
    /// Schemas with a name of their own.
    anchors: Option<BTreeMap<&'a str, &'a Json>>,
}

/// An entry of an object; the last, if there are several.
pub(super) fn entry<'a>(value: &'a Json, name: &str) -> Option<&'a Json> {
    let Json::Object(entries) = value else { return None };
    entries.iter().rev().find_map(|(key, value)| (key == name).then_some(value))
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Json) -> Self {
        let address = match entry(root, "$id") {
            Some(Json::String(address)) => address.split('#').next().unwrap_or_default(),
            _ => "",
        };
        Self { root, address, nodes: Vec::new(), known: BTreeMap::new(), anchors: None }
    }

    pub(super) fn node(&self, id: SchemaId) -> Node<'a> {
        self.nodes[id.0 as usize]
    }

    /// The number of a schema.
    pub(super) fn schema(&mut self, schema: &'a Json) -> Result<SchemaId, String> {
        self.number(Node::Schema(schema), schema, false)
    }

    /// The number of the schema of one value.
    pub(super) fn constant(&mut self, value: &'a Json) -> Result<SchemaId, String> {
        self.number(Node::Constant(value), value, true)
    }

    fn number(&mut self, node: Node<'a>, json: &'a Json, is_constant: bool) -> Result<SchemaId, String> {
        let place = (std::ptr::from_ref(json).addr(), is_constant);
        if let Some(known) = self.known.get(&place) {
            return Ok(*known);
        }
        if self.nodes.len() == MOST_SCHEMAS {
            return Err(format!("more than {MOST_SCHEMAS} schemas within it"));
        }
        let id = SchemaId(u32::try_from(self.nodes.len()).expect("they are counted"));
        self.nodes.push(node);
        self.known.insert(place, id);
        Ok(id)
    }

    pub(super) fn is_root(&self, schema: &Json) -> bool {
        std::ptr::eq(self.root, schema)
    }

    /// What a `$ref` leads to.
    pub(super) fn target(&mut self, reference: &str) -> Result<&'a Json, String> {
        let own = reference.strip_prefix(self.address).filter(|_| !self.address.is_empty());
        let fragment = match own.filter(|rest| rest.is_empty() || rest.starts_with('#')).unwrap_or(reference) {
            "" => "",
            within => within.strip_prefix('#').ok_or_else(|| {
                format!("$ref {reference:?}: expected one within the schema, such as \"#/$defs/NAME\"; nothing is \
                    fetched")
            })?,
        };
        let fragment =
            decoded(fragment).ok_or_else(|| format!("$ref {reference:?}: expected %XX of a text"))?;
        let missing = |what: &str| format!("$ref {reference:?}: the schema has no {what:?}");
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchor(&fragment).ok_or_else(|| missing(&fragment));
        }
        let mut place = self.root;
        for part in fragment.split('/').skip(1) {
            let name = part.replace("~1", "/").replace("~0", "~");
            let next = match place {
                Json::Array(values) => name.parse::<usize>().ok().and_then(|number| values.get(number)),
                other => entry(other, &name),
            };
            place = next.ok_or_else(|| missing(&name))?;
            if matches!(entry(place, "$id"), Some(Json::String(_))) {
                return Err(format!("$ref {reference:?} leads through a schema with a `$id` of its own"));
            }
        }
        Ok(place)
    }

    /// The schema of a name, wherever it is.
    fn anchor(&mut self, name: &str) -> Option<&'a Json> {
        let root = self.root;
        let anchors = self.anchors.get_or_insert_with(|| {
            let mut found = BTreeMap::new();
            let mut open = vec![root];
            while let Some(value) = open.pop() {
                match value {
                    Json::Object(entries) => {
                        for key in ["$anchor", "$dynamicAnchor"] {
                            if let Some(Json::String(name)) = entry(value, key) {
                                found.insert(name.as_str(), value);
                            }
                        }
                        // Values and what has an address of its own are no schemas of this document.
                        let is_schema = |key: &str| !matches!(key, "const" | "enum" | "default" | "examples");
                        open.extend(
                            entries
                                .iter()
                                .filter(|(key, _)| is_schema(key))
                                .map(|(_, value)| value)
                                .filter(|value| !matches!(entry(value, "$id"), Some(Json::String(_)))),
                        );
                    }
                    Json::Array(values) => open.extend(values),
                    Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
                }
            }
            found
        });
        anchors.get(name).copied()
    }
}

/// A text whose bytes may be written as `%XX`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}
