//! The words and cells by which all reports describe shapes, schedules, tunings and what was refused.
use ygg_profiler::DrafterName;

use crate::plan::{
    ChosenTuning, DepthRule, GrowthRule, PlannedMemory, Refusal, RowRule, Schedule, Shape, SubPlan, Unseen,
};

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

/// How trees grow, after a shape; nothing where they grow equally.
pub(super) fn describe_growth(growth: GrowthRule) -> &'static str {
    match growth {
        GrowthRule::Equal => "",
        GrowthRule::ByRank => ", one tree of best ranks (sequoia)",
        GrowthRule::Kary => ", one k-ary tree (kary)",
    }
}

/// Drafter and shape of a sub-plan that is not plain decoding.
pub(super) fn describe_shape(sub_plan: &SubPlan) -> String {
    let SubPlan { name, growth, draft_temperature, .. } = sub_plan;
    let Shape { depth, draft_width, verify_width } = sub_plan.shape();
    let depth = describe_depth(sub_plan.depth_rule(), depth);
    let rows = describe_rows(sub_plan.row_rule(), verify_width);
    let growth = describe_growth(growth.rule());
    let sharpened = match draft_temperature {
        1.0 => String::new(),
        sharper => format!(", values at temperature {sharper}"),
    };
    format!("{name}, Dd {depth}, Wd {draft_width}, Wv {rows}{growth}{sharpened}")
}

/// When a mixture runs its model, if it has one.
pub(super) fn describe_model(sub_plan: &SubPlan) -> Option<String> {
    let model = sub_plan.drafter.mixed_model()?;
    let (growths, certain) = (model.growths, model.certain_percent);
    Some(format!("model {growths} growths deep unless a copy is {certain} % certain"))
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

/// A part of memory.
pub(super) struct MemoryPart {
    /// What stands for it in a bar.
    pub(super) letter: char,
    pub(super) bytes: u64,
    pub(super) words: String,
}

/// The parts of memory, what is free last.
pub(super) fn memory_parts(memory: &PlannedMemory) -> [MemoryPart; 5] {
    let PlannedMemory { resident_bytes, staging_bytes, substitute_bytes, session_bytes, context, .. } =
        *memory;
    let free = memory.budget_bytes.map_or(0, |budget| budget.saturating_sub(memory.used_bytes()));
    let part = |letter, bytes, words: &str| MemoryPart { letter, bytes, words: words.to_owned() };
    [
        part('W', resident_bytes, "weights"),
        part('S', substitute_bytes, "substitute"),
        part('B', staging_bytes, "buffer for weights that are read"),
        part('C', session_bytes, &format!("cache and session with a context of {context} tokens")),
        part('.', free, "free"),
    ]
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    let of = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.1} KiB", of(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", of(1 << 20)),
        _ => format!("{:.2} GiB", of(1 << 30)),
    }
}

/// What a schedule adds to the description of a shape: nothing, or words after a comma.
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

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_at_once() {
        let sizes = [0, 1023, 1024, 5 << 20, 3 << 29].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "1.50 GiB"]);
    }
}
