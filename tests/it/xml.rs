//! A check that a text is well-formed XML, as far as our own pages go: tags nest and are closed, attributes are quoted
//! and come once, entities are known.

use std::collections::BTreeSet;

/// One element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
}

impl Element {
    /// The value of an attribute as it is written.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// Every element, in document order.
///
/// # Errors
/// What is not well-formed, with the text from there.
pub(crate) fn elements(text: &str) -> Result<Vec<Element>, String> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        entities(&rest[..at])?;
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.split_once("-->").ok_or("a comment without end")?.1;
            continue;
        }
        if let Some(after) = rest.strip_prefix("<!DOCTYPE html>") {
            rest = after;
            continue;
        }
        let (tag, after) =
            rest[1..].split_once('>').ok_or_else(|| format!("a tag without end: {rest:.40}"))?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let opened = open.pop();
            if opened.as_deref() != Some(name) {
                return Err(format!("</{name}> ends {opened:?}"));
            }
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("not a name: <{tag:.40}>"));
        }
        found.push(Element { name: name.to_owned(), attributes: attributes_of(attributes)? });
        if !is_empty {
            open.push(name.to_owned());
        }
    }
    entities(rest)?;
    if open.is_empty() { Ok(found) } else { Err(format!("not closed: {open:?}")) }
}

fn attributes_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let (mut found, mut names, mut rest) = (Vec::new(), BTreeSet::new(), text.trim());
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or_else(|| format!("not an attribute: {rest:.40}"))?;
        let (value, after) = after.split_once('"').ok_or_else(|| format!("no closing quote: {after:.40}"))?;
        entities(value)?;
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == ':');
        if !is_name || !names.insert(name.to_owned()) {
            return Err(format!("not a name, or twice: {name:.40}"));
        }
        found.push((name.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    Ok(found)
}

fn entities(text: &str) -> Result<(), String> {
    for after in text.split('&').skip(1) {
        let name = after.split_once(';').map(|(name, _)| name).unwrap_or_default();
        if !["lt", "gt", "amp", "quot", "apos", "#39"].contains(&name) {
            return Err(format!("not an entity: &{after:.20}"));
        }
    }
    Ok(())
}

#[test]
fn what_is_not_well_formed_is_refused() {
    let good = "<!DOCTYPE html>\n<!-- <x> --><a b=\"c\" d-e=\"&lt;\">t &amp; u<br/><i>&#39;</i></a>\n";
    let found = elements(good).expect("well-formed");
    let names: Vec<&str> = found.iter().map(|element| element.name.as_str()).collect();
    assert_eq!(names, ["a", "br", "i"]);
    assert_eq!(found[0].attribute("d-e"), Some("&lt;"));
    for bad in [
        "<a>",
        "</a>",
        "<a></b>",
        "<a><b></a></b>",
        "<a b=c></a>",
        "<a b></a>",
        "<a b=\"1\" b=\"2\"></a>",
        "<a>&</a>",
        "<a>&nbsp;</a>",
        "<a b=\"&\"/>",
        "<",
        "<a",
        "<!-- x",
        "< a/>",
        "<a b=\"1/>",
    ] {
        assert!(elements(bad).is_err(), "{bad}");
    }
}
