//! Losslessness on the default model: real prompts, forced drafters of several shapes, greedy and sampled, on one
//! thread and on two; the tokens are plain decoding's.
//!
//! Reading the prompts is most of the work, so drafters share them out: each answers a third, in every setting.
//! `benches/lossless.py` asks as many as one likes of lookup and layer skip.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use yggc::{
    engine::{Activations, DraftModel, LoadOptions, Loaded, Message, Pinning, Prompt, Role, Sampling, Tier},
    measure::calibration_prompts,
    model::{
        RopeConfig, RopeScaling,
        synthetic::{HiddenStateSpec, SyntheticSpec},
    },
    plan::{
        DrafterKind, LayerSkipSettings, LookupSettings, Mixture, NgramSettings, Schedule, SuffixSettings,
    },
    runtime::SessionOptions,
    speculate::{BandSteps, Decoder, Limits, StepShape, make_drafter},
};

use crate::program::default_model;

/// Every so many of the calibration prompts is asked: 20, of every kind.
const EVERY: usize = 10;
/// So many of them, the shortest, are asked where there is only the portable tier: all would take it half an hour.
const PORTABLE_PROMPTS: usize = 12;
/// One of so many questions is asked of a drafter; without a factor in common with the number of [`SETTINGS`].
const SHARES: usize = 3;
/// Tokens of an answer, unless it ends earlier.
const TOKENS: usize = 16;
/// Of temperature and seed of the sampled answers.
const SAMPLED: Sampling = Sampling { temperature: 0.8, seed: 7, ..Sampling::GREEDY };
/// The prompts take turns at these: sampling and threads of a session.
const SETTINGS: [(Sampling, usize); 4] =
    [(Sampling::GREEDY, 1), (Sampling::GREEDY, 2), (SAMPLED, 1), (SAMPLED, 2)];
/// All that the shapes below draft and verify with.
const WIDTHS: [usize; 4] = [4, 8, 16, 48];

/// A shape of drafters that run a model.
fn run_model(depth: usize, draft_width: usize, verify_width: usize) -> StepShape {
    StepShape { depth, draft_width, verify_width, top_k: 8, draft_temperature: 1.0 }
}

/// Attention and MLP of every odd layer but the last.
fn every_odd_layer(groups: u32) -> DrafterKind {
    let layers = groups / 2;
    DrafterKind::LayerSkip(LayerSkipSettings {
        skipped: (1..layers - 1).step_by(2).flat_map(|layer| [2 * layer, 2 * layer + 1]).collect(),
        head_tokens: None,
    })
}

/// The same with a head of every fifth token: many are missing that the answers have.
fn every_fifth_token(whole: DrafterKind, vocabulary: usize) -> DrafterKind {
    let DrafterKind::LayerSkip(LayerSkipSettings { skipped, head_tokens: None }) = whole else {
        unreachable!("a whole head")
    };
    let vocabulary = u32::try_from(vocabulary).expect("token ids are 32 bits");
    DrafterKind::LayerSkip(LayerSkipSettings {
        skipped,
        head_tokens: Some((0..vocabulary).step_by(5).collect()),
    })
}

/// A drafter of random weights that reads the model's hidden rows, with a whole head or one of the sixth of the tokens
/// that the vocabulary begins with, which are the frequent ones. Its projection hands those rows on, so it is right now
/// and then.
fn hidden_state(head_of: Option<usize>) -> DrafterKind {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let shape = SyntheticSpec {
            width: 576,
            layers: 1,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            feed_forward: 1536,
            vocabulary: 49152,
            context: 8192,
            rope: RopeConfig { base: 100_000.0, scaling: RopeScaling::None },
            ..SyntheticSpec::default()
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hidden-state-drafter");
        HiddenStateSpec::for_verifier(&shape).write_folder(&folder).expect("the target folder is writable");
        folder
    });
    let whole = DraftModel::open(folder).expect("it was written").drafter().expect("its path is UTF-8");
    match head_of {
        Some(tokens) => whole.trimmed_to((0..tokens as u32 / 6).collect()).expect("a whole head"),
        None => whole,
    }
}

/// A prompt with plain decoding's answer.
#[derive(Debug)]
struct Question {
    kind: String,
    sampling: Sampling,
    threads: usize,
    prompt: Vec<u32>,
    /// Prompt and answer, by plain decoding on one thread.
    truth: Vec<u32>,
}

/// The model and the questions, shared by all tests here.
#[derive(Debug)]
struct Exam {
    loaded: Loaded,
    context: usize,
    questions: Vec<Question>,
}

fn exam() -> &'static Exam {
    static EXAM: OnceLock<Exam> = OnceLock::new();
    EXAM.get_or_init(|| {
        let options = LoadOptions {
            tier: None,
            activations: Activations::Int8,
            cache: yggc::engine::KvFormat::F16,
            threads: Some(2),
            widths: WIDTHS.to_vec(),
            resident: None,
        };
        let loaded = Loaded::open(default_model(), &options).expect("the default model");
        let trimmed = every_fifth_token(every_odd_layer(loaded.set().groups()), loaded.set().vocabulary());
        let vocabulary = loaded.set().vocabulary();
        let needed = [trimmed, hidden_state(None), hidden_state(Some(vocabulary))];
        let loaded = loaded.with_drafters(&needed).expect("tokens in order, and a drafter for this model");
        let mut prompts: Vec<_> = calibration_prompts().into_iter().step_by(EVERY).collect();
        assert!(prompts.len() >= 20, "{} prompts", prompts.len());
        if loaded.tier() == Tier::Portable {
            prompts.sort_by_key(|prompt| prompt.text.len());
            prompts.truncate(PORTABLE_PROMPTS);
        }
        let mut questions: Vec<Question> = prompts
            .into_iter()
            .zip(SETTINGS.iter().cycle())
            .map(|(prompt, &(sampling, threads))| {
                let asked = Prompt::chat(vec![Message::new(Role::User, prompt.text)]);
                let ids = asked.token_ids(&loaded).expect("a chat prompt");
                Question { kind: prompt.kind, sampling, threads, prompt: ids, truth: Vec::new() }
            })
            .collect();
        let longest = questions.iter().map(|q| q.prompt.len()).max().expect("some prompts");
        let mut exam = Exam { loaded, context: longest + TOKENS, questions: Vec::new() };
        let mut plain = exam.decoder(&DrafterKind::None, StepShape::PLAIN, Schedule::Plain, 1);
        for question in &mut questions {
            exam.answer(&mut plain, question);
            question.truth = plain.history().to_vec();
        }
        exam.questions = questions;
        exam
    })
}

impl Exam {
    fn decoder(&self, kind: &DrafterKind, shape: StepShape, schedule: Schedule, threads: usize) -> Decoder {
        let tree_nodes = shape.scratch_rows(schedule);
        let options =
            SessionOptions { context: self.context, tree_nodes, threads, pinning: Pinning::Floating };
        let session = self.loaded.session(&options, [kind]).expect("a short session");
        let drafter = make_drafter(kind, &shape, &session).expect("planned widths");
        let mut steps = BandSteps::unplanned(drafter, &shape);
        steps.sub_plan.schedule = schedule;
        Decoder::new(session, vec![steps]).expect("layer skip under any schedule, others under the plain one")
    }

    /// Decodes until the answer ends, or has [`TOKENS`] tokens.
    fn answer(&self, decoder: &mut Decoder, question: &Question) {
        let ends = self.loaded.end_ids();
        let mut last = decoder.start(&question.prompt, question.sampling).expect("the prompt fits");
        loop {
            let wanted = TOKENS - (decoder.history().len() - question.prompt.len());
            if wanted == 0 || ends.contains(&last) {
                return;
            }
            decoder.step(Limits { tokens: wanted, ends }, None).expect("the step runs");
            last = *decoder.emitted().last().expect("a step emits something");
        }
    }

    /// Answers a share of the questions with a forced drafter.
    fn sit(&self, share: usize, kind: &DrafterKind, shape: StepShape, schedule: Schedule) {
        let mut by_threads = [1, 2].map(|threads| self.decoder(kind, shape, schedule, threads));
        let (mut drafted, mut accepted, mut heads) = (0, 0, 0);
        for (i, question) in self.questions.iter().enumerate().skip(share).step_by(SHARES) {
            let decoder = &mut by_threads[question.threads - 1];
            self.answer(decoder, question);
            let Question { kind: what, sampling, threads, prompt, truth } = question;
            assert_eq!(
                decoder.history()[prompt.len()..],
                truth[prompt.len()..],
                "prompt {i} ({what}) on {threads} threads, {sampling:?}, {kind:?}, {shape:?}, {schedule}"
            );
            drafted += decoder.stats().drafted;
            accepted += decoder.stats().accepted;
            heads += decoder.stats().heads_ahead;
        }
        assert_eq!(heads > 0, schedule == Schedule::HeadAhead, "{heads} heads drafted ahead");
        assert!(drafted > 0 && accepted > 0, "{accepted} of {drafted} accepted: this shows nothing");
    }

    fn layer_skip(&self, share: usize, shape: StepShape, schedule: Schedule) {
        self.sit(share, &every_odd_layer(self.loaded.set().groups()), shape, schedule);
    }
}

#[test]
fn a_chain_of_layer_skip_changes_no_token() {
    exam().layer_skip(0, run_model(4, 1, 4), Schedule::Plain);
}

#[test]
fn a_tree_of_layer_skip_changes_no_token() {
    exam().layer_skip(1, run_model(4, 4, 16), Schedule::Plain);
}

#[test]
fn a_large_tree_of_layer_skip_changes_no_token() {
    exam().layer_skip(2, run_model(6, 8, 48), Schedule::Plain);
}

#[test]
fn heads_drafted_ahead_change_no_token() {
    exam().layer_skip(0, run_model(3, 2, 4), Schedule::HeadAhead);
}

#[test]
fn a_trimmed_head_changes_no_token() {
    let set = exam().loaded.set();
    let kind = every_fifth_token(every_odd_layer(set.groups()), set.vocabulary());
    exam().sit(1, &kind, run_model(4, 4, 16), Schedule::Plain);
}

#[test]
fn a_hidden_state_drafter_changes_no_token() {
    exam().sit(2, &hidden_state(None), run_model(4, 4, 16), Schedule::Plain);
}

#[test]
fn a_hidden_state_drafter_with_a_trimmed_head_changes_no_token() {
    exam().sit(
        2,
        &hidden_state(Some(exam().loaded.set().vocabulary())),
        run_model(4, 4, 16),
        Schedule::Plain,
    );
}

#[test]
fn lookup_changes_no_token() {
    let kind = DrafterKind::Lookup(LookupSettings { longest_match: 4, shortest_match: 1 });
    let shape = StepShape { depth: 7, draft_width: 2, verify_width: 8, top_k: 0, draft_temperature: 1.0 };
    exam().sit(1, &kind, shape, Schedule::Plain);
}

/// A shape of drafters that run no model.
const FREE: StepShape =
    StepShape { depth: 6, draft_width: 3, verify_width: 16, top_k: 0, draft_temperature: 1.0 };

#[test]
fn a_suffix_changes_no_token() {
    exam().sit(2, &DrafterKind::Suffix(SuffixSettings::DEFAULT), FREE, Schedule::Plain);
}

#[test]
fn recycling_changes_no_token() {
    exam().sit(0, &DrafterKind::Recycling, FREE, Schedule::Plain);
}

#[test]
fn a_mixture_changes_no_token() {
    let parts = [
        DrafterKind::Lookup(LookupSettings { longest_match: 3, shortest_match: 1 }),
        DrafterKind::Suffix(SuffixSettings::DEFAULT),
        DrafterKind::Ngram(NgramSettings::DEFAULT),
        DrafterKind::Recycling,
    ];
    let mixture = Mixture::of(&parts).expect("drafters without a model");
    exam().sit(1, &DrafterKind::Mixed(mixture), FREE, Schedule::Plain);
}

#[test]
fn n_grams_of_a_pool_change_no_token() {
    let settings = NgramSettings { pool: 2, ..NgramSettings::DEFAULT };
    exam().sit(2, &DrafterKind::Ngram(settings), FREE, Schedule::Plain);
}
