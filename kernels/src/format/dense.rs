//! Formats of floating-point numbers.

use super::{Elements, Spec, bf16_to_f32, coding::u16_at, f16_to_f32};

pub(super) const F32: Spec = Spec {
    name: "f32",
    ggml_type: Some(0),
    block_len: 1,
    block_bytes: 4,
    elements: Elements::Dense {
        read: |bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        write: |value, out| out.extend(value.to_le_bytes()),
    },
};

pub(super) const F16: Spec = Spec {
    name: "f16",
    ggml_type: Some(1),
    block_len: 1,
    block_bytes: 2,
    elements: Elements::Dense {
        read: |bytes| f16_to_f32(u16_at(bytes, 0)),
        write: |value, out| out.extend(half::f16::from_f32(value).to_le_bytes()),
    },
};

pub(super) const BF16: Spec = Spec {
    name: "bf16",
    ggml_type: Some(30),
    block_len: 1,
    block_bytes: 2,
    elements: Elements::Dense {
        read: |bytes| bf16_to_f32(u16_at(bytes, 0)),
        write: |value, out| out.extend(half::bf16::from_f32(value).to_le_bytes()),
    },
};
