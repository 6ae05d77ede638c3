//! Handles that cancel requests from another thread.

use std::ptr;

use yggc::engine::CancelHandle;

use super::{
    pointers,
    status::{Status, guarded},
};

/// Cancels the requests that have it. Any thread may use it, before or while a request runs.
#[derive(Debug)]
pub struct Cancel(CancelHandle);

impl Cancel {
    pub(super) fn handle(&self) -> CancelHandle {
        self.0.clone()
    }
}

/// A new handle, to be freed with `ygg_cancel_free()`; `NULL` only after a bug of the library.
#[unsafe(no_mangle)]
pub extern "C" fn ygg_cancel_new() -> *mut Cancel {
    let mut made = ptr::null_mut();
    guarded(|| {
        made = Box::into_raw(Box::new(Cancel(CancelHandle::new())));
        Ok(())
    });
    made
}

/// Cancels the requests that have this handle, permanently: a running one ends within one step, with
/// `YGG_FINISH_REASON_CANCELLED` and the tokens so far; later ones end at once. Never waits, and may be called by any
/// thread and by a signal handler.
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

/// Frees a handle. A request that has it continues and can no longer be cancelled. With `NULL` nothing happens.
///
/// # Safety
/// `cancel` was not freed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ygg_cancel_free(cancel: *mut Cancel) {
    if !cancel.is_null() {
        // SAFETY: it comes from `ygg_cancel_new`, and no other thread uses it.
        drop(unsafe { Box::from_raw(cancel) });
    }
}
