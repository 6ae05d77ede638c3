//! Tests of what the command line accepts and refuses.

use clap::{CommandFactory, ValueEnum, error::ErrorKind};
use yggc::{
    compile::stage_names,
    engine::{Activations, Tier},
    plan::DrafterId,
};

use super::*;

#[cfg(feature = "serve")]
mod documents;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Cli::try_parse_from(std::iter::once("yggc").chain(line.split_whitespace())).map(|cli| cli.command)
}

fn refusal(line: &str) -> clap::Error {
    match parse(line) {
        Err(error) => error,
        Ok(command) => panic!("`{line}` was accepted as {command:?}"),
    }
}

#[test]
fn room_for_prefixes_is_bytes_or_off() {
    for (line, memory, disk) in [
        ("run -p a --prefix-memory 3M --prefix-disk off", Some(3 << 20), Some(0)),
        ("run -p a --prefix-memory 0", Some(0), None),
    ] {
        let Ok(Command::Run(run)) = parse(line) else { panic!("`{line}` is refused") };
        assert_eq!((run.prefixes.prefix_memory, run.prefixes.prefix_disk), (memory, disk), "{line}");
    }
    for line in ["run -p a --prefix-memory no", "run -p a --prefix-disk -1", "run -p a --prefix-disk 4X"] {
        let said = refusal(line).to_string();
        assert!(said.contains("expected bytes, as in 500M or 20G, or off"), "{said}");
    }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn run_has_the_flags_of_the_contract() {
    let line = "run -m model.gguf --plan a.plan --force -p hello -n 7 --raw --temperature 0.8 --top-k 40 --top-p 0.9 \
                --min-p 0.05 --seed 7 --drafter layer_skip --threads 2 --context 512 \
                --device cpu --isa amx --activations int8 --stats --json --cache-dir c";
    let Command::Run(run) = parse(line).unwrap() else { panic!("not `run`") };
    assert_eq!(run.answer.max_tokens, Some(7));
    assert_eq!(run.drafter, Some("layer_skip".parse().unwrap()));
    assert_eq!(run.answer.sampling.temperature, 0.8);
    assert_eq!(run.answer.sampling.seed, 7);
    assert_eq!((run.device.threads, run.context.context), (Some(2), Some(512)));
    assert_eq!((run.device.isa, run.device.activations), (Some(Tier::Amx), Some(Activations::Int8)));
    assert!(run.raw && run.stats && run.json && run.force && !run.no_spec);
}

#[test]
fn distill_has_the_flags_of_the_contract_and_makes_a_hidden_state_drafter_by_default() {
    let Command::Distill(distill) = parse("distill -m model.gguf -o folder").unwrap() else {
        panic!("not `distill`")
    };
    assert_eq!((distill.kind, distill.tokens, distill.seen), (DistilledKind::Hidden, 1_000_000, None));
    assert!(!distill.resume && distill.exclude.is_empty() && distill.prompts.is_empty());
    let line = "distill -o folder --kind plain --tokens 5 --seen 7 --seed 3 --threads 2 --resume --exclude a \
        --exclude b";
    let Command::Distill(distill) = parse(line).unwrap() else { panic!("not `distill`") };
    assert_eq!((distill.kind, distill.tokens, distill.seen), (DistilledKind::Plain, 5, Some(7)));
    assert!(distill.resume && distill.exclude.len() == 2 && distill.seed == 3 && distill.threads == Some(2));
    assert!(parse("distill").is_err(), "it needs a folder");
    let Command::Distill(distill) = parse("distill -o folder --corpus a b --seen 7").unwrap() else {
        panic!("not `distill`")
    };
    assert_eq!((distill.corpus.len(), distill.corpus_only, distill.seen), (2, false, Some(7)));
}

#[test]
fn a_prompt_may_start_with_a_hyphen() {
    let Command::Run(run) = Cli::try_parse_from(["yggc", "run", "-p", "- one\n- two"]).unwrap().command
    else {
        panic!("not `run`")
    };
    assert_eq!(run.prompt.as_deref(), Some("- one\n- two"));
}

#[test]
fn values_out_of_range_are_usage_errors_that_say_what_was_expected() {
    for (line, expected) in [
        ("run -p x -n 0", "at least 1"),
        ("run -p x -n -3", "at least 1"),
        ("run -p x -n many", "at least 1"),
        ("run -p x --temperature -1", "0 or more"),
        ("run -p x --temperature nan", "0 or more"),
        ("run -p x --temperature inf", "0 or more"),
        ("run -p x --top-k 0", "at least 1"),
        ("run -p x --stop=", "--stop <TEXT>"),
        ("run -p x --repetition-penalty 0", "above 0"),
        ("run -p x --presence-penalty 3", "from -2 to 2"),
        ("run -p x --logit-bias 12", "1234+5"),
        ("run -p x --top-p 0", "above 0 and at most 1"),
        ("run -p x --top-p 1.1", "above 0 and at most 1"),
        ("run -p x --min-p -0.1", "from 0 to 1"),
        ("run -p x --min-p 2", "from 0 to 1"),
        ("run -p x --threads 0", "from 1 to 1024"),
        ("run -p x --threads 100000", "from 1 to 1024"),
        ("run -p x --context 0", "at least 1"),
        ("run -p x --drafter oracle", "layer_skip"),
        ("corpus build --input a -o b --snippet 0", "at least 1"),
        ("distill -o d --tokens 0", "at least 1"),
        ("distill -o d --seen none", "at least 1"),
        ("distill -o d --kind tree", "hidden"),
        ("distill -o d --corpus-only --seen 7", "cannot be used with"),
        ("distill -o d --corpus-only --corpus a", "cannot be used with"),
        ("distill -o d --corpus a --tokens 7", "cannot be used with"),
        ("distill -o d --corpus a --prompts b", "cannot be used with"),
        ("corpus build --input a -o b --keep none", "at least 1"),
        ("run -p x --drafter layer-skip", "layer_skip"),
        ("run -p x --drafter lookups", "such as lookup_short"),
        ("run -p x --isa sse2", "portable"),
        ("bench --prompts f --arms ar,oracle", "expected ar, eager, plan, unguarded or a drafter"),
        ("bench --prompts f --arms none", "the arm `ar`"),
        ("bench --prompts f --repetitions 0", "at least 1"),
        ("bench --prompts f --temperature -1", "0 or more"),
        ("inspect --stage fuse", "fuse_qkv"),
        ("inspect --width 0", "from 1 to 4096"),
        ("inspect --inflate 70b -o f", "expected 1b, 3b, 7b, or sizes such as layers=32"),
        ("plan --profile f -o g --fix Dd=0", "a number from 1 on"),
        ("plan --profile f -o g --memory many", "500M"),
        ("plan --profile f -o g --memory 4G --context 0", "at least 1"),
        ("plan --profile f -o g --context 64", "--memory"),
        ("plan --profile f -o g --fix Dd=4,Dd=5", "twice"),
        ("plan --profile f -o g --fix depth=4", "drafter=D,Dd=4,Wd=4,Wv=16"),
        ("plan --profile f -o g --fix drafter=none,Wv=4", "drafts nothing"),
        ("plan --profile f -o g --fix rows=few", "`all` or `best`"),
    ] {
        let error = refusal(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(expected), "{line}: {error}");
    }
}

#[test]
fn flags_that_exclude_or_need_each_other_are_usage_errors() {
    for line in [
        "run -p x --prompt-file f",
        "run -p x --no-spec --drafter lookup",
        "run -p x --no-spec --plan f",
        "run -p x --no-spec --draft-model f",
        "run -p x --force",
        "inspect --inflate 1b",
        "inspect --synthesize llama-1b --inflate 1b -o f",
        "inspect -o f",
        "run --json",
        "run --raw",
        "score",
        "score --text-file a --token-ids b",
        "choose -p x",
        "choose --option a",
        "choose -p x --prompt-file f --option a",
        "choose -p x --option a --raw --system s",
        "choose -p x --option a --normalize bytes",
        "choose -p x --option a --regex r --json-object",
        "profile",
        "corpus",
        "corpus build -o s",
        "corpus build --input a",
        "plan",
        "plan --profile f",
        "plan show",
        "plan explain",
        "plan explain f --json --html g",
        "plan diff f",
        "plan --profile f -o g show h",
        "profile show",
        "profile -o f show g",
        "profile show f -o g",
        "bench",
        "bench --kernels --prompts f",
        "bench --kernels --arms ar",
        "bench --kernels -n 8",
        "bench --kernels --context 64",
        "bench --kernels --temperature 1",
        "bench --kernels --seed 1",
        "bench --kernels --force",
        "bench --widths 4",
        "bench --prompts f --widths 4",
        "bench --kernels --widths 0",
        "bench --kernels --widths 8-4",
        "bench --kernels --widths 4-",
        "bench --kernels --force",
        "fetch",
        "",
    ] {
        assert_eq!(refusal(line).exit_code(), 2, "{line}");
    }
}

#[test]
fn widths_are_of_kernels_and_the_refusal_says_so() {
    assert!(refusal("bench --widths 4").to_string().contains("--kernels"));
    assert!(refusal("bench --prompts f --widths 4").to_string().contains("cannot be used with"));
}

#[test]
fn plan_is_a_search_or_looks_at_plans() {
    let Command::Plan(plan) =
        parse("plan -m m --profile f -o g --fix drafter=lookup,Dd=4,Wv=16,predictor=on").unwrap()
    else {
        panic!("not `plan`")
    };
    assert!(plan.command.is_none());
    let search = plan.search.unwrap();
    assert_eq!(search.profile, PathBuf::from("f"));
    assert_eq!(
        search.fix,
        Some(Fix {
            drafter: Some("lookup".to_owned()),
            depth: Some(4),
            verify_width: Some(yggc::planner::FixedWidth::Rows(16)),
            depth_rule: Some(yggc::plan::DepthRule::Predicted),
            ..Fix::default()
        })
    );

    let Command::Plan(plan) = parse("plan show f --json").unwrap() else { panic!("not `plan`") };
    assert!(plan.search.is_none());
    let Some(PlanCommand::Show(show)) = plan.command else { panic!("not `plan show`") };
    assert!(show.json);
    assert_eq!(show.file, PathBuf::from("f"));
    let Command::Plan(plan) = parse("plan explain f --html g").unwrap() else { panic!("not `plan`") };
    let Some(PlanCommand::Explain(explain)) = plan.command else { panic!("not `plan explain`") };
    assert_eq!(
        (explain.file, explain.html, explain.json),
        (PathBuf::from("f"), Some(PathBuf::from("g")), false)
    );
    let Command::Plan(plan) = parse("plan diff f g --json").unwrap() else { panic!("not `plan`") };
    let Some(PlanCommand::Diff(diff)) = plan.command else { panic!("not `plan diff`") };
    assert_eq!((diff.a, diff.b, diff.json), (PathBuf::from("f"), PathBuf::from("g"), true));
}

#[test]
fn profile_measures_or_shows() {
    let Command::Profile(profile) = parse("profile -o f").unwrap() else { panic!("not `profile`") };
    assert!(profile.command.is_none() && profile.budget == 240);
    assert_eq!(profile.output, Some(PathBuf::from("f")));
    let Command::Profile(profile) = parse("profile show f --json").unwrap() else { panic!("not `profile`") };
    let Some(ProfileCommand::Show(show)) = profile.command else { panic!("not `profile show`") };
    assert_eq!((show.file, show.json, profile.output), (PathBuf::from("f"), true, None));
}

#[test]
fn repeated_and_listed_values() {
    let Command::Bench(bench) =
        parse("bench --prompts f --plan a --plan b --arms ar,layer_skip,plan").unwrap()
    else {
        panic!("not `bench`")
    };
    assert_eq!(bench.plans.len(), 2);
    assert_eq!(bench.arms, [Arm::Ar, Arm::Drafter("layer_skip".parse().unwrap()), Arm::Plan]);
    let Command::Bench(bench) = parse("bench --prompts f").unwrap() else { panic!("not `bench`") };
    assert_eq!(bench.arms, [Arm::Ar, Arm::Plan]);
    assert!(!bench.kernels && bench.sampling.temperature == 0.0);
    let Command::Bench(bench) = parse("bench --prompts f --temperature 0.6 --top-k 9 --seed 3").unwrap()
    else {
        panic!("not `bench`")
    };
    assert_eq!((bench.sampling.temperature, bench.sampling.top_k, bench.sampling.seed), (0.6, Some(9), 3));
    let Command::Bench(bench) = parse("bench --kernels --repetitions 3 --threads 2 --isa portable").unwrap()
    else {
        panic!("not `bench`")
    };
    assert!(bench.kernels && bench.prompts.is_none() && bench.repetitions == Some(3));
    let Command::Bench(bench) = parse("bench --kernels --widths 1-4,8").unwrap() else {
        panic!("not `bench`")
    };
    assert_eq!(bench.widths, [1..=4, 8..=8]);

    let Command::Profile(profile) = parse("profile --drafter none --drafter lookup -o p").unwrap() else {
        panic!("not `profile`")
    };
    assert_eq!(profile.drafters, [KindName(DrafterId::None), KindName(DrafterId::Lookup)]);
    let Command::Profile(profile) = parse("profile --draft-model a --draft-model b/c -o p").unwrap() else {
        panic!("not `profile`")
    };
    assert_eq!(profile.draft_models, ["a", "b/c"].map(PathBuf::from));
}

#[test]
fn every_arm_is_read_back_from_its_name() {
    let drafters = [
        DrafterId::Lookup,
        DrafterId::LayerSkip,
        DrafterId::Retrieval,
        DrafterId::Suffix,
        DrafterId::Swift,
        DrafterId::Model,
        DrafterId::Block,
    ]
    .map(|kind| Arm::Drafter(kind.name().parse().unwrap()));
    for arm in [Arm::Ar, Arm::Eager, Arm::Plan, Arm::Unguarded].into_iter().chain(drafters) {
        assert_eq!(arm.to_string().parse(), Ok(arm));
    }
}

#[test]
fn help_and_version_are_no_errors() {
    assert_eq!(refusal("--version").kind(), ErrorKind::DisplayVersion);
    assert_eq!(refusal("run --help").exit_code(), 0);
}

#[test]
fn drafters_have_the_names_that_plans_know() {
    let names = KindName::value_variants().iter().map(|kind| kind.name());
    assert!(names.eq(yggc::plan::DrafterKind::NAMES));
    for kind in KindName::value_variants() {
        assert_eq!(KindName::from_str(kind.name(), false).as_ref(), Ok(kind));
        assert_eq!(kind.name().parse::<DrafterName>().unwrap().kind(), kind.0);
    }
    for (variant, kind) in [
        ("substitute4", DrafterId::Substitute),
        ("lookup_short", DrafterId::Lookup),
        ("ngram_pool", DrafterId::Ngram),
        ("model_hidden", DrafterId::Model),
        ("block_2", DrafterId::Block),
        ("layer_skip_v8192", DrafterId::LayerSkip),
    ] {
        let Command::Run(run) = parse(&format!("run -p x --drafter {variant}")).unwrap() else {
            panic!("not `run`")
        };
        assert_eq!(
            run.drafter.as_ref().map(|drafter| (drafter.name(), drafter.kind())),
            Some((variant, kind))
        );
        assert!(parse(&format!("serve --drafter {variant}")).is_ok());
        assert!(parse(&format!("bench --prompts f --arms {variant}")).is_ok());
    }
}

#[test]
fn the_former_options_of_a_drafters_state_mean_the_one_that_replaced_them() {
    for flag in ["--drafter-state", "--skip-state", "--ngram-state"] {
        let Command::Run(run) = parse(&format!("run -p x {flag} f")).unwrap() else { panic!("not `run`") };
        assert_eq!(run.drafter_state, Some("f".into()), "{flag}");
        assert!(parse(&format!("run -p x --no-spec {flag} f")).is_err(), "{flag}");
    }
}

#[test]
fn every_stage_of_compiling_can_be_inspected() {
    for name in stage_names() {
        let stage: StageName = name.parse().unwrap();
        assert_ne!(stage, StageName::Config, "{name}");
    }
    assert_eq!("graph".parse(), Ok(StageName::Graph));
    assert_eq!("program".parse(), Ok(StageName::Program));
}

#[test]
fn verify_is_given_a_plan_and_how_much_to_try() {
    let Command::Verify(verify) = parse("verify").unwrap() else { panic!("not `verify`") };
    assert!(!verify.quick && !verify.json && verify.plan.is_none() && verify.prompts.is_none());
    let line = "verify -m model --plan p --quick --json --threads 2 --device cpu --isa avx2 --store s --draft-model d \
        --prompts f";
    let Command::Verify(verify) = parse(line).unwrap() else { panic!("not `verify`") };
    assert!(verify.quick && verify.json && verify.device.threads == Some(2) && verify.draft_model.is_some());
    for line in ["verify --force", "verify --no-spec", "verify --drafter lookup", "verify -n 3"] {
        assert_eq!(refusal(line).exit_code(), 2, "{line}");
    }
}

#[cfg(feature = "serve")]
#[test]
fn serve_listens_to_this_machine_unless_told_otherwise() {
    let Command::Serve(serve) = parse("serve").unwrap() else { panic!("not `serve`") };
    assert!(serve.host.is_loopback() && serve.port == 8080 && serve.queue == 16 && !serve.no_spec);
    let line = "serve -m model --plan p --force --host ::1 --port 0 --drafter suffix --model-name n --api-key-file k \
                --queue 0 --connections 9 --max-body 10 --max-prompt 11 --max-output 12 --timeout 13 --drain 0";
    let Command::Serve(serve) = parse(line).unwrap() else { panic!("not `serve`") };
    assert_eq!((serve.drafter, serve.queue, serve.drain), (Some("suffix".parse().unwrap()), 0, 0));
    assert_eq!((serve.max_prompt, serve.max_output, serve.timeout), (Some(11), Some(12), 13));
    for line in [
        "serve --port 70000",
        "serve --host nowhere",
        "serve --no-spec --plan p",
        "serve --no-spec --drafter lookup",
        "serve --force",
        "serve --max-output 0",
        "serve --timeout 0",
        "serve --drafter oracle",
        "serve -p x",
    ] {
        assert_eq!(refusal(line).exit_code(), 2, "{line}");
    }
}

#[test]
fn a_size_is_a_number_with_a_unit() {
    let limit = |text: &str| {
        Cli::try_parse_from(["yggc", "cache", "list", "--packed-limit", text]).map(|cli| cli.packed_limit)
    };
    for (text, bytes) in
        [("0", 0), ("7", 7), ("3K", 3 << 10), ("500m", 500 << 20), ("20G", 20 << 30), ("1T", 1 << 40)]
    {
        assert_eq!(limit(text).unwrap(), Some(bytes), "{text}");
    }
    for text in ["", "G", "-1", "1.5G", "5X", "20GB", "99999999999999999999", "99999999999T", "5\u{e9}"] {
        let error = limit(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation, "{text}");
        assert!(error.to_string().contains("20G"), "{error}");
    }
}
