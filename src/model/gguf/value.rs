//! Metadata values of a GGUF file: all types of the format, nested arrays included.

use std::fmt::Arguments;

use super::reader::Reader;
use crate::model::ModelError;

/// Arrays in arrays deeper than this are refused; published files nest at most twice.
const MAX_ARRAY_DEPTH: usize = 8;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the format's own type names")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A metadata array; its elements have one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the format's own type names")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Value types by their numbers in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    fn read(reader: &mut Reader<'_>, what: Arguments<'_>) -> Result<Self, ModelError> {
        Ok(match reader.u32(what)? {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            other => return Err(ModelError::invalid(what, "a value type from 0 to 12", other)),
        })
    }

    /// Bytes of the smallest value of the type.
    fn least_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::String | Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Array => 12,
        }
    }
}

fn read_bool(reader: &mut Reader<'_>, what: Arguments<'_>) -> Result<bool, ModelError> {
    match reader.array::<1>(what)?[0] {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(ModelError::invalid(what, "a bool, 0 or 1", other)),
    }
}

impl Value {
    /// Reads type and value; `what` names it in errors.
    pub(super) fn read(reader: &mut Reader<'_>, what: Arguments<'_>) -> Result<Self, ModelError> {
        Ok(match ValueType::read(reader, what)? {
            ValueType::U8 => Self::U8(u8::from_le_bytes(reader.array(what)?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(reader.array(what)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(reader.array(what)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(reader.array(what)?)),
            ValueType::U32 => Self::U32(reader.u32(what)?),
            ValueType::I32 => Self::I32(i32::from_le_bytes(reader.array(what)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(reader.array(what)?)),
            ValueType::Bool => Self::Bool(read_bool(reader, what)?),
            ValueType::String => Self::String(reader.string(what)?),
            ValueType::Array => Self::Array(Array::read(reader, what, 1)?),
            ValueType::U64 => Self::U64(reader.u64(what)?),
            ValueType::I64 => Self::I64(i64::from_le_bytes(reader.array(what)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(reader.array(what)?)),
        })
    }

    /// The type's number in the file.
    pub(super) fn type_number(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// The type and size in words, for errors.
    pub fn describe(&self) -> String {
        match self {
            Self::U8(v) => format!("u8 {v}"),
            Self::I8(v) => format!("i8 {v}"),
            Self::U16(v) => format!("u16 {v}"),
            Self::I16(v) => format!("i16 {v}"),
            Self::U32(v) => format!("u32 {v}"),
            Self::I32(v) => format!("i32 {v}"),
            Self::F32(v) => format!("f32 {v}"),
            Self::Bool(v) => format!("bool {v}"),
            Self::String(v) => {
                let start: String = v.chars().take(40).collect();
                format!("string {start:?}{}", if start.len() < v.len() { ".." } else { "" })
            }
            Self::Array(v) => format!("array of {} {}", v.len(), v.element_type().1),
            Self::U64(v) => format!("u64 {v}"),
            Self::I64(v) => format!("i64 {v}"),
            Self::F64(v) => format!("f64 {v}"),
        }
    }

    /// Any integer that is not negative.
    pub fn as_count(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    /// A float of either width.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            Self::U8(_)
            | Self::I8(_)
            | Self::U16(_)
            | Self::I16(_)
            | Self::U32(_)
            | Self::I32(_)
            | Self::U64(_)
            | Self::I64(_)
            | Self::Bool(_)
            | Self::String(_)
            | Self::Array(_) => None,
        }
    }
}

impl Array {
    fn read(reader: &mut Reader<'_>, what: Arguments<'_>, depth: usize) -> Result<Self, ModelError> {
        if depth > MAX_ARRAY_DEPTH {
            let expected = format!("arrays nested at most {MAX_ARRAY_DEPTH} deep");
            return Err(ModelError::invalid(what, expected, format!("{depth} or more")));
        }
        let element = ValueType::read(reader, what)?;
        let count = reader.count(element.least_bytes(), what)?;
        macro_rules! numbers {
            ($variant:ident, $type:ty) => {{
                const BYTES: usize = size_of::<$type>();
                let bytes = reader.take((count * BYTES) as u64, what)?;
                let (chunks, _) = bytes.as_chunks::<BYTES>();
                Self::$variant(chunks.iter().map(|c| <$type>::from_le_bytes(*c)).collect())
            }};
        }
        Ok(match element {
            ValueType::U8 => numbers!(U8, u8),
            ValueType::I8 => numbers!(I8, i8),
            ValueType::U16 => numbers!(U16, u16),
            ValueType::I16 => numbers!(I16, i16),
            ValueType::U32 => numbers!(U32, u32),
            ValueType::I32 => numbers!(I32, i32),
            ValueType::F32 => numbers!(F32, f32),
            ValueType::U64 => numbers!(U64, u64),
            ValueType::I64 => numbers!(I64, i64),
            ValueType::F64 => numbers!(F64, f64),
            ValueType::Bool => {
                Self::Bool((0..count).map(|_| read_bool(reader, what)).collect::<Result<_, _>>()?)
            }
            ValueType::String => Self::String(
                (0..count)
                    .map(|i| reader.string(format_args!("{what}, element {i}")))
                    .collect::<Result<_, _>>()?,
            ),
            ValueType::Array => Self::Array(
                (0..count).map(|_| Self::read(reader, what, depth + 1)).collect::<Result<_, _>>()?,
            ),
        })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::Array(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type's number in the file, and its name.
    pub(super) fn element_type(&self) -> (u32, &'static str) {
        match self {
            Self::U8(_) => (0, "u8"),
            Self::I8(_) => (1, "i8"),
            Self::U16(_) => (2, "u16"),
            Self::I16(_) => (3, "i16"),
            Self::U32(_) => (4, "u32"),
            Self::I32(_) => (5, "i32"),
            Self::F32(_) => (6, "f32"),
            Self::Bool(_) => (7, "bool"),
            Self::String(_) => (8, "strings"),
            Self::Array(_) => (9, "arrays"),
            Self::U64(_) => (10, "u64"),
            Self::I64(_) => (11, "i64"),
            Self::F64(_) => (12, "f64"),
        }
    }
}
