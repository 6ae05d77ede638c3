//! Reports of finished requests.

use std::ffi::{CString, c_char};

use yggc::engine::{self, Report};

use super::pointers::Growing;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum FinishReason {
    /// The model ended it.
    Stop = 0,
    /// A stop string ended it.
    StopString = 1,
    /// The token limit or the context ended it.
    Length = 2,
    /// A cancel handle or the callback ended it.
    Cancelled = 3,
}

/// The numbers of a request: `ygg_report report = {.size = sizeof report};`. Times are 0 if nothing was measured or
/// predicted. The texts belong to the engine and are valid until its next request or until it is closed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RequestReport {
    /// `sizeof(ygg_report)`, set by the caller.
    pub size: usize,
    /// Why the answer ended.
    pub finish_reason: FinishReason,
    /// Which of the request's stop strings ended it, counted from 0; 0 if none did.
    pub stop_index: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Those of them whose keys and values were reused from the previous request.
    pub reused_tokens: u64,
    /// Tokens of the answer, the one that ended it included.
    pub tokens: u64,
    /// Draft-verify-commit rounds.
    pub steps: u64,
    /// Drafted tokens verified.
    pub drafted: u64,
    /// Drafted tokens accepted.
    pub accepted: u64,
    /// Milliseconds to the first token.
    pub ttft_ms: f64,
    /// Milliseconds per token after the first.
    pub tpot_ms: f64,
    /// The plan's prediction of `tpot_ms`.
    pub predicted_tpot_ms: f64,
    /// Name of the drafter, `none` for plain decoding.
    pub drafter: *const c_char,
    /// Why nothing was drafted, or not at every step; `NULL` if the request decoded as planned.
    pub spec_off_reason: *const c_char,
}

// SAFETY: plain data of C that begins with its size; zeros are values, of the reason the first one.
unsafe impl Growing for RequestReport {
    const NAME: &'static str = "ygg_report";
    const FIRST_BYTES: usize = 104;
}

const _: () = assert!(RequestReport::FIRST_BYTES <= size_of::<RequestReport>());

/// Texts of the last report, which it points to.
#[derive(Debug, Default)]
pub(super) struct ReportTexts {
    drafter: CString,
    spec_off_reason: Option<CString>,
}

impl RequestReport {
    /// The report of a request that ended for `reason`, with texts that live in `texts`.
    pub(super) fn new(
        reason: engine::FinishReason,
        prompt_tokens: usize,
        report: &Report,
        texts: &mut ReportTexts,
    ) -> Self {
        let text = |text: &str| CString::new(text.replace('\0', "\u{fffd}")).expect("every NUL was replaced");
        *texts = ReportTexts {
            drafter: text(&report.drafter),
            spec_off_reason: report.spec_off_reason.as_deref().map(text),
        };
        let (finish_reason, stop_index) = match reason {
            engine::FinishReason::Stop => (FinishReason::Stop, 0),
            engine::FinishReason::StopString { index } => (FinishReason::StopString, index),
            engine::FinishReason::Length => (FinishReason::Length, 0),
            engine::FinishReason::Cancelled => (FinishReason::Cancelled, 0),
        };
        Self {
            size: size_of::<Self>(),
            finish_reason,
            stop_index: u32::try_from(stop_index).unwrap_or(u32::MAX),
            prompt_tokens: prompt_tokens as u64,
            reused_tokens: report.reused_tokens as u64,
            tokens: report.tokens as u64,
            steps: report.steps,
            drafted: report.drafted,
            accepted: report.accepted,
            ttft_ms: report.ttft_ms,
            tpot_ms: report.tpot_ms.unwrap_or_default(),
            predicted_tpot_ms: report.predicted_tpot_ms.unwrap_or_default(),
            drafter: texts.drafter.as_ptr(),
            spec_off_reason: texts.spec_off_reason.as_deref().map_or(std::ptr::null(), |text| text.as_ptr()),
        }
    }
}
