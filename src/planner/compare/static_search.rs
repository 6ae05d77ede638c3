//! The search of trees that are the same at every step: which templates are tried, and what each takes and gives.
use std::collections::BTreeSet;

use ygg_profiler::{TableError, Trace};

use crate::tree::Template;
use crate::{
    plan::{GrowthChoice, GrowthRule, RowChoice, RowRule, Schedule, Shape, StageTime, StaticTree},
    planner::{
        AcceptedLengths, Fix,
        compare::static_replay::StaticReplay,
        pricing::{Choosing, Pricing},
    },
};

/// The templates of one drafter, to be replayed off its traces and priced by eq. 3.
pub(in crate::planner) struct StaticSearch<'a> {
    pub(in crate::planner) traces: &'a [&'a Trace],
    pub(in crate::planner) pricing: Pricing<'a>,
    pub(in crate::planner) rule: GrowthRule,
    /// The schedules that are open.
    pub(in crate::planner) schedules: &'a [Schedule],
    /// Share of candidates of each rank that are accepted.
    pub(in crate::planner) by_rank: &'a [f64],
    /// Deepest template.
    pub(in crate::planner) depth: u32,
    /// Candidates recorded of every node.
    pub(in crate::planner) top_k: u32,
    /// What the time of a step is worth: that of plain decoding, since nothing is chosen by it.
    pub(in crate::planner) rate: f64,
}

/// A template that was priced.
#[derive(Debug, Clone)]
pub(in crate::planner) struct PricedTemplate {
    pub(in crate::planner) shape: Shape,
    pub(in crate::planner) growth: GrowthChoice,
    pub(in crate::planner) schedule: Schedule,
    pub(in crate::planner) rows: RowChoice,
    pub(in crate::planner) accepted: AcceptedLengths,
    pub(in crate::planner) stages: Vec<StageTime>,
}

/// A template that the traces cannot answer for.
#[derive(Debug, Clone, Copy)]
pub(in crate::planner) struct RefusedTemplate {
    pub(in crate::planner) shape: Shape,
    pub(in crate::planner) missing: f64,
}

impl StaticSearch<'_> {
    /// Prices every template that `fix` admits, under every open schedule; the others are refused.
    pub(in crate::planner) fn priced(
        &self,
        fix: &Fix,
    ) -> Result<(Vec<PricedTemplate>, Vec<RefusedTemplate>), TableError> {
        let replay = StaticReplay::new(self.traces, self.top_k);
        let (mut priced, mut refused) = (Vec::new(), Vec::new());
        let verify_widths = self.pricing.tree_widths(Schedule::Plain);
        let draft_widths = self.pricing.draft_widths();
        for template in self.templates(&verify_widths) {
            let nodes = template.nodes();
            let verify_width = verify_widths.iter().find(|width| **width as usize >= nodes);
            let tree = StaticTree::new(template, &draft_widths);
            let (Some(tree), Some(verify_width)) = (tree, verify_width) else { continue };
            let shape = tree.shape(*verify_width);
            if fix.admitted([shape]).is_empty() {
                continue;
            }
            let accepted = match replay.accepted(&tree.template) {
                Ok(accepted) => accepted,
                Err(missing) => {
                    refused.push(RefusedTemplate { shape, missing });
                    continue;
                }
            };
            let filled_by_host = |schedule: &Schedule| !schedule.drafts_in_one_launch();
            for schedule in self.schedules.iter().copied().filter(filled_by_host) {
                if !self.pricing.tree_widths(schedule).contains(verify_width) {
                    continue;
                }
                let growth = self.choice(tree.clone());
                let by = Choosing { rule: RowRule::Widest, calibration: None, rate: self.rate };
                let rows = self.pricing.static_choice(&shape, &tree, schedule, by)?;
                let stages = self.pricing.static_step(&shape, &tree, schedule)?;
                priced.push(PricedTemplate {
                    shape,
                    growth,
                    schedule,
                    rows,
                    accepted: accepted.clone(),
                    stages,
                });
            }
        }
        Ok((priced, refused))
    }

    fn choice(&self, tree: StaticTree) -> GrowthChoice {
        match self.rule {
            GrowthRule::Equal => unreachable!("trees that grow equally are no templates"),
            GrowthRule::ByRank => GrowthChoice::ByRank(tree),
            GrowthRule::Kary => GrowthChoice::Kary(tree),
        }
    }

    /// Every template of the rule that has as many nodes as one of the widths verifies, or the most that its depth and ranks
    /// allow; none twice. In a k-ary one the root has all its children, k being 2 or more.
    fn templates(&self, verify_widths: &[u32]) -> Vec<Template> {
        let mut seen = BTreeSet::new();
        let mut templates = Vec::new();
        for depth in 1..=self.depth as usize {
            for nodes in verify_widths.iter().map(|width| *width as usize).filter(|nodes| *nodes >= 2) {
                let of_rule: Vec<Template> = match self.rule {
                    GrowthRule::Equal => Vec::new(),
                    GrowthRule::ByRank => vec![Template::best(self.by_rank, nodes, depth)],
                    GrowthRule::Kary => (2..nodes.min(self.top_k as usize + 1))
                        .map(|k| Template::kary(k, depth, nodes))
                        .collect(),
                };
                let drafts = |template: &Template| template.nodes() >= 2;
                templates.extend(of_rule.into_iter().filter(drafts).filter(|t| seen.insert(t.clone())));
            }
        }
        templates
    }
}
