//! From the bytes of a GGUF file to its metadata and tensor table.

use std::{collections::BTreeMap, ops::Range};

use super::{
    nvfp4,
    reader::Reader,
    rope::ROPE_TENSORS,
    tensor_type,
    value::{Array, Value},
};
use crate::model::{Container, ModelError, TensorInfo, TensorTable, config::Fields, tensor_bytes};
use ygg_kernels::WeightFormat;

/// The first four bytes of every GGUF file.
pub(in crate::model) const MAGIC: &[u8; 4] = b"GGUF";

const ALIGNMENT_KEY: &str = "general.alignment";
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
const MAX_DIMENSIONS: u32 = 4;

/// Bytes of the smallest metadata entry: empty key, type, one byte.
const LEAST_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Bytes of the smallest tensor entry: empty name, dimension count, one dimension, type, offset.
const LEAST_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// A parsed GGUF file; tensor places are checked against the bytes it was parsed from.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufFile {
    /// 2 or 3.
    pub version: u32,
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors by name; all in file 0.
    pub tensors: TensorTable,
    /// Bytes of header, metadata and tensor table, before the padding in front of the first tensor.
    pub header_bytes: usize,
}

/// Parses a whole file held in memory.
///
/// # Errors
/// [`ModelError`], which names the key, tensor or field. No input makes it panic or reserve more than a small multiple
/// of the input's size.
pub fn parse(bytes: &[u8]) -> Result<GgufFile, ModelError> {
    parse_beside(bytes, &[]).map(|(file, _)| file)
}

/// Tensors of integers by name.
pub(super) type Integers = BTreeMap<String, Vec<i64>>;

/// As [`parse`], but tensors of 64-bit integers of the names in `integers` are no weights and are read at once.
pub(super) fn parse_beside(bytes: &[u8], integers: &[&str]) -> Result<(GgufFile, Integers), ModelError> {
    let Table { version, metadata, alignment, entries, header_bytes } = Table::read(bytes, integers)?;
    let of_integers: Vec<String> =
        entries.iter().filter(|entry| entry.is_integers).map(|entry| entry.name.clone()).collect();
    let mut tensors = place(entries, header_bytes, alignment, bytes.len())?;
    let mut read = Integers::new();
    for name in of_integers {
        let info = tensors.remove(&name).expect("it was placed");
        let elements =
            bytes[info.bytes].as_chunks().0.iter().map(|eight| i64::from_le_bytes(*eight)).collect();
        read.insert(name, elements);
    }
    Ok((GgufFile { version, metadata, tensors, header_bytes }, read))
}

/// What stands in front of the tensors.
struct Table {
    version: u32,
    metadata: BTreeMap<String, Value>,
    alignment: u64,
    entries: Vec<TensorEntry>,
    header_bytes: usize,
}

impl Table {
    fn read(bytes: &[u8], integers: &[&str]) -> Result<Self, ModelError> {
        let mut reader = Reader::new(bytes);
        let version = header(&mut reader)?;
        let tensor_count = reader.u64(format_args!("GGUF tensor count"))?;
        let metadata_count = reader.count(LEAST_ENTRY_BYTES, format_args!("GGUF metadata count"))?;
        let tensor_count =
            reader.check_count(tensor_count, LEAST_TENSOR_BYTES, format_args!("GGUF tensor count"))?;
        let metadata = metadata(&mut reader, metadata_count)?;
        let alignment = alignment(&metadata)?;
        let entry = |i| TensorEntry::read(&mut reader, i, integers);
        let entries = (0..tensor_count).map(entry).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { version, metadata, alignment, entries, header_bytes: reader.position() })
    }
}

/// What has to be read of a GGUF file to open the model, if forwards need not be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufOutline {
    /// Bytes of header, metadata and tensor table.
    pub header_bytes: usize,
    /// Where the tensors lie that describe the model: divisors of its rotary embedding.
    pub described_at: Vec<Range<u64>>,
}

/// Reads the outline of a file of `file_bytes` from its beginning.
///
/// # Errors
/// [`ModelError`], also where the beginning ends before the header does.
pub fn outline(beginning: &[u8], file_bytes: usize) -> Result<GgufOutline, ModelError> {
    let Table { alignment, entries, header_bytes, .. } = Table::read(beginning, &[])?;
    let tensors = place(entries, header_bytes, alignment, file_bytes)?;
    let described = ROPE_TENSORS.into_iter().filter_map(|name| tensors.get(name));
    let described_at = described.map(|info| info.bytes.start as u64..info.bytes.end as u64).collect();
    Ok(GgufOutline { header_bytes, described_at })
}

fn header(reader: &mut Reader<'_>) -> Result<u32, ModelError> {
    let magic = reader.array::<4>(format_args!("GGUF magic"))?;
    if magic != *MAGIC {
        return Err(ModelError::invalid("GGUF magic", "`GGUF`", magic.escape_ascii()));
    }
    let version = reader.u32(format_args!("GGUF version"))?;
    match version {
        2 | 3 => Ok(version),
        _ if matches!(version.swap_bytes(), 1..=3) => Err(ModelError::unsupported(
            "GGUF byte order",
            format_args!("big-endian (version {})", version.swap_bytes()),
            "little-endian; convert the file with gguf-convert-endian",
        )),
        _ => Err(ModelError::unsupported(
            "GGUF version",
            version,
            "versions 2 and 3; convert the model again with current tools",
        )),
    }
}

fn metadata(reader: &mut Reader<'_>, count: usize) -> Result<BTreeMap<String, Value>, ModelError> {
    let mut metadata = BTreeMap::new();
    for i in 0..count {
        let key = reader.name(format_args!("name of metadata key {i} of {count}"))?;
        let value = Value::read(reader, format_args!("key `{key}`"))?;
        if metadata.contains_key(&key) {
            return Err(ModelError::invalid(format_args!("key `{key}`"), "one entry", "a second one"));
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, ModelError> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    match value.as_count() {
        Some(alignment) if alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&alignment) => {
            Ok(alignment)
        }
        _ => Err(ModelError::invalid(
            format_args!("key `{ALIGNMENT_KEY}`"),
            format_args!("a power of two from 8 to {MAX_ALIGNMENT}"),
            value.describe(),
        )),
    }
}

struct TensorEntry {
    name: String,
    info: TensorInfo,
    offset: u64,
    /// Whether its elements are 64-bit integers: pairs of what `info` says.
    is_integers: bool,
}

impl TensorEntry {
    fn read(reader: &mut Reader<'_>, index: usize, integers: &[&str]) -> Result<Self, ModelError> {
        let name = reader.name(format_args!("name of tensor {index}"))?;
        let what = format_args!("tensor `{name}`");
        let dimensions = reader.u32(what)?;
        if dimensions == 0 || dimensions > MAX_DIMENSIONS {
            let expected = format!("1 to {MAX_DIMENSIONS} dimensions");
            return Err(ModelError::invalid(what, expected, dimensions));
        }
        let mut shape = (0..dimensions)
            .map(|_| {
                let n = reader.u64(what)?;
                usize::try_from(n)
                    .map_err(|_| ModelError::invalid(what, "dimensions that fit the address space", n))
            })
            .collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let number = reader.u32(what)?;
        let is_integers = number == tensor_type::I64 && integers.contains(&name.as_str());
        let offset = reader.u64(what)?;
        if number == nvfp4::NUMBER {
            return Ok(Self { info: nvfp4::tensor(&name, shape)?, name, offset, is_integers });
        }
        let format = if is_integers { WeightFormat::F32 } else { tensor_type::format_of(&name, number)? };
        if is_integers {
            shape.push(2);
        }
        let len = tensor_bytes(&name, &shape, format)?;
        let info = TensorInfo { shape, format, file: 0, bytes: 0..len, scales: None };
        Ok(Self { info, name, offset, is_integers })
    }
}

/// Turns offsets into places in the file, which must be aligned, inside and disjoint.
fn place(
    entries: Vec<TensorEntry>,
    header_bytes: usize,
    alignment: u64,
    file_bytes: usize,
) -> Result<TensorTable, ModelError> {
    let data_start = (header_bytes as u64).next_multiple_of(alignment);
    let mut table = TensorTable::new();
    for TensorEntry { name, mut info, offset, is_integers: _ } in entries {
        let what = format!("tensor `{name}`");
        if !offset.is_multiple_of(alignment) {
            let expected = format!("an offset in multiples of {alignment}");
            return Err(ModelError::invalid(what, expected, offset));
        }
        let start = data_start.checked_add(offset);
        let end = start.and_then(|s| s.checked_add(info.bytes.len() as u64));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_bytes as u64 => {
                let inside = "a place inside the file";
                info.bytes = usize::try_from(start).expect(inside)..usize::try_from(end).expect(inside);
            }
            _ => {
                let expected = format!("an end within the file's {file_bytes} bytes");
                let found = format!(
                    "{} bytes at {data_start} + {offset}; the file may be an unfinished download",
                    info.bytes.len()
                );
                return Err(ModelError::invalid(what, expected, found));
            }
        }
        if table.contains_key(&name) {
            return Err(ModelError::invalid(what, "one entry", "a second one"));
        }
        table.insert(name, info);
    }
    let mut by_start: Vec<_> = table.iter().collect();
    by_start.sort_by_key(|(_, info)| info.bytes.start);
    for pair in by_start.windows(2) {
        let ((name, info), (next, next_info)) = (pair[0], pair[1]);
        if next_info.bytes.start < info.bytes.end {
            return Err(ModelError::invalid(
                format_args!("tensor `{next}`"),
                format_args!("a place after tensor `{name}`, which ends at {}", info.bytes.end),
                format_args!("a start at {}", next_info.bytes.start),
            ));
        }
    }
    Ok(table)
}

/// Typed look-ups: `None` if the key is absent, an error if it has another type.
impl GgufFile {
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        get: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let wrong = || ModelError::invalid(format_args!("key `{key}`"), expected, value.describe());
        get(value).map(Some).ok_or_else(wrong)
    }

    pub(super) fn strings(&self, key: &str) -> Result<Option<&[String]>, ModelError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    pub(super) fn float_or_count(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a number", |value| value.as_float().or_else(|| value.as_count().map(|n| n as f64)))
    }

    pub(super) fn id(&self, key: &str) -> Result<Option<u32>, ModelError> {
        self.typed(key, "a token id", |value| u32::try_from(value.as_count()?).ok())
    }

    pub(super) fn floats(&self, key: &str) -> Result<Option<&[f32]>, ModelError> {
        self.typed(key, "an array of 32-bit floats", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    pub(super) fn bytes(&self, key: &str) -> Result<Option<Vec<u8>>, ModelError> {
        self.typed(key, "an array of bytes", |value| match value {
            Value::Array(Array::U8(v)) => Some(v.clone()),
            Value::Array(Array::I8(v)) => Some(v.iter().map(|byte| byte.cast_unsigned()).collect()),
            _ => None,
        })
    }

    pub(super) fn small_counts(&self, key: &str) -> Result<Option<Vec<u32>>, ModelError> {
        self.typed(key, "an array of 32-bit integers of at least 0", |value| match value {
            Value::Array(Array::U32(v)) => Some(v.clone()),
            Value::Array(Array::I32(v)) => v.iter().map(|n| u32::try_from(*n).ok()).collect(),
            _ => None,
        })
    }
}

impl Fields for GgufFile {
    fn container(&self) -> Container {
        Container::Gguf
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    fn float(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a float", Value::as_float)
    }

    fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.typed(key, "an integer of at least 0", |value| usize::try_from(value.as_count()?).ok())
    }

    fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    fn counts(&self, key: &str) -> Result<Option<Vec<usize>>, ModelError> {
        Ok(self.small_counts(key)?.map(|counts| counts.into_iter().map(|n| n as usize).collect()))
    }

    fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ModelError> {
        Ok(self.floats(key)?.map(|numbers| numbers.iter().copied().map(f64::from).collect()))
    }

    fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ModelError> {
        self.typed(key, "an array of bools", |value| match value {
            Value::Array(Array::Bool(flags)) => Some(flags.clone()),
            _ => None,
        })
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, ModelError> {
        Ok(self.strings(key)?.map(<[String]>::to_vec))
    }
}
