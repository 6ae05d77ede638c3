//! The numbers of recorded steps, field by field: numbers of a field deflate better side by side than step by step.
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};
use ygg_profiler::{Candidate, Expansion, LiveStep, LiveTrace, StepTrace, Trace};

use crate::storage::SealError;

/// Bytes of a number.
const BYTES: usize = 4;

/// The numbers of one field, read from the first on. Stored by significance: the lowest byte of every number, then the
/// next, ...
#[derive(Debug, Default)]
struct Column {
    numbers: Vec<u32>,
    next: usize,
}

impl Column {
    fn push(&mut self, number: u32) {
        self.numbers.push(number);
    }

    fn next(&mut self) -> Result<u32, SealError> {
        let number = self.numbers.get(self.next).ok_or_else(|| self.too_short(1))?;
        self.next += 1;
        Ok(*number)
    }

    fn next_list(&mut self, length: u32) -> Result<Vec<u32>, SealError> {
        let length = length as usize;
        let rest = &self.numbers[self.next..];
        let list = rest.get(..length).ok_or_else(|| self.too_short(length))?;
        self.next += length;
        Ok(list.to_vec())
    }

    fn too_short(&self, wanted: usize) -> SealError {
        let found = format!("{} of them", self.numbers.len() - self.next);
        SealError::new(format!("{wanted} more numbers of the recorded steps"), found)
    }

    /// That all were read.
    fn end(&self) -> Result<(), SealError> {
        match self.numbers.len() - self.next {
            0 => Ok(()),
            more => Err(SealError::new("the end of the recorded steps", format!("{more} more numbers"))),
        }
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let byte_of_all = |place: usize| self.numbers.iter().map(move |number| number.to_le_bytes()[place]);
        let bytes: Vec<u8> = (0..BYTES).flat_map(byte_of_all).collect();
        serializer.serialize_bytes(&bytes)
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Planes)
    }
}

/// Reads a column.
struct Planes;

impl Visitor<'_> for Planes {
    type Value = Column;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("numbers of four bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Column, E> {
        let count = bytes.len() / BYTES;
        if bytes.len() != count * BYTES {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        let number = |i| u32::from_le_bytes(std::array::from_fn(|place| bytes[place * count + i]));
        Ok(Column { numbers: (0..count).map(number).collect(), next: 0 })
    }
}

/// A field of lists: their lengths, and the numbers of all.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Lists {
    lengths: Column,
    numbers: Column,
}

impl Lists {
    fn push(&mut self, list: impl ExactSizeIterator<Item = u32>) {
        self.lengths.push(u32::try_from(list.len()).expect("recordings are small"));
        self.numbers.numbers.extend(list);
    }

    fn next(&mut self) -> Result<Vec<u32>, SealError> {
        self.numbers.next_list(self.lengths.next()?)
    }

    fn end(&self) -> Result<(), SealError> {
        self.lengths.end()?;
        self.numbers.end()
    }
}

/// Parts of 1 that log-probabilities are counted in: they are differences of logits, whose last bit stands for about as
/// much, less a constant of the node.
const GRAIN: f64 = (1 << 20) as f64;
/// Added to what rounding leaves, a few bits up or down, so that it has one byte.
const MIDDLE: u32 = 1 << 7;

/// A field of lists of falling log-probabilities: the first of each, then grains from each to the next, the same for
/// every head over the vocabulary, and by how many bits the number so found is off.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LogProbs {
    lengths: Column,
    firsts: Column,
    grains: Column,
    rests: Column,
}

impl LogProbs {
    fn push(&mut self, mut list: impl ExactSizeIterator<Item = f32>) {
        self.lengths.push(u32::try_from(list.len()).expect("recordings are small"));
        let Some(first) = list.next() else { return };
        self.firsts.push(first.to_bits());
        let mut before = 0;
        for number in list {
            let grains = ((f64::from(first) - f64::from(number)) * GRAIN).round() as u32;
            self.grains.push(grains.wrapping_sub(before));
            let rest = number.to_bits().wrapping_sub(below(first, grains).to_bits());
            self.rests.push(rest.wrapping_add(MIDDLE));
            before = grains;
        }
    }

    fn next(&mut self) -> Result<Vec<f32>, SealError> {
        let length = self.lengths.next()?;
        let Some(others) = length.checked_sub(1) else { return Ok(Vec::new()) };
        let first = f32::from_bits(self.firsts.next()?);
        let mut grains = 0_u32;
        let (distances, rests) = (self.grains.next_list(others)?, self.rests.next_list(others)?);
        let others = distances.into_iter().zip(rests).map(|(distance, rest)| {
            grains = grains.wrapping_add(distance);
            f32::from_bits(below(first, grains).to_bits().wrapping_add(rest).wrapping_sub(MIDDLE))
        });
        Ok(std::iter::once(first).chain(others).collect())
    }

    fn end(&self) -> Result<(), SealError> {
        [&self.lengths, &self.firsts, &self.grains, &self.rests].into_iter().try_for_each(Column::end)
    }
}

/// The number nearest to that many grains below another.
fn below(first: f32, grains: u32) -> f32 {
    (f64::from(first) - f64::from(grains) / GRAIN) as f32
}

/// The steps of traces: how many every prompt has, and after how many tokens they stand, trace by trace; then every
/// field of all steps, in which steps of the same place stand [side by side](side_by_side).
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StepColumns {
    steps: Column,
    contexts: Column,
    parents: Lists,
    tokens: Lists,
    verified: Lists,
    predicted: Lists,
    expanded: Lists,
    /// Of every expanded node.
    candidates: Lists,
    log_probs: LogProbs,
}

/// Where a step stands: temperature, place of the prompt, committed tokens, place of the trace.
type Place = (u32, usize, u32, usize);

/// The steps in the order of their places: drafters of one model offer much the same after the same tokens.
fn side_by_side<S>(mut steps: Vec<(Place, S)>) -> impl Iterator<Item = S> {
    steps.sort_by_key(|(place, _)| *place);
    steps.into_iter().map(|(_, step)| step)
}

impl StepColumns {
    /// The steps of `traces`.
    pub(super) fn of(traces: &[Trace]) -> Self {
        let mut columns = Self::default();
        let mut steps = Vec::new();
        for (number, trace) in traces.iter().enumerate() {
            for (prompt, of) in trace.prompts.iter().enumerate() {
                columns.steps.push(u32::try_from(of.steps.len()).expect("recordings are small"));
                for step in &of.steps {
                    columns.contexts.push(step.context);
                    steps.push(((trace.temperature.to_bits(), prompt, step.context, number), step));
                }
            }
        }
        side_by_side(steps).for_each(|step| columns.push(step));
        columns
    }

    fn push(&mut self, step: &StepTrace) {
        let StepTrace { context: _, parents, tokens, expanded, verified, predicted } = step;
        self.parents.push(parents.iter().copied());
        self.tokens.push(tokens.iter().copied());
        self.verified.push(verified.iter().copied());
        self.predicted.push(predicted.iter().map(|number| number.to_bits()));
        self.expanded.push(expanded.iter().map(|expansion| expansion.node));
        for Expansion { node: _, candidates } in expanded {
            self.candidates.push(candidates.iter().map(|candidate| candidate.token));
            self.log_probs.push(candidates.iter().map(|candidate| candidate.log_prob));
        }
    }

    /// Gives the prompts of `traces` their steps.
    ///
    /// # Errors
    /// [`SealError`] where there are fewer numbers than steps need, or more.
    pub(super) fn fill(mut self, traces: &mut [Trace]) -> Result<(), SealError> {
        let mut steps = Vec::new();
        for (number, trace) in traces.iter_mut().enumerate() {
            for (prompt, of) in trace.prompts.iter_mut().enumerate() {
                let contexts = self.contexts.next_list(self.steps.next()?)?;
                of.steps = contexts.into_iter().map(|context| StepTrace { context, ..EMPTY }).collect();
                let place = |step: &StepTrace| (trace.temperature.to_bits(), prompt, step.context, number);
                steps.extend(of.steps.iter_mut().map(|step| (place(step), step)));
            }
        }
        side_by_side(steps).try_for_each(|step| self.next(step))?;
        let Self { steps, contexts, parents, tokens, verified, predicted, expanded, candidates, log_probs } =
            self;
        [steps, contexts].iter().try_for_each(Column::end)?;
        [parents, tokens, verified, predicted, expanded, candidates].iter().try_for_each(Lists::end)?;
        log_probs.end()
    }

    fn next(&mut self, step: &mut StepTrace) -> Result<(), SealError> {
        let StepTrace { context: _, parents, tokens, expanded, verified, predicted } = step;
        *parents = self.parents.next()?;
        *tokens = self.tokens.next()?;
        *verified = self.verified.next()?;
        *predicted = self.predicted.next()?.into_iter().map(f32::from_bits).collect();
        for node in self.expanded.next()? {
            let (tokens, log_probs) = (self.candidates.next()?, self.log_probs.next()?);
            if tokens.len() != log_probs.len() {
                let expected = format!("{} log-probabilities of a node", tokens.len());
                return Err(SealError::new(expected, log_probs.len().to_string()));
            }
            let candidates = tokens.into_iter().zip(log_probs).map(Candidate::from).collect();
            expanded.push(Expansion { node, candidates });
        }
        Ok(())
    }
}

/// A step without lists.
const EMPTY: StepTrace = StepTrace {
    context: 0,
    parents: Vec::new(),
    tokens: Vec::new(),
    expanded: Vec::new(),
    verified: Vec::new(),
    predicted: Vec::new(),
};

/// The steps of recordings of drafters that learn, in their order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LiveColumns {
    /// Of every prompt.
    steps: Column,
    contexts: Column,
    parents: Lists,
    tokens: Lists,
    values: Lists,
    pinned: Lists,
    verified: Lists,
}

impl LiveColumns {
    /// The steps of `traces`.
    pub(super) fn of(traces: &[LiveTrace]) -> Self {
        let mut columns = Self::default();
        for prompt in traces.iter().flat_map(|trace| &trace.prompts) {
            columns.steps.push(u32::try_from(prompt.steps.len()).expect("recordings are small"));
            for LiveStep { context, parents, tokens, values, pinned, verified } in &prompt.steps {
                columns.contexts.push(*context);
                columns.parents.push(parents.iter().copied());
                columns.tokens.push(tokens.iter().copied());
                columns.values.push(values.iter().map(|number| number.to_bits()));
                columns.pinned.push(pinned.iter().copied());
                columns.verified.push(verified.iter().copied());
            }
        }
        columns
    }

    /// As [`StepColumns::fill`].
    pub(super) fn fill(mut self, traces: &mut [LiveTrace]) -> Result<(), SealError> {
        for prompt in traces.iter_mut().flat_map(|trace| &mut trace.prompts) {
            let contexts = self.contexts.next_list(self.steps.next()?)?;
            prompt.steps =
                contexts.into_iter().map(|context| self.next(context)).collect::<Result<_, _>>()?;
        }
        let Self { steps, contexts, parents, tokens, values, pinned, verified } = self;
        [steps, contexts].iter().try_for_each(Column::end)?;
        [parents, tokens, values, pinned, verified].iter().try_for_each(Lists::end)
    }

    fn next(&mut self, context: u32) -> Result<LiveStep, SealError> {
        Ok(LiveStep {
            context,
            parents: self.parents.next()?,
            tokens: self.tokens.next()?,
            values: self.values.next()?.into_iter().map(f32::from_bits).collect(),
            pinned: self.pinned.next()?,
            verified: self.verified.next()?,
        })
    }
}
