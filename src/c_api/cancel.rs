//! Ending a request from another thread, for C.

use std::ptr;

use yggc::engine::CancelHandle;

use super::{
    pointers,
    status::{Status, guarded},
};

/// Ends the requests that it is given to. Any thread may use it, while a request runs or before it begins.
#[derive(Debug)]
pub struct Cancel(CancelHandle);

impl Cancel {
    pub(super) fn handle(&self) -> CancelHandle {
        self.0.clone()
    }
}

/// A handle that cancels nothing yet, to be given back with `ygg_cancel_free()`; `NULL` only after a fault of the library.
#[unsafe(no_mangle)]
pub extern "C" fn ygg_cancel_new() -> *mut Cancel {
    let mut made = ptr::null_mut();
    guarded(|| {
        made = Box::into_raw(Box::new(Cancel(CancelHandle::new())));
        Ok(())
    });
    made
}

/// Ends the requests that have this handle, for good: a running one within one step, with `YGG_FINISH_REASON_CANCELLED` and the tokens
/// that it had, and those that begin later at once. Costs a store, never waits, and may be called by any thread and by a signal handler.
///
/// # Safety
/// `cancel` was not freed, and is not freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ygg_cancel_now(cancel: *const Cancel) -> Status {
    guarded(|| {
        // SAFETY: as the caller's.
        unsafe { pointers::handle(cancel, "cancel")? }.0.cancel();
        Ok(())
    })
}

/// Gives a handle back. A request that has it goes on, and can then not be cancelled; `NULL` is no handle, and nothing happens.
///
/// # Safety
/// `cancel` was not freed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ygg_cancel_free(cancel: *mut Cancel) {
    if !cancel.is_null() {
        // SAFETY: it is of `ygg_cancel_new`, and nobody else has it.
        drop(unsafe { Box::from_raw(cancel) });
    }
}
