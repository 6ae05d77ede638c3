//! Steps at longer contexts than were recorded, against searches there.
use ygg_profiler::{Cell, CellSamples};

use super::{
    search::plan,
    synthetic::{profile, samples},
    unseen::{Dice, request},
};
use crate::plan::{ContextRange, Plan, RowRule, SubPlan};

/// Latencies of verification by width and context, and of lookup by context.
fn cells(verify: &[(u32, &[(u32, f64)])], draft: &[u32]) -> Vec<CellSamples> {
    let at = |sample: CellSamples, context| CellSamples { cell: Cell { context, ..sample.cell }, ..sample };
    let verify = verify.iter().flat_map(|(context, widths)| {
        widths.iter().map(|(width, us)| at(samples("verify", *width, *us), *context))
    });
    let draft = draft.iter().map(|context| at(samples("draft:lookup", 1, 1.0), *context));
    verify.chain(draft).collect()
}

fn planned(cells: Vec<CellSamples>, fix: &str) -> Plan {
    let mut dice = Dice(5);
    plan(&profile(cells, vec![], (0..8).map(|_| request(&mut dice)).collect()), fix).unwrap()
}

fn lookup(plan: &Plan) -> &SubPlan {
    plan.bands[0].for_drafter("lookup").unwrap()
}

/// Rows cost next to nothing at first, then half a step, then as much as a step of their own.
const DEARER: [(u32, &[(u32, f64)]); 3] = [
    (0, &[(1, 100.0), (2, 101.0), (4, 103.0), (8, 107.0)]),
    (1000, &[(1, 200.0), (2, 260.0), (4, 400.0), (8, 700.0)]),
    (4000, &[(1, 400.0), (2, 800.0), (4, 1600.0), (8, 3200.0)]),
];

#[test]
fn rows_that_get_dearer_are_fewer_and_then_none() {
    let plan = planned(cells(&DEARER, &[0, 1000, 4000]), "rows=all,drafter=lookup");
    let ranges = &lookup(&plan).ranges;
    let widest: Vec<u32> = ranges.iter().map(|range| range.row_choice.widest()).collect();
    assert!(widest[0] > widest[1] && widest[1] >= widest[2], "{widest:?}");
    assert!(ranges.iter().all(|range| range.drafts), "asked for");
    let middle = |context, before| before + (context - before) / 2;
    let from: Vec<u32> = ranges.iter().map(|range| range.from).collect();
    assert_eq!(from, [0, middle(1000, plan.context()), middle(4000, 1000)]);

    let chosen = planned(cells(&DEARER, &[0, 1000, 4000]), "");
    let drafts: Vec<bool> = lookup(&chosen).ranges.iter().map(|range| range.drafts).collect();
    assert_eq!(drafts.last(), Some(&false), "a row costs a step");
}

/// The steps of a range are those of a plan that was made at its context.
#[test]
fn a_range_is_what_a_search_at_its_context_finds() {
    for rule in ["all", "best"] {
        let plan = planned(cells(&DEARER, &[0, 1000, 4000]), &format!("drafter=lookup,rows={rule}"));
        let base = lookup(&plan);
        for ContextRange { context, depth, row_choice, predicted, unseen, .. } in &base.ranges[1..] {
            let (_, widths) = DEARER.iter().find(|(measured, _)| measured == context).unwrap();
            let fix = format!("drafter=lookup,rows={rule},Wd={}", base.shape().draft_width);
            let there = planned(cells(&[(0, widths)], &[0]), &fix);
            let there = lookup(&there);
            assert_eq!(
                (*depth, row_choice),
                (there.shape().depth, &there.first().row_choice),
                "{rule} at {context}"
            );
            assert_eq!(
                (predicted, unseen),
                (&there.first().predicted, &there.first().unseen),
                "{rule} at {context}"
            );
        }
    }
}

#[test]
fn contexts_that_were_not_measured_have_no_steps_of_their_own() {
    let all = [0, 1000, 4000];
    let contexts = |cells| {
        let plan = planned(cells, "drafter=lookup");
        lookup(&plan).ranges[1..].iter().map(|range| range.context).collect::<Vec<u32>>()
    };
    assert_eq!(contexts(cells(&DEARER, &all)), [1000, 4000]);
    assert_eq!(contexts(cells(&DEARER, &all[..2])), [1000], "drafting was not measured after 4,000");
    assert_eq!(contexts(cells(&DEARER[..1], &all)), [0_u32; 0]);
    // Plain decoding was not measured there, and there is nothing to compare with.
    let wide = [DEARER[0], (1000, &DEARER[1].1[1..])];
    assert_eq!(contexts(cells(&wide, &all[..2])), [0_u32; 0]);
    // Widths that were measured further on alone are not missed.
    let narrow = [DEARER[0], (1000, &DEARER[1].1[..2])];
    let plan = planned(cells(&narrow, &all[..2]), "drafter=lookup,rows=best");
    let rows = &lookup(&plan).ranges[1].row_choice;
    assert_eq!(
        (rows.rule, rows.widths.iter().map(|cost| cost.width).collect()),
        (RowRule::BestRate, vec![1, 2])
    );
}

#[test]
fn ranges_that_contradict_their_sub_plan_are_refused() {
    let plan = planned(cells(&DEARER, &[0, 1000, 4000]), "drafter=lookup,rows=all");
    let place = plan.bands[0].chosen_index as usize;
    assert!(plan.validate().is_ok() && plan.bands[0].by_drafter[place].ranges.len() == 3);
    let spoilt = |spoil: fn(&mut Vec<ContextRange>)| {
        let mut plan = plan.clone();
        spoil(&mut plan.bands[0].by_drafter[place].ranges);
        plan.validate().unwrap_err().to_string()
    };
    for unordered in [
        (|ranges| ranges.swap(1, 2)) as fn(&mut Vec<ContextRange>),
        |ranges| ranges[1].from = 0,
        |ranges| ranges[0].from = 1,
        |ranges| ranges.clear(),
    ] {
        assert!(spoilt(unordered).contains("context ranges: expected ones that begin at 0"));
    }
    assert!(spoilt(|ranges| ranges[0].drafts = false).contains("first context range"));
    assert!(spoilt(|ranges| ranges[0].context += 1).contains("context: expected one at which all"));
    assert!(spoilt(|ranges| ranges[2].depth = 0).contains("shape"));
    assert!(spoilt(|ranges| ranges[2].row_choice.rule = RowRule::BestRate).contains("by the rules"));
    assert!(spoilt(|ranges| ranges[2].predicted.aal = 0.5).contains("tokens per step"));
    let mut plain = plan.clone();
    let further = plan.bands[0].by_drafter[place].ranges[1..].to_vec();
    plain.bands[0].by_drafter[0].ranges.extend(further.into_iter().map(|range| {
        // As in its first range, nothing is drafted.
        let ContextRange { depth, depth_choice, row_choice, .. } =
            plan.bands[0].by_drafter[0].first().clone();
        ContextRange { depth, depth_choice, row_choice, ..range }
    }));
    assert!(plain.validate().unwrap_err().to_string().contains("plain decoding"));
}
