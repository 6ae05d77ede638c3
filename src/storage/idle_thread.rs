//! A thread for work that nobody waits for.

use std::{io, thread};

/// Starts a thread that runs where a processor has nothing else to do. It is not waited for: it ends with the process.
///
/// # Errors
/// If the system refuses a thread.
pub fn when_idle(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("idle".to_owned()).spawn(move || {
        yield_to_all();
        work();
    })?;
    Ok(())
}

/// Gives the calling thread the policy of idle work. Where it is refused, the thread goes on as it is.
#[cfg(target_os = "linux")]
fn yield_to_all() {
    // SAFETY: all bytes zero are a valid `sched_param`; the call reads it and concerns this thread alone.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters);
    }
}

/// Gives the calling thread the lowest priority. Where it is refused, the thread goes on as it is.
#[cfg(windows)]
fn yield_to_all() {
    use windows_sys::Win32::System::Threading::{GetCurrentThread, SetThreadPriority, THREAD_PRIORITY_IDLE};

    // SAFETY: the handle stands for the calling thread, and is not to be closed.
    unsafe { SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_IDLE) };
}

#[cfg(not(any(target_os = "linux", windows)))]
fn yield_to_all() {}
