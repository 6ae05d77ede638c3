//! One safetensors file: its tensor table. The format: <https://github.com/huggingface/safetensors#format>.

use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Range};

use ::safetensors::{Dtype, tensor::Metadata};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use ygg_kernels::WeightFormat;

use super::{mxfp4, nvfp4};
use crate::{
    model::{ModelError, Scales, TensorInfo, TensorTable, tensor_bytes},
    storage::json_fault,
};

const LENGTH_BYTES: usize = 8;
const MAX_HEADER_BYTES: u64 = 100_000_000;
const METADATA: &str = "__metadata__";

/// A parsed safetensors file; tensor places are checked against the bytes it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsFile {
    /// Tensors by name; all in file 0.
    pub tensors: TensorTable,
    /// Tensors of bytes, which are parts of matrices.
    pub octets: BTreeMap<String, Octets>,
    /// Tensors of floats of 8 bits, whose scales are other tensors.
    pub floats8: BTreeMap<String, Octets>,
    /// Bytes of length field and JSON header.
    pub header_bytes: usize,
}

/// A tensor of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Octets {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Which of the model's files, in order of name.
    pub file: usize,
    /// Place in that file.
    pub bytes: Range<usize>,
}

impl Octets {
    /// Adds the matrix `whole` whose codes these are, a tensor of the name `name`, and whose scales lie elsewhere.
    ///
    /// # Errors
    /// [`ModelError`] if there is a tensor of the matrix's name.
    pub(super) fn add_matrix(
        self,
        name: &str,
        whole: String,
        (shape, format): (Vec<usize>, WeightFormat),
        scales: Scales,
        tensors: &mut TensorTable,
    ) -> Result<(), ModelError> {
        let Self { file, bytes, shape: _ } = self;
        if tensors.contains_key(&whole) {
            let found = format!("one, and one of `{name}` and its scales");
            return Err(ModelError::invalid(format_args!("tensor `{whole}`"), "one tensor", found));
        }
        tensors.insert(whole, TensorInfo { shape, format, file, bytes, scales: Some(scales) });
        Ok(())
    }
}

/// Tensors of integers by name.
pub(super) type Integers = BTreeMap<String, Vec<i64>>;

/// A JSON object as a map that refuses a key it has already seen, where `serde_json` would keep the last.
pub(super) struct UniqueMap<V>(pub(super) BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    if entries.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("`{key}` appears twice")));
                    }
                    entries.insert(key, value);
                }
                Ok(UniqueMap(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Parses a whole file held in memory.
///
/// # Errors
/// [`ModelError`], which names the tensor or part. No input makes it panic or reserve more than a small multiple of the
/// input's size.
pub fn parse(bytes: &[u8]) -> Result<SafetensorsFile, ModelError> {
    parse_beside(bytes, &[]).map(|(file, _)| file)
}

/// As [`parse`], but tensors of the names in `integers` are no weights: their elements are integers or truth values,
/// which are read at once.
pub(super) fn parse_beside(
    bytes: &[u8],
    integers: &[&str],
) -> Result<(SafetensorsFile, Integers), ModelError> {
    let header = header(bytes)?;
    let header_bytes = LENGTH_BYTES + header.len();
    let refuse = |e: serde_json::Error| {
        ModelError::invalid("safetensors header", "a lawful tensor table", json_fault(&e))
    };
    let UniqueMap(names) = serde_json::from_slice::<UniqueMap<IgnoredAny>>(header).map_err(refuse)?;
    // Checks that tensors lie one after the other and have the size that shape and dtype give.
    let metadata: Metadata = serde_json::from_slice(header).map_err(refuse)?;
    let (stated, found) = (metadata.data_len(), bytes.len() - header_bytes);
    if stated > found {
        let what = "safetensors data".to_owned();
        return Err(ModelError::Truncated { what, needed: stated as u64, left: found as u64 });
    }
    if stated < found {
        let expected = format!("{stated} bytes, as the header says");
        return Err(ModelError::invalid("safetensors data", expected, found));
    }
    let (mut tensors, mut read) = (TensorTable::new(), Integers::new());
    let (mut octets, mut floats8) = (BTreeMap::new(), BTreeMap::new());
    for name in names.into_keys().filter(|name| name != METADATA) {
        let info = metadata.info(&name).expect("the header's keys are its tensors");
        let (start, end) = info.data_offsets;
        let place = header_bytes + start..header_bytes + end;
        if integers.contains(&name.as_str()) {
            let elements = elements(info.dtype, &bytes[place]).ok_or_else(|| {
                let found = format!("dtype {:?}", info.dtype);
                ModelError::unsupported(format_args!("tensor `{name}`"), found, "I64, I32, BOOL, U8")
            })?;
            read.insert(name, elements);
            continue;
        }
        let format = match info.dtype {
            Dtype::F32 => WeightFormat::F32,
            Dtype::F16 => WeightFormat::F16,
            Dtype::BF16 => WeightFormat::BF16,
            Dtype::U8 if mxfp4::is_part(&name) || nvfp4::is_codes(&name) => {
                octets.insert(name, Octets { shape: info.shape.clone(), file: 0, bytes: place });
                continue;
            }
            Dtype::F8_E4M3 => {
                floats8.insert(name, Octets { shape: info.shape.clone(), file: 0, bytes: place });
                continue;
            }
            other => {
                return Err(ModelError::unsupported(
                    format_args!("tensor `{name}`"),
                    format_args!("dtype {other:?}"),
                    "F32, F16, BF16, F8_E4M3",
                ));
            }
        };
        let expected = tensor_bytes(&name, &info.shape, format)?;
        assert_eq!(end - start, expected, "the safetensors crate checks sizes");
        let shape = info.shape.clone();
        tensors.insert(name, TensorInfo { shape, format, file: 0, bytes: place, scales: None });
    }
    Ok((SafetensorsFile { tensors, octets, floats8, header_bytes }, read))
}

/// The elements of a tensor of integers; `None` if it is of something else.
fn elements(dtype: Dtype, bytes: &[u8]) -> Option<Vec<i64>> {
    match dtype {
        Dtype::I64 => Some(bytes.as_chunks().0.iter().map(|eight| i64::from_le_bytes(*eight)).collect()),
        Dtype::I32 => Some(bytes.as_chunks().0.iter().map(|four| i32::from_le_bytes(*four).into()).collect()),
        Dtype::BOOL | Dtype::U8 => Some(bytes.iter().map(|byte| i64::from(*byte)).collect()),
        _ => None,
    }
}

/// Bytes of length field and JSON header of a file that begins so.
///
/// # Errors
/// [`ModelError`] if the length is not there or no header is that long.
pub fn outline_bytes(beginning: &[u8]) -> Result<u64, ModelError> {
    Ok(LENGTH_BYTES as u64 + split_length(beginning)?.0)
}

fn header(bytes: &[u8]) -> Result<&[u8], ModelError> {
    let (len, rest) = split_length(bytes)?;
    let end = usize::try_from(len).expect("limited above");
    rest.get(..end).ok_or_else(|| truncated(len, rest.len()))
}

fn truncated(needed: u64, left: usize) -> ModelError {
    ModelError::Truncated { what: "safetensors header".to_owned(), needed, left: left as u64 }
}

/// The length of the header, and what follows its field.
fn split_length(bytes: &[u8]) -> Result<(u64, &[u8]), ModelError> {
    let (len, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| truncated(LENGTH_BYTES as u64, bytes.len()))?;
    let len = u64::from_le_bytes(*len);
    if len > MAX_HEADER_BYTES {
        let expected = format!("at most {MAX_HEADER_BYTES} bytes");
        return Err(ModelError::invalid("safetensors header", expected, len));
    }
    Ok((len, rest))
}
