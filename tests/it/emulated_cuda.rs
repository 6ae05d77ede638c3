//! The CUDA backend without a GPU: the kernels, compiled for this processor, with a driver library that stands in for
//! NVIDIA's.
//!
//! The backend is the one that a GPU gets: it opens a device, compiles through NVRTC, uploads, captures and replays.
//! Tests that hold for every class of forwards are run again in a process whose loader finds the emulation
//! (`kernels/cuda/emu`) and which is told to test `cuda`. On a machine with a GPU the same tests run on it:
//! `YGG_TEST_DEVICE=cuda`, without the emulation.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use ygg_kernels::{
    Candidates, Choice, KvFormat, Rows, RowsMut, Tier, WeightFormat, candidates::candidate_columns, reference,
};
use yggc::{
    model::{Model, synthetic::SyntheticSpec},
    runtime::{ExecutableSet, Forward, SetOptions},
};

use crate::{
    bad_input::refused,
    choose::BRANCHES,
    program::yggc,
    tiny_commands::{self, json},
    tiny_model::{DEVICE, Dice, bits, is_cuda, session},
};

/// What the emulation is asked to do: the variables of `kernels/cuda/emu/emulation.h`.
pub(crate) const ORDER: &str = "YGG_EMULATION_ORDER";
pub(crate) const WITHOUT: &str = "YGG_EMULATION_WITHOUT";
pub(crate) const SHIFT: &str = "YGG_EMULATION_SHIFT";
pub(crate) const LATE: &str = "YGG_EMULATION_LATE";
pub(crate) const ARCH: &str = "YGG_EMULATION_ARCH";
pub(crate) const COPIES: &str = "YGG_EMULATION_COPIES";
pub(crate) const FORGETS: &str = "YGG_EMULATION_FORGETS";
/// The first architecture whose kernels begin while others still run.
pub(crate) const OVERLAPPING: (&str, &str) = (ARCH, "90");

pub(crate) fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/cuda")
}

/// Compiles the emulated driver and compiler into `folder`, from kernels in `kernels`.
fn build(kernels: &Path, folder: &Path, flags: &[&str]) {
    fs::create_dir_all(folder).expect("the tests' folder can be written");
    let emu = kernels.join("emu");
    let libraries: [(&str, &[PathBuf]); 2] = [
        ("libcuda.so.1", &[emu.join("driver.cpp"), kernels.join("kernels.cu"), emu.join("switch.S")]),
        ("libnvrtc.so", &[emu.join("nvrtc.cpp")]),
    ];
    for (library, sources) in libraries {
        let mut command = Command::new("g++");
        // Products and sums are rounded apart, as the kernels say. -O3 costs 19 s more than -O2, and tests a sixth less.
        command.args(["-std=c++20", "-O3", "-g1", "-march=native", "-ffp-contract=off"]);
        command.args(["-fno-strict-aliasing", "-fPIC", "-shared", "-fvisibility=hidden"]);
        command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]).args(flags);
        for source in sources {
            let language = match source.extension().and_then(OsStr::to_str) {
                Some("S") => "assembler-with-cpp",
                _ => "c++",
            };
            command.args(["-x", language]).arg(source);
        }
        // Other tests read what is there meanwhile.
        let made = folder.join(format!("{library}.{}", std::process::id()));
        let told = command.arg("-o").arg(&made).output();
        let told = told.unwrap_or_else(|e| {
            panic!("g++ is needed to test CUDA without a GPU: {e}; install g++ 11 or newer")
        });
        assert!(told.status.success(), "g++ refuses {library}:\n{}", String::from_utf8_lossy(&told.stderr));
        fs::rename(&made, folder.join(library)).expect("the tests' folder can be written");
    }
}

/// The folder of the emulation.
pub(crate) fn emulation() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-cuda");
        build(&kernels(), &folder, &[]);
        folder
    })
}

/// Runs tests of this program, by their full names, on the emulated device of a folder.
pub(crate) fn tests_in(folder: &Path, names: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("a test knows itself"));
    command.env("LD_LIBRARY_PATH", folder).env(DEVICE, "cuda").envs(environment.iter().copied());
    command.args(["--exact", "--test-threads", "2"]).args(names);
    command.output().expect("a test can be run")
}

fn is_all_passed(told: &Output, count: usize) -> bool {
    let said = String::from_utf8_lossy(&told.stdout);
    told.status.success() && said.contains(&format!("test result: ok. {count} passed"))
}

pub(crate) fn passes(names: &[&str], environment: &[(&str, &str)]) {
    let told = tests_in(emulation(), names, environment);
    let [said, complained] = [&told.stdout, &told.stderr].map(|text| String::from_utf8_lossy(text));
    let all_passed = is_all_passed(&told, names.len());
    assert!(all_passed, "{names:?} with {environment:?}:\n{said}\n{complained}");
}

const FOLLOWS: &str = "backends::every_tier_follows_the_reference_on_every_format";
pub(crate) const UNFUSED: &str = "backends::ops_that_no_pass_fuses_follow_the_reference_too";
const UPCYCLED: &str = "experts::an_upcycled_model_is_the_dense_one";
const LOADING: &str = "backends::loading_is_told_of_to_its_end";
pub(crate) const CANDIDATES: &str = "candidates::candidates_are_those_of_stored_logits";
pub(crate) const NOISY: &str = "candidates::candidates_under_noise_are_those_of_noisy_logits";
pub(crate) const DRAWS: &str = "device_draws::drawn_answers_are_those_of_the_processor";
const TRIMMED: &str = "candidates::candidates_of_a_trimmed_head_are_those_of_the_tokens_it_keeps";
const ROWS: &str = "row_invariance::rows_do_not_depend_on_company_width_slots_scratch_or_threads";
const PREFILL: &str = "row_invariance::a_prompt_in_one_prefill_in_steps_or_scored_gives_the_same_bits";
const EAGER: &str = "eager::eager_answers_are_plain_ones_to_the_bit";
const EMBEDDINGS: &str = "row_invariance::embeddings_are_the_same_bits_in_every_class";
const HISTORY: &str = "kv_cache::any_history_of_a_session_leaves_the_committed_sequence_alone";
const LAYER_SKIP: &str = "lossless::layer_skip_changes_no_token";
const SUBSTITUTE: &str = "lossless::a_substitute_changes_no_token";
const IN_FOUR_BITS: &str = "substitutes::it_computes_what_the_model_in_fewer_bits_does";
const MIXTURE: &str = "lossless::a_mixture_changes_no_token";
const HIDDEN_STATE: &str = "lossless::a_hidden_state_drafter_changes_no_token";
const HIDDEN_FORWARD: &str = "hidden_state_forward::a_forward_is_what_its_file_says";
const EAGLE3: &str = "lossless::an_eagle3_head_changes_no_token";
const EAGLE3_FORWARD: &str = "eagle3::candidates_and_hidden_rows_are_the_references";
const ADVERSARY: &str = "lossless::an_adversary_changes_no_token";
pub(crate) const GROWTH: &str = "one_launch::the_device_grows_the_trees_that_the_host_grows";
pub(crate) const OWN_CACHE: &str = "one_launch::the_device_grows_the_trees_of_drafter_models_too";
pub(crate) const WALK: &str = "device_walk::the_device_accepts_and_moves_what_the_host_does";
pub(crate) const WHOLE: &str = "whole_step::steps_without_the_host_are_the_hosts";
const REFUSED: &str = "whole_step::what_a_device_cannot_do_alone_is_refused";
const WALKED: &str = "device_walk::steps_that_the_device_verifies_are_the_hosts";
const HEADS: &str = "schedules::heads_drafted_ahead_change_no_tree";
const TAILS: &str = "schedules::heads_of_drafter_models_change_no_tree";
const PLANNED: &str = "device_walk::plans_for_the_device_answer_as_plain_decoding_does";
const HIDDEN_ROWS: &str = "device_walk::hidden_rows_of_what_is_walked_are_kept";
pub(crate) const FAMILIES: &str = "families::every_family_is_what_transformers_computes";
const FAMILY_ROWS: &str = "families::rows_of_every_family_do_not_depend_on_each_other";
const FAMILY_TOKENS: &str = "lossless::nothing_changes_a_token_of_any_family";
const STREAMED: &str = "streaming::the_bits_are_those_of_a_model_in_memory";
pub(crate) const STREAMED_ONCE: &str = "streaming::a_forward_streams_within_the_least";
const STREAMED_STEPS: &str = "streaming::steps_without_the_host_are_those_of_a_model_in_memory";
const STREAMED_LIMIT: &str =
    "streaming::what_streamed_weights_take_of_the_host_counts_in_the_limit_of_memory";
const TURNS: &str = "streaming::sessions_over_one_model_take_turns";
const STREAMED_DRAFTS: &str = "lossless::no_drafter_over_streamed_weights_changes_a_token";
const MASKS: &str = "grammar_masks::masks_that_are_ready_when_the_walk_comes_change_no_token";
pub(crate) const ONCE: &str = "emulated_cuda::every_kernel_once";
pub(crate) const LONG: &str = "emulated_cuda::a_long_context_is_joined_from_partitions";

#[test]
fn kernels_follow_the_reference() {
    passes(&[FOLLOWS, UNFUSED, EMBEDDINGS, HIDDEN_FORWARD, EAGLE3_FORWARD, LOADING, UPCYCLED], &[]);
}

/// Copies happen as late as what waits for them allows, or as early as what they wait for does.
#[test]
fn streamed_weights_come_in_time() {
    passes(&[STREAMED, TURNS, STREAMED_STEPS, STREAMED_LIMIT], &[]);
    for environment in [[(COPIES, "early"), OVERLAPPING], [(COPIES, "late"), OVERLAPPING]] {
        passes(&[STREAMED_ONCE], &environment);
    }
    passes(&[STREAMED_ONCE], &[(COPIES, "early")]);
}

#[test]
fn masks_are_computed_beside_forwards() {
    passes(&[MASKS], &[]);
}

#[test]
fn candidates_have_the_bits_of_the_reference() {
    passes(&[CANDIDATES, NOISY], &[]);
}

#[test]
fn speculation_changes_no_token() {
    passes(&[HIDDEN_STATE, EAGLE3, ADVERSARY], &[]);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn speculation_of_any_kind_and_family_changes_no_token() {
    let kinds = [LAYER_SKIP, SUBSTITUTE, IN_FOUR_BITS, MIXTURE, FAMILY_TOKENS, STREAMED_DRAFTS, TAILS];
    passes(&kinds, &[]);
}

#[test]
fn trees_grow_on_the_device_as_on_the_host() {
    passes(&[GROWTH, OWN_CACHE, HEADS], &[]);
}

#[test]
fn trees_are_walked_on_the_device_as_on_the_host() {
    passes(&[WALK, WALKED, WHOLE, REFUSED, PLANNED, HIDDEN_ROWS], &[]);
}

#[test]
fn draws_of_the_device_are_those_of_the_processor() {
    passes(&[DRAWS], &[]);
}

#[test]
fn rows_do_not_depend_on_each_other() {
    passes(&[&[ROWS, PREFILL, HISTORY, BRANCHES], &crate::prefixes::OF_DEVICES[..]].concat(), &[]);
}

#[test]
fn states_follow_rows_and_return() {
    passes(&crate::states::OF_DEVICES, &[]);
}

#[test]
fn every_family_is_computed() {
    passes(&[FAMILIES, crate::families::REFUSED], &[]);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn rows_of_families_eager_steps_and_trimmed_heads_are_no_others() {
    passes(&[FAMILY_ROWS, EAGER, TRIMMED], &[]);
}

/// Threads of a block run in any order between barriers.
#[test]
fn nothing_depends_on_the_order_of_threads() {
    passes(&[ONCE, LONG], &[(ORDER, "reversed")]);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn nothing_depends_on_any_order_of_threads() {
    for order in ["reversed", "greedy", "1"] {
        passes(&[ONCE, LONG, EMBEDDINGS, WALK, NOISY], &[(ORDER, order)]);
    }
}

/// Lines of the kernels that have a word, as the emulation names them.
pub(crate) fn lines_with(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in fs::read_dir(kernels()).expect("the sources are readable") {
        let path = file.expect("the sources are readable").path();
        let name = path.file_name().and_then(OsStr::to_str).expect("a name").to_owned();
        if !name.ends_with(".cuh") || name == "ops.cuh" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        let lines = text.lines().zip(1..).filter(|(line, _)| line.contains(word));
        found.extend(lines.map(|(_, number)| format!("{name}:{number}")));
    }
    found.sort();
    assert!(!found.is_empty(), "no line has {word}");
    found
}

/// A kernel that begins before others have ended finds nothing of theirs before it has waited.
#[test]
fn kernels_may_begin_before_others_end() {
    passes(&[ONCE], &[OVERLAPPING]);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn kernels_of_every_step_may_begin_before_others_end() {
    passes(&[LONG, GROWTH, WALK, NOISY, UNFUSED, OWN_CACHE, WHOLE, HIDDEN_FORWARD], &[OVERLAPPING]);
}

/// The same kernels under AddressSanitizer: they stay inside what the driver gave them, and inside their shared memory.
#[test]
#[ignore = "takes long: .ci/full runs it"]
fn kernels_stay_inside_their_memory() {
    let sanitizer = Command::new("g++").arg("-print-file-name=libasan.so").output().expect("g++ was found");
    let sanitizer = PathBuf::from(String::from_utf8_lossy(&sanitizer.stdout).trim());
    assert!(sanitizer.is_absolute(), "g++ has no AddressSanitizer: install libasan (Debian: with g++)");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-cuda-sanitized");
    build(&kernels(), &folder, &["-fsanitize=address", "-fno-omit-frame-pointer"]);
    let tests = [ONCE, LONG, GROWTH, WALK, NOISY, WHOLE, STREAMED_ONCE, TURNS];
    let preloaded = [
        ("LD_PRELOAD", sanitizer.to_str().expect("a path in UTF-8")),
        ("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0"),
    ];
    let told = tests_in(&folder, &tests, &preloaded);
    assert!(is_all_passed(&told, tests.len()), "{}", String::from_utf8_lossy(&told.stderr));
    // A test of the test: far past the last.
    let beyond = format!("{}+100000000", lines_with("p.indices[index(").remove(0));
    let told = tests_in(&folder, &[ONCE], &[preloaded[0], preloaded[1], (SHIFT, &beyond)]);
    let complained = String::from_utf8_lossy(&told.stderr);
    assert!(complained.contains("AddressSanitizer"), "nothing watches: {complained}");
}

/// Two tokens' rows after a committed text: the second is a child of the first, and comes first.
fn tree_rows(forward: &mut Forward<'_>) {
    for offset in [1_u32, 0] {
        forward.push(7 - offset, offset, offset, |tail| {
            tail[..2].copy_from_slice(&[0, offset]);
            1 + offset as usize
        });
    }
}

/// What the forwards of a short request show: logits and candidates after the text, of rows of a tree, and of what is
/// committed of it.
fn shown(graph: &Model, tier: Tier, text: &[u32], is_eager: bool) -> Vec<f32> {
    let options = SetOptions {
        tier,
        kv_format: KvFormat::F16,
        activations: ygg_kernels::Activations::Native,
        widths: vec![1, 4, 16],
        model_context: 300,
        threads: 1,
        resident: None,
    };
    let build = if is_eager { ExecutableSet::build_eager } else { ExecutableSet::build };
    let set = build(&graph.graph, graph.weights.as_ref(), &options).expect("it loads");
    let mut session = session(&std::sync::Arc::new(set), 300, 4, 1);
    let mut shown = session.prefill(text).expect("it fits").to_vec();
    let mut forward = session.forward(2).expect("planned");
    tree_rows(&mut forward);
    let logits = forward.run(None);
    shown.extend([0, 1].iter().flat_map(|row| logits.row(*row)));
    let of_logits = [logits.row(0).to_vec(), logits.row(1).to_vec()];
    let choice = Choice { k: 5, temperature: Some(0.8) };
    let mut forward = session.forward(2).expect("planned");
    tree_rows(&mut forward);
    let choices = forward.choose(choice, None);
    for (row, logits) in of_logits.iter().enumerate() {
        let mut expected = vec![0.0; candidate_columns(ExecutableSet::MOST_CANDIDATES)];
        let (columns, vocabulary) = (expected.len(), logits.len());
        let out = RowsMut::new(&mut expected, columns);
        reference::candidates(Rows::new(logits, vocabulary), choice, None, out);
        let expected: Vec<(u32, f32)> = Candidates::new(&expected).iter().collect();
        assert_eq!(choices.row(row).iter().collect::<Vec<_>>(), expected, "{tier}: row {row}");
    }
    // What lies apart moves together: the first row's slot stays, another comes after it.
    let mut forward = session.forward(3).expect("planned");
    forward.push(7, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    for (token, offset) in [(5, 1_u32), (6, 2)] {
        forward.push(token, 1, offset, |tail| {
            tail[..2].copy_from_slice(&[0, offset]);
            2
        });
    }
    forward.run(None);
    session.commit(&[0, 2]);
    shown.extend(session.prefill(&[9, 8]).expect("it fits"));
    shown
}

/// Every kernel but those of growth and walks, once and quickly, on numbers that tell when one index is wrong: the test
/// that faults are tried on.
#[test]
fn every_kernel_once() {
    if !is_cuda() {
        return passes(&[ONCE], &[]);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Keys of a fused rotation apart, all apart, and stored by the product that makes them.
    for (format, head_dim, is_eager) in
        [(WeightFormat::Q4_1, 24, false), (WeightFormat::F32, 24, true), (WeightFormat::F16, 32, false)]
    {
        let spec = SyntheticSpec {
            layers: 1,
            width: 64,
            heads: 4,
            kv_heads: 2,
            head_dim,
            feed_forward: 96,
            vocabulary: 600,
            context: 300,
            format,
            tied: true,
            seed: 5,
            ..SyntheticSpec::default()
        };
        let path = folder.path().join(if head_dim == 24 { "model.gguf" } else { "model" });
        // Halves of heads turn together in a folder, neighbours in a file.
        if head_dim == 24 { spec.write_gguf(&path) } else { spec.write_folder(&path) }
            .expect("the model is written");
        let model = Model::open(&path).expect("a generated model opens");
        let is_long = head_dim == 24 && !is_eager;
        shows_the_same(&model, if is_long { 262 } else { 9 }, is_eager);
    }
    // Convolutions; experts with a bias of their router; experts with biases, a bounded gate and sinks; states.
    for family in ["lfm2", "lfm2moe", "gpt_oss", "qwen35", "granitehybrid"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family);
        shows_the_same(&Model::open(&file.join("model.gguf")).expect("it is there"), 9, false);
    }
    shows_the_same(&crate::experts::in_floats(), 9, false);
}

/// As the reference does, after so many tokens.
fn shows_the_same(model: &Model, tokens: usize, is_eager: bool) {
    let text = Dice::new(6).tokens(tokens, model.config.vocabulary);
    let expected = shown(model, Tier::Reference, &text, false);
    close(&expected, &shown(model, Tier::Cuda, &text, is_eager));
}

/// Numbers compared with the reference's: off by what rounding to bf16 explains, far less than one wrong element.
fn close(expected: &[f32], found: &[f32]) {
    assert_eq!(expected.len(), found.len());
    let spread = (expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32).sqrt();
    let worst = expected.iter().zip(found).map(|(e, f)| (e - f).abs()).fold(0.0, f32::max);
    assert!(worst <= 0.08 * spread, "off by {worst} of {spread}");
}

/// A model whose context is several partitions of attention, against the reference, at lengths around their ends.
#[test]
fn a_long_context_is_joined_from_partitions() {
    if !is_cuda() {
        return passes(&[LONG], &[]);
    }
    let spec = SyntheticSpec {
        layers: 2,
        width: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 24,
        feed_forward: 96,
        // More ranges of logits than a warp has threads.
        vocabulary: 8800,
        context: 800,
        format: WeightFormat::Q4_1,
        tied: true,
        seed: 3,
        ..SyntheticSpec::default()
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    spec.write_gguf(&path).expect("the model is written");
    let model = Model::open(&path).expect("a generated model opens");
    let text = Dice::new(4).tokens(610, model.config.vocabulary);
    let mut shown = Vec::new();
    for tier in [Tier::Reference, Tier::Cuda] {
        let options = SetOptions {
            tier,
            kv_format: KvFormat::F16,
            activations: ygg_kernels::Activations::Native,
            widths: vec![1, 4],
            model_context: 800,
            threads: 1,
            resident: None,
        };
        let set = ExecutableSet::build(&model.graph, model.weights.as_ref(), &options).expect("it loads");
        let mut session = session(&std::sync::Arc::new(set), 800, 4, 1);
        let mut rows = Vec::new();
        let mut done = 0;
        for end in [255, 256, 257, 511, 512, 513, 610] {
            rows.push(session.prefill(&text[done..end]).expect("it fits").to_vec());
            done = end;
            // A row after them, and the same among others: one more bit pattern that must not change.
            let mut alone = session.forward(1).expect("planned");
            alone.push(7, 0, 0, |tail| {
                tail[0] = 0;
                1
            });
            let alone = bits(alone.run(None).row(0));
            let mut beside = session.forward(4).expect("planned");
            for offset in [2_u32, 0, 1] {
                beside.push(7 - offset, 0, offset, |tail| {
                    tail[0] = offset;
                    1
                });
            }
            let logits = beside.run(None).row(1).to_vec();
            assert_eq!(bits(&logits), alone, "{tier}: a row behind {end} tokens");
            for choice in [Choice { k: 1, temperature: Some(1.0) }, Choice { k: 40, temperature: Some(0.7) }]
            {
                let mut chosen = session.forward(1).expect("planned");
                chosen.push(7, 0, 0, |tail| {
                    tail[0] = 0;
                    1
                });
                let found: Vec<(u32, f32)> = chosen.choose(choice, None).row(0).iter().collect();
                let mut expected = vec![0.0; candidate_columns(64)];
                let (columns, vocabulary) = (expected.len(), logits.len());
                let out = RowsMut::new(&mut expected, columns);
                reference::candidates(Rows::new(&logits, vocabulary), choice, None, out);
                let expected: Vec<(u32, f32)> = Candidates::new(&expected).iter().collect();
                assert_eq!(found, expected, "{tier}: {choice:?} behind {end} tokens");
            }
        }
        shown.push(rows);
    }
    let [expected, found] = &shown[..] else { unreachable!("two tiers") };
    close(&expected.concat(), &found.concat());
}

/// The program on the emulated device.
pub(crate) fn on_cuda(command: &str, model: &Path, environment: &[(&str, &str)]) -> Command {
    let mut on_cuda = yggc();
    // The instruction set that the tests run with is no choice for a GPU.
    on_cuda.env_remove("YGG_ISA").arg(command).arg("-m").arg(model).args([
        "--device",
        "cuda",
        "--threads",
        "1",
    ]);
    on_cuda.env("LD_LIBRARY_PATH", emulation()).envs(environment.iter().copied());
    on_cuda
}

/// Of f32, so that no rounding of activations makes another token likely.
pub(crate) fn exact_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let spec = SyntheticSpec { format: WeightFormat::F32, ..tiny_commands::spec() };
        tiny_commands::write("emulated_cuda.gguf", &spec)
    })
}

#[test]
fn an_answer_is_that_of_the_processor() {
    let model = exact_model();
    let asked = ["-p", "one and one and one", "--raw", "--no-spec", "-n", "24", "--json"];
    let on_gpu = json(on_cuda("run", model, &[]).args(asked));
    let on_cpu = json(tiny_commands::on_machine("run", model).args(asked));
    assert_eq!(on_gpu["token_ids"], on_cpu["token_ids"]);
    let sampled = ["--temperature", "0.8", "--seed", "4"];
    let on_gpu = json(on_cuda("run", model, &[]).args(asked).args(sampled));
    let on_cpu = json(tiny_commands::on_machine("run", model).args(asked).args(sampled));
    assert_eq!(on_gpu["token_ids"], on_cpu["token_ids"]);
}

#[test]
fn devices_that_cannot_be_used_end_with_4() {
    let model = exact_model();
    for (environment, words) in
        [((ARCH, "75"), ["7.5", "8.0"]), (("YGG_EMULATION_MEMORY", "5000"), ["5000 bytes", "--context"])]
    {
        let mut command = on_cuda("run", model, &[environment]);
        refused(command.args(["-p", "x", "--no-spec"]), 4, &words);
    }
}

/// A compiler that refuses everything is not asked for what another process compiled, and asked where that cannot be
/// trusted.
#[test]
fn kernels_are_compiled_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().join("cache");
    let refuses = ("YGG_EMULATION_COMPILES", "no");
    let run = |cache: &Path, environment: &[(&str, &str)]| {
        let mut command = on_cuda("run", exact_model(), environment);
        command.args(["-p", "x", "--no-spec", "-n", "2", "--json", "--cache-dir"]).arg(cache);
        command
    };
    if run(&cache, &[refuses]).output().expect("yggc starts").status.success() {
        // Kernels that `build.rs` made are in the program: nothing is compiled, and nothing kept.
        assert!(!cache.join("kernels").exists(), "a compiler that refuses has compiled");
        return;
    }
    let complaint = ["compile the kernels", "told to refuse"];
    refused(&mut run(&cache, &[refuses]), 4, &complaint);
    json(&mut run(&cache, &[]));
    json(&mut run(&cache, &[refuses]));
    let files = || -> Vec<PathBuf> {
        let files = fs::read_dir(cache.join("kernels")).expect("kernels are kept");
        files.map(|file| file.expect("readable").path()).collect()
    };
    let kept = files();
    let [path] = &kept[..] else { panic!("one file and nothing unfinished: {kept:?}") };
    let whole = fs::read(path).expect("readable");
    let damaged = [&whole[..whole.len() - 1], b"?"].concat();
    fs::write(path, damaged).expect("writable");
    refused(&mut run(&cache, &[refuses]), 4, &complaint);
    json(&mut run(&cache, &[]));
    assert_eq!(fs::read(path).expect("readable"), whole, "it was replaced");
    // Another architecture's are others, under another name and not under this one.
    let other = (ARCH, "86");
    refused(&mut run(&cache, &[other, refuses]), 4, &complaint);
    json(&mut run(&cache, &[other]));
    let foreign = files().into_iter().find(|file| file != path).expect("two files");
    fs::copy(foreign, path).expect("writable");
    refused(&mut run(&cache, &[refuses]), 4, &complaint);
    // A folder that cannot be there.
    json(&mut run(&exact_model().join("cache"), &[]));
}

#[test]
fn an_emulated_device_is_not_profiled() {
    let model = exact_model();
    let output = model.with_extension("never.profile");
    let mut command = on_cuda("profile", model, &[]);
    refused(command.args(["--budget", "20", "-o"]).arg(&output), 4, &["emulated", "--device cpu"]);
    assert!(!output.exists(), "no profile is left");
}
