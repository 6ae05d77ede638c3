//! What a program is compiled for, and which kernel serves which op.

use ygg_kernels::{KernelId, OpKind, Tier, WeightFormat};

/// The machine as far as compiling needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Instruction-set tier; decides the numeric class of every op.
    pub tier: Tier,
    /// Alignment of arena regions in bytes.
    pub arena_alignment: usize,
}

impl DeviceSpec {
    /// A CPU of the given tier.
    pub fn cpu(tier: Tier) -> Self {
        Self { tier, arena_alignment: 64 }
    }
}

/// Which kernel computes an op on a device: by rule, never by timing, so that one numeric class serves every width.
#[derive(Clone, Copy, Debug)]
pub struct KernelChoice {
    tier: Tier,
}

impl KernelChoice {
    /// The rule for a device.
    pub fn for_device(device: &DeviceSpec) -> Self {
        Self { tier: device.tier }
    }

    /// The kernel of an op whose weights, if it has any, are stored in `format`.
    pub fn kernel(&self, op: OpKind, format: Option<WeightFormat>) -> KernelId {
        KernelId::new(op, format, self.tier)
    }
}
