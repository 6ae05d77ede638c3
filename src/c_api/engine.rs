//! Handles of engines: opened, locked while they answer, closed.

use std::{
    ptr,
    sync::{Mutex, MutexGuard, TryLockError},
};

use yggc::{
    engine::{Engine, Error},
    model::Model,
};

use super::{
    options::{OpenOptions, options},
    pointers,
    report::ReportTexts,
    status::{Failure, Status, guarded},
};

/// A model with its plan, ready for one request at a time.
#[derive(Debug)]
pub struct EngineHandle(Mutex<Answering>);

/// The engine and the buffers of its requests.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) engine: Engine,
    pub(super) texts: ReportTexts,
    /// The text of a token, followed by a NUL.
    pub(super) piece: Vec<u8>,
}

impl EngineHandle {
    /// The engine, unless it is answering another request or a request panicked.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Answering>, Failure> {
        self.0.try_lock().map_err(|refused| match refused {
            TryLockError::WouldBlock => Failure::usage(
                "the engine is answering: expected one request at a time, found another call; wait until \
                 ygg_generate() returns, or open another engine",
            ),
            TryLockError::Poisoned(_) => Failure::fault("an earlier request of this engine ended in one"),
        })
    }
}

/// Opens a model: reads it, checks that the plan fits this machine, and allocates everything that requests will need,
/// which takes seconds for large models. `*engine` is then a handle, to be closed with `ygg_engine_close()`; if the
/// call fails it is `NULL`.
///
/// A process may have several engines, each with its own request.
///
/// # Safety
/// `options` points to a `ygg_options` whose texts are `NULL` or end with a NUL, and `engine` to a place for the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ygg_engine_open(
    options: *const OpenOptions,
    engine: *mut *mut EngineHandle,
) -> Status {
    guarded(|| {
        // SAFETY: as the caller's.
        let place = unsafe { pointers::place(engine, "engine")? };
        place.write(ptr::null_mut());
        // SAFETY: as the caller's.
        let (options, kept) = unsafe { self::options(options)? };
        let mut model = Model::open(&options.model).map_err(Error::from)?;
        if let Some(place) = kept {
            // A note of what became of them has no reader here.
            model = model.kept_in(place, |_| {}).map_err(Error::from)?;
        }
        let opened = Engine::with_model(model, &options)?;
        let answering = Answering { engine: opened, texts: ReportTexts::default(), piece: Vec::new() };
        place.write(Box::into_raw(Box::new(EngineHandle(Mutex::new(answering)))));
        Ok(())
    })
}

/// Closes an engine and frees everything it holds. With `NULL` nothing happens. An engine that is answering is not
/// closed (`YGG_STATUS_USAGE`): cancel its request first, and wait until `ygg_generate()` returns.
///
/// # Safety
/// `engine` was not closed, and no other call for it begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ygg_engine_close(engine: *mut EngineHandle) -> Status {
    guarded(|| {
        if engine.is_null() {
            return Ok(());
        }
        // SAFETY: as the caller's.
        let handle = unsafe { pointers::handle(engine, "engine")? };
        if matches!(handle.0.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Failure::usage(
                "the engine is answering: expected an idle one to close; cancel its request and wait until \
                 ygg_generate() returns",
            ));
        }
        // SAFETY: it comes from `ygg_engine_open`, is idle, and the caller begins no other call for it.
        drop(unsafe { Box::from_raw(engine) });
        Ok(())
    })
}
