//! Runs a request and hands on its text as it is generated.

use yggc::engine::{Engine, Event, FinishReason, Report, Request};

use crate::cli::error::Failure;

/// Answers a request; `write` gets its text piece by piece. Returns the finish reason and the report.
pub(crate) fn stream(
    engine: &mut Engine,
    request: &Request,
    mut write: impl FnMut(&str) -> Result<(), Failure>,
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
            write(&text)?;
        }
    }
    end.ok_or_else(|| Failure::Internal("a generation ended without saying so".to_owned()))
}
