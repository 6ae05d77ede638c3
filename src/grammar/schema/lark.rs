//! Writes shapes as a grammar of Lark.

use std::collections::BTreeMap;

use super::{
    shapes::{Items, Members, Named, Shape},
    text::quoted,
};

/// Longest text that is repeated where it is used instead of becoming a rule.
const LONGEST_INLINE: usize = 400;
/// Most of what has to be repeated: the grammar has a symbol of each factor of it.
const MOST_REPEATED: u64 = 100_000;
/// Most states of counted names of one object.
const MOST_STATES: u64 = 20_000;
/// Most rules of a chain that leads back to its first: rules are compiled by recursion, those that do not lead back in
/// order.
const MOST_RING: usize = 250;

/// A grammar that is being written.
struct Writer<'a> {
    shapes: &'a [Shape],
    /// Terminals and their names.
    terminals: BTreeMap<String, String>,
    rules: Vec<(String, String)>,
}

/// The grammar of the first shape.
pub(super) fn lark(shapes: &[Shape]) -> Result<String, String> {
    let mut writer = Writer { shapes, terminals: BTreeMap::new(), rules: Vec::new() };
    let order = inner_first(shapes);
    check_rings(shapes, &order)?;
    for number in order {
        writer.shape(number)?;
    }
    let Writer { terminals, rules, .. } = writer;
    // Each rule is named here once, the inner before the outer, and repeated no times: a compiler that meets a rule for
    // the first time within another recurses.
    let first: String = rules.iter().map(|(name, _)| format!("{name}~0 ")).collect();
    let mut text = format!("start: {first}s0\n");
    rules.iter().for_each(|(name, body)| text.push_str(&format!("{name}: {body}\n")));
    terminals.iter().for_each(|(body, name)| text.push_str(&format!("{name}: {body}\n")));
    Ok(text)
}

/// Shapes that are parts of one.
fn parts(shapes: &[Shape], number: usize) -> Vec<usize> {
    let shape = &shapes[number];
    let items = shape.arrays.iter().flat_map(|items| items.first.iter().copied().chain([items.rest]));
    let named = shape.objects.iter().flat_map(|members| members.named.iter().map(|named| named.shape));
    let free = shape.objects.iter().flat_map(|members| members.free.iter().map(|(_, shape)| *shape));
    items.chain(named).chain(free).filter(|part| shapes[*part].is_possible).collect()
}

/// The shapes that the first has, each after its parts as far as these do not lead back to it.
fn inner_first(shapes: &[Shape]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; shapes.len()];
    let mut open = vec![(0, parts(shapes, 0))];
    seen[0] = true;
    while let Some((number, rest)) = open.last_mut() {
        match rest.pop() {
            Some(part) if seen[part] => {}
            Some(part) => {
                seen[part] = true;
                open.push((part, parts(shapes, part)));
            }
            None => {
                order.push(*number);
                open.pop();
            }
        }
    }
    order
}

/// Refuses what would be compiled by too deep a recursion.
fn check_rings(shapes: &[Shape], order: &[usize]) -> Result<(), String> {
    let mut seen = vec![false; shapes.len()];
    for number in order {
        let mut open = Vec::new();
        if !std::mem::replace(&mut seen[*number], true) {
            open.push(parts(shapes, *number));
        }
        while let Some(rest) = open.last_mut() {
            match rest.pop() {
                Some(part) if seen[part] => {}
                Some(part) => {
                    seen[part] = true;
                    open.push(parts(shapes, part));
                }
                None => {
                    open.pop();
                }
            }
            if open.len() > MOST_RING {
                return Err(format!("more than {MOST_RING} schemas that refer to each other in a ring"));
            }
        }
    }
    Ok(())
}

impl Writer<'_> {
    fn terminal(&mut self, body: String) -> String {
        let next = format!("T{}", self.terminals.len());
        self.terminals.entry(body).or_insert(next).clone()
    }

    fn shape(&mut self, number: usize) -> Result<(), String> {
        let Shape { terminals, arrays, objects, .. } = &self.shapes[number];
        let (nested, plain): (Vec<_>, Vec<_>) = terminals.iter().partition(|body| body.starts_with('%'));
        let mut options: Vec<String> = nested.into_iter().cloned().collect();
        if !plain.is_empty() {
            let plain: Vec<&str> = plain.into_iter().map(String::as_str).collect();
            options.push(self.terminal(plain.join(" | ")));
        }
        for (at, items) in arrays.iter().enumerate() {
            options.extend(self.array(items, &format!("a{number}-{at}"))?);
        }
        for (at, members) in objects.iter().enumerate() {
            options.extend(self.object(members, &format!("o{number}-{at}"))?);
        }
        self.rules.push((format!("s{number}"), options.join(" | ")));
        Ok(())
    }

    /// What is one of some texts: itself if it is short, else the name of a rule.
    fn choice(&mut self, name: String, options: Vec<String>) -> Option<String> {
        match &options[..] {
            [] => None,
            [only] if only.len() <= LONGEST_INLINE => Some(only.clone()),
            options => {
                self.rules.push((name.clone(), options.join(" | ")));
                Some(name)
            }
        }
    }

    fn array(&mut self, items: &Items, name: &str) -> Result<Option<String>, String> {
        let (least, most) = items.bounds(self.shapes);
        if most.is_some_and(|most| most < least) {
            return Ok(None);
        }
        let first = items.first.len() as u64;
        let listed = usize::try_from(most.unwrap_or(first).min(first)).expect("some items are listed");
        let mut rest = if most.is_some_and(|most| most <= first) {
            String::new()
        } else {
            let (least, most) = (least.saturating_sub(first), most.map(|most| most - first));
            separated(&format!("s{}", items.rest), first > 0, least, most)?
        };
        for (place, item) in items.first[..listed].iter().enumerate().rev() {
            let comma = if place == 0 { "" } else { "\", \" " };
            let mut options = vec![format!("{comma}s{item} {rest}")];
            if place as u64 >= least {
                options.push("\"\"".to_owned());
            }
            rest = self.choice(format!("{name}-{place}"), options).expect("there is an option");
        }
        Ok(Some(format!("\"[\" {rest} \"]\"")))
    }

    fn object(&mut self, members: &Members, name: &str) -> Result<Option<String>, String> {
        let shapes = self.shapes;
        if members.named.iter().any(|named| named.is_required && !shapes[named.shape].is_possible) {
            return Ok(None);
        }
        let named: Vec<&Named> = members.possible(shapes).collect();
        let free = members.possible_free(shapes);
        let count = named.len() as u64;
        let most = members.most.filter(|most| *most < count || !free.is_empty());
        // Names are counted as far as it matters; whether there is one decides about a comma.
        let counted = members.least.max(most.map_or(1, |most| most.min(count))).max(1);
        if counted > count + 1 {
            return Ok(None);
        }
        if counted.saturating_mul(count) > MOST_STATES && counted > 1 {
            return Err(format!("`minProperties` or `maxProperties` of more than {MOST_STATES} states"));
        }
        let pairs: Vec<String> = free
            .into_iter()
            .map(|(names, shape)| format!("{} \": \" s{shape}", self.terminal(names.clone())))
            .collect();
        let pair = self.choice(format!("{name}-f"), pairs);
        // What may follow the names so far, by how many were written.
        let mut states = Vec::new();
        for written in 0..=counted.min(count) {
            states.push(further(pair.as_deref(), written, members.least, most)?);
        }
        for (place, property) in named.iter().enumerate().rev() {
            let before = counted.min(place as u64);
            let mut next = Vec::new();
            for written in 0..=before {
                let mut options = Vec::new();
                let then = &states[usize::try_from((written + 1).min(counted)).expect("states are counted")];
                if let Some(then) = then.as_ref().filter(|_| most.is_none_or(|most| written < most)) {
                    let comma = if written == 0 { "" } else { "\", \" " };
                    let name = quoted(&quoted(&property.name));
                    options.push(format!("{comma}{name} \": \" s{} {then}", property.shape));
                }
                if !property.is_required {
                    options.extend(states[usize::try_from(written).expect("states are counted")].clone());
                }
                next.push(self.choice(format!("{name}-{place}-{written}"), options));
            }
            states = next;
        }
        Ok(states.swap_remove(0).map(|members| format!("\"{{\" {members} \"}}\"")))
    }
}

/// Further properties after `written` ones; `None` if too few names could be told apart.
fn further(
    pair: Option<&str>,
    written: u64,
    least: u64,
    most: Option<u64>,
) -> Result<Option<String>, String> {
    let missing = least.saturating_sub(written);
    let room = most.map(|most| most.saturating_sub(written));
    match (pair, missing) {
        (None, 0) => Ok(Some(String::new())),
        (Some(_), 0 | 1) if room == Some(0) => Ok((missing == 0).then(String::new)),
        (Some(pair), 0 | 1) => separated(pair, written > 0, missing, room).map(Some),
        (None, _) | (Some(_), _) => Ok(None),
    }
}

/// Texts with commas between, and one before the first if something `precedes`.
fn separated(text: &str, precedes: bool, least: u64, most: Option<u64>) -> Result<String, String> {
    if least > MOST_REPEATED {
        return Err(format!("`minItems`: expected at most {MOST_REPEATED}, found {least}"));
    }
    let next = format!("(\", \" {text})");
    // What is beyond this no answer reaches.
    let most = most.filter(|most| *most <= MOST_REPEATED);
    let times = |least: u64, most: Option<u64>| match most {
        Some(most) => format!("{next}~{least} .. {most}"),
        None => format!("{next}~{least} .. {}", i32::MAX),
    };
    Ok(match (precedes, least) {
        (true, _) => times(least, most),
        (false, 0) => format!("({text} {})?", times(0, most.map(|most| most - 1))),
        (false, _) => format!("{text} {}", times(least - 1, most.map(|most| most - 1))),
    })
}
