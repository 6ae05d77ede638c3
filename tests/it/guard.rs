//! The guard, judged by recorded requests: it takes little from those that pay and saves those that do not.
//!
//! The requests were recorded on a machine, and the plan is made from its profile; costs are the plan's, or dearer, so
//! no clock decides.

use ygg_profiler::TokenTrace;
use yggc::{
    measure::profile_file,
    plan::{self, DrafterKind, LookupSettings, ReplayDrafter, SubPlan},
    planner::{Fix, plan_from_profile},
    policy::{GuardState, GuardTerms, GuardedStep, RowScratch},
    speculate::{Lookup, StepShape},
    tree::{TokenTree, select},
};

use crate::{committed_plans::machine_profile, tiny_profiles::NOW};

/// What requests took, in microseconds.
#[derive(Debug, Default)]
struct Taken {
    plain: f64,
    all: f64,
    /// Plain steps that speculating took from the request that lost most.
    worst: f64,
}

/// Decodes the requests with a lookup sub-plan, where every drafted row costs `dearer` plain steps more than planned.
fn decode(requests: &[TokenTrace], sub_plan: &SubPlan, dearer: f64, guarded: bool) -> Taken {
    let DrafterKind::Lookup(LookupSettings { longest_match, shortest_match }) = sub_plan.drafter else {
        panic!("{:?} is not lookup", sub_plan.drafter)
    };
    let plan::Shape { depth, draft_width, verify_width } = sub_plan.shape();
    let [depth, draft_width, verify_width] = [depth, draft_width, verify_width].map(|n| n as usize);
    let shape = StepShape { depth, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 };
    let mut drafter = Lookup::new(longest_match as usize, shortest_match as usize, &shape).expect("a plan's");
    let plain_step_us = sub_plan.first().predicted.ar_tpot_us;
    let plan::Prediction { aal, step_us, .. } = sub_plan.first().predicted;
    let terms = GuardTerms { aal, step_us, plain_step_us, limits: sub_plan.guard };
    let mut tree = TokenTree::with_capacity(verify_width);
    let (mut scratch, mut keep) = (RowScratch::with_capacity(verify_width), Vec::new());
    let mut taken = Taken::default();
    let greedy = requests.iter().filter(|request| request.temperature == 0.0 && request.output.len() > 1);
    for TokenTrace { kind: _, temperature: _, seed: _, prompt, output } in greedy {
        let text = [&prompt[..], output].concat();
        let (mut len, mut us, mut guard) = (prompt.len() + 1, 0.0, GuardState::new());
        while len < text.len() {
            if guarded && !guard.drafts() {
                (len, us, guard) = (len + 1, us + plain_step_us, guard.after_plain());
                continue;
            }
            tree.reset(text[len - 1]);
            ReplayDrafter::propose(&mut drafter, &text[..len], &shape.limits(), None, &mut tree);
            let rows = sub_plan.first().row_choice.rows(&mut tree, &mut scratch, None);
            select(&tree, rows as usize, &mut scratch.prune, &mut keep);
            let path = tree.follow(text[len..].iter().copied());
            let accepted = path.take_while(|node| keep.binary_search(node).is_ok()).count();
            let emitted = (accepted + 1).min(text.len() - len);
            let planned_us =
                sub_plan.first().row_choice.planned(u32::try_from(keep.len()).expect("few rows")).step_us;
            let step_us = planned_us + dearer * plain_step_us * (keep.len() - 1) as f64;
            if guarded {
                let tokens = u32::try_from(emitted).expect("few tokens");
                guard = guard.after_speculation(&terms, GuardedStep { tokens, step_us });
            }
            (len, us) = (len + emitted, us + step_us);
        }
        let plain = plain_step_us * (output.len() - 1) as f64;
        taken.worst = taken.worst.max((us - plain) / plain_step_us);
        taken.plain += plain;
        taken.all += us;
    }
    taken
}

#[test]
fn it_takes_little_from_requests_that_pay_and_saves_those_that_do_not() {
    let profile = profile_file::read(&machine_profile()).expect("a kept profile");
    let plan = plan_from_profile(&profile, &Fix::default(), NOW).expect("a whole profile");
    let sub_plan = plan.bands[0].for_drafter("lookup").expect("it was measured");
    let [free, guarded] = [false, true].map(|on| decode(&profile.token_traces, sub_plan, 0.0, on));
    assert!(free.all < free.plain, "the plan does not pay: {free:?}");
    assert!(guarded.all < 1.005 * free.all, "the guard takes too much: {guarded:?} instead of {free:?}");
    // So dear that speculating loses on the whole: requests are too short to lose little, but not as much.
    let [free, guarded] = [false, true].map(|on| decode(&profile.token_traces, sub_plan, 0.5, on));
    let lost = |taken: &Taken| taken.all / taken.plain - 1.0;
    assert!(lost(&free) > 0.1, "not dear enough: {free:?}");
    assert!(
        lost(&guarded) < 0.8 * lost(&free),
        "the guard saves too little: {guarded:?} instead of {free:?}"
    );
    assert!(guarded.worst < free.worst, "{guarded:?} instead of {free:?}");
}
