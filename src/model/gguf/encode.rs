//! Encodes header, metadata and tensor table of a GGUF file. The caller writes the tensor data.

use std::collections::BTreeMap;

use ygg_kernels::WeightFormat;

use super::{
    file::{DEFAULT_ALIGNMENT, MAGIC},
    value::{Array, Value},
};

/// One entry of the tensor table to write.
#[derive(Clone, Debug)]
pub struct TensorRecord {
    /// Name.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// How the elements are stored.
    pub format: WeightFormat,
    /// First byte from the start of the data, which is the end of the header rounded up to [`DATA_ALIGNMENT`].
    pub offset: u64,
}

/// Alignment of data and tensors unless `general.alignment` says otherwise.
pub const DATA_ALIGNMENT: u64 = DEFAULT_ALIGNMENT;

/// Everything before the tensor data, without the padding after it.
pub fn encode_header(version: u32, metadata: &BTreeMap<String, Value>, tensors: &[TensorRecord]) -> Vec<u8> {
    let mut out = Encoder(MAGIC.to_vec());
    out.u32(version);
    out.count(tensors.len());
    out.count(metadata.len());
    for (key, value) in metadata {
        out.string(key);
        out.value(value);
    }
    for tensor in tensors {
        out.string(&tensor.name);
        out.u32(u32::try_from(tensor.shape.len()).expect("few dimensions"));
        for n in tensor.shape.iter().rev() {
            out.count(*n);
        }
        out.u32(tensor.format.ggml_type().expect("a format that files have"));
        out.bytes(&tensor.offset.to_le_bytes());
    }
    out.0
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u32(&mut self, n: u32) {
        self.bytes(&n.to_le_bytes());
    }

    fn count(&mut self, n: usize) {
        self.bytes(&(n as u64).to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.count(text.len());
        self.bytes(text.as_bytes());
    }

    fn value(&mut self, value: &Value) {
        self.u32(value.type_number());
        match value {
            Value::U8(v) => self.bytes(&v.to_le_bytes()),
            Value::I8(v) => self.bytes(&v.to_le_bytes()),
            Value::U16(v) => self.bytes(&v.to_le_bytes()),
            Value::I16(v) => self.bytes(&v.to_le_bytes()),
            Value::U32(v) => self.bytes(&v.to_le_bytes()),
            Value::I32(v) => self.bytes(&v.to_le_bytes()),
            Value::F32(v) => self.bytes(&v.to_le_bytes()),
            Value::Bool(v) => self.bytes(&[u8::from(*v)]),
            Value::String(v) => self.string(v),
            Value::Array(v) => self.array(v),
            Value::U64(v) => self.bytes(&v.to_le_bytes()),
            Value::I64(v) => self.bytes(&v.to_le_bytes()),
            Value::F64(v) => self.bytes(&v.to_le_bytes()),
        }
    }

    fn array(&mut self, array: &Array) {
        self.u32(array.element_type().0);
        self.count(array.len());
        match array {
            Array::U8(v) => self.bytes(v),
            Array::I8(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::U16(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::I16(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::U32(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::I32(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::F32(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::Bool(v) => v.iter().for_each(|x| self.bytes(&[u8::from(*x)])),
            Array::String(v) => v.iter().for_each(|x| self.string(x)),
            Array::Array(v) => v.iter().for_each(|x| self.array(x)),
            Array::U64(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::I64(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
            Array::F64(v) => v.iter().for_each(|x| self.bytes(&x.to_le_bytes())),
        }
    }
}
