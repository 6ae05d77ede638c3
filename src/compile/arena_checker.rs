//! The judge of arenas: replays a program over a shadow of its memory and sees whether every read finds what it names.
//!
//! It knows nothing of lives, blocks or order: only what the steps say. The shadow tells of every 4-byte word which
//! element of which value was last written there, in runs of a row's columns. The idea of checking the result of an
//! allocation by replaying it instead of trusting the allocator is that of regalloc2's checker.

use std::{collections::BTreeMap, ops::Range};

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

/// Words in a row: which element of which value the first of them holds; later ones hold its next columns.
#[derive(Clone, Copy)]
struct Run {
    words: usize,
    value: ValueId,
    row: usize,
    column: usize,
}

/// Checks that a forward without the groups marked in `skipped` reads only what it means to read: every word of every
/// operand holds the value its region names, results overlap no operand but a residual replaced in place, all regions
/// are inside the arena, and what is left to be read is intact at the end. A residual sum of a skipped group
/// that is in place counts as its residual.
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
        runs: BTreeMap::new(),
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
    program.left().try_for_each(|region| replay.read(program.steps.len(), region))
}

const WORD: usize = size_of::<f32>();

struct Replay {
    arena_bytes: usize,
    /// What was written, by first word; runs do not overlap.
    runs: BTreeMap<usize, Run>,
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
        let rows = self.rows_of(index, &result)?;
        let residual = residual(step).filter(|residual| in_place(&result, residual));
        if matches!(step.op, Op::Linear { residual: true, .. }) && residual.is_none() {
            return Err(ArenaError::Moved { step: index, value: result.value });
        }
        for (operand, region) in step.operands.iter().enumerate() {
            let Some(region) = region.region() else { continue };
            let replaced = residual.is_some() && residual_place(&step.op) == Some(operand);
            if !replaced && rows.clone().any(|row| overlaps(&region, &row)) {
                return Err(ArenaError::Overlap { step: index, value: result.value, operand });
            }
        }
        for (row, words) in rows.enumerate() {
            self.write(&words, result.value, row);
        }
        Ok(())
    }

    /// Writes a row of a value, all columns of it, over what was there.
    fn write(&mut self, words: &Range<usize>, value: ValueId, row: usize) {
        let before = self.runs.range(..words.start).next_back().map(|(at, run)| (*at, *run));
        let within = self.runs.range(words.clone()).map(|(at, run)| (*at, *run));
        for (at, run) in before.into_iter().chain(within).collect::<Vec<_>>() {
            let end = at + run.words;
            if end <= words.start {
                continue;
            }
            self.runs.remove(&at);
            if at < words.start {
                self.runs.insert(at, Run { words: words.start - at, ..run });
            }
            if end > words.end {
                let covered = words.end - at;
                let rest = Run { words: run.words - covered, column: run.column + covered, ..run };
                self.runs.insert(words.end, rest);
            }
        }
        self.runs.insert(words.start, Run { words: words.len(), value, row, column: 0 });
    }

    /// The run that a word is in, and the column that the word holds.
    fn found(&self, word: usize) -> Option<(Run, usize)> {
        let (at, run) = self.runs.range(..=word).next_back()?;
        let into_run = word - at;
        (into_run < run.words).then_some((*run, run.column + into_run))
    }

    /// A region shows a value, or a run of its columns: then the first word tells which.
    fn read(&self, step: usize, region: &Region) -> Result<(), ArenaError> {
        let rows = self.rows_of(step, region)?;
        let value = self.stands_for.get(&region.value).copied().unwrap_or(region.value);
        let first = rows.clone().next().and_then(|words| self.found(words.start));
        let first_column = first.map_or(0, |(_, column)| column);
        for (row, words) in rows.enumerate() {
            let mut word = words.start;
            while word < words.end {
                let (column, found) = (word - words.start, self.found(word));
                match found {
                    Some((run, at)) if (run.value, run.row, at) == (value, row, first_column + column) => {
                        word += run.column + run.words - at;
                    }
                    _ => {
                        let found = found.map_or("nothing".to_owned(), |(run, column)| {
                            format!("{} row {} column {column}", run.value, run.row)
                        });
                        return Err(ArenaError::Lost { step, value: region.value, row, column, found });
                    }
                }
            }
        }
        Ok(())
    }

    /// The words of every row of a region.
    fn rows_of(
        &self,
        step: usize,
        region: &Region,
    ) -> Result<impl Iterator<Item = Range<usize>> + Clone + use<>, ArenaError> {
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
        Ok((0..rows).map(move |row| first + row * row_stride).map(move |word| word..word + columns))
    }
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

/// Whether a row of a lawful region has one of these words.
fn overlaps(region: &Region, words: &Range<usize>) -> bool {
    let first = region.offset_bytes / WORD;
    // The first row that ends after the words' start.
    let row = (words.start + 1).saturating_sub(first + region.columns).div_ceil(region.row_stride);
    row < region.rows && first + row * region.row_stride < words.end
}
