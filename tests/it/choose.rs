//! Continuations of one prompt as branches of one tree: each has the bits of a sequence that has it alone.

use std::{cell::Cell, collections::BTreeSet, fs, process::Stdio};

use serde_json::Value;
use ygg_kernels::KvFormat;
use yggc::{
    engine::{
        CancelHandle, Choices, ChooseRequest, Constraint, Continuation, Engine, ErrorKind, Message,
        Normalisation, Options, Pinning, Prompt, Request, Reuse, Role, Sampling, Tier,
    },
    measure,
    prefix::Owner,
    runtime::Session,
    sample::LogNormaliser,
    speculate::{BandSteps, Decoder, Limits, Reading},
};

use crate::{
    families,
    program::{failure, success},
    tiny_commands::{json, keys, model, on_tiny},
    tiny_model::{Class, Dice, TinyModel, cases, everything, is_cuda, session, some_models},
};

/// As other tests run it on another device.
pub(crate) const BRANCHES: &str = "choose::branches_have_the_bits_of_sequences_of_their_own";

const CONTEXT: usize = 96;

/// Different continuations that often begin alike, some of them with another whole.
fn any_options(vocabulary: usize, room: usize, dice: &mut Dice) -> Vec<Vec<u32>> {
    let few = dice.tokens(3, vocabulary);
    let count = *dice.pick(if is_cuda() { &[1, 5, 9] } else { &[1, 2, 5, 16, 40][..] });
    let longest = (*dice.pick(&[1, 2, 5, 30])).min(room);
    let mut options: Vec<Vec<u32>> = Vec::new();
    for _ in 0..count {
        let mut option = match options.is_empty() || dice.chance(50) {
            true => Vec::new(),
            false => {
                let other = dice.pick(&options).clone();
                let kept = dice.within(1, other.len());
                other[..kept].to_vec()
            }
        };
        for _ in 0..dice.within(usize::from(option.is_empty()), longest.saturating_sub(option.len()).max(1)) {
            option.push(if dice.chance(70) { *dice.pick(&few) } else { dice.below(vocabulary) as u32 });
        }
        option.truncate(longest);
        if !options.contains(&option) {
            options.push(option);
        }
    }
    options
}

/// The judge: log-probabilities of an option's tokens in a session that has the prompt and it as one sequence.
fn alone(judge: &mut Session, prompt: &[u32], option: &[u32]) -> Vec<f64> {
    let text = [prompt, option].concat();
    judge.truncate(0);
    let mut log_probs = Vec::new();
    let visit = |place: usize, logits: &[f32]| {
        if place + 1 >= prompt.len() {
            log_probs.push(LogNormaliser::new(logits).nats(logits[text[place + 1] as usize]));
        }
    };
    judge.score(&text[..text.len() - 1], visit).expect("it fits");
    log_probs
}

fn to_bits(log_probs: &[f64]) -> Vec<u64> {
    log_probs.iter().map(|log_prob| log_prob.to_bits()).collect()
}

fn compare(model: &TinyModel, class: Class, dice: &mut Dice) {
    let widths = dice.pick(&[vec![1], vec![1, 3], vec![1, 16], vec![4, 64]]).clone();
    let tree_nodes = *dice.pick(&[1, 2, 7, 16]);
    // A GPU has no kernels for the other.
    let cache = if class.tier == Tier::Cuda || dice.chance(50) { KvFormat::F16 } else { KvFormat::Q8 };
    let set = model.build(class, cache, widths.clone());
    let vocabulary = set.vocabulary();
    let threads = dice.within(1, 2);
    let mut decoder = Decoder::new(session(&set, CONTEXT, tree_nodes, threads), vec![BandSteps::plain()])
        .expect("it decodes");
    let mut judge = session(&set, CONTEXT, 1, 1);
    let len = dice.within(1, 40);
    let mut prompt = dice.tokens(len, vocabulary);
    let widest = *set.widths().last().expect("one at least");
    let mut known = 0;
    for turn in 0..2 {
        let options = any_options(vocabulary, CONTEXT - prompt.len(), dice);
        let texts: Vec<&[u32]> = options.iter().map(|option| &option[..]).collect();
        let reading = Reading { reuse: Reuse::Prefix, ..Reading::new(&prompt) };
        let read = decoder.read_branches(&reading, &texts).expect("it fits").expect("nobody cancels it");
        let what = format!(
            "{} on {class}, {cache:?}, widths {widths:?}, {tree_nodes} nodes, turn {turn}: {options:?}",
            model.name
        );
        for (option, log_probs) in options.iter().zip(&read.log_probs) {
            assert_eq!(
                to_bits(log_probs),
                to_bits(&alone(&mut judge, &prompt, option)),
                "{option:?}, {what}"
            );
        }
        // Every beginning that goes on is run once.
        let goes_on: BTreeSet<&[u32]> =
            options.iter().flat_map(|option| (0..option.len()).map(|len| &option[..len])).collect();
        assert_eq!(read.rows, goes_on.len() as u64, "{what}");
        assert!(read.forwards >= read.rows.div_ceil(widest as u64), "{what}");
        if goes_on.len() <= decoder.session().scratch_slots()
            && goes_on.iter().all(|text| text.len() < tree_nodes)
        {
            assert_eq!(read.forwards, read.rows.div_ceil(widest as u64), "{what}");
        }
        assert_eq!(
            (decoder.history(), decoder.session().committed()),
            (&prompt[..], prompt.len() - 1),
            "{what}"
        );
        assert_eq!(decoder.stats().reused as usize, known, "{what}");
        known = prompt.len() - 1;
        prompt.extend(&options[0][..options[0].len().min(3)]);
        prompt.truncate(CONTEXT - 31);
    }
    // A request goes on from what was read.
    let limits = Limits { tokens: 1, ends: &[] };
    let mut plain = Decoder::new(session(&set, CONTEXT, 1, 1), vec![BandSteps::plain()]).expect("it decodes");
    for decoder in [&mut decoder, &mut plain] {
        decoder.start(&prompt, Sampling::GREEDY).expect("it fits");
        (0..4).for_each(|_| {
            decoder.step(limits, None).expect("it steps");
        });
    }
    assert_eq!(decoder.history(), plain.history());
}

#[test]
fn branches_have_the_bits_of_sequences_of_their_own() {
    let mut dice = Dice::new(51);
    // Of an emulated device, which is slow, the family whose rows have a state.
    let is_tried = |model: &&TinyModel| !is_cuda() || everything() || model.name.starts_with("lfm2");
    for model in some_models().chain(families::some_models().filter(is_tried)) {
        let class = model.any_class(&mut dice);
        for _ in 0..cases(class, 4) {
            compare(model, class, &mut dice);
        }
    }
}

#[test]
fn a_cancelled_reading_ends_before_its_next_forward_and_keeps_the_prompt() {
    let mut dice = Dice::new(52);
    let model = some_models().next().expect("one at least");
    let set = model.build(model.any_class(&mut dice), KvFormat::F16, vec![4]);
    let prompt = dice.tokens(70, set.vocabulary());
    let options = dice.tokens(9, set.vocabulary());
    let mut decoder =
        Decoder::new(session(&set, CONTEXT, 4, 1), vec![BandSteps::plain()]).expect("it decodes");
    let mut read_after = |most: usize| {
        let asked = Cell::new(0);
        let is_cancelled = || asked.replace(asked.get() + 1) >= most;
        let reading = Reading { is_cancelled: &is_cancelled, ..Reading::new(&prompt) };
        let read = decoder.read_branches(&reading, &[&options]).expect("it fits");
        let tokens = decoder.read_tokens(&prompt, Owner::default(), 0, &|| read.is_none()).expect("it fits");
        assert_eq!(tokens.is_none(), read.is_none());
        (read.map(|read| read.log_probs), asked.get())
    };
    let (whole, forwards) = read_after(usize::MAX);
    assert!(whole.is_some() && forwards > 4, "{forwards} forwards");
    for most in 0..forwards {
        assert_eq!(read_after(most), (None, most + 1));
    }
    assert_eq!(read_after(forwards).0, whole);
}

fn engine(read_widths: &[usize]) -> Engine {
    let options = Options {
        read_widths: read_widths.to_vec(),
        tier: Some(Tier::Portable),
        threads: Some(1),
        context: Some(96),
        ..Options::new(model())
    };
    Engine::open(&options).expect("a tiny model opens")
}

fn texts(options: &[&str]) -> Vec<Continuation> {
    options.iter().map(|text| Continuation::Text((*text).to_owned())).collect()
}

#[track_caller]
fn chosen(engine: &mut Engine, request: &ChooseRequest) -> Choices {
    engine.choose(request).expect("it fits").expect("nobody cancels it")
}

#[test]
fn an_engine_finds_what_score_does_whatever_it_was_opened_for() {
    let raw =
        ChooseRequest::new(Prompt::Raw("one and".to_owned()), texts(&[" one", " one and two", " two", "x"]));
    let chat =
        ChooseRequest { prompt: Prompt::chat(vec![Message::new(Role::User, "one or two?")]), ..raw.clone() };
    let [mut narrow, mut wide] = [&[][..], &[4, 16]].map(engine);
    for request in [raw, chat] {
        let choices = chosen(&mut narrow, &request);
        let again = chosen(&mut wide, &request);
        assert_eq!(choices.options, again.options);
        assert!(choices.report.rows == again.report.rows && choices.report.forwards > again.report.forwards);
        assert_eq!(again.report.forwards, again.report.rows.div_ceil(16));
        for option in &choices.options {
            let ids: Vec<u32> = option.tokens.iter().map(|token| token.id).collect();
            let text = [&choices.prompt_token_ids[..], &ids].concat();
            let score = measure::score(wide.loaded(), &text, Pinning::Floating).expect("it fits");
            let nlls = &score.tokens[choices.prompt_token_ids.len() - 1..];
            let found: Vec<f64> = option.tokens.iter().map(|token| -token.log_prob).collect();
            let expected: Vec<f64> = nlls.iter().map(|token| token.nll).collect();
            assert_eq!(to_bits(&found), to_bits(&expected));
            assert_eq!(option.log_prob, -expected.iter().sum::<f64>());
        }
        let weights: Vec<f64> = choices.options.iter().map(|option| option.log_prob.exp()).collect();
        let best = choices.ranked()[0];
        for (option, weight) in choices.options.iter().zip(&weights) {
            let expected = weight / weights.iter().sum::<f64>();
            assert!((option.probability - expected).abs() < 1e-9, "{choices:?}");
            assert!(option.probability <= choices.options[best].probability);
        }
        let by_length = ChooseRequest { normalisation: Normalisation::Length, ..request.clone() };
        let by_length = chosen(&mut wide, &by_length).options;
        let ratio = (by_length[1].probability / by_length[0].probability).ln();
        let mean = |place: usize| by_length[place].log_prob / by_length[place].tokens.len() as f64;
        assert!((ratio - (mean(1) - mean(0))).abs() < 1e-9, "{by_length:?}");
        // The prompt is in the cache for a request after it, and for the next question.
        let answer = wide.generate(&Request { max_tokens: 1, ..Request::new(request.prompt.clone()) });
        let report = answer.expect("it fits").collect_answer().expect("it ends").report;
        let prompt_len = choices.prompt_token_ids.len();
        assert_eq!(report.reused_tokens, prompt_len - 1);
        assert_eq!(chosen(&mut wide, &request).report.reused_tokens, prompt_len - 1);
        let anew = ChooseRequest { reuse: Reuse::Nothing, ..request };
        assert_eq!(chosen(&mut wide, &anew).report.reused_tokens, 0);
    }
}

#[test]
fn options_that_a_constraint_does_not_take_have_no_probability() {
    let mut engine = engine(&[16]);
    let options = texts(&["one", "two", "on", "three"]);
    let free = ChooseRequest::new(Prompt::Raw("one and ".to_owned()), options);
    let constrained =
        ChooseRequest { constraint: Some(Constraint::Regex("one|two".to_owned())), ..free.clone() };
    let [free, constrained] = [&free, &constrained].map(|request| chosen(&mut engine, request).options);
    let admitted: Vec<bool> = constrained.iter().map(|option| option.is_admitted).collect();
    assert_eq!(admitted, [true, true, true, false]);
    assert_eq!(constrained[3].probability, 0.0);
    let sum: f64 = constrained.iter().map(|option| option.probability).sum();
    assert!((sum - 1.0).abs() < 1e-12);
    for (free, constrained) in free.iter().zip(&constrained) {
        assert_eq!((&free.tokens, free.log_prob), (&constrained.tokens, constrained.log_prob));
    }
}

#[test]
fn what_cannot_be_chosen_from_is_refused_by_its_number() {
    let mut engine = engine(&[]);
    let raw = || Prompt::Raw("one".to_owned());
    let chat = || Prompt::chat(vec![Message::new(Role::User, "one?")]);
    let control = engine.loaded().tokenizer().spelling(engine.loaded().end_ids()[0]);
    let many: Vec<Continuation> = (0..1025).map(|id| Continuation::Tokens(vec![id])).collect();
    let none = Some(Constraint::Regex("[0-9]+".to_owned()));
    let same = vec![
        Continuation::Tokens(vec![5, 6]),
        Continuation::Tokens(vec![7]),
        Continuation::Tokens(vec![5, 6]),
    ];
    for (prompt, options, constraint, parts) in [
        (raw(), vec![], None, &["0 options", "1 to 1024"][..]),
        (raw(), many, None, &["1025 options", "1 to 1024"]),
        (raw(), texts(&["a", ""]), None, &["option 2 is empty", "at least one token"]),
        (raw(), vec![Continuation::Tokens(vec![])], None, &["option 1 is empty"]),
        (raw(), same, None, &["options 1 and 3", "the same tokens"]),
        (
            chat(),
            texts(&["a", &control]),
            None,
            &["option 2", "control token", control.as_str(), "token ids"],
        ),
        (raw(), vec![Continuation::Tokens(vec![5; 96])], None, &["option 1 has 96 tokens", "holds 96"]),
        (raw(), vec![Continuation::Tokens(vec![5, u32::MAX])], None, &["4294967295"]),
        (Prompt::Tokens(vec![5; 96]), texts(&["a"]), None, &["96 tokens", "the context holds 96"]),
        (Prompt::Tokens(vec![]), texts(&["a"]), None, &["the prompt is empty"]),
        (raw(), texts(&["a", "b"]), none, &["takes none of the options"]),
    ] {
        let request = ChooseRequest { constraint, ..ChooseRequest::new(prompt, options) };
        let error = engine.choose(&request).expect_err("it cannot be chosen from");
        let said = error.to_string();
        assert!(error.kind() == ErrorKind::Input && parts.iter().all(|part| said.contains(part)), "{said}");
    }
    // After a raw prompt a control token is one.
    let ending = chosen(&mut engine, &ChooseRequest::new(raw(), texts(&[&control])));
    assert_eq!(ending.options[0].tokens[0].id, engine.loaded().end_ids()[0]);
    let cancelled = ChooseRequest::new(raw(), texts(&["a"]));
    cancelled.cancel.cancel();
    assert!(engine.choose(&cancelled).expect("it fits").is_none());
}

#[test]
fn forwards_to_read_with_have_some_rows_and_not_too_many() {
    for (widths, part) in
        [(vec![4, 0], "of 0 rows"), (vec![257], "of 257 rows"), (vec![usize::MAX], "1 to 256")]
    {
        let options = Options { read_widths: widths, ..Options::new(model()) };
        let error = Engine::open(&options).expect_err("no such forward can be");
        assert!(error.kind() == ErrorKind::Input && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn log_probabilities_of_a_prompt_are_those_of_score() {
    let cancel = CancelHandle::new();
    for mut engine in [&[][..], &[4, 16]].map(engine) {
        let prompt = engine.loaded().tokenizer().encode_prompt("one and one and two and one or two");
        let read = engine
            .prompt_log_probs(&prompt, Owner::default(), 3, &cancel)
            .expect("it fits")
            .expect("nobody cancels it");
        let score = measure::score(engine.loaded(), &prompt, Pinning::Floating).expect("it fits");
        assert_eq!(read.len(), prompt.len() - 1);
        for (found, expected) in read.iter().zip(&score.tokens) {
            assert_eq!((found.log_prob, found.best.len()), ((-expected.nll) as f32, 3));
            assert_eq!(found.best[0].0, expected.argmax);
        }
        let request = Request { max_tokens: 1, ..Request::new(Prompt::Tokens(prompt.clone())) };
        let report = engine.generate(&request).expect("it fits").collect_answer().expect("it ends").report;
        assert_eq!(report.reused_tokens, prompt.len() - 1);
        assert!(
            engine
                .prompt_log_probs(&prompt[..1], Owner::default(), 3, &cancel)
                .expect("it fits")
                .is_some_and(|read| read.is_empty())
        );
        let refused = engine
            .prompt_log_probs(&prompt, Owner::default(), usize::MAX, &cancel)
            .expect_err("no vocabulary has so many");
        assert_eq!(refused.kind(), ErrorKind::Input);
    }
    let cancelled = CancelHandle::new();
    cancelled.cancel();
    let read = engine(&[]).prompt_log_probs(&[5, 6], Owner::default(), 0, &cancelled).expect("it fits");
    assert!(read.is_none());
}

#[test]
fn the_command_prints_what_score_does_and_the_most_probable_first() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [options, ids] = ["options", "ids.json"].map(|name| folder.path().join(name));
    fs::write(&options, " one and two\n\n two\r\n").expect("writable");
    let file = options.to_str().expect("UTF-8");
    for layout in
        [&["--raw"][..], &["--system", "one"], &["--raw", "--normalize", "length", "--regex", " (one|two)"]]
    {
        let asked = ["-p", "one and", "--option", " one", "--options-file", file];
        let command = || {
            let mut command = on_tiny("choose");
            command.args(asked).args(layout);
            command
        };
        let choices = json(command().arg("--json"));
        assert_eq!(keys(&choices), ["options", "prompt_token_ids", "stats"]);
        assert_eq!(keys(&choices["stats"]), ["forwards", "options_ms", "prefill_ms", "rows"]);
        let found = choices["options"].as_array().expect("a list");
        let texts: Vec<&str> = found.iter().map(|option| option["text"].as_str().expect("text")).collect();
        assert_eq!(texts, [" one", " one and two", " two"]);
        let prompt = choices["prompt_token_ids"].as_array().expect("a list");
        for option in found {
            assert_eq!(keys(option), ["admitted", "log_prob", "probability", "text", "token_ids", "tokens"]);
            let of_option = option["token_ids"].as_array().expect("a list");
            fs::write(&ids, Value::from([&prompt[..], of_option].concat()).to_string()).expect("writable");
            let score = json(on_tiny("score").arg("--token-ids").arg(&ids).arg("--json"));
            let score = score["tokens"].as_array().expect("a list");
            for (token, scored) in
                option["tokens"].as_array().expect("a list").iter().zip(&score[prompt.len() - 1..])
            {
                assert_eq!(token["id"], scored["id"]);
                assert_eq!(token["log_prob"].as_f64(), scored["nll"].as_f64().map(|nll| -nll));
            }
        }
        let is_constrained = layout.contains(&"--regex");
        assert_eq!(found[1]["admitted"], !is_constrained);
        let probability = |option: &Value| option["probability"].as_f64().expect("a number");
        assert!((found.iter().map(probability).sum::<f64>() - 1.0).abs() < 1e-12);
        let best =
            found.iter().max_by(|a, b| probability(a).total_cmp(&probability(b))).expect("one at least");
        let table = success(&command().output().expect("yggc starts"));
        let first = table.lines().nth(1).expect("a row");
        assert!(first.starts_with(&format!("{:?}", best["text"].as_str().expect("text"))), "{table}");
        assert_eq!(table.contains("not admitted"), is_constrained, "{table}");
    }
    fs::write(&options, "\n").expect("writable");
    for (arguments, code, part) in [
        (&["-p", "x", "--options-file", file][..], 3, "0 options"),
        (&["-p", "", "--option", "a"], 3, "the prompt is empty"),
        (&["-p", "x", "--option", "a", "--option", "a"], 3, "options 1 and 2"),
        (&["-p", "-", "--options-file", "-"], 2, "standard input"),
        (&["-p", "x", "--option", "a", "--options-file", "/nowhere"], 3, "/nowhere"),
    ] {
        let output = on_tiny("choose").args(arguments).stdin(Stdio::null()).output().expect("yggc starts");
        let said = failure(&output, code);
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}
