//! `yggc bench --kernels`: every op of a forward at every width, compared with the machine's measured roofline.

use std::fmt::Write;

use serde::Serialize;
use yggc::{
    engine::Loaded,
    measure::{self, ForwardReport, KernelOptions, KernelReport, OpReport, ProfileOptions, Roofline, Timing},
};

use crate::cli::{
    args::BenchArgs,
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::{advance, load_options},
    progress,
    settings::Machine,
};

use super::provenance::Provenance;

/// Runs `yggc bench --kernels`.
pub(super) fn command(args: &BenchArgs, cache: &CachePlace) -> Result<(), Failure> {
    let machine = Machine::new(&args.device)?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let loaded = Loaded::new(loading::open(&path, cache)?, &load_options(machine, widths(args)))?;
    let defaults = KernelOptions::default();
    let repetitions = args.repetitions.unwrap_or(defaults.repetitions);
    let options = KernelOptions { repetitions, ..defaults };
    let bar = progress::parts();
    let report = measure::kernel_report(&loaded, &options, &mut |step| advance(&bar, step));
    bar.finish_and_clear();
    let report = report?;
    let provenance = Provenance::new(&loaded)?;
    if args.json {
        return output::json(&KernelsJson::new(provenance, repetitions, &report));
    }
    output::text(text(&provenance, repetitions, &report))
}

/// The requested widths, or those of profiles.
pub(super) fn widths(args: &BenchArgs) -> Vec<usize> {
    if args.widths.is_empty() {
        ProfileOptions::WIDTHS.to_vec()
    } else {
        args.widths.iter().cloned().flatten().collect()
    }
}

/// The object that `bench --kernels --json` prints.
#[derive(Debug, Serialize)]
struct KernelsJson<'a> {
    #[serde(flatten)]
    provenance: Provenance,
    repetitions: usize,
    roofline: RooflineJson,
    forwards: Vec<ForwardJson<'a>>,
}

/// Measured.
#[derive(Debug, Serialize)]
struct RooflineJson {
    weight_bytes: u64,
    gb_per_s: f64,
    median_gb_per_s: f64,
    gflop_per_s: Vec<PeakJson>,
    empty_step: Timing,
}

#[derive(Debug, Serialize)]
struct PeakJson {
    arithmetic: &'static str,
    gflop_per_s: f64,
}

#[derive(Debug, Serialize)]
struct ForwardJson<'a> {
    #[serde(flatten)]
    measured: &'a ForwardReport,
    /// Derived from here on, except the ops' timings.
    steps: usize,
    steps_us: f64,
    barriers_us: f64,
    remainder_us: f64,
    floor_us: f64,
    share: f64,
    ops: Vec<OpJson<'a>>,
    heads: Vec<OpJson<'a>>,
}

#[derive(Debug, Serialize)]
struct OpJson<'a> {
    #[serde(flatten)]
    measured: &'a OpReport,
    /// Derived.
    gb_per_s: f64,
    gflop_per_s: f64,
    floor_us: f64,
    share: f64,
}

impl<'a> KernelsJson<'a> {
    fn new(provenance: Provenance, repetitions: usize, report: &'a KernelReport) -> Self {
        let KernelReport { roofline, forwards } = report;
        let Roofline { weight_bytes, bytes_per_s, median_bytes_per_s, flops_per_s, empty_step } = roofline;
        let peak = |(arithmetic, flops_per_s): &(yggc::runtime::Arithmetic, f64)| PeakJson {
            arithmetic: arithmetic.name(),
            gflop_per_s: flops_per_s / 1e9,
        };
        Self {
            provenance,
            repetitions,
            roofline: RooflineJson {
                weight_bytes: *weight_bytes,
                gb_per_s: bytes_per_s / 1e9,
                median_gb_per_s: median_bytes_per_s / 1e9,
                gflop_per_s: flops_per_s.iter().map(peak).collect(),
                empty_step: *empty_step,
            },
            forwards: forwards.iter().map(|forward| ForwardJson::new(forward, roofline)).collect(),
        }
    }
}

impl<'a> ForwardJson<'a> {
    fn new(report: &'a ForwardReport, roofline: &Roofline) -> Self {
        let op = |op: &'a OpReport| OpJson {
            measured: op,
            gb_per_s: op.gb_per_s(),
            gflop_per_s: op.gflop_per_s(),
            floor_us: op.floor_us(roofline),
            share: op.share(roofline),
        };
        Self {
            measured: report,
            steps: report.steps(),
            steps_us: report.steps_us(),
            barriers_us: report.barriers_us(roofline),
            remainder_us: report.remainder_us(),
            floor_us: report.floor_us(roofline),
            share: report.share(roofline),
            ops: report.ops.iter().map(op).collect(),
            heads: report.heads.iter().map(op).collect(),
        }
    }
}

/// The report as tables.
fn text(provenance: &Provenance, repetitions: usize, report: &KernelReport) -> String {
    let roofline = &report.roofline;
    let mut out = op_table(report);
    out.push('\n');
    out.push_str(&forward_table(report));
    out.push_str(&decode_tables(report));
    let peaks: Vec<String> = roofline
        .flops_per_s
        .iter()
        .map(|(arithmetic, flops)| format!("{:.0} GFLOP/s in {}", flops / 1e9, arithmetic.name()))
        .collect();
    let weights = output::bytes(roofline.weight_bytes);
    writeln!(
        out,
        "\nroofline, measured: {:.1} GB/s (median {:.1}) over {weights} of weights, {}; an empty step takes {:.2} us\n\
         share: the least time that the roofline allows, by the median; above 1, what is read comes from a cache\n\
         spread: the middle half of the runs, by the median\n\
         {repetitions} repetitions; {}",
        roofline.bytes_per_s / 1e9,
        roofline.median_bytes_per_s / 1e9,
        peaks.join(", "),
        roofline.empty_step.median_us,
        provenance.machine.facts
    )
    .expect("a string accepts every write");
    out
}

/// The widths of each op together. Ops that do not depend on the context are shown once.
fn op_table(report: &KernelReport) -> String {
    let head =
        ["op", "kernel", "width", "context", "calls", "us", "min", "spread", "GB/s", "GFLOP/s", "share"];
    let mut rows = vec![head.map(str::to_owned)];
    let all = |forward: &'_ ForwardReport| -> Vec<OpReport> { [&forward.ops[..], &forward.heads].concat() };
    let mut kinds: Vec<(String, String)> = Vec::new();
    for op in report.forwards.iter().flat_map(all) {
        let kind = (op.name, op.kernel);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (name, kernel) in kinds {
        let mut shown = Vec::new();
        for forward in &report.forwards {
            for op in all(forward).into_iter().filter(|op| op.name == name && op.kernel == kernel) {
                if shown.contains(&(forward.width, op.work)) {
                    continue;
                }
                shown.push((forward.width, op.work));
                let flops = op.work.flops;
                rows.push([
                    op.name.clone(),
                    op.kernel.clone(),
                    forward.width.to_string(),
                    forward.context.to_string(),
                    op.calls.to_string(),
                    format!("{:.2}", op.call.median_us),
                    format!("{:.2}", op.call.min_us),
                    format!("{:.2}", op.call.spread),
                    format!("{:.1}", op.gb_per_s()),
                    if flops == 0 { "-".to_owned() } else { format!("{:.1}", op.gflop_per_s()) },
                    format!("{:.2}", op.share(&report.roofline)),
                ]);
            }
        }
    }
    output::table(&rows)
}

/// Every forward as the sum of its parts, in microseconds.
fn forward_table(report: &KernelReport) -> String {
    let head = [
        "forward", "context", "T(W) us", "min", "spread", "observed", "steps", "barriers", "rest", "floor",
        "share",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for forward in &report.forwards {
        rows.push([
            format!("width {}", forward.width),
            forward.context.to_string(),
            format!("{:.1}", forward.forward.median_us),
            format!("{:.1}", forward.forward.min_us),
            format!("{:.2}", forward.forward.spread),
            format!("{:.1}", forward.observed.median_us),
            format!("{:.1}", forward.steps_us()),
            format!("{:.1}", forward.barriers_us(&report.roofline)),
            format!("{:.1}", forward.remainder_us()),
            format!("{:.1}", forward.floor_us(&report.roofline)),
            format!("{:.2}", forward.share(&report.roofline)),
        ]);
    }
    output::table(&rows)
}

/// Shares of the time of each decode forward.
fn decode_tables(report: &KernelReport) -> String {
    let mut out = String::new();
    for forward in report.forwards.iter().filter(|forward| forward.width == 1) {
        let part = |us: f64| format!("{:.1}%", 100.0 * us / forward.forward.median_us);
        let title = format!("decode at context {}", forward.context);
        let mut rows =
            vec![[title, "calls".to_owned(), "us".to_owned(), "waiting".to_owned(), String::new()]];
        for op in &forward.ops {
            let us = op.forward_us;
            let wait = format!("{:.1}", op.wait_us);
            rows.push([op.name.clone(), op.calls.to_string(), format!("{us:.1}"), wait, part(us)]);
        }
        let mut line = |name: &str, calls: String, us: f64| {
            rows.push([name.to_owned(), calls, format!("{us:.1}"), String::new(), part(us)]);
        };
        line("all steps", forward.steps().to_string(), forward.steps_us());
        line("barriers in them", String::new(), forward.barriers_us(&report.roofline));
        line("the rest", String::new(), forward.remainder_us());
        if let Some(fetched) = &forward.fetched {
            line("streamed weights, observed", String::new(), fetched.median_us);
        }
        line("T(1)", String::new(), forward.forward.median_us);
        line("T(1) observed", String::new(), forward.observed.median_us);
        writeln!(out, "\n{}", output::table(&rows).trim_end()).expect("a string accepts every write");
    }
    out
}
