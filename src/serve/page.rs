//! The page at `/`: a chat that shows what speculation did. One file, which asks nobody but this service.

use std::hash::{BuildHasher, RandomState};

use axum::{
    http::{HeaderMap, HeaderName, header},
    response::{Html, IntoResponse, Response},
};

/// The page; `NONCE` stands for the number that lets its script and style run.
const PAGE: &str = include_str!("page.html");

/// Whether who asks is a browser that would show a page.
pub(super) fn is_asked(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// The page, with a policy by which it runs and loads nothing but itself.
pub(super) fn response() -> Response {
    let random = || RandomState::new().hash_one(0_u8);
    let nonce = format!("{:016x}{:016x}", random(), random());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_SECURITY_POLICY, &policy),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::VARY, "accept"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Html(PAGE.replace("NONCE", &nonce))).into_response()
}
