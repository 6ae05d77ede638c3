//! Writes a GGUF file, tensor by tensor, so that a model may be larger than memory.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

use ygg_kernels::WeightFormat;

use super::{DATA_ALIGNMENT, TensorRecord, Value, encode_header};
use crate::{
    model::{ModelError, tensor_bytes},
    storage::{free_bytes, rename_over},
};

/// A tensor to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) struct NewTensor {
    pub(in crate::model) name: String,
    /// Dimensions, outermost first.
    pub(in crate::model) shape: Vec<usize>,
    pub(in crate::model) format: WeightFormat,
}

/// Writes a file of version 3 under another name first, so that `path` is whole or as it was. `data` writes the bytes
/// of the tensor of a number.
///
/// # Errors
/// [`ModelError::Invalid`] for a tensor of no whole blocks, [`ModelError::Write`] if the disk has no room for the file
/// or it cannot be written.
///
/// # Panics
/// If `data` writes more or fewer bytes than a tensor has.
pub(in crate::model) fn write_file(
    path: &Path,
    metadata: &BTreeMap<String, Value>,
    tensors: &[NewTensor],
    mut data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
) -> Result<(), ModelError> {
    let Layout { header, records, end } = layout(metadata, tensors)?;
    let failed = |source| ModelError::Write { path: path.to_owned(), source };
    check_room(path, header.len() as u64 + end).map_err(failed)?;
    let unfinished = path.with_extension("gguf.part");
    let mut write = || {
        let mut out = BufWriter::new(File::create(&unfinished)?);
        out.write_all(&header)?;
        pad(&mut out, header.len() as u64)?;
        for (number, (record, len)) in records.iter().enumerate() {
            let mut counted = Counted { out: &mut out, written: 0 };
            data(number, &mut counted)?;
            assert_eq!(counted.written, *len, "bytes of tensor `{}`", record.name);
            pad(&mut out, *len)?;
        }
        out.into_inner()?.sync_all()?;
        rename_over(&unfinished, path)
    };
    write().map_err(|source| {
        // It may never have been made; the error that counts is the first.
        let _ = fs::remove_file(&unfinished);
        failed(source)
    })
}

/// Writes a file of version 3 with a hole in place of the data, which reads as zeros and takes no room where the file
/// system has holes.
///
/// # Errors
/// As [`write_file`].
pub(in crate::model) fn write_outline(
    path: &Path,
    metadata: &BTreeMap<String, Value>,
    tensors: &[NewTensor],
) -> Result<(), ModelError> {
    let Layout { header, end, records: _ } = layout(metadata, tensors)?;
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(&header)?;
        file.set_len((header.len() as u64).next_multiple_of(DATA_ALIGNMENT) + end)
    };
    write().map_err(|source| ModelError::Write { path: path.to_owned(), source })
}

/// Where everything of a file lies.
struct Layout {
    header: Vec<u8>,
    /// With their bytes.
    records: Vec<(TensorRecord, u64)>,
    /// Bytes of all data, padding included.
    end: u64,
}

fn layout(metadata: &BTreeMap<String, Value>, tensors: &[NewTensor]) -> Result<Layout, ModelError> {
    let mut records = Vec::with_capacity(tensors.len());
    let mut end = 0_u64;
    for NewTensor { name, shape, format } in tensors {
        let len = tensor_bytes(name, shape, *format)? as u64;
        let (name, shape) = (name.clone(), shape.clone());
        records.push((TensorRecord { name, shape, format: *format, offset: end }, len));
        end = (end + len).next_multiple_of(DATA_ALIGNMENT);
    }
    let table: Vec<TensorRecord> = records.iter().map(|(record, _)| record.clone()).collect();
    Ok(Layout { header: encode_header(3, metadata, &table), records, end })
}

/// Refuses a file that is larger than what is free where it would lie.
fn check_room(path: &Path, bytes: u64) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match free_bytes(folder).filter(|free| *free < bytes) {
        Some(free) => {
            let said = format!(
                "it takes {bytes} bytes, and the disk has {free} free; make room or name a file on another disk"
            );
            Err(io::Error::new(io::ErrorKind::StorageFull, said))
        }
        None => Ok(()),
    }
}

fn pad(out: &mut impl Write, written: u64) -> io::Result<()> {
    let zeros = [0; DATA_ALIGNMENT as usize];
    out.write_all(&zeros[..(written.next_multiple_of(DATA_ALIGNMENT) - written) as usize])
}

/// A writer that counts.
struct Counted<W> {
    out: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gguf::parse;

    fn vector(len: usize) -> NewTensor {
        NewTensor { name: format!("of {len}"), shape: vec![len], format: WeightFormat::F32 }
    }

    #[test]
    fn tensors_are_read_back_where_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("two.gguf");
        let bytes = |number: usize| vec![number as u8 + 1; [12, 28][number]];
        let tensors = [vector(3), vector(7)];
        write_file(&path, &BTreeMap::new(), &tensors, |number, out| out.write_all(&bytes(number))).unwrap();
        let file = fs::read(&path).unwrap();
        let read = parse(&file).unwrap();
        for (number, NewTensor { name, shape, .. }) in tensors.iter().enumerate() {
            let info = &read.tensors[name];
            assert_eq!((&info.shape, &file[info.bytes.clone()]), (shape, &bytes(number)[..]));
        }
    }

    #[test]
    fn what_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        fs::write(&path, "before").unwrap();
        let full = |_: usize, out: &mut dyn Write| {
            out.write_all(&[1; 12])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let error = write_file(&path, &BTreeMap::new(), &[vector(7)], full).unwrap_err();
        assert!(matches!(error, ModelError::Write { .. }), "{error}");
        // 4 EiB: no disk has them.
        let huge = NewTensor { shape: vec![1 << 30, 1 << 30], ..vector(1) };
        let error = write_file(&path, &BTreeMap::new(), &[huge], |_, _| unreachable!("no room")).unwrap_err();
        assert!(error.to_string().contains("4611686018427387"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }
}
