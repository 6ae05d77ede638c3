//! Following pointers of C: visibly wrong ones are refused, the rest is the caller's contract.

use std::{
    ffi::{CStr, c_char},
    mem::MaybeUninit,
    path::Path,
    ptr, slice,
};

use yggc::storage::path_from_bytes;

use super::status::Failure;

/// A struct of C that grows at its end from version to version, and begins with the size of the caller's version.
///
/// # Safety
/// It is `repr(C)` and plain data, all bits zero are a value of it, its first field is a `usize`, and its first version
/// had [`FIRST_BYTES`](Self::FIRST_BYTES), which is at least the size of that field and at most its size now.
pub(super) unsafe trait Growing: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Size of its first version.
    const FIRST_BYTES: usize;
}

/// More bytes than any version will have: a larger size is an error.
const MOST_BYTES: usize = 1 << 12;

fn is_usable<T>(given: *const T, what: &str) -> Result<(), Failure> {
    if given.is_null() {
        return Err(Failure::usage(format!("{what} is NULL: expected a pointer to one")));
    }
    if !given.is_aligned() {
        let (expected, found) = (align_of::<T>(), given.addr());
        return Err(Failure::usage(format!(
            "{what} is at address {found:#x}: expected a multiple of {expected}"
        )));
    }
    Ok(())
}

/// The size that a caller's struct states.
///
/// # Safety
/// `given` is null, or points to a `T` of some version.
unsafe fn size_of_given<T: Growing>(given: *const T) -> Result<usize, Failure> {
    let (name, least, known) = (T::NAME, T::FIRST_BYTES, size_of::<T>());
    is_usable(given, name)?;
    // SAFETY: the first field of every version, of a struct that is there and aligned.
    let size = unsafe { given.cast::<usize>().read() };
    if (least..=MOST_BYTES).contains(&size) {
        return Ok(size);
    }
    Err(Failure::usage(format!(
        "the size of {name} is {size}: expected {least} bytes or more, {known} in this version; say `.size = \
         sizeof({name})`"
    )))
}

/// The caller's struct in this version: fields that an older caller lacks are zero.
///
/// # Errors
/// Of kind usage if it is null, its size is wrong, or it uses fields that this version does not know.
///
/// # Safety
/// `given` is null, or points to a `T` of some version whose `size` bytes are all initialised.
pub(super) unsafe fn growing<T: Growing>(given: *const T) -> Result<T, Failure> {
    // SAFETY: as the caller's.
    let size = unsafe { size_of_given(given)? };
    let known = size.min(size_of::<T>());
    let mut here = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are the caller's and ours, which are apart.
    unsafe { ptr::copy_nonoverlapping(given.cast::<u8>(), here.as_mut_ptr().cast(), known) };
    // SAFETY: the bytes up to `size` are the caller's.
    let beyond = unsafe { slice::from_raw_parts(given.cast::<u8>().add(known), size - known) };
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Failure::usage(format!(
            "{} uses fields that this version of the library ({}) does not know: expected {known} bytes, found \
             {size}; leave them zero, or use a newer library",
            T::NAME,
            env!("CARGO_PKG_VERSION"),
        )));
    }
    // SAFETY: zeros are a value, and the caller's fields are values of their types.
    Ok(unsafe { here.assume_init() })
}

/// Checks a struct that is to be [filled](fill).
///
/// # Errors
/// Of kind usage as [`growing`].
///
/// # Safety
/// `given` is null, or points to a `T` of some version.
pub(super) unsafe fn fillable<T: Growing>(given: *const T) -> Result<Option<usize>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller's.
    unsafe { size_of_given(given) }.map(Some)
}

/// Fills the part of a caller's struct that this version knows, and leaves its size as it is.
///
/// # Safety
/// `given` points to `size` bytes that may be written, as [`fillable`] said.
pub(super) unsafe fn fill<T: Growing>(given: *mut T, size: usize, value: &T) {
    let first = size_of::<usize>();
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are there on both sides, which are apart; `known` is at least the first field's size.
    unsafe {
        let from = ptr::from_ref(value).cast::<u8>().add(first);
        ptr::copy_nonoverlapping(from, given.cast::<u8>().add(first), known - first);
    }
}

/// A place for a result.
///
/// # Errors
/// Of kind usage if it is null or misaligned.
///
/// # Safety
/// `given` is null, or points to a `T` that may be written until the call ends.
pub(super) unsafe fn place<'a, T>(given: *mut T, what: &str) -> Result<&'a mut MaybeUninit<T>, Failure> {
    is_usable(given, what)?;
    // SAFETY: it is there, aligned, and nobody else's meanwhile.
    Ok(unsafe { &mut *given.cast::<MaybeUninit<T>>() })
}

/// The object of a handle.
///
/// # Errors
/// Of kind usage if it is null.
///
/// # Safety
/// `given` is null, or a handle of this library that was not freed.
pub(super) unsafe fn handle<'a, T>(given: *const T, what: &str) -> Result<&'a T, Failure> {
    is_usable(given, what)?;
    // SAFETY: the library made it, and it is still there.
    Ok(unsafe { &*given })
}

/// The elements of an array.
///
/// # Errors
/// Of kind usage if it is null though it has elements, or larger than memory.
///
/// # Safety
/// `first` is null, or points to `count` values of `T` that do not change until the call ends.
pub(super) unsafe fn elements<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    is_usable(first, what)?;
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::usage(format!("{what}: {count} elements are more than any memory holds")));
    }
    // SAFETY: they are there, aligned, fit memory and stay as they are.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// A text, if there is one.
///
/// # Errors
/// Of kind input if it is not UTF-8.
///
/// # Safety
/// `given` is null, or points to a text that ends with a NUL and does not change until the call ends.
pub(super) unsafe fn text<'a>(given: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: it ends with a NUL and stays as it is.
    let text = unsafe { CStr::from_ptr(given) };
    text.to_str().map(Some).map_err(|error| {
        let at = error.valid_up_to();
        Failure::input(format!(
            "{what} is not text: expected UTF-8, found byte 0x{:02x} at offset {at}; convert it",
            text.to_bytes()[at]
        ))
    })
}

/// A path, if there is one; it may be any bytes on Unix.
///
/// # Errors
/// Of kind input if no path of this system has these bytes: those of Windows are UTF-8 here.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn path<'a>(given: *const c_char, what: &str) -> Result<Option<&'a Path>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: it ends with a NUL and stays as it is.
    let bytes = unsafe { CStr::from_ptr(given) }.to_bytes();
    path_from_bytes(bytes).map(Some).ok_or_else(|| {
        let found = bytes.escape_ascii();
        Failure::input(format!("{what} is no path: expected UTF-8, found `{found}`; convert it"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(C)]
    struct Grown {
        size: usize,
        old: u64,
        new: u64,
    }

    // SAFETY: plain data, whose first version ended before `new`.
    unsafe impl Growing for Grown {
        const NAME: &'static str = "ygg_grown";
        const FIRST_BYTES: usize = 16;
    }

    fn read(words: &[u64]) -> Result<Grown, Failure> {
        // SAFETY: the sizes that the tests give are those of the words, or refused.
        unsafe { growing(words.as_ptr().cast::<Grown>()) }
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(found: Result<T, Failure>, why: &str) {
        let failure = found.unwrap_err();
        assert_eq!(failure.status, Status::Usage);
        assert!(failure.text.contains(why), "{}", failure.text);
    }

    #[test]
    fn older_and_newer_callers_are_understood() {
        assert_eq!(read(&[24, 1, 2]).unwrap(), Grown { size: 24, old: 1, new: 2 });
        assert_eq!(read(&[16, 1, 9]).unwrap(), Grown { size: 16, old: 1, new: 0 });
        assert_eq!(read(&[32, 1, 2, 0]).unwrap(), Grown { size: 32, old: 1, new: 2 });
        refused(read(&[32, 1, 2, 1 << 56]), "does not know");
        for size in [0, 8, 15, 5000, u64::MAX] {
            refused(read(&[size, 1, 2]), "sizeof(ygg_grown)");
        }
    }

    #[test]
    fn no_more_is_filled_than_the_caller_has() {
        let value = Grown { size: 0, old: 7, new: 8 };
        for (size, expected) in [(16, [16, 7, 3, 4]), (24, [24, 7, 8, 4]), (32, [32, 7, 8, 4])] {
            let mut words = [size, 2, 3, 4_u64];
            let given = words.as_mut_ptr().cast::<Grown>();
            // SAFETY: there are as many bytes as the size says.
            unsafe {
                let size = fillable(given).unwrap().unwrap();
                fill(given, size, &value);
            }
            assert_eq!(words, expected);
        }
        // SAFETY: nothing is followed.
        assert_eq!(unsafe { fillable::<Grown>(ptr::null()) }.unwrap(), None);
    }

    #[test]
    fn pointers_that_lead_nowhere_are_refused() {
        let words = [24_u64, 1, 2, 3];
        let odd = words.as_ptr().cast::<u8>().wrapping_add(1);
        // SAFETY: none of them is followed.
        unsafe {
            refused(growing::<Grown>(ptr::null()), "ygg_grown is NULL");
            refused(growing::<Grown>(odd.cast()), "multiple of 8");
            refused(handle::<u64>(ptr::null(), "engine"), "engine is NULL");
            refused(place::<u64>(ptr::null_mut(), "engine"), "engine is NULL");
            refused(elements::<u64>(ptr::null(), 2, "tokens"), "tokens is NULL");
            refused(elements(words.as_ptr(), usize::MAX, "tokens"), "more than any memory");
            assert_eq!(elements::<u64>(ptr::null(), 0, "tokens").unwrap(), [0; 0]);
            assert_eq!(text(ptr::null(), "prompt").unwrap(), None);
            assert_eq!(path(ptr::null(), "model").unwrap(), None);
        }
    }

    #[test]
    fn texts_are_utf_8_and_paths_are_bytes() {
        // SAFETY: they end with a NUL.
        unsafe {
            assert_eq!(text(c"aé".as_ptr(), "prompt").unwrap(), Some("aé"));
            let failure = text(c"a\xff".as_ptr(), "prompt").unwrap_err();
            assert_eq!(failure.status, Status::Input);
            assert!(failure.text.contains("0xff at offset 1"), "{}", failure.text);
            let named = path(c"a\xff".as_ptr(), "model").unwrap().unwrap();
            assert_eq!(named.as_os_str().as_encoded_bytes(), b"a\xff");
        }
    }
}
