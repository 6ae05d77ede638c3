//! The search of trees that are the same at every step: which templates are tried, and what each takes and gives.
use std::collections::BTreeSet;

use crate::tree::Template;
use crate::{
    plan::{DepthChoice, GrowthChoice, GrowthRule, Refusal, RowRule, Schedule, Shape, StaticTree},
    planner::{
        SearchError,
        compare::static_replay::StaticReplay,
        judge::selection::Found,
        price::pricing::{Choosing, Pricing},
        search::{
            origin::{Evidence, Origin, Search},
            tree_search::RecordedTrees,
        },
    },
};

impl Search<'_> {
    /// Replays every template that is admitted off the traces of a drafter, and prices it by eq. 3 under every open
    /// schedule. A template that the traces cannot answer for is refused.
    pub(in crate::planner) fn static_trees(
        &self,
        origin: &Origin<'_>,
        trees: &RecordedTrees<'_>,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let (rule, pricing) = (origin.limits.growth(), self.pricing(origin.name));
        let replay = StaticReplay::new(&trees.traces, trees.top_k);
        let verify_widths = pricing.tree_widths(Schedule::Plain);
        let draft_widths = pricing.draft_widths();
        for template in templates(rule, trees, &verify_widths) {
            let nodes = template.nodes();
            let verify_width = verify_widths.iter().find(|width| **width as usize >= nodes);
            let tree = StaticTree::new(template, &draft_widths);
            let (Some(tree), Some(verify_width)) = (tree, verify_width) else { continue };
            let shape = tree.shape(*verify_width);
            if origin.limits.admitted([shape]).is_empty() {
                continue;
            }
            let tally = match replay.tally(&tree.template) {
                Ok(tally) => tally,
                Err(missing) => {
                    let Shape { depth, draft_width, verify_width: _ } = shape;
                    let name = origin.name.clone();
                    found.refused.push(Refusal { name, growth: rule, depth, draft_width, missing });
                    continue;
                }
            };
            let pricing = Pricing { static_tree: Some(&tree), ..pricing };
            let filled_by_host = |schedule: &Schedule| !schedule.drafts_in_one_launch();
            for schedule in origin.schedules.iter().copied().filter(filled_by_host) {
                if !pricing.tree_widths(schedule).contains(verify_width) {
                    continue;
                }
                // Nothing is chosen by what time is worth: that of plain decoding will do.
                let by = Choosing { rule: RowRule::Widest, calibration: None, rate: 1.0 / self.ar_tpot_us };
                let step = |width| pricing.tree_step(&shape, schedule, by.rule, width);
                let rows = pricing.tree_choice(&shape, schedule, by, step)?;
                let at = |()| step(shape.verify_width);
                let priced = tally.priced(self.ar_tpot_us, at)?;
                let evidence = trees.evidence(schedule, DepthChoice::Fixed, rows, tally.accepted());
                let evidence = Evidence { growth: choice(rule, tree.clone()), ..evidence };
                found.points.push(origin.point(shape, evidence, priced));
            }
        }
        Ok(())
    }
}

fn choice(rule: GrowthRule, tree: StaticTree) -> GrowthChoice {
    match rule {
        GrowthRule::Equal => unreachable!("trees that grow equally are no templates"),
        GrowthRule::ByRank => GrowthChoice::ByRank(tree),
        GrowthRule::Kary => GrowthChoice::Kary(tree),
    }
}

/// Every template of the rule that has as many nodes as one of the widths verifies, or the most that its depth and
/// ranks allow; none twice. In a k-ary one the root has all its children, k being 2 or more.
fn templates(rule: GrowthRule, trees: &RecordedTrees<'_>, verify_widths: &[u32]) -> Vec<Template> {
    let mut seen = BTreeSet::new();
    let mut templates = Vec::new();
    for depth in 1..=trees.deepest as usize {
        for nodes in verify_widths.iter().map(|width| *width as usize).filter(|nodes| *nodes >= 2) {
            let of_rule: Vec<Template> = match rule {
                GrowthRule::Equal => Vec::new(),
                GrowthRule::ByRank => vec![Template::best(&trees.by_rank, nodes, depth)],
                GrowthRule::Kary => (2..nodes.min(trees.top_k as usize + 1))
                    .map(|k| Template::kary(k, depth, nodes))
                    .collect(),
            };
            let drafts = |template: &Template| template.nodes() >= 2;
            templates.extend(of_rule.into_iter().filter(drafts).filter(|t| seen.insert(t.clone())));
        }
    }
    templates
}
