//! The decode loop: one request's sequence, step by step.

use std::mem;

use crate::{
    plan::{DepthCosts, DepthNetwork, ProposalLimits, RowScratch, Schedule, SkipSearch},
    runtime::{Choice, Choices, ExecutableSet, GrownVerification, Logits, Session},
    sample::{Candidate, top},
    tree::{NodeId, TokenTree, select},
};

use super::{
    Budget, Drafter, Lesson, Limits, LogProbs, Ngram, Observer, Offers, Policy, SpeculateError, Speculation,
    Stage, Stats, Verified, Walk,
    bands::{Bands, Way},
    depth::DepthPolicy,
    policy::{Policing, StepDone},
    speaker::Speaker,
    stats::Lap,
    verifier,
};

/// Shape of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Growths per step, `Dd`; for lookup the longest continuation.
    pub depth: usize,
    /// Nodes per growth, `Wd`; for lookup the number of continuations.
    pub draft_width: usize,
    /// Most rows to verify, root included, `Wv`.
    pub verify_width: usize,
    /// Candidates kept of every expanded node; 0 where no model drafts.
    pub top_k: usize,
    /// Softens or sharpens the drafter's probabilities, `t_d`.
    pub draft_temperature: f32,
}

impl Shape {
    /// Plain decoding: nothing is drafted.
    pub const PLAIN: Self =
        Self { depth: 0, draft_width: 1, verify_width: 1, top_k: 0, draft_temperature: 1.0 };

    /// Nodes of a full tree, root included: `Dd * Wd + 1`.
    pub fn tree_nodes(&self) -> usize {
        self.depth * self.draft_width + 1
    }

    /// Rows behind the committed prefix that steps write, for [`SessionOptions::tree_nodes`](crate::runtime::SessionOptions):
    /// the tree's, and one for each verified row where heads are drafted ahead.
    pub fn scratch_rows(&self, schedule: Schedule) -> usize {
        let heads = if schedule.drafts_ahead() { self.verify_width.min(self.tree_nodes()) } else { 0 };
        self.tree_nodes() + heads
    }

    /// Whether a session can run such steps.
    fn check(&self, session: &Session) -> Result<(), SpeculateError> {
        if session.set().width_for(self.verify_width).is_none() || self.verify_width == 0 {
            let widths = session.set().widths();
            let expected = format!("1 to {}", widths[widths.len() - 1]);
            return Err(SpeculateError::Shape { what: "verify width", expected, found: self.verify_width });
        }
        if self.tree_nodes() > session.tree_nodes() {
            let expected =
                format!("trees of at most {} nodes, for which the session was opened", session.tree_nodes());
            let found = self.tree_nodes();
            return Err(SpeculateError::Shape { what: "depth x draft width + 1", expected, found });
        }
        Ok(())
    }

    /// What the shape allows a drafter that runs no model: `Wd` continuations of `Dd` tokens, and no more nodes than `Wv`
    /// rows verify.
    ///
    /// # Panics
    /// If a number of it exceeds 32 bits.
    pub fn limits(&self) -> ProposalLimits {
        let number = |n: usize| u32::try_from(n).expect("shapes are small");
        let nodes = number(self.verify_width.min(self.tree_nodes()));
        ProposalLimits { depth: number(self.depth), width: number(self.draft_width), nodes }
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Rows of the verify forward that were used.
    pub rows: usize,
    /// Drafted nodes accepted.
    pub accepted: usize,
}

/// What a drafter that learns is shown of the verifier.
#[derive(Debug)]
pub(super) struct Lessons {
    /// Continuations of each row, 1 or more.
    most: usize,
    offers: Offers,
    scratch: Vec<Candidate>,
}

impl Lessons {
    /// For steps of `shape`; none where the drafter learns nothing.
    fn of(drafter: Option<&dyn Drafter>, shape: &Shape) -> Result<Option<Self>, SpeculateError> {
        let most = drafter.map_or(0, |drafter| drafter.listens());
        if most > ExecutableSet::MOST_CANDIDATES {
            let expected = format!("at most {}", ExecutableSet::MOST_CANDIDATES);
            return Err(SpeculateError::Shape { what: "candidates to learn from", expected, found: most });
        }
        let rows = shape.tree_nodes().min(shape.verify_width);
        let offers = || Offers::with_capacity(rows, most);
        Ok((most > 0).then(|| Self { most, offers: offers(), scratch: Vec::with_capacity(most) }))
    }
}

/// One request at a time over one session. Invariant between steps: all tokens of the history but the last are
/// committed.
#[derive(Debug)]
pub struct Decoder {
    pub(super) session: Session,
    pub(super) drafter: Option<Box<dyn Drafter>>,
    pub(super) shape: Shape,
    pub(super) schedule: Schedule,
    pub(super) speaker: Speaker,
    pub(super) history: Vec<u32>,
    /// Whether the committed keys and values are the history's.
    pub(super) is_cache_known: bool,
    /// Whether a step may go on with the history.
    pub(super) is_started: bool,
    /// Whether the request drafts.
    pub(super) speculation: Speculation,
    pub(super) tree: TokenTree,
    pub(super) keep: Vec<NodeId>,
    pub(super) policy: Option<Policing>,
    pub(super) depth: Option<DepthPolicy>,
    /// By depths from 1: how the trees of steps without the host are verified.
    pub(super) grown: Vec<GrownVerification>,
    /// The ways of stepping for other temperatures.
    pub(super) bands: Bands,
    /// The output of the last forward that gave the last token.
    pub(super) last_output: usize,
    scratch: RowScratch,
    said: Vec<u32>,
    pub(super) lessons: Option<Lessons>,
    pub(super) walk: Walk,
    offsets: Vec<u32>,
    pub(super) stats: Stats,
}

impl Decoder {
    /// A decoder that steps with `shape`; without a drafter, or with depth 0, it decodes plainly.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the session has no executable for the verify width or no room for the tree.
    pub fn new(
        session: Session,
        drafter: Option<Box<dyn Drafter>>,
        shape: Shape,
    ) -> Result<Self, SpeculateError> {
        shape.check(&session)?;
        let speaker = Speaker::new(session.set())?;
        let nodes = shape.tree_nodes();
        Ok(Self {
            lessons: Lessons::of(drafter.as_deref(), &shape)?,
            speaker,
            history: Vec::with_capacity(session.context() + 1),
            is_cache_known: true,
            is_started: false,
            speculation: Speculation::AsOpened,
            tree: TokenTree::with_capacity(nodes),
            keep: Vec::with_capacity(nodes),
            policy: None,
            depth: None,
            grown: Vec::new(),
            bands: Bands::default(),
            last_output: 0,
            scratch: RowScratch::with_capacity(nodes),
            said: Vec::with_capacity(nodes),
            walk: Walk::with_capacity(nodes),
            offsets: Vec::with_capacity(nodes),
            stats: Stats::default(),
            session,
            drafter,
            shape,
            schedule: Schedule::Plain,
        })
    }

    /// The same decoder, with another way of stepping: for requests whose temperature is nearer to `temperature` than to that
    /// of any way it has, the first of which is for 0. Schedule, policy and depths that are set from here on are this way's.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If the temperature is not above that of the way before.
    pub fn with_way(
        mut self,
        temperature: f32,
        drafter: Option<Box<dyn Drafter>>,
        shape: Shape,
    ) -> Result<Self, SpeculateError> {
        shape.check(&self.session)?;
        let lessons = Lessons::of(drafter.as_deref(), &shape)?;
        let place = self.bands.push(temperature);
        self.exchange(place);
        (self.drafter, self.shape, self.lessons) = (drafter, shape, lessons);
        let nodes = shape.tree_nodes().max(self.tree.capacity());
        self.tree = TokenTree::with_capacity(nodes);
        self.keep = Vec::with_capacity(nodes);
        self.scratch = RowScratch::with_capacity(nodes);
        self.said = Vec::with_capacity(nodes);
        self.walk = Walk::with_capacity(nodes);
        self.offsets = Vec::with_capacity(nodes);
        Ok(self)
    }

    /// Puts the way at `place` to work, and the one at work away.
    pub(super) fn exchange(&mut self, place: usize) {
        let Self { drafter, shape, schedule, policy, depth, grown, lessons, .. } = self;
        self.bands.exchange(place, |way: &mut Way| {
            mem::swap(drafter, &mut way.drafter);
            mem::swap(shape, &mut way.shape);
            mem::swap(schedule, &mut way.schedule);
            mem::swap(policy, &mut way.policy);
            mem::swap(depth, &mut way.depth);
            mem::swap(grown, &mut way.grown);
            mem::swap(lessons, &mut way.lessons);
        });
    }

    /// The same decoder, with steps that verify as many rows as the policy chooses instead of all that the shape allows, and
    /// with requests that stop drafting while it does not pay, if the policy has a guard.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the widest choice is not the shape's verify width, [`SpeculateError::Schedule`] if rows are chosen while
    /// the device prunes.
    pub fn with_policy(mut self, policy: Policy) -> Result<Self, SpeculateError> {
        let widest = policy.choice.widest() as usize;
        if widest != self.shape.verify_width {
            let expected = format!("{}, the verify width", self.shape.verify_width);
            return Err(SpeculateError::Shape { what: "widest choice of rows", expected, found: widest });
        }
        self.policy = Some(Policing::new(policy));
        self.check_rows()?;
        Ok(self)
    }

    /// The same decoder, with steps that are told by `network` how deep to draft and choose by `costs`.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the network is for a model of another width, or the deepest choice is not the shape's,
    /// [`SpeculateError::Schedule`] if heads are drafted ahead, which overwrites what the network would see, or the device
    /// walks, which leaves none of it.
    pub fn with_depths(mut self, costs: DepthCosts, network: DepthNetwork) -> Result<Self, SpeculateError> {
        self.check_told()?;
        self.depth = Some(DepthPolicy::new(costs, network, self.shape.depth, &self.session)?);
        Ok(self)
    }

    /// One draft-verify-commit round. The emitted tokens are the new end of [`history`](Self::history).
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses; the sequence is then unchanged.
    ///
    /// # Panics
    /// If nothing was started, or `limits.tokens` is 0 or exceeds what the context still holds.
    pub fn step(
        &mut self,
        limits: Limits<'_>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<StepReport, SpeculateError> {
        assert!(self.is_started, "a step continues a started request");
        let room = self.session.context() + 1 - self.history.len();
        assert!((1..=room).contains(&limits.tokens), "{} tokens asked for, room for {room}", limits.tokens);
        let root = self.history[self.history.len() - 1];
        self.tree.reset(root);
        let (before, tuned) = (self.stats.step_time(), self.stats.stage_time(Stage::Tune));
        let drafts =
            self.speculation == Speculation::AsOpened && self.policy.as_ref().is_none_or(Policing::drafts);
        let most = if drafts { self.shape.depth.min(limits.tokens - 1) } else { 0 };
        let (depth, saved_us) = self.choose_depth(root, most);
        // Speculation overwrites the row that was just read; should it fail, the next step reads what there is.
        self.last_output = 0;
        let may_be_whole = depth > 0 && observer.is_none() && self.may_step_whole();
        let is_whole = may_be_whole && self.step_whole(depth, limits)?;
        if let (Some(drafter), 1.., false) = (&mut self.drafter, depth, may_be_whole) {
            let observer = observer.map(|o| -> &mut dyn Observer { o });
            let budget = Budget {
                session: &mut self.session,
                history: &self.history,
                depth,
                stats: &mut self.stats,
                observer,
            };
            drafter.propose(&mut self.tree, budget)?;
        }
        if !is_whole {
            self.verify(limits)?;
        }
        let report = self.conclude();
        let whole = self.stats.step_time() - before;
        self.stats.count_rate(self.walk.emitted.len(), whole);
        // Tries are a step's work now and then, and say nothing of what steps cost.
        let took = whole - (self.stats.stage_time(Stage::Tune) - tuned);
        if let Some(policy) = &mut self.policy {
            let count = |n: usize| u32::try_from(n).expect("trees are small");
            let step = StepDone {
                rows: count(report.rows),
                tokens: count(self.walk.emitted.len()),
                speculated: most > 0,
                saved_us,
                us: took.as_secs_f64() * 1e6,
            };
            policy.stepped(step, &mut self.stats.guard);
        }
        Ok(report)
    }

    /// How deep to draft from `root`, and the time that saves beside the shape's depth.
    fn choose_depth(&mut self, root: u32, most: usize) -> (usize, f64) {
        let (Some(depth), 1..) = (&mut self.depth, most) else { return (most, 0.0) };
        let mut lap = Lap::start();
        let cost = depth.choose(&self.session, self.last_output, root, most);
        self.stats.add_time(Stage::Predict, lap.next());
        (cost.depth as usize, cost.saved_us)
    }

    fn verify(&mut self, limits: Limits<'_>) -> Result<(), SpeculateError> {
        let mut lap = Lap::start();
        let rows = match &self.policy {
            Some(policy) => policy.rows(&mut self.tree, &mut self.scratch) as usize,
            None => self.shape.verify_width,
        };
        self.stats.add_time(Stage::Decide, lap.next());
        select(&self.tree, rows, &mut self.scratch.prune, &mut self.keep);
        self.stats.add_time(Stage::Prune, lap.next());
        let is_walked = self.is_walked_on_device();
        let forward = verifier::forward(&mut self.session, &self.tree, &self.keep)?;
        self.stats.add_time(Stage::Mask, lap.next());
        let (tree, rows, position) = (&self.tree, &self.keep, self.history.len());
        let is_greedy = self.speaker.wants_best_only();
        // Rows whose tokens depend on the path, or are reported, are asked along the path only.
        let asks_ahead = self.schedule.drafts_ahead() && tree.len() > 1 && self.speaker.wants_drawn_only();
        let mut ahead = if asks_ahead { self.drafter.as_mut().and_then(|d| d.ahead()) } else { None };
        if let Some(ahead) = &mut ahead {
            ahead.draft_tail(tree, rows)?;
            self.stats.add_time(Stage::Draft, lap.next());
            self.said.clear();
            if is_greedy {
                let best = forward.choose(best_of(self.lessons.as_ref()), None);
                self.stats.add_time(Stage::Verify, lap.next());
                note_choices(self.lessons.as_mut(), best, rows.len());
                self.said.extend((0..rows.len()).map(|row| best.row(row).best()));
            } else {
                let logits = forward.run(None);
                self.stats.add_time(Stage::Verify, lap.next());
                note_logits(self.lessons.as_mut(), logits, rows.len());
                let place = |node: NodeId| (position + tree.depth(node) as usize) as u64;
                let drawn = rows.iter().enumerate();
                self.said.extend(drawn.map(|(row, n)| self.speaker.draw(logits.row(row), place(*n))));
            }
            self.stats.add_time(Stage::Accept, lap.next());
            let said = self.said.as_slice();
            let verified = Verified { tree, rows, said, tokens_left: limits.tokens };
            ahead.draft_heads(&verified, &mut self.session)?;
            self.stats.add_time(Stage::Draft, lap.next());
            self.walk.run(tree, rows, position, limits, |row, _| said[row]);
        } else if is_walked {
            let walk = &mut self.walk;
            forward.verify(|accepted| {
                walk.follow(rows, accepted, limits);
                walk.path.len()
            });
            self.stats.add_time(Stage::Verify, lap.next());
            self.stats.walked_by_device += 1;
        } else if is_greedy {
            let best = forward.choose(best_of(self.lessons.as_ref()), None);
            self.stats.add_time(Stage::Verify, lap.next());
            note_choices(self.lessons.as_mut(), best, rows.len());
            self.walk.run(tree, rows, position, limits, |row, _| best.row(row).best());
        } else {
            let logits = forward.run(None);
            self.stats.add_time(Stage::Verify, lap.next());
            note_logits(self.lessons.as_mut(), logits, rows.len());
            let speaker = &mut self.speaker;
            speaker.begin_step();
            self.walk.run(tree, rows, position, limits, |row, place| speaker.say(logits.row(row), place));
        }
        self.stats.add_time(Stage::Accept, lap.next());
        let last = self.walk.path.last().expect("a walk begins at the root");
        self.last_output = self.keep.binary_search(last).expect("a walk keeps to verified nodes");
        // What a device showed that had failed is no answer.
        self.session.check_device()?;
        if !is_walked {
            self.offsets.clear();
            self.offsets.extend(self.walk.path.iter().map(|node| node.get()));
            self.session.commit(&self.offsets);
        }
        self.stats.add_time(Stage::Commit, lap.next());
        self.history.extend_from_slice(&self.walk.emitted);
        if let Some(ahead) = ahead {
            let last = self.walk.path.last().expect("a walk begins at the root");
            let row = self.keep.binary_search(last).expect("a walk goes along verified rows");
            ahead.keep_head(row, &self.history, &mut self.session);
            self.stats.add_time(Stage::Draft, lap.next());
        }
        Ok(())
    }

    /// Lets the drafter learn from a verification, and counts it.
    fn conclude(&mut self) -> StepReport {
        let mut lap = Lap::start();
        if let (Some(drafter), Some(Lessons { offers, .. })) = (&mut self.drafter, &self.lessons) {
            let Walk { path, emitted, accepted: _ } = &self.walk;
            let (tree, rows, history) = (&self.tree, self.keep.as_slice(), self.history.as_slice());
            drafter.learn(&Lesson { tree, rows, offers, path, history, emitted: emitted.len() });
            self.stats.add_time(Stage::Learn, lap.next());
        }
        let deepest = self.keep.iter().map(|n| self.tree.depth(*n) as usize).max().unwrap_or(0);
        self.stats.steps += 1;
        self.stats.step_tokens += self.walk.emitted.len() as u64;
        self.stats.drafted += self.keep.len() as u64 - 1;
        self.stats.accepted += self.walk.accepted as u64;
        self.stats.count_depths(deepest, self.walk.accepted);
        for node in self.keep.iter().filter(|node| **node != NodeId::ROOT) {
            let is_accepted = self.walk.path.binary_search(node).is_ok();
            self.stats.count_node(self.tree.sources(*node), is_accepted);
        }
        StepReport { rows: self.keep.len(), accepted: self.walk.accepted }
    }

    /// Continues from `history` as if all of it but the last token were committed, whatever the cache holds: for
    /// measuring latency at a context length.
    ///
    /// # Panics
    /// If the history is empty or longer than the context.
    pub fn assume_history(&mut self, history: &[u32]) {
        assert!((1..=self.session.context()).contains(&history.len()), "a history within the context");
        self.history.clear();
        self.history.extend_from_slice(history);
        self.session.assume_committed(history.len() - 1);
        (self.is_cache_known, self.is_started, self.speculation) = (false, true, Speculation::AsOpened);
        if let Some(ahead) = self.ahead() {
            ahead.forget_heads();
        }
    }

    /// Prompt and output so far.
    pub fn history(&self) -> &[u32] {
        &self.history
    }

    /// The place of the way that the current request goes by: 0 for the first, 1 for the first that was added.
    pub fn way(&self) -> usize {
        self.bands.current()
    }

    /// Whether the current request drafts.
    pub fn speculation(&self) -> Speculation {
        self.speculation
    }

    /// The tree of the last step.
    pub fn tree(&self) -> &TokenTree {
        &self.tree
    }

    /// Tokens the last step emitted.
    pub fn emitted(&self) -> &[u32] {
        &self.walk.emitted
    }

    /// Log-probabilities of the [emitted](Self::emitted) tokens, or of the first one before any step.
    pub fn log_probs(&self) -> &LogProbs {
        self.speaker.log_probs()
    }

    /// Writes what depth networks see of the place where the text now ends, `[2 D]`.
    ///
    /// # Panics
    /// If nothing was started, `features` has another length, or the session was used for something else since.
    pub fn depth_features(&self, features: &mut [f32]) {
        let last = *self.history.last().expect("a request was started");
        super::depth_features(&self.session, self.last_output, last, features);
    }

    /// The searches of drafters for the sub-layers that they leave out, that of the way at work first.
    pub fn skip_searches(&mut self) -> impl Iterator<Item = &mut SkipSearch> {
        let drafters = self.drafter.iter_mut().chain(self.bands.drafters());
        drafters.filter_map(|drafter| drafter.skip_search())
    }

    /// The n-gram dictionaries of drafters, those of the way at work first.
    pub fn ngrams(&mut self) -> impl Iterator<Item = &mut Ngram> {
        let drafters = self.drafter.iter_mut().chain(self.bands.drafters());
        drafters.filter_map(|drafter| drafter.ngrams())
    }

    /// Counters of the current request.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The shape of its steps.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Overwrites what lies behind the committed keys and values with finite noise. Output must not change: a test of the law.
    pub fn poison_scratch(&mut self, seed: u64) {
        self.session.poison_scratch(seed);
    }

    /// The session, for measuring. What it holds afterwards serves no later request.
    pub fn session_mut(&mut self) -> &mut Session {
        self.is_cache_known = false;
        &mut self.session
    }
}

/// What a greedy verification chooses of every row: the best token, and as many as the drafter learns from.
fn best_of(lessons: Option<&Lessons>) -> Choice {
    Choice { k: lessons.map_or(Choice::ARGMAX.k, |lessons| lessons.most), ..Choice::ARGMAX }
}

/// Keeps the continuations of a greedy verification's rows for a drafter that learns.
fn note_choices(lessons: Option<&mut Lessons>, choices: Choices<'_>, rows: usize) {
    let Some(Lessons { most: _, offers, scratch: _ }) = lessons else { return };
    offers.clear();
    for row in 0..rows {
        let candidates = choices.row(row).iter().map(|(token, log_prob)| Candidate { token, log_prob });
        offers.add_row(|out| out.extend(candidates));
    }
}

/// Keeps the best continuations of the rows of a verification that showed logits for a drafter that learns.
fn note_logits(lessons: Option<&mut Lessons>, logits: Logits<'_>, rows: usize) {
    let Some(Lessons { most, offers, scratch }) = lessons else { return };
    offers.clear();
    for row in 0..rows {
        offers.add_row(|out| top(logits.row(row), *most, scratch, out));
    }
}
