//! Progress on stderr, if that is a terminal: bars and spinners that disappear when they are done.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use yggc::measure::Progress;

use crate::cli::output;

/// A bar over `total_bytes`, for a transfer.
pub(crate) fn bytes(what: &str, total_bytes: u64) -> ProgressBar {
    bar(Some(total_bytes), what, "{msg} {wide_bar} {bytes}/{total_bytes}")
}

/// A spinner, for something of unknown length.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let spinner = bar(None, what, "{spinner} {msg}");
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// A spinner while another process is waited for; where there is no terminal, a line says so.
pub(crate) fn waiting(what: &str) -> ProgressBar {
    let spinner = spinner(what);
    if spinner.is_hidden() {
        output::remark(what);
    }
    spinner
}

/// A bar over equal parts, whose number and label are set as it advances.
pub(crate) fn parts() -> ProgressBar {
    bar(Some(1), "", "{msg} {wide_bar} {pos}/{len} {elapsed}")
}

/// Shows how far something is in its parts.
pub(crate) fn advance(bar: &ProgressBar, doing: &str, step: Progress) {
    bar.set_message(format!("{doing} {}", step.what));
    bar.set_length(step.total as u64);
    bar.set_position(step.done as u64);
}

fn bar(length: Option<u64>, what: &str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the templates of this file are well formed");
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.with_style(style).with_message(what.to_owned())
}
