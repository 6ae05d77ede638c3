//! The words and cells by which all reports describe shapes, schedules, tunings and what was refused.
use ygg_profiler::DrafterName;

use crate::plan::{ChosenTuning, DepthRule, GrowthRule, Refusal, RowRule, Schedule, Shape, SubPlan, Unseen};

/// A drafter as the cell of a table, with how its trees grow unless equally, and its schedule unless that is plain.
pub fn drafter_cell(name: &DrafterName, growth: GrowthRule, schedule: Schedule) -> String {
    let growth = if growth.is_static() { format!(", {growth}") } else { String::new() };
    match schedule {
        Schedule::Plain => format!("{name}{growth}"),
        Schedule::HeadAhead
        | Schedule::OneLaunch
        | Schedule::DeviceWalk
        | Schedule::TwoLaunches
        | Schedule::WholeStep => {
            format!("{name}{growth}, {schedule}")
        }
    }
}

/// Dd, Wd and Wv as the cells of a table.
pub(super) fn shape_cells(shape: &Shape, depth_rule: DepthRule, rule: RowRule) -> [String; 3] {
    let Shape { depth, draft_width, verify_width } = *shape;
    [describe_depth(depth_rule, depth), draft_width.to_string(), describe_rows(rule, verify_width)]
}

/// An expected speed-up with its interval.
pub(super) fn expected_cell(unseen: &Unseen) -> String {
    let Unseen { speedup, low, high, .. } = unseen;
    format!("{speedup:.2} ({low:.2} to {high:.2})")
}

/// Titles of [`tuning_cells`].
pub const TUNING_TITLES: [&str; 8] =
    ["kernel", "outputs", "inputs", "rows", "default us", "us", "gain", "tuning"];

/// A tuned linear as the cells of a table.
pub fn tuning_cells(tuned: &ChosenTuning) -> [String; 8] {
    let ChosenTuning { shape, tuning, default_us, tuned_us, gain } = tuned;
    [
        shape.kernel.clone(),
        shape.outputs.to_string(),
        shape.columns.to_string(),
        shape.rows.to_string(),
        format!("{default_us:.2}"),
        format!("{tuned_us:.2}"),
        format!("{gain:.3}"),
        tuning.clone(),
    ]
}

/// Dd, with a sign before it where a step may draft less deep.
fn describe_depth(rule: DepthRule, depth: u32) -> String {
    match rule {
        DepthRule::Fixed => depth.to_string(),
        DepthRule::Predicted => format!("<={depth}"),
    }
}

/// Wv, with a sign before it where a step may verify fewer rows.
pub(super) fn describe_rows(rule: RowRule, verify_width: u32) -> String {
    match rule {
        RowRule::Widest => verify_width.to_string(),
        RowRule::BestRate => format!("<={verify_width}"),
    }
}

/// How trees grow, behind a shape; nothing where they grow equally.
pub(super) fn describe_growth(growth: GrowthRule) -> &'static str {
    match growth {
        GrowthRule::Equal => "",
        GrowthRule::ByRank => ", one tree of best ranks (sequoia)",
        GrowthRule::Kary => ", one k-ary tree (kary)",
    }
}

/// Drafter and shape of a sub-plan that is not plain decoding.
pub(super) fn describe_shape(sub_plan: &SubPlan) -> String {
    let SubPlan { name, shape, growth, depth_choice, row_choice, .. } = sub_plan;
    let Shape { depth, draft_width, verify_width } = *shape;
    let depth = describe_depth(depth_choice.rule(), depth);
    let rows = describe_rows(row_choice.rule, verify_width);
    let growth = describe_growth(growth.rule());
    format!("{name}, Dd {depth}, Wd {draft_width}, Wv {rows}{growth}")
}

/// A tree that the traces do not reach.
pub(super) fn describe_refusal(refusal: &Refusal) -> String {
    let Refusal { name, growth, depth, draft_width, missing } = refusal;
    let growth = describe_growth(*growth);
    format!(
        "{name}, Dd {depth}, Wd {draft_width}{growth}: {:.1} % of its nodes were never expanded",
        missing * 100.0
    )
}

/// What a schedule adds to the description of a shape: nothing, or words behind a comma.
pub(super) fn words(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Plain => "",
        Schedule::HeadAhead => ", heads drafted ahead",
        Schedule::OneLaunch => ", drafted in one launch",
        Schedule::DeviceWalk => ", verified and walked in one launch",
        Schedule::TwoLaunches => ", drafted in one launch, verified and walked in another",
        Schedule::WholeStep => ", drafted, pruned, verified and walked without the host",
    }
}
