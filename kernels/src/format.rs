//! Weight formats: how a matrix lies in a model file, and the f32 value of every element.
//!
//! A format is one file below this one, with a `Spec`, and one line of the registry here. Formats of codes say what
//! their integers mean in a `Coding`; a decoder takes a block of a file apart, and meaning, packing and kernels
//! follow from the coding.

mod coding;
mod dense;
mod grids;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod k_scales;
mod mxfp4;
mod nvfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod requantise;

pub(crate) use coding::{Block, Coding, Meaning, Scales, Unit};
pub use requantise::requantised;

use std::fmt;

/// What a format is.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Lower-case name, as ggml spells it.
    pub(crate) name: &'static str,
    /// Number of the element type in GGUF, if files have the format so.
    pub(crate) ggml_type: Option<u32>,
    /// Elements in a block.
    pub(crate) block_len: usize,
    /// Bytes of a block in a file.
    pub(crate) block_bytes: usize,
    pub(crate) elements: Elements,
}

/// How the elements of a block are stored.
#[derive(Debug)]
pub(crate) enum Elements {
    /// A floating-point number each.
    Dense { read: fn(&[u8]) -> f32, write: fn(f32, &mut Vec<u8>) },
    /// Integers and their scales. `encode` appends a block, rounded to nearest without a search for better scales.
    Codes { coding: Coding, decode: fn(&[u8], &mut Block), encode: fn(&[f32], &mut Vec<u8>) },
}

/// A format of codes as a type, so that code can be made for each.
pub(crate) trait Kind {
    const CODING: Coding;
    /// Bytes of a block in a file.
    const BLOCK_BYTES: usize;
    /// Takes a block of a file apart.
    const DECODE: fn(&[u8], &mut Block);
}

/// Work that is generic over the kind of a format.
pub(crate) trait Visitor {
    type Output;

    fn visit<K: Kind>(self) -> Self::Output;
}

macro_rules! formats {
    (
        dense { $($(#[$dense_doc:meta])* $dense:ident = $dense_spec:path,)* }
        codes { $($(#[$doc:meta])* $variant:ident $(as $twin:ident)? = $spec:path,)* }
    ) => {
        /// Storage format of a weight matrix, as GGUF and safetensors define it. A row is a whole number of blocks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(non_camel_case_types, reason = "formats are spelled as ggml spells them")]
        pub enum WeightFormat {
            $($(#[$dense_doc])* $dense,)*
            $($(#[$doc])* $variant,)*
        }

        /// The formats of codes as types.
        #[expect(non_camel_case_types, reason = "formats are spelled as ggml spells them")]
        pub(crate) mod kinds {
            use super::{Block, Coding, Kind, WeightFormat};

            $(
                pub(crate) struct $variant;

                impl Kind for $variant {
                    const CODING: Coding = WeightFormat::$variant.coding().expect("a format of codes");
                    const BLOCK_BYTES: usize = WeightFormat::$variant.block_bytes();
                    const DECODE: fn(&[u8], &mut Block) = WeightFormat::$variant.decoder().expect("a format of codes");
                }
            )*
        }

        impl WeightFormat {
            /// Every format, in declaration order.
            pub const ALL: [Self; [$(stringify!($dense),)* $(stringify!($variant),)*].len()] =
                [$(Self::$dense,)* $(Self::$variant,)*];

            pub(crate) const fn spec(self) -> &'static Spec {
                match self {
                    $(Self::$dense => &$dense_spec,)*
                    $(Self::$variant => &$spec,)*
                }
            }

            /// Calls the visitor for the kind of a format of codes.
            ///
            /// # Panics
            /// If the format is dense.
            #[inline]
            pub(crate) fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$dense => unreachable!("{self} has no codes"),)*
                    $(Self::$variant => visitor.visit::<kinds::$variant>(),)*
                }
            }

            /// As [`visit`](Self::visit), for a format of the same coding that stands for several, so that one kernel
            /// serves them: what is packed does not say how it lay in a file.
            #[inline]
            pub(crate) fn visit_coding<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $($(Self::$variant => Self::$twin.visit(visitor),)?)*
                    format => format.visit(visitor),
                }
            }

            /// Formats and those that stand for them, [`visit_coding`](Self::visit_coding).
            #[cfg(test)]
            const TWINS: &[[Self; 2]] = &[$($([Self::$variant, Self::$twin],)?)*];
        }
    };
}

formats! {
    dense {
        /// IEEE single.
        F32 = dense::F32,
        /// IEEE half.
        F16 = dense::F16,
        /// The upper half of an IEEE single.
        BF16 = dense::BF16,
    }
    codes {
        /// Blocks of 32: f16 scale `d`, 32 signed bytes `q`; value `q * d`.
        Q8_0 = q8_0::SPEC,
        /// Blocks of 32: f16 scale `d`, 32 nibbles `q`; value `(q - 8) * d`.
        Q4_0 = q4_0::SPEC,
        /// Blocks of 32: f16 scale `d`, f16 minimum `m`, 32 nibbles `q`; value `q * d + m`.
        Q4_1 = q4_1::SPEC,
        /// Blocks of 256: f16 units `d` and `dmin`; each 32 nibbles `q` have 6-bit `s` and `m`; value
        /// `q * s * d - m * dmin`.
        Q4_K = q4_k::SPEC,
        /// Blocks of 256: f16 unit `d`; each 16 codes `q` of 6 bits have a signed byte `s`; value `(q - 32) * s * d`.
        Q6_K = q6_k::SPEC,
        /// Blocks of 32: f16 scale `d`, 32 codes `q` of 5 bits; value `(q - 16) * d`.
        Q5_0 = q5_0::SPEC,
        /// Blocks of 32: f16 scale `d`, f16 minimum `m`, 32 codes `q` of 5 bits; value `q * d + m`.
        Q5_1 = q5_1::SPEC,
        /// As `Q4_K`, with codes of 5 bits.
        Q5_K = q5_k::SPEC,
        /// Blocks of 256: f16 units `d` and `dmin`; each 16 codes `q` of 2 bits have 4-bit `s` and `m`; value
        /// `q * s * d - m * dmin`.
        Q2_K = q2_k::SPEC,
        /// Blocks of 256: f16 unit `d`; each 16 codes `q` of 3 bits have a 6-bit `s`; value `(q - 4) * (s - 32) * d`.
        Q3_K = q3_k::SPEC,
        /// Blocks of 32: f16 scale `d`, 32 nibbles that choose one of 16 values `v`; value `v * d`.
        IQ4_NL = iq4_nl::SPEC,
        /// Blocks of 256: f16 unit `d`; each 32 nibbles, which choose as in `IQ4_NL`, have a 6-bit `s`; value
        /// `v * (s - 32) * d`.
        IQ4_XS = iq4_xs::SPEC,
        /// Blocks of 32: a power of two `d`, 32 floats of 4 bits `q`; value `q * d`.
        MXFP4 = mxfp4::SPEC,
        /// Blocks of 32: each 16 floats of 4 bits `q` have a bf16 scale `d`; value `q * d`.
        NVFP4 = nvfp4::SPEC,
        /// Blocks of 256: f16 unit `d`; each 8 magnitudes `v` (8, 25 or 43) are one of 256 vectors, with signs; each 32 have
        /// a 4-bit `s`; value `v * (2 s + 1) * d / 8`.
        IQ2_XXS as IQ2_XS = iq2_xxs::SPEC,
        /// As `IQ2_XXS`, one of 512 vectors; each 16 have a 4-bit `s`.
        IQ2_XS = iq2_xs::SPEC,
        /// As `IQ2_XS`, one of 1,024 vectors.
        IQ2_S as IQ2_XS = iq2_s::SPEC,
        /// Blocks of 256: f16 unit `d`; each 4 magnitudes `v` (4 to 62) are one of 256 vectors, with signs; each 32 have a
        /// 4-bit `s`; value `v * (2 s + 1) * d / 4`.
        IQ3_XXS = iq3_xxs::SPEC,
        /// As `IQ3_XXS`, one of 512 vectors of odd `v` up to 15; value `v * (2 s + 1) * d`.
        IQ3_S = iq3_s::SPEC,
        /// Blocks of 256: f16 unit `d`; each 8 values `v` of -1, 0 and 1 are one of 2,048 vectors; each 32 have a 3-bit `s`
        /// and a sign; value `(v +- 1/8) * (2 s + 1) * d`.
        IQ1_S = iq1_s::SPEC,
        /// As `IQ1_S`; each 8 have a sign, each 16 an `s`.
        IQ1_M as IQ1_S = iq1_m::SPEC,
    }
}

impl WeightFormat {
    /// Elements in one block.
    pub const fn block_len(self) -> usize {
        self.spec().block_len
    }

    /// Bytes of one block in a file.
    pub const fn block_bytes(self) -> usize {
        self.spec().block_bytes
    }

    /// Bytes of a row of `columns` elements; `None` if `columns` is not a whole number of blocks or overflows.
    pub const fn row_bytes(self, columns: usize) -> Option<usize> {
        if columns.is_multiple_of(self.block_len()) {
            (columns / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }

    /// Lower-case name: `f32`, `q4_1`.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Number of the element type in GGUF; `None` where files have the format in other blocks.
    pub const fn ggml_type(self) -> Option<u32> {
        self.spec().ggml_type
    }

    /// The format of an element type of GGUF, if it is one of ours.
    pub fn of_ggml_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.ggml_type() == Some(number))
    }

    /// The formats that GGUF files have as they are, in declaration order.
    pub fn of_gguf() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|format| format.ggml_type().is_some())
    }

    /// Whether every element is a floating-point number of its own.
    pub const fn is_dense(self) -> bool {
        self.coding().is_none()
    }

    /// What the codes mean; `None` for a dense format.
    pub(crate) const fn coding(self) -> Option<Coding> {
        match self.spec().elements {
            Elements::Dense { .. } => None,
            Elements::Codes { coding, .. } => Some(coding),
        }
    }

    const fn decoder(self) -> Option<fn(&[u8], &mut Block)> {
        match self.spec().elements {
            Elements::Dense { .. } => None,
            Elements::Codes { decode, .. } => Some(decode),
        }
    }

    /// Writes the f32 values of one row.
    ///
    /// # Panics
    /// If `bytes` is not exactly the row of `out.len()` columns.
    pub fn dequantise_row(self, bytes: &[u8], out: &mut [f32]) {
        let expected = self.row_bytes(out.len());
        assert_eq!(Some(bytes.len()), expected, "a row of {} {self} values", out.len());
        let blocks = bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_len()));
        match &self.spec().elements {
            Elements::Dense { read, .. } => blocks.for_each(|(bytes, out)| out[0] = read(bytes)),
            Elements::Codes { coding, decode, .. } => {
                let mut block = Block::EMPTY;
                for (bytes, out) in blocks {
                    decode(bytes, &mut block);
                    coding.values(&block, out);
                }
            }
        }
    }

    /// Appends one row in this format: the encoder of the substitute drafter and of the tests. Each block is rounded
    /// to nearest as ggml's reference encoder does; formats with sub-blocks without its search for better scales.
    ///
    /// # Panics
    /// If `values` is not a whole number of blocks.
    pub fn quantise_row(self, values: &[f32], out: &mut Vec<u8>) {
        assert!(values.len().is_multiple_of(self.block_len()), "{} values in {self}", values.len());
        match &self.spec().elements {
            Elements::Dense { write, .. } => values.iter().for_each(|value| write(*value, out)),
            Elements::Codes { encode, .. } => {
                values.chunks_exact(self.block_len()).for_each(|values| encode(values, out));
            }
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Exact value of an IEEE half, without branches so that loops over it vectorise.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let magnitude = (bits & 0x7fff) << 13;
    // 2^112 moves the exponent bias from 15 to 127 and normalises subnormals.
    let finite = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let magnitude = if bits & 0x7c00 == 0x7c00 { special } else { finite };
    f32::from_bits(magnitude | (bits & 0x8000) << 16)
}

/// Exact value of a bfloat16.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// A weight matrix as it lies in a model file: row-major `[rows = N outputs, columns = K inputs]`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    format: WeightFormat,
    rows: usize,
    columns: usize,
    bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// If a dimension is 0, `columns` is not a whole number of blocks, or `bytes` has another length.
    pub fn new(
        format: WeightFormat,
        rows: usize,
        columns: usize,
        bytes: &'a [u8],
    ) -> Result<Self, MatrixError> {
        if rows == 0 || columns == 0 {
            return Err(MatrixError::Empty { rows, columns });
        }
        let expected = format
            .row_bytes(columns)
            .ok_or(MatrixError::PartialBlock { format, columns })?
            .checked_mul(rows)
            .ok_or(MatrixError::TooLarge { rows, columns })?;
        if bytes.len() != expected {
            return Err(MatrixError::Length { format, rows, columns, expected, found: bytes.len() });
        }
        Ok(Self { format, rows, columns, bytes })
    }

    /// Format of every row.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Outputs, `N`.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs, `K`.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The whole matrix as stored.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of row `n`.
    pub fn row(&self, n: usize) -> &'a [u8] {
        let row_bytes = self.bytes.len() / self.rows;
        &self.bytes[n * row_bytes..][..row_bytes]
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} [{}, {}])", self.format, self.rows, self.columns)
    }
}

/// Why bytes are not a matrix: the model file or the reading of its header is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A dimension is zero.
    #[error("a weight matrix of shape [{rows}, {columns}] is empty; expected both dimensions above 0")]
    Empty {
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
    },
    /// A row would end inside a block.
    #[error(
        "{columns} columns are not a whole number of {format} blocks of {}; store this tensor in another format",
        format.block_len()
    )]
    PartialBlock {
        /// Format of the file.
        format: WeightFormat,
        /// Inputs.
        columns: usize,
    },
    /// The size overflows.
    #[error(
        "a weight matrix of shape [{rows}, {columns}] does not fit an address space; the file is damaged"
    )]
    TooLarge {
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
    },
    /// The byte count is wrong.
    #[error(
        "a {format} matrix of shape [{rows}, {columns}] takes {expected} bytes, found {found}; the file is damaged or \
         cut"
    )]
    Length {
        /// Format of the file.
        format: WeightFormat,
        /// Outputs.
        rows: usize,
        /// Inputs.
        columns: usize,
        /// Bytes the shape needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

#[cfg(test)]
mod tests;
