//! Streams an answer to stdout.

use yggc::engine::{Engine, Event, FinishReason, Report, Request};

use crate::cli::{error::Failure, output};

/// Answers a request and writes its text as it is generated; `heard` gets every piece as well. Returns the finish reason and the report.
pub(crate) fn stream(
    engine: &mut Engine,
    request: &Request,
    mut heard: impl FnMut(&str),
) -> Result<(FinishReason, Report), Failure> {
    let mut end = None;
    for event in engine.generate(request)? {
        let text = match event? {
            Event::Token { text, .. } => text,
            Event::Finished { reason, text, report } => {
                end = Some((reason, *report));
                text
            }
        };
        if !text.is_empty() {
            output::text(&text)?;
            heard(&text);
        }
    }
    end.ok_or_else(|| Failure::Internal("a generation ended without saying so".to_owned()))
}
