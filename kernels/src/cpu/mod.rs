//! Fast implementations of every op on processors, and the weight layouts they read.
//!
//! [`Kernels`] is the door: one method per op, for one tier. Its value proves that the processor has the
//! instructions. Work is given as ranges (tiles of a linear, rows, or units of a KV op), so that each thread calls the
//! same method with its own share; ranges change no bits.
//!
//! A linear has two phases: [`Kernels::prepare`] rounds or codes and lays out the activations in a thread's own
//! scratch, optionally normalised, then any number of linears of the same weight format read them. In which order they
//! go over rows and weights, and how far ahead they fetch, is a [`Tuning`], which changes no bits either. Candidates
//! have two phases, too: threads find them in their own ranges of the vocabulary, then what all have found is merged
//! row by row.

/// Writes methods of the given bodies, inlined into code that is compiled for whichever instructions.
macro_rules! inlined {
    ($(fn $name:ident ($self:ident $(, $arg:ident: $type:ty)*) -> $out:ty = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name($self $(, $arg: $type)*) -> $out {
                $body
            }
        )*
    };
}

/// Writes methods of the given bodies, which are intrinsics: first the safe ones, then those that rely on their
/// callers. They are inlined into code that is compiled for the instructions, which a value of the type proves the
/// processor to have.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
macro_rules! intrinsics {
    (
        $($(#[$doc:meta])* fn $name:ident $(<const $bits:ident: i32>)? (
            $self:ident $(, $arg:ident: $type:ty)*
        ) $(-> $out:ty)? = $body:expr;)*
        $(unsafe fn $unsafe_name:ident (
            $unsafe_self:ident $(, $unsafe_arg:ident: $unsafe_type:ty)*
        ) $(-> $unsafe_out:ty)? = $unsafe_body:expr;)*
    ) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            fn $name $(<const $bits: i32>)? ($self $(, $arg: $type)*) $(-> $out)? {
                // SAFETY: the value proves the instructions, and arguments have room for what is read and written.
                unsafe { $body }
            }
        )*
        $(
            #[inline(always)]
            unsafe fn $unsafe_name($unsafe_self $(, $unsafe_arg: $unsafe_type)*) $(-> $unsafe_out)? {
                // SAFETY: the value proves the instructions; memory is promised by the caller.
                unsafe { $unsafe_body }
            }
        )*
    };
}

/// The linears of a tier: functions with its target features, which call the generic ones of its module `linear`.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
macro_rules! linears {
    ($features:literal, $tier:ident, $by:ty) => {
        use crate::cpu::$tier::linear as of_tier;
        pub(in crate::cpu) use of_tier::prepare;

        #[target_feature(enable = $features)]
        pub(in crate::cpu) fn linear(
            weights: &crate::cpu::PackedLinear,
            x: &crate::cpu::Prepared<'_>,
            tiles: std::ops::Range<usize>,
            epilogue: crate::cpu::Epilogue,
            out: &mut crate::RowsMut<'_>,
        ) {
            of_tier::linear::<$by>(weights, x, tiles, epilogue, out);
        }

        #[target_feature(enable = $features)]
        pub(in crate::cpu) fn linear_gated(
            function: crate::Nonlinearity,
            weights: &crate::cpu::PackedLinear,
            x: &crate::cpu::Prepared<'_>,
            tiles: std::ops::Range<usize>,
            out: &mut crate::RowsMut<'_>,
        ) {
            of_tier::linear_gated::<$by>(function, weights, x, tiles, out);
        }
    };
}

mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
mod append_kv;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod codes;
mod found;
mod gate;
mod generic;
mod isa;
mod kernels;
mod lanes;
mod memory;
#[cfg(target_arch = "aarch64")]
mod neon;
mod packing;
mod prepare;
mod recurrence;
mod rms_norm;
mod roofline;
mod route;
mod short_conv;
mod tuning;

pub use activations::Prepared;
pub use found::{FoundLayout, FoundPart};
#[cfg(target_arch = "x86_64")]
pub use isa::{Amx, Avx2, Avx512, Avx512Bf16, AvxVnni};
#[cfg(target_arch = "aarch64")]
pub use isa::{I8mm, Neon};
pub use kernels::{
    Epilogue, Kernels, RoutedGated, RoutedLinear, attention_scratch_bytes, head_scratch_bytes,
};
pub use memory::{ALIGNMENT, LentBytes, Reserved, Staging, allocate};
pub use packing::{PACKED_LAYOUT, PackError, PackedLinear, Packing, Piece, TILE, Target, packed_bytes};
pub use roofline::Arithmetic;
pub use tuning::{Ahead, Streams, Tuning, TuningError};
