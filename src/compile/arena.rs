//! Where every value lives: offsets in one arena, reused as soon as a value is dead.
//!
//! - Values that share bytes share one *block*: slices are views of what they slice, a residual sum in place keeps
//!   the place of its residual. So the residual stream has one offset through all groups.
//! - A block is live from the step that makes its first value to the last step that reads any of them, or to the end if
//!   one of them is kept, whichever groups are skipped: leaving steps out only shortens lives. Blocks whose lives
//!   overlap have disjoint bytes.
//! - Blocks start at the device's alignment; rows are padded to [`ROW_ELEMENTS`], so every row starts on a cache line.
//! - Placement: largest block first, each at the lowest offset that is free all its life.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    CompileError,
    in_place::{replaced, viewed},
};
use crate::ir::{DeviceSpec, Dtype, Graph, Op, Region, Rows, ValueId};

/// Row strides are multiples of this many f32: 64 bytes.
const ROW_ELEMENTS: usize = 16;

/// How values get their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Bytes are reused as soon as nothing needs them, and residual sums are in place.
    Reused,
    /// Every value but a view has bytes of its own.
    #[cfg(feature = "planner")]
    Apart,
}

/// Regions of all values that have bytes.
pub(super) struct Layout {
    pub(super) regions: BTreeMap<ValueId, Region>,
    pub(super) arena_bytes: usize,
}

/// Bytes that one value, its views and the sums that replace it share.
struct Block {
    owner: ValueId,
    row_stride: usize,
    bytes: usize,
    first: usize,
    last: usize,
    offset: usize,
}

/// Lays out a bound graph whose values run in `order`.
///
/// # Errors
/// [`CompileError::Alignment`], [`CompileError::TooLarge`].
pub(super) fn lay_out(
    graph: &Graph,
    order: &[ValueId],
    device: &DeviceSpec,
    placement: Placement,
) -> Result<Layout, CompileError> {
    let alignment = device.arena_alignment;
    if !alignment.is_power_of_two() || alignment < size_of::<f32>() {
        return Err(CompileError::Alignment { found: alignment });
    }
    let mut blocks = blocks(graph, order, alignment, placement)?;
    let arena_bytes = place(&mut blocks).map_err(|owner| too_large(graph, owner))?;
    let by_owner: BTreeMap<_, _> = blocks.iter().map(|block| (block.owner, block)).collect();
    let regions = with_bytes(graph, order).map(|value| {
        let (owner, column) = home(graph, value, placement);
        let (block, shape) = (by_owner[&owner], graph.node(value).value_type);
        let region = Region {
            value: viewed(graph, value),
            offset_bytes: block.offset + column * size_of::<f32>(),
            row_stride: block.row_stride,
            rows: row_count(shape.rows),
            columns: shape.columns,
        };
        (value, region)
    });
    Ok(Layout { regions: regions.collect(), arena_bytes })
}

fn with_bytes<'a>(graph: &'a Graph, order: &'a [ValueId]) -> impl Iterator<Item = ValueId> + 'a {
    order.iter().copied().filter(|value| graph.node(*value).value_type.dtype == Dtype::F32)
}

/// The owner of the bytes a value lives in, and the value's first column there.
fn home(graph: &Graph, mut value: ValueId, placement: Placement) -> (ValueId, usize) {
    let mut column = 0;
    loop {
        if let Op::Slice { start, .. } = graph.node(value).op {
            column += start;
            value = graph.operands(value)[0];
        } else if let (Placement::Reused, Some(residual)) = (placement, replaced(graph, value)) {
            value = residual;
        } else {
            return (value, column);
        }
    }
}

fn row_count(rows: Rows) -> usize {
    match rows {
        Rows::Fixed(rows) => rows,
        Rows::Width | Rows::Outputs => unreachable!("bind_width has run"),
    }
}

fn too_large(graph: &Graph, value: ValueId) -> CompileError {
    let width = graph.binding().map_or(0, |binding| binding.width);
    CompileError::TooLarge { width, value: value.to_string() }
}

/// The blocks with their sizes and lives, not yet placed.
fn blocks(
    graph: &Graph,
    order: &[ValueId],
    alignment: usize,
    placement: Placement,
) -> Result<Vec<Block>, CompileError> {
    let step: BTreeMap<_, _> = order.iter().enumerate().map(|(i, v)| (*v, i)).collect();
    let mut blocks: Vec<Block> = Vec::new();
    let mut number = BTreeMap::new();
    for value in with_bytes(graph, order) {
        let (owner, _) = home(graph, value, placement);
        let last_read = graph.readers(value).iter().map(|reader| step[reader]).max();
        let last = if graph.is_kept(value) { Some(usize::MAX) } else { last_read };
        let last = last.unwrap_or(step[&value]);
        let (first, last) = match placement {
            Placement::Reused => (step[&owner], last),
            #[cfg(feature = "planner")]
            Placement::Apart => (0, usize::MAX),
        };
        if let Some(block) = number.get(&owner) {
            let block: &mut Block = &mut blocks[*block];
            block.last = block.last.max(last);
            continue;
        }
        let shape = graph.node(owner).value_type;
        let row_stride = shape.columns.checked_next_multiple_of(ROW_ELEMENTS);
        let bytes = row_stride
            .and_then(|stride| stride.checked_mul(row_count(shape.rows))?.checked_mul(size_of::<f32>()))
            .and_then(|bytes| bytes.checked_next_multiple_of(alignment));
        let (Some(row_stride), Some(bytes)) = (row_stride, bytes) else {
            return Err(too_large(graph, owner));
        };
        number.insert(owner, blocks.len());
        blocks.push(Block { owner, row_stride, bytes, first, last, offset: 0 });
    }
    Ok(blocks)
}

/// Gives every block its offset and returns the arena's size, or the owner of a block that does not fit.
fn place(blocks: &mut [Block]) -> Result<usize, ValueId> {
    blocks.sort_by_key(|block| (Reverse(block.bytes), block.first, block.owner));
    let mut arena_bytes = 0;
    for i in 0..blocks.len() {
        let (placed, rest) = blocks.split_at_mut(i);
        let block = &mut rest[0];
        let mut live: Vec<_> = placed
            .iter()
            .filter(|other| other.first <= block.last && block.first <= other.last)
            .map(|other| (other.offset, other.offset + other.bytes))
            .collect();
        live.sort_unstable();
        for (start, end) in live {
            if start >= block.offset && start - block.offset >= block.bytes {
                break;
            }
            block.offset = block.offset.max(end);
        }
        let end = block.offset.checked_add(block.bytes).ok_or(block.owner)?;
        arena_bytes = arena_bytes.max(end);
    }
    Ok(arena_bytes)
}
