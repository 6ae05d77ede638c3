//! Text and DOT views of graphs and programs, for people and golden tests.

use std::{collections::BTreeMap, fmt::Write as _};

use ygg_kernels::{RouteVector, Scoring, StateForm};

use super::{Graph, Head, HeadTokens, Norm, Op, Operand, Program, Step, ValueId, WeightId, WeightSpec};

fn attributes(weights: &[WeightSpec], op: &Op) -> String {
    let weight_name = |id: WeightId| weights[id.0 as usize].name.as_str();
    let norm = |n: &Option<Norm>| n.map_or(String::new(), |n| format!(" norm={}", weight_name(n.weight)));
    let kept = |tokens: &Option<HeadTokens>| {
        tokens.as_ref().map_or(String::new(), |tokens| format!(" tokens={}", tokens.len()))
    };
    let rope = |r: &Option<super::RopeId>| r.map_or(String::new(), |r| format!(" rope={}", r.0));
    match op {
        Op::Input(input) => format!(" {}", input.name()),
        Op::Embed { weight } => format!(" {}", weight_name(*weight)),
        Op::RmsNorm(n) => format!(" {} eps={:e}", weight_name(n.weight), n.eps),
        Op::Linear { weights, biases, norm: n, residual } => {
            let names: Vec<_> = weights.iter().map(|w| weight_name(*w)).collect();
            let bias = if biases.is_empty() { "" } else { " biased" };
            format!(" {}{}{bias}{}", names.join("|"), norm(n), if *residual { " in_place" } else { "" })
        }
        Op::GatedLinear { function, gate, up, norm: n } => {
            format!(" {}|{}{} {function}", weight_name(*gate), weight_name(*up), norm(n))
        }
        Op::Rope(r) => format!(" rope={}", r.0),
        Op::AppendKv { layer, rope: r } => format!(" layer={layer}{}", rope(r)),
        Op::Attention { layer, heads, scoring: Scoring { scale, softcap, window }, rope: r, sinks } => {
            let softcap = softcap.map_or(String::new(), |cap| format!(" softcap={cap}"));
            let window = window.map_or(String::new(), |window| format!(" window={window}"));
            let sinks = sinks.map_or(String::new(), |sinks| format!(" sinks={}", weight_name(sinks)));
            format!(" layer={layer} heads={heads} scale={scale}{softcap}{window}{}{sinks}", rope(r))
        }
        Op::ShortConv { layer, taps } => format!(" layer={layer} {}", weight_name(*taps)),
        Op::Recurrence { layer, vectors, form } => {
            let order = if form.is_grouped { "grouped" } else { "tiled" };
            let names: Vec<_> = vectors.iter().map(|vector| weight_name(*vector)).collect();
            let [shortest, longest] = form.steps;
            let steps = match form.steps == StateForm::ALL_STEPS {
                true => String::new(),
                false => format!(" steps={shortest}..{longest}"),
            };
            format!(" layer={layer} {} {order}{steps}", names.join("|"))
        }
        Op::Route { routing, vector } => {
            let ygg_kernels::Routing { used, gating, normalised, scale } = routing;
            let vector = match vector {
                None => String::new(),
                Some(RouteVector::Bias(bias)) => format!(" biased by {}", weight_name(*bias)),
                Some(RouteVector::Factors(factors)) => format!(" times {}", weight_name(*factors)),
            };
            let normalised = if normalised.is_some() { " normalised" } else { "" };
            let scale = if *scale == 1.0 { String::new() } else { format!(" scale={scale}") };
            format!(" {} used={used}{normalised}{scale}{vector}", gating.name())
        }
        Op::RoutedGated { function, experts, biases } => {
            let bias = if biases.is_empty() { "" } else { " biased" };
            let count = experts.len() / 2;
            let [gate, up] = [experts[0], experts[count]].map(weight_name);
            format!(" {gate}|{up} of {count}{bias} {function}")
        }
        Op::RoutedLinear { experts, biases } => {
            let bias = if biases.is_empty() { "" } else { " biased" };
            format!(" {} of {}{bias}", weight_name(experts[0]), experts.len())
        }
        Op::Candidates { head: None, most, tokens } => format!(" most={most}{}", kept(tokens)),
        Op::Candidates { head: Some(Head { weights, norm: n }), most, tokens } => {
            let names: Vec<_> = weights.iter().map(|w| weight_name(*w)).collect();
            format!(" {}{} most={most}{}", names.join("|"), norm(n), kept(tokens))
        }
        Op::Scale { factor } => format!(" factor={factor}"),
        Op::Softcap { cap } => format!(" cap={cap}"),
        Op::Gate(function) => format!(" {function}"),
        Op::Slice { start, len } => format!(" columns={start}..{}", start + len),
        Op::Add | Op::SelectRows | Op::GivenRows { .. } => String::new(),
    }
}

fn operand_list(values: &[ValueId]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// One line per value: `%id: type = op(operands) attributes  ; group`.
pub fn graph_text(graph: &Graph) -> String {
    let mut out = format!("graph {}\n", graph.name());
    for value in graph.topological() {
        let node = graph.node(value);
        let operands = operand_list(&graph.operands(value));
        let attributes = attributes(graph.weights(), &node.op);
        let group = node.group.map_or(String::new(), |g| format!("  ; {}", graph.group_name(g)));
        let _ =
            writeln!(out, "{value}: {} = {}({operands}){attributes}{group}", node.value_type, node.op.name());
    }
    if let Some(hidden) = graph.hidden() {
        let _ = writeln!(out, "hidden {hidden}");
    }
    for inner in graph.inner() {
        let _ = writeln!(out, "inner {inner}");
    }
    if let Some(shown) = graph.shown() {
        let _ = writeln!(out, "{} {shown}", what_is_shown(&graph.node(shown).op));
    }
    out
}

/// What a graph or program is for, by the op that makes what it shows.
fn what_is_shown(op: &Op) -> &'static str {
    if matches!(op, Op::Candidates { .. }) { "candidates" } else { "logits" }
}

/// The graph in Graphviz's language.
pub fn graph_dot(graph: &Graph) -> String {
    let mut out = String::from("digraph model {\n  node [shape=box, fontname=monospace];\n");
    for value in graph.topological() {
        let node = graph.node(value);
        let label = format!(
            "{value} {}{}\\n{}",
            node.op.name(),
            attributes(graph.weights(), &node.op),
            node.value_type
        );
        let _ = writeln!(out, "  v{} [label=\"{}\"];", value.index(), label.replace('"', "'"));
        for (i, operand) in graph.operands(value).iter().enumerate() {
            let _ = writeln!(out, "  v{} -> v{} [label=\"{i}\"];", operand.index(), value.index());
        }
    }
    out.push_str("}\n");
    out
}

fn operand_text(operand: &Operand) -> String {
    match operand {
        Operand::Input(input) => input.name().to_owned(),
        Operand::Effect => "effect".to_owned(),
        Operand::Arena(r) => {
            let stride =
                if r.row_stride == r.columns { String::new() } else { format!(" stride {}", r.row_stride) };
            format!("{}@{}[{}, {}{stride}]", r.value, r.offset_bytes, r.rows, r.columns)
        }
    }
}

fn step_text(program: &Program, step: &Step) -> String {
    let operands: Vec<_> = step.operands.iter().map(operand_text).collect();
    let attributes = attributes(&program.weights, &step.op);
    format!("{} = {}({}){attributes}", operand_text(&step.result), step.kernel, operands.join(", "))
}

/// One name for the steps of all layers that do the same: the op and the weights it reads, without their layer.
pub fn step_name(program: &Program, step: &Step) -> String {
    let name = |id: &WeightId| {
        let name = program.weights[id.0 as usize].name.as_str();
        let name = name.strip_suffix(".weight").unwrap_or(name);
        name.rsplit('.').next().unwrap_or(name)
    };
    let names = |ids: &[WeightId]| ids.iter().map(name).collect::<Vec<_>>().join("|");
    match &step.op {
        Op::Linear { .. } if step.result.region() == Some(program.shown) => "logits".to_owned(),
        Op::Linear { weights, .. } => format!("linear {}", names(weights)),
        Op::GatedLinear { gate, up, .. } => format!("gated_linear {}", names(&[*gate, *up])),
        Op::RoutedGated { experts, .. } => {
            format!("routed_gated {}", names(&[experts[0], experts[experts.len() / 2]]))
        }
        Op::RoutedLinear { experts, .. } => format!("routed_linear {}", name(&experts[0])),
        Op::RmsNorm(norm) => format!("rms_norm {}", name(&norm.weight)),
        Op::Input(_)
        | Op::GivenRows { .. }
        | Op::Embed { .. }
        | Op::Gate(_)
        | Op::Rope(_)
        | Op::AppendKv { .. }
        | Op::Attention { .. }
        | Op::ShortConv { .. }
        | Op::Recurrence { .. }
        | Op::Route { .. }
        | Op::Add
        | Op::Scale { .. }
        | Op::Softcap { .. }
        | Op::Slice { .. }
        | Op::SelectRows
        | Op::Candidates { .. } => step.op.name().to_owned(),
    }
}

/// One line per step: `result@offset[rows, columns] = kernel(operands) attributes  ; group`.
pub fn program_text(program: &Program) -> String {
    let mut out = format!(
        "program {} width {} outputs {} arena {} bytes\n",
        program.name, program.binding.width, program.binding.outputs, program.arena_bytes
    );
    for (i, step) in program.steps.iter().enumerate() {
        let group = step.group.map_or(String::new(), |group| {
            let own = program.steps.iter().filter(|step| step.group == Some(group)).map(|step| &step.op);
            format!("  ; {}", group.name(own))
        });
        let _ = writeln!(out, "{i:4} {}{group}", step_text(program, step));
    }
    if let Some(hidden) = program.hidden {
        let _ = writeln!(out, "hidden {}", operand_text(&Operand::Arena(hidden)));
    }
    for inner in &program.inner {
        let _ = writeln!(out, "inner {}", operand_text(&Operand::Arena(*inner)));
    }
    let shown = program.steps.iter().find(|step| step.result.region() == Some(program.shown));
    let what = shown.map_or("logits", |step| what_is_shown(&step.op));
    let _ = writeln!(out, "{what} {}", operand_text(&Operand::Arena(program.shown)));
    out
}

/// The program in Graphviz's language: an edge from each step to the steps that read its result or its cache rows.
pub fn program_dot(program: &Program) -> String {
    let mut out = String::from("digraph program {\n  node [shape=box, fontname=monospace];\n");
    let (mut writer, mut append) = (BTreeMap::new(), BTreeMap::new());
    for (i, step) in program.steps.iter().enumerate() {
        let label = step_text(program, step).replace('"', "'").replace(" = ", "\\n");
        let _ = writeln!(out, "  s{i} [label=\"{i} {label}\"];");
        let read = step.operands.iter().filter_map(|operand| writer.get(&operand.region()?.value));
        let cache = if let Op::Attention { layer, .. } = step.op { append.get(&layer) } else { None };
        for from in read.chain(cache) {
            let _ = writeln!(out, "  s{from} -> s{i};");
        }
        if let Some(region) = step.result.region() {
            writer.insert(region.value, i);
        }
        if let Op::AppendKv { layer, .. } = step.op {
            append.insert(layer, i);
        }
    }
    out.push_str("}\n");
    out
}
