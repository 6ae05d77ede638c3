//! The engine without what could reach beyond a template, its filters, tests, methods and functions charged for.

use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::budget::Budget;
use super::checked::{FILTERS, FUNCTIONS, TESTS, charge_call, filter, function, is_flat, test};
use super::operators;
use crate::text::python::to_json;

/// Most instructions of one rendering.
const FUEL: u64 = 5_000_000;

/// Most nested calls, loops and conditions of one rendering.
const RECURSION_LIMIT: usize = 200;

/// An environment for compiled templates. It has none that one could include.
pub(in crate::text) fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_debug(false);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(|output, state, value| {
        Budget::of(state)?.charge_printed(value)?;
        escape_formatter(output, state, value)
    });
    environment.set_unknown_method_callback(|state, value, method, arguments| {
        let budget = Budget::of(state)?;
        let all: Vec<&Value> = match method {
            // The separator comes first, where the filter has the list.
            "join" => arguments.iter().chain([value]).collect(),
            _ => std::iter::once(value).chain(arguments).collect(),
        };
        charge_call(&budget, method, &all)?;
        let made = unknown_method_callback(state, value, method, arguments)?;
        if is_flat(method) { budget.admit_flat(made) } else { budget.admit(made) }
    });
    for name in FILTERS {
        environment.add_filter(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            let budget = Budget::of(state)?;
            charge_call(&budget, name, &arguments.iter().collect::<Vec<_>>())?;
            let made = filter(name, state, &arguments)?;
            if is_flat(name) { budget.admit_flat(made) } else { budget.admit(made) }
        });
    }
    for name in TESTS {
        environment.add_test(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            let budget = Budget::of(state)?;
            charge_call(&budget, name, &arguments.iter().collect::<Vec<_>>())?;
            test(name, &arguments)
        });
    }
    for name in FUNCTIONS {
        environment.add_function(name, move |state: &State<'_, '_>, arguments: Rest<Value>| {
            let budget = Budget::of(state)?;
            charge_call(&budget, name, &arguments.iter().collect::<Vec<_>>())?;
            budget.admit(function(name, &arguments)?)
        });
    }
    environment.add_filter("tojson", |state: &State<'_, '_>, value: Value, options: Kwargs| {
        let budget = Budget::of(state)?;
        to_json(&budget, &value, options)
    });
    environment.add_function("raise_exception", |message: String| {
        Err::<String, _>(Error::new(ErrorKind::InvalidOperation, message))
    });
    operators::add_to(&mut environment);
    environment
}
