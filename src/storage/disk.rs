//! How much room a disk has left.

use std::path::Path;

/// Bytes that this user may still write to the file system of a folder; `None` where the system does not say.
#[cfg(target_os = "linux")]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    use std::{ffi::CString, mem::MaybeUninit, os::unix::ffi::OsStrExt};

    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero byte, and the system fills the structure if it returns 0.
    let found =
        unsafe { (libc::statvfs(path.as_ptr(), found.as_mut_ptr()) == 0).then(|| found.assume_init()) }?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Bytes that this user may still write to the file system of a folder; `None` where the system does not say.
#[cfg(windows)]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    use std::{os::windows::ffi::OsStrExt, ptr};

    use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;

    let path: Vec<u16> = folder.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: the path ends with a zero; the number is written to ours, and the others are not asked for.
    let is_known =
        unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &raw mut free, ptr::null_mut(), ptr::null_mut()) } != 0;
    is_known.then_some(free)
}

/// Bytes that this user may still write to the file system of a folder; `None` where the system does not say.
#[cfg(not(any(target_os = "linux", windows)))]
pub fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_room_and_a_missing_one_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let says = cfg!(any(target_os = "linux", windows));
        assert_eq!(free_bytes(folder.path()).is_some_and(|bytes| bytes > 0), says);
        assert_eq!(free_bytes(&folder.path().join("missing")), None);
    }
}
