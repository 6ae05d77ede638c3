//! Products over weights of codes: in tiles over blocks of 256, else in vectors.

use super::Tiles;
use crate::{
    cpu::{
        activations::ProductOperands,
        avx512::{self, Zmm},
        codes::{Operands, Room, Sums, shapes, tiled},
    },
    format::{Coding, Kind, Visitor},
};

/// Rows from which on tiles are faster than vectors.
const FROM: usize = 5;

/// In tiles, few rows in vectors.
pub(super) struct InTiles<T> {
    /// The registers, and the rows that they are configured for.
    registers: Option<(T, usize)>,
    room: Room,
}

impl<T> InTiles<T> {
    pub(super) const fn new() -> Self {
        Self { registers: None, room: Room::EMPTY }
    }
}

impl<T: Tiles> InTiles<T> {
    /// Writes the results of a product: as many stored tiles as there are sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn products(&mut self, product: &ProductOperands<'_>, sums: &mut [Sums]) {
        let (format, rows) = (product.weights.format(), product.rows);
        let has_groups = format.coding().is_some_and(Coding::has_groups);
        if rows < FROM || !has_groups {
            return avx512::products(product, sums);
        }
        let registers = match &mut self.registers {
            Some((registers, configured)) if *configured == rows => registers,
            other => {
                // Released before they are configured again.
                *other = None;
                // SAFETY: whoever may call a linear on the processor's tiles holds a proof that they can be used.
                &mut other.insert((unsafe { T::configured(shapes(rows)) }, rows)).0
            }
        };
        format.visit_coding(Tiled { registers, operands: product.operands(0), room: &mut self.room, sums });
    }
}

/// Products of tiles that are stored, and a group in the layout of codes that the registers are configured for.
struct Tiled<'a, T> {
    registers: &'a mut T,
    operands: Operands,
    room: &'a mut Room,
    sums: &'a mut [Sums],
}

impl<T: Tiles> Visitor for Tiled<'_, T> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: only code of this tier makes one, and whoever runs it holds a proof of VNNI too; operands are as
        // promised.
        unsafe { products::<T, K>(self) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn products<T: Tiles, K: Kind>(of: Tiled<'_, T>) {
    if const { !K::CODING.has_groups() } {
        unreachable!("no tiles for blocks of 32");
    }
    // SAFETY: promised by the caller.
    unsafe { tiled::<Zmm, T, K>(Zmm::assume(), of.registers, of.operands, of.room, of.sums) }
}
