//! Metrics by the names that vLLM gives them, so that dashboards made for it show this service too.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use yggc::engine::{FinishReason, Report};

use super::metrics::Labels;

/// What each is said to be.
const HELP: [(&str, &str); 16] = [
    ("num_requests_waiting", "Requests that wait for the decoder"),
    ("num_requests_running", "Requests that are answered"),
    ("kv_cache_usage_perc", "Part of the context that the running request's tokens take, 0 to 1"),
    ("prompt_tokens", "Tokens of prompts"),
    ("generation_tokens", "Tokens of answers"),
    ("prefix_cache_queries", "Tokens of prompts"),
    ("prefix_cache_hits", "Tokens of prompts whose keys and values were there already"),
    ("request_success", "Finished answers by reason"),
    ("time_to_first_token_seconds", "From a request's arrival to its first token"),
    ("request_time_per_output_token_seconds", "Time per output token after the first, of whole requests"),
    ("request_queue_time_seconds", "From a request's arrival to the begin of its prefill"),
    ("e2e_request_latency_seconds", "From a request's arrival to the end of its answer"),
    ("spec_decode_num_drafts", "Steps that verified a draft"),
    ("spec_decode_num_draft_tokens", "Drafted tokens that were verified"),
    ("spec_decode_num_accepted_tokens", "Drafted tokens that were accepted"),
    ("spec_decode_num_accepted_tokens_per_pos", "Steps that accepted a drafted token of this depth, from 0"),
];

/// The registry of these names. All have the model's name and the number of the engine as labels.
pub(super) fn registry<'r>(all: &'r mut Registry, model: &str) -> &'r mut Registry {
    let labels = [("model_name", model.to_owned()), ("engine", "0".to_owned())];
    let own = |(name, value): (&'static str, String)| (name.into(), value.into());
    all.sub_registry_with_labels(labels.into_iter().map(own))
}

/// Registers a metric by its name after `vllm:`.
///
/// # Panics
/// If the name has no help.
pub(super) fn register(registry: &mut Registry, name: &str, metric: impl Metric) {
    let help = HELP.into_iter().find(|(known, _)| *known == name).expect("every name has its help").1;
    registry.register(format!("vllm:{name}"), help, metric);
}

/// Those that have no other name here.
#[derive(Debug)]
pub(super) struct VllmMetrics {
    cache_usage: Gauge<f64, AtomicU64>,
    successes: Family<Labels, Counter>,
    latency: Histogram,
    drafts: Counter,
    drafted: Counter,
    accepted: Counter,
    accepted_at: Family<Labels, Counter>,
}

impl VllmMetrics {
    pub(super) fn new(latency_buckets: impl IntoIterator<Item = f64>) -> Self {
        Self {
            cache_usage: Gauge::default(),
            successes: Family::default(),
            latency: Histogram::new(latency_buckets),
            drafts: Counter::default(),
            drafted: Counter::default(),
            accepted: Counter::default(),
            accepted_at: Family::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        register(registry, "kv_cache_usage_perc", self.cache_usage.clone());
        register(registry, "request_success", self.successes.clone());
        register(registry, "e2e_request_latency_seconds", self.latency.clone());
        register(registry, "spec_decode_num_drafts", self.drafts.clone());
        register(registry, "spec_decode_num_draft_tokens", self.drafted.clone());
        register(registry, "spec_decode_num_accepted_tokens", self.accepted.clone());
        register(registry, "spec_decode_num_accepted_tokens_per_pos", self.accepted_at.clone());
    }

    /// Shows what part of the context is in use.
    pub(super) fn cache_used(&self, part: f64) {
        self.cache_usage.set(part);
    }

    /// Records the time of an answered request.
    pub(super) fn answered(&self, after: Duration) {
        self.latency.observe(after.as_secs_f64());
    }

    /// Records the numbers of a finished answer.
    pub(super) fn finished(&self, reason: FinishReason, report: &Report) {
        let reason = match reason {
            FinishReason::Stop | FinishReason::StopString { .. } => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "abort",
        };
        self.successes.get_or_create(&vec![("finished_reason", reason.to_owned())]).inc();
        self.drafts.inc_by(report.counts_by_depth.first().map_or(0, |(offered, _)| *offered));
        self.drafted.inc_by(report.drafted);
        self.accepted.inc_by(report.accepted);
        for (position, (_, accepted)) in report.counts_by_depth.iter().enumerate() {
            let labels = vec![("position", position.to_string())];
            self.accepted_at.get_or_create(&labels).inc_by(*accepted);
        }
    }
}
