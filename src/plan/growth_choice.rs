//! How the trees of a model drafter's steps grow: where the drafter's probabilities say, or as a template that is the
//! same at every step.
use serde::{Deserialize, Serialize};
use ygg_profiler::named;

use super::{PlanError, Shape, check::ensure};
use crate::tree::Template;

named! {
    /// The rule by which trees grow.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum GrowthRule {
        /// Wd nodes a growth, wherever the drafter finds them most probable (Yggdrasil, NeurIPS 2025,
        /// <https://arxiv.org/abs/2512.23858>, Equal-Growth Tree). Also for drafters that grow no trees.
        Equal = "egt",
        /// The template of most expected tokens by the share of accepted candidates of each rank (Sequoia,
        /// <https://arxiv.org/abs/2402.12374>).
        ByRank = "sequoia",
        /// The template in which every node has as many children, level by level.
        Kary = "kary",
    }
}

impl GrowthRule {
    /// Whether trees are the same at every step.
    pub const fn is_static(self) -> bool {
        match self {
            GrowthRule::Equal => false,
            GrowthRule::ByRank | GrowthRule::Kary => true,
        }
    }

    /// The rule of a name.
    ///
    /// # Errors
    /// The names there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = GrowthRule::ALL.into_iter().find(|rule| rule.name() == name);
        found.ok_or_else(|| GrowthRule::ALL.map(GrowthRule::name).join(" or "))
    }
}

/// How a sub-plan's trees grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthChoice {
    /// As [`GrowthRule::Equal`] says.
    Equal,
    /// As [`GrowthRule::ByRank`] says.
    ByRank(StaticTree),
    /// As [`GrowthRule::Kary`] says.
    Kary(StaticTree),
}

/// A template with the widths that it is drafted at. A node without children is not forwarded, so growths differ in
/// width.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticTree {
    /// The shape of every tree.
    pub template: Template,
    /// The planned width of the forward before each growth, the root's first.
    pub draft_widths: Vec<u32>,
}

impl GrowthChoice {
    /// Its rule.
    pub fn rule(&self) -> GrowthRule {
        match self {
            GrowthChoice::Equal => GrowthRule::Equal,
            GrowthChoice::ByRank(_) => GrowthRule::ByRank,
            GrowthChoice::Kary(_) => GrowthRule::Kary,
        }
    }

    /// The tree, if it is the same at every step.
    pub fn static_tree(&self) -> Option<&StaticTree> {
        match self {
            GrowthChoice::Equal => None,
            GrowthChoice::ByRank(tree) | GrowthChoice::Kary(tree) => Some(tree),
        }
    }

    /// The widths of all draft forwards of a step with this shape.
    pub fn draft_widths(&self, shape: &Shape) -> Vec<u32> {
        match self {
            GrowthChoice::Equal => vec![1, shape.draft_width],
            GrowthChoice::ByRank(tree) | GrowthChoice::Kary(tree) => tree.draft_widths.clone(),
        }
    }
}

impl StaticTree {
    /// The tree of a template, drafted at the smallest of `widths`, ascending, that hold its levels; `None` if none
    /// does.
    pub fn new(template: Template, widths: &[u32]) -> Option<Self> {
        let fit = |rows: usize| widths.iter().copied().find(|width| *width as usize >= rows);
        let draft_widths = template.levels().iter().map(|level| fit(level.parents)).collect::<Option<_>>()?;
        Some(StaticTree { template, draft_widths })
    }

    /// Its shape when it is verified at `verify_width` rows: Dd levels of Wd nodes at most.
    pub fn shape(&self, verify_width: u32) -> Shape {
        let levels = self.template.levels();
        let count = |n: usize| u32::try_from(n).expect("templates are small");
        let widest = levels.iter().map(|level| level.nodes.len()).max().unwrap_or(0);
        Shape { depth: count(levels.len()), draft_width: count(widest), verify_width }
    }

    /// Checks that the tree is valid, is what `shape` says and is all verified, and needs no more than `top_k`
    /// candidates of a node.
    pub(super) fn validate(&self, shape: &Shape, top_k: u32) -> Result<(), PlanError> {
        let StaticTree { template, draft_widths } = self;
        template.check().map_err(|error| PlanError::Invalid {
            what: "template",
            expected: error.expected.to_owned(),
            found: format!("{} at node {}", error.found, error.node),
        })?;
        ensure(self.shape(shape.verify_width) == *shape, "template", "one of the sub-plan's shape", || {
            format!("{:?} for {shape:?}", self.shape(shape.verify_width))
        })?;
        let nodes = template.nodes();
        ensure(nodes <= shape.verify_width as usize, "template", "Wv nodes or fewer", || nodes.to_string())?;
        let candidates = template.candidates();
        ensure(candidates <= top_k as usize, "template", "ranks below the candidates per node", || {
            format!("{candidates} candidates of {top_k}")
        })?;
        let levels = template.levels();
        let fits = draft_widths.len() == levels.len()
            && draft_widths.iter().zip(&levels).all(|(width, level)| *width as usize >= level.parents);
        ensure(fits, "draft widths of a template", "one for each level that holds its parents", || {
            format!("{draft_widths:?}")
        })
    }
}
