//! Kernels behind the logits of a forward: its candidates, by logits or under noise, and the tokens that are drawn.

use ygg_kernels::cuda::abi::{
    YGG_MERGE_THREADS, YGG_WARP, YggCandidates, YggNoise, YggNoisyRows, YggRace, YggRows, YggStep, YggValues,
};

use crate::ir::{HeadTokens, Op, Program, RowInputs};

use super::{
    super::BackendError,
    device::{Device, Launch},
    launches::Launches,
    layout::{kernel_rows, number},
    scratch::ranges,
};

/// What decides among the tokens of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decider {
    /// Its logits alone.
    Logits,
    /// Logits and noise.
    Noise,
}

impl Decider {
    /// That of the rows of a forward.
    pub(super) fn of(rows: &RowInputs) -> Self {
        if rows.noise().is_some() { Decider::Noise } else { Decider::Logits }
    }
}

/// One of a kind for each decider: greedy requests run no kernel of noise.
pub(super) struct PerDecider<T> {
    logits: T,
    noise: T,
}

impl<T> PerDecider<T> {
    pub(super) fn new(
        mut make: impl FnMut(Decider) -> Result<T, BackendError>,
    ) -> Result<Self, BackendError> {
        Ok(Self { logits: make(Decider::Logits)?, noise: make(Decider::Noise)? })
    }

    pub(super) fn of(&self, decider: Decider) -> &T {
        match decider {
            Decider::Logits => &self.logits,
            Decider::Noise => &self.noise,
        }
    }
}

/// Whether a program shows candidates.
pub(super) fn shows_candidates(program: &Program) -> bool {
    program.steps.iter().any(|step| matches!(step.op, Op::Candidates { .. }))
}

impl Launches<'_> {
    /// What finds the candidates of rows of logits: under noise, the logits become values first.
    pub(super) fn candidates(
        &self,
        step: YggStep,
        logits: YggRows,
        most: usize,
        tokens: Option<&HeadTokens>,
        out: YggRows,
    ) -> Result<Vec<Launch>, BackendError> {
        let ranges = ranges(logits.columns as usize);
        let [range_max, range_sum, range_count, range_values, range_ids] = self.at.scratch.ranges;
        let names = tokens.map_or(0, |tokens| self.weights.names(tokens)) as *const u32;
        let params = YggCandidates {
            step,
            logits,
            choice: self.input(self.at.words.choice).cast(),
            ranges: number(ranges),
            most: number(most),
            range_max: range_max as *mut f32,
            range_sum: range_sum as *mut f32,
            range_count: range_count as *mut u32,
            range_values: range_values as *mut f32,
            range_ids: range_ids as *mut u32,
            names,
            out,
        };
        let (rows, shared) = (logits.rows as usize, 2 * ranges * size_of::<u32>());
        let by_ranges = [ranges, rows, 1];
        let mut launches = Vec::with_capacity(3);
        if self.decider == Decider::Noise {
            let positions = self.input(self.at.words.positions);
            let noisy = YggNoisyRows { step, logits, noise: self.noise(), positions, names };
            launches.push(self.launch("ygg_noise", by_ranges, YGG_WARP, 0, noisy)?);
        }
        launches.push(self.launch("ygg_candidates_of_ranges", by_ranges, YGG_WARP, 0, params)?);
        launches.push(self.launch(
            "ygg_candidates_of_rows",
            [rows, 1, 1],
            YGG_MERGE_THREADS,
            shared,
            params,
        )?);
        Ok(launches)
    }

    /// What draws a token from every row of the program, in place of its best candidate.
    ///
    /// # Panics
    /// If the last step does not find candidates of the whole vocabulary: what the race reads would be gone.
    pub(super) fn race(&self) -> Result<[Launch; 2], BackendError> {
        let step = self.program.steps.last().expect("a program has steps");
        let Op::Candidates { head, tokens: None, .. } = &step.op else {
            panic!("candidates of all tokens, found {:?}", step.op)
        };
        let operand = self.rows(&step.operands[0].region().expect("the program's operand has bytes"));
        let logits = match head {
            None => operand,
            Some(head) => self.logits_of(operand.rows, self.weights.stack(&head.weights, None).outputs),
        };
        let [.., leaders] = self.at.scratch.ranges;
        let ranges = ranges(logits.columns as usize);
        let params = YggRace {
            logits,
            candidates: kernel_rows(self.at.arena, &self.program.shown),
            noise: self.noise(),
            positions: self.input(self.at.words.positions),
            ranges: number(ranges),
            leaders: leaders as *mut u32,
        };
        let rows = logits.rows as usize;
        Ok([
            self.launch("ygg_race_of_ranges", [ranges, rows, 1], YGG_WARP, 0, params)?,
            self.launch("ygg_race_of_rows", [rows, 1, 1], YGG_MERGE_THREADS, 0, params)?,
        ])
    }

    /// Rows of logits that are shown to nobody.
    pub(super) fn logits_of(&self, rows: u32, vocabulary: usize) -> YggRows {
        let columns = number(vocabulary);
        YggRows { data: self.at.scratch.logits as *mut f32, rows, columns, stride: columns }
    }

    fn noise(&self) -> *const YggNoise {
        self.input(self.at.words.noise).cast()
    }
}

/// The kernel that makes of the candidates of a program under noise what a growth takes, `kept` of a row at most.
pub(super) fn value_launch(
    device: &Device,
    candidates: YggRows,
    noise: *const u32,
    kept: usize,
    vocabulary: usize,
) -> Result<Launch, BackendError> {
    let params = YggValues {
        candidates,
        noise: noise.cast(),
        most: candidates.columns / 2,
        kept: number(kept),
        vocabulary: number(vocabulary),
    };
    Launch::new(device, "ygg_value_candidates", [candidates.rows as usize, 1, 1], YGG_WARP, 0, params)
}
