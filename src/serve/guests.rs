//! Who may use the service from a browser: pages of allowed origins, and of this machine.
//!
//! A page of any site can send requests to a service on its reader's own machine, by name as well once the name's
//! address was changed to 127.0.0.1 (DNS rebinding). So a service that listens on a loopback address checks both
//! headers by which browsers say who asks.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tower_http::cors::{Any, CorsLayer};

use super::{answers::Refused, routes::Service, settings::Settings};

/// Lets pages of the allowed origins read answers.
pub(super) fn cors(settings: &Settings) -> CorsLayer {
    if settings.origins.is_empty() {
        return CorsLayer::new();
    }
    let cors = CorsLayer::new().allow_methods(Any).allow_headers(Any);
    if settings.origins.iter().any(|origin| origin == "*") {
        return cors.allow_origin(Any);
    }
    let origins = settings.origins.iter().filter_map(|origin| origin.parse::<HeaderValue>().ok());
    cors.allow_origin(origins.collect::<Vec<_>>())
}

/// Refuses, on a loopback address, what a page of another site sends.
pub(super) async fn check(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    match refusal(&service.settings, request.uri(), request.headers()) {
        Some(refused) => {
            let what = format!("{refused}; the operator can allow a site with --cors-origin");
            Refused::new(StatusCode::FORBIDDEN, what).into_response()
        }
        None => next.run(request).await,
    }
}

/// Every host and every origin that a request names must be allowed: a second header is no way around the first.
fn refusal(settings: &Settings, uri: &Uri, headers: &HeaderMap) -> Option<String> {
    if !is_here_alone(settings.address.ip()) {
        return None;
    }
    let all = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    let mut hosts = all(header::HOST).chain(uri.authority().map(Authority::as_str));
    if let Some(host) = hosts.find(|host| !is_host_allowed(host, &settings.origins)) {
        return Some(format!(
            "the host {host:?} is not this machine: expected localhost or a loopback address"
        ));
    }
    let origin = all(header::ORIGIN).find(|origin| !is_origin_allowed(origin, &settings.origins))?;
    Some(format!("pages of {origin:?} may not use this service: expected a page of this machine"))
}

/// Whether only this machine reaches an address.
pub(crate) fn is_here_alone(address: IpAddr) -> bool {
    // An IPv4 address may be written as one of IPv6.
    address.to_canonical().is_loopback()
}

fn is_host_allowed(host: &str, origins: &[String]) -> bool {
    let host = host.to_ascii_lowercase();
    let names_it =
        |origin: &String| origin == "*" || origin.split_once("://").is_some_and(|(_, of)| of == host);
    is_loopback(&host) || origins.iter().any(names_it)
}

fn is_origin_allowed(origin: &str, origins: &[String]) -> bool {
    let origin = origin.to_ascii_lowercase();
    let is_here = origin.split_once("://").is_some_and(|(_, host)| is_loopback(host));
    is_here || origins.iter().any(|allowed| *allowed == "*" || *allowed == origin)
}

/// Whether a host, with or without a port, is a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse().is_ok_and(is_here_alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_allowed_sites_pass() {
        let origins = ["https://example.org".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:80",
            "example.org",
        ] {
            assert!(is_host_allowed(host, &origins), "{host}");
        }
        for host in ["", "evil.org", "localhost.evil.org", "127.0.0.1.evil.org:80", "0.0.0.0", "[::2]"] {
            assert!(!is_host_allowed(host, &origins), "{host}");
            assert!(is_host_allowed(host, &["*".to_owned()]), "{host}");
        }
        for origin in ["http://localhost:3000", "http://127.0.0.1", "https://EXAMPLE.org"] {
            assert!(is_origin_allowed(origin, &origins), "{origin}");
        }
        for origin in ["null", "http://example.org", "https://evil.org", "http://localhost.evil.org"] {
            assert!(!is_origin_allowed(origin, &origins), "{origin}");
        }
    }
}
