//! The device that a program is compiled for, and the kernel chosen for each op.

use ygg_kernels::{Activations, KernelId, KvFormat, OpKind, Tier, WeightFormat};

/// The machine as far as compiling needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Instruction-set tier; decides the numeric class of every op.
    pub tier: Tier,
    /// Element type of the key/value cache; part of the numeric class.
    pub kv_format: KvFormat,
    /// What linears make of activations, over the formats that allow it; part of the numeric class.
    pub activations: Activations,
    /// Alignment of arena regions in bytes.
    pub arena_alignment: usize,
}

impl DeviceSpec {
    /// A CPU of the given tier, with its usual activations.
    pub fn cpu(tier: Tier, kv_format: KvFormat) -> Self {
        Self { tier, kv_format, activations: tier.activations(), arena_alignment: 64 }
    }
}

/// Which kernel computes an op on a device: by rule, never by timing, so that one numeric class serves every width.
#[derive(Clone, Copy, Debug)]
pub struct KernelChoice {
    tier: Tier,
    kv_format: KvFormat,
    activations: Activations,
}

impl KernelChoice {
    /// The rule for a device.
    pub fn for_device(device: &DeviceSpec) -> Self {
        Self { tier: device.tier, kv_format: device.kv_format, activations: device.activations }
    }

    /// The kernel of an op whose weights, if it has any, are stored in `format`.
    pub fn kernel(&self, op: OpKind, format: Option<WeightFormat>) -> KernelId {
        match (op, format) {
            (OpKind::AppendKv | OpKind::Attention, _) => KernelId::kv(op, self.kv_format, self.tier),
            (
                OpKind::Linear
                | OpKind::LinearGated
                | OpKind::RoutedGated
                | OpKind::RoutedLinear
                | OpKind::Candidates,
                Some(format),
            ) => KernelId::linear(op, format, self.activations, self.tier),
            (_, Some(format)) => KernelId::weight(op, format, self.tier),
            (_, None) => KernelId::rows(op, self.tier),
        }
    }
}
