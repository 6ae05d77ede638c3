//! Trees that are the same at every step: their replay against filled trees, their search against eq. 3 written out,
//! and what plans say of them.
use std::collections::BTreeMap;

use proptest::prelude::*;
use ygg_profiler::{Candidate, Profile, StepTrace, Trace};

use super::{
    search::{DEPTH, DRAFT_WIDTHS, VERIFY_WIDTHS, cells, good_profile, plan, requests},
    synthetic::{Oracle, in_full, profile, record, recorded_candidates, shown},
};
use crate::{
    plan::{DepthRule, GrowthChoice, GrowthRule, Plan, RowRule, StaticTree, decode, encode},
    planner::{
        MOST_MISSING, SearchError, acceptance_by_rank,
        compare::static_replay::StaticReplay,
        report::{diff, explain, json},
    },
    tree::Template,
};

/// What a template did in some steps.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    emitted: usize,
    steps: usize,
    forwarded: usize,
    missing: usize,
}

/// The ranks of a template's node from the root down.
fn ranks_to(template: &Template, mut node: usize) -> Vec<usize> {
    let mut ranks = Vec::new();
    while node != 0 {
        ranks.push(template.rank(node));
        node = template.parent(node);
    }
    ranks.reverse();
    ranks
}

/// Fills the template with recorded candidates, node by node, and looks for the verifier's tokens in what came of it.
fn slowly(template: &Template, step: &StepTrace, out: &mut Outcome) {
    let recorded: BTreeMap<Vec<u32>, Vec<Candidate>> = recorded_candidates(step);
    let root = vec![step.tokens[0]];
    let mut drafted: BTreeMap<Vec<u32>, usize> = BTreeMap::from([(root.clone(), 0)]);
    for node in 1..template.nodes() {
        let mut path = root.clone();
        for rank in ranks_to(template, node) {
            let token = recorded.get(&path).and_then(|candidates| candidates.get(rank));
            // A path that nothing is recorded of is none that the verifier can be on.
            path.push(token.map_or(u32::MAX, |candidate| candidate.token));
        }
        drafted.insert(path, node);
    }
    let nodes = step.tokens.len();
    let in_record = |path: &[u32]| {
        (0..nodes).any(|node| {
            let (mut node, mut tokens) = (node, vec![step.tokens[node]]);
            while node != 0 {
                node = step.parents[node] as usize;
                tokens.push(step.tokens[node]);
            }
            tokens.iter().rev().eq(path)
        })
    };
    let mut path = root;
    let mut accepted = 0;
    for token in &step.verified {
        let longer = [&path[..], &[*token]].concat();
        if !drafted.contains_key(&longer) {
            break;
        }
        path = longer;
        accepted += 1;
    }
    let went_through = (1..=path.len()).filter(|length| {
        let node = drafted[&path[..*length]];
        (0..template.nodes()).any(|child| child != 0 && template.parent(child) == node)
    });
    out.forwarded += went_through.count();
    let whole = [&step.tokens[..1], &step.verified].concat();
    let is_cut = in_record(&whole);
    let goes_on = (1..template.nodes()).any(|child| template.parent(child) == drafted[&path]);
    if goes_on && !recorded.contains_key(&path) && !(is_cut && accepted == step.verified.len()) {
        out.missing += 1;
    }
    out.emitted += if is_cut { (accepted + 1).min(step.verified.len()) } else { accepted + 1 };
    out.steps += 1;
}

fn any_template() -> impl Strategy<Value = Template> {
    let kary =
        (2usize..5, 1usize..5, 2usize..20).prop_map(|(k, depth, nodes)| Template::kary(k, depth, nodes));
    let best = (prop::collection::vec(0.05f64..1.0, 1..6), 2usize..20, 1usize..5)
        .prop_map(|(by_rank, nodes, depth)| Template::best(&by_rank, nodes, depth));
    prop_oneof![kary, best]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn templates_accept_what_trees_filled_by_rank_do(
        seed in any::<u64>(), skill in 30u64..=100, width in 1u32..6, depth in 1u32..5, ended in any::<bool>(),
        template in any_template(),
    ) {
        let mut trace = record(&Oracle { seed, skill }, 12, width, depth, 6);
        if ended {
            // Requests that ended inside the draft have no bonus token.
            for step in trace.prompts[0].steps.iter_mut().filter(|step| step.verified.len() > 1) {
                step.verified.pop();
            }
        }
        let mut slow = Outcome::default();
        trace.steps().for_each(|step| slowly(&template, step, &mut slow));
        let missing = slow.missing as f64 / slow.forwarded as f64;
        match StaticReplay::new(&[&trace], 6).tally(&template) {
            Ok(tally) => {
                prop_assert!(missing <= MOST_MISSING, "{:?}", slow);
                prop_assert_eq!(tally.accepted().steps(), slow.steps as u64);
                prop_assert!((tally.accepted().aal() - slow.emitted as f64 / slow.steps as f64).abs() < 1e-12, "{:?}", slow);
            }
            Err(found) => {
                prop_assert!(missing > MOST_MISSING, "{:?}", slow);
                prop_assert_eq!(found, missing);
            }
        }
    }

    #[test]
    fn the_search_of_templates_is_eq_3(
        seed in any::<u64>(), skill in 20u64..=100, is_kary in any::<bool>(),
        verify in prop::collection::vec(50.0f64..150.0, 5), draft in prop::collection::vec(1.0f64..20.0, 3),
    ) {
        let trace = record(&Oracle { seed, skill }, 25, 4, DEPTH, 5);
        let profile = profile(cells(&verify, &draft), vec![trace], requests());
        let rule = if is_kary { GrowthRule::Kary } else { GrowthRule::ByRank };
        let found = plan(&profile, &format!("drafter=layer_skip,growth={rule},schedule=plain")).unwrap();
        let priced: Vec<_> = found.bands[0].priced().filter(|shape| shape.name.as_str() == "layer_skip").collect();
        prop_assert!(priced.iter().all(|shape| shape.growth == rule && shape.rule == RowRule::Widest));
        prop_assert!(priced.iter().all(|shape| shape.depth_rule == DepthRule::Fixed));
        let (best, tried) = best_template(&profile, rule, &verify, &draft);
        prop_assert_eq!(priced.len(), tried);
        let chosen = found.bands[0].chosen();
        prop_assert!((chosen.first().predicted.speedup - best).abs() < 1e-9, "{:?} instead of {}", chosen, best);
        prop_assert_eq!(chosen.growth.rule(), rule);
        let tree = chosen.growth.static_tree().unwrap();
        prop_assert_eq!(tree.shape(chosen.shape().verify_width), chosen.shape());
    }
}

/// The speed-up of the best template, and how many there are that the traces can answer for.
fn best_template(profile: &Profile, rule: GrowthRule, verify: &[f64], draft: &[f64]) -> (f64, usize) {
    let trace: &Trace = &profile.traces[0];
    let by_rank = acceptance_by_rank(&[trace]);
    let mut templates: Vec<Template> = Vec::new();
    for depth in 1..=DEPTH as usize {
        for nodes in &VERIFY_WIDTHS[1..] {
            let nodes = *nodes as usize;
            match rule {
                GrowthRule::ByRank => templates.push(Template::best(&by_rank, nodes, depth)),
                GrowthRule::Kary => {
                    templates.extend((2..=5).filter(|k| *k < nodes).map(|k| Template::kary(k, depth, nodes)))
                }
                GrowthRule::Equal => unreachable!("no template"),
            }
        }
    }
    let mut distinct: Vec<Template> = Vec::new();
    for template in templates.into_iter().filter(|template| template.nodes() > 1) {
        if !distinct.contains(&template) {
            distinct.push(template);
        }
    }
    let (mut best, mut tried) = (0.0, 0);
    'templates: for template in distinct {
        let mut outcome = Outcome::default();
        trace.steps().for_each(|step| slowly(&template, step, &mut outcome));
        if outcome.missing as f64 > MOST_MISSING * outcome.forwarded as f64 {
            continue;
        }
        let place = VERIFY_WIDTHS.iter().position(|width| *width as usize >= template.nodes()).unwrap();
        let mut step_us = verify[place];
        for level in 0..DEPTH as usize {
            let here: Vec<usize> =
                (0..template.nodes()).filter(|node| ranks_to(&template, *node).len() == level).collect();
            let below =
                (1..template.nodes()).filter(|node| ranks_to(&template, *node).len() == level + 1).count();
            let forwarded =
                here.iter().filter(|n| (1..template.nodes()).any(|c| template.parent(c) == **n)).count();
            if forwarded == 0 {
                break;
            }
            let Some(width) = DRAFT_WIDTHS.iter().position(|width| *width as usize >= forwarded) else {
                continue 'templates;
            };
            // A growth was measured as half a microsecond for 1, 2 and 4 nodes.
            step_us += draft[width] + 0.5 * below.div_ceil(4) as f64;
        }
        tried += 1;
        best = f64::max(best, outcome.emitted as f64 / outcome.steps as f64 * verify[0] / step_us);
    }
    (best, tried)
}

/// Certain drafts in a profile where drafting is cheap.
fn static_plan(fix: &str) -> Plan {
    let trace = record(&Oracle { seed: 5, skill: 100 }, 30, 4, DEPTH, 5);
    let profile = profile(cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[8.0, 9.0, 10.0]), vec![trace], requests());
    plan(&profile, fix).unwrap()
}

#[test]
fn nothing_but_a_fix_asks_for_templates() {
    let free = static_plan("");
    let mut equal = static_plan("growth=egt");
    equal.header.fixed.clear();
    assert_eq!(free, equal);
    assert!(free.bands[0].priced().all(|shape| shape.growth == GrowthRule::Equal));
    assert!(explain(&free).parts.iter().all(|part| part.best.growth == GrowthRule::Equal));
    let fixed = static_plan("growth=kary");
    assert_eq!(fixed.bands[0].chosen().name.as_str(), "layer_skip", "no other drafter grows trees");
    assert!(fixed.bands[0].for_drafter("lookup").is_none());
    let named = static_plan("drafter=layer_skip,growth=kary");
    assert_eq!(
        named.bands[0].for_drafter("lookup"),
        free.bands[0].for_drafter("lookup"),
        "only what is named is narrowed"
    );
    for fix in ["drafter=lookup,growth=sequoia", "drafter=layer_skip,growth=sequoia,Wv=3"] {
        let error = plan(&good_profile(), fix).unwrap_err();
        assert!(matches!(error, SearchError::FixImpossible { .. }), "{fix}: {error}");
    }
}

#[test]
fn plans_with_templates_survive_files_and_say_so() {
    let plain = static_plan("drafter=layer_skip");
    for (fix, word) in [("growth=sequoia", "sequoia"), ("growth=kary,Wv=4,schedule=head_ahead", "kary")] {
        let plan = static_plan(&format!("drafter=layer_skip,{fix}"));
        assert_eq!(decode(&encode(&plan).unwrap()).unwrap(), plan);
        for text in [shown(&plan), in_full(&plan), diff::text(&diff(&plain, &plan))] {
            assert!(text.contains(word), "{text}");
        }
        let planned = &plan.planned.draft;
        let tree = plan.bands[0].chosen().growth.static_tree().unwrap();
        assert!(tree.draft_widths.iter().all(|width| planned.contains(width)), "{planned:?} for {tree:?}");
        let json = json(&plan);
        assert_eq!(json["chosen"]["growth"].as_object().unwrap().len(), 1);
    }
}

#[test]
fn templates_that_contradict_their_sub_plan_are_refused() {
    type Break = (&'static str, fn(&mut StaticTree));
    let good = static_plan("drafter=layer_skip,growth=sequoia,Wv=6");
    let place = good.bands[0].chosen_index as usize;
    let breaks: [Break; 4] = [
        ("draft width", |tree| tree.draft_widths.push(99)),
        ("draft widths of a template", |tree| {
            tree.draft_widths.pop();
        }),
        ("template", |tree| tree.template = Template::kary(1, 1, 2)),
        ("template", |tree| tree.template = Template::kary(3, 3, 40)),
    ];
    for (what, change) in breaks {
        let mut plan = good.clone();
        match &mut plan.bands[0].by_drafter[place].growth {
            GrowthChoice::ByRank(tree) => change(tree),
            other => panic!("{other:?}"),
        }
        let error = plan.validate().unwrap_err().to_string();
        assert!(error.contains(&format!("invalid plan: {what}:")), "{what}: {error}");
    }
    let mut choosing = good.clone();
    choosing.bands[0].by_drafter[place].ranges[0].row_choice.rule = RowRule::BestRate;
    assert!(choosing.validate().unwrap_err().to_string().contains("choices of a template"));
    let mut few = good.clone();
    few.bands[0].by_drafter[place].top_k = 1;
    assert!(few.validate().unwrap_err().to_string().contains("ranks below the candidates"));
    let mut free = good;
    let growth = free.bands[0].by_drafter[place].growth.clone();
    let lookup = free.bands[0].by_drafter.iter_mut().find(|plan| plan.name.as_str() == "lookup").unwrap();
    lookup.growth = growth;
    assert!(free.validate().unwrap_err().to_string().contains("no template without a model"));
}

#[test]
fn templates_that_the_trace_cannot_answer_for_are_refused() {
    let mut trace = record(&Oracle { seed: 3, skill: 100 }, 20, 4, 4, 6);
    for step in &mut trace.prompts[0].steps {
        step.expanded.truncate(1);
        step.parents.truncate(5);
        step.tokens.truncate(5);
        step.verified.truncate(1);
        // The verifier went on after a node that was never expanded.
        let first = step.tokens[1];
        step.verified = vec![first, 99];
    }
    trace.validate().unwrap();
    let profile = profile(cells(&[90.0, 92.0, 95.0, 97.0, 99.0], &[8.0, 9.0, 10.0]), vec![trace], requests());
    let plan = plan(&profile, "drafter=layer_skip,growth=kary").unwrap();
    assert!(
        plan.bands[0]
            .priced()
            .filter(|shape| shape.growth == GrowthRule::Kary)
            .all(|shape| shape.shape.depth == 1)
    );
    assert!(!plan.bands[0].refused.is_empty());
    assert!(
        plan.bands[0].refused.iter().all(|r| r.growth == GrowthRule::Kary && r.depth > 1 && r.missing > 0.4)
    );
    assert!(in_full(&plan).contains("one k-ary tree (kary): 50.0 % of its nodes were never expanded"));
}
