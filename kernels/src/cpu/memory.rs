//! Memory on vector boundaries, in huge pages where the system grants them; and that of packed weights, resident or
//! staged.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    mem::MaybeUninit,
    ops::Range,
    panic::RefUnwindSafe,
    ptr::NonNull,
    slice,
    sync::Arc,
};

/// A huge page of x86-64. Fewer pages mean fewer TLB misses while weights are read.
const HUGE_PAGE: usize = 2 << 20;
/// Packed matrices begin at multiples of this: a line of a cache, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// Memory of at least `bytes` bytes, not initialised, aligned to 64, in huge pages where the system grants them; `None`
/// if it refuses. To be freed with the layout returned.
pub fn allocate(bytes: usize) -> Option<(NonNull<u8>, Layout)> {
    // The system makes a huge page only of an aligned part.
    let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { ALIGNMENT };
    let layout = Layout::from_size_align(bytes.max(ALIGNMENT), align).ok()?;
    // SAFETY: the layout has a positive size.
    let start = NonNull::new(unsafe { alloc(layout) })?;
    ask_for_huge_pages(start, layout.size());
    Some((start, layout))
}

/// One allocation.
struct Region {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it only owns the memory; whoever reads or writes it holds a `Reserved`, an `AlignedBytes` or the promise of
// an unsafe function.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `Reserved::together` or `Staging::new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Memory for one packed matrix, not yet written.
pub struct Reserved {
    start: NonNull<u8>,
    len: usize,
    region: Arc<Region>,
}

// SAFETY: plain bytes with one owner.
unsafe impl Send for Reserved {}

impl Reserved {
    /// Places of the given lengths in bytes, one after the other in a single allocation: matrices smaller than a huge
    /// page share one. The allocation lives as long as any of them.
    pub fn together(lens: &[usize]) -> Vec<Self> {
        let places = lens.iter().map(|len| len.next_multiple_of(ALIGNMENT));
        let total = places.clone().sum();
        let Some((start, layout)) = allocate(total) else {
            handle_alloc_error(Layout::from_size_align(total, ALIGNMENT).unwrap_or(Layout::new::<u8>()))
        };
        let region = Arc::new(Region { start, layout });
        let mut at = 0;
        let place = |(&len, place): (&usize, usize)| {
            // SAFETY: inside the allocation, as places add up to `total`.
            let start = unsafe { start.add(at) };
            at += place;
            Self { start, len, region: Arc::clone(&region) }
        };
        lens.iter().zip(places).map(place).collect()
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes, to be written.
    pub(super) fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `len` bytes of the region, which no other place overlaps, borrowed mutably; they need not be
        // initialised.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len) }
    }

    /// The bytes, written.
    ///
    /// # Safety
    /// All of them were written.
    pub(super) unsafe fn written(self) -> AlignedBytes {
        AlignedBytes(self)
    }
}

impl std::fmt::Debug for Reserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reserved({} of {} bytes)", self.len, self.region.layout.size())
    }
}

/// An owned, initialised byte buffer aligned to 64.
pub(super) struct AlignedBytes(Reserved);

// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes, initialised by the promise of `Reserved::written`.
        unsafe { slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }
}

/// Memory into which packed matrices are read again and again, aligned to pages.
pub struct Staging {
    region: Region,
    len: usize,
}

impl Staging {
    /// Zeroed memory of `len` bytes; `None` if the system refuses.
    pub fn new(len: usize) -> Option<Self> {
        // From this size on, allocations are aligned to huge pages.
        let (start, layout) = allocate(len.max(HUGE_PAGE))?;
        // SAFETY: just allocated, with as many bytes.
        unsafe { start.write_bytes(0, layout.size()) };
        Some(Self { region: Region { start, layout }, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn start(&self, at: &Range<usize>) -> *mut u8 {
        assert!(at.start <= at.end && at.end <= self.len, "bytes {at:?} of {}", self.len);
        // SAFETY: inside the allocation by the assertion.
        unsafe { self.region.start.as_ptr().add(at.start) }
    }

    /// Some of the bytes, to be written.
    ///
    /// # Safety
    /// Nobody else uses these bytes while the slice lives.
    ///
    /// # Panics
    /// If there are no such bytes.
    #[expect(clippy::mut_from_ref, reason = "the caller promises to be the only user of these bytes")]
    pub unsafe fn part(&self, at: Range<usize>) -> &mut [u8] {
        // SAFETY: inside the allocation, initialised, and the caller's alone by its promise.
        unsafe { slice::from_raw_parts_mut(self.start(&at), at.len()) }
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} bytes)", self.len)
    }
}

/// Bytes of somebody else, lent as long as it lives.
pub type LentBytes = Arc<dyn AsRef<[u8]> + Send + Sync + RefUnwindSafe>;

/// Where a packed matrix lies.
pub(super) enum Storage {
    Own(AlignedBytes),
    Lent {
        bytes: LentBytes,
        at: Range<usize>,
    },
    /// Whoever made it promised that nobody writes these bytes while they are read.
    Staged {
        staging: Arc<Staging>,
        at: Range<usize>,
    },
}

impl Storage {
    /// Aligned to 64.
    ///
    /// # Panics
    /// If lent bytes have moved off the alignment, or there are fewer than there were.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes.as_slice(),
            Self::Lent { bytes, at } => {
                let bytes = &(**bytes).as_ref()[at.clone()];
                assert!(bytes.as_ptr().addr().is_multiple_of(ALIGNMENT), "lent bytes are aligned");
                bytes
            }
            // SAFETY: inside the allocation, initialised; not written meanwhile by the promise of `Packing::staged`.
            Self::Staged { staging, at } => unsafe { slice::from_raw_parts(staging.start(at), at.len()) },
        }
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
