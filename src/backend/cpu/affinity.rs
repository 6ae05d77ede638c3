//! Which processors the workers are bound to.

/// Processors for `workers` threads: allowed ones other than the one the caller runs on. `None` where the system does
/// not say or has too few.
#[cfg(target_os = "linux")]
pub(crate) fn places_beside_caller(workers: usize) -> Option<Vec<usize>> {
    // SAFETY: an all-zero `cpu_set_t` is a valid empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and its size is passed with it.
    let refused = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed) };
    // SAFETY: no preconditions.
    let here = unsafe { libc::sched_getcpu() };
    if refused != 0 || here < 0 {
        return None;
    }
    let limit = usize::try_from(libc::CPU_SETSIZE).ok()?;
    let places: Vec<usize> = (0..limit)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) } && Ok(*cpu) != usize::try_from(here))
        .take(workers)
        .collect();
    (places.len() == workers).then_some(places)
}

/// Binds the calling thread to one processor. A refusal is no error: the thread then floats.
#[cfg(target_os = "linux")]
pub(crate) fn pin_to(cpu: usize) {
    // SAFETY: an all-zero `cpu_set_t` is a valid empty set; the index came from the allowed set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below CPU_SETSIZE, the set is ours.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is ours and its size is passed with it.
    let _refused = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Elsewhere threads float.
#[cfg(not(target_os = "linux"))]
pub(crate) fn places_beside_caller(_workers: usize) -> Option<Vec<usize>> {
    None
}

/// Elsewhere threads float.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin_to(_cpu: usize) {}
