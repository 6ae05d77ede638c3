//! The profiler's subject: runs one stage of a step at a width and a context length, with the code that serves
//! requests.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ygg_profiler::{Cell, DrafterName, Stage as Cells, StepStage, Subject};

use crate::{
    engine::{Error, Loaded, tune},
    plan::{
        Calibration, ChosenTuning, DepthNetwork, DrafterFacts, DrafterKind, RowChoice, RowRule, WidthCost,
    },
    policy::{DepthScratch, RowScratch, reach_probabilities},
    runtime::{
        Choice, DraftPhase, DraftPhaseSize, DraftVariant, Pinning, Session, SessionOptions, SkipSet,
        VariantChange,
    },
    speculate::{
        BandSteps, Budget, Decoder, Drafter, Limits, Stats, StepShape, depth_features, make_copies,
        make_drafter,
    },
    tree::TokenTree,
};

use planted::{Planted, Siblings, bushy_tree, ladder, planted};

mod parts;
mod planted;

/// The widest draft width that is measured: wider than any growth, for heads drafted ahead of as many verified rows.
pub(super) const WIDEST_DRAFT: usize = 16;

/// Growths of the proposal whose mean is the time of one growth.
const GROWTHS: usize = 4;
/// Depths of the network that is measured: one more costs nothing compared with the layers.
const NETWORK_DEPTHS: usize = 6;
/// No temperature is cheaper than another.
const DRAFT_TEMPERATURE: f32 = 1.0;

/// One drafter that can be measured.
#[derive(Debug)]
struct Measured {
    name: DrafterName,
    kind: DrafterKind,
    draft: Option<DraftForward>,
    /// The drafter itself where it runs no model: opening a store takes longer than asking it.
    free: Option<Box<dyn Drafter>>,
}

/// The shape of the proposals that are measured of drafters without a model.
const FREE: StepShape =
    StepShape { depth: 8, draft_width: 2, verify_width: 16, top_k: 0, draft_temperature: 1.0 };

/// Tokens that a step adds to the text, for what a block drafter reads of it: about as many as steps of one accept.
const BLOCK_TEXT: usize = 4;

/// The shape of a block drafter's proposal of so many nodes.
fn block_shape(nodes: usize, top_k: usize) -> StepShape {
    let draft_temperature = DRAFT_TEMPERATURE;
    StepShape { depth: nodes, draft_width: 1, verify_width: nodes + 1, top_k, draft_temperature }
}

/// What a drafter's forward leaves out of the model's, or which other model it is a forward of.
#[derive(Debug)]
struct DraftForward {
    skip: SkipSet,
    variant: Option<DraftVariant>,
    /// The session of a drafter model.
    own: Option<Session>,
}

impl DraftForward {
    /// The forward of a drafter that runs a model, in addition to the verifier's session of these options.
    fn new(
        kind: &DrafterKind,
        loaded: &Loaded,
        session: &Session,
        options: SessionOptions,
    ) -> Result<Self, Error> {
        let DrafterFacts { skipped, head_tokens, substitute_bits, draft_model, .. } = kind.facts();
        let set = match draft_model {
            Some(model) => loaded.set().draft(&model.digest)?,
            None => loaded.set(),
        };
        let skip = match skipped {
            Some(skipped) => SkipSet::new(set.groups(), skipped)?,
            None => SkipSet::none(set.groups()),
        };
        let options = SessionOptions { context: options.context.min(set.model_context()), ..options };
        let own =
            draft_model.map(|_| Session::open_beside(Arc::clone(set), &options, session)).transpose()?;
        Ok(Self { skip, variant: set.variant(VariantChange { head_tokens, substitute_bits })?, own })
    }
}

/// A draft phase that runs.
struct BegunPhase {
    phase: DraftPhase,
    at: Instant,
}

/// What a device runs by itself, in addition to forwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Draft phases.
    pub(super) phases: bool,
    /// Verifications with walk and commit.
    pub(super) verifications: bool,
    /// Parts of forwards that read weights from a file.
    pub(super) parts: bool,
}

/// A decoder and the drafters that are measured over it.
#[derive(Debug)]
pub(super) struct StepSubject {
    decoder: Decoder,
    planted: Arc<AtomicUsize>,
    drafters: Vec<Measured>,
    history: Vec<u32>,
    /// Tokens of planted children of a root.
    siblings: Arc<Siblings>,
    top_k: usize,
    vocabulary: usize,
    /// A choice among all widths, for the time that choosing takes.
    row_choice: RowChoice,
    /// A network of the size of those that are trained, for the time that a prediction takes.
    network: DepthNetwork,
    scratch: DepthScratch,
    /// Draft phases that the device runs by itself, by drafter and width of a growth.
    phases: BTreeMap<(DrafterName, usize), DraftPhase>,
}

impl StepSubject {
    /// `text` supplies the committed tokens, repeated as often as needed.
    pub(super) fn new(
        loaded: &Loaded,
        drafters: &[(DrafterName, DrafterKind)],
        text: &[u32],
        longest: usize,
        top_k: usize,
        pinning: Pinning,
    ) -> Result<Self, Error> {
        let widest = *loaded.set().widths().last().expect("width 1 is always planned");
        let size = |kind: &DrafterKind| {
            Some(loaded.set().draft(&kind.draft_model()?.digest).ok()?.block_rows()?.size)
        };
        let rows = drafters.iter().filter_map(|(_, kind)| size(kind)).fold(widest, usize::max);
        let context = (longest + rows + 2).min(loaded.set().model_context());
        let options =
            SessionOptions { context, tree_nodes: GROWTHS * widest + 1, threads: loaded.threads(), pinning };
        let session = loaded.session(&options, drafters.iter().map(|(_, kind)| kind))?;
        let drafters = drafters
            .iter()
            .map(|(name, kind)| {
                let draft = match kind.grows_by_forwards() {
                    true => Some(DraftForward::new(kind, loaded, &session, options)?),
                    false => None,
                };
                let free = match kind {
                    _ if draft.is_some() => None,
                    // The forwards of its model are measured as those of that drafter alone.
                    DrafterKind::Mixed(mixture) if mixture.model().is_some() => {
                        make_copies(mixture, &FREE, &session)?
                    }
                    _ if kind.drafts_blocks() => make_drafter(kind, &block_shape(widest, top_k), &session)?,
                    _ => make_drafter(kind, &FREE, &session)?,
                };
                Ok(Measured { name: name.clone(), kind: kind.clone(), draft, free })
            })
            .collect::<Result<_, Error>>()?;
        let planted = Arc::new(AtomicUsize::new(0));
        let vocabulary = loaded.set().vocabulary();
        let tokens = u32::try_from(vocabulary).expect("token ids are 32 bits");
        let siblings = Arc::new(Siblings::new(text, widest - 1, tokens));
        let drafter = Planted { nodes: Arc::clone(&planted), siblings: Arc::clone(&siblings) };
        let shape = StepShape {
            depth: 1,
            draft_width: widest,
            verify_width: widest,
            top_k: 0,
            draft_temperature: 1.0,
        };
        let mut decoder = Decoder::new(session, vec![BandSteps::unplanned(Some(Box::new(drafter)), &shape)])?;
        let history: Vec<u32> = text.iter().copied().cycle().take(longest + 1).collect();
        // Which experts rows use depends on what the cache holds; nothing else that is measured does.
        if loaded.set().graph().routes() && longest > 0 {
            decoder.session_mut().prefill(&history[..longest])?;
        }
        let costs = loaded.set().widths().iter().map(|width| WidthCost {
            width: u32::try_from(*width).expect("widths are small"),
            step_us: *width as f64,
        });
        let row_choice = RowChoice {
            rule: RowRule::BestRate,
            widths: costs.collect(),
            rate: 1.0,
            calibration: Calibration::fit(&ladder()),
        };
        let inputs = 2 * loaded.set().model_width();
        let network = DepthNetwork::blank(inputs, NETWORK_DEPTHS);
        let scratch = DepthScratch::with_inputs(inputs);
        let phases = BTreeMap::new();
        Ok(Self {
            decoder,
            planted,
            drafters,
            history,
            siblings,
            top_k,
            vocabulary,
            row_choice,
            network,
            scratch,
            phases,
        })
    }

    /// What the device runs by itself.
    pub(super) fn abilities(&mut self) -> Abilities {
        let parts = self.measures_parts();
        let session = self.decoder.session_mut();
        let (phases, verifications) = (session.offers_phases(), session.offers_verifications());
        Abilities { phases, verifications, parts: parts && !phases && !verifications }
    }

    /// Whether weights are streamed.
    pub(super) fn streams(&self) -> bool {
        self.decoder.session().set().graph().streams()
    }

    /// Makes its linears go as chosen.
    pub(super) fn tune(&mut self, tunings: &[ChosenTuning]) -> Result<(), Error> {
        tune(self.decoder.session_mut(), tunings)
    }

    fn measured(&mut self, name: &DrafterName) -> &mut Measured {
        self.drafters.iter_mut().find(|d| d.name == *name).expect("cells name drafters of this profile")
    }

    /// Measures the forwards of a drafter that runs a model.
    fn with_draft(
        &mut self,
        name: &DrafterName,
        run: impl FnOnce(&mut Self, &mut DraftForward) -> Result<Duration, Error>,
    ) -> Result<Duration, Error> {
        let draft = self.measured(name).draft.take();
        let mut draft = draft.expect("its forwards are measured of a drafter that runs a model");
        let time = run(self, &mut draft);
        self.measured(name).draft = Some(draft);
        time
    }

    /// A whole step of `width` rows; the time of one of its stages.
    fn step(&mut self, width: usize, context: usize, stage: StepStage) -> Result<Duration, Error> {
        self.planted.store(width - 1, Ordering::Relaxed);
        // Where experts are read, forwards go on in the text: the same rows would find all of theirs in memory.
        if self.decoder.session().set().graph().expert_places().is_some() {
            self.history[context] = self.siblings.move_on();
        }
        self.decoder.assume_history(&self.history[..=context]);
        let before = self.decoder.stats().stage_time(stage);
        let report = self.decoder.step(Limits { tokens: 2, ends: &[] }, None)?;
        assert!(report.rows == width.min(self.vocabulary), "a planted tree is verified whole");
        Ok(self.decoder.stats().stage_time(stage) - before)
    }

    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn draft_forward(
        &mut self,
        draft: &mut DraftForward,
        width: usize,
        context: usize,
    ) -> Result<Duration, Error> {
        let session = match &mut draft.own {
            Some(own) => own,
            None => self.decoder.session_mut(),
        };
        // A drafter model may know shorter texts and other tokens that nothing uses.
        let context = context.min(session.context().saturating_sub(2));
        session.assume_committed(context);
        let forward = planted(session, width, self.history[context], &self.siblings)?;
        let choice = Choice { k: self.top_k.max(1), temperature: Some(DRAFT_TEMPERATURE) };
        let start = Instant::now();
        forward.choose_of(draft.variant, choice, Some(&draft.skip));
        Ok(start.elapsed())
    }

    /// A verification of a planted tree in one launch.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn verification(&mut self, width: usize, context: usize) -> Result<Duration, Error> {
        let root = self.history[context];
        let session = self.decoder.session_mut();
        let offered = session.prepare_verifications(width)?;
        assert!(offered, "cells of verifications are for devices that offer them");
        session.assume_committed(context);
        let forward = planted(session, width, root, &self.siblings)?;
        let start = Instant::now();
        forward.verify();
        Ok(start.elapsed())
    }

    /// A verification of a planted tree, and at the same time a drafter model's forward of as many of its nodes as a
    /// growth has at most.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn verification_with_tail(
        &mut self,
        draft: &mut DraftForward,
        width: usize,
        context: usize,
    ) -> Result<Duration, Error> {
        let own = draft.own.as_mut().expect("tails are of drafters with a cache of their own");
        // A drafter model may know shorter texts and other tokens that nothing uses.
        let known = context.min(own.context().saturating_sub(2));
        own.assume_committed(known);
        let rows = (width - 1).min(self.top_k);
        let token = self.history[known];
        let tail = if rows > 0 { Some(planted(own, rows, token, &self.siblings)?) } else { None };
        let root = self.history[context];
        let session = self.decoder.session_mut();
        session.assume_committed(context);
        let forward = planted(session, width, root, &self.siblings)?;
        let start = Instant::now();
        if let Some(tail) = tail {
            tail.begin_choice_of(draft.variant, Choice::ARGMAX, Some(&draft.skip));
        }
        forward.choose(Choice::ARGMAX, None);
        own.begun_choices();
        let took = start.elapsed();
        own.check_device()?;
        Ok(took)
    }

    /// Runs a verification before the head of a drafter with weights of its own, which leaves its weights in the caches
    /// as a step does.
    fn bring_verifier(&mut self, name: &DrafterName, context: usize) -> Result<(), Error> {
        if self.measured(name).kind.keeps_a_cache() {
            self.step(1, context, StepStage::Verify)?;
        }
        Ok(())
    }

    /// The smallest growth that makes trees of as many nodes, if it does.
    fn growth_that_fills(&self, nodes: usize) -> usize {
        let widths = self.decoder.session().set().widths().iter().copied();
        let narrow = || widths.clone().filter(|width| *width <= WIDEST_DRAFT);
        narrow().find(|width| GROWTHS * width + 1 >= nodes).or_else(|| narrow().next_back()).unwrap_or(1)
    }

    /// A draft phase of `depth` growths in one launch.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn phase(
        &mut self,
        name: &DrafterName,
        width: usize,
        depth: usize,
        context: usize,
    ) -> Result<Duration, Error> {
        let begun = self.begin_phase(name, width, depth, context)?;
        let session = self.drafting_session(name);
        session.grown(begun.phase);
        let took = begun.at.elapsed();
        session.check_device()?;
        Ok(took)
    }

    /// Such a phase of [`GROWTHS`], and the verification of `rows` of its tree's best nodes, for which the host waits
    /// together.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn grown_verification(
        &mut self,
        name: &DrafterName,
        (width, rows): (usize, usize),
        context: usize,
    ) -> Result<Duration, Error> {
        // Made ready before anything is timed.
        let phase = self.prepare_phase(name, width)?;
        let tree = self.drafting_session(name).growing(phase);
        let session = self.decoder.session_mut();
        session.assume_committed(context);
        let verification = session.prepare_grown_verification(rows, &tree)?;
        let begun = self.begin_phase(name, width, GROWTHS, context)?;
        let root = self.history[context];
        let session = self.decoder.session_mut();
        session.verify_grown(verification, root, None)?;
        let took = begun.at.elapsed();
        self.drafting_session(name).grown(phase);
        self.decoder.session().check_device()?;
        Ok(took)
    }

    /// The session that a drafter's forwards run in.
    fn drafting_session(&mut self, name: &DrafterName) -> &mut Session {
        let measured = self.drafters.iter_mut().find(|d| d.name == *name);
        let own = measured.and_then(|measured| measured.draft.as_mut()).and_then(|draft| draft.own.as_mut());
        own.unwrap_or(self.decoder.session_mut())
    }

    /// The phase of a drafter that grows as many nodes at a time, made ready once.
    fn prepare_phase(&mut self, name: &DrafterName, width: usize) -> Result<DraftPhase, Error> {
        let known = self.phases.get(&(name.clone(), width)).copied();
        if let Some(phase) = known {
            return Ok(phase);
        }
        let head = self.measured(name).draft.as_ref().and_then(|draft| draft.variant);
        let (root_rows, kept) = (1 + self.lacking(name), self.top_k.max(width));
        let size = DraftPhaseSize { depth: GROWTHS, width, kept, root_rows, vocabulary: self.vocabulary };
        let made = self.drafting_session(name).prepare_phase(size, head)?;
        let made = made.expect("cells of phases are for devices that offer them");
        self.phases.insert((name.clone(), width), made);
        Ok(made)
    }

    /// Rows of the text before the root that steps are priced at: one of a model with a cache of its own.
    fn lacking(&mut self, name: &DrafterName) -> usize {
        let keeps_a_cache = self.measured(name).kind.keeps_a_cache();
        usize::from(keeps_a_cache && self.drafting_session(name).set().width_for(2).is_some())
    }

    /// Begins a phase, after committed tokens that nothing is known of.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn begin_phase(
        &mut self,
        name: &DrafterName,
        width: usize,
        depth: usize,
        context: usize,
    ) -> Result<BegunPhase, Error> {
        let (phase, lacking) = (self.prepare_phase(name, width)?, self.lacking(name));
        let kept = self.top_k.max(width);
        let token = self.history[context];
        let draft = self.measured(name).draft.as_ref();
        let skip = draft.expect("cells of phases are of drafters that run a model").skip.clone();
        let session = self.drafting_session(name);
        // A drafter model may know shorter texts and other tokens that nothing uses.
        session.assume_committed(context.min(session.context().saturating_sub(GROWTHS + 1 + lacking)));
        let known = u32::try_from(session.set().vocabulary()).expect("token ids are 32 bits");
        let mut forward = session.forward_text(1 + lacking)?;
        (0..=lacking).for_each(|_| forward.push_behind(token.min(known - 1)));
        let choice = Choice { k: kept, temperature: Some(DRAFT_TEMPERATURE) };
        let at = Instant::now();
        forward.begin_growth(phase, depth, choice, Some(&skip));
        Ok(BegunPhase { phase, at })
    }

    /// A whole proposal; the time of one of its stages.
    fn proposal(
        &mut self,
        drafter: &mut dyn Drafter,
        shape: &StepShape,
        context: usize,
        stage: StepStage,
    ) -> Result<Duration, Error> {
        let session = self.decoder.session_mut();
        session.assume_committed(context);
        let mut tree = TokenTree::with_capacity(shape.tree_nodes());
        tree.reset(self.history[context]);
        drafter.begin(&self.history[..=context]);
        let mut stats = Stats::default();
        let budget = Budget {
            session,
            history: &self.history[..=context],
            depth: shape.depth,
            rows: shape.verify_width,
            coupling: None,
            stats: &mut stats,
            observer: None,
        };
        drafter.propose(&mut tree, budget)?;
        Ok(stats.stage_time(stage))
    }

    /// A block drafter's proposal of so many nodes, with what it reads of the text before.
    fn block(&mut self, drafter: &mut dyn Drafter, nodes: usize, context: usize) -> Result<Duration, Error> {
        let shape = block_shape(nodes, self.top_k);
        // It then lacks what a step adds.
        let before = context.saturating_sub(BLOCK_TEXT);
        if before > 0 {
            self.decoder.session_mut().assume_committed(context);
            drafter.prefill(&self.history[..=before], self.decoder.session())?;
        }
        self.proposal(drafter, &shape, context, StepStage::Draft)
    }

    /// Choosing how many rows of a drafted tree of `nodes` nodes to verify, as a step does it.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn decision(&mut self, nodes: usize) -> Duration {
        let mut tree = bushy_tree(nodes);
        let mut scratch = RowScratch::with_capacity(nodes);
        let start = Instant::now();
        let rows = self.row_choice.rows(&mut tree, &mut scratch, None);
        let time = start.elapsed();
        assert!(rows >= 1, "the root is always verified");
        time
    }

    /// Predicting how deep to draft from the last row of a step that just ran, as the next step does it.
    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn prediction(&mut self, context: usize) -> Result<Duration, Error> {
        self.step(1, context, StepStage::Verify)?;
        let Self { decoder, network, scratch, history, .. } = self;
        let start = Instant::now();
        depth_features(decoder.session(), 0, history[context], scratch.features_mut());
        let reach = reach_probabilities(network, scratch);
        let time = start.elapsed();
        assert!(reach[0] > 0.0, "a blank network excludes nothing");
        Ok(time)
    }

    fn run(&mut self, cell: &Cell) -> Result<Duration, Error> {
        let (width, context) = (cell.width as usize, cell.context as usize);
        match &cell.stage {
            Cells::Verify => self.step(width, context, StepStage::Verify),
            Cells::VerifyWalk => self.verification(width, context),
            Cells::Read => self.reading(context),
            Cells::Resident => self.resident(width, context),
            Cells::Ends => self.ends(width, context),
            Cells::Host(StepStage::Predict) => self.prediction(context),
            Cells::Host(StepStage::Decide) => Ok(self.decision(width)),
            Cells::Host(StepStage::Grow) => {
                // One with a cache of its own would read the text anew for every measurement.
                let all = || self.drafters.iter().filter(|d| d.kind.grows_by_forwards());
                let grown = all().find(|d| !d.kind.keeps_a_cache()).or_else(|| all().next());
                let kind = grown.expect("growth is measured with a model drafter").kind.clone();
                let shape = StepShape {
                    depth: GROWTHS,
                    draft_width: width,
                    verify_width: 1,
                    top_k: self.top_k,
                    draft_temperature: 1.0,
                };
                let drafter = make_drafter(&kind, &shape, self.decoder.session())?;
                let mut drafter = drafter.expect("a drafter that runs a model");
                let all = self.proposal(&mut *drafter, &shape, context, StepStage::Grow)?;
                Ok(all / u32::try_from(GROWTHS).expect("few growths"))
            }
            Cells::Host(stage) => self.step(width, context, *stage),
            Cells::DraftHead(name) => {
                self.bring_verifier(name, context)?;
                self.with_draft(name, |subject, draft| subject.draft_forward(draft, width, context))
            }
            Cells::VerifyTail(name) => {
                self.with_draft(name, |subject, draft| subject.verification_with_tail(draft, width, context))
            }
            Cells::FirstGrowth(name) => {
                self.bring_verifier(name, context)?;
                self.phase(name, width, 1, context)
            }
            Cells::VerifyGrown(name) => {
                let growth = self.growth_that_fills(width);
                let phase = self.phase(name, growth, GROWTHS, context)?;
                Ok(self.grown_verification(name, (growth, width), context)?.saturating_sub(phase))
            }
            Cells::NextGrowth(name) => {
                let first = self.phase(name, width, 1, context)?;
                let all = self.phase(name, width, GROWTHS, context)?;
                Ok(all.saturating_sub(first) / u32::try_from(GROWTHS - 1).expect("few growths"))
            }
            Cells::Draft(name) => {
                if self.measured(name).draft.is_some() {
                    return self
                        .with_draft(name, |subject, draft| subject.draft_forward(draft, width, context));
                }
                if self.measured(name).kind.drafts_blocks() {
                    self.bring_verifier(name, context)?;
                }
                let measured = self.measured(name);
                let is_block = measured.kind.drafts_blocks();
                let mut drafter = measured.free.take().expect("a drafter without forwards of its own");
                let time = match is_block {
                    true => self.block(&mut *drafter, width, context),
                    false => self.proposal(&mut *drafter, &FREE, context, StepStage::Draft),
                };
                self.measured(name).free = Some(drafter);
                time
            }
        }
    }
}

impl Subject for StepSubject {
    type Error = Error;

    fn warm_up(&mut self, cell: &Cell) -> Result<(), Error> {
        self.run(cell).map(|_| ())
    }

    /// A stage too short for the clock counts as its smallest step, since a table holds positive times.
    fn measure(&mut self, cell: &Cell) -> Result<Duration, Error> {
        self.run(cell).map(|time| time.max(Duration::from_nanos(1)))
    }
}
