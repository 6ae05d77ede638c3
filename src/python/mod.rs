//! The native module of the Python package `yggc`: engines, and generations whose events Python takes one by one.
//!
//! Python's side, in `yggc/__init__.py`, has the documentation, the types and everything that needs no Rust. A request
//! runs on a thread of its own, and every call that waits lets other Python threads run.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod generation;
mod options;
mod planning;
mod request;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<generation::Generation>()?;
    module.add_function(wrap_pyfunction!(planning::autoplan, module)?)?;
    error::add(module)
}
