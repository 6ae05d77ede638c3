//! Profiles of tiny models that the tests plan from, and decoders that step as was recorded.

use std::{sync::Arc, time::Duration};

use ygg_profiler::{DrafterDescription, Expansion, Profile, StepTrace, Trace, UnixTime};
use yggc::{
    backend::Tier,
    engine::{
        Activations, DrafterChoice, Engine, Error, LoadOptions, Loaded, Options, Pinning, PlanSource,
        Sampling,
    },
    measure::{CalibrationPrompt, ProfileOptions, profile},
    model::synthetic::SyntheticSpec,
    plan::{DrafterKind, Plan},
    runtime::SessionOptions,
    speculate::{self, BandSteps, Decoder, Limits, StepShape, TraceObserver, make_drafter},
    tree::NodeId,
};

/// What the tests' clock says: profiles are measured and plans are made then.
pub(crate) const NOW: UnixTime = UnixTime::from_seconds(1_795_356_180);

/// Rows that recordings verify at most.
const WIDEST: usize = 64;

/// A model of six layers, loaded for one thread, and its profile by four prompts, as `adjust` would have it.
pub(crate) fn profiled(
    tier: Option<Tier>,
    narrower: &[usize],
    adjust: impl FnOnce(ProfileOptions) -> ProfileOptions,
) -> (Arc<Loaded>, Profile) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let spec = SyntheticSpec { layers: 6, context: 256, ..SyntheticSpec::default() };
    spec.write_gguf(&path).expect("the model is written");
    let widths = [narrower, &[WIDEST]].concat();
    let options = LoadOptions {
        tier,
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(1),
        widths,
        resident: None,
    };
    let loaded = Loaded::open(&path, &options).expect("a generated model loads");
    let profile = profile_of(&loaded, adjust);
    (Arc::new(loaded), profile)
}

/// The profile of a model by four prompts, as `adjust` would have it.
pub(crate) fn profile_of(loaded: &Loaded, adjust: impl FnOnce(ProfileOptions) -> ProfileOptions) -> Profile {
    let texts = ["abc abc abc", "one two three one two", "zzzzzzzz", "to be or not to be"];
    let prompt = |text: &str| CalibrationPrompt { kind: "test".to_owned(), text: text.to_owned() };
    let options = adjust(ProfileOptions {
        prompts: texts.map(prompt).to_vec(),
        contexts: vec![16],
        temperatures: Vec::new(),
        tokens: 48,
        pinning: Pinning::Floating,
        clock: || NOW,
        ..ProfileOptions::new(Duration::from_secs(60))
    });
    let profile = profile(loaded, &options, &mut |_| {}).expect("the model can be profiled");
    assert_eq!(profile.measured_at, NOW, "it says what its clock said");
    profile
}

/// An engine over a model that was loaded.
pub(crate) fn served(
    loaded: &Arc<Loaded>,
    plan: Option<Plan>,
    drafter: DrafterChoice,
) -> Result<Engine, Error> {
    let options = Options {
        plan: plan.map(|plan| PlanSource { plan, name: "test".to_owned(), force: false }),
        drafter,
        context: Some(200),
        pinning: Pinning::Floating,
        ..Options::new("unused")
    };
    Engine::with_loaded(Arc::clone(loaded), &options)
}

/// A decoder of the model that drafts as described, in this shape with any changes, for one thread.
pub(crate) fn decoder(
    loaded: &Loaded,
    drafter: &DrafterDescription,
    shape: StepShape,
    change: impl FnOnce(&mut BandSteps),
) -> Decoder {
    let kind = DrafterKind::from_description(drafter).expect("a drafter of this build");
    let loaded = loaded.with_drafters([&kind]).expect("what it needs is there");
    let options = SessionOptions {
        context: loaded.set().model_context(),
        tree_nodes: shape.tree_nodes(),
        threads: 1,
        pinning: Pinning::Floating,
    };
    let session = loaded.session(&options, [&kind]).expect("a session opens");
    let drafter = make_drafter(&kind, &shape, &session).expect("a planned width");
    let mut steps = BandSteps::unplanned(drafter, &shape);
    change(&mut steps);
    Decoder::new(session, vec![steps]).expect("planned widths")
}

/// Keeps what was offered in one step.
#[derive(Debug, Default)]
struct Offered(Vec<Expansion>);

impl TraceObserver for Offered {
    fn expanded(&mut self, node: NodeId, candidates: &[speculate::Candidate]) {
        let candidates = candidates.iter().map(|c| (c.token, c.log_prob).into()).collect();
        self.0.push(Expansion { node: node.get(), candidates });
    }
}

/// A decoder that drafts and verifies what a trace of a model drafter recorded.
pub(crate) struct Recorder {
    decoder: Decoder,
    ends: Vec<u32>,
}

impl Recorder {
    /// The decoder of one of the profile's traces.
    pub(crate) fn new(loaded: &Loaded, profile: &Profile, trace: &Trace) -> Self {
        let described = profile.drafters.iter().find(|d| d.name == trace.drafter).expect("described");
        Self::of(loaded, described, trace)
    }

    /// The decoder of a drafter with trees as those of a trace.
    pub(crate) fn of(loaded: &Loaded, described: &DrafterDescription, trace: &Trace) -> Self {
        let shape = StepShape {
            depth: trace.depth as usize,
            draft_width: trace.width as usize,
            verify_width: WIDEST,
            top_k: trace.top_k as usize,
            draft_temperature: trace.draft_temperature,
        };
        let decoder = decoder(loaded, described, shape, |_| ());
        Self { decoder, ends: loaded.end_ids().to_vec() }
    }

    /// What is offered in a step after `known` tokens.
    pub(crate) fn offered(&mut self, known: &[u32], sampling: Sampling) -> Vec<Expansion> {
        let Self { decoder, ends } = self;
        decoder.start(known, sampling).expect("the prefix fits");
        let mut offered = Offered::default();
        let tokens = decoder.session().context() + 1 - decoder.history().len();
        decoder.step(Limits { tokens, ends }, Some(&mut offered)).expect("it runs");
        offered.0
    }

    /// Steps after `known` tokens, and compares the step with the recorded one.
    #[track_caller]
    pub(crate) fn check(&mut self, known: &[u32], sampling: Sampling, recorded: &StepTrace) {
        let offered = self.offered(known, sampling);
        let decoder = &self.decoder;
        let tree = decoder.tree();
        let parents: Vec<u32> = tree.nodes().map(|node| tree.parent(node).map_or(0, NodeId::get)).collect();
        let tokens: Vec<u32> = tree.nodes().map(|node| tree.token(node)).collect();
        assert_eq!((&recorded.parents, &recorded.tokens), (&parents, &tokens));
        assert_eq!(recorded.expanded, offered);
        assert_eq!(recorded.verified, decoder.emitted());
    }
}
