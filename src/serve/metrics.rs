//! Metrics of the service, and their text for Prometheus.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};
use yggc::{
    engine::{self, ChooseReport, FinishReason, Report},
    prefix::PrefixStore,
};

use super::{
    answers,
    prefix_metrics::PrefixMetrics,
    vllm_metrics::{self, VllmMetrics},
};

/// Labels with their names.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Buckets of the time to the first token in seconds, from a cached prompt of a small model to a long queue.
const TTFT_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Buckets of the time per output token in seconds.
const TPOT_BUCKETS: [f64; 12] = [0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
/// Buckets of the time of whole requests in seconds.
const DURATION_BUCKETS: [f64; 12] = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];
/// Largest `Retry-After`.
const MOST_WAIT_S: u64 = 120;

/// All metrics. They are atomic: the decoder and the reactor never wait for each other.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    waiting: Gauge,
    answered: Gauge,
    waits: Histogram,
    durations: Histogram,
    ttft: Histogram,
    tpot: Histogram,
    endings: Family<Labels, Counter>,
    prompt_tokens: Counter,
    reused_tokens: Counter,
    output_tokens: Counter,
    steps: Family<Labels, Counter>,
    /// Steps of all drafters.
    all_steps: AtomicU64,
    step_tokens: Counter,
    aal: Gauge<f64, AtomicU64>,
    offered: Family<Labels, Counter>,
    accepted: Family<Labels, Counter>,
    speculation_off: Family<Labels, Counter>,
    vllm: VllmMetrics,
    busy_us: AtomicU64,
    served: AtomicU64,
    /// The device's error, once it has failed.
    failure: OnceLock<String>,
}

impl Metrics {
    /// All at zero, of a service of the model of that name, with those of kept prefixes if there are any.
    pub(super) fn new(model: &str, prefixes: Option<Arc<PrefixStore>>) -> Self {
        let mut all = Registry::default();
        let registry = all.sub_registry_with_prefix("yggc");
        let metrics = Self {
            requests: Family::default(),
            waiting: Gauge::default(),
            answered: Gauge::default(),
            waits: Histogram::new(TTFT_BUCKETS),
            durations: Histogram::new(DURATION_BUCKETS),
            endings: Family::default(),
            ttft: Histogram::new(TTFT_BUCKETS),
            tpot: Histogram::new(TPOT_BUCKETS),
            prompt_tokens: Counter::default(),
            reused_tokens: Counter::default(),
            output_tokens: Counter::default(),
            steps: Family::default(),
            all_steps: AtomicU64::new(0),
            step_tokens: Counter::default(),
            aal: Gauge::default(),
            offered: Family::default(),
            accepted: Family::default(),
            speculation_off: Family::default(),
            vllm: VllmMetrics::new(DURATION_BUCKETS),
            busy_us: AtomicU64::new(0),
            served: AtomicU64::new(0),
            failure: OnceLock::new(),
            registry: Registry::default(),
        };
        let help = "Requests by route and status; 499 is a client that left";
        registry.register("requests", help, metrics.requests.clone());
        registry.register("queue_length", "Requests that wait for the decoder", metrics.waiting.clone());
        registry.register("requests_running", "Requests that are answered", metrics.answered.clone());
        let help = "From a request's arrival to the begin of its prefill";
        registry.register("queue_time_seconds", help, metrics.waits.clone());
        let help = "From a request's arrival to its end, refused requests included";
        registry.register("request_duration_seconds", help, metrics.durations.clone());
        let help = "Finished answers by reason: stop, length or cancelled";
        registry.register("finished", help, metrics.endings.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the program", build);
        let help = "From a request's arrival to its first token (TTFT)";
        registry.register("time_to_first_token_seconds", help, metrics.ttft.clone());
        let help = "Time per output token after the first, of whole requests (TPOT)";
        registry.register("time_per_output_token_seconds", help, metrics.tpot.clone());
        registry.register("prompt_tokens", "Tokens of prompts", metrics.prompt_tokens.clone());
        let help = "Tokens of prompts whose keys and values were there already";
        registry.register("prompt_tokens_reused", help, metrics.reused_tokens.clone());
        registry.register("output_tokens", "Tokens of answers", metrics.output_tokens.clone());
        registry.register("steps", "Steps by drafter", metrics.steps.clone());
        registry.register("step_tokens", "Tokens emitted by steps", metrics.step_tokens.clone());
        let help = "Average accepted length: tokens a step since the start (AAL)";
        registry.register("average_accepted_length", help, metrics.aal.clone());
        let help = "Steps that verified a drafted token of this depth";
        registry.register("depth_offered", help, metrics.offered.clone());
        registry.register("depth_accepted", "Steps that accepted one", metrics.accepted.clone());
        let help = "Requests that drafted nothing, or not at every step, by reason";
        registry.register("speculation_off", help, metrics.speculation_off.clone());
        if let Some(store) = prefixes {
            registry.register_collector(Box::new(PrefixMetrics(store)));
        }
        let theirs = vllm_metrics::registry(&mut all, model);
        metrics.vllm.register(theirs);
        for (name, gauge) in
            [("num_requests_waiting", &metrics.waiting), ("num_requests_running", &metrics.answered)]
        {
            vllm_metrics::register(theirs, name, gauge.clone());
        }
        for (name, counter) in [
            ("prompt_tokens", &metrics.prompt_tokens),
            ("generation_tokens", &metrics.output_tokens),
            ("prefix_cache_queries", &metrics.prompt_tokens),
            ("prefix_cache_hits", &metrics.reused_tokens),
        ] {
            vllm_metrics::register(theirs, name, counter.clone());
        }
        for (name, histogram) in [
            ("time_to_first_token_seconds", &metrics.ttft),
            ("request_time_per_output_token_seconds", &metrics.tpot),
            ("request_queue_time_seconds", &metrics.waits),
        ] {
            vllm_metrics::register(theirs, name, histogram.clone());
        }
        Self { registry: all, ..metrics }
    }

    /// Counts the end of a request, as long after its arrival.
    pub(super) fn request(&self, route: &'static str, status: u16, after: Duration) {
        self.durations.observe(after.as_secs_f64());
        let labels = vec![("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Records how long a request waited for the decoder.
    pub(super) fn waited(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    /// Records the time to a request's first token.
    pub(super) fn first_token(&self, after: Duration) {
        self.ttft.observe(after.as_secs_f64());
    }

    /// Counts the tokens of an accepted prompt.
    pub(super) fn prompt(&self, tokens: usize) {
        self.prompt_tokens.inc_by(tokens as u64);
    }

    /// Records the numbers of a question with given answers, as long after its arrival.
    pub(super) fn chosen(&self, report: &ChooseReport, after: Duration) {
        self.reused_tokens.inc_by(report.reused_tokens as u64);
        self.answered(after);
    }

    /// Records the numbers of a finished request.
    pub(super) fn finished(&self, reason: FinishReason, report: &Report) {
        self.vllm.finished(reason, report);
        self.endings.get_or_create(&vec![("reason", reason.name().to_owned())]).inc();
        self.reused_tokens.inc_by(report.reused_tokens as u64);
        self.output_tokens.inc_by(report.tokens as u64);
        if let Some(tpot_ms) = report.tpot_ms {
            self.tpot.observe(tpot_ms / 1e3);
        }
        let drafts = report.drafted > 0;
        let drafter = if drafts { report.drafter.clone() } else { "none".to_owned() };
        self.steps.get_or_create(&vec![("drafter", drafter)]).inc_by(report.steps);
        let steps = self.all_steps.fetch_add(report.steps, Ordering::Relaxed) + report.steps;
        // The first token comes from the prefill.
        self.step_tokens.inc_by(report.tokens.saturating_sub(1) as u64);
        if steps > 0 {
            self.aal.set(self.step_tokens.get() as f64 / steps as f64);
        }
        for (depth, (offered, accepted)) in (1..).zip(&report.counts_by_depth) {
            let labels = vec![("depth", usize::to_string(&depth))];
            self.offered.get_or_create(&labels).inc_by(*offered);
            self.accepted.get_or_create(&labels).inc_by(*accepted);
        }
        let reason = match &report.spec_off_reason {
            // The guard's reason contains numbers of the request, which would make a label per request.
            Some(_) if report.paused_steps > 0 => Some("drafts did not pay for some steps"),
            Some(reason) => Some(reason.as_str()),
            None => None,
        };
        if let Some(reason) = reason {
            self.speculation_off.get_or_create(&vec![("reason", reason.to_owned())]).inc();
        }
    }

    /// Shows that of the context so large a part holds the running request's tokens.
    pub(super) fn cache_used(&self, part: f64) {
        self.vllm.cache_used(part);
    }

    /// Records the time of a request that was answered.
    pub(super) fn answered(&self, after: Duration) {
        self.vllm.answered(after);
    }

    /// Adds the time that the decoder spent on a request.
    pub(super) fn was_busy(&self, time: Duration) {
        self.busy_us.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Seconds for `Retry-After`: `waiting` times the mean time of the requests served so far, at least 1.
    pub(super) fn retry_after_s(&self, waiting: usize) -> u64 {
        let served = self.served.load(Ordering::Relaxed).max(1);
        let each_us = self.busy_us.load(Ordering::Relaxed) / served;
        let wait_us = each_us.saturating_mul(waiting as u64);
        wait_us.div_ceil(1_000_000).clamp(1, MOST_WAIT_S)
    }

    /// Records that the device failed; no further request is answered.
    pub(super) fn device_failed(&self, why: &engine::Error) {
        let _later = self.failure.set(answers::message(why));
    }

    /// The device's error, if it has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// All metrics as OpenMetrics text, with the given numbers of waiting and running requests.
    pub(super) fn text(&self, (waiting, answered): (usize, usize)) -> String {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.waiting.set(number(waiting));
        self.answered.set(number(answered));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string accepts every write");
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Content type of OpenMetrics text.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of Prometheus' own text format.
pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// OpenMetrics text in Prometheus' own format: a counter is declared by the name of its series, there is no type
/// `info`, and no end.
pub(super) fn plain(open_metrics: &str) -> String {
    let mut text = String::new();
    let lines: Vec<&str> = open_metrics.lines().filter(|line| !line.starts_with("# EOF")).collect();
    for (i, line) in lines.iter().enumerate() {
        let declared = line.strip_prefix("# HELP ").or(line.strip_prefix("# TYPE "));
        let Some((name, said)) = declared.and_then(|rest| rest.split_once(' ')) else {
            if !line.starts_with("# UNIT ") {
                text.push_str(&format!("{line}\n"));
            }
            continue;
        };
        // The type comes with the line itself, or with the one after the help.
        let types = [Some(line), lines.get(i + 1)];
        let is_a = |kind: &str| types.iter().flatten().any(|line| **line == format!("# TYPE {name} {kind}"));
        let (suffix, said) = match said {
            "info" => ("_info", "gauge"),
            said if is_a("info") => ("_info", said),
            said if is_a("counter") => ("_total", said),
            said => ("", said),
        };
        text.push_str(&format!("{} {name}{suffix} {said}\n", &line[..6]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_declares_series_by_their_names() {
        let metrics = Metrics::new("a", None);
        metrics.request("/v1/completions", 200, Duration::from_secs(1));
        let open = metrics.text((1, 0));
        assert!(open.ends_with("# EOF\n") && open.contains("# TYPE yggc_requests counter\n"), "{open}");
        let plain = plain(&open);
        for part in [
            "# HELP yggc_requests_total Requests by",
            "# TYPE yggc_requests_total counter\nyggc_requests_total{",
            "# TYPE yggc_build_info gauge\nyggc_build_info{version=\"",
            "# TYPE yggc_request_duration_seconds histogram\n",
            "yggc_queue_length 1\n",
        ] {
            assert!(plain.contains(part), "{part}: {plain}");
        }
        assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
        let series = plain.lines().filter(|line| !line.starts_with('#'));
        let expected = open.lines().filter(|line| !line.starts_with('#'));
        assert!(series.eq(expected), "{plain}");
    }
}
