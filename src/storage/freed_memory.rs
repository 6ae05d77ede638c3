//! Memory that was freed, on its way back to the system.

/// Gives freed memory back to the system. Allocators keep what a thread freed for that thread's next work, and threads
/// that come and go leave some in every corner: a service would grow with what its largest requests took.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_freed() {
    // SAFETY: it changes nothing that is allocated, and may be called on any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Gives freed memory back to the system, where its allocator can be asked to.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_freed() {}
