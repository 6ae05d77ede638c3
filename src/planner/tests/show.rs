//! A plan on one screen: what it says in which order, within its lines and columns, and how old it says it is.
use ygg_profiler::UnixTime;

use super::{
    search::{cells, good_profile, plan, requests},
    synthetic::{MEASURED_AT, Oracle, name, profile, record, shown},
};
use crate::{
    plan::{LeftOut, Plan},
    planner::report::text,
};

/// A plan whose lookup is chosen, with all that a reader is told of.
fn whole() -> Plan {
    let mut plan = plan(&good_profile(), "").unwrap();
    plan.bands[0]
        .left_out
        .push(LeftOut { name: name("ngram"), lacks: "recorded steps of its own".to_owned() });
    plan
}

#[track_caller]
fn expect_in_order(said: &str, parts: &[&str]) {
    let mut rest = said;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else {
            panic!("{part:?} is not at its place in\n{said}")
        };
        rest = behind;
    }
}

#[test]
fn a_screen_says_what_is_chosen_what_it_promises_what_lost_and_what_it_rests_on() {
    let plan = whole();
    let said = shown(&plan);
    insta::assert_snapshot!(said);
    let unseen = plan.bands[0].chosen().first().unseen;
    expect_in_order(
        &said,
        &[
            "chosen       lookup, Dd ",
            "schedule plain",
            "expected     ",
            &format!("{:.2}x plain decoding", unseen.speedup),
            &format!("{:.2} to {:.2} in nine of ten cases", unseen.low, unseen.high),
            " ms a token instead of 0.090 ms",
            "predicted    ",
            "on the recorded prompts",
            "tokens in a step of ",
            "temperature  0 alone was recorded",
            "lost         layer_skip  ",
            " % slower than lookup",
            "ngram       no evidence: no recorded steps of its own",
            "rests on     12 recorded prompts (calibration synthetic)",
            "steps of lookup",
            "measured     3 days ago, 2026-11-22 14:03 UTC; planned 2 days ago, 2026-11-23 14:03 UTC",
            "for          GenuineIntel, 2 threads, avx2; tiny (ab); kernels cd",
        ],
    );
}

#[test]
fn losers_come_by_what_they_promise_with_their_reasons() {
    let trace = record(&Oracle { seed: 5, skill: 0 }, 30, 4, 4, 5);
    let useless = profile(cells(&[90.0; 5], &[1.0; 3]), vec![trace], requests());
    let mut plan = plan(&useless, "drafter=none").unwrap();
    let places = ["lookup", "layer_skip"].map(|name| {
        plan.bands[0].by_drafter.iter().position(|sub_plan| sub_plan.name.as_str() == name).unwrap()
    });
    let [lookup, layer_skip] = places;
    (
        plan.bands[0].by_drafter[lookup].ranges[0].unseen.speedup,
        plan.bands[0].by_drafter[layer_skip].ranges[0].unseen.speedup,
    ) = (0.8, 0.9);
    let said = shown(&plan);
    expect_in_order(
        &said,
        &["chosen       plain decoding\nfixed        drafter=none\n", "lost         layer_skip"],
    );
    expect_in_order(&said, &["expected     0.090 ms a token\n", "layer_skip   0.90x", "lookup       0.80x"]);
    for (speedup, least, fixed, reason) in [
        (0.8, 0.7, "", "slower than plain decoding"),
        (1.2, 0.9, "", "not faster than plain decoding beyond doubt"),
        (1.2, 1.1, "drafter=none", "excluded by what was fixed"),
    ] {
        plan.header.fixed = fixed.to_owned();
        let unseen = &mut plan.bands[0].by_drafter[lookup].ranges[0].unseen;
        (unseen.speedup, unseen.least, unseen.low, unseen.high) = (speedup, least, least, 1.3);
        let said = shown(&plan);
        let line = said.lines().find(|line| line.contains("lookup  ")).unwrap();
        assert!(line.ends_with(reason), "{line}");
    }
}

#[test]
fn a_screen_has_its_columns_whatever_names_are_like() {
    let mut plan = whole();
    plan.header.fingerprints.model.name = "a model\nof a very long name ".repeat(20);
    plan.header.fingerprints.machine.name = "p".repeat(300);
    plan.header.calibration = "/a/folder/of/prompts".repeat(20);
    plan.header.fixed = "drafter=layer_skip,".repeat(20);
    let said = shown(&plan);
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
    assert_eq!(said.matches("...").count(), 4, "{said}");
    assert!(said.lines().count() <= 24, "{said}");
}

#[test]
fn ages_are_those_of_the_clock_that_is_given() {
    let plan = whole();
    let after = |seconds: u64| text(&plan, UnixTime::from_seconds(MEASURED_AT.seconds() + seconds));
    for (seconds, age) in [(86_400, "1 day ago"), (40 * 86_400, "40 days ago"), (90_000, "1 day ago")] {
        let said = after(seconds);
        assert!(said.contains(&format!("measured     {age}, 2026-11-22 14:03 UTC")), "{said}");
    }
    assert!(after(60).contains("planned in the future by this machine's clock, 2026-11-23 14:03 UTC"));
}
