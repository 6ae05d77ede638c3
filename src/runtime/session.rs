//! A session: one sequence over one cache, run by the executables of a set.

use std::sync::Arc;

use crate::{
    backend::{Instruments, Replay, SlotLayout, Workers},
    ir::{Candidates, Choice, Id, Noise, OutputId, ProgramId, RowInputs},
};

use super::{
    BLOCK_TOKENS, DraftVariant, ExecutableSet, RuntimeError, SessionOptions, SkipSet,
    hidden_rows::HiddenRows,
    role::{Inputs, Role, WidthId},
    verification::WalkedRows,
};

/// One sequence: its cache, its committed length, its input buffers.
#[derive(Debug)]
pub struct Session {
    pub(super) set: Arc<ExecutableSet>,
    pub(super) replay: Box<dyn Replay>,
    pub(super) inputs: Inputs,
    pub(super) hidden: Option<HiddenRows>,
    options: SessionOptions,
    moves: Vec<u32>,
    /// What the device walked through in its last verification.
    pub(super) walked: WalkedRows,
    pub(super) layout: SlotLayout,
    tree_nodes: usize,
    pub(super) committed: usize,
    /// How many of the committed tokens, from the first on, are in blocks that were loaded, or before such.
    pub(super) loaded: usize,
    /// Bytes of the cache that a [block](Self::block_bytes) takes.
    pub(super) cache_block_bytes: usize,
    /// Bytes of a [state](Self::state_bytes).
    pub(super) state_bytes: usize,
    /// The last forward, whose results are still readable.
    pub(super) last: Option<Role>,
    /// A forward that was begun and may still run.
    pub(super) begun: Option<Role>,
    pub(super) nothing_skipped: SkipSet,
}

impl Session {
    /// Allocates everything the session will ever need.
    ///
    /// # Errors
    /// [`RuntimeError`] when the context is out of range or memory or threads are refused.
    pub fn open(set: Arc<ExecutableSet>, options: &SessionOptions) -> Result<Self, RuntimeError> {
        Self::open_on(set, options, None)
    }

    /// Like [`open`](Self::open), on the threads of another session, which must not run when this one does. Threads and
    /// pinning of the options are read only where that session has no threads to lend.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_beside(
        set: Arc<ExecutableSet>,
        options: &SessionOptions,
        other: &Session,
    ) -> Result<Self, RuntimeError> {
        let workers = other.replay.workers();
        let threads = workers.as_ref().map_or(options.threads, Workers::threads);
        Self::open_on(set, &SessionOptions { threads, ..*options }, workers)
    }

    fn open_on(
        set: Arc<ExecutableSet>,
        options: &SessionOptions,
        workers: Option<Workers>,
    ) -> Result<Self, RuntimeError> {
        let model_context = set.model_context();
        if !(2..=model_context).contains(&options.context) {
            return Err(RuntimeError::ContextRange { found: options.context, model_context });
        }
        let replay_options = set.replay_options(options, workers);
        let layout = replay_options.layout;
        let mut replay = Arc::clone(set.executables()).open(&replay_options)?;
        let cache_block_bytes = replay.slots().moved_bytes(BLOCK_TOKENS);
        let state_bytes = replay.slots().state_bytes();
        let tree_nodes = options.tree_nodes.max(1);
        let rows = |program: &ProgramId| {
            let program = &set.executables().programs()[*program];
            let rows = RowInputs::new(program.binding.width, program.binding.outputs, tree_nodes);
            rows.with_given(program.given_columns())
        };
        let (planned, prefill) = set.logits_programs();
        let inputs = Inputs {
            planned: planned.iter().map(rows).collect(),
            prefill: prefill.iter().map(rows).collect(),
        };
        let nothing_skipped = SkipSet::none(set.groups());
        let moves = Vec::with_capacity(tree_nodes);
        let walked = WalkedRows::with_capacity(tree_nodes);
        Ok(Self {
            set,
            replay,
            inputs,
            hidden: None,
            options: SessionOptions { tree_nodes, ..*options },
            moves,
            walked,
            layout,
            tree_nodes,
            committed: 0,
            cache_block_bytes,
            state_bytes,
            loaded: 0,
            last: None,
            begun: None,
            nothing_skipped,
        })
    }

    /// The executables.
    pub fn set(&self) -> &Arc<ExecutableSet> {
        &self.set
    }

    /// What it was opened with.
    pub fn options(&self) -> SessionOptions {
        self.options
    }

    /// Tokens whose keys and values are committed.
    pub fn committed(&self) -> usize {
        self.committed
    }

    /// Longest sequence.
    pub fn context(&self) -> usize {
        self.layout.context
    }

    /// Nodes of the largest token tree it has room for, root included, and of the heads drafted ahead after it.
    pub fn tree_nodes(&self) -> usize {
        self.tree_nodes
    }

    /// Slots for rows after the committed prefix: offsets of rows are below.
    pub fn scratch_slots(&self) -> usize {
        self.layout.scratch
    }

    /// Whether the device still works: results of forwards count only if it still works after them.
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`] if it has failed, now and from then on.
    pub fn check_device(&self) -> Result<(), RuntimeError> {
        match self.replay.failure() {
            Some(failure) => Err(RuntimeError::DeviceFailed { reason: failure.to_string() }),
            None => Ok(()),
        }
    }

    /// Forgets the sequence and begins another with `tokens`; returns the logits `[V]` after the last.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill); the old sequence is then kept.
    ///
    /// # Panics
    /// If `tokens` is empty.
    pub fn restart(&mut self, tokens: &[u32]) -> Result<&[f32], RuntimeError> {
        self.check(0, tokens)?;
        self.truncate(0);
        self.prefill(tokens)
    }

    /// Checks that `tokens` can be a sequence.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill) of them would be into an empty cache.
    pub fn accepts(&self, tokens: &[u32]) -> Result<(), RuntimeError> {
        self.check(0, tokens)
    }

    /// Runs `tokens` after the committed ones and commits them; returns the logits `[V]` after the last.
    ///
    /// # Errors
    /// [`RuntimeError::ContextFull`] or [`RuntimeError::Token`]; nothing is changed then.
    /// [`RuntimeError::DeviceFailed`].
    ///
    /// # Panics
    /// If `tokens` is empty.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32], RuntimeError> {
        assert_eq!(self.set.text_columns(), 0, "rows are to be given with the tokens");
        self.prefill_with(tokens, |_, _| ())
    }

    /// Like [`prefill`](Self::prefill), with `given(index, row)` writing the row that is given with the token at
    /// `index`, as [`ExecutableSet::text_columns`] says; of a model that takes none, the row is empty.
    ///
    /// # Errors
    /// As `prefill`.
    ///
    /// # Panics
    /// As `prefill`.
    pub fn prefill_with(
        &mut self,
        tokens: &[u32],
        mut given: impl FnMut(usize, &mut [f32]),
    ) -> Result<&[f32], RuntimeError> {
        assert!(!tokens.is_empty(), "a prefill has at least one token");
        self.check(self.committed, tokens)?;
        let mut done = 0;
        loop {
            let rest = &tokens[done..];
            let width = self.set.prefill_for(rest.len());
            let role = match &self.hidden {
                Some(_) => Role::KeepingPrefill(width),
                None => Role::Prefill(width),
            };
            let chunk = &rest[..self.inputs[role].width().min(rest.len())];
            self.fill_chunk(role, chunk);
            self.inputs[role].set_output(0, chunk.len() - 1);
            for row in 0..chunk.len() {
                given(done + row, self.inputs[role].given_mut(row));
            }
            self.run_chunk(role, chunk.len())?;
            done += chunk.len();
            if done == tokens.len() {
                return Ok(self.replay.shown(self.set.program(role), OutputId::new(0)));
            }
        }
    }

    /// Like [`prefill`](Self::prefill), but shows the logits after every token: `visit(index, logits)`.
    ///
    /// # Errors
    /// As `prefill`.
    pub fn score(
        &mut self,
        tokens: &[u32],
        mut visit: impl FnMut(usize, &[f32]),
    ) -> Result<(), RuntimeError> {
        self.check(self.committed, tokens)?;
        let widest = *self.set.widths().last().expect("width 1 is always planned");
        for (c, chunk) in tokens.chunks(widest).enumerate() {
            let role = Role::Logits(self.set.planned(chunk.len())?);
            self.fill_chunk(role, chunk);
            self.run_chunk(role, chunk.len())?;
            for i in 0..chunk.len() {
                visit(c * widest + i, self.replay.shown(self.set.program(role), OutputId::new(i)));
            }
        }
        Ok(())
    }

    /// The last hidden row `[D]` of an output of the last forward, from which its logits were made: of the row pushed
    /// as number `output`, or of the last token of a prefill as number 0. `None` before the first forward.
    ///
    /// # Panics
    /// If the forward has no such output, or the model's graph declares no hidden rows.
    pub fn hidden(&self, output: usize) -> Option<&[f32]> {
        let role = self.last?;
        let row = match role {
            Role::KeepingPrefill(_) => self.inputs[role].output_rows()[output] as usize,
            Role::Logits(_) | Role::Candidates(..) | Role::Prefill(_) => output,
        };
        Some(hidden_row(&*self.replay, self.set.program(role), row))
    }

    /// Writes the embedding `[D]` of a token.
    ///
    /// # Panics
    /// If the token is outside the vocabulary or the row is not of the model's width.
    pub fn embedding(&self, token: u32, row: &mut [f32]) {
        self.set.executables().embed(token, row);
    }

    /// Runs the chunk of `rows` tokens that the inputs hold, and commits it.
    fn run_chunk(&mut self, role: Role, rows: usize) -> Result<(), RuntimeError> {
        let program = self.set.program(role);
        self.replay.replay(program, &self.inputs[role], self.nothing_skipped.as_mask());
        self.last = Some(role);
        self.check_device()?;
        if let Some(hidden) = &mut self.hidden {
            for row in 0..rows {
                hidden.note(self.committed + row, &*self.replay, program, row);
            }
        }
        self.committed += rows;
        Ok(())
    }

    /// Whether `tokens` can follow `committed` others.
    fn check(&self, committed: usize, tokens: &[u32]) -> Result<(), RuntimeError> {
        let vocabulary = self.set.vocabulary();
        if let Some(found) = tokens.iter().copied().find(|t| *t as usize >= vocabulary) {
            return Err(RuntimeError::Token { found, vocabulary });
        }
        let needed = committed + tokens.len();
        if needed > self.layout.context {
            let model_context = self.set.model_context();
            return Err(RuntimeError::ContextFull { needed, context: self.layout.context, model_context });
        }
        Ok(())
    }

    fn fill_chunk(&mut self, role: Role, chunk: &[u32]) {
        self.begun = None;
        let inputs = &mut self.inputs[role];
        inputs.clear();
        for (i, token) in chunk.iter().enumerate() {
            let position = slot_number(self.committed + i);
            inputs.push(*token, position, position, position, |tail| {
                tail[0] = position;
                1
            });
        }
    }

    /// Starts a forward of `rows` rows after the committed prefix, at the smallest planned width that holds them.
    /// Callers [check the device](Self::check_device) before they use the results.
    ///
    /// # Errors
    /// [`RuntimeError::Width`] when no planned width holds them, [`RuntimeError::DeviceFailed`] when the device failed
    /// before.
    pub fn forward(&mut self, rows: usize) -> Result<Forward<'_>, RuntimeError> {
        self.check_device()?;
        let width = self.set.planned(rows)?;
        Ok(self.filling(width))
    }

    /// As [`forward`](Self::forward), of tokens of a text: where rows are given with them, these are as
    /// [`ExecutableSet::text_columns`] says.
    ///
    /// # Errors
    /// As `forward`.
    pub fn forward_text(&mut self, rows: usize) -> Result<Forward<'_>, RuntimeError> {
        self.check_device()?;
        let width = self.set.planned_text(rows)?;
        Ok(self.filling(width))
    }

    /// A forward without rows yet.
    fn filling(&mut self, width: WidthId) -> Forward<'_> {
        self.inputs.planned[width].clear();
        self.begun = None;
        Forward { session: self, width }
    }

    /// Waits for the forward that was [begun](Forward::begin_choice_of), and shows its candidates; `None` if another
    /// one has run since.
    pub fn begun_choices(&mut self) -> Option<Choices<'_>> {
        let role = self.begun.take()?;
        self.replay.finish();
        Some(self.choices(role))
    }

    /// The candidates of the forward that has just run.
    pub(super) fn choices(&mut self, role: Role) -> Choices<'_> {
        self.last = Some(role);
        let program = self.set.program(role);
        Choices { session: self, program }
    }

    /// Commits the scratch rows of `path` (offsets from the end of the committed prefix, ascending, root first): their
    /// keys and values become those of the next positions. All other scratch is discarded.
    pub fn commit(&mut self, path: &[u32]) {
        self.note_path(path);
        let first = slot_number(self.committed);
        let in_place = path.iter().enumerate().take_while(|(i, offset)| **offset as usize == *i).count();
        self.moves.clear();
        self.moves.extend(path[in_place..].iter().map(|offset| first + offset));
        if !self.moves.is_empty() {
            self.replay.slots().copy_slots(&self.moves, first + slot_number(in_place));
        }
        self.committed += path.len();
        assert!(self.committed <= self.layout.context, "a path longer than the context was committed");
    }

    /// Commits the first `rows` rows after the committed tokens, which are in place: all of the last forward's were
    /// pushed by [`push_behind`](Forward::push_behind), or the device has moved those of a path there.
    ///
    /// # Panics
    /// If they exceed the context.
    pub fn commit_behind(&mut self, rows: usize) {
        self.committed += rows;
        assert!(self.committed <= self.layout.context, "more than the context was committed");
    }

    /// Copies the keys and values of the scratch row at `offset` after the committed prefix to the first, the root's.
    pub fn move_scratch(&mut self, offset: u32) {
        let first = slot_number(self.committed);
        self.moves.clear();
        self.moves.push(first + offset);
        self.replay.slots().copy_slots(&self.moves, first);
    }

    /// Keeps the first `len` committed tokens and forgets the rest.
    ///
    /// # Panics
    /// If fewer are committed, or rows have a state that cannot return there: [`resume_point`](Self::resume_point).
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.committed, "only committed tokens can be kept");
        if len < self.committed {
            self.replay.slots().forget(len);
        }
        self.committed = len;
        self.loaded = self.loaded.min(len);
    }

    /// Pretends that `len` tokens were committed, whatever the cache holds: for measuring latency at a context length.
    pub fn assume_committed(&mut self, len: usize) {
        assert!(len <= self.layout.context, "within the context");
        (self.committed, self.loaded) = (len, 0);
        self.replay.slots().assume(len);
        if let Some(hidden) = &mut self.hidden {
            hidden.assume(len);
        }
    }

    /// Overwrites all slots after the committed prefix with finite noise. Output must not change: a test of the law.
    ///
    /// # Panics
    /// If the backend has no instruments.
    pub fn poison_scratch(&mut self, seed: u64) {
        let scratch = slot_number(self.committed)..slot_number(self.layout.slots());
        self.instruments().poison_slots(scratch, seed);
    }

    /// Whether candidates can be ranked by noise.
    pub fn ranks_by_noise(&self) -> bool {
        self.replay.ranks_by_noise()
    }

    pub(super) fn instruments(&mut self) -> &mut dyn Instruments {
        self.replay.instruments().expect("the backend has instruments")
    }
}

/// The hidden row of an output of the last replay.
///
/// # Panics
/// If the model's graph declares no hidden rows.
pub(super) fn hidden_row(replay: &dyn Replay, program: ProgramId, output: usize) -> &[f32] {
    let row = replay.hidden(program, 0, OutputId::new(output));
    row.expect("the model's graph declares its hidden rows")
}

pub(super) fn slot_number(slot: usize) -> u32 {
    u32::try_from(slot).expect("contexts are far below 2^32")
}

/// A forward being filled with rows.
#[derive(Debug)]
pub struct Forward<'a> {
    pub(super) session: &'a mut Session,
    pub(super) width: WidthId,
}

impl<'a> Forward<'a> {
    /// Adds a row: `token` at `depth` after the committed prefix, written to scratch offset `offset`, attending to the
    /// whole prefix and to the scratch offsets that `tail` writes (root .. self, self last) and counts.
    pub fn push(&mut self, token: u32, depth: u32, offset: u32, tail: impl FnOnce(&mut [u32]) -> usize) {
        let prefix = slot_number(self.session.committed);
        self.session.inputs.planned[self.width].push(
            token,
            prefix + depth,
            prefix + offset,
            prefix,
            |slots| {
                let len = tail(slots);
                for slot in &mut slots[..len] {
                    *slot += prefix;
                }
                len
            },
        );
    }

    /// Adds a row for the next place: after the committed tokens and the rows that were added like this before, as a
    /// prefill has it.
    pub fn push_behind(&mut self, token: u32) {
        let inputs = &mut self.session.inputs.planned[self.width];
        let position = slot_number(self.session.committed + inputs.used());
        inputs.push(token, position, position, position, |tail| {
            tail[0] = position;
            1
        });
    }

    /// Gives the row pushed as number `row` the float row that the model takes with its token.
    ///
    /// # Panics
    /// If no such row was pushed, or the model takes rows of another length.
    pub fn give(&mut self, row: usize, given: &[f32]) {
        self.session.inputs.planned[self.width].given_mut(row).copy_from_slice(given);
    }

    /// Adds a row for a place that is committed already: `token` at `position`, written to scratch offset `offset`,
    /// attending to the committed tokens before that place and to itself. What is committed stays as it is.
    ///
    /// # Panics
    /// If fewer than `position` tokens are committed.
    pub fn push_again(&mut self, token: u32, position: usize, offset: u32) {
        let committed = self.session.committed;
        assert!(position <= committed, "position {position} of {committed} committed tokens");
        let (position, slot) = (slot_number(position), slot_number(committed) + offset);
        self.session.inputs.planned[self.width].push(token, position, slot, position, |tail| {
            tail[0] = slot;
            1
        });
    }

    /// Lets [`choose_of`](Self::choose_of) rank candidates by the noise that decides a request's tokens: their values
    /// are then logits over its temperature plus noise. A [verification](Self::verify) draws its tokens by it, a
    /// [growth](Self::begin_growth) ranks by it. Said after all rows were added.
    ///
    /// # Panics
    /// If the session [ranks by no noise](Session::ranks_by_noise).
    #[must_use]
    pub fn under_noise(self, noise: Noise) -> Self {
        assert!(self.session.ranks_by_noise(), "the backend ranks by logits alone");
        self.session.inputs.planned[self.width].set_noise(noise);
        self
    }

    /// The float row that the model takes with the token of the row pushed as number `row`, to be written.
    ///
    /// # Panics
    /// If no such row was pushed.
    pub fn given_mut(&mut self, row: usize) -> &mut [f32] {
        self.session.inputs.planned[self.width].given_mut(row)
    }

    /// Runs it, leaving out the groups of `skip`, and shows candidates of every row. Logits are not stored.
    ///
    /// # Panics
    /// If the choice is of none or of more than [`ExecutableSet::MOST_CANDIDATES`], or of a temperature that is not
    /// positive.
    pub fn choose(self, choice: Choice, skip: Option<&SkipSet>) -> Choices<'a> {
        self.choose_of(None, choice, skip)
    }

    /// As [`choose`](Self::choose), but among the tokens of a trimmed head if one is named.
    ///
    /// # Panics
    /// As `choose`, and if the head is of another set.
    pub fn choose_of(
        self,
        head: Option<DraftVariant>,
        choice: Choice,
        skip: Option<&SkipSet>,
    ) -> Choices<'a> {
        let Self { session, width } = self;
        Forward { session: &mut *session, width }.begin_choice_of(head, choice, skip);
        session.begun_choices().expect("it was begun")
    }

    /// As [`choose_of`](Self::choose_of), but where a device runs in parallel with the host it only begins. Until
    /// [`begun_choices`](Session::begun_choices) shows them, paths may be committed and scratch moved, which the device
    /// does after it.
    ///
    /// # Panics
    /// As `choose_of`.
    pub fn begin_choice_of(self, head: Option<DraftVariant>, choice: Choice, skip: Option<&SkipSet>) {
        let Self { session, width } = self;
        let role = Role::Candidates(width, head);
        session.inputs[role].set_choice(choice);
        session.begin(role, skip);
    }
}

/// Candidates of the last forward.
#[derive(Clone, Copy, Debug)]
pub struct Choices<'a> {
    pub(super) session: &'a Session,
    pub(super) program: ProgramId,
}

impl<'a> Choices<'a> {
    /// Candidates of the row pushed as number `row`.
    pub fn row(&self, row: usize) -> Candidates<'a> {
        Candidates::new(self.session.replay.shown(self.program, OutputId::new(row)))
    }

    /// The last hidden row `[D]` of the row pushed as number `row`.
    ///
    /// # Panics
    /// If the model's graph declares no hidden rows.
    pub fn hidden(&self, row: usize) -> &'a [f32] {
        hidden_row(&*self.session.replay, self.program, row)
    }
}
