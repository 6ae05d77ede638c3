//! Progress on stderr: bars and spinners that disappear when they are done.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether progress is drawn. Drawing goes to stderr and only when that is a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    OnStderr,
    #[cfg(test)]
    Hidden,
}

impl Progress {
    /// A bar over `total_bytes`, for a transfer.
    pub(crate) fn bytes(self, what: &str, total_bytes: u64) -> ProgressBar {
        self.bar(Some(total_bytes), what, "{msg} {wide_bar} {bytes}/{total_bytes}")
    }

    /// A spinner, for something of unknown length.
    pub(crate) fn spinner(self, what: &str) -> ProgressBar {
        let spinner = self.bar(None, what, "{spinner} {msg}");
        spinner.enable_steady_tick(Duration::from_millis(100));
        spinner
    }

    /// A bar over equal parts, whose number and label are set as it advances.
    pub(crate) fn parts(self) -> ProgressBar {
        self.bar(Some(1), "", "{msg} {wide_bar} {pos}/{len} {elapsed}")
    }

    fn bar(self, length: Option<u64>, what: &str, template: &str) -> ProgressBar {
        let target = match self {
            Self::OnStderr => ProgressDrawTarget::stderr(),
            #[cfg(test)]
            Self::Hidden => ProgressDrawTarget::hidden(),
        };
        let style =
            ProgressStyle::with_template(template).expect("the templates of this file are well formed");
        ProgressBar::with_draw_target(length, target).with_style(style).with_message(what.to_owned())
    }
}
