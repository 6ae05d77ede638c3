//! Reads schemas: their forms, keyword by keyword.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    decimal::{Decimal, Multiples},
    document::{Document, Node, SchemaId, entry},
    formats,
    forms::{All, Array, Form, Layer, MOST_NAMES, Object, parts, too_many_names},
    number::{Bound, MOST_BOUND_DIGITS, Numbers},
    text::{Pattern, Questions, Strings},
};
use crate::text::Json;

/// Most schemas within schemas, or by references, that hold for one value: reading recurses, at under 2 kB a level.
const MOST_NESTED: usize = 64;
/// Most forms of one schema.
const MOST_FORMS: usize = 4_000;
/// Forms up to which equal ones are looked for: each is compared with the others.
const FEW_FORMS: usize = 200;
/// Pairs of forms that may be compared, and parts of objects that may be copied for them: some tenths of a second.
const MOST_PAIRS: usize = 2_000_000;
/// Items of arrays by which alternatives of `oneOf` are told apart.
const COMPARED_ITEMS: usize = 16;
/// Levels of values within values by which they are.
const COMPARED_LEVELS: usize = 4;
/// What a schema is whose value would have to fit the same schema first.
const CIRCULAR: &str = "a schema that refers to itself for the same value";

static NOTHING: Json = Json::Bool(false);

/// The schemas of a document as forms.
pub(super) struct Reader<'a> {
    pub(super) document: Document<'a>,
    pub(super) questions: Questions,
    /// `None` for those that are being read.
    known: BTreeMap<SchemaId, Option<Rc<Vec<Form>>>>,
    pairs: usize,
    level: usize,
}

/// Every value.
fn anything() -> Vec<Form> {
    vec![
        Form::Null,
        Form::Bool(false),
        Form::Bool(true),
        Form::Numbers(Numbers::default()),
        Form::Strings(Strings::default()),
        Form::Array(Array::default()),
        Form::Object(Object::default()),
    ]
}

fn expected<T>(keyword: &str, what: &str, found: &Json) -> Result<T, String> {
    let found: String = found.to_string().chars().take(60).collect();
    Err(format!("`{keyword}`: expected {what}, found {found}"))
}

fn list<'a>(keyword: &str, value: &'a Json) -> Result<&'a [Json], String> {
    match value {
        Json::Array(values) if !values.is_empty() => Ok(values),
        other => expected(keyword, "a list that is not empty", other),
    }
}

fn names(keyword: &str, value: &Json) -> Result<Vec<String>, String> {
    let Json::Array(values) = value else { return expected(keyword, "a list of names", value) };
    let name = |value: &Json| match value {
        Json::String(name) => Ok(name.clone()),
        other => expected(keyword, "a list of names", other),
    };
    values.iter().map(name).collect()
}

fn entries<'a>(keyword: &str, value: Option<&'a Json>) -> Result<&'a [(String, Json)], String> {
    match value {
        None => Ok(&[]),
        Some(Json::Object(entries)) => Ok(entries),
        Some(other) => expected(keyword, "an object", other),
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(document: Document<'a>) -> Self {
        Self { document, questions: Questions::default(), known: BTreeMap::new(), pairs: 0, level: 0 }
    }

    /// What fits all of some schemas.
    pub(super) fn all(&mut self, all: &All) -> Result<Vec<Form>, String> {
        let mut forms = anything();
        for id in all {
            let further = self.forms(*id)?;
            forms = self.both(&forms, &further)?;
        }
        Ok(forms)
    }

    /// What fits a schema.
    fn forms(&mut self, id: SchemaId) -> Result<Rc<Vec<Form>>, String> {
        match self.known.get(&id) {
            Some(Some(forms)) => return Ok(Rc::clone(forms)),
            Some(None) => return Err(CIRCULAR.to_owned()),
            None => {}
        }
        if self.level == MOST_NESTED {
            return Err(format!("more than {MOST_NESTED} schemas or references for one value"));
        }
        self.known.insert(id, None);
        self.level += 1;
        let read = match self.document.node(id) {
            Node::Schema(schema) => self.schema(schema),
            Node::Constant(value) => self.constant(value),
        };
        self.level -= 1;
        match read {
            Ok(forms) => {
                let forms = Rc::new(forms);
                self.known.insert(id, Some(Rc::clone(&forms)));
                Ok(forms)
            }
            Err(fault) => {
                self.known.remove(&id);
                Err(fault)
            }
        }
    }

    fn constant(&mut self, value: &'a Json) -> Result<Vec<Form>, String> {
        Ok(vec![match value {
            Json::Null => Form::Null,
            Json::Bool(value) => Form::Bool(*value),
            Json::Number(number) => {
                Form::Value(Decimal::parse(number.as_str()).ok_or("a number of more than 1000 digits")?)
            }
            Json::String(text) => Form::Text(text.clone()),
            Json::Array(values) => {
                let first = values.iter().map(|value| Ok(All::from([self.document.constant(value)?])));
                let first: Vec<All> = first.collect::<Result<_, String>>()?;
                let count = first.len() as u64;
                Form::Array(Array { first, least: count, most: Some(count), ..Array::default() })
            }
            Json::Object(entries) => {
                let mut layer = Layer { additional: self.one(&NOTHING)?, ..Layer::default() };
                for (name, _) in entries {
                    if layer.named.iter().all(|(known, _)| known != name) {
                        let value = entry(value, name).expect("it is one of them");
                        layer.named.push((name.clone(), All::from([self.document.constant(value)?])));
                    }
                }
                let required = layer.named.iter().map(|(name, _)| name.clone()).collect();
                Form::Object(Object { layers: vec![layer], required, ..Object::default() })
            }
        }])
    }

    fn schema(&mut self, schema: &'a Json) -> Result<Vec<Form>, String> {
        let keywords = match schema {
            Json::Bool(true) => return Ok(anything()),
            Json::Bool(false) => return Ok(Vec::new()),
            Json::Object(keywords) => keywords,
            Json::Null | Json::Number(_) | Json::String(_) | Json::Array(_) => {
                return expected("schema", "an object or a boolean", schema);
            }
        };
        if !self.document.is_root(schema) && matches!(entry(schema, "$id"), Some(Json::String(_))) {
            return Err("`$id` within a schema: its references lead elsewhere".to_owned());
        }
        let mut forms = anything();
        let mut own = Some(self.own(schema)?);
        for (keyword, value) in keywords {
            let further = match keyword.as_str() {
                "const" => self.constant(value)?,
                "enum" => {
                    let values = list(keyword, value)?.iter();
                    values.map(|value| self.constant(value)).collect::<Result<Vec<_>, _>>()?.concat()
                }
                "allOf" => {
                    let mut forms = anything();
                    for schema in list(keyword, value)? {
                        let id = self.document.schema(schema)?;
                        let further = self.forms(id)?;
                        forms = self.both(&forms, &further)?;
                    }
                    forms
                }
                "anyOf" => self.options(keyword, value)?.concat(),
                "oneOf" => self.one_of(value)?,
                "$ref" => {
                    let Json::String(reference) = value else { return expected(keyword, "a text", value) };
                    let target = self.document.target(reference)?;
                    let id = self.document.schema(target)?;
                    self.forms(id)?.to_vec()
                }
                "dependentRequired" | "dependentSchemas" | "dependencies" => {
                    self.dependencies(keyword, value)?
                }
                // Without its branches it says nothing.
                "if" if entry(schema, "then").or(entry(schema, "else")).is_none() => continue,
                "not" | "if" | "$dynamicRef" | "$recursiveRef" => {
                    return Err(format!("`{keyword}` is not supported"));
                }
                _ if is_own(keyword) => match own.take() {
                    Some(own) => own,
                    None => continue,
                },
                _ => continue,
            };
            forms = self.both(&forms, &further)?;
        }
        Ok(forms)
    }

    fn options(&mut self, keyword: &str, value: &'a Json) -> Result<Vec<Vec<Form>>, String> {
        let read = |schema: &'a Json| {
            let id = self.document.schema(schema)?;
            Ok(self.forms(id)?.to_vec())
        };
        list(keyword, value)?.iter().map(read).collect()
    }

    fn one_of(&mut self, value: &'a Json) -> Result<Vec<Form>, String> {
        let options = self.options("oneOf", value)?;
        for (number, option) in options.iter().enumerate() {
            for (before, other) in options[..number].iter().enumerate() {
                if !self.are_apart(option, other, 0)? {
                    return Err(format!(
                        "`oneOf`: alternatives {before} and {number} may hold at once; use `anyOf`, or tell them \
                         apart by a `const`"
                    ));
                }
            }
        }
        Ok(options.concat())
    }

    /// What holds of objects that have a property, or of others, or both.
    fn dependencies(&mut self, keyword: &str, value: &'a Json) -> Result<Vec<Form>, String> {
        let mut forms = anything();
        for (name, needs) in entries(keyword, Some(value))? {
            let absent = Layer { named: vec![(name.clone(), self.one(&NOTHING)?)], ..Layer::default() };
            let mut options = anything();
            options.pop();
            options.push(Form::Object(Object { layers: vec![absent], ..Object::default() }));
            let present = |required| Form::Object(Object { required, ..Object::default() });
            if keyword != "dependentSchemas" && matches!(needs, Json::Array(_)) {
                let mut required = names(keyword, needs)?;
                required.insert(0, name.clone());
                options.push(present(required));
            } else {
                let id = self.document.schema(needs)?;
                let then = self.forms(id)?;
                options.extend(self.both(&[present(vec![name.clone()])], &then)?);
            }
            forms = self.both(&forms, &options)?;
        }
        Ok(forms)
    }

    /// The forms of all keywords of one type.
    fn own(&mut self, schema: &'a Json) -> Result<Vec<Form>, String> {
        let types: Vec<&str> = match entry(schema, "type") {
            None => vec!["null", "boolean", "number", "string", "array", "object"],
            Some(Json::String(name)) => vec![name],
            Some(value) => {
                let of = |value: &'a Json| match value {
                    Json::String(name) => Ok(name.as_str()),
                    other => expected("type", "names of types", other),
                };
                list("type", value)?.iter().map(of).collect::<Result<_, _>>()?
            }
        };
        let mut forms = Vec::new();
        for name in types {
            match name {
                "null" => forms.push(Form::Null),
                "boolean" => forms.extend([Form::Bool(false), Form::Bool(true)]),
                "number" | "integer" => forms.extend(numbers(schema, name == "integer")?.map(Form::Numbers)),
                "string" => forms.extend(strings(schema)?.map(Form::Strings)),
                "array" => forms.extend(self.arrays(schema)?.map(Form::Array)),
                "object" => forms.extend(self.objects(schema)?.map(Form::Object)),
                other => return Err(format!("`type`: expected a type of JSON, found {other:?}")),
            }
        }
        Ok(forms)
    }

    fn one(&mut self, schema: &'a Json) -> Result<All, String> {
        // What allows anything says nothing.
        let says_nothing = matches!(schema, Json::Bool(true))
            || matches!(schema, Json::Object(keywords) if keywords.is_empty());
        if says_nothing { Ok(All::new()) } else { Ok(All::from([self.document.schema(schema)?])) }
    }

    fn arrays(&mut self, schema: &'a Json) -> Result<Option<Array>, String> {
        let contains = entry(schema, "contains").is_some();
        let least_contained = count(schema, "minContains")?;
        if contains && (least_contained != Some(0) || entry(schema, "maxContains").is_some()) {
            return Err("`contains` is not supported".to_owned());
        }
        if entry(schema, "unevaluatedItems").is_some_and(|value| *value != Json::Bool(true)) {
            return Err("`unevaluatedItems` is not supported".to_owned());
        }
        // Before 2020-12, a list of items was what `prefixItems` is now.
        let (first, rest) = match entry(schema, "items") {
            Some(items @ Json::Array(_)) => (Some(items), entry(schema, "additionalItems")),
            items => (entry(schema, "prefixItems"), items),
        };
        let mut array = Array { least: count(schema, "minItems")?.unwrap_or(0), ..Array::default() };
        array.most = count(schema, "maxItems")?;
        array.unique = match entry(schema, "uniqueItems") {
            None => false,
            Some(Json::Bool(unique)) => *unique,
            Some(other) => return expected("uniqueItems", "a boolean", other),
        };
        if let Some(first) = first {
            let Json::Array(items) = first else { return expected("prefixItems", "a list", first) };
            array.first = items.iter().map(|item| self.one(item)).collect::<Result<_, _>>()?;
        }
        if let Some(rest) = rest {
            array.rest = self.one(rest)?;
        }
        Ok(array.most.is_none_or(|most| array.least <= most).then_some(array))
    }

    fn objects(&mut self, schema: &'a Json) -> Result<Option<Object>, String> {
        for keyword in ["propertyNames", "unevaluatedProperties"] {
            if entry(schema, keyword).is_some_and(|value| *value != Json::Bool(true)) {
                return Err(format!("`{keyword}` is not supported"));
            }
        }
        let mut layer = Layer::default();
        let named = entries("properties", entry(schema, "properties"))?;
        if named.len() > MOST_NAMES {
            return Err(too_many_names(named.len()));
        }
        for (name, property) in named {
            layer.named.push((name.clone(), self.one(property)?));
        }
        for (pattern, value) in entries("patternProperties", entry(schema, "patternProperties"))? {
            layer.patterns.push((Pattern::search(pattern)?, self.one(value)?));
        }
        if let Some(additional) = entry(schema, "additionalProperties") {
            layer.additional = self.one(additional)?;
        }
        let required = entry(schema, "required").map_or(Ok(Vec::new()), |value| names("required", value))?;
        let layers = if layer == Layer::default() { Vec::new() } else { vec![layer] };
        let (least, most) = (count(schema, "minProperties")?.unwrap_or(0), count(schema, "maxProperties")?);
        Ok(most.is_none_or(|most| least <= most).then_some(Object { layers, required, least, most }))
    }

    /// What a property has to fit.
    pub(super) fn property(&mut self, object: &Object, name: &str) -> Result<All, String> {
        let mut all = All::new();
        for layer in &object.layers {
            let mut found = false;
            for (known, schemas) in &layer.named {
                if known == name {
                    all.extend(schemas);
                    found = true;
                }
            }
            for (pattern, schemas) in &layer.patterns {
                if self.questions.matches(pattern, name)? {
                    all.extend(schemas);
                    found = true;
                }
            }
            if !found {
                all.extend(&layer.additional);
            }
        }
        Ok(all)
    }

    /// What is in both of two unions.
    fn both(&mut self, some: &[Form], others: &[Form]) -> Result<Vec<Form>, String> {
        self.pairs += parts(some) * others.len() + some.len() * parts(others);
        if self.pairs > MOST_PAIRS {
            return Err("`allOf`, `anyOf` and references that take too long to bring together".to_owned());
        }
        let mut both: Vec<Form> = Vec::new();
        for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
            if let Some(form) = self.form_of_both(one, other)?
                && (both.len() > FEW_FORMS || !both.contains(&form))
            {
                both.push(form);
            }
        }
        if both.len() > MOST_FORMS {
            return Err(format!("more than {MOST_FORMS} alternatives for one value"));
        }
        Ok(both)
    }

    fn form_of_both(&mut self, one: &Form, other: &Form) -> Result<Option<Form>, String> {
        Ok(match (one, other) {
            (Form::Value(value), Form::Numbers(set)) | (Form::Numbers(set), Form::Value(value)) => {
                set.contain(value)?.then(|| Form::Value(value.clone()))
            }
            (Form::Text(text), Form::Strings(set)) | (Form::Strings(set), Form::Text(text)) => {
                self.questions.contain(set, text)?.then(|| Form::Text(text.clone()))
            }
            (Form::Numbers(one), Form::Numbers(other)) => one.both(other)?.map(Form::Numbers),
            (Form::Strings(one), Form::Strings(other)) => one.both(other).map(Form::Strings),
            (Form::Array(one), Form::Array(other)) => one.both(other).map(Form::Array),
            (Form::Object(one), Form::Object(other)) => one.both(other).map(Form::Object),
            (one, other) => (one == other).then(|| one.clone()),
        })
    }

    /// Whether no value is in both of two unions; `false` where that does not show.
    fn are_apart(&mut self, some: &[Form], others: &[Form], level: usize) -> Result<bool, String> {
        self.pairs += some.len() * others.len();
        if self.pairs > MOST_PAIRS {
            return Err("`oneOf` with too many alternatives to compare".to_owned());
        }
        for one in some {
            for other in others {
                let apart = match (one, other) {
                    (Form::Array(one), Form::Array(other)) => self.arrays_are_apart(one, other, level)?,
                    (Form::Object(one), Form::Object(other)) => self.objects_are_apart(one, other, level)?,
                    (Form::Numbers(one), Form::Numbers(other)) => one.are_apart(other),
                    (Form::Strings(one), Form::Strings(other)) => {
                        !self.questions.is_some(&[one, other], &[], &[])?
                    }
                    (one, other) => self.form_of_both(one, other)?.is_none(),
                };
                if !apart {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn are_all_apart(&mut self, some: &All, others: &All, level: usize) -> Result<bool, String> {
        if level == COMPARED_LEVELS {
            return Ok(false);
        }
        // What is being read is not known yet.
        let mut known = |all: &All| match self.all(all) {
            Ok(forms) => Ok(Some(forms)),
            Err(fault) if fault == CIRCULAR => Ok(None),
            Err(fault) => Err(fault),
        };
        let (some, others) = (known(some)?, known(others)?);
        if some.as_ref().or(others.as_ref()).is_some_and(|forms| forms.is_empty())
            || others.as_ref().is_some_and(Vec::is_empty)
        {
            return Ok(true);
        }
        match (some, others) {
            (Some(some), Some(others)) => self.are_apart(&some, &others, level + 1),
            _ => Ok(false),
        }
    }

    fn arrays_are_apart(&mut self, one: &Array, other: &Array, level: usize) -> Result<bool, String> {
        if one.both(other).is_none() {
            return Ok(true);
        }
        let least = usize::try_from(one.least.max(other.least)).unwrap_or(usize::MAX);
        for item in 0..least.min(COMPARED_ITEMS) {
            if self.are_all_apart(one.item(item), other.item(item), level)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn objects_are_apart(&mut self, one: &Object, other: &Object, level: usize) -> Result<bool, String> {
        if one.both(other).is_none() {
            return Ok(true);
        }
        for name in one.required.iter().chain(&other.required) {
            let (some, others) = (self.property(one, name)?, self.property(other, name)?);
            if self.are_all_apart(&some, &others, level)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a keyword is about values of one type, or names types.
fn is_own(keyword: &str) -> bool {
    matches!(
        keyword,
        "type"
            | "minimum"
            | "maximum"
            | "exclusiveMinimum"
            | "exclusiveMaximum"
            | "multipleOf"
            | "minLength"
            | "maxLength"
            | "pattern"
            | "format"
            | "items"
            | "prefixItems"
            | "additionalItems"
            | "minItems"
            | "maxItems"
            | "uniqueItems"
            | "contains"
            | "unevaluatedItems"
            | "properties"
            | "patternProperties"
            | "additionalProperties"
            | "required"
            | "minProperties"
            | "maxProperties"
            | "propertyNames"
            | "unevaluatedProperties"
    )
}

fn decimal(schema: &Json, keyword: &str) -> Result<Option<Decimal>, String> {
    match entry(schema, keyword) {
        // Before draft 6 bounds were excluded by booleans.
        None | Some(Json::Bool(_)) => Ok(None),
        Some(Json::Number(number)) => {
            let value = Decimal::parse(number.as_str());
            let value = value.filter(|value| value.whole.len() + value.fraction.len() <= MOST_BOUND_DIGITS);
            value.map(Some).ok_or_else(|| {
                format!("`{keyword}`: expected at most {MOST_BOUND_DIGITS} digits, found {}", number.as_str())
            })
        }
        Some(other) => expected(keyword, "a number", other),
    }
}

/// A count of characters, items or properties.
fn count(schema: &Json, keyword: &str) -> Result<Option<u64>, String> {
    let Some(value) = entry(schema, keyword) else { return Ok(None) };
    let whole = match value {
        Json::Number(number) => {
            Decimal::parse(number.as_str()).filter(|value| value.is_whole() && !value.negative)
        }
        Json::Null | Json::Bool(_) | Json::String(_) | Json::Array(_) | Json::Object(_) => None,
    };
    match whole {
        Some(whole) => Ok(Some(whole.text().parse().unwrap_or(u64::MAX))),
        None => expected(keyword, "a whole number that is not negative", value),
    }
}

fn numbers(schema: &Json, whole: bool) -> Result<Option<Numbers>, String> {
    let bound = |limit: &str, beyond: &str, inside: std::cmp::Ordering| -> Result<Option<Bound>, String> {
        let excluded = entry(schema, beyond) == Some(&Json::Bool(true));
        let limit = decimal(schema, limit)?.map(|value| Bound { value, included: !excluded });
        let beyond = decimal(schema, beyond)?.map(|value| Bound { value, included: false });
        Ok(match (limit, beyond) {
            (Some(limit), Some(beyond)) if limit.value.cmp(&beyond.value) == inside => Some(limit),
            (limit, beyond) => beyond.or(limit),
        })
    };
    let multiples = match decimal(schema, "multipleOf")? {
        None => None,
        Some(step) if step.negative || step.is_zero() => {
            return Err(format!("`multipleOf`: expected a positive number, found {}", step.text()));
        }
        Some(step) => Some(Multiples::of(&step).ok_or("`multipleOf`: expected at most 18 digits")?),
    };
    Numbers {
        low: bound("minimum", "exclusiveMinimum", std::cmp::Ordering::Greater)?,
        high: bound("maximum", "exclusiveMaximum", std::cmp::Ordering::Less)?,
        whole,
        multiples,
    }
    .reduced()
}

fn strings(schema: &Json) -> Result<Option<Strings>, String> {
    let narrow = |keyword: &str, count: u64| {
        u32::try_from(count)
            .ok()
            .filter(|count| *count < u32::MAX / 2)
            .ok_or_else(|| format!("`{keyword}`: expected a smaller one, found {count}"))
    };
    let least = count(schema, "minLength")?.map_or(Ok(0), |least| narrow("minLength", least))?;
    // No answer is as long as what is not kept here.
    let most = count(schema, "maxLength")?.and_then(|most| narrow("maxLength", most).ok());
    let mut patterns = Vec::new();
    match entry(schema, "pattern") {
        None => {}
        Some(Json::String(pattern)) => patterns.push(Pattern::search(pattern)?),
        Some(other) => return expected("pattern", "a text", other),
    }
    match entry(schema, "format") {
        None => {}
        Some(Json::String(name)) => match formats::expression(name) {
            Some(expression) => patterns.push(Pattern::whole(&expression)),
            None => return Err(format!("`format`: {name:?} is not supported")),
        },
        Some(other) => return expected("format", "a text", other),
    }
    Ok(most.is_none_or(|most| least <= most).then_some(Strings { least, most, patterns }))
}
