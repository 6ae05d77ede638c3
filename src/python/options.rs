//! How an engine is opened, as Python's keywords say it.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use yggc::{
    engine::{Activations, DrafterChoice, KvFormat, Options, PlanSource, Tier},
    model::Model,
    packed::KeptPlace,
    plan,
};

use super::error::{exception, input};

/// The keywords of `Engine`.
#[derive(Clone, Debug, FromPyObject)]
pub(super) struct Given {
    #[pyo3(item)]
    plan: Option<PathBuf>,
    #[pyo3(item)]
    force_plan: bool,
    #[pyo3(item)]
    drafter: Option<String>,
    #[pyo3(item)]
    draft_model: Option<PathBuf>,
    #[pyo3(item)]
    store: Option<PathBuf>,
    #[pyo3(item)]
    device: String,
    #[pyo3(item)]
    isa: Option<String>,
    #[pyo3(item)]
    activations: Option<String>,
    #[pyo3(item)]
    cache: String,
    #[pyo3(item)]
    threads: Option<usize>,
    #[pyo3(item)]
    context: Option<usize>,
    #[pyo3(item)]
    read_widths: Vec<usize>,
    #[pyo3(item)]
    memory_limit: Option<usize>,
    #[pyo3(item)]
    resident: Option<usize>,
    #[pyo3(item)]
    packed_folder: Option<PathBuf>,
}

/// The model at `path`, whose packed weights are kept in `folder`.
pub(super) fn open(path: &Path, folder: Option<&Path>) -> PyResult<Model> {
    let model = Model::open(path).map_err(|error| exception(&error.into()))?;
    let Some(folder) = folder else { return Ok(model) };
    model.kept_in(KeptPlace::in_folder(folder), |_| {}).map_err(|error| exception(&error.into()))
}

impl Given {
    /// The model and its options.
    pub(super) fn read(self, path: PathBuf) -> PyResult<(Model, Options)> {
        let plan = self.plan.map(|file| {
            let plan = plan::read(&file).map_err(|error| exception(&error.into()))?;
            Ok::<_, PyErr>(PlanSource { plan, name: file.display().to_string(), force: self.force_plan })
        });
        let drafter = self.drafter.map_or(DrafterChoice::Planned, |name| DrafterChoice::named(&name));
        let activations = match self.activations.as_deref() {
            None => None,
            Some("native") => Some(Activations::Native),
            Some("int8") => Some(Activations::Int8),
            Some(found) => return Err(unknown("activations", "\"native\", \"int8\" or None", found)),
        };
        let cache = match self.cache.as_str() {
            "f16" => KvFormat::F16,
            "q8" => KvFormat::Q8,
            found => return Err(unknown("cache", "\"f16\" or \"q8\"", found)),
        };
        let options = Options {
            plan: plan.transpose()?,
            drafter,
            draft_model: self.draft_model,
            store: self.store,
            tier: tier(&self.device, self.isa.as_deref())?,
            activations,
            cache,
            threads: self.threads,
            context: self.context,
            read_widths: self.read_widths,
            memory_limit: self.memory_limit,
            resident: self.resident,
            ..Options::new(&path)
        };
        Ok((open(&path, self.packed_folder.as_deref())?, options))
    }
}

fn unknown(name: &str, expected: &str, found: &str) -> PyErr {
    input(format!("{name} is {found:?}: expected {expected}"))
}

/// The tier of a device and a set of instructions.
fn tier(device: &str, isa: Option<&str>) -> PyResult<Option<Tier>> {
    const SETS: &str = "\"portable\", \"neon\", \"avx2\", \"avx512\", \"avx512bf16\", \"amx\" or None";
    match (device, isa) {
        ("cpu", None) => Ok(None),
        ("cpu", Some(name)) => match name.parse() {
            Ok(Tier::Reference | Tier::Cuda) | Err(_) => Err(unknown("isa", SETS, name)),
            Ok(tier) => Ok(Some(tier)),
        },
        ("cuda", None) => Ok(Some(Tier::Cuda)),
        ("cuda", Some(_)) => {
            Err(input("isa is for the device \"cpu\": a GPU has no instruction set to choose; leave it out"))
        }
        (found, _) => Err(unknown("device", "\"cpu\" or \"cuda\"", found)),
    }
}
