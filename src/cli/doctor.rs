//! `yggc doctor`: what this machine is, what would make it faster, and how fast a model will be here.
//!
//! The model's header is enough: forwards are measured on a blank of it, which has zeros for weights and of a large
//! model some layers only. What memory gives is measured on a blank of a made-up model, by the threads and in the way
//! of forwards.

mod advice;
mod disk;
mod machine;
mod report;

use std::{
    fs,
    path::{Path, PathBuf},
};

use yggc::{
    backend::{Gpu, Tier, gpu, has_own_memory},
    engine::{Loaded, weight_splits},
    ir::WeightFormat,
    measure::{self, Forecast, ForecastOptions},
    model::{Model, synthetic::SyntheticSpec},
    plan::DEFAULT_CONTEXT,
    storage::{free_bytes, free_memory},
};

use crate::cli::{
    args::DoctorArgs,
    cache::{CacheError, CachePlace},
    error::Failure,
    fetch::{self, Described},
    output,
    plan_cache::{CachedPlan, Found},
    planning::load_options,
    progress,
    settings::Machine,
};
use machine::System;
use report::{MachineReport, ModelReport, PlannedReport, Report};

/// Bytes of weights that forwards are measured with: more than caches hold, and packed within seconds.
const MODEL_BYTES: usize = 1 << 30;
/// Bytes of weights that show how fast memory is, but for caches that hold a good part of so many.
const MACHINE_BYTES: usize = 512 << 20;
/// Rows of forwards that verify small and large trees.
const WIDTHS: [usize; 2] = [4, 16];

/// Runs `yggc doctor`.
pub(crate) fn command(args: &DoctorArgs, cache: &CachePlace) -> Result<(), Failure> {
    if args.device.resident.is_some() {
        return Err(Failure::Usage(
            "doctor measures with all weights in memory: leave --resident out; docs/larger-than-memory.md says what \
             streaming takes"
                .to_owned(),
        ));
    }
    let machine = Machine::new(&args.device)?;
    let described = args.model.as_deref().map(|model| fetch::describe(model, cache)).transpose()?;
    let system = System::at(Path::new("/"));
    let measuring = Measuring::new(machine, &system, args.rehearsal);
    let model = described.as_ref().map(|described| open(described, measuring, cache)).transpose()?;
    let probe = probe(measuring, cache)?;
    let machine_report = machine_report(machine, system, probe, described.as_ref(), cache);
    let report = Report::new(machine_report, model);
    if args.json { output::json(&report) } else { output::text(report.text()) }
}

/// Where and how forwards are measured.
#[derive(Clone, Copy)]
struct Measuring {
    machine: Machine,
    /// Bytes of weights of a model's blank, and of the made-up model's.
    bytes: [usize; 2],
    is_rehearsal: bool,
}

impl Measuring {
    fn new(machine: Machine, system: &System, is_rehearsal: bool) -> Self {
        let bytes = if is_rehearsal { [0; 2] } else { [MODEL_BYTES, machine_bytes(system)] };
        // Other programs get a share of what is free.
        let most = free_memory().map_or(usize::MAX, |free| free / 2);
        Self { machine, bytes: bytes.map(|bytes| bytes.min(most)), is_rehearsal }
    }

    /// What forwards of a model will take, measured on a blank of it with about so many bytes.
    fn forecast(self, model: Model, bytes: usize, doing: &str) -> Result<Forecast, Failure> {
        let spinner = progress::spinner("laying out weights");
        let (blank, stands_for) = model.blank(bytes);
        let loaded = Loaded::new(blank, &load_options(self.machine, WIDTHS.to_vec()))?;
        spinner.finish_and_clear();
        let bar = progress::parts();
        let options = ForecastOptions { is_rehearsal: self.is_rehearsal, ..ForecastOptions::default() };
        let forecast = measure::forecast(&loaded, &stands_for, &options, &mut |step| {
            progress::advance(&bar, doing, step);
        });
        bar.finish_and_clear();
        Ok(forecast?)
    }
}

/// Twice what the largest cache holds, so that hardly anything is found there when it is read again.
fn machine_bytes(system: &System) -> usize {
    let cache = usize::try_from(system.last_cache_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
    MACHINE_BYTES.max(cache.saturating_mul(2)).min(2 * MODEL_BYTES)
}

/// What is known of a model, and what its forwards will take.
fn open(described: &Described, measuring: Measuring, cache: &CachePlace) -> Result<ModelReport, Failure> {
    let machine = measuring.machine;
    let model = Model::open(match described {
        Described::Here(path) => path,
        Described::There(outline) => &outline.path,
    })?;
    let planned = match described {
        Described::Here(_) => planned(&model, machine, cache)?,
        Described::There(_) => None,
    };
    let context = model.config.context.min(DEFAULT_CONTEXT as usize);
    let options = load_options(machine, WIDTHS.to_vec());
    let (splits, session_bytes) = weight_splits(&model, &options, context)?;
    let weight_bytes = splits.all.last().map_or(splits.fixed, |split| split.placed.resident);
    let file_bytes = model.tensors.values().map(|info| info.bytes.len() as u64).sum();
    let elements: f64 = model.tensors.values().map(|info| info.shape.iter().product::<usize>() as f64).sum();
    let (name, family, layers) = (model.config.name.clone(), model.config.family.name, model.config.layers);
    let available = if has_own_memory(machine.tier) { None } else { free_memory() };
    let needed = weight_bytes + session_bytes;
    let forecast = measuring.forecast(model, measuring.bytes[0], "measuring")?;
    Ok(ModelReport {
        name,
        family,
        layers,
        file_bytes,
        bits_per_weight: 8.0 * file_bytes as f64 / elements,
        downloaded: match described {
            Described::Here(_) => None,
            Described::There(outline) => Some((outline.read_bytes, outline.weight_file_bytes)),
        },
        weight_bytes: weight_bytes as u64,
        session_bytes: session_bytes as u64,
        context,
        fits: available.map(|available| needed <= available),
        forecast,
        planned,
    })
}

/// The plan of the model that is cached for this machine.
fn planned(model: &Model, machine: Machine, cache: &CachePlace) -> Result<Option<PlannedReport>, Failure> {
    let Ok(dir) = cache.dir() else { return Ok(None) };
    let place = CachedPlan::new(&dir, machine.fingerprints(model)?, None, None);
    Ok(match place.find() {
        Found::Plan(plan) => {
            let predicted = &plan.bands[0].chosen().first().predicted;
            Some(PlannedReport {
                measured_at: plan.header.measured_at,
                plain_us: predicted.ar_tpot_us,
                expected_us: predicted.tpot_us,
            })
        }
        Found::Nothing | Found::Failure(_) | Found::Unusable(_) => None,
    })
}

/// Forwards of a made-up model whose layers are wide and whose vocabulary is small: it is loaded at once. That of a
/// rehearsal is small.
fn probe(measuring: Measuring, cache: &CachePlace) -> Result<Forecast, Failure> {
    let small = SyntheticSpec { format: WeightFormat::Q8_0, ..SyntheticSpec::default() };
    let spec = if measuring.is_rehearsal {
        small
    } else {
        SyntheticSpec {
            layers: 16,
            width: 4096,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            feed_forward: 14_336,
            ..small
        }
    };
    let folder = cache.dir()?.outlines();
    fs::create_dir_all(&folder).map_err(CacheError::at("create", &folder))?;
    let path = folder.join("probe.gguf");
    let opened = spec.write_gguf_outline(&path).and_then(|()| Model::open(&path));
    // The next outline of a process of this number removes what cannot be removed now.
    let _ = fs::remove_dir_all(&folder);
    measuring.forecast(opened?, measuring.bytes[1], "measuring memory with")
}

fn machine_report(
    machine: Machine,
    system: System,
    probe: Forecast,
    described: Option<&Described>,
    cache: &CachePlace,
) -> MachineReport {
    let gpu: Result<Gpu, String> = match gpu(Tier::Cuda) {
        Ok(found) => found.ok_or_else(|| "none".to_owned()),
        Err(why) => Err(why.to_string()),
    };
    let folder = cache.dir().ok().map(|cache| existing(cache.root()));
    let file = match described {
        Some(Described::Here(path)) => disk::largest_file(path),
        Some(Described::There(_)) | None => None,
    };
    MachineReport {
        tier: machine.tier,
        threads: machine.threads,
        system,
        available_bytes: free_memory().map(|bytes| bytes as u64),
        probe,
        gpu,
        disk_free_bytes: folder.as_deref().and_then(free_bytes),
        disk_bytes_per_s: file.as_deref().and_then(disk::bytes_per_s),
    }
}

/// The folder, or the nearest above it that exists.
fn existing(folder: &Path) -> PathBuf {
    folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned()
}
