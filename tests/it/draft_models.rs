//! Drafter models with caches of their own: pairs of them and tiny verifiers, what is in their caches, and what they
//! compute.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use ygg_kernels::{Activations, KvFormat, WeightFormat};
use yggc::{
    ir::WeightSource,
    model::{
        HiddenStateModel, Model, RopeConfig, RopeScaling,
        synthetic::{BlockSpec, Eagle3Spec, HiddenStateSpec, SyntheticSpec},
    },
    runtime::{ExecutableSet, MarkovHead, Session, SetOptions},
    sample::Sampling,
    speculate::{
        BandSteps, BlockDrafter, Budget, Candidate, Decoder, Drafter, ModelDrafter, Stats, StepShape,
        TraceObserver,
    },
    tree::{NodeId, Template, TokenTree},
};

use crate::{
    lossless::{any_shape, decode},
    tiny_model::{Class, Dice, MODEL_CONTEXT, TinyModel, WIDTHS, models, session},
};

/// What the pairs' drafter models are called.
pub(crate) const DRAFT: &str = "draft";

/// The shape of a drafter layer for a tiny model, which knows texts of at most `context` tokens.
fn shape_for(model: &TinyModel, context: usize) -> SyntheticSpec {
    let config = &model.model.config;
    SyntheticSpec {
        layers: config.layers,
        width: config.hidden_size,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        feed_forward: config.feed_forward,
        vocabulary: config.vocabulary,
        context,
        rope: RopeConfig { base: 5_000.0, scaling: RopeScaling::None },
        ..SyntheticSpec::default()
    }
}

/// A hidden-state drafter for a tiny model, which knows texts of at most `context` tokens.
fn hidden_state(model: &TinyModel, context: usize) -> HiddenStateModel {
    let mut spec = HiddenStateSpec::for_verifier(&shape_for(model, context));
    if model.format == WeightFormat::F32 {
        spec.shape.format = WeightFormat::F32;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    spec.write_folder(folder.path()).expect("the drafter is written");
    HiddenStateModel::open(folder.path()).expect("a generated drafter opens").expect("it says what it is")
}

/// Executables of a tiny model with those of a hidden-state drafter added; made once.
pub(crate) fn hidden_pair(model: &TinyModel, class: Class, context: usize) -> Arc<ExecutableSet> {
    type Pairs = BTreeMap<(String, String, usize), Arc<ExecutableSet>>;
    static PAIRS: Mutex<Pairs> = Mutex::new(BTreeMap::new());
    let key = (model.name.clone(), class.to_string(), context);
    let mut pairs = PAIRS.lock().expect("no test panics in here");
    let pair = pairs.entry(key).or_insert_with(|| {
        let weights = Arc::clone(&model.model.weights);
        let set = model.set(class).with_kept_hidden(weights.as_ref()).expect("it compiles");
        let drafter = hidden_state(model, context);
        let (graph, weights) = drafter.over(set.graph(), weights).expect("its verifier");
        let draft = set.beside(&graph, weights.as_ref(), context).expect("it compiles");
        Arc::new(set.with_draft(DRAFT, Arc::new(draft)))
    });
    Arc::clone(pair)
}

/// The EAGLE-3 heads that are tried, which differ in what can go wrong when drafts are made or verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Eagle3Kind {
    /// SafeAILab's layout, with the verifier's head.
    Shared,
    /// The layout of speculators, with a head for some tokens.
    Reduced,
    /// The same in SafeAILab's, with the tokens in another order.
    Shuffled,
}

impl Eagle3Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Shared, Self::Reduced, Self::Shuffled];

    /// The tokens of a head of its own.
    pub(crate) fn tokens(self, vocabulary: usize) -> Option<Vec<u32>> {
        let some = || (0..u32::try_from(vocabulary).expect("few tokens")).filter(|token| token % 5 != 1);
        match self {
            Self::Shared => None,
            Self::Reduced => Some(some().collect()),
            Self::Shuffled => Some(some().rev().collect()),
        }
    }
}

/// Executables of a tiny model with those of an EAGLE-3 head added, trimmed to the tokens in `kept` if there are any.
pub(crate) fn eagle3_pair(
    model: &TinyModel,
    class: Class,
    kind: Eagle3Kind,
    kept: &[u32],
) -> Arc<ExecutableSet> {
    type Pair = (Arc<ExecutableSet>, Arc<dyn WeightSource>);
    type Pairs = BTreeMap<(String, String, Eagle3Kind), Pair>;
    static PAIRS: Mutex<Pairs> = Mutex::new(BTreeMap::new());
    let key = (model.name.clone(), class.to_string(), kind);
    let mut pairs = PAIRS.lock().expect("no test panics in here");
    let (pair, weights) = pairs.entry(key).or_insert_with(|| {
        let of_model = Arc::clone(&model.model.weights);
        let set = model.set(class);
        let mut spec = Eagle3Spec::for_verifier(&shape_for(model, MODEL_CONTEXT));
        spec.draft_tokens = kind.tokens(set.vocabulary());
        spec.is_speculators = kind == Eagle3Kind::Reduced;
        if model.format == WeightFormat::F32 {
            spec.shape.format = WeightFormat::F32;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        spec.write_folder(folder.path()).expect("the head is written");
        let head = HiddenStateModel::open(folder.path()).expect("it opens").expect("it says what it is");
        let (graph, weights) = head.over(set.graph(), Arc::clone(&of_model)).expect("its verifier");
        let set = set.with_kept_layers(of_model.as_ref(), graph.layers_read()).expect("it compiles");
        let draft = set.beside(&graph, weights.as_ref(), MODEL_CONTEXT).expect("it compiles");
        (Arc::new(set.with_draft(DRAFT, Arc::new(draft))), weights)
    });
    if kept.is_empty() {
        return Arc::clone(pair);
    }
    let draft = pair.draft(DRAFT).expect("a pair").with_heads(weights.as_ref(), &[kept], |stored| stored);
    Arc::new(pair.with_draft(DRAFT, Arc::new(draft.expect("some of its tokens"))))
}

/// Executables of a tiny model with those of a block drafter added, in a layout whose rows are for the tokens after
/// them or in one where they are for their own places. A Markov head adds to the logits of the tokens that follow one
/// another in `known`; without such a text there is none.
pub(crate) fn block_pair(
    model: &TinyModel,
    class: Class,
    is_dspark: bool,
    known: &[u32],
) -> Arc<ExecutableSet> {
    type Pairs = BTreeMap<(String, String, bool), Arc<ExecutableSet>>;
    static PAIRS: Mutex<Pairs> = Mutex::new(BTreeMap::new());
    let key = (model.name.clone(), class.to_string(), is_dspark);
    let mut pairs = PAIRS.lock().expect("no test panics in here");
    let pair = pairs.entry(key).or_insert_with(|| {
        let of_model = Arc::clone(&model.model.weights);
        let set = model.set(class);
        let mut spec = BlockSpec::for_verifier(&shape_for(model, MODEL_CONTEXT));
        spec.shape.layers = 2;
        spec.markov_rank = is_dspark.then_some(3);
        if model.format == WeightFormat::F32 {
            spec.shape.format = WeightFormat::F32;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        spec.write_folder(folder.path()).expect("the drafter is written");
        let head = HiddenStateModel::open(folder.path()).expect("it opens").expect("it says what it is");
        let (graph, weights) = head.over(set.graph(), Arc::clone(&of_model)).expect("its verifier");
        let set = set.with_kept_layers(of_model.as_ref(), graph.layers_read()).expect("it compiles");
        let draft = set.block_beside(&graph, weights.as_ref(), MODEL_CONTEXT).expect("it compiles");
        Arc::new(set.with_draft(DRAFT, Arc::new(draft)))
    });
    let draft = ExecutableSet::clone(pair.draft(DRAFT).expect("a pair"));
    let markov = (!known.is_empty()).then(|| following(known, draft.vocabulary()));
    Arc::new(pair.with_draft(DRAFT, Arc::new(draft.with_markov(markov))))
}

/// Such a pair of any layout, at times without a Markov head.
pub(crate) fn any_block_pair(
    model: &TinyModel,
    class: Class,
    known: &[u32],
    dice: &mut Dice,
) -> Arc<ExecutableSet> {
    let known = if dice.chance(80) { known } else { &[] };
    block_pair(model, class, dice.chance(50), known)
}

/// The drafter of such a pair, which fills a template if there is one.
pub(crate) fn block_drafter(
    session: &Session,
    shape: &StepShape,
    template: Option<&Template>,
) -> Box<dyn Drafter> {
    let draft = session.set().draft(DRAFT).expect("a pair");
    let whole = BlockDrafter::new(session, draft, shape).expect("a block drafter");
    match template {
        Some(template) => Box::new(whole.with_template(template, shape).expect("its own shape")),
        None => Box::new(whole),
    }
}

/// A Markov head that adds much to the logits of the tokens that follow one another in a text: of every token a code of
/// signs, and of what follows the sum of the codes before.
fn following(text: &[u32], vocabulary: usize) -> MarkovHead {
    const RANK: usize = 16;
    let code = |token: u32| {
        let mut dice = Dice::new(u64::from(token));
        std::array::from_fn::<f32, RANK, _>(|_| if dice.chance(50) { 1.0 } else { -1.0 })
    };
    let mut next = vec![0.0; vocabulary * RANK];
    for pair in text.windows(2) {
        let row = &mut next[pair[1] as usize * RANK..][..RANK];
        row.iter_mut().zip(code(pair[0])).for_each(|(sum, sign)| *sum += sign);
    }
    let bits = |values: &[f32]| values.iter().map(|value| (value.to_bits() >> 16) as u16).collect();
    let previous: Vec<f32> = (0..).take(vocabulary).flat_map(code).collect();
    MarkovHead::new(RANK, bits(&previous), bits(&next), None)
}

/// Executables of a tiny model with those of another model added, whose vocabulary may be of another size.
pub(crate) fn plain_pair(model: &TinyModel, drafter: &TinyModel, class: Class) -> Arc<ExecutableSet> {
    let draft = Arc::clone(drafter.set(Class::native(class.tier)));
    Arc::new(model.set(class).with_draft(DRAFT, draft))
}

/// As [`plain_pair`], with a drafter that knows texts of at most `context` tokens.
pub(crate) fn shorter_pair(
    model: &TinyModel,
    drafter: &TinyModel,
    class: Class,
    context: usize,
) -> Arc<ExecutableSet> {
    if context == MODEL_CONTEXT {
        return plain_pair(model, drafter, class);
    }
    let options = SetOptions {
        tier: class.tier,
        kv_format: KvFormat::F16,
        activations: Activations::Native,
        widths: WIDTHS.to_vec(),
        model_context: context,
        threads: 1,
        resident: None,
    };
    let Model { graph, weights, .. } = &drafter.model;
    let draft = ExecutableSet::build(graph, weights.as_ref(), &options).expect("a generated model loads");
    Arc::new(model.set(class).with_draft(DRAFT, Arc::new(draft)))
}

/// A session of a pair.
pub(crate) fn pair_session(
    pair: &Arc<ExecutableSet>,
    context: usize,
    tree_nodes: usize,
    threads: usize,
) -> Session {
    let mut session = session(pair, context, tree_nodes, threads);
    if pair.draft(DRAFT).expect("a pair").text_columns() > 0 {
        session.keep_hidden().expect("made for that");
    }
    session
}

/// The drafter of a pair.
pub(crate) fn pair_drafter(session: &Session, shape: &StepShape) -> ModelDrafter {
    let draft = session.set().draft(DRAFT).expect("a pair");
    ModelDrafter::new(session, draft, shape).expect("a planned width")
}

#[test]
fn a_drafter_that_is_the_verifier_is_accepted_nearly_always() {
    let mut accepted = (0, 0);
    for (number, model) in models().iter().enumerate() {
        let mut dice = Dice::new(number as u64);
        let class = Class { activations: Activations::Native, ..model.any_class(&mut dice) };
        let pair = plain_pair(model, model, class);
        let shape = StepShape { depth: 4, draft_width: 2, verify_width: 9, top_k: 4, draft_temperature: 1.0 };
        for threads in [1, 2] {
            let session = pair_session(&pair, 128, shape.tree_nodes(), threads);
            let drafter = pair_drafter(&session, &shape);
            let mut decoder =
                Decoder::new(session, vec![BandSteps::unplanned(Some(Box::new(drafter)), &shape)])
                    .expect("a planned width");
            let prompt = dice.tokens(9, pair.vocabulary());
            decode(&mut decoder, &prompt, Sampling::GREEDY, 60, &[], Some(5));
            let by_depth = decoder.stats().acceptance_by_depth();
            // Growth ranks paths, so a wide distribution may have no room for the best one's end; the first is always
            // there.
            assert_eq!(by_depth[0], 1.0, "{} on {class}: {by_depth:?}", model.name);
            accepted.0 += decoder.stats().step_tokens - decoder.stats().steps;
            accepted.1 += decoder.stats().steps;
        }
    }
    let (tokens, steps) = accepted;
    assert!(tokens as f64 > 2.0 * steps as f64, "{tokens} tokens accepted in {steps} steps of depth 4");
}

/// What was offered, to the last bit.
#[derive(Debug, Default, PartialEq)]
struct Seen(Vec<(NodeId, Vec<(u32, u32)>)>);

impl TraceObserver for Seen {
    fn expanded(&mut self, node: NodeId, candidates: &[Candidate]) {
        self.0.push((node, candidates.iter().map(|c| (c.token, c.log_prob.to_bits())).collect()));
    }
}

/// A drafter, its verifier, and the text they are at.
struct Subject {
    session: Session,
    drafter: Box<dyn Drafter>,
    tree: TokenTree,
    history: Vec<u32>,
    depth: usize,
}

impl Subject {
    fn new(pair: &Arc<ExecutableSet>, context: usize, shape: &StepShape, threads: usize) -> Self {
        let session = pair_session(pair, context, shape.tree_nodes(), threads);
        let draft = pair.draft(DRAFT).expect("a pair");
        let drafter: Box<dyn Drafter> = match draft.block_rows() {
            Some(_) => block_drafter(&session, shape, None),
            None => Box::new(pair_drafter(&session, shape)),
        };
        let tree = TokenTree::with_capacity(shape.tree_nodes());
        Self { session, drafter, tree, history: Vec::new(), depth: shape.depth }
    }

    /// Begins with all of `history` but the last token in the verifier's cache.
    fn begin(&mut self, history: Vec<u32>, is_read: bool) {
        self.history = history;
        let prompt = &self.history[..self.history.len() - 1];
        self.session.restart(prompt).expect("it fits");
        if is_read {
            self.drafter.prefill(&self.history, &self.session).expect("it fits");
        }
    }

    fn propose(&mut self) -> Seen {
        let mut seen = Seen::default();
        self.tree.reset(*self.history.last().expect("begun"));
        let room = self.session.context() - self.history.len();
        let budget = Budget {
            session: &mut self.session,
            history: &self.history,
            depth: self.depth.min(room),
            rows: usize::MAX,
            coupling: None,
            stats: &mut Stats::default(),
            observer: Some(&mut seen),
        };
        self.drafter.propose(&mut self.tree, budget).expect("it runs");
        seen
    }

    /// Goes on along some path of the tree, or none of it, to a token that is not on it.
    fn go_on(&mut self, dice: &mut Dice) {
        let nodes: Vec<NodeId> = self.tree.nodes().collect();
        let mut path = Vec::new();
        self.tree.path(*dice.pick(&nodes), &mut path);
        let mut emitted: Vec<u32> = path[1..].iter().map(|node| self.tree.token(*node)).collect();
        emitted.push(dice.below(self.session.set().vocabulary()) as u32);
        emitted.truncate(self.session.context() - self.history.len());
        let root = self.history.len() - 1;
        self.history.extend(&emitted);
        let committed = &self.history[root..self.history.len() - 1];
        self.session.score(committed, |_, _| ()).expect("it fits");
    }
}

/// Whatever became of its trees, the next is that of a drafter that reads the text for the first time.
#[test]
fn any_history_of_a_drafter_leaves_what_it_drafts_alone() {
    let mut compared = 0;
    for case in 0..60 {
        let mut dice = Dice::new(7_000 + case);
        let model = dice.pick(models());
        let class = model.any_class(&mut dice);
        let pair = match case % 3 {
            0 => hidden_pair(model, class, *dice.pick(&[256, 40])),
            1 => block_pair(model, class, dice.chance(50), &[5, 9, 7, 5, 8]),
            _ => plain_pair(model, dice.pick(models()), class),
        };
        let shape = any_shape(&mut dice);
        let context = 90;
        let mut subject = Subject::new(&pair, context, &shape, dice.within(1, 2));
        let any_text = |dice: &mut Dice| {
            let len = dice.within(2, 30);
            dice.tokens(len, 290)
        };
        subject.begin(any_text(&mut dice), true);
        for _ in 0..dice.within(2, 14) {
            if subject.history.len() + 2 > context || dice.chance(10) {
                // Another request, which may begin as the last one does.
                let kept = if dice.chance(50) { dice.below(subject.history.len()) } else { 0 };
                let text = [&subject.history[..kept.min(40)], &any_text(&mut dice)].concat();
                subject.begin(text, dice.chance(70));
            }
            if dice.chance(80) {
                subject.propose();
            } else {
                // A step that does not draft, or one after a tree that was drafted before.
                subject.tree.reset(*subject.history.last().expect("begun"));
            }
            subject.session.poison_scratch(dice.bits());
            subject.go_on(&mut dice);
        }
        let mut fresh = Subject::new(&pair, context, &shape, 1);
        fresh.begin(subject.history.clone(), dice.chance(50));
        subject.session.poison_scratch(dice.bits());
        let (found, expected) = (subject.propose(), fresh.propose());
        let what = format!("case {case}, {} on {class}, {shape:?}", model.name);
        assert_eq!(found, expected, "{what}");
        let described = |tree: &TokenTree| -> Vec<(u32, u32)> {
            tree.nodes().map(|n| (tree.token(n), tree.value(n).to_bits())).collect()
        };
        assert_eq!(described(&subject.tree), described(&fresh.tree), "{what}");
        compared += usize::from(subject.tree.len() > 1);
    }
    assert!(compared > 35, "{compared} trees were compared: too few to show anything");
}
