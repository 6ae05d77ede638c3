//! What the engine's operators and literals are replaced by: the same, charged to the budget first.

use std::sync::LazyLock;

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, Expression, State, context};

use super::budget::{Budget, check_data, text_bytes};

/// Names of functions that no template can call by itself.
pub(super) const CONCAT: &str = "\0~";
pub(super) const ADD: &str = "\0+";
pub(super) const MULTIPLY: &str = "\0*";
pub(super) const SLICE: &str = "\0[:]";
pub(super) const ITEM: &str = "\0[.]";
pub(super) const LIST: &str = "\0[]";
pub(super) const MAP: &str = "\0{}";
pub(super) const EACH: &str = "\0for";
pub(super) const KEEP: &str = "\0set";
pub(super) const CHANGED: &str = "\0changed";
pub(super) const MACRO: &str = "\0macro";
/// A comparison: the name of the operator, and that of the one in a chain, whose right side is compared again.
type Comparison = (&'static str, &'static str, fn(&Value, &Value) -> Result<bool, Error>);

/// In the order in which the engine numbers them.
pub(super) const COMPARISONS: [Comparison; 8] = [
    ("\0==", "\0==&", |a, b| Ok(a == b)),
    ("\0!=", "\0!=&", |a, b| Ok(a != b)),
    ("\0<", "\0<&", |a, b| Ok(a < b)),
    ("\0<=", "\0<=&", |a, b| Ok(a <= b)),
    ("\0>", "\0>&", |a, b| Ok(a > b)),
    ("\0>=", "\0>=&", |a, b| Ok(a >= b)),
    ("\0in", "\0in&", contains),
    ("\0not in", "\0not in&", |a, b| Ok(!contains(a, b)?)),
];

/// The engine as it is, which does the work.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);

type Operator = Expression<'static, 'static>;

fn operator(source: &'static str) -> Operator {
    PLAIN.compile_expression(source).expect("the expression is a constant")
}

static CONCATENATION: LazyLock<Operator> = LazyLock::new(|| operator("a ~ b"));
static SUM: LazyLock<Operator> = LazyLock::new(|| operator("a + b"));
static PRODUCT: LazyLock<Operator> = LazyLock::new(|| operator("a * b"));
static PART: LazyLock<Operator> = LazyLock::new(|| operator("a[b:c:d]"));

static CONTAINS: LazyLock<Operator> = LazyLock::new(|| operator("a in b"));

fn contains(a: &Value, b: &Value) -> Result<bool, Error> {
    Ok(CONTAINS.eval(context! { a, b })?.is_true())
}

/// Two texts, joined without the engine, which takes longer.
fn joined(a: &Value, b: &Value) -> Option<Value> {
    Some(Value::from([a.as_str()?, b.as_str()?].concat()))
}

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function(CONCAT, |state: &State<'_, '_>, a: Value, b: Value| {
        let budget = Budget::of(state)?;
        budget.charge_call()?;
        budget.charge_printed(&a)?;
        budget.charge_printed(&b)?;
        joined(&a, &b).map_or_else(|| CONCATENATION.eval(context! { a, b }), Ok)
    });
    environment.add_function(ADD, |state: &State<'_, '_>, a: Value, b: Value| {
        let budget = Budget::of(state)?;
        budget.charge_call()?;
        budget.charge_outside(&a)?;
        budget.charge_outside(&b)?;
        joined(&a, &b).map_or_else(|| budget.admit_flat(SUM.eval(context! { a, b })?), Ok)
    });
    environment.add_function(MULTIPLY, |state: &State<'_, '_>, a: Value, b: Value| {
        let budget = Budget::of(state)?;
        budget.charge_call()?;
        for (text, times) in [(&a, &b), (&b, &a)] {
            if let (Some(bytes), Some(times)) = (text_bytes(text), times.as_usize()) {
                budget.charge((bytes as u64).saturating_mul(times as u64))?;
            }
        }
        budget.admit_flat(PRODUCT.eval(context! { a, b })?)
    });
    environment.add_function(SLICE, |state: &State<'_, '_>, a: Value, b: Value, c: Value, d: Value| {
        let budget = Budget::of(state)?;
        budget.charge_call()?;
        budget.charge_outside(&a)?;
        budget.admit_flat(PART.eval(context! { a, b, c, d })?)
    });
    environment.add_function(ITEM, |state: &State<'_, '_>, a: Value, key: Value| {
        // A character is found by counting from the first.
        Budget::of(state)?.charge(1 + text_bytes(&a).unwrap_or(0) as u64)?;
        a.get_item(&key)
    });
    environment.add_function(LIST, |state: &State<'_, '_>, items: Rest<Value>| {
        Budget::of(state)?.admit(Value::from(items.0))
    });
    environment.add_function(MAP, |state: &State<'_, '_>, entries: Rest<Value>| {
        let pairs = entries.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        Budget::of(state)?.admit(pairs.collect())
    });
    environment.add_function(EACH, |state: &State<'_, '_>, items: Value| {
        // Characters are counted before the first is given.
        Budget::of(state)?.charge(1 + text_bytes(&items).unwrap_or(0) as u64)?;
        Ok::<_, Error>(items)
    });
    environment.add_function(KEEP, |state: &State<'_, '_>, value: Value| {
        check_data(&value)?;
        match value.kind() {
            ValueKind::Iterable => Budget::of(state)?.admit_flat(value),
            _ => Ok(value),
        }
    });
    environment.add_function(CHANGED, |state: &State<'_, '_>, values: Rest<Value>| {
        let budget = Budget::of(state)?;
        let (object, values) = values.split_first().expect("a method has an object");
        values.iter().try_for_each(|value| budget.charge_inside(value))?;
        object.call_method(state, "changed", values)
    });
    environment.add_function(MACRO, |state: &State<'_, '_>, arguments: Value| {
        Budget::of(state)?.charge_macro()?;
        Ok::<_, Error>(arguments)
    });
    for (name, in_chain, compare) in COMPARISONS {
        let charged = move |state: &State<'_, '_>, a: &Value, b: &Value| {
            let budget = Budget::of(state)?;
            charge_comparison(&budget, a, b)?;
            compare(a, b)
        };
        environment
            .add_function(name, move |state: &State<'_, '_>, a: Value, b: Value| charged(state, &a, &b));
        environment.add_function(in_chain, move |state: &State<'_, '_>, a: Value, b: Value| {
            let result = charged(state, &a, &b)?;
            // They are unpacked from the last on.
            Ok::<_, Error>(Value::from(vec![Value::from(result), b]))
        });
    }
}

/// Comparing two texts ends where the shorter one does, but `in` goes through all that it looks in.
fn charge_comparison(budget: &Budget, a: &Value, b: &Value) -> Result<(), Error> {
    budget.charge_call()?;
    budget.charge_inside(b)?;
    match text_bytes(b) {
        Some(bytes) => budget.charge(text_bytes(a).unwrap_or(0).min(bytes) as u64),
        None => budget.charge_inside(a),
    }
}
