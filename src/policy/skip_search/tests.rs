//! The search compared with slow and obvious judges, on made-up models that reproduce what a formula says.

use super::*;
use crate::plan::GroupSet;

const GROUPS: u32 = 24;

fn costs() -> SkipCosts {
    let times = SkipTimes { verify: vec![(1, 100.0), (32, 900.0)], draft: vec![(1, 60.0)] };
    SkipCosts::new(times, 0.5)
}

fn start() -> Vec<u32> {
    (1..11).step_by(2).flat_map(|l| [2 * l, 2 * l + 1]).collect()
}

fn search(settings: SkipSearchSettings) -> SkipSearch {
    SkipSearch::new(GROUPS, &start(), 4, costs(), settings)
}

/// A model whose even groups matter little: the share of reproduced tokens falls with the odd groups that are left out.
fn matchness(set: &GroupSet) -> f64 {
    let odd = set.iter().filter(|g| g % 2 == 1).count() as f64;
    let even = set.iter().filter(|g| g % 2 == 0).count() as f64;
    ((1.0 - 0.08 * odd - 0.01 * even).max(0.0) * 32.0).round() / 32.0
}

/// One step and the tries that it pays for; the sets tried are added to `log`.
fn step(search: &mut SkipSearch, of: impl Fn(&GroupSet) -> f64, log: &mut Vec<GroupSet>) {
    search.worked(1_000.0);
    if !search.may_try() {
        return;
    }
    let set = search.candidate();
    log.push(set);
    let tried = TriedSet { set, matchness: of(&set) };
    if search.tried(set, tried.matchness) {
        let best = *search.best();
        search.compared(tried, of(&best));
    }
}

#[test]
fn matchness_rises_and_only_lawful_sets_of_the_same_size_are_tried() {
    let mut search = search(SkipSearchSettings { enough: 2.0, ..SkipSearchSettings::default() });
    let mut log = Vec::new();
    let before = matchness(search.best());
    let mut best_of_all = before;
    for _ in 0..40_000 {
        step(&mut search, matchness, &mut log);
        best_of_all = log.last().map(matchness).map_or(best_of_all, |last| best_of_all.max(last));
        assert_eq!(matchness(search.best()), best_of_all, "the best of all tried, the start among them");
    }
    assert_eq!(log[0], GroupSet::of(start()));
    for set in &log {
        assert!(
            set.len() == start().len() as u32 && set.iter().all(|g| (2..GROUPS - 2).contains(&g)),
            "{set:?}"
        );
    }
    assert!(matchness(search.best()) >= before + 0.2, "{before} to {}", matchness(search.best()));
    let SkipCounts { tries, is_searching, changes, .. } = search.counts();
    assert!(tries == log.len() as u64 && tries >= 301 && changes >= 2);
    assert!(!is_searching, "it ends when nothing better is found");
}

#[test]
fn the_process_proposes_better_sets_than_chance() {
    let settings =
        SkipSearchSettings { enough: 2.0, patience: 9_999, interval: 5, ..SkipSearchSettings::default() };
    let mut search = search(settings);
    let mut log = Vec::new();
    while log.len() < 300 {
        step(&mut search, matchness, &mut log);
    }
    let mean = |every: fn(usize) -> bool| {
        let of: Vec<f64> = log
            .iter()
            .enumerate()
            .skip(50)
            .filter(|(i, _)| every(i + 1))
            .map(|(_, s)| matchness(s))
            .collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    let (proposed, random) = (mean(|i| i % 5 == 0), mean(|i| i % 5 != 0));
    assert!(proposed > random + 0.1, "{proposed} and {random}");
}

#[test]
fn a_search_for_speed_finds_the_ratio() {
    let settings =
        SkipSearchSettings { objective: SkipObjective::Speed, interval: 5, ..SkipSearchSettings::default() };
    let mut search = search(settings);
    let mut log = Vec::new();
    for _ in 0..40_000 {
        step(&mut search, matchness, &mut log);
    }
    let sizes: std::collections::BTreeSet<u32> = log.iter().map(GroupSet::len).collect();
    assert!(sizes.len() > 8, "{sizes:?}");
    let speedup = |set: &GroupSet| {
        let kept = 1.0 - f64::from(set.len()) / f64::from(GROUPS);
        expected_speedup(matchness(set), costs().ratio(kept), 4)
    };
    let best = log.iter().map(speedup).fold(0.0, f64::max);
    assert_eq!(speedup(search.best()), best);
    assert!(best > speedup(&GroupSet::of(start())) + 0.1);
}

#[test]
fn tries_never_cost_more_than_their_share() {
    for share in [0.02, 0.5] {
        let mut search = search(SkipSearchSettings { share, enough: 2.0, ..SkipSearchSettings::default() });
        let mut log = Vec::new();
        for i in 0..5_000 {
            // A model that repays no set: every second candidate seems better and is compared.
            step(&mut search, |_| f64::from(i % 2), &mut log);
            let SkipCounts { tried_us, stepped_us, .. } = search.counts();
            assert!(tried_us <= share * stepped_us, "{tried_us} of {stepped_us}");
        }
        assert!(log.len() > 100);
    }
}

#[test]
fn it_stops_by_its_rules_and_begins_again_when_acceptance_falls() {
    let all = SkipSearchSettings { share: 10.0, ..SkipSearchSettings::default() };
    let ended_after = |settings: SkipSearchSettings, of: fn(&GroupSet) -> f64| {
        let (mut search, mut log) = (search(settings), Vec::new());
        while search.counts().is_searching {
            step(&mut search, of, &mut log);
        }
        (log.len() as u32, search)
    };
    assert_eq!(ended_after(all, |_| 0.96).0, 1, "what it starts with is enough");
    assert_eq!(ended_after(all, |_| 0.95).0, 300, "nothing is better");
    let few = SkipSearchSettings { most_tries: 40, enough: 2.0, ..all };
    assert_eq!(ended_after(few, matchness).0, 40);

    let (_, mut search) = ended_after(all, |_| 0.96);
    for _ in 0..1_000 {
        search.drafted(true);
        assert!(!search.may_try() && search.counts().reopened == 0);
    }
    let until = (0..200).find(|_| {
        search.drafted(false);
        search.counts().is_searching
    });
    assert!(until.is_some(), "it began again");
    assert_eq!(search.counts().reopened, 1);
    let mut log = Vec::new();
    step(&mut search, matchness, &mut log);
    assert_eq!(log, [GroupSet::of(start())], "the best set is measured on the new text first");
}

#[test]
fn the_same_seed_and_history_try_the_same_sets_from_a_kept_state_too() {
    let settings = SkipSearchSettings { interval: 3, enough: 2.0, seed: 5, ..SkipSearchSettings::default() };
    let log = |restored_at: Option<usize>, settings| {
        let (mut search, mut log) = (search(settings), Vec::new());
        for i in 0..4_000 {
            step(&mut search, matchness, &mut log);
            if Some(i) == restored_at {
                search.restore(search.state().clone()).unwrap();
            }
        }
        log
    };
    let whole = log(None, settings);
    assert_eq!(whole, log(Some(2_500), settings));
    assert_ne!(whole, log(None, SkipSearchSettings { seed: 6, ..settings }));
}

#[test]
fn a_state_of_another_model_or_that_no_search_comes_to_is_refused() {
    let mut search = search(SkipSearchSettings::default());
    let mut log = Vec::new();
    (0..9_000).for_each(|_| step(&mut search, matchness, &mut log));
    let state = search.state().clone();
    let mut smaller = SkipSearch::new(8, &[2, 3], 4, costs(), SkipSearchSettings::default());
    let refusal = smaller.restore(state.clone()).unwrap_err().to_string();
    assert!(refusal.contains("8 sub-layers") && refusal.contains("24 sub-layers"), "{refusal}");
    for unlawful in [
        SkipState { tries: u64::MAX, ..state.clone() },
        SkipState { best: TriedSet { set: GroupSet::of([GROUPS]), matchness: 0.5 }, ..state.clone() },
        SkipState { best: TriedSet { matchness: f64::NAN, ..state.best }, ..state.clone() },
        SkipState { oldest: u32::MAX, ..state.clone() },
    ] {
        let refusal = search.restore(unlawful).unwrap_err().to_string();
        assert!(refusal.contains("a lawful state"), "{refusal}");
        assert_eq!(*search.state(), state);
    }
}

#[test]
fn models_without_inner_layers_have_nothing_to_search() {
    for groups in [0, 2, 4] {
        let mut search = SkipSearch::new(groups, &[], 4, costs(), SkipSearchSettings::default());
        search.worked(1e9);
        assert!(!search.may_try());
    }
}
