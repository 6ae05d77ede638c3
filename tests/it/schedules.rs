//! Schedules: heads drafted ahead give the trees of plain schedules, bit for bit, wherever a next step drafts.
//!
//! The judge is a decoder under the plain schedule that takes the same steps.

use std::sync::Arc;

use yggc::{
    plan::Schedule,
    runtime::{ExecutableSet, SkipSet},
    sample::Sampling,
    speculate::{
        Begin, Candidate, Decoder, Drafter, Limits, Lookup, Reuse, SelfDrafter, SpeculateError, StepShape,
        TraceObserver,
    },
    tree::{NodeId, TokenTree},
};

use crate::{
    draft_models::{hidden_pair, pair_drafter, pair_session, shorter_pair},
    lossless::{Policy, any_policy, any_sampling, any_shape, any_template, scheduled},
    program::{success, yggc},
    tiny_commands::{json, on_tiny, profile},
    tiny_model::{Class, Dice, MODEL_CONTEXT, best_tier, is_cuda, models, part, session, some_models},
};

/// A decoder with a layer-skip drafter.
fn decoder(
    set: &Arc<ExecutableSet>,
    skipped: &[u32],
    (shape, schedule): (StepShape, Schedule),
    policy: &Option<Policy>,
    (context, threads): (usize, usize),
) -> Result<Decoder, SpeculateError> {
    let session = session(set, context, shape.scratch_rows(schedule), threads);
    let skip = SkipSet::new(set.groups(), skipped).expect("groups of the model");
    let drafter = SelfDrafter::layer_skip(&session, skip, &shape)?;
    let steps = scheduled(Box::new(drafter), &shape, schedule);
    Decoder::new(session, vec![Policy::planned_over(policy, steps)])
}

/// Everything about a tree, values to the last bit.
fn described(tree: &TokenTree) -> Vec<(u32, Option<NodeId>, u32, u16)> {
    tree.nodes().map(|n| (tree.token(n), tree.parent(n), tree.value(n).to_bits(), tree.rank(n))).collect()
}

/// What was drafted from each node, log-probabilities to the last bit.
#[derive(Debug, Default, PartialEq)]
struct Seen(Vec<(NodeId, Vec<(u32, u32)>)>);

impl TraceObserver for Seen {
    fn expanded(&mut self, node: NodeId, candidates: &[Candidate]) {
        self.0.push((node, candidates.iter().map(|c| (c.token, c.log_prob.to_bits())).collect()));
    }
}

/// What was drafted ahead of steps.
#[derive(Debug, Default)]
struct Ahead {
    /// Heads that were taken from the step before.
    heads: u64,
    /// Those of them whose step before ended at one of its last Wd nodes, which are forwarded by no growth.
    behind_tails: u64,
}

/// Whether the last step's path ends at one of the last Wd nodes of its tree.
fn ends_at_the_last_growth(decoder: &Decoder) -> bool {
    let tree = decoder.tree();
    let last = tree.follow(decoder.emitted().iter().copied()).last().unwrap_or(NodeId::ROOT);
    last.index() + decoder.shape().draft_width >= tree.len()
}

/// Takes `limits` of tokens in turn under both schedules; gives what was drafted ahead, of which heads must be as many
/// as there were to take.
fn in_step(
    plain: &mut Decoder,
    ahead: &mut Decoder,
    limits: impl Iterator<Item = usize>,
    what: &str,
) -> Ahead {
    let (mut heads, mut behind_tails) = (0, 0);
    let mut has_head = false;
    for wanted in limits {
        let room = plain.session().context() + 1 - plain.history().len();
        let tokens = wanted.min(room);
        if tokens == 0 {
            break;
        }
        let limits = Limits { tokens, ends: &[] };
        let (mut of_plain, mut of_ahead) = (Seen::default(), Seen::default());
        let report = plain.step(limits, Some(&mut of_plain)).expect("the step runs");
        assert_eq!(ahead.step(limits, Some(&mut of_ahead)).expect("the step runs"), report, "{what}");
        assert_eq!(of_ahead, of_plain, "{what}");
        assert_eq!(described(ahead.tree()), described(plain.tree()), "{what}");
        assert_eq!(ahead.history(), plain.history(), "{what}");
        heads += u64::from(!of_plain.0.is_empty() && has_head);
        assert_eq!(ahead.stats().heads_ahead, heads, "{what}");
        // After this step a next one can draft a token and emit another.
        has_head = plain.tree().len() > 1 && plain.emitted().len() + 2 <= tokens;
        behind_tails += u64::from(has_head && ends_at_the_last_growth(plain));
    }
    let [plain, ahead] = [plain.stats(), ahead.stats()];
    assert_eq!((ahead.drafted, ahead.accepted), (plain.drafted, plain.accepted), "{what}");
    assert_eq!(ahead.guard, plain.guard, "{what}");
    assert_eq!(plain.heads_ahead, 0);
    Ahead { heads, behind_tails }
}

/// Steps of two requests under both schedules, of which the second may go on with a part of the first one's text.
fn in_two_requests([plain, ahead]: [&mut Decoder; 2], prompt: &[u32], dice: &mut Dice, what: &str) -> Ahead {
    let mut all = Ahead::default();
    for request in 0..2 {
        let sampling = any_sampling(dice);
        let goes_on = request > 0 && dice.chance(40);
        let kept = if goes_on {
            dice.within(1, plain.history().len().min(plain.session().context() - 1))
        } else {
            0
        };
        for decoder in [&mut *plain, &mut *ahead] {
            if goes_on {
                decoder.cut(kept);
                let text = [decoder.history(), &prompt[..1]].concat();
                let begin = Begin { reuse: Reuse::Prefix, ..Begin::new(&text, sampling) };
                decoder.begin(&begin).expect("the text fits").expect("nobody cancels it");
            } else {
                decoder.start(prompt, sampling).expect("the prompt fits");
            }
        }
        let what = format!("{what}, {sampling:?}, request {request}");
        let taken = if dice.chance(70) {
            in_step(plain, ahead, (1..25).rev(), &what)
        } else {
            // A caller who takes tokens as they please.
            let limits: Vec<usize> = (0..15).map(|_| dice.within(1, 6)).collect();
            in_step(plain, ahead, limits.into_iter(), &what)
        };
        all.heads += taken.heads;
        all.behind_tails += taken.behind_tails;
    }
    all
}

#[test]
fn heads_drafted_ahead_change_no_tree() {
    let (mut heads, mut case) = (0, 0);
    // Emulation is slow.
    let cases = part(if is_cuda() { 4 } else { 80 });
    // Of a few cases most may have short contexts, where little is drafted.
    while case < cases || (heads <= 10 * cases && case < 3 * cases) {
        let mut dice = Dice::new(1_000 + case);
        let model = dice.pick(models());
        let class = model.any_class(&mut dice);
        let set = model.set(class);
        let shape = any_shape(&mut dice);
        let percent = *dice.pick(&[10, 30, 60]);
        let skipped: Vec<u32> = (0..set.groups()).filter(|_| dice.chance(percent)).collect();
        let len = dice.within(1, 16);
        let prompt = dice.tokens(len, set.vocabulary());
        let context = if dice.chance(40) { len + dice.within(2, 20) } else { 128 };
        let policy = dice.chance(60).then(|| any_policy(&shape, &mut dice));
        let open = |schedule, threads| {
            let decoder = decoder(set, &skipped, (shape, schedule), &policy, (context, threads));
            decoder.expect("planned widths")
        };
        let (mut plain, mut ahead) =
            (open(Schedule::Plain, 1), open(Schedule::HeadAhead, 1 + case as usize % 2));
        let what = format!("case {case}, {} on {class}, {shape:?}", model.name);
        heads += in_two_requests([&mut plain, &mut ahead], &prompt, &mut dice, &what).heads;
        case += 1;
    }
    assert!(heads > 10 * cases, "{heads} heads were taken from the step before: too few to show anything");
}

/// Drafter models with a cache of their own, some of another vocabulary, of a shorter context, or the verifier itself.
#[test]
fn heads_of_drafter_models_change_no_tree() {
    let mut all = Ahead::default();
    let cases = part(if is_cuda() { 6 } else { 80 });
    for case in 0..cases {
        let mut dice = Dice::new(1_100 + case);
        let model = *dice.pick(&some_models().collect::<Vec<_>>());
        let class = model.any_class(&mut dice);
        // Of the verifier itself most is accepted, of another model little.
        let drafter = if case % 2 == 0 { model } else { *dice.pick(&some_models().collect::<Vec<_>>()) };
        let draft_context = if case % 5 == 4 { dice.within(8, 40) } else { MODEL_CONTEXT };
        let pair = shorter_pair(model, drafter, class, draft_context);
        let (template, shape) = match dice.chance(20) {
            true => {
                let (template, shape) = any_template(&mut dice);
                (Some(template), shape)
            }
            false => (None, any_shape(&mut dice)),
        };
        let len = dice.within(1, 16);
        let prompt = dice.tokens(len, pair.vocabulary());
        let context = if dice.chance(40) { len + dice.within(2, 20) } else { 128 };
        let policy = dice.chance(50).then(|| any_policy(&shape, &mut dice));
        let open = |schedule, threads| {
            let session = pair_session(&pair, context, shape.scratch_rows(schedule), threads);
            let mut drafter = pair_drafter(&session, &shape);
            if let Some(template) = &template {
                drafter = drafter.with_template(template, &shape).expect("its own shape");
            }
            let steps = scheduled(Box::new(drafter), &shape, schedule);
            Decoder::new(session, vec![Policy::planned_over(&policy, steps)]).expect("planned widths")
        };
        let (mut plain, mut ahead) =
            (open(Schedule::Plain, 1), open(Schedule::HeadAhead, 1 + case as usize / 2 % 2));
        let what = format!("case {case}, {} for {} on {class}, {shape:?}", drafter.name, model.name);
        let taken = in_two_requests([&mut plain, &mut ahead], &prompt, &mut dice, &what);
        all.heads += taken.heads;
        all.behind_tails += taken.behind_tails;
    }
    assert!(
        all.heads > 8 * cases && all.behind_tails > cases,
        "{all:?} in {cases} cases: too few to show anything"
    );
}

#[test]
fn another_request_begins_without_a_head() {
    let set = models()[5].set(Class::native(best_tier()));
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
    let mut decoder =
        decoder(set, &[2], (shape, Schedule::HeadAhead), &None, (128, 1)).expect("a planned width");
    let prompt = Dice::new(8).tokens(9, set.vocabulary());
    decoder.start(&prompt, Sampling::GREEDY).expect("the prompt fits");
    let free = Limits { tokens: 50, ends: &[] };
    for _ in 0..4 {
        decoder.step(free, None).expect("the step runs");
    }
    assert_eq!(decoder.stats().heads_ahead, 3);
    // The same tokens as committed now, and the same root: only that it is another request tells them apart.
    let (root, committed) = decoder.history().split_last().expect("not empty");
    let (root, committed) = (*root, committed.to_vec());
    assert_eq!(decoder.start(&committed, Sampling::GREEDY).expect("it fits"), root);
    decoder.step(free, None).expect("the step runs");
    assert_eq!(decoder.stats().heads_ahead, 0);
    decoder.step(free, None).expect("the step runs");
    assert_eq!(decoder.stats().heads_ahead, 1);
    let history = decoder.history().to_vec();
    decoder.assume_history(&history);
    decoder.step(free, None).expect("the step runs");
    assert_eq!(decoder.stats().heads_ahead, 1);
}

#[test]
fn schedules_that_cannot_be_kept_are_refused() {
    let set = models()[5].set(Class::native(best_tier()));
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
    assert_eq!((shape.scratch_rows(Schedule::Plain), shape.scratch_rows(Schedule::HeadAhead)), (7, 13));
    let lookup = Lookup::new(3, 1, &shape).expect("lengths in order");
    let refused = |session, drafter: Box<dyn Drafter>| {
        let steps = scheduled(drafter, &shape, Schedule::HeadAhead);
        Decoder::new(session, vec![steps]).unwrap_err().to_string()
    };
    let error = refused(session(set, 64, 13, 1), Box::new(lookup));
    assert!(error.contains("schedule head_ahead: expected a drafter that runs a model"), "{error}");
    // The text of a model that reads hidden rows stands on those of the verification.
    let pair = hidden_pair(&models()[5], Class::native(best_tier()), 256);
    let session_of_pair = pair_session(&pair, 64, 13, 1);
    let drafter = pair_drafter(&session_of_pair, &shape);
    let error = refused(session_of_pair, Box::new(drafter));
    assert!(error.contains("expected a drafter that runs a model and reads no hidden rows"), "{error}");
    let small = session(set, 64, 12, 1);
    let skip = SkipSet::new(set.groups(), &[2]).expect("a group of the model");
    let drafter = SelfDrafter::layer_skip(&small, skip, &shape).expect("a planned width");
    let error = refused(small, Box::new(drafter));
    assert!(error.contains("expected at most 12") && error.contains("found 13"), "{error}");
}

#[test]
fn a_plan_with_heads_ahead_answers_as_plain_decoding_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plan = folder.path().join("ahead.plan");
    let mut command = yggc();
    command.args(["plan", "--profile"]).arg(profile());
    command
        .args(["--fix", "drafter=layer_skip,Dd=3,Wd=4,Wv=8,rows=all,schedule=head_ahead", "-o"])
        .arg(&plan);
    let said = success(&command.output().expect("yggc starts"));
    assert!(said.contains("heads drafted ahead"), "{said}");
    let shown = json(yggc().args(["plan", "show", "--json"]).arg(&plan));
    assert_eq!(shown["chosen"]["schedule"], "head_ahead");
    let widths = shown["plan"]["planned"]["draft"].as_array().expect("a list");
    assert!(widths.iter().any(|width| *width == 8), "{widths:?}");
    for arguments in [&[][..], &["--temperature", "0.8", "--seed", "3"]] {
        let run = || {
            let mut command = on_tiny("run");
            command.args(["-p", "hello", "-n", "24", "--json"]).args(arguments);
            command
        };
        let ahead = json(run().arg("--plan").arg(&plan).args(["--drafter", "layer_skip"]));
        let plain = json(run().arg("--no-spec"));
        assert_eq!(ahead["token_ids"], plain["token_ids"], "{arguments:?}");
        assert_eq!(ahead["stats"]["drafter"], "layer_skip");
        assert!(ahead["stats"]["drafted"].as_u64() > Some(20), "{ahead}");
    }
}
