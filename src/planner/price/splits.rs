//! What steps take with other weights in memory than were measured.
//!
//! A forward of W rows computes the ends of the model and its matrices, each at the same time per byte, and waits for
//! those that are read: what the staging buffer does not hold yet, at the bandwidth measured. With `R` bytes of
//! matrices in memory, `S` bytes read and a buffer of `b`:
//!
//! `T(W) = ends(W) + R f(W) + max(S f(W), (S - b) / bandwidth)`, and of a substitute `T(W) = ends(W) + R f(W) + S g(W)`
//!
//! `f` follows from the forward of the groups that are in memory and from that of no group, `g` from the substitute's
//! own. Where few groups are in memory the first two take nearly the same time, and a machine's speed drifts by more
//! than they differ, so they are compared round by round ([`parts_of`]). Forwards of the verifier are scaled by what
//! was measured of them over what this says at the measured split, so that there the measured times stay.
use ygg_profiler::{Cell, CellSamples, DrafterName, LatencyTable, Profile, Split, Stage, WeightMemory};

use crate::plan::DrafterKind;
use crate::planner::SearchError;

/// The least time of a cell, as tables hold positive times: a buffer may hold all that a split streams, and layers may
/// take less than noise.
const MOMENT_US: f64 = 1e-3;

/// A profile whose steps can be priced at every split of its weights.
#[derive(Debug)]
pub(in crate::planner) struct SplitPrices<'p> {
    pub(in crate::planner) profile: &'p Profile,
    pub(in crate::planner) memory: &'p WeightMemory,
    pub(in crate::planner) table: LatencyTable,
    /// What [`parts_of`] says.
    parts: LatencyTable,
    kinds: Vec<DrafterKind>,
    /// Bytes read in a microsecond.
    bandwidth: f64,
}

/// What forwards of one width compute at one context.
#[derive(Debug, Clone, Copy)]
struct Computing {
    ends_us: f64,
    us_per_byte: f64,
}

/// What forwards without the streamed groups compute, for every width and context at which they were measured with and
/// without those in memory: the ends, and as [`Stage::Resident`] what the groups in memory add, each with a sample for
/// every round in which both were measured. A round is short enough for the machine to be as fast for the one as for
/// the other. Samples of one of them alone, taken later since it was noisy, are left out.
fn parts_of(profile: &Profile) -> Vec<CellSamples> {
    let of = |stage: Stage| profile.measurements.iter().filter(move |cell| cell.cell.stage == stage);
    let parts = |resident: &CellSamples| {
        let Cell { width, context, .. } = resident.cell;
        let is_partner = |ends: &&CellSamples| (ends.cell.width, ends.cell.context) == (width, context);
        let ends = of(Stage::Ends).find(is_partner)?;
        let rounds = resident.samples_us.iter().zip(&ends.samples_us);
        let (added_us, ends_us) =
            rounds.map(|(resident, ends)| ((resident - ends).max(MOMENT_US), *ends)).unzip();
        Some(
            [(resident, added_us), (ends, ends_us)]
                .map(|(CellSamples { cell, .. }, samples_us)| CellSamples { cell: cell.clone(), samples_us }),
        )
    };
    of(Stage::Resident).filter_map(parts).flatten().collect()
}

impl<'p> SplitPrices<'p> {
    /// # Errors
    /// [`SearchError::Division`] of a profile from which nothing follows for other splits; else as the profile's own
    /// parts say.
    pub(in crate::planner) fn new(profile: &'p Profile) -> Result<Self, SearchError> {
        let refused =
            |expected, found: &str| Err(SearchError::Division { expected, found: found.to_owned() });
        let Some(memory) = &profile.memory else {
            return refused("weights that every forward streams from a file", "none, a GPU's, or experts");
        };
        let table = profile.table()?;
        if [Stage::Read, Stage::Resident, Stage::Ends].iter().any(|stage| !table.has_stage(stage)) {
            return refused("times of the parts of a forward, for which a substitute is needed", "none");
        }
        let Split { streamed_bytes, staging_bytes, .. } = *memory.measured_split();
        if memory.whole_bytes == 0 {
            return refused("a layer in memory, whose computing is timed", "none: all layers are streamed");
        }
        let context = table.contexts()[0];
        let read_us = table.latency_us(&Stage::Read, 1, context)?;
        let bandwidth = streamed_bytes.saturating_sub(staging_bytes) as f64 / read_us;
        if bandwidth <= 0.0 {
            return refused("more streamed weights than the staging buffer holds", "fewer");
        }
        let kinds = profile.drafters.iter().map(DrafterKind::from_description).collect::<Result<_, _>>()?;
        let parts = parts_of(profile);
        if !parts.iter().any(|cell| cell.cell.width == 1) {
            return refused(
                "forwards of one row with and without the layers in memory",
                "none: give the profile more time",
            );
        }
        let parts = LatencyTable::from_samples(&parts, profile.noise_threshold)?;
        if parts.latency_us(&Stage::Resident, 1, context)? <= MOMENT_US {
            let ends_us = parts.latency_us(&Stage::Ends, 1, context)?;
            let found = format!(
                "no difference that {} bytes of them make to the {:.2} ms of embedding and head; profile with more memory for weights, or with \
                 more time on an idle machine",
                memory.whole_bytes,
                ends_us / 1e3
            );
            return refused("layers in memory that take measurable time", &found);
        }
        Ok(Self { profile, memory, table, parts, kinds, bandwidth })
    }

    /// The bits of the whole substitutes that were recorded, and their places among the drafters.
    pub(in crate::planner) fn substitutes(&self) -> impl Iterator<Item = (u32, usize)> {
        let whole = |(place, kind): (usize, &DrafterKind)| {
            let facts = kind.facts();
            (facts.head_tokens.is_none() && kind.grows_alone()).then_some(())?;
            Some((facts.substitute_bits?, place))
        };
        self.kinds.iter().enumerate().filter_map(whole)
    }

    /// Bytes of the matrices of layers that a split leaves in memory.
    fn matrices(&self, split: &Split) -> f64 {
        (split.resident_bytes - self.memory.fixed_bytes) as f64
    }

    /// What forwards as wide as a cell's compute at its context; `None` if that was not measured.
    fn computing(&self, cell: &Cell) -> Result<Option<Computing>, SearchError> {
        if !self.parts.widths(&Stage::Ends).contains(&cell.width) {
            return Ok(None);
        }
        let ends_us = self.parts.latency_us(&Stage::Ends, cell.width, cell.context)?;
        let layers_us = self.parts.latency_us(&Stage::Resident, cell.width, cell.context)?;
        Ok(Some(Computing { ends_us, us_per_byte: layers_us / self.memory.whole_bytes as f64 }))
    }

    /// What reading takes at a split whose buffer is full.
    fn read_us(&self, split: &Split) -> f64 {
        split.streamed_bytes.saturating_sub(split.staging_bytes) as f64 / self.bandwidth
    }

    fn resident_us(&self, computing: Computing, split: &Split) -> f64 {
        computing.ends_us + self.matrices(split) * computing.us_per_byte
    }

    /// A forward of the verifier.
    fn forward_us(&self, computing: Computing, split: &Split) -> f64 {
        let streamed_us = split.streamed_bytes as f64 * computing.us_per_byte;
        self.resident_us(computing, split) + streamed_us.max(self.read_us(split))
    }

    /// By how much a cell's times change from the measured split to another; `None` where that cannot be told.
    fn factor(&self, cell: &Cell, split: &Split) -> Result<Option<f64>, SearchError> {
        let measured = self.memory.measured_split();
        let own = || self.table.latency_us(&cell.stage, cell.width, cell.context);
        let is_substitute = |name: &DrafterName| {
            let mut drafters = self.profile.drafters.iter().zip(&self.kinds);
            let found = drafters.find(|(drafter, _)| drafter.name == *name);
            found.is_some_and(|(_, kind)| kind.facts().substitute_bits.is_some())
        };
        let factor = match &cell.stage {
            Stage::Verify => self
                .computing(cell)?
                .map(|computing| self.forward_us(computing, split) / self.forward_us(computing, measured)),
            Stage::Resident => match self.computing(cell)? {
                Some(computing) => Some(self.resident_us(computing, split) / own()?),
                None => None,
            },
            Stage::Read => Some(self.read_us(split) / self.read_us(measured)),
            Stage::Draft(name) if is_substitute(name) => match self.computing(cell)? {
                Some(computing) => {
                    let own_us = own()?;
                    let narrow_us = (own_us - self.resident_us(computing, measured)).max(0.0);
                    let narrow_us = narrow_us * split.streamed_bytes as f64 / measured.streamed_bytes as f64;
                    Some((self.resident_us(computing, split) + narrow_us) / own_us)
                }
                None => None,
            },
            Stage::Ends | Stage::Host(_) => Some(1.0),
            // Of a model of its own, or no model.
            Stage::Draft(_) | Stage::DraftHead(_) => Some(1.0),
            // Of devices that read no file.
            Stage::VerifyWalk
            | Stage::VerifyTail(_)
            | Stage::FirstGrowth(_)
            | Stage::NextGrowth(_)
            | Stage::VerifyGrown(_) => None,
        };
        Ok(factor)
    }

    /// The samples of the cells that `is_wanted` picks, as they would be at another split.
    pub(in crate::planner) fn measurements(
        &self,
        split: &Split,
        is_wanted: impl Fn(&Stage) -> bool,
    ) -> Result<Vec<CellSamples>, SearchError> {
        let mut all = Vec::new();
        for CellSamples { cell, samples_us } in &self.profile.measurements {
            if !is_wanted(&cell.stage) {
                continue;
            }
            if let Some(factor) = self.factor(cell, split)? {
                let samples_us = samples_us.iter().map(|us| (us * factor).max(MOMENT_US)).collect();
                all.push(CellSamples { cell: cell.clone(), samples_us });
            }
        }
        Ok(all)
    }

    /// The profile as it would be at another split, with the substitute of these bits alone, if any.
    pub(in crate::planner) fn profile_at(
        &self,
        place: usize,
        bits: Option<u32>,
    ) -> Result<Profile, SearchError> {
        let split = &self.memory.splits[place];
        let stays = |kind: &DrafterKind| kind.facts().substitute_bits.is_none_or(|own| Some(own) == bits);
        let drafters = self.profile.drafters.iter().zip(&self.kinds).filter(|(_, kind)| stays(kind));
        let drafters: Vec<_> = drafters.map(|(drafter, _)| drafter.clone()).collect();
        let is_there = |name: &DrafterName| drafters.iter().any(|drafter| drafter.name == *name);
        let mut profile = self.profile.clone();
        profile.measurements = self.measurements(split, |stage| stage.drafter().is_none_or(is_there))?;
        profile.traces.retain(|trace| is_there(&trace.drafter));
        profile.live_traces.retain(|trace| is_there(&trace.drafter));
        profile.predictors.retain(|predictor| is_there(&predictor.drafter));
        let whole_bytes = split.resident_bytes - self.memory.fixed_bytes;
        let measured = u32::try_from(place).expect("few matrices");
        profile.memory = Some(WeightMemory { measured, whole_bytes, ..self.memory.clone() });
        profile.fingerprints.machine.resident_bytes = Some(split.budget_bytes);
        profile.drafters = drafters;
        Ok(profile)
    }
}
