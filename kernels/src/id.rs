//! Names of kernels: op, operand format and tier. Together they fix the bits of a result.

use crate::{KvFormat, WeightFormat};
use std::{fmt, str::FromStr};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// Rows of the embedding matrix.
    Embed,
    /// Root-mean-square normalisation.
    RmsNorm,
    /// Matrix product, plain or added to the residual.
    Linear,
    /// Gate and up products joined.
    LinearGated,
    /// Rotary position embedding.
    Rope,
    /// Rotation and storage of keys and values.
    AppendKv,
    /// Tree attention over cached keys and values.
    Attention,
    /// A function of the gate, times up.
    Gate,
    /// Sum of two buffers.
    Add,
    /// Product with a constant.
    Scale,
    /// A bound that is approached smoothly.
    Softcap,
    /// Gather of rows.
    SelectRows,
    /// Convolution of every channel over the last rows of each row's sequence.
    ShortConv,
    /// States that follow each row's sequence.
    Recurrence,
    /// The experts of rows, and their weights.
    Route,
    /// Gated products with the matrices of the experts that rows use.
    RoutedGated,
    /// Sums of products with the matrices of the experts that rows use.
    RoutedLinear,
    /// The best tokens of rows of logits, which are products of a matrix if it reads one.
    Candidates,
}

impl OpKind {
    /// Name in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::RmsNorm => "rms_norm",
            Self::Linear => "linear",
            Self::LinearGated => "linear_gated",
            Self::Rope => "rope",
            Self::AppendKv => "append_kv",
            Self::Attention => "attention",
            Self::Gate => "gate",
            Self::Add => "add",
            Self::Scale => "scale",
            Self::Softcap => "softcap",
            Self::SelectRows => "select_rows",
            Self::ShortConv => "short_conv",
            Self::Recurrence => "recurrence",
            Self::Route => "route",
            Self::RoutedGated => "routed_gated",
            Self::RoutedLinear => "routed_linear",
            Self::Candidates => "candidates",
        }
    }
}

/// How the values are computed: the instruction set and, with it, the order and rounding of every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Scalar judge.
    Reference,
    /// Plain Rust on any processor.
    Portable,
    /// NEON with dot products of bytes.
    Neon,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
    /// AVX-512 with VNNI and BF16.
    Avx512Bf16,
    /// AMX tiles with BF16, in addition to AVX-512.
    Amx,
    /// An NVIDIA GPU. No tier of the processor: whether there is one, its backend knows.
    Cuda,
}

impl Tier {
    /// Every tier, slowest first.
    pub const ALL: [Self; 8] = [
        Self::Reference,
        Self::Portable,
        Self::Neon,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Bf16,
        Self::Amx,
        Self::Cuda,
    ];

    /// The fastest tier of this processor.
    pub fn detect_best() -> Self {
        crate::cpu::Kernels::best().tier()
    }

    /// Whether this processor can run it; never a GPU's.
    pub fn is_available(self) -> bool {
        match self {
            Self::Reference | Self::Portable => true,
            Self::Neon | Self::Avx2 | Self::Avx512 | Self::Avx512Bf16 | Self::Amx => {
                crate::cpu::Kernels::for_tier(self).is_some()
            }
            Self::Cuda => false,
        }
    }

    /// Hash of the sources of its kernels and, for a processor, of the compiler's settings: two builds with the same
    /// one compute the same bits at the same speed.
    pub const fn kernel_set(self) -> &'static str {
        match self {
            Self::Reference
            | Self::Portable
            | Self::Neon
            | Self::Avx2
            | Self::Avx512
            | Self::Avx512Bf16
            | Self::Amx => {
                env!("YGG_KERNEL_SET")
            }
            Self::Cuda => env!("YGG_CUDA_KERNEL_SET"),
        }
    }

    /// The default activations of its linears.
    pub const fn activations(self) -> Activations {
        match self {
            Self::Reference
            | Self::Portable
            | Self::Neon
            | Self::Avx2
            | Self::Avx512
            | Self::Avx512Bf16
            | Self::Amx => Activations::Int8,
            Self::Cuda => Activations::Native,
        }
    }

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name of a tier was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tier `{found}`; expected reference, portable, avx2, avx512, avx512bf16, amx or cuda")]
pub struct UnknownTier {
    /// What was given.
    pub found: String,
}

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(name: &str) -> Result<Self, UnknownTier> {
        let found = || UnknownTier { found: name.to_owned() };
        Self::ALL.into_iter().find(|tier| tier.name() == name).ok_or_else(found)
    }
}

/// The form that a linear converts its activations to before it multiplies them by weights of codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activations {
    /// Bytes with a scale per 32 inputs, or per 256 where weights have blocks of 256, as mainstream engines do:
    /// [`reference::linear_int8`](crate::reference::linear_int8) says how.
    #[default]
    Int8,
    /// f32: more exact, slower.
    Native,
}

impl Activations {
    /// Both, the default first.
    pub const ALL: [Self; 2] = [Self::Int8, Self::Native];

    /// What they are over weights in `format`: native over dense ones.
    #[must_use]
    pub const fn over(self, format: WeightFormat) -> Self {
        if format.is_dense() { Self::Native } else { self }
    }

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Int8 => "int8",
        }
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The format a kernel reads, where it is not f32 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// Rows of f32 alone.
    Rows,
    /// A packed weight matrix.
    Weight(WeightFormat),
    /// A layer's KV memory.
    Kv(KvFormat),
}

/// Two kernels of one op and one class give equal bits on equal inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumericClass {
    /// Format of what it reads.
    pub operand: Operand,
    /// What becomes of the activations of a linear; native for every other op.
    pub activations: Activations,
    /// Arithmetic.
    pub tier: Tier,
}

impl NumericClass {
    const fn native(operand: Operand, tier: Tier) -> Self {
        Self { operand, activations: Activations::Native, tier }
    }
}

/// A kernel: an op in a numeric class. Displays as `linear.q4_1.avx512`, or `linear.q4_1.int8.avx512`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId {
    /// What is computed.
    pub op: OpKind,
    /// How.
    pub class: NumericClass,
}

impl KernelId {
    /// A kernel over rows only.
    pub const fn rows(op: OpKind, tier: Tier) -> Self {
        Self { op, class: NumericClass::native(Operand::Rows, tier) }
    }

    /// A kernel over a weight matrix, with native activations.
    pub const fn weight(op: OpKind, format: WeightFormat, tier: Tier) -> Self {
        Self { op, class: NumericClass::native(Operand::Weight(format), tier) }
    }

    /// A linear over a weight matrix, with these activations where its format allows them.
    pub const fn linear(op: OpKind, format: WeightFormat, activations: Activations, tier: Tier) -> Self {
        let activations = activations.over(format);
        Self { op, class: NumericClass { operand: Operand::Weight(format), activations, tier } }
    }

    /// A kernel over KV memory.
    pub const fn kv(op: OpKind, format: KvFormat, tier: Tier) -> Self {
        Self { op, class: NumericClass::native(Operand::Kv(format), tier) }
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, tier) = (self.op.name(), self.class.tier);
        match self.class.operand {
            Operand::Rows => write!(f, "{op}.{tier}"),
            Operand::Weight(format) => match self.class.activations {
                Activations::Native => write!(f, "{op}.{format}.{tier}"),
                Activations::Int8 => write!(f, "{op}.{format}.int8.{tier}"),
            },
            Operand::Kv(format) => write!(f, "{op}.{}.{tier}", format.name()),
        }
    }
}

#[cfg(test)]
#[path = "../kernel_set.rs"]
mod kernel_set;

#[cfg(test)]
mod tests {
    use super::{
        kernel_set::{Source, kernel_set},
        *,
    };

    #[test]
    fn every_change_of_a_source_or_a_setting_renames_the_kernel_set() {
        let sources: Vec<Source> =
            vec![("src/a.rs".into(), b"a".to_vec()), ("src/b.rs".into(), b"b".to_vec())];
        let settings = ["OPT_LEVEL=3", "CARGO_CFG_TARGET_FEATURE=sse2"].map(str::to_owned);
        let name = kernel_set(&sources, &settings);
        assert_eq!(name.len(), 16);
        assert_eq!(kernel_set(&sources, &settings), name);
        let changed_sources: [fn(&mut Vec<Source>); 4] = [
            |sources| sources[0].0.push('x'),
            |sources| sources[0].1.push(b'x'),
            |sources| sources[1].1.clear(),
            |sources| sources.truncate(1),
        ];
        for change in changed_sources {
            let mut other = sources.clone();
            change(&mut other);
            assert_ne!(kernel_set(&other, &settings), name, "{other:?}");
        }
        for other in
            [["OPT_LEVEL=2", settings[1].as_str()], [settings[0].as_str(), "CARGO_CFG_TARGET_FEATURE=avx2"]]
        {
            assert_ne!(kernel_set(&sources, &other.map(str::to_owned)), name, "{other:?}");
        }
        // The name that the build script gave, and not that of the other kernels.
        assert_eq!(Tier::Avx2.kernel_set().len(), 16);
        assert_ne!(Tier::Avx2.kernel_set(), Tier::Cuda.kernel_set());
    }

    #[test]
    fn names_read_back() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert_eq!("sse".parse::<Tier>(), Err(UnknownTier { found: "sse".into() }));
        let id = KernelId::weight(OpKind::Linear, WeightFormat::Q4_1, Tier::Avx512);
        assert_eq!(id.to_string(), "linear.q4_1.avx512");
        let int8 = |format| KernelId::linear(OpKind::LinearGated, format, Activations::Int8, Tier::Avx2);
        assert_eq!(int8(WeightFormat::Q4_K).to_string(), "linear_gated.q4_k.int8.avx2");
        assert_eq!(int8(WeightFormat::BF16).to_string(), "linear_gated.bf16.avx2");
        assert_eq!(KernelId::rows(OpKind::RmsNorm, Tier::Portable).to_string(), "rms_norm.portable");
        let id = KernelId::kv(OpKind::Attention, KvFormat::F16, Tier::Avx512);
        assert_eq!(id.to_string(), "attention.f16.avx512");
    }
}
