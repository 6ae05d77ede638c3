//! The engine's filters, tests, methods and functions, and what each may cost at most, told from its arguments.

use std::sync::LazyLock;

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, State, filters};

use super::budget::{Budget, text_bytes};

/// Filters of the engine.
pub(super) const FILTERS: [&str; 47] = [
    "safe",
    "escape",
    "e",
    "lower",
    "upper",
    "title",
    "capitalize",
    "replace",
    "length",
    "count",
    "dictsort",
    "items",
    "reverse",
    "trim",
    "join",
    "split",
    "lines",
    "default",
    "d",
    "round",
    "abs",
    "int",
    "float",
    "attr",
    "first",
    "last",
    "min",
    "max",
    "sort",
    "list",
    "string",
    "bool",
    "batch",
    "slice",
    "sum",
    "indent",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
    "map",
    "groupby",
    "unique",
    "chain",
    "zip",
    "pprint",
    "format",
];

/// Tests of the engine.
pub(super) const TESTS: [&str; 42] = [
    "undefined",
    "defined",
    "none",
    "safe",
    "escaped",
    "boolean",
    "odd",
    "even",
    "divisibleby",
    "number",
    "integer",
    "int",
    "float",
    "string",
    "sequence",
    "iterable",
    "mapping",
    "startingwith",
    "endingwith",
    "lower",
    "upper",
    "sameas",
    "eq",
    "equalto",
    "==",
    "ne",
    "!=",
    "lt",
    "lessthan",
    "<",
    "le",
    "<=",
    "gt",
    "greaterthan",
    ">",
    "ge",
    ">=",
    "in",
    "true",
    "false",
    "filter",
    "test",
];

/// Functions of the engine; `debug` is left out, which prints everything that there is.
pub(super) const FUNCTIONS: [&str; 3] = ["range", "dict", "namespace"];

/// The engine as it is, which does the work.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);

/// Applies a filter. Those that call others by name find the ones that are charged for.
pub(super) fn filter(name: &str, state: &State<'_, '_>, arguments: &[Value]) -> Result<Value, Error> {
    let calling = match name {
        "map" => Value::from_function(filters::map),
        "select" => Value::from_function(filters::select),
        "reject" => Value::from_function(filters::reject),
        "selectattr" => Value::from_function(filters::selectattr),
        "rejectattr" => Value::from_function(filters::rejectattr),
        _ => return PLAIN.empty_state().apply_filter(name, arguments),
    };
    calling.call(state, arguments)
}

/// Applies a test.
pub(super) fn test(name: &str, arguments: &[Value]) -> Result<bool, Error> {
    PLAIN.empty_state().perform_test(name, arguments)
}

/// Calls a function.
pub(super) fn function(name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let state = PLAIN.empty_state();
    state.lookup(name).expect("the engine has the function").call(&state, arguments)
}

/// Charges for a call before it is made: for what it reads, and for results that are larger than all arguments
/// together.
pub(super) fn charge_call(budget: &Budget, name: &str, arguments: &[&Value]) -> Result<(), Error> {
    budget.charge_call()?;
    arguments.iter().try_for_each(|value| budget.charge_outside(value))?;
    let Some((first, rest)) = arguments.split_first() else { return Ok(()) };
    let text = first.as_str().unwrap_or_default();
    match name {
        "replace" => {
            let [from, to] =
                [0, 1].map(|at| rest.get(at).and_then(|value| value.as_str()).unwrap_or_default());
            budget.charge(product(text.matches(from).count(), to.len()))
        }
        "join" => {
            arguments.iter().try_for_each(|value| budget.charge_printed(value))?;
            let sizes: Vec<usize> = arguments.iter().map(|value| size(value)).collect();
            budget.charge(product(sizes[0], sizes.get(1).copied().unwrap_or(0)))
        }
        "format" => {
            arguments.iter().try_for_each(|value| budget.charge_printed(value))?;
            let widths = if text.contains('*') { integers(rest) } else { 0 };
            budget.charge(digits(text).saturating_add(widths))
        }
        "indent" => {
            let lines = 1 + text.matches('\n').count() as u64;
            budget.charge(lines.saturating_mul(integers(rest).saturating_add(4)))
        }
        "batch" | "slice" => {
            budget.charge_items(size(first))?;
            budget.charge(integers(rest).saturating_mul(32))
        }
        "split" => budget.charge_items(match rest.first().and_then(|separator| separator.as_str()) {
            Some("") => 2 + text.len(),
            Some(separator) => 1 + text.matches(separator).count(),
            None => 1 + text.split_whitespace().count(),
        }),
        "lines" | "splitlines" => budget.charge_items(1 + text.matches(['\n', '\r']).count()),
        "list" | "reverse" | "map" | "select" | "reject" | "selectattr" | "rejectattr" | "chain" | "zip"
        | "items" | "keys" | "values" => {
            arguments.iter().try_for_each(|value| budget.charge_items(size(value)))
        }
        // Sorting compares a value about as often as the list has doublings.
        "sort" | "unique" | "groupby" | "dictsort" | "min" | "max" => {
            budget.charge_items(size(first))?;
            budget.times(16, |budget| budget.charge_inside(first))
        }
        "sameas" | "eq" | "equalto" | "==" | "ne" | "!=" | "lt" | "lessthan" | "<" | "le" | "<=" | "gt"
        | "greaterthan" | ">" | "ge" | ">=" | "in" => {
            arguments.iter().try_for_each(|value| budget.charge_inside(value))
        }
        "string" => budget.charge_printed(first),
        // Six bytes for a quotation mark.
        "escape" | "e" | "safe" => budget.times(6, |budget| budget.charge_printed(first)),
        // Every item on a line of its own, four spaces for each level that it is deep.
        "pprint" => budget.times(400, |budget| budget.charge_printed(first)),
        "dict" | "namespace" => arguments.iter().try_for_each(|value| budget.charge_inside(value)),
        _ => Ok(()),
    }
}

/// Whether what a filter gives nests no deeper than what it is given.
pub(super) fn is_flat(name: &str) -> bool {
    matches!(
        name,
        "list"
            | "reverse"
            | "sort"
            | "unique"
            | "select"
            | "reject"
            | "selectattr"
            | "rejectattr"
            | "first"
            | "last"
            | "min"
            | "max"
            | "default"
            | "d"
            | "attr"
            | "get"
    )
}

/// Bytes of a text, items of anything else.
fn size(value: &Value) -> usize {
    text_bytes(value).or_else(|| value.len()).unwrap_or(0)
}

fn product(count: usize, bytes: usize) -> u64 {
    (count as u64).saturating_mul(bytes as u64)
}

/// The sum of the integers among arguments, those with names included.
fn integers(arguments: &[&Value]) -> u64 {
    let of = |value: &Value| value.as_i64().map_or(u64::MAX, i64::unsigned_abs);
    let total = |sum: u64, value: &Value| if value.is_number() { sum.saturating_add(of(value)) } else { sum };
    arguments.iter().fold(0, |sum, value| match value.kind() {
        ValueKind::Map => {
            let names = value.try_iter().into_iter().flatten();
            names.filter_map(|name| value.get_item(&name).ok()).fold(sum, |sum, value| total(sum, &value))
        }
        _ => total(sum, value),
    })
}

/// The sum of the numbers in a text: the widths that it formats to.
fn digits(text: &str) -> u64 {
    let runs = text.split(|character: char| !character.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.fold(0_u64, |sum, run| sum.saturating_add(run.parse().unwrap_or(u64::MAX)))
}
