//! Requests from C: tokens go to a callback, numbers to a report.

use std::ffi::{c_char, c_void};

use yggc::engine::{self, Event};

use super::{
    engine::{Answering, EngineHandle},
    pointers,
    report::RequestReport,
    request::{GenerateRequest, request},
    status::{Failure, Status, guarded},
};

/// Token id of the callback's last call, if that has only text that was held back for an incomplete character or stop
/// string.
pub const NO_TOKEN: u32 = u32::MAX;

/// A token of an answer and the text that became final with it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Token {
    /// Its id, or `YGG_NO_TOKEN`.
    pub id: u32,
    /// Unused, 0.
    pub reserved: u32,
    /// Complete UTF-8 characters, often none, followed by a NUL. Valid until the callback returns.
    pub text: *const c_char,
    /// Bytes of the text.
    pub text_bytes: usize,
}

/// Called for every token, on the thread that called `ygg_generate()`, with its `user_data`. 0 continues; any other
/// value ends the request, and the callback is not called again. It must not throw or `longjmp`; calls for the same
/// engine are refused.
pub type OnToken = Option<unsafe extern "C" fn(token: *const Token, user_data: *mut c_void) -> i32>;

/// Answers a request and returns when the answer has ended. A cancelled request returns `YGG_STATUS_OK`, too.
/// `on_token` and `report` may be `NULL`; the report is filled only if the call succeeds.
///
/// An engine answers one request at a time: meanwhile other calls for it, from any thread, are refused with
/// `YGG_STATUS_USAGE`. Successive requests may come from different threads.
///
/// # Safety
/// `engine` was not closed. `request` points to a `ygg_request` whose arrays have as many elements as it says, whose
/// texts end with a NUL, and whose cancel handle is `NULL` or not freed while the call begins. `report` is `NULL` or
/// points to a `ygg_report` with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ygg_generate(
    engine: *mut EngineHandle,
    request: *const GenerateRequest,
    on_token: OnToken,
    user_data: *mut c_void,
    report: *mut RequestReport,
) -> Status {
    guarded(|| {
        // SAFETY: as the caller's.
        let handle = unsafe { pointers::handle(engine, "engine")? };
        // SAFETY: as the caller's.
        let report_bytes = unsafe { pointers::fillable(report)? };
        // SAFETY: as the caller's.
        let request = unsafe { self::request(request)? };
        let mut answering = handle.lock()?;
        let tell = |token: &Token| match on_token {
            // SAFETY: the callback keeps to its contract, and the token is here until it returns.
            Some(on_token) => unsafe { on_token(token, user_data) == 0 },
            None => true,
        };
        let report_of_answer = answer(&mut answering, &request, tell)?;
        if let Some(bytes) = report_bytes {
            // SAFETY: the caller's struct has so many bytes.
            unsafe { pointers::fill(report, bytes, &report_of_answer) };
        }
        Ok(())
    })
}

/// Answers the request, calling `tell` with every token until it returns `false`.
fn answer(
    answering: &mut Answering,
    request: &engine::Request,
    mut tell: impl FnMut(&Token) -> bool,
) -> Result<RequestReport, Failure> {
    let Answering { engine, texts, piece } = answering;
    let mut generation = engine.generate(request)?;
    let prompt_tokens = generation.prompt_token_ids().len();
    let mut say = |id: u32, text: &str| {
        piece.clear();
        piece.extend_from_slice(text.as_bytes());
        piece.push(0);
        let text_bytes = text.len();
        tell(&Token { id, reserved: 0, text: piece.as_ptr().cast(), text_bytes })
    };
    while let Some(event) = generation.next() {
        match event? {
            Event::Token { id, text, log_probs: _ } => {
                if !say(id, &text) {
                    let (reason, report) = (engine::FinishReason::Cancelled, generation.report());
                    return Ok(RequestReport::new(reason, prompt_tokens, &report, texts));
                }
            }
            Event::Finished { reason, text, report } => {
                let goes_on = text.is_empty() || say(NO_TOKEN, &text);
                let reason = if goes_on { reason } else { engine::FinishReason::Cancelled };
                return Ok(RequestReport::new(reason, prompt_tokens, &report, texts));
            }
        }
    }
    Err(Failure::fault("a generation ended without saying so"))
}
