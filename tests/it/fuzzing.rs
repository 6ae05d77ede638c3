//! The fuzz targets as tests: every seed, and a fixed number of mutations of the seeds, about a second for each target.
//!
//! A seed whose name begins with `valid` must be accepted: when a format changes, seeds of the old one are written anew
//! by `UPDATE_FUZZ_SEEDS=1 cargo test --test it seeds_can_be_written`. Others are inputs that once did harm.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use ygg_profiler::Profile;
use yggc::{
    measure::{ProfileOptions, profile_file},
    model::synthetic::{BlockSpec, Eagle3Spec, HiddenStateSpec, SyntheticSpec},
    plan::{self},
    planner::{Fix, plan_from_profile},
    sample::Candidate,
    speculate::{
        Drafter, DrafterState,
        corpus::{Corpus, Offer},
    },
};

use crate::tiny_profiles::{self, NOW};

#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "a library to the fuzz targets, a module here")]
mod targets;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target)
}

/// Runs a target over its seeds and `executions` mutations, of which it must accept `least`.
#[track_caller]
fn smoke(target: &str, check: fn(&[u8]) -> bool, executions: usize, least: usize) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder(target))
        .expect("it has seeds")
        .map(|entry| entry.expect("listed").path())
        .collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("readable")).collect();
    let mut valid = 0;
    for (path, seed) in paths.iter().zip(&seeds) {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("valid")) {
            assert!(check(seed), "{} is not accepted; write the seeds anew", path.display());
            valid += 1;
        }
    }
    assert!(valid > 0, "{target} has no valid seed");
    let accepted = targets::mutation::run(&seeds, executions, check);
    assert!(accepted >= least, "{target}: {accepted} of {executions} mutations were accepted");
}

#[test]
fn model_containers() {
    smoke("containers", targets::containers::check, 8_000, 200);
}

#[test]
fn plan_files() {
    smoke("plans", targets::plans::check, 4_000, 20);
}

#[test]
fn corpus_stores() {
    smoke("stores", targets::stores::check, 10_000, 1_000);
}

#[test]
fn files_of_kept_prefixes() {
    smoke("prefixes", targets::prefixes::check, 1_000, 300);
}

#[test]
fn kept_states_of_drafters() {
    smoke("drafter_states", targets::drafter_states::check, 20_000, 200);
}

#[test]
fn profiles() {
    smoke("profiles", targets::profiles::check, 1_000, 20);
}

#[test]
fn chat_templates_and_messages() {
    smoke("chats", targets::chats::check, 3_000, 300);
}

#[test]
fn templates_by_size() {
    smoke("templates", targets::templates::check, 300, 40);
}

#[test]
fn samplers() {
    smoke("sampling", targets::sampling::check, 30_000, 1_000);
}

#[test]
fn constraints() {
    smoke("constraints", targets::constraints::check, 400, 40);
}

#[test]
fn sizes_of_constraints() {
    smoke("sizes", targets::sizes::check, 300, 30);
}

#[test]
fn stop_strings() {
    smoke("stop_strings", targets::stop_strings::check, 30_000, 1_000);
}

#[test]
fn requests() {
    smoke("requests", targets::requests::check, 2_000, 200);
}

/// A folder whose experts are in MXFP4 and whose queries are floats of 8 bits, all weights 0: the bytes of its two
/// files.
fn folder_of_few_bits() -> [Vec<u8>; 2] {
    let config = serde_json::json!({
        "model_type": "gpt_oss", "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 3,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1000, "sliding_window": 8,
        "rope_scaling": { "rope_type": "yarn", "factor": 4.0, "truncate": false },
        "num_local_experts": 2, "num_experts_per_tok": 1, "quantization_config": { "quant_method": "mxfp4" },
    });
    let in_layer: &[(&str, &str, &[usize])] = &[
        ("input_layernorm.weight", "BF16", &[32]),
        ("post_attention_layernorm.weight", "BF16", &[32]),
        ("self_attn.q_proj.weight", "F8_E4M3", &[2, 32]),
        ("self_attn.q_proj.weight_scale_inv", "BF16", &[1, 1]),
        ("self_attn.k_proj.weight_packed", "U8", &[2, 16]),
        ("self_attn.k_proj.weight_scale", "F8_E4M3", &[2, 2]),
        ("self_attn.k_proj.weight_global_scale", "F32", &[1]),
        ("self_attn.v_proj.weight", "U8", &[2, 16]),
        ("self_attn.v_proj.weight_scale", "F8_E4M3", &[2, 2]),
        ("self_attn.v_proj.weight_scale_2", "F32", &[]),
        ("self_attn.o_proj.weight", "BF16", &[32, 2]),
        ("self_attn.q_proj.bias", "BF16", &[2]),
        ("self_attn.k_proj.bias", "BF16", &[2]),
        ("self_attn.v_proj.bias", "BF16", &[2]),
        ("self_attn.o_proj.bias", "BF16", &[32]),
        ("self_attn.sinks", "BF16", &[1]),
        ("mlp.router.weight", "BF16", &[2, 32]),
        ("mlp.router.bias", "BF16", &[2]),
        ("mlp.experts.gate_up_proj_blocks", "U8", &[2, 64, 1, 16]),
        ("mlp.experts.gate_up_proj_scales", "U8", &[2, 64, 1]),
        ("mlp.experts.gate_up_proj_bias", "BF16", &[2, 64]),
        ("mlp.experts.down_proj_blocks", "U8", &[2, 32, 1, 16]),
        ("mlp.experts.down_proj_scales", "U8", &[2, 32, 1]),
        ("mlp.experts.down_proj_bias", "BF16", &[2, 32]),
    ];
    let in_layer =
        in_layer.iter().map(|(name, dtype, shape)| (format!("model.layers.0.{name}"), *dtype, *shape));
    let outer: &[(&str, &[usize])] = &[
        ("model.embed_tokens.weight", &[3, 32]),
        ("model.norm.weight", &[32]),
        ("lm_head.weight", &[3, 32]),
    ];
    let outer = outer.iter().map(|(name, shape)| ((*name).to_owned(), "BF16", *shape));
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, dtype, shape) in in_layer.chain(outer) {
        let start = end;
        let element = match dtype {
            "F32" => 4,
            "BF16" => 2,
            _ => 1,
        };
        end += shape.iter().product::<usize>() * element;
        let tensor = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
        header.insert(name, tensor);
    }
    let header = serde_json::Value::from(header).to_string();
    let weights = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; end]].concat();
    [config.to_string().into_bytes(), weights]
}

/// Models and drafters in files as small as can be, of each container and layout.
fn container_seeds(place: &Path, write: &dyn Fn(&str, &[u8])) {
    let path = place.join("seed");

    let spec = SyntheticSpec {
        layers: 1,
        width: 2,
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        feed_forward: 2,
        vocabulary: 262,
        ..SyntheticSpec::default()
    };
    spec.write_gguf(&path).expect("written");
    write("valid_gguf", &fs::read(&path).expect("written"));
    let model = place.join("model");
    spec.write_folder(&model).expect("written");
    let folder_seed = |name: &str, folder: &Path| {
        let [config, weights] =
            ["config.json", "model.safetensors"].map(|file| fs::read(folder.join(file)).expect("written"));
        write(name, &[&config[..], &[0], &weights[..]].concat());
    };
    folder_seed("valid_folder", &model);
    write("valid_few_bits", &folder_of_few_bits().join(&0));
    HiddenStateSpec::for_verifier(&spec).write_folder(&model).expect("written");
    folder_seed("valid_hidden_state", &model);
    let reduced = Eagle3Spec { draft_tokens: Some(vec![5, 3]), ..Eagle3Spec::for_verifier(&spec) };
    reduced.write_folder(&model).expect("written");
    folder_seed("valid_eagle3", &model);
    Eagle3Spec { is_speculators: true, ..reduced }.write_folder(&model).expect("written");
    folder_seed("valid_speculators", &model);

    let block = BlockSpec::for_verifier(&spec);
    let with = |markov_rank, draft_tokens| BlockSpec { markov_rank, draft_tokens, ..block.clone() };
    for (name, block) in [
        ("valid_dflash", with(None, None)),
        ("valid_dspark", with(Some(1), None)),
        ("valid_dspark_of_some_tokens", with(Some(2), Some(vec![5, 3]))),
    ] {
        block.write_folder(&model).expect("written");
        folder_seed(name, &model);
    }
}

/// Written to the checkout where `UPDATE_FUZZ_SEEDS` says so, after a format was changed on purpose; else to where they
/// are tried only.
#[test]
#[expect(clippy::disallowed_methods, reason = "who changes a format says so")]
fn seeds_can_be_written_anew() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let update = std::env::var_os("UPDATE_FUZZ_SEEDS").is_some();
    let folder = |target: &str| if update { folder(target) } else { place.path().join("seeds").join(target) };
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder(target)).expect("a writable folder");
        fs::write(folder(target).join(name), bytes).expect("a writable folder");
    };
    // A whole file, and a payload without the header that targets make, which they deflate.
    let deflated = |target: &str, file: &[u8]| {
        let mut payload = vec![1];
        flate2::read::DeflateDecoder::new(&file[52..]).read_to_end(&mut payload).expect("it was deflated");
        write(target, "valid_file", &[&[0], file].concat());
        write(target, "valid_payload", &payload);
    };
    container_seeds(place.path(), &|name, bytes| write("containers", name, bytes));

    let profile = small_profile();
    deflated("profiles", &profile_file::encode(&profile).expect("valid"));
    let mut plan = plan_from_profile(&profile, &Fix::default(), NOW).expect("a plan");
    plan.bands[0].alternatives.truncate(2);
    plan.bands[0].refused.truncate(1);
    for band in &mut plan.bands {
        band.alternatives.truncate(2);
        band.refused.truncate(1);
    }
    deflated("plans", &plan::encode(&plan).expect("valid"));

    let mut corpus = Corpus::default();
    for snippet in [&[5, 9, 5, 9, 7][..], &[1, 2, 3, 5, 9, 8], &[9, 9, 9, 9]] {
        let offer = |token: &u32| Offer::of(&[Candidate { token: *token, log_prob: -0.5 }]);
        corpus.push(snippet, &snippet[1..].iter().map(offer).collect::<Vec<_>>());
    }
    let (store, priors) = corpus.encode(40, [7; 32]).expect("small");
    let numbers = [0, 1, 2, 3].map(|table| priors.get(table).map_or(0, |entries| *entries as u8));
    write("stores", "valid_file", &[&[0], &store[..]].concat());
    write("stores", "valid_payload", &[&[3, 40, 0, 0, 0], &numbers[..], &store[120..]].concat());

    let (mut search, mut ngram) = (targets::drafter_states::search(), targets::drafter_states::ngram());
    targets::drafter_states::steps(&mut search, 20);
    ngram.begin(&(0..60).map(|i| i * i % 37).collect::<Vec<u32>>());
    let states =
        [DrafterState::Swift(Box::new(search.state().clone())), ngram.state().expect("it keeps one")];
    let model = targets::drafter_states::model();
    let file = |states: &[DrafterState]| DrafterState::encode(states, &model);
    write("drafter_states", "valid_file", &[&[0], &file(&states)[..]].concat());
    for (name, state) in ["valid_swift", "valid_ngram"].into_iter().zip(states) {
        write("drafter_states", name, &[&[1], &file(&[state])[52..]].concat());
    }

    // Any bytes are a case; these are some that are answered.
    let noise = vec![vec![0; 96], (0..200).map(|i: u32| (i * i % 251) as u8).collect()];
    for (target, check) in [
        ("sampling", targets::sampling::check as fn(&[u8]) -> bool),
        ("stop_strings", targets::stop_strings::check),
        ("requests", targets::requests::check),
    ] {
        let mut mutator = targets::mutation::Mutator::new(7);
        let mut found = (0..1_000_000).map(|_| mutator.of(&noise)).filter(|bytes| check(bytes));
        for number in 0..4 {
            write(target, &format!("valid_{number}"), &found.next().expect("one of many"));
        }
    }

    for (target, check) in [
        ("containers", targets::containers::check as fn(&[u8]) -> bool),
        ("profiles", targets::profiles::check),
        ("plans", targets::plans::check),
        ("stores", targets::stores::check),
        ("drafter_states", targets::drafter_states::check),
    ] {
        let seeds = fs::read_dir(folder(target)).expect("written").map(|entry| entry.expect("listed").path());
        for seed in seeds.filter(|path| path.display().to_string().contains("/valid")) {
            assert!(check(&fs::read(&seed).expect("written")), "{} is not accepted", seed.display());
        }
    }
}

/// A profile of a drafter without a model, of one with, and of both in one tree, cut to what a plan can be made of.
fn small_profile() -> Profile {
    let (_, mut profile) = tiny_profiles::profiled(None, &[2, 4], |mut options| {
        options.prompts.truncate(1);
        ProfileOptions {
            drafters: ["lookup", "layer_skip", "mixed"].map(str::to_owned).to_vec(),
            head_sizes: Vec::new(),
            temperatures: Vec::new(),
            ..options
        }
    });
    // Those that are recorded live take the most.
    profile.drafters.retain(|drafter| drafter.name.as_str() != "mixed");
    profile.live_traces.clear();
    profile.measurements.retain(|cell| cell.cell.stage.drafter().is_none_or(|name| name.as_str() != "mixed"));
    for drafter in &mut profile.drafters {
        // Fewer tokens remembered than what is searched may ask for.
        drafter.parameters.entry("suffix.remembered".to_owned()).and_modify(|number| *number = vec![64]);
    }
    for cell in &mut profile.measurements {
        cell.samples_us.truncate(5);
    }
    for prompt in profile.traces.iter_mut().flat_map(|trace| &mut trace.prompts) {
        prompt.steps.truncate(3);
    }
    for trace in &mut profile.token_traces {
        trace.output.truncate(24);
    }
    profile.predictors.clear();
    profile
}
