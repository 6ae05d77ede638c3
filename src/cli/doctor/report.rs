//! What `yggc doctor` says: lines for people, and the same facts as one JSON object.

use std::fmt::Write;

use serde::Serialize;
use ygg_profiler::UnixTime;
use yggc::{
    backend::{Gpu, Tier},
    measure::{Forecast, ForwardForecast},
};

use super::{advice::advice, machine::System};
use crate::cli::output;

/// How much further than nine in ten forwards a forecast reaches either way: four models decoded in 0.81 to 1.02 of what
/// was forecast (docs/benchmarks), a small one after few tokens the quickest.
const MARGIN: f64 = 0.15;

/// What was found of the machine.
#[derive(Debug)]
pub(super) struct MachineReport {
    pub(super) tier: Tier,
    pub(super) threads: usize,
    pub(super) system: System,
    pub(super) available_bytes: Option<u64>,
    /// Forwards of a made-up model that no cache holds.
    pub(super) probe: Forecast,
    /// Or why there is none.
    pub(super) gpu: Result<Gpu, String>,
    /// In the cache folder.
    pub(super) disk_free_bytes: Option<u64>,
    /// Of the model's file.
    pub(super) disk_bytes_per_s: Option<f64>,
}

/// What is known and was measured of a model.
#[derive(Debug)]
pub(super) struct ModelReport {
    pub(super) name: String,
    pub(super) family: &'static str,
    pub(super) layers: usize,
    /// Of its tensors, as its files store them.
    pub(super) file_bytes: u64,
    pub(super) bits_per_weight: f64,
    /// Bytes that were read from the hub, and those of its files; `None` if the model is here.
    pub(super) downloaded: Option<(u64, u64)>,
    /// As they are packed here.
    pub(super) weight_bytes: u64,
    pub(super) session_bytes: u64,
    /// Of that session, tokens.
    pub(super) context: usize,
    /// Whether both fit in the memory that is free; `None` if that is not known.
    pub(super) fits: Option<bool>,
    pub(super) forecast: Forecast,
    pub(super) planned: Option<PlannedReport>,
}

/// What the plan of this model and machine says.
#[derive(Debug)]
pub(super) struct PlannedReport {
    /// When its profile was measured.
    pub(super) measured_at: UnixTime,
    /// A token of plain decoding, as measured for the plan.
    pub(super) plain_us: f64,
    /// A token with the plan's drafter, as the plan expects it.
    pub(super) expected_us: f64,
}

/// All of it; its fields are a contract.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    /// Date and time in UTC.
    date: String,
    machine: MachineJson,
    model: Option<ModelJson>,
    /// Of the model, ascending by rows; empty without one.
    forwards: Vec<ForwardJson>,
    decode: Option<DecodeJson>,
    plan: Option<PlanJson>,
    advice: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MachineJson {
    processor: Option<String>,
    instruction_set: &'static str,
    processors: usize,
    threads: usize,
    threads_worth_using: Option<usize>,
    last_cache_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    available_bytes: Option<u64>,
    read: ReadJson,
    huge_pages: Option<String>,
    governor: Option<String>,
    processor_quota: Option<f64>,
    gpu: Option<GpuJson>,
    gpu_missing: Option<String>,
    disk_free_bytes: Option<u64>,
    disk_gb_per_s: Option<f64>,
}

/// Reading weights by all threads.
#[derive(Debug, Serialize)]
struct ReadJson {
    bytes: u64,
    gb_per_s: f64,
    low_gb_per_s: f64,
    high_gb_per_s: f64,
}

impl ReadJson {
    fn new(forecast: &Forecast) -> Self {
        let rate = |us: f64| forecast.read_bytes as f64 / us / 1e3;
        let read = forecast.read;
        Self {
            bytes: forecast.read_bytes,
            gb_per_s: rate(read.median_us),
            low_gb_per_s: rate(read.high_us),
            high_gb_per_s: rate(read.low_us),
        }
    }
}

#[derive(Debug, Serialize)]
struct GpuJson {
    name: String,
    driver: String,
    is_emulated: bool,
}

#[derive(Debug, Serialize)]
struct ModelJson {
    name: String,
    family: &'static str,
    layers: usize,
    file_bytes: u64,
    bits_per_weight: f64,
    is_here: bool,
    header_bytes_read: Option<u64>,
    download_bytes: Option<u64>,
    weight_bytes: u64,
    session_bytes: u64,
    session_context: usize,
    fits: Option<bool>,
    /// Its weights, or as many of them as were measured.
    read: ReadJson,
    threads: Vec<ThreadsJson>,
}

/// Forwards of one row with fewer threads.
#[derive(Debug, Serialize)]
struct ThreadsJson {
    threads: usize,
    one_row_us: f64,
}

#[derive(Debug, Serialize)]
struct ForwardJson {
    rows: usize,
    context: usize,
    bytes: u64,
    flops: u64,
    /// Part of the time that was measured, the rest being derived from layers of the same kinds.
    measured: f64,
    expected_us: f64,
    low_us: f64,
    high_us: f64,
    /// Part of the time that reading the bytes takes.
    memory_share: f64,
}

/// Tokens per second of plain decoding.
#[derive(Debug, Serialize)]
struct DecodeJson {
    tokens_per_s: f64,
    low_tokens_per_s: f64,
    high_tokens_per_s: f64,
}

#[derive(Debug, Serialize)]
struct PlanJson {
    measured_at: String,
    plain_us: f64,
    expected_us: f64,
}

impl ForwardJson {
    fn new(forward: &ForwardForecast, forecast: &Forecast) -> Self {
        let ForwardForecast { rows, context, bytes, flops, time, measured } = *forward;
        Self {
            rows,
            context,
            bytes,
            flops,
            measured,
            expected_us: time.median_us,
            low_us: time.low_us * (1.0 - MARGIN),
            high_us: time.high_us * (1.0 + MARGIN),
            memory_share: forecast.bound_by_memory(forward),
        }
    }
}

impl Report {
    pub(super) fn new(machine: MachineReport, model: Option<ModelReport>) -> Self {
        let advice = advice(&machine, model.as_ref(), cfg!(debug_assertions));
        let MachineReport { tier, threads, system, available_bytes, probe, gpu, disk_free_bytes, .. } =
            machine;
        let System { processor, processors, last_cache_bytes, memory_bytes, huge_pages, governor, quota } =
            system;
        let (gpu, gpu_missing) = match gpu {
            Ok(Gpu { name, driver, is_emulated }) => (Some(GpuJson { name, driver, is_emulated }), None),
            Err(why) => (None, Some(why)),
        };
        let machine = MachineJson {
            processor,
            instruction_set: tier.name(),
            processors,
            threads,
            threads_worth_using: probe.threads_worth_using(),
            last_cache_bytes,
            memory_bytes,
            available_bytes,
            read: ReadJson::new(&probe),
            huge_pages,
            governor,
            processor_quota: quota,
            gpu,
            gpu_missing,
            disk_free_bytes,
            disk_gb_per_s: machine.disk_bytes_per_s.map(|rate| rate / 1e9),
        };
        let forwards: Vec<ForwardJson> = model.as_ref().map_or(Vec::new(), |model| {
            let forwards = model.forecast.forwards.iter();
            forwards.map(|forward| ForwardJson::new(forward, &model.forecast)).collect()
        });
        let decode = forwards.iter().find(|forward| forward.rows == 1).map(|forward| DecodeJson {
            tokens_per_s: 1e6 / forward.expected_us,
            low_tokens_per_s: 1e6 / forward.high_us,
            high_tokens_per_s: 1e6 / forward.low_us,
        });
        let planned = model.as_ref().and_then(|model| model.planned.as_ref());
        let plan = planned.map(|planned| PlanJson {
            measured_at: planned.measured_at.rfc3339(),
            plain_us: planned.plain_us,
            expected_us: planned.expected_us,
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            date: UnixTime::now().rfc3339(),
            machine,
            model: model.map(ModelJson::new),
            forwards,
            decode,
            plan,
            advice,
        }
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for (name, fact) in self.machine.lines() {
            line(&mut out, name, &fact);
        }
        if let Some(model) = &self.model {
            out.push('\n');
            for (name, fact) in model.lines() {
                line(&mut out, name, &fact);
            }
            out.push('\n');
            out.push_str(&self.forward_table());
        }
        if let Some(decode) = &self.decode {
            let DecodeJson { tokens_per_s, low_tokens_per_s, high_tokens_per_s } = decode;
            let said = format!(
                "{tokens_per_s:.1} tokens per second expected, {low_tokens_per_s:.1} to {high_tokens_per_s:.1}, \
                 without speculation"
            );
            line(&mut out, "decode", &said);
        }
        if let Some(PlanJson { measured_at, plain_us, expected_us }) = &self.plan {
            let said = format!(
                "{:.2} ms a token measured without speculation, {:.2} ms expected with it ({measured_at})",
                plain_us / 1e3,
                expected_us / 1e3
            );
            line(&mut out, "its plan", &said);
        }
        if !self.advice.is_empty() {
            out.push_str("\nWhat would help\n");
            for sentence in &self.advice {
                writeln!(out, "  - {sentence}").expect("a string accepts every write");
            }
        }
        out
    }

    fn forward_table(&self) -> String {
        let head = ["a forward of", "ms", "range", "reads", "by memory"].map(str::to_owned);
        let row = |forward: &ForwardJson| {
            let rows = if forward.rows == 1 { "1 row".to_owned() } else { format!("{} rows", forward.rows) };
            [
                rows,
                format!("{:.2}", forward.expected_us / 1e3),
                format!("{:.2} to {:.2}", forward.low_us / 1e3, forward.high_us / 1e3),
                size(forward.bytes),
                format!("{:.0} %", 100.0 * forward.memory_share),
            ]
        };
        let rows: Vec<[String; 5]> = [head].into_iter().chain(self.forwards.iter().map(row)).collect();
        output::table(&rows)
    }
}

/// Bytes in a readable unit.
fn size(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 1.0 { output::bytes(bytes) } else { format!("{gib:.1} GiB") }
}

fn line(out: &mut String, name: &str, fact: &str) {
    writeln!(out, "{name:<13} {fact}").expect("a string accepts every write");
}

impl ReadJson {
    fn text(&self) -> String {
        let Self { bytes, gb_per_s, low_gb_per_s, high_gb_per_s } = self;
        format!("{gb_per_s:.1} GB/s ({low_gb_per_s:.1} to {high_gb_per_s:.1}) over {}", size(*bytes))
    }
}

impl MachineJson {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let unknown = || "unknown".to_owned();
        let bytes = |count: Option<u64>| count.map_or_else(unknown, size);
        let worth = match self.threads_worth_using {
            Some(worth) => format!(", {worth} worth using"),
            None => String::new(),
        };
        let gpu = match &self.gpu {
            Some(gpu) => format!("{}, driver {}", gpu.name, gpu.driver),
            // What is missing is a paragraph, of interest to who expects a GPU.
            None => "none; --device cuda says what is missing".to_owned(),
        };
        let mut disk = format!("{} free for the cache", bytes(self.disk_free_bytes));
        if let Some(rate) = self.disk_gb_per_s {
            write!(disk, "; the model's file is read at {rate:.2} GB/s")
                .expect("a string accepts every write");
        }
        vec![
            ("processor", self.processor.clone().unwrap_or_else(unknown)),
            ("kernels", self.instruction_set.to_owned()),
            ("threads", format!("{} of {} processors{worth}", self.threads, self.processors)),
            ("last cache", bytes(self.last_cache_bytes)),
            ("memory", format!("{}, {} free", bytes(self.memory_bytes), bytes(self.available_bytes))),
            ("memory speed", self.read.text()),
            ("GPU", gpu),
            ("disk", disk),
        ]
    }
}

impl ModelJson {
    fn new(model: ModelReport) -> Self {
        let threads = |(threads, us): &(usize, f64)| ThreadsJson { threads: *threads, one_row_us: *us };
        Self {
            name: model.name,
            family: model.family,
            layers: model.layers,
            file_bytes: model.file_bytes,
            bits_per_weight: model.bits_per_weight,
            is_here: model.downloaded.is_none(),
            header_bytes_read: model.downloaded.map(|(read, _)| read),
            download_bytes: model.downloaded.map(|(_, bytes)| bytes),
            weight_bytes: model.weight_bytes,
            session_bytes: model.session_bytes,
            session_context: model.context,
            fits: model.fits,
            read: ReadJson::new(&model.forecast),
            threads: model.forecast.threads.iter().map(threads).collect(),
        }
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let place = match (self.header_bytes_read, self.download_bytes) {
            (Some(read), Some(bytes)) => {
                format!("; {} of {} were downloaded", size(read), size(bytes))
            }
            _ => String::new(),
        };
        let fits = match self.fits {
            Some(true) => ": fits",
            Some(false) => ": does not fit",
            None => "",
        };
        let (weights, session) = (size(self.weight_bytes), size(self.session_bytes));
        vec![
            ("model", format!("{}, {} of {} layers{place}", self.name, self.family, self.layers)),
            ("weights", format!("{}, {:.1} bits each", size(self.file_bytes), self.bits_per_weight)),
            ("takes", format!("{weights} of weights, {session} for {} tokens{fits}", self.session_context)),
            ("read at", self.read.text()),
        ]
    }
}
