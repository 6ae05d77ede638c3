//! One method per op: checks shapes, then calls the implementation of the tier.

use super::{
    activations::{Layout, Prepared},
    append_kv::Append,
    codes::ByteProducts,
    gate::{Gate, Softcap},
    generic,
    lanes::{Lanes, Portable, Work},
    packing::{PackedLinear, TILE},
    recurrence::{self, Follow},
    rms_norm::RmsNorm,
    short_conv::Convolve,
    tuning::Tuning,
};
#[cfg(target_arch = "x86_64")]
use super::{
    amx, avx2, avx512,
    isa::{Amx, Avx2, Avx512, Avx512Bf16, AvxVnni},
};
#[cfg(target_arch = "aarch64")]
use super::{
    isa::{I8mm, Neon},
    neon,
};
use crate::{
    Activations, AppendKv, Matrix, Nonlinearity, Norm, Recurrence, Rope, Rows, RowsMut, ShortConv,
    StateShape, Tier, WeightFormat,
};
use std::ops::Range;

/// What a linear does with its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `out = result`.
    Store,
    /// `out += result`, one f32 addition: the residual in place.
    AddInto,
}

/// The ops of one tier. Copying it is free; a value proves that the processor can run it.
///
/// Its linears over weights of codes take int8 [`Activations`] by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    isa: Isa,
    activations: Activations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    #[cfg(target_arch = "aarch64")]
    I8mm(I8mm),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512Bf16),
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    #[cfg(all(feature = "testing", target_arch = "x86_64"))]
    EmulatedAmx(Avx512),
}

/// Calls `$op` of the tier's module. The arms of instruction sets are the only place that enters code with
/// target features.
macro_rules! dispatch {
    ($isa:expr, $op:ident ( $($arg:expr),* )) => {
        match $isa {
            Isa::Portable => generic::$op($($arg),*),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the token proves that the processor has every feature the function enables.
            Isa::Neon(_) => unsafe { neon::by_dots::$op($($arg),*) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::I8mm(_) => unsafe { neon::by_matrices::$op($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves that the processor has every feature the function enables.
            Isa::Avx2(_) => unsafe { avx2::split::$op($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::AvxVnni(_) => unsafe { avx2::vnni::$op($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512(_) | Isa::Avx512Bf16(_) => unsafe { avx512::$op($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Amx(_) => unsafe { amx::on_hardware::$op($($arg),*) },
            #[cfg(all(feature = "testing", target_arch = "x86_64"))]
            // SAFETY: as above; emulated tiles need no instructions of their own.
            Isa::EmulatedAmx(_) => unsafe { amx::on_emulated::$op($($arg),*) },
        }
    };
}

mod attention;
mod candidates;
mod race;
mod routed;

pub use attention::attention_scratch_bytes;
pub use candidates::head_scratch_bytes;
pub use routed::{RoutedGated, RoutedLinear};

impl Kernels {
    const fn of(isa: Isa) -> Self {
        Self { isa, activations: Activations::Int8 }
    }

    /// Plain Rust.
    pub const fn portable() -> Self {
        Self::of(Isa::Portable)
    }

    /// NEON with dot products of bytes.
    #[cfg(target_arch = "aarch64")]
    pub const fn neon(proof: Neon) -> Self {
        Self::of(Isa::Neon(proof))
    }

    /// NEON with products of matrices of bytes: the same tier with the same bits, products of several rows by fewer
    /// instructions.
    #[cfg(target_arch = "aarch64")]
    pub const fn i8mm(proof: I8mm) -> Self {
        Self::of(Isa::I8mm(proof))
    }

    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    pub const fn avx2(proof: Avx2) -> Self {
        Self::of(Isa::Avx2(proof))
    }

    /// AVX2 with AVX-VNNI: the same tier with the same bits, products of bytes by fewer instructions.
    #[cfg(target_arch = "x86_64")]
    pub const fn avx_vnni(proof: AvxVnni) -> Self {
        Self::of(Isa::AvxVnni(proof))
    }

    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    pub const fn avx512(proof: Avx512) -> Self {
        Self::of(Isa::Avx512(proof))
    }

    /// AVX-512 with VNNI and BF16.
    #[cfg(target_arch = "x86_64")]
    pub const fn avx512_bf16(proof: Avx512Bf16) -> Self {
        Self::of(Isa::Avx512Bf16(proof))
    }

    /// AMX tiles in addition to AVX-512.
    #[cfg(target_arch = "x86_64")]
    pub const fn amx(proof: Amx) -> Self {
        Self::of(Isa::Amx(proof))
    }

    /// The AMX tier with tiles in memory: its bits on processors without it.
    #[cfg(all(feature = "testing", target_arch = "x86_64"))]
    pub const fn emulated_amx(proof: Avx512) -> Self {
        Self::of(Isa::EmulatedAmx(proof))
    }

    /// The fastest tier of this processor.
    pub fn best() -> Self {
        Tier::ALL.into_iter().rev().find_map(Self::for_tier).expect("every processor has the portable tier")
    }

    /// A tier by name; `None` if this processor has not got it, or it is the reference, which reads other weights, or a
    /// GPU's.
    pub fn for_tier(tier: Tier) -> Option<Self> {
        match tier {
            Tier::Reference | Tier::Cuda => None,
            Tier::Portable => Some(Self::portable()),
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => I8mm::detect().map(Self::i8mm).or_else(|| Neon::detect().map(Self::neon)),
            #[cfg(not(target_arch = "aarch64"))]
            Tier::Neon => None,
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => AvxVnni::detect().map(Self::avx_vnni).or_else(|| Avx2::detect().map(Self::avx2)),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => Avx512::detect().map(Self::avx512),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Bf16 => Avx512Bf16::detect().map(Self::avx512_bf16),
            #[cfg(target_arch = "x86_64")]
            Tier::Amx => Amx::detect().map(Self::amx),
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx => None,
        }
    }

    /// Does work on the lanes of the tier.
    fn call<W: Work>(self, work: W) -> W::Out {
        match self.isa {
            Isa::Portable => Portable.call(work),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(proof) => proof.call(work),
            #[cfg(target_arch = "aarch64")]
            Isa::I8mm(proof) => proof.neon().call(work),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(proof) => proof.call(work),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(proof) => proof.avx2().call(work),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(proof) => proof.call(work),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(proof) => proof.avx512().call(work),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx(proof) => proof.avx512().call(work),
            #[cfg(all(feature = "testing", target_arch = "x86_64"))]
            Isa::EmulatedAmx(proof) => proof.call(work),
        }
    }

    /// The same ops, linears with these activations over the formats that allow them.
    #[must_use]
    pub const fn with_activations(self, activations: Activations) -> Self {
        Self { activations, ..self }
    }

    /// The activations of linears called through this value, where the format allows them.
    pub const fn activations(self) -> Activations {
        self.activations
    }

    /// Tier of every op called through this value.
    pub const fn tier(self) -> Tier {
        match self.isa {
            Isa::Portable => Tier::Portable,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) | Isa::I8mm(_) => Tier::Neon,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) | Isa::AvxVnni(_) => Tier::Avx2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => Tier::Avx512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(_) => Tier::Avx512Bf16,
            #[cfg(target_arch = "x86_64")]
            Isa::Amx(_) => Tier::Amx,
            #[cfg(all(feature = "testing", target_arch = "x86_64"))]
            Isa::EmulatedAmx(_) => Tier::Amx,
        }
    }

    /// Whether bytes of several rows are multiplied as matrices.
    #[cfg(target_arch = "aarch64")]
    pub(super) const fn multiplies_matrices(self) -> bool {
        matches!(self.isa, Isa::I8mm(_))
    }

    /// Rows `rows` of `out` (`[W, K]`) become rows `tokens[w]` of the `[vocabulary, K]` weights. Equal bits in every
    /// tier.
    ///
    /// # Panics
    /// If shapes disagree or a token is outside the vocabulary.
    pub fn embed(self, weights: &PackedLinear, tokens: &[u32], rows: Range<usize>, mut out: RowsMut<'_>) {
        assert!(
            tokens.len() == out.width() && weights.columns() == out.columns(),
            "embedding of {weights:?}"
        );
        for w in rows {
            weights.dequantise_row(tokens[w] as usize, out.row(w));
        }
    }

    /// As [`embed`](Self::embed), of a matrix as a file stores it.
    ///
    /// # Panics
    /// As `embed`.
    pub fn embed_stored(
        self,
        weights: &Matrix<'_>,
        tokens: &[u32],
        rows: Range<usize>,
        mut out: RowsMut<'_>,
    ) {
        assert!(
            tokens.len() == out.width() && weights.columns() == out.columns(),
            "embedding of {weights:?}"
        );
        for w in rows {
            weights.format().dequantise_row(weights.row(tokens[w] as usize), out.row(w));
        }
    }

    /// `out = x / sqrt(mean(x^2) + eps) * weight` for the given rows, `[W, K]`: each group of as many elements as there
    /// are weights by itself.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn rms_norm(self, x: Rows<'_>, norm: Norm<'_>, rows: Range<usize>, mut out: RowsMut<'_>) {
        check_same(x, &out);
        let group = norm.weight.len();
        assert!(x.columns().is_multiple_of(group), "groups of {group} in {} columns", x.columns());
        for w in rows {
            let groups = x.row(w).chunks_exact(group).zip(out.row(w).chunks_exact_mut(group));
            groups.for_each(|(x, out)| self.call(RmsNorm { x, norm, out }));
        }
    }

    fn layout(self, format: WeightFormat) -> Layout {
        let products = match self.isa {
            Isa::Portable => ByteProducts::Unsigned,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) | Isa::I8mm(_) => ByteProducts::Signed,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => ByteProducts::Split,
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(_) | Isa::Avx512(_) | Isa::Avx512Bf16(_) | Isa::Amx(_) => ByteProducts::Unsigned,
            #[cfg(all(feature = "testing", target_arch = "x86_64"))]
            Isa::EmulatedAmx(_) => ByteProducts::Unsigned,
        };
        Layout::of(format, self.activations, self.tier(), products)
    }

    /// Scratch for [`Kernels::prepare`], bytes.
    pub fn linear_scratch_bytes(self, format: WeightFormat, width: usize, columns: usize) -> usize {
        width * self.layout(format).row_bytes(columns)
    }

    /// Lays `x` (`[W, K]`) out for linears in `format`, normalised first if asked: then the bits are those of
    /// [`Kernels::rms_norm`] followed by an unnormalised prepare.
    ///
    /// # Panics
    /// If `scratch` is smaller than [`Kernels::linear_scratch_bytes`] or not aligned to 64, or shapes disagree.
    pub fn prepare<'s>(
        self,
        format: WeightFormat,
        x: Rows<'_>,
        norm: Option<Norm<'_>>,
        scratch: &'s mut [u8],
    ) -> Prepared<'s> {
        self.prepare_tuned(format, x, norm, Tuning::DEFAULT, scratch)
    }

    /// As [`Kernels::prepare`], for linears with a tuning. Results are the same bits.
    ///
    /// # Panics
    /// As `prepare`.
    pub fn prepare_tuned<'s>(
        self,
        format: WeightFormat,
        x: Rows<'_>,
        norm: Option<Norm<'_>>,
        tuning: Tuning,
        scratch: &'s mut [u8],
    ) -> Prepared<'s> {
        let (width, columns) = (x.width(), x.columns());
        let bytes = self.linear_scratch_bytes(format, width, columns);
        assert!(scratch.len() >= bytes, "scratch of {} bytes, {bytes} needed", scratch.len());
        assert!(scratch.as_ptr().addr().is_multiple_of(64), "scratch must be aligned to 64");
        assert!(norm.is_none_or(|norm| norm.weight.len() == columns), "norm weights and columns");
        let layout = self.layout(format);
        let scratch = &mut scratch[..bytes];
        dispatch!(self.isa, prepare(layout, tuning.rows(layout), x, norm, scratch));
        Prepared { layout, width, columns, tuning, bytes: scratch }
    }

    /// `x weights^T` for output columns `16 tiles.start .. 16 tiles.end` of `out` (`[W, N]`).
    ///
    /// # Panics
    /// If shapes disagree, `x` was prepared for another class, or the weights are a gated pair.
    pub fn linear(
        self,
        weights: &PackedLinear,
        x: &Prepared<'_>,
        tiles: Range<usize>,
        epilogue: Epilogue,
        mut out: RowsMut<'_>,
    ) {
        assert!(!weights.is_gated(), "{weights:?} is a gated pair");
        self.check_linear(weights, x, &tiles, &out);
        dispatch!(self.isa, linear(weights, x, tiles, epilogue, &mut out));
    }

    /// `function(x gate^T) * (x up^T)` for output columns `16 tiles.start .. 16 tiles.end` of `out` (`[W, N]`): the
    /// bits of two linears and [`Kernels::gate`].
    ///
    /// # Panics
    /// If shapes disagree, `x` was prepared for another class, or the weights are not a gated pair.
    pub fn linear_gated(
        self,
        function: Nonlinearity,
        weights: &PackedLinear,
        x: &Prepared<'_>,
        tiles: Range<usize>,
        mut out: RowsMut<'_>,
    ) {
        assert!(weights.is_gated(), "{weights:?} is not a gated pair");
        self.check_linear(weights, x, &tiles, &out);
        dispatch!(self.isa, linear_gated(function, weights, x, tiles, &mut out));
    }

    fn check_linear(self, weights: &PackedLinear, x: &Prepared<'_>, tiles: &Range<usize>, out: &RowsMut<'_>) {
        assert_eq!(x.layout, self.layout(weights.format()), "activations prepared for another class");
        assert!(
            x.columns == weights.columns() && x.width == out.width() && out.columns() == weights.outputs(),
            "{weights:?} takes [{}, {}] to [{}, {}]",
            x.width,
            x.columns,
            out.width(),
            out.columns()
        );
        assert!(tiles.end <= weights.tiles(), "tiles {tiles:?} of {} ({TILE} outputs each)", weights.tiles());
    }

    /// Turns every head of the given rows of `x` (`[W, heads * D]`) to the row's position. Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree or a position is outside the table.
    pub fn rope(
        self,
        x: Rows<'_>,
        head_dim: usize,
        positions: &[u32],
        rope: Rope<'_>,
        rows: Range<usize>,
        mut out: RowsMut<'_>,
    ) {
        check_same(x, &out);
        assert!(
            x.columns().is_multiple_of(head_dim) && positions.len() == x.width(),
            "rope of heads of {head_dim}"
        );
        for w in rows {
            let heads = x.row(w).chunks_exact(head_dim).zip(out.row(w).chunks_exact_mut(head_dim));
            heads.for_each(|(head, out)| rope.rotate(positions[w] as usize, head, out));
        }
    }

    /// Stores keys, turned, and values of the given units ([`AppendKv::units`]). Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree or a slot is outside the cache.
    pub fn append_kv(self, args: &AppendKv<'_>, units: Range<usize>) {
        args.check();
        assert!(units.end <= args.units(), "units {units:?} of {}", args.units());
        self.call(Append { args, units });
    }

    /// Keeps what goes into the given units ([`ShortConv::units`]) of a short convolution, and writes their channels of
    /// `out` (`[W, C]`). Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree or a slot is outside the cache.
    pub fn short_conv(self, args: &ShortConv<'_>, units: Range<usize>, out: RowsMut<'_>) {
        args.check(&out);
        assert!(units.end <= args.units(), "units {units:?} of {}", args.units());
        self.call(Convolve { args, units, out });
    }

    /// Scratch of one thread for [`Kernels::recurrence`] of `width` rows, bytes.
    pub fn recurrence_scratch_bytes(self, shape: StateShape, width: usize) -> usize {
        recurrence::scratch_bytes(shape, width)
    }

    /// Keeps what goes into the given units ([`Recurrence::units`]) of a recurrence, and writes their heads of
    /// `out` (`[W, H B]`). Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree, the committed rows are none that states can go on from, or `scratch` is smaller than
    /// [`Kernels::recurrence_scratch_bytes`] or not aligned to 64.
    pub fn recurrence(
        self,
        args: &Recurrence<'_>,
        units: Range<usize>,
        scratch: &mut [u8],
        out: RowsMut<'_>,
    ) {
        args.check(&out);
        assert!(units.end <= args.units(), "units {units:?} of {}", args.units());
        let scratch = &mut scratch[..recurrence::scratch_bytes(args.memory.shape(), args.x.width())];
        self.call(Follow { args, units, scratch, out });
    }

    /// `out = function(gate) * up` for the given rows, all `[W, columns]`. Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn gate(
        self,
        function: Nonlinearity,
        gate: Rows<'_>,
        up: Rows<'_>,
        rows: Range<usize>,
        mut out: RowsMut<'_>,
    ) {
        check_same(gate, &out);
        check_same(up, &out);
        for w in rows {
            self.call(Gate { function, gate: gate.row(w), up: up.row(w), out: out.row(w) });
        }
    }

    /// `out = a + b` for the given rows, all `[W, columns]`. Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn add(self, a: Rows<'_>, b: Rows<'_>, rows: Range<usize>, mut out: RowsMut<'_>) {
        check_same(a, &out);
        check_same(b, &out);
        for w in rows {
            generic::add(a.row(w), b.row(w), out.row(w));
        }
    }

    /// `out += a` for the given rows, both `[W, columns]`. Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn add_into(self, a: Rows<'_>, rows: Range<usize>, mut out: RowsMut<'_>) {
        check_same(a, &out);
        for w in rows {
            generic::add_into(a.row(w), out.row(w));
        }
    }

    /// `x += bias` for the given columns of all rows of `[W, columns]`; `bias` has all columns. Equal bits in every
    /// tier.
    ///
    /// # Panics
    /// If the bias has another length.
    pub fn add_bias(self, bias: &[f32], columns: Range<usize>, mut x: RowsMut<'_>) {
        assert_eq!(bias.len(), x.columns(), "a bias of the columns");
        for w in 0..x.width() {
            generic::add_into(&bias[columns.clone()], x.span(w, columns.clone()));
        }
    }

    /// `x = cap * tanh(x / cap)` for the given rows of `[W, columns]`. Equal bits in every tier.
    pub fn softcap(self, cap: f32, rows: Range<usize>, mut x: RowsMut<'_>) {
        for w in rows {
            self.call(Softcap { cap, x: x.row(w) });
        }
    }

    /// `x *= factor` for the given rows of `[W, columns]`. Equal bits in every tier.
    pub fn scale(self, factor: f32, rows: Range<usize>, mut x: RowsMut<'_>) {
        for w in rows {
            generic::scale(factor, x.row(w));
        }
    }

    /// Row `i` of `out` becomes row `indices[i]` of `x`, for the given rows of `out`.
    ///
    /// # Panics
    /// If shapes disagree or an index is not a row.
    pub fn select_rows(self, x: Rows<'_>, indices: &[u32], rows: Range<usize>, mut out: RowsMut<'_>) {
        assert!(
            indices.len() == out.width() && x.columns() == out.columns(),
            "gather of {} rows",
            indices.len()
        );
        for i in rows {
            out.row(i).copy_from_slice(x.row(indices[i] as usize));
        }
    }
}

fn check_same(x: Rows<'_>, out: &RowsMut<'_>) {
    assert!(
        x.width() == out.width() && x.columns() == out.columns(),
        "[{}, {}] to [{}, {}]",
        x.width(),
        x.columns(),
        out.width(),
        out.columns()
    );
}
