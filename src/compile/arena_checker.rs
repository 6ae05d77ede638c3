//! The judge of arenas: replays a program over a shadow of its memory and sees whether every read finds what it names.
//!
//! It knows nothing of lives, blocks or order: only what the steps say. Every 4-byte word of the shadow holds which
//! element of which value was last written there. The idea of checking the result of an allocation by replaying it
//! instead of trusting the allocator is that of regalloc2's checker.

use std::collections::BTreeMap;

use crate::ir::{Op, Program, Region, Step, ValueId};

/// A breach of the arena's law, with the step at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// The mask does not fit the program.
    #[error("skip mask: expected {expected} groups, found {found}")]
    Mask {
        /// Groups of the program.
        expected: usize,
        /// Groups of the mask.
        found: usize,
    },
    /// A region is not whole words inside the arena, in rows that do not overlap.
    #[error(
        "step {step}: region of {value}: expected whole words and rows within {arena_bytes} bytes, found {found}"
    )]
    Region {
        /// Index of the step; the number of steps for what is kept.
        step: usize,
        /// The value in the region.
        value: ValueId,
        /// Size of the arena.
        arena_bytes: usize,
        /// Offset, rows, stride and columns.
        found: String,
    },
    /// A read finds something else than the value it names.
    #[error("step {step}: row {row}, column {column}: expected {value}, found {found}")]
    Lost {
        /// Index of the step; the number of steps for what is kept.
        step: usize,
        /// The value expected.
        value: ValueId,
        /// Row of the region.
        row: usize,
        /// Column of the region.
        column: usize,
        /// What the word holds.
        found: String,
    },
    /// A result shares bytes with an operand of the same step and is no residual sum in place.
    #[error("step {step}: result {value} overlaps operand {operand}")]
    Overlap {
        /// Index of the step.
        step: usize,
        /// The result.
        value: ValueId,
        /// Place of the operand.
        operand: usize,
    },
    /// A linear op with a residual does not write where the residual is.
    #[error("step {step}: residual sum {value} is not in its residual's place")]
    Moved {
        /// Index of the step.
        step: usize,
        /// The result.
        value: ValueId,
    },
    /// An attention runs before its layer's append.
    #[error("step {step}: attention of layer {layer} before its append")]
    Cache {
        /// Index of the step.
        step: usize,
        /// The layer.
        layer: usize,
    },
}

/// Which element of which value a word holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Element {
    value: ValueId,
    row: u32,
    column: u32,
}

/// Checks that a forward without the groups marked in `skipped` reads only what it means to read: every word of every
/// operand holds the value its region names, results overlap no operand but a residual replaced in place, all regions
/// are inside the arena, and what is shown and the hidden rows are intact at the end. A residual sum of a skipped group that is in place
/// counts as its residual.
///
/// # Errors
/// The first breach, as [`ArenaError`].
pub fn check_arena(program: &Program, skipped: &[bool]) -> Result<(), ArenaError> {
    let groups = program.groups as usize;
    if skipped.len() != groups {
        return Err(ArenaError::Mask { expected: groups, found: skipped.len() });
    }
    let mut replay = Replay {
        arena_bytes: program.arena_bytes,
        words: vec![None; program.arena_bytes / WORD],
        stands_for: BTreeMap::new(),
        appended: vec![false; program.kv.layers],
    };
    for (i, step) in program.steps.iter().enumerate() {
        if step.group.is_some_and(|group| skipped[group.0 as usize]) {
            replay.skip(step);
        } else {
            replay.run(i, step)?;
        }
    }
    let kept = [Some(program.shown), program.hidden];
    kept.iter().flatten().try_for_each(|region| replay.read(program.steps.len(), region))
}

const WORD: usize = size_of::<f32>();

struct Replay {
    arena_bytes: usize,
    words: Vec<Option<Element>>,
    /// Sums of skipped groups and what is in their place.
    stands_for: BTreeMap<ValueId, ValueId>,
    appended: Vec<bool>,
}

impl Replay {
    fn skip(&mut self, step: &Step) {
        if let (Some(result), Some(residual)) = (step.result.region(), residual(step))
            && in_place(&result, &residual)
        {
            let stand_in = self.stands_for.get(&residual.value).copied().unwrap_or(residual.value);
            self.stands_for.insert(result.value, stand_in);
        }
    }

    fn run(&mut self, index: usize, step: &Step) -> Result<(), ArenaError> {
        for region in step.operands.iter().filter_map(|operand| operand.region()) {
            self.read(index, &region)?;
        }
        if let Op::AppendKv { layer, .. } = step.op {
            self.appended[layer] = true;
        }
        if let Op::Attention { layer, .. } = step.op
            && !self.appended[layer]
        {
            return Err(ArenaError::Cache { step: index, layer });
        }
        let Some(result) = step.result.region() else { return Ok(()) };
        let words = self.words_of(index, &result)?;
        let residual = residual(step).filter(|residual| in_place(&result, residual));
        if matches!(step.op, Op::Linear { residual: true, .. }) && residual.is_none() {
            return Err(ArenaError::Moved { step: index, value: result.value });
        }
        for (operand, region) in step.operands.iter().enumerate() {
            let Some(region) = region.region() else { continue };
            let replaced = residual.is_some() && residual_place(&step.op) == Some(operand);
            if !replaced && words.clone().any(|(word, ..)| covers(&region, word)) {
                return Err(ArenaError::Overlap { step: index, value: result.value, operand });
            }
        }
        for (word, row, column) in words {
            self.words[word] = Some(element(result.value, row, column));
        }
        Ok(())
    }

    /// A region shows a value, or a run of its columns: then the first word tells which.
    fn read(&self, step: usize, region: &Region) -> Result<(), ArenaError> {
        let words = self.words_of(step, region)?;
        let value = self.stands_for.get(&region.value).copied().unwrap_or(region.value);
        let first_column = words
            .clone()
            .next()
            .and_then(|(word, ..)| self.words[word])
            .map_or(0, |first| first.column as usize);
        for (word, row, column) in words {
            let found = self.words[word];
            if found != Some(element(value, row, first_column + column)) {
                let found = found.map_or("nothing".to_owned(), |e| {
                    format!("{} row {} column {}", e.value, e.row, e.column)
                });
                return Err(ArenaError::Lost { step, value: region.value, row, column, found });
            }
        }
        Ok(())
    }

    /// Every word of a region with its row and column.
    fn words_of(
        &self,
        step: usize,
        region: &Region,
    ) -> Result<impl Iterator<Item = (usize, usize, usize)> + Clone + use<>, ArenaError> {
        let Region { value, offset_bytes, row_stride, rows, columns } = *region;
        let end = rows
            .checked_sub(1)
            .and_then(|last| last.checked_mul(row_stride)?.checked_add(columns)?.checked_mul(WORD))
            .and_then(|bytes| bytes.checked_add(offset_bytes));
        let lawful = offset_bytes.is_multiple_of(WORD) && columns > 0 && row_stride >= columns;
        if !lawful || end.is_none_or(|end| end > self.arena_bytes / WORD * WORD) {
            let found = format!("[{rows}, {columns}] stride {row_stride} at {offset_bytes}");
            return Err(ArenaError::Region { step, value, arena_bytes: self.arena_bytes, found });
        }
        let first = offset_bytes / WORD;
        let all = (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)));
        Ok(all.map(move |(row, column)| (first + row * row_stride + column, row, column)))
    }
}

fn element(value: ValueId, row: usize, column: usize) -> Element {
    let narrow = |n: usize| u32::try_from(n).expect("rows and columns are below 2^32");
    Element { value, row: narrow(row), column: narrow(column) }
}

/// Which operand a residual sum may replace.
fn residual_place(op: &Op) -> Option<usize> {
    if let Op::Add = op {
        return Some(0);
    }
    matches!(op, Op::Linear { residual: true, .. }).then_some(1)
}

fn residual(step: &Step) -> Option<Region> {
    step.operands.get(residual_place(&step.op)?)?.region()
}

fn in_place(result: &Region, residual: &Region) -> bool {
    Region { value: residual.value, ..*result } == *residual
}

fn covers(region: &Region, word: usize) -> bool {
    word.checked_sub(region.offset_bytes / WORD).is_some_and(|from_start| {
        from_start / region.row_stride < region.rows && from_start % region.row_stride < region.columns
    })
}
