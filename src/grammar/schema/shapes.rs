//! Every value of an answer as a shape: terminals, and arrays and objects of further shapes.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    forms::{All, Array, Form, MOST_NAMES, Object, too_many_names},
    reader::Reader,
    text::{CHARACTER, Pattern, Strings, quoted},
};

/// Most shapes of an answer: a grammar has some symbols of each.
const MOST_SHAPES: usize = 10_000;
/// Most sets of names that `patternProperties` split the names of an object into.
const MOST_REGIONS: usize = 30;
/// Most comparisons of a name with those of its object, over all objects: some tenths of a second.
const MOST_COMPARED: usize = 20_000_000;

/// What one value may be.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Atoms of Lark.
    pub(super) terminals: Vec<String>,
    pub(super) arrays: Vec<Items>,
    pub(super) objects: Vec<Members>,
    /// Whether some answer ends it.
    pub(super) is_possible: bool,
}

/// An array: its first items, the others, and how many there are.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) first: Vec<usize>,
    pub(super) rest: usize,
    pub(super) least: u64,
    pub(super) most: Option<u64>,
    unique: bool,
}

/// An object: its names in order, sets of further names, and how many there are.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) named: Vec<Named>,
    /// Terminals of names, and what they have.
    pub(super) free: Vec<(String, usize)>,
    pub(super) least: u64,
    pub(super) most: Option<u64>,
}

/// A property.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) shape: usize,
    pub(super) is_required: bool,
}

/// The shapes of a schema's answers; the first is the whole answer's.
pub(super) struct Shapes<'a> {
    reader: Reader<'a>,
    known: BTreeMap<Rc<All>, usize>,
    /// What shapes have to fit.
    wanted: Vec<Rc<All>>,
    /// Names compared.
    compared: usize,
    layout: &'a str,
}

/// The shapes of what fits `root`.
pub(super) fn shapes(reader: Reader<'_>, root: All, layout: &str) -> Result<Vec<Shape>, String> {
    let mut shapes = Shapes { reader, known: BTreeMap::new(), wanted: Vec::new(), compared: 0, layout };
    shapes.number(root)?;
    let mut found = Vec::new();
    while found.len() < shapes.wanted.len() {
        let all = Rc::clone(&shapes.wanted[found.len()]);
        found.push(shapes.shape(&all)?);
    }
    find_possible(&mut found);
    for shape in &found {
        for items in &shape.arrays {
            let (_, most) = items.bounds(&found);
            if items.unique && most.is_none_or(|most| most > 1) {
                return Err("`uniqueItems` is supported for at most one item".to_owned());
            }
        }
    }
    if found[0].is_possible { Ok(found) } else { Err(contradiction(&found)) }
}

fn contradiction(found: &[Shape]) -> String {
    let is_counted = |members: &Members| members.least > members.named.len() as u64;
    if found.iter().any(|shape| shape.objects.iter().any(is_counted)) {
        return "`minProperties`: expected at most as many as named properties and one, as others may repeat a name".to_owned();
    }
    "no value fits it: expected bounds, types, `required` and constants that go together (minimum and maximum, for \
     example)".to_owned()
}

impl Shapes<'_> {
    fn number(&mut self, all: All) -> Result<usize, String> {
        if let Some(known) = self.known.get(&all) {
            return Ok(*known);
        }
        if self.wanted.len() == MOST_SHAPES {
            return Err(format!("more than {MOST_SHAPES} kinds of values"));
        }
        let all = Rc::new(all);
        self.known.insert(Rc::clone(&all), self.wanted.len());
        self.wanted.push(all);
        Ok(self.wanted.len() - 1)
    }

    fn shape(&mut self, all: &All) -> Result<Shape, String> {
        let mut shape = Shape::default();
        for form in self.reader.all(all)? {
            match form {
                Form::Null => shape.terminals.push("\"null\"".to_owned()),
                Form::Bool(value) => shape.terminals.push(format!("\"{value}\"")),
                Form::Value(value) => shape.terminals.push(format!("\"{}\"", value.text())),
                Form::Text(text) => shape.terminals.push(quoted(&quoted(&text))),
                Form::Numbers(numbers) => shape.terminals.push(numbers.lark(self.layout)?),
                Form::Strings(strings) => {
                    let is_some = strings.patterns.is_empty()
                        || self.reader.questions.is_some(&[&strings], &[], &[])?;
                    shape.terminals.extend(is_some.then(|| strings.lark()));
                }
                Form::Array(array) => shape.arrays.push(self.items(array)?),
                Form::Object(object) => shape.objects.push(self.members(&object)?),
            }
        }
        Ok(shape)
    }

    fn items(&mut self, array: Array) -> Result<Items, String> {
        let Array { first, rest, least, most, unique } = array;
        let first = first.into_iter().map(|item| self.number(item)).collect::<Result<_, _>>()?;
        Ok(Items { first, rest: self.number(rest)?, least, most, unique })
    }

    fn members(&mut self, object: &Object) -> Result<Members, String> {
        let names = object.names();
        if names.len() > MOST_NAMES {
            return Err(too_many_names(names.len()));
        }
        self.compared += names.len() * object.parts();
        if self.compared > MOST_COMPARED {
            return Err(format!(
                "expected at most {MOST_COMPARED} comparisons of names over all objects, found more; use fewer \
                 alternatives of objects"
            ));
        }
        let mut named = Vec::new();
        for name in &names {
            let all = self.reader.property(object, name)?;
            let is_required = object.required.iter().any(|required| required == name);
            named.push(Named { name: (*name).to_owned(), shape: self.number(all)?, is_required });
        }
        let patterns: Vec<(usize, &Pattern, &All)> = object
            .layers
            .iter()
            .enumerate()
            .flat_map(|(number, layer)| {
                layer.patterns.iter().map(move |(pattern, all)| (number, pattern, all))
            })
            .collect();
        let mut free = Vec::new();
        for region in self.regions(&patterns)? {
            let mut all = All::new();
            for (number, layer) in object.layers.iter().enumerate() {
                let own = || region.iter().filter(|at| patterns[**at].0 == number);
                own().for_each(|at| all.extend(patterns[*at].2));
                if own().next().is_none() {
                    all.extend(&layer.additional);
                }
            }
            if !self.is_open(&region, &patterns, &names)? {
                continue;
            }
            let mut terminal = match &region[..] {
                [] => format!("/\"{CHARACTER}*\"/"),
                within => {
                    let within = within.iter().map(|at| format!("/{}/", patterns[*at].1.quoted));
                    format!("(\"\\\"\" ({}) \"\\\"\")", within.collect::<Vec<_>>().join(" & "))
                }
            };
            let without = (0..patterns.len()).filter(|at| !region.contains(at));
            let without = without.map(|at| format!("(\"\\\"\" /{}/ \"\\\"\")", patterns[at].1.quoted));
            let taken = names.iter().map(|name| quoted(&quoted(name)));
            let without: Vec<String> = without.chain(taken).collect();
            if !without.is_empty() {
                terminal.push_str(&format!(" & ~({})", without.join(" | ")));
            }
            free.push((terminal, self.number(all)?));
        }
        Ok(Members { named, free, least: object.least, most: object.most })
    }

    /// Whether a set of names has one that is no property's: else nothing could be written after a comma.
    fn is_open(
        &mut self,
        region: &[usize],
        patterns: &[(usize, &Pattern, &All)],
        names: &[&str],
    ) -> Result<bool, String> {
        if patterns.is_empty() {
            return Ok(true);
        }
        let matching = |at: &usize| patterns[*at].1.clone();
        let within = Strings { patterns: region.iter().map(matching).collect(), ..Strings::default() };
        let without: Vec<&Pattern> =
            (0..patterns.len()).filter(|at| !region.contains(at)).map(|at| patterns[at].1).collect();
        let mut taken = Vec::new();
        for name in names {
            if self.reader.questions.contain(&within, name)? {
                taken.push(*name);
            }
        }
        self.reader.questions.is_some(&[&within], &without, &taken)
    }

    /// Sets of names that match the same patterns, each by the patterns that it matches.
    fn regions(&mut self, patterns: &[(usize, &Pattern, &All)]) -> Result<Vec<Vec<usize>>, String> {
        let too_many = || format!("`patternProperties`: more than {MOST_REGIONS} patterns or kinds of names");
        if patterns.len() > MOST_REGIONS {
            return Err(too_many());
        }
        let mut regions = vec![Vec::new()];
        for at in 0..patterns.len() {
            let mut split = Vec::new();
            for region in regions {
                let with: Vec<usize> = region.iter().copied().chain([at]).collect();
                let overlaps = self.has_names(&with, patterns, at)?;
                // What matches none of the pattern's names stays as it is.
                let remains = !overlaps || self.has_names(&region, patterns, at)?;
                split.extend(overlaps.then_some(with));
                split.extend(remains.then_some(region));
            }
            regions = split;
            if regions.len() > MOST_REGIONS {
                return Err(too_many());
            }
        }
        Ok(regions)
    }

    /// Whether names match these patterns and no others up to `last`.
    fn has_names(
        &mut self,
        region: &[usize],
        patterns: &[(usize, &Pattern, &All)],
        last: usize,
    ) -> Result<bool, String> {
        let matching = |at: &usize| patterns[*at].1.clone();
        let within = Strings { patterns: region.iter().map(matching).collect(), ..Strings::default() };
        let without: Vec<&Pattern> =
            (0..=last).filter(|at| !region.contains(at)).map(|at| patterns[at].1).collect();
        self.reader.questions.is_some(&[&within], &without, &[])
    }
}

impl Items {
    /// How many items there may be, given which are possible.
    pub(super) fn bounds(&self, shapes: &[Shape]) -> (u64, Option<u64>) {
        let impossible = self.first.iter().position(|item| !shapes[*item].is_possible);
        let end = impossible.or((!shapes[self.rest].is_possible).then_some(self.first.len()));
        (self.least, self.most.into_iter().chain(end.map(|end| end as u64)).min())
    }
}

impl Members {
    /// Properties that may be written.
    pub(super) fn possible(&self, shapes: &[Shape]) -> impl DoubleEndedIterator<Item = &Named> {
        self.named.iter().filter(|named| shapes[named.shape].is_possible)
    }

    /// Further names that may be written.
    pub(super) fn possible_free(&self, shapes: &[Shape]) -> Vec<&(String, usize)> {
        self.free.iter().filter(|(_, shape)| shapes[*shape].is_possible).collect()
    }

    fn are_possible(&self, shapes: &[Shape]) -> bool {
        let required = self.named.iter().filter(|named| named.is_required);
        let all = required.clone().all(|named| shapes[named.shape].is_possible);
        // Further names may repeat: one is sure.
        let most = self.possible(shapes).count() + usize::from(!self.possible_free(shapes).is_empty());
        all && self.least <= most as u64 && self.most.is_none_or(|most| required.count() as u64 <= most)
    }
}

/// Finds the shapes that some answer ends: those of parts that are possible, from the innermost out.
fn find_possible(shapes: &mut [Shape]) {
    loop {
        let mut changed = false;
        for number in
            (0..shapes.len()).rev().filter(|number| !shapes[*number].is_possible).collect::<Vec<_>>()
        {
            let shape = &shapes[number];
            let has_items = |items: &Items| {
                let (least, most) = items.bounds(shapes);
                most.is_none_or(|most| least <= most)
            };
            let is_possible = !shape.terminals.is_empty()
                || shape.arrays.iter().any(has_items)
                || shape.objects.iter().any(|members| members.are_possible(shapes));
            shapes[number].is_possible = is_possible;
            changed |= is_possible;
        }
        if !changed {
            return;
        }
    }
}
