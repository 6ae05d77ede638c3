//! Plans made from Python.

use std::{path::PathBuf, time::Duration};

use pyo3::prelude::*;
use yggc::{
    engine::{KvFormat, LoadOptions, Loaded, Tier},
    measure::{self, ProfileOptions},
    plan::UnixTime,
    planner::plan_first,
};

use super::{
    engine::apart,
    error::{exception, input},
    options,
};

/// Measures this machine and the drafters on it for `budget` seconds, and writes the plan that an engine of as many
/// threads decodes fastest by.
#[pyfunction]
#[pyo3(signature = (model, plan, budget, threads, draft_models, packed_folder))]
pub(super) fn autoplan(
    py: Python<'_>,
    model: PathBuf,
    plan: PathBuf,
    budget: f64,
    threads: Option<usize>,
    draft_models: Vec<PathBuf>,
    packed_folder: Option<PathBuf>,
) -> PyResult<()> {
    let budget = Duration::try_from_secs_f64(budget)
        .map_err(|_| input(format!("budget is {budget}: expected seconds, above 0")))?;
    let made = || {
        let model = options::open(&model, packed_folder.as_deref())?;
        let tier = Tier::detect_best();
        let load = LoadOptions {
            tier: Some(tier),
            activations: tier.activations(),
            cache: KvFormat::F16,
            threads,
            widths: ProfileOptions::WIDTHS.to_vec(),
            resident: None,
        };
        let loaded = Loaded::new(model, &load).map_err(|error| exception(&error))?;
        let options =
            ProfileOptions { draft_models, ..ProfileOptions::of_first_use(&loaded, Some(budget), None) };
        let made = measure::profile(&loaded, &options, &mut |_| {})
            .and_then(|profile| plan_first(&profile, None, UnixTime::now()))
            .map_err(|error| exception(&error))?;
        yggc::plan::write(&made, &plan).map_err(|error| exception(&error.into()))
    };
    py.detach(|| apart(made))
}
