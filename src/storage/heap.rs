//! The heap of the C library.

/// Has all threads allocate from one heap, so that what one thread freed serves the others. glibc gives threads heaps
/// of their own, which hold what was freed in them: in a service whose threads come and go with large grammars, memory
/// grew by that. For programs whose hot loops allocate nothing: threads wait for one another at the one heap. To be
/// called before there are other threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn share_heap() {
    // SAFETY: it sets a number that later allocations read, and no other thread allocates yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Has all threads allocate from one heap, where the C library knows others.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn share_heap() {}
