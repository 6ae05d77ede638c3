//! The arithmetic that products of codes are written in, over the vectors of an instruction set.

use crate::format::Unit;

/// How the instructions of a processor multiply codes with activations, which are signed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum ByteProducts {
    /// Unsigned codes; sums have 32 bits.
    Unsigned,
    /// Signed codes; sums have 32 bits. Codes of up to seven bits are as good as unsigned, others are taken with their
    /// signs.
    #[allow(dead_code, reason = "of aarch64 alone")]
    Signed,
    /// Sums have 16 bits, two for each output, so that codes must have at most six bits; others are taken with their
    /// signs, whose sums have 32.
    #[allow(dead_code, reason = "of x86-64 alone, and of tests")]
    Split,
}

impl ByteProducts {
    /// Whether codes of more than six bits are taken with their signs.
    pub(in crate::cpu) const fn signs_wide(self) -> bool {
        matches!(self, Self::Signed | Self::Split)
    }

    /// Whether sums have 16 bits.
    pub(in crate::cpu) const fn is_split(self) -> bool {
        matches!(self, Self::Split)
    }
}

/// Operations on vectors of [`Vector::LANES`] outputs. A value proves that the processor has the instructions.
///
/// A vector of bytes holds four inputs of each output, side by side. What does not need memory is safe.
pub(in crate::cpu) trait Vector: Copy {
    /// Outputs in a vector: 8 or 16.
    const LANES: usize;
    /// How bytes are multiplied.
    const PRODUCTS: ByteProducts;
    /// Rows up to which each number of rows has a kernel of its own, whose sums stay in registers: over formats with
    /// groups, and over others. None where the compiler chooses the registers.
    const FEW: [usize; 2];
    /// Whether sums of two rows can be had at once, by [`Vector::two_rows`].
    const PAIRS: bool = false;
    /// Four bytes, or two 16-bit numbers, for each output.
    type Bytes: Copy;
    /// A sum of products in progress.
    type Sum: Copy;
    /// A 32-bit integer for each output.
    type Ints: Copy;
    /// A small integer for each output, in the form that sums are scaled by.
    type Scale: Copy;
    /// An f32 for each output.
    type Floats: Copy;

    /// # Safety
    /// `4 * LANES` bytes are readable.
    unsafe fn bytes(self, at: *const u8) -> Self::Bytes;
    /// The bits of a mask in every byte.
    fn and(self, bytes: Self::Bytes, mask: u8) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Less the same in every byte, modulo 256.
    fn minus(self, bytes: Self::Bytes, offset: u8) -> Self::Bytes;
    /// Towards higher bits; what enters a byte from its neighbour is to be masked.
    fn up<const BITS: i32>(self, bytes: Self::Bytes) -> Self::Bytes;
    /// Towards lower bits; what enters a byte from its neighbour is to be masked.
    fn down<const BITS: i32>(self, bytes: Self::Bytes) -> Self::Bytes;
    /// Entries of a table by bytes below 16.
    fn look_up(self, table: &[u8; 16], bytes: Self::Bytes) -> Self::Bytes;

    fn no_sum(self) -> Self::Sum;
    /// The sum of a row that it was prepared with, for every output.
    ///
    /// # Safety
    /// Four bytes are readable.
    unsafe fn start(self, at: *const u8) -> Self::Sum;
    /// Adds the products of unsigned codes and four signed activations.
    ///
    /// # Safety
    /// Four bytes are readable.
    unsafe fn dot(self, sum: Self::Sum, codes: Self::Bytes, x: *const u8) -> Self::Sum;
    /// Adds the products of bytes with a sign, given their magnitudes too, where wide codes are taken so. Such a sum
    /// has 32 bits.
    ///
    /// # Safety
    /// Four bytes are readable.
    unsafe fn dot_signed(self, sum: Self::Sum, codes: [Self::Bytes; 2], x: *const u8) -> Self::Sum;
    /// For each of two rows, the sums of the products of eight vectors of codes, on from what they start with: by
    /// halves, of the first four and of the last four, or all in the first.
    ///
    /// # Safety
    /// Of each row 32 bytes are readable, and the vectors have [`Vector::PAIRS`].
    unsafe fn two_rows(
        self,
        _codes: &[Self::Bytes; 8],
        _rows: [*const u8; 2],
        _starts: [[Self::Sum; 2]; 2],
        _by_halves: bool,
    ) -> [[Self::Sum; 2]; 2] {
        unreachable!("vectors without products of two rows")
    }
    fn magnitudes(self, bytes: Self::Bytes) -> Self::Bytes;
    fn total(self, sum: Self::Sum) -> Self::Ints;
    /// The total of a sum by [`Vector::dot_signed`].
    fn total_signed(self, sum: Self::Sum) -> Self::Ints;
    fn scaled(self, sum: Self::Sum, scale: Self::Scale) -> Self::Ints;
    fn no_ints(self) -> Self::Ints;
    fn add(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn times(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Unsigned bytes.
    ///
    /// # Safety
    /// `LANES` bytes are readable.
    unsafe fn unsigned(self, at: *const u8) -> Self::Scale;
    /// Signed bytes.
    ///
    /// # Safety
    /// `LANES` bytes are readable.
    unsafe fn signed(self, at: *const u8) -> Self::Scale;
    /// The low nibbles of bytes.
    ///
    /// # Safety
    /// `LANES` bytes are readable.
    unsafe fn low_nibbles(self, at: *const u8) -> Self::Scale;
    /// Two bytes for each output, as 16-bit numbers.
    ///
    /// # Safety
    /// `2 * LANES` bytes are readable.
    unsafe fn pairs(self, at: *const u8) -> Self::Bytes;
    /// The high nibbles of a byte at either place for each output, as 16-bit numbers.
    ///
    /// # Safety
    /// `LANES` bytes are readable at each.
    unsafe fn high_nibbles(self, first: *const u8, second: *const u8) -> Self::Bytes;
    /// The scale as an integer.
    fn scale(self, scale: Self::Scale) -> Self::Ints;
    /// The first or the second number of pairs.
    fn one_of_pair(self, pairs: Self::Bytes, i: usize) -> Self::Ints;
    /// Adds the products of pairs of 16-bit numbers with two of a row.
    ///
    /// # Safety
    /// Four bytes are readable.
    unsafe fn add_pairs(self, ints: Self::Ints, pairs: Self::Bytes, x: *const u8) -> Self::Ints;

    /// Writes 32 numbers as signed bytes, each the integer nearest to its product with a factor, the even one of two;
    /// gives, of the first and the last 16, the sums of the first two and of the last two of every four bytes. No
    /// product is beyond 127.
    fn encode(self, values: &[f32; 32], factor: f32, to: &mut [u8; 32]) -> [[i16; 2]; 2];

    fn zero(self) -> Self::Floats;
    /// # Safety
    /// `LANES` numbers of the type are readable.
    unsafe fn numbers(self, unit: Unit, at: *const u8) -> Self::Floats;
    /// An f32 for every output.
    ///
    /// # Safety
    /// Four bytes are readable.
    unsafe fn splat(self, at: *const u8) -> Self::Floats;
    /// The integers, rounded to nearest.
    fn floats(self, ints: Self::Ints) -> Self::Floats;
    /// Signed bytes, one of each output at a time.
    fn four_floats(self, bytes: Self::Bytes) -> [Self::Floats; 4];
    fn sum(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn product(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    fn fnma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// # Safety
    /// `LANES` numbers are readable.
    unsafe fn load(self, at: *const f32) -> Self::Floats;
    /// # Safety
    /// `LANES` numbers are writable.
    unsafe fn store(self, at: *mut f32, floats: Self::Floats);
    /// # Safety
    /// `LANES` numbers are readable.
    unsafe fn load_ints(self, at: *const i32) -> Self::Ints;
    /// # Safety
    /// `LANES` numbers are writable.
    unsafe fn store_ints(self, at: *mut i32, ints: Self::Ints);
}
