//! Block drafters: one forward for trees of any depth, which grow by a node at a time.
use ygg_profiler::{DrafterFile, Profile, Trace};

use super::{
    search::{VERIFY_WIDTHS, cells, plan, requests},
    synthetic::{Oracle, name, profile, record, samples},
};
use crate::plan::{BlockSettings, GrowthChoice, Plan, Schedule, decode, encode};
use crate::planner::SearchError;

const VERIFY_US: [f64; 5] = [90.0, 92.0, 95.0, 97.0, 99.0];
/// Nodes of recorded trees.
const NODES: u32 = 12;
/// Places of a block.
const PLACES: usize = 4;

/// Trees that grew by a node at a time. Nothing is offered below nodes that are as deep as a block.
fn recorded() -> Trace {
    let mut trace = record(&Oracle { seed: 5, skill: 95 }, 30, 1, NODES, 5);
    let mut ended = 0;
    for step in trace.prompts.iter_mut().flat_map(|prompt| &mut prompt.steps) {
        let parents = &step.parents;
        let depth = |node: u32| {
            let above = |node: &u32| (*node > 0).then(|| parents[*node as usize]);
            std::iter::successors(Some(node), above).count() - 1
        };
        // The synthetic drafter knows of no block: what it drafted deeper stays.
        let has_child = |node: u32| parents[1..].contains(&node);
        for expansion in &mut step.expanded {
            if depth(expansion.node) >= PLACES && !has_child(expansion.node) {
                expansion.candidates.clear();
                ended += 1;
            }
        }
    }
    assert!(ended > 10, "{ended} nodes: a recording that lacked as many would be refused");
    trace
}

fn profiled() -> Profile {
    let mut cells = cells(&VERIFY_US, &[20.0; 3]);
    cells.retain(|cell| cell.cell.stage.drafter() != Some(&name("layer_skip")));
    cells.extend(VERIFY_WIDTHS.map(|width| samples("draft:layer_skip", width, 25.0 + f64::from(width))));
    let mut profile = profile(cells, vec![recorded()], requests());
    let model = DrafterFile { path: "/drafter".to_owned(), digest: "d".repeat(64) };
    let described = profile.drafters.iter_mut().find(|d| d.name.as_str() == "layer_skip").unwrap();
    *described = crate::plan::DrafterKind::from(BlockSettings { model }).describe(name("layer_skip"));
    profile
}

fn planned(fix: &str) -> Result<Plan, SearchError> {
    plan(&profiled(), &format!("drafter=layer_skip,predictor=off{fix}"))
}

#[test]
fn a_plan_grows_as_many_nodes_as_pay_and_none_needs_another_forward() {
    let plan = planned(",rows=all").unwrap();
    assert_eq!(decode(&encode(&plan).unwrap()).unwrap(), plan, "a plan with it survives its file");
    let sub_plan = plan.bands[0].for_drafter("layer_skip").unwrap();
    let shape = sub_plan.shape();
    assert_eq!((shape.draft_width, sub_plan.schedule), (1, Schedule::Plain));
    assert!(matches!(sub_plan.growth, GrowthChoice::Equal));
    assert_eq!(shape.depth + 1, shape.verify_width, "all nodes are verified");
    assert!(shape.depth > PLACES as u32, "{shape:?}: rows cost little, so that trees are wide");
    // As measured at as many nodes or the next more, and the verification.
    let measured = VERIFY_WIDTHS.into_iter().find(|width| *width >= shape.depth);
    let drafted = 25.0 + f64::from(measured.unwrap_or(VERIFY_WIDTHS[4]));
    let verified = VERIFY_US[VERIFY_WIDTHS.iter().position(|width| *width == shape.verify_width).unwrap()];
    let step_us = sub_plan.first().predicted.step_us;
    assert!((step_us - drafted - verified).abs() < 1.0, "{step_us} of {drafted} and {verified}");
}

#[test]
fn what_forwards_between_growths_would_allow_is_refused() {
    for fix in [",growth=sequoia", ",schedule=head_ahead", ",schedule=one_launch"] {
        let error = planned(fix).unwrap_err();
        assert!(matches!(error, SearchError::FixImpossible { .. }), "{fix}: {error}");
    }
}
