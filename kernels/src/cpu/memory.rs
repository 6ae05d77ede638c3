//! Zeroed memory on a vector boundary, in huge pages where the system grants them.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ptr::NonNull,
    slice,
};

const HUGE_PAGE: usize = 2 << 20;

/// An owned, zero-initialised byte buffer aligned to 64.
pub(super) struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: plain bytes with one owner.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `len` zero bytes.
    pub(super) fn zeroed(len: usize) -> Self {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { 64 };
        let layout = Layout::from_size_align(len.max(1), align).expect("a weight fits the address space");
        // SAFETY: the layout has a positive size.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        ask_for_huge_pages(start, len);
        // SAFETY: `start` is valid for `len` bytes, just allocated.
        unsafe { start.write_bytes(0, len) };
        Self { start, len, layout }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes, initialised at construction.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes, initialised at construction, borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Advice only: the answer is ignored, the memory works either way.
fn ask_for_huge_pages(start: NonNull<u8>, len: usize) {
    #[cfg(target_os = "linux")]
    if len >= HUGE_PAGE {
        // SAFETY: the range is page aligned and inside one allocation; the advice does not change its contents.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), len & !(HUGE_PAGE - 1), libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}
