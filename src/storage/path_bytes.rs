//! Paths as bytes, in files and from C: for the system that wrote them.

use std::path::Path;

/// The bytes of a path, by which [`path_from_bytes`] finds it on the same system.
pub fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// The path of [`path_bytes`]; `None` for bytes that no path of this system has. On Windows a path that is no Unicode
/// counts as none.
#[cfg(unix)]
pub fn path_from_bytes(bytes: &[u8]) -> Option<&Path> {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    Some(Path::new(OsStr::from_bytes(bytes)))
}

/// The path of [`path_bytes`]; `None` for bytes that no path of this system has. On Windows a path that is no Unicode
/// counts as none.
#[cfg(not(unix))]
pub fn path_from_bytes(bytes: &[u8]) -> Option<&Path> {
    std::str::from_utf8(bytes).ok().map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_by_its_bytes() {
        for path in ["", "model.gguf", "/a b/Modèle 模型.gguf", "C:\\a\\b.gguf"] {
            assert_eq!(path_from_bytes(path_bytes(Path::new(path))), Some(Path::new(path)));
        }
        assert_eq!(path_from_bytes(&[0xff, b'a']).is_some(), cfg!(unix));
    }
}
