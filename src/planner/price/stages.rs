//! The stages of one step as a graph: what each takes and occupies, and what it waits for in its own step and in the
//! one before.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), stages and schedule. Two waits can be broken by
//! computing a superset before it is known which part of it is needed: the head of the next step
//! ([`Schedule::HeadAhead`]), and the tail, which only a drafter with keys and values of its own has ([`Tail`]).
use petgraph::{
    Direction,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};
use ygg_profiler::{DrafterName, LatencyTable, Stage, StepStage, TableError};

use super::objective::stage_us;
use crate::plan::{Schedule, Shape, StaticTree};

#[cfg(test)]
mod tests;

/// What a stage occupies while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// What runs forwards.
    Compute,
    /// The thread that grows, prunes and walks trees.
    Host,
    /// What moves rows of the cache.
    Copy,
}

/// How the last growth's nodes, which no growth forwards, get the drafter's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// No tail: the drafter shares the verifier's cache, where verification writes all rows. The other variants are for
    /// drafters with a cache of their own.
    Shared,
    /// In the head's forward of the next step, which has one more row for each token missing from the cache: priced as
    /// two rows. A drafter that reads the verifier's hidden rows lacks all accepted tokens, other drafters only the
    /// last growth's node.
    Joined,
    /// The accepted one of them, once it is known.
    Plain,
    /// Those of them that are verified, in parallel with the verification: measured as one stage.
    Ahead,
    /// A block drafter's: what it reads of the text and all of its growths are measured with its one forward.
    Block,
}

/// One run of a stage in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StageRun {
    /// What it was measured as.
    pub stage: Stage,
    /// What it occupies.
    pub resource: Resource,
    /// Its time; `None` for host work that was not measured, which counts as none.
    pub us: Option<f64>,
}

/// Which run of a stage another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// That of its own step.
    SameStep,
    /// That of the step before.
    StepBefore,
}

/// The stages of one step, in the order in which they are issued: it waits only for earlier ones of its own step.
#[derive(Debug, Clone, Default)]
pub struct StageGraph {
    graph: DiGraph<StageRun, Wait>,
}

/// A step that grows a tree with a model drafter, priced with one table at one context.
#[derive(Debug, Clone, Copy)]
pub struct TreeStep<'a> {
    /// What was measured.
    pub table: &'a LatencyTable,
    /// The drafter, by its name in the table.
    pub drafter: &'a DrafterName,
    /// Dd, Wd, Wv.
    pub shape: Shape,
    /// The tree, if it is the same at every step.
    pub static_tree: Option<&'a StaticTree>,
    /// Committed tokens.
    pub context: u32,
    /// When the head is drafted.
    pub schedule: Schedule,
    /// When the tail is drafted.
    pub tail: Tail,
    /// Nodes that deciding is priced at; `None` where a step decides nothing.
    pub decided_nodes: Option<u32>,
}

/// The widths of one growth.
#[derive(Debug, Clone, Copy)]
struct Growth {
    /// Rows of the forward before it, the first being the head's.
    forwarded: u32,
    /// Nodes that it adds.
    grown: u32,
}

impl<'a> TreeStep<'a> {
    /// A plain step after no tokens that decides nothing, of a drafter without a cache of its own.
    pub(in crate::planner) fn plain(table: &'a LatencyTable, drafter: &'a DrafterName, shape: Shape) -> Self {
        let (schedule, tail) = (Schedule::Plain, Tail::Shared);
        TreeStep { table, drafter, shape, static_tree: None, context: 0, schedule, tail, decided_nodes: None }
    }
}

impl TreeStep<'_> {
    /// Its stages: `T_draft(1) + (Dd - 1) T_draft(Wd) + T_verify(Wv)` with the host stages that the table has; with
    /// heads drafted ahead `T_draft(Wv)` in the place of `T_draft(1)`, in launches of the device what these were
    /// measured as. A tree that is the same at every step has a draft width for each growth in the place of Wd.
    ///
    /// # Errors
    /// [`TableError::Unmeasured`] if a stage lacks a width.
    ///
    /// # Panics
    /// If the shape has no growth.
    pub fn stages(&self) -> Result<StageGraph, TableError> {
        let Shape { depth, draft_width, verify_width } = self.shape;
        assert!(depth >= 1, "a tree has at least one growth");
        let growths = self.growths();
        let mut graph = StageGraph::default();
        // In one launch growths are part of the forwards before them.
        let is_one_launch = self.schedule.drafts_in_one_launch();
        let is_block = self.tail == Tail::Block;
        let heads = if is_block {
            Some(graph.add(self.block()?, &[]))
        } else if self.schedule.drafts_ahead() {
            None
        } else if is_one_launch {
            Some(graph.add(self.run(Stage::FirstGrowth(self.drafter.clone()), draft_width)?, &[]))
        } else {
            Some(graph.add(self.head()?, &[]))
        };
        let first_growth = match heads {
            Some(head) if is_one_launch || is_block => head,
            Some(_) | None => graph.add(self.grow(growths[0])?, heads.as_slice()),
        };
        let mut last = first_growth;
        let mut second_forward = None;
        for growth in &growths[1..] {
            if is_one_launch {
                last = graph.add(self.run(Stage::NextGrowth(self.drafter.clone()), draft_width)?, &[last]);
                continue;
            }
            let draft = graph.add(self.forward(growth.forwarded)?, &[last]);
            second_forward.get_or_insert(draft);
            last = graph.add(self.grow(*growth)?, &[draft]);
        }
        let prunes_on_device = self.schedule.prunes_on_device();
        if let Some(nodes) = self.decided_nodes {
            last = graph.add(self.run(Stage::Host(StepStage::Decide), nodes)?, &[last]);
        }
        let by_host = [StepStage::Prune, StepStage::Mask];
        for stage in by_host.into_iter().filter(|_| !prunes_on_device) {
            last = graph.add(self.run(Stage::Host(stage), verify_width)?, &[last]);
        }
        let verification = self.tail.verification(self.schedule, self.drafter);
        let verify = graph.add(self.run(verification, verify_width)?, &[last]);
        let is_walked = self.schedule.walks_on_device();
        let ahead = if self.schedule.drafts_ahead() {
            Some(graph.add(self.forward(verify_width)?, &[verify]))
        } else {
            None
        };
        let ahead = ahead.as_slice();
        // A device that walks commits, too.
        let (accept, commit) = if is_walked {
            (verify, verify)
        } else {
            let accept = graph.add(self.run(Stage::Host(StepStage::Accept), verify_width)?, &[verify]);
            // What is drafted ahead reads the rows that committing moves.
            let moved = [&[accept], ahead].concat();
            let commit = graph.add(self.run(Stage::Host(StepStage::Commit), verify_width)?, &moved);
            (accept, commit)
        };
        let mut ends = vec![commit];
        match self.tail {
            Tail::Shared | Tail::Joined | Tail::Ahead | Tail::Block => {}
            Tail::Plain => ends.push(graph.add(self.forward(1)?, &ends)),
        }
        // The first growth needs the root and its head; the first forward needs the cache as it then is, which a walk
        // of the device leaves with the root.
        let begins = heads.unwrap_or(first_growth);
        let known = if is_walked { &[][..] } else { &[accept][..] };
        graph.wait_for_step_before(begins, &[known, ahead].concat());
        graph.wait_for_step_before(heads.or(second_forward).unwrap_or(verify), &ends);
        Ok(graph)
    }

    /// The head's forward. A joined tail adds a row, if a measured width holds both and the drafter has weights of its
    /// own.
    fn head(&self) -> Result<StageRun, TableError> {
        match self.tail {
            Tail::Joined => {
                let stage = Stage::DraftHead(self.drafter.clone());
                let rows = self.table.widths(&stage).into_iter().find(|width| *width >= 2).unwrap_or(1);
                self.run(stage, rows)
            }
            Tail::Shared | Tail::Plain | Tail::Ahead | Tail::Block => self.forward(1),
        }
    }

    /// A block drafter's proposal, as measured at as many nodes or, where that is the most, fewer.
    fn block(&self) -> Result<StageRun, TableError> {
        let stage = Stage::Draft(self.drafter.clone());
        let (nodes, measured) = (self.shape.nodes() - 1, self.table.widths(&stage));
        let holds_all = measured.iter().find(|width| u64::from(**width) >= nodes);
        self.run(stage, holds_all.or(measured.last()).copied().unwrap_or(1))
    }

    fn growths(&self) -> Vec<Growth> {
        let Shape { depth, draft_width, verify_width: _ } = self.shape;
        match self.static_tree {
            None if self.tail == Tail::Block => {
                let nodes = depth * draft_width;
                vec![Growth { forwarded: nodes, grown: nodes }]
            }
            None => vec![Growth { forwarded: draft_width, grown: draft_width }; depth as usize],
            Some(StaticTree { template, draft_widths }) => {
                let count = |n: usize| u32::try_from(n).expect("templates are small");
                let grown = template.levels().into_iter().map(|level| count(level.nodes.len()));
                draft_widths
                    .iter()
                    .zip(grown)
                    .map(|(forwarded, grown)| Growth { forwarded: *forwarded, grown })
                    .collect()
            }
        }
    }

    /// One growth, as measured at as many nodes. Levels of a template are of any size: as many growths of the widest
    /// measured as they hold, and one of the smallest that holds the rest.
    fn grow(&self, growth: Growth) -> Result<StageRun, TableError> {
        let stage = Stage::Host(StepStage::Grow);
        let measured = self.table.widths(&stage);
        let (Some(_), Some(widest)) = (self.static_tree, measured.last()) else {
            return self.run(stage, growth.grown);
        };
        let (whole, rest) = (growth.grown / widest, growth.grown % widest);
        let us_of = |width| Ok::<f64, TableError>(self.run(stage.clone(), width)?.us.unwrap_or(0.0));
        let holds_rest = measured.iter().find(|width| rest > 0 && **width >= rest);
        let rest_us = holds_rest.map_or(Ok(0.0), |width| us_of(*width))?;
        let mut run = self.run(stage.clone(), *widest)?;
        run.us = run.us.map(|us| f64::from(whole) * us + rest_us);
        Ok(run)
    }

    fn forward(&self, width: u32) -> Result<StageRun, TableError> {
        self.run(Stage::Draft(self.drafter.clone()), width)
    }

    fn run(&self, stage: Stage, width: u32) -> Result<StageRun, TableError> {
        let us = stage_us(self.table, &stage, width, self.context)?;
        let resource = match stage {
            Stage::Host(StepStage::Commit) => Resource::Copy,
            Stage::Host(_) => Resource::Host,
            _ => Resource::Compute,
        };
        Ok(StageRun { stage, resource, us })
    }
}

impl Tail {
    /// What a drafter's verifications under a schedule are measured as.
    pub(in crate::planner) fn verification(self, schedule: Schedule, drafter: &DrafterName) -> Stage {
        match self {
            Tail::Shared | Tail::Joined | Tail::Plain | Tail::Block => schedule.verification(drafter),
            Tail::Ahead => Stage::VerifyTail(drafter.clone()),
        }
    }
}

impl StageGraph {
    /// Adds a stage after all others; it waits for `waits_for` of its own step.
    pub(in crate::planner) fn add(&mut self, run: StageRun, waits_for: &[NodeIndex]) -> NodeIndex {
        let added = self.graph.add_node(run);
        for earlier in waits_for {
            self.graph.add_edge(*earlier, added, Wait::SameStep);
        }
        added
    }

    /// Makes a stage wait for stages of the step before.
    pub(in crate::planner) fn wait_for_step_before(&mut self, stage: NodeIndex, waits_for: &[NodeIndex]) {
        for earlier in waits_for {
            self.graph.add_edge(*earlier, stage, Wait::StepBefore);
        }
    }

    /// The stages in the order in which they are issued.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = &StageRun> {
        self.graph.raw_nodes().iter().map(|node| &node.weight)
    }

    /// Places of the stages in the order in which they are issued.
    pub(in crate::planner) fn order(&self) -> Vec<usize> {
        (0..self.graph.node_count()).collect()
    }

    /// The stage at a place of the order.
    pub(in crate::planner) fn run(&self, place: usize) -> &StageRun {
        &self.graph[NodeIndex::new(place)]
    }

    /// What the stage at a place waits for: the places of stages, and of which step.
    pub fn waits(&self, place: usize) -> impl Iterator<Item = (usize, Wait)> {
        let edges = self.graph.edges_directed(NodeIndex::new(place), Direction::Incoming);
        edges.map(|edge| (edge.source().index(), *edge.weight()))
    }
}
