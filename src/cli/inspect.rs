//! `yggc inspect`: the content of a model file, and every stage of its compilation.

use std::collections::BTreeMap;

use yggc::{
    backend::{PackedLayout, packed_layouts},
    compile::{Stage, compile, compile_stages, compile_until},
    engine::{DEFAULT_CONTEXT, Loaded, Pinning},
    ir::{Binding, DeviceSpec},
    model::{Model, TensorInfo, VocabularySource, synthetic::SyntheticSpec},
    runtime::{Memory, SessionOptions},
};

use crate::cli::{
    args::{InspectArgs, StageName},
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::load_options,
    settings::Machine,
};

/// The first and the last stage of compiling.
const GRAPH: &str = "source";
const PROGRAM: &str = "program";

/// Runs `yggc inspect`.
pub(crate) fn command(args: &InspectArgs, cache: &CachePlace) -> Result<(), Failure> {
    let dumped = match args.stage {
        Some(StageName::Graph) => Some(GRAPH),
        Some(StageName::Program) => Some(PROGRAM),
        Some(StageName::Pass(name)) => Some(name),
        None if args.dot => Some(GRAPH),
        None | Some(StageName::Config | StageName::Tensors | StageName::Passes | StageName::Memory) => None,
    };
    if args.dot && dumped.is_none() {
        return Err(Failure::Usage(
            "--dot draws a graph: expected --stage graph, program or the name of a pass, found another stage"
                .to_owned(),
        ));
    }
    let path = match (&args.output, &args.synthesize, &args.inflate) {
        (Some(output), Some(shape), _) => {
            let spec = SyntheticSpec::shape(shape, args.weights).expect("the parser knows the shapes");
            spec.write_gguf(output)?;
            output.clone()
        }
        (Some(output), None, Some(shape)) => {
            let small = fetch::resolve(args.model.model.as_deref(), cache)?;
            Model::open(&small)?.write_inflated(shape, output)?;
            output.clone()
        }
        (None, _, _) | (_, None, None) => fetch::resolve(args.model.model.as_deref(), cache)?,
    };
    let model = loading::open(&path, cache)?;
    let machine = Machine { cache: args.cache, ..Machine::whole() };
    let device = DeviceSpec::cpu(machine.tier, machine.cache);
    let binding = Binding { width: args.width, outputs: args.width };
    if let Some(name) = dumped {
        let stage = compile_until(&model.graph, binding, &device, name)?;
        return output::text(if args.dot { stage.dot } else { stage.text });
    }
    let mut out = String::new();
    match args.stage {
        Some(StageName::Config) => out = config(&model),
        Some(StageName::Tensors) => {
            out = tensors(&model, &packed_layouts(&compile(&model.graph, binding, &device)?));
        }
        Some(StageName::Passes) => {
            for Stage { name, text, dot: _ } in compile_stages(&model.graph, binding, &device)? {
                out.push_str(&format!("== {name}\n{text}\n"));
            }
        }
        Some(StageName::Memory) => out = memory(model, machine)?,
        None => {
            out.push_str(&config(&model));
            out.push_str(&tensor_summary(&model));
            out.push_str(&compile_summary(&compile_stages(&model.graph, binding, &device)?));
            if args.output.is_none() {
                out.push_str(&memory(model, machine)?);
            }
        }
        Some(StageName::Graph | StageName::Program | StageName::Pass(_)) => {
            unreachable!("these were written above")
        }
    }
    output::text(out)
}

fn lines(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect()
}

fn config(model: &Model) -> String {
    let c = &model.config;
    let vocabulary = match &model.vocabulary {
        VocabularySource::Gguf(gguf) => {
            format!("{} tokens, {} of rule `{}`", gguf.tokens.len(), gguf.model, gguf.pre)
        }
        VocabularySource::Json { .. } => "tokenizer.json".to_owned(),
    };
    let template = match &model.chat_template {
        Some(text) => format!("{} characters of Jinja", text.chars().count()),
        None => "none".to_owned(),
    };
    lines(&[
        ("model", format!("{} ({})", c.name, model.path.display())),
        ("fingerprint", model.fingerprint().to_string()),
        ("container", format!("{:?}", model.container).to_lowercase()),
        ("family", c.family.name.to_owned()),
        ("layers", c.layers.to_string()),
        ("hidden size", c.hidden_size.to_string()),
        ("feed-forward", c.feed_forward.to_string()),
        ("heads", format!("{} of {}, {} for keys and values", c.heads, c.head_dim, c.kv_heads)),
        ("vocabulary", c.vocabulary.to_string()),
        ("context", c.context.to_string()),
        ("rms epsilon", format!("{:e}", c.rms_eps)),
        ("rope", format!("base {}, scaling {:?}", c.rope.base, c.rope.scaling)),
        ("head", if c.tied_head { "tied to the embedding" } else { "its own" }.to_owned()),
        ("tokenizer", vocabulary),
        ("chat template", template),
        ("stop tokens", format!("{:?}", model.stop_tokens)),
    ])
}

fn bytes_of(info: &TensorInfo) -> usize {
    info.bytes.len()
}

fn tensor_summary(model: &Model) -> String {
    let mut by_format: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for info in model.tensors.values() {
        let (count, bytes) = by_format.entry(info.format.name()).or_default();
        *count += 1;
        *bytes += bytes_of(info);
    }
    let formats: Vec<String> = by_format
        .iter()
        .map(|(format, (count, bytes))| format!("{count} {format} ({})", output::bytes(*bytes as u64)))
        .collect();
    let (further, unused): (Vec<&str>, Vec<&str>) =
        model.unused_tensors.iter().map(String::as_str).partition(|name| is_of_further(model, name));
    let mut rows = vec![("tensors", format!("{}: {}", model.tensors.len(), formats.join(", ")))];
    if !further.is_empty() {
        rows.push(("further layer", format!("{} tensors: drafter `model_mtp`", further.len())));
    }
    rows.push(("unused", if unused.is_empty() { "none".to_owned() } else { unused.join(", ") }));
    lines(&rows)
}

/// Whether a tensor is of the layer that predicts a further token.
fn is_of_further(model: &Model, name: &str) -> bool {
    model.further.as_ref().is_some_and(|layer| layer.has(name))
}

/// Every tensor with its packed layout on a CPU and the ops that read it.
fn tensors(model: &Model, layouts: &BTreeMap<String, PackedLayout>) -> String {
    let mut rows = vec![["tensor", "shape", "format", "bytes", "file"].map(str::to_owned)];
    let mut packed = vec![("layout", "read as".to_owned())];
    for (name, info) in &model.tensors {
        rows.push([
            name.clone(),
            format!("{:?}", info.shape),
            info.format.to_string(),
            bytes_of(info).to_string(),
            info.file.to_string(),
        ]);
        packed.push(match layouts.get(name) {
            Some(PackedLayout { layout, uses }) => (layout, uses.join("; ")),
            None if is_of_further(model, name) => {
                ("none", "the layer that predicts a further token".to_owned())
            }
            None if model.unused_tensors.contains(name) => ("none", "unused".to_owned()),
            None => ("none", "part of the configuration".to_owned()),
        });
    }
    let width = packed.iter().map(|(layout, _)| layout.len()).max().unwrap_or(0);
    let table = output::table(&rows);
    let lines = table.lines().zip(packed);
    let lines = lines.map(|(line, (layout, read_as))| format!("{line}  {layout:<width$}  {read_as}\n"));
    lines.collect::<String>() + &tensor_summary(model)
}

fn compile_summary(stages: &[Stage]) -> String {
    let row = |Stage { name, text, dot: _ }: &Stage| {
        let values = text.lines().filter(|line| line.starts_with('%')).count();
        match *name {
            GRAPH => ("graph", format!("{values} values; whole with --stage graph")),
            PROGRAM => {
                let steps = text.lines().filter(|line| line.contains(" = ")).count();
                let head = text.lines().next().unwrap_or_default();
                let head = head.split_once(" width ").map_or(head, |(_, rest)| rest);
                ("program", format!("{steps} steps, width {head}; whole with --stage program"))
            }
            pass => ("", format!("{values} values after {pass}")),
        }
    };
    lines(&stages.iter().map(row).collect::<Vec<_>>())
}

/// The memory of an engine with the default context; opens no session.
fn memory(model: Model, machine: Machine) -> Result<String, Failure> {
    let loaded = Loaded::new(model, &load_options(machine, Vec::new()))?;
    let context = loaded.set().model_context().min(DEFAULT_CONTEXT);
    let options =
        SessionOptions { context, tree_nodes: 1, threads: machine.threads, pinning: Pinning::default() };
    let Memory { weight_bytes, session_bytes, streamed_bytes: _, pinned_bytes: _ } =
        loaded.set().memory(&options);
    Ok(lines(&[(
        "memory",
        format!(
            "{} of packed weights ({}), {} of session at a context of {context} tokens",
            output::bytes(weight_bytes as u64),
            machine.tier,
            output::bytes(session_bytes as u64)
        ),
    )]))
}
