//! Reading and writing at a place of a file, whatever others do with it: no cursor is shared.

use std::{fs::File, io};

/// Reads bytes from `offset` on, at least one unless the file ends there; how many.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, to, offset)
}

/// Reads bytes from `offset` on, at least one unless the file ends there; how many.
///
/// # Errors
/// What the system says.
#[cfg(windows)]
pub fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, to, offset)
}

#[cfg(unix)]
fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, from, offset)
}

#[cfg(windows)]
fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, from, offset)
}

/// Fills `to` from `offset` on.
///
/// # Errors
/// What the system says, and [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the file ends before.
pub fn read_exact_at(file: &File, mut to: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !to.is_empty() {
        match read_at(file, to, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                to = &mut to[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `from` from `offset` on.
///
/// # Errors
/// What the system says.
pub fn write_all_at(file: &File, mut from: &[u8], mut offset: u64) -> io::Result<()> {
    while !from.is_empty() {
        match write_at(file, from, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                from = &from[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_a_place_is_read_there_and_an_end_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        write_all_at(&file, b"world", 6).unwrap();
        write_all_at(&file, b"hello ", 0).unwrap();
        let mut found = [0; 11];
        read_exact_at(&file, &mut found, 0).unwrap();
        assert_eq!(&found, b"hello world");
        let past = read_exact_at(&file, &mut found, 1).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }
}
