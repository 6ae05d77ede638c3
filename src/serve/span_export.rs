//! Sends spans to a collector: OTLP over HTTP as JSON (<https://opentelemetry.io/docs/specs/otlp/>), by a thread of its own, to where the standard
//! variables of OpenTelemetry say.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::spans::{Spans, attribute};

/// Variables that are read.
pub(crate) const VARIABLES: [&str; 15] = [
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
];
/// Requests whose spans wait to be sent, at most; those of others are lost.
const MOST_WAITING: usize = 2048;
/// Spans that are sent together.
const MOST_TOGETHER: usize = 512;

/// Where spans go, and which.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpanSettings {
    endpoint: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
    delay: Duration,
    resource: Vec<(String, String)>,
    sampler: Sampler,
}

/// Which requests are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Whether a caller's decision holds.
    follows_parent: bool,
    /// The part of the others, 0 to 1.
    part: f64,
}

/// What the exporting thread gets.
#[derive(Debug)]
pub(super) enum Message {
    /// The spans of a request.
    Spans(Vec<Value>),
    /// There are no more.
    End,
}

impl Sampler {
    /// Whether a trace is recorded; `parent` is what its caller decided.
    pub(super) fn takes(self, trace: u128, parent: Option<bool>) -> bool {
        match parent {
            Some(is_recorded) if self.follows_parent => is_recorded,
            // As OpenTelemetry's: by the id, so that all services decide alike.
            _ if self.part >= 1.0 => true,
            _ => ((trace as u64) >> 1) as f64 / ((1_u64 << 63) as f64) < self.part,
        }
    }
}

impl SpanSettings {
    /// By the variables of OpenTelemetry; `None` where none asks for spans.
    ///
    /// # Errors
    /// What is wrong with one.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let of_traces = |name: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
            let common = format!("OTEL_EXPORTER_OTLP_{name}");
            variable(&own)
                .map(|value| (own, value))
                .or_else(|| variable(&common).map(|value| (common, value)))
        };
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let exporter = variable("OTEL_TRACES_EXPORTER");
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
        let endpoint = match (exporter.as_deref(), variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), base) {
            (Some("none"), ..) | (None, None, None) => return Ok(None),
            (Some("otlp") | None, Some(endpoint), _) => endpoint,
            (Some("otlp") | None, None, Some(base)) => format!("{}/v1/traces", base.trim_end_matches('/')),
            (Some("otlp"), None, None) => "http://localhost:4318/v1/traces".to_owned(),
            (Some(found), ..) => {
                return Err(format!("$OTEL_TRACES_EXPORTER is {found:?}: expected otlp or none"));
            }
        };
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            return Err(format!(
                "the endpoint of OpenTelemetry is {endpoint:?}: expected http:// or https://"
            ));
        }
        if let Some((name, found)) = of_traces("PROTOCOL").filter(|(_, found)| found != "http/json") {
            return Err(format!(
                "${name} is {found:?}: expected http/json; set $OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to it, which collectors take at the \
                 same port as http/protobuf"
            ));
        }
        let milliseconds = |found: Option<(String, String)>, otherwise: u64| match found {
            None => Ok(Duration::from_millis(otherwise)),
            Some((name, text)) => match text.parse() {
                Ok(milliseconds) => Ok(Duration::from_millis(milliseconds)),
                Err(_) => Err(format!("${name} is {text:?}: expected milliseconds")),
            },
        };
        let delay =
            variable("OTEL_BSP_SCHEDULE_DELAY").map(|text| ("OTEL_BSP_SCHEDULE_DELAY".to_owned(), text));
        let headers = of_traces("HEADERS").map_or(Ok(Vec::new()), |(name, text)| pairs(&name, &text))?;
        let resource = variable("OTEL_RESOURCE_ATTRIBUTES");
        let mut resource =
            resource.map_or(Ok(Vec::new()), |text| pairs("OTEL_RESOURCE_ATTRIBUTES", &text))?;
        if let Some(name) = variable("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        } else if resource.iter().all(|(key, _)| key != "service.name") {
            resource.push(("service.name".to_owned(), "yggc".to_owned()));
        }
        Ok(Some(Self {
            endpoint,
            headers,
            timeout: milliseconds(of_traces("TIMEOUT"), 10_000)?,
            delay: milliseconds(delay, 5_000)?,
            resource,
            sampler: sampler(variable("OTEL_TRACES_SAMPLER"), variable("OTEL_TRACES_SAMPLER_ARG"))?,
        }))
    }
}

fn sampler(name: Option<String>, argument: Option<String>) -> Result<Sampler, String> {
    let ratio = || match argument.as_deref().map(str::parse::<f64>) {
        None => Ok(1.0),
        Some(Ok(part)) if (0.0..=1.0).contains(&part) => Ok(part),
        Some(_) => {
            let found = argument.as_deref().unwrap_or_default();
            Err(format!("$OTEL_TRACES_SAMPLER_ARG is {found:?}: expected a number from 0 to 1"))
        }
    };
    let (follows_parent, part) = match name.as_deref().unwrap_or("parentbased_always_on") {
        "always_on" => (false, 1.0),
        "always_off" => (false, 0.0),
        "traceidratio" => (false, ratio()?),
        "parentbased_always_on" => (true, 1.0),
        "parentbased_always_off" => (true, 0.0),
        "parentbased_traceidratio" => (true, ratio()?),
        found => {
            return Err(format!(
                "$OTEL_TRACES_SAMPLER is {found:?}: expected always_on, always_off or traceidratio, or one of them behind parentbased_"
            ));
        }
    };
    Ok(Sampler { follows_parent, part })
}

/// `key=value,key=value`, values with `%20` and the like.
fn pairs(name: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| match pair.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => decoded(value.trim())
            .map(|value| (key.trim().to_owned(), value))
            .ok_or("text in percent-encoding"),
        _ => Err("key=value, separated by commas"),
    };
    let found = text.split(',').filter(|part| !part.trim().is_empty()).map(pair);
    // The value may be a secret.
    found
        .collect::<Result<_, _>>()
        .map_err(|expected| format!("${name} is not of its form: expected {expected}"))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        match (first, others) {
            (b'%', [high, low, behind @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = behind;
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// The thread that sends.
#[derive(Debug)]
pub(super) struct Exporting(JoinHandle<()>);

/// Begins to send spans; [`Exporting::end`] sends the last.
pub(super) fn start(settings: &SpanSettings) -> io::Result<(Spans, Exporting)> {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    let spans = Spans { sampler: settings.sampler, sender };
    let settings = settings.clone();
    let exporter = thread::Builder::new().name("yggc-spans".to_owned());
    Ok((spans, Exporting(exporter.spawn(move || export(&settings, &receiver))?)))
}

impl Exporting {
    /// Sends what is left.
    pub(super) fn end(self, spans: &Spans) {
        // It may have ended.
        let _ = spans.sender.send(Message::End);
        let _ = self.0.join();
    }
}

fn export(settings: &SpanSettings, messages: &Receiver<Message>) {
    let config = ureq::Agent::config_builder().timeout_global(Some(settings.timeout)).build();
    let agent = ureq::Agent::new_with_config(config);
    let mut failed = false;
    let mut is_over = false;
    while !is_over {
        let mut spans = Vec::new();
        // The first one begins to wait for more.
        let mut until = None;
        while spans.len() < MOST_TOGETHER {
            let left =
                until.map_or(Duration::MAX, |until: Instant| until.saturating_duration_since(Instant::now()));
            match messages.recv_timeout(left) {
                Ok(Message::Spans(more)) => {
                    spans.extend(more);
                    until.get_or_insert_with(|| Instant::now() + settings.delay);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    is_over = true;
                    break;
                }
            }
        }
        if spans.is_empty() {
            continue;
        }
        let sent = send(&agent, settings, &spans);
        if let (Err(fault), false) = (&sent, failed) {
            // Said once for every time that it begins to fail. A closed stderr is no reason to end.
            let _ = writeln!(io::stderr(), "spans are lost: {} is not reached: {fault}", settings.endpoint);
        }
        failed = sent.is_err();
    }
}

fn send(agent: &ureq::Agent, settings: &SpanSettings, spans: &[Value]) -> Result<(), ureq::Error> {
    let attributes = settings.resource.iter().map(|(key, value)| attribute(key, &json!(value)));
    let body = json!({"resourceSpans": [{
        "resource": {"attributes": attributes.collect::<Vec<_>>()},
        "scopeSpans": [{"scope": {"name": "yggc", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]});
    let request = agent.post(&settings.endpoint).header("content-type", "application/json");
    let headers = settings.headers.iter();
    let request =
        headers.fold(request, |request, (name, value)| request.header(name.as_str(), value.as_str()));
    request.send(body.to_string().as_str()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<SpanSettings>, String> {
        assert!(variables.iter().all(|(name, _)| VARIABLES.contains(name)));
        SpanSettings::read(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn nothing_is_sent_unless_a_variable_asks_for_it() {
        for none in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "a")],
            &[COLLECTOR, ("OTEL_TRACES_EXPORTER", "none")],
            &[COLLECTOR, ("OTEL_SDK_DISABLED", "TRUE")],
        ] {
            assert_eq!(read(none), Ok(None));
        }
        let found = read(&[COLLECTOR]).unwrap().unwrap();
        assert_eq!(found.endpoint, "http://collector:4318/v1/traces");
        assert_eq!(found.resource, [("service.name".to_owned(), "yggc".to_owned())]);
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://a.example/x");
        assert_eq!(read(&[COLLECTOR, own]).unwrap().unwrap().endpoint, own.1);
        let standard = read(&[("OTEL_TRACES_EXPORTER", "otlp")]).unwrap().unwrap();
        assert_eq!(standard.endpoint, "http://localhost:4318/v1/traces");
    }

    #[test]
    fn variables_mean_what_opentelemetry_says() {
        let found = read(&[
            COLLECTOR,
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=a%20b, other=c"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,deployment.environment=test"),
            ("OTEL_SERVICE_NAME", "chat"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let found = found.unwrap().unwrap();
        let text = |pairs: &[(String, String)]| {
            pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(";")
        };
        assert_eq!(text(&found.headers), "key=a b;other=c");
        assert_eq!(text(&found.resource), "deployment.environment=test;service.name=chat");
        assert_eq!((found.timeout.as_millis(), found.delay.as_millis()), (1500, 20));
        assert_eq!(found.sampler, Sampler { follows_parent: false, part: 0.25 });
        for (name, value, part) in [
            ("OTEL_TRACES_EXPORTER", "zipkin", "otlp or none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/json"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "long", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "key=value"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=%2", "percent"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318", "http://"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote", "parentbased_"),
        ] {
            let fault = read(&[COLLECTOR, (name, value)]).unwrap_err();
            assert!(fault.contains(part) && !fault.contains("secret"), "{fault}");
        }
        let part = [COLLECTOR, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(read(&part).unwrap_err().contains("from 0 to 1"));
    }

    #[test]
    fn a_sampler_follows_the_caller_or_takes_its_part() {
        let by = |name: &str, argument: Option<&str>| {
            sampler(Some(name.to_owned()), argument.map(str::to_owned)).unwrap()
        };
        for (name, without, of_recorded, of_other) in [
            ("always_on", true, true, true),
            ("always_off", false, false, false),
            ("parentbased_always_on", true, true, false),
            ("parentbased_always_off", false, true, false),
        ] {
            let sampler = by(name, None);
            let found = [None, Some(true), Some(false)].map(|parent| sampler.takes(u128::MAX, parent));
            assert_eq!(found, [without, of_recorded, of_other], "{name}");
        }
        let quarter = by("parentbased_traceidratio", Some("0.25"));
        let taken = (0..64_u128).filter(|i| quarter.takes(i << 58, None)).count();
        assert_eq!((taken, quarter.takes(u128::MAX, Some(true))), (16, true));
    }
}
