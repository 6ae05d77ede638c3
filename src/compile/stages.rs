//! The stages of compiling: running the passes under the law, and showing the result of each.

use super::{CompileError, PASSES, compile, passes::bind_width, to_program};
use crate::ir::{
    Binding, DeviceSpec, Graph, GraphError, graph_dot, graph_text, program_dot, program_text, verify,
};

const SOURCE: &str = "source";
const BIND_WIDTH: &str = "bind_width";
const PROGRAM: &str = "program";

/// What an observer wants after a stage.
pub(super) enum Proceed {
    On,
    Stop,
}

/// One stage, written out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// One of [`stage_names`].
    pub name: &'static str,
    /// One line per value or step.
    pub text: String,
    /// The same in Graphviz's language.
    pub dot: String,
}

/// Names of all stages, in order: `source`, every pass, `program`.
pub fn stage_names() -> impl Iterator<Item = &'static str> {
    [SOURCE, BIND_WIDTH].into_iter().chain(PASSES.iter().map(|(name, _)| *name)).chain([PROGRAM])
}

/// Compiles and writes out every stage.
///
/// # Errors
/// As [`compile`].
pub fn compile_stages(
    graph: &Graph,
    binding: Binding,
    device: &DeviceSpec,
) -> Result<Vec<Stage>, CompileError> {
    let mut stages = Vec::new();
    let bound = run_passes(graph, binding, &mut |name, graph| {
        stages.push(graph_stage(name, graph));
        Proceed::On
    })?;
    let program = to_program::to_program(&bound, device)?;
    stages.push(Stage { name: PROGRAM, text: program_text(&program), dot: program_dot(&program) });
    Ok(stages)
}

/// Compiles as far as the stage called `name`, and writes it out. Later stages are not tried.
///
/// # Errors
/// [`CompileError::UnknownStage`] with all names; else as [`compile`], as far as it goes.
pub fn compile_until(
    graph: &Graph,
    binding: Binding,
    device: &DeviceSpec,
    name: &str,
) -> Result<Stage, CompileError> {
    if !stage_names().any(|known| known == name) {
        let expected = stage_names().collect::<Vec<_>>().join(", ");
        return Err(CompileError::UnknownStage { found: name.to_owned(), expected });
    }
    if name == PROGRAM {
        let program = compile(graph, binding, device)?;
        return Ok(Stage { name: PROGRAM, text: program_text(&program), dot: program_dot(&program) });
    }
    let mut wanted = None;
    run_passes(graph, binding, &mut |stage, graph| {
        if stage != name {
            return Proceed::On;
        }
        wanted = Some(graph_stage(stage, graph));
        Proceed::Stop
    })?;
    Ok(wanted.expect("every name but `program` is a stage of the graph"))
}

fn graph_stage(name: &'static str, graph: &Graph) -> Stage {
    Stage { name, text: graph_text(graph), dot: graph_dot(graph) }
}

/// Runs all passes over a copy of the graph, or as many as `observe` wants.
pub(super) fn run_passes(
    graph: &Graph,
    binding: Binding,
    observe: &mut dyn FnMut(&'static str, &Graph) -> Proceed,
) -> Result<Graph, CompileError> {
    let Binding { width, outputs } = binding;
    if !(1..=width).contains(&outputs) {
        return Err(CompileError::Binding { width, outputs });
    }
    let mut graph = graph.clone();
    let source = |_: &mut Graph| Ok(());
    let bind = |graph: &mut Graph| bind_width(graph, binding);
    let all = [(SOURCE, &source as &dyn Fn(&mut Graph) -> _), (BIND_WIDTH, &bind)]
        .into_iter()
        .chain(PASSES.iter().map(|(name, pass)| (*name, pass as &dyn Fn(&mut Graph) -> _)));
    for (name, pass) in all {
        run_lawfully(name, pass, &mut graph)?;
        if let Proceed::Stop = observe(name, &graph) {
            break;
        }
    }
    Ok(graph)
}

/// Runs one pass and verifies what it leaves.
pub(super) fn run_lawfully(
    name: &'static str,
    pass: &dyn Fn(&mut Graph) -> Result<(), GraphError>,
    graph: &mut Graph,
) -> Result<(), CompileError> {
    pass(graph)
        .and_then(|()| verify::verify(graph))
        .map_err(|error| CompileError::Unlawful { stage: name, error })
}
