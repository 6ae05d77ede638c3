//! `plan explain` and `plan diff` as whole programs: what they say, the HTML page, and what they refuse.

use std::fs;

use yggc::{
    measure::profile_file,
    plan::{self, Band, PLAN_FORMAT},
    planner::{Fix, plan_from_profile},
};

use crate::{
    committed_plans::machine_profile,
    program::{failure, success, yggc},
    tiny_commands::{json, keys, on_tiny, plan, profile},
    tiny_profiles::NOW,
    xml::elements,
};

/// The sections of every page.
const SECTIONS: [&str; 16] = [
    "verdict",
    "step",
    "surface",
    "drafters",
    "acceptance",
    "latency",
    "temperatures",
    "parts",
    "reliability",
    "chains",
    "objective",
    "alternatives",
    "tunings",
    "remarks",
    "origin",
    "glossary",
];

#[test]
fn a_plan_explains_itself() {
    let said = success(&yggc().args(["plan", "explain"]).arg(plan()).output().expect("yggc starts"));
    assert!(said.starts_with("verdict      "), "{said}");
    for part in [
        "for more     ",
        "chosen ",
        "may be noise",
        "why each drafter won or lost",
        "what each part adds",
        "most tokens per time (eq. 3)",
        "acceptance (measured)",
        "chains by analysis",
        "verify: time of a forward over that of one row",
        "lookup_short",
        "layer_skip",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let told = json(yggc().args(["plan", "explain"]).arg(plan()).arg("--json"));
    assert_eq!(
        keys(&told),
        [
            "bands",
            "chains",
            "chosen",
            "considered",
            "context",
            "drafters",
            "findings",
            "fixed",
            "left_out",
            "margin",
            "objective",
            "parts",
            "refused",
            "staircases",
            "temperature",
            "verdict",
        ]
    );
    let read = plan::read(plan()).expect("the plan is there");
    assert_eq!(told["chosen"], read.bands[0].chosen().name.as_str());
    assert_eq!(told["considered"].as_u64(), Some(read.bands[0].alternatives.len() as u64));
}

#[test]
fn a_temperature_is_told_of_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, page) = (folder.path().join("warm.plan"), folder.path().join("why.html"));
    let mut warm = plan::read(plan()).expect("the plan is there");
    // Hot requests are said to be best decoded plainly.
    let mut by_drafter = warm.bands[0].by_drafter.clone();
    by_drafter.truncate(1);
    let considered = warm.bands[0].alternatives.len();
    warm.bands.truncate(1);
    warm.bands.push(Band {
        temperature: 0.8,
        by_drafter,
        chosen_index: 0,
        alternatives: warm.bands[0].alternatives.iter().filter(|a| a.drafter == 0).copied().collect(),
        refused: Vec::new(),
        left_out: Vec::new(),
    });
    plan::write(&warm, &file).expect("a valid plan");
    let explain = |arguments: &[&str]| {
        let mut command = yggc();
        command.args(["plan", "explain"]).arg(&file).args(arguments);
        command
    };
    for (arguments, temperature, considered) in
        [(&[][..], 0.0, considered), (&["--temperature", "0.7"], 0.8, 1)]
    {
        let told = json(explain(arguments).arg("--json"));
        let said = told["temperature"].as_f64().expect("a number");
        assert!((said - temperature).abs() < 1e-6, "{said}");
        assert_eq!(told["considered"].as_u64(), Some(considered as u64));
        assert_eq!(told["bands"].as_array().map(Vec::len), Some(2));
    }
    let said = success(&explain(&["--temperature", "1"]).output().expect("yggc starts"));
    for part in
        ["chosen       none, for requests of temperature 0.8", "what requests of each temperature get"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    success(&explain(&["--temperature", "1", "--html"]).arg(&page).output().expect("yggc starts"));
    let html = fs::read_to_string(&page).expect("written");
    elements(&html).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(html.contains("The other sections are for temperature 0.8."));
    let said = failure(&explain(&["--temperature", "-1"]).output().expect("yggc starts"), 2);
    assert!(said.contains("--temperature"), "{said}");

    for (temperature, served) in [("0", 0.0), ("0.3", 0.0), ("0.9", 0.8)] {
        let mut command = on_tiny("run");
        command.args(["-p", "hello", "-n", "8", "--json", "--temperature", temperature, "--plan"]).arg(&file);
        let answer = json(&mut command);
        let found = answer["stats"]["plan_temperature"].as_f64().expect("a number");
        assert!((found - served).abs() < 1e-6, "{temperature} went by {found}");
    }
}

#[test]
fn the_page_is_well_formed_and_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (page, hostile) = (folder.path().join("why.html"), folder.path().join("hostile.plan"));
    let mut named = plan::read(plan()).expect("the plan is there");
    named.header.fingerprints.model.name = "</title><script>alert(\"&nbsp;\")</script>\u{1}".to_owned();
    named.header.calibration = "<!-- ' ]]>".to_owned();
    plan::write(&named, &hostile).expect("a valid plan");
    for round in 0..2 {
        let mut command = yggc();
        command.args(["plan", "explain"]).arg(&hostile).arg("--html").arg(&page);
        let said = success(&command.output().expect("yggc starts"));
        assert_eq!(said.trim_end(), page.to_str().expect("UTF-8"), "round {round}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2, "nothing else is left");
    let html = fs::read_to_string(&page).expect("written");
    let elements = elements(&html).unwrap_or_else(|wrong| panic!("{wrong}"));
    let of = |name: &str| elements.iter().filter(|element| element.name == name).collect::<Vec<_>>();
    let values = |name: &str, attribute: &str| -> Vec<String> {
        of(name).iter().filter_map(|element| element.attribute(attribute)).map(str::to_owned).collect()
    };
    assert_eq!(values("section", "id"), SECTIONS);
    assert_eq!(values("a", "href"), SECTIONS.map(|id| format!("#{id}")));
    // Nothing is fetched or run, and every figure has a name.
    for absent in ["script", "img", "link", "iframe", "object"] {
        assert_eq!(of(absent).len(), 0, "{absent}");
    }
    assert!(!html.replace("http://www.w3.org/2000/svg", "").contains("http"));
    let figures = values("svg", "aria-label");
    assert_eq!((of("svg").len(), of("figure").len()), (figures.len(), figures.len()));
    for part in [
        "speed-up (predicted)",
        "Stages of the chosen step",
        "verify: time of a forward",
        "Acceptance by depth",
    ] {
        assert!(figures.iter().any(|label| label.contains(part)), "{part}: {figures:?}");
    }
    let read = plan::read(plan()).expect("the plan is there");
    for sub_plan in read.bands[0].by_drafter.iter().filter(|sub_plan| !sub_plan.is_plain()) {
        let map = format!("{}, Wd {}: speed-up", sub_plan.name, sub_plan.shape().draft_width);
        assert!(figures.iter().any(|label| label.starts_with(&map)), "{map}: {figures:?}");
    }
    // A table that is wider than the screen scrolls by itself.
    assert!(of("table").len() > 3);
    assert_eq!(html.matches("<div class=\"wide\">\n<table>").count(), of("table").len());
    for word in ["Dd", "Wd", "Wv, rows", "tokens/step", "drafter", "verifier", "speed-up"] {
        assert!(html.contains(&format!("<dt>{word}</dt>")), "{word}");
    }
}

/// The plan of a kept profile, of which the chosen drafter is known: what a reader sees first, and what is folded.
#[test]
fn the_verdict_and_the_winners_charts_come_first_and_the_page_is_small() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, page) = (folder.path().join("kept.plan"), folder.path().join("why.html"));
    let profile = profile_file::read(&machine_profile()).expect("it is kept");
    let kept = plan_from_profile(&profile, &Fix::default(), NOW).expect("it can be planned");
    plan::write(&kept, &file).expect("a valid plan");
    let chosen = kept.bands[0].chosen();
    assert!(!chosen.is_plain());
    let gain = format!(
        "{:.2}x plain decoding by {}, expected on other prompts than the recorded (",
        chosen.first().unseen.speedup,
        chosen.name
    );
    let told = |command| success(&yggc().args(["plan", command]).arg(&file).output().expect("yggc starts"));
    let said = told("explain");
    assert!(said.starts_with(&format!("verdict      {gain}")), "{said}");
    assert!(said.lines().nth(1).is_some_and(|line| line.starts_with("for more     ")), "{said}");
    assert!(!said.contains("host:decide at context"), "noise of microseconds: {said}");
    let said = told("show");
    assert!(said.starts_with(&format!("chosen       {}, Dd ", chosen.name)), "{said}");
    success(
        &yggc().args(["plan", "explain"]).arg(&file).arg("--html").arg(&page).output().expect("yggc starts"),
    );
    let html = fs::read_to_string(&page).expect("written");
    elements(&html).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(html.len() < 200_000, "{} bytes", html.len());
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
    let first_map =
        html[place("id=\"surface\"")..].find("<figcaption>").expect("a map") + place("id=\"surface\"");
    assert!(html[first_map..].starts_with(&format!("<figcaption>{}, Wd", chosen.name)), "{}", chosen.name);
    assert!(place(&gain) < place("<svg") && place("Stages of the chosen step") < first_map);
    // Neighbours that differ in their shape alone are one row.
    let alternatives = &html[place("id=\"alternatives\"")..place("id=\"tunings\"")];
    let rows: Vec<Vec<&str>> =
        alternatives.split("<tr").skip(2).map(|row| row.split("<td>").skip(1).collect()).collect();
    assert!(rows.iter().any(|row| row[8].contains(" more")), "{alternatives}");
    for pair in rows.windows(2) {
        assert!(pair[0][0] != pair[1][0] || pair[0][4..8] != pair[1][4..8], "{pair:?}");
    }
}

#[test]
fn a_file_that_is_no_report_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let explain = |output: &std::path::Path| {
        let mut command = yggc();
        command.args(["plan", "explain"]).arg(plan()).arg("--html").arg(output);
        failure(&command.output().expect("yggc starts"), 3)
    };
    let precious = folder.path().join("precious");
    for content in ["", "<!DOCTYPE html>\n<p>my own page</p>"] {
        fs::write(&precious, content).expect("writable");
        let said = explain(&precious);
        assert!(said.contains("is no report") && said.contains("--html OUT"), "{said}");
        assert_eq!(fs::read_to_string(&precious).expect("still there"), content);
    }
    let copy = folder.path().join("copy.plan");
    fs::copy(plan(), &copy).expect("writable");
    assert!(explain(&copy).contains("is no report"));
    assert!(explain(folder.path()).contains("it is a folder"));
    assert!(explain(&folder.path().join("missing/why.html")).contains("its folder"));
    let mut both = yggc();
    both.args(["plan", "explain"]).arg(plan()).args(["--json", "--html"]).arg(folder.path().join("new.html"));
    failure(&both.output().expect("yggc starts"), 2);
}

#[test]
fn plans_are_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fixed = folder.path().join("fixed.plan");
    let mut command = yggc();
    command.args(["plan", "--profile"]).arg(profile()).args([
        "--fix",
        "drafter=layer_skip,Dd=2,Wd=4,Wv=8",
        "-o",
    ]);
    success(&command.arg(&fixed).output().expect("yggc starts"));
    let said = success(&yggc().args(["plan", "diff"]).arg(plan()).arg(plan()).output().expect("yggc starts"));
    assert_eq!(said, "no difference\n");
    let said = success(&yggc().args(["plan", "diff"]).arg(plan()).arg(&fixed).output().expect("yggc starts"));
    for part in ["fixed", "drafter=layer_skip,Dd=2,Wd=4,Wv=8", "shapes priced", "Dd 2, Wd 4, Wv 8"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("latencies"), "both have the same table: {said}");
    let told = json(yggc().args(["plan", "diff"]).arg(plan()).arg(&fixed).arg("--json"));
    assert_eq!(
        keys(&told),
        ["bands", "drafters", "facts", "latencies", "latencies_within_spread", "prices", "tunings"]
    );
    assert!(told["drafters"].as_array().is_some_and(|list| list.iter().any(|d| d["name"] == "layer_skip")));
}

#[test]
fn what_is_no_plan_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, older) = (folder.path().join("text.plan"), folder.path().join("older.plan"));
    fs::write(&text, "a text").expect("writable");
    let mut bytes = fs::read(plan()).expect("the plan is there");
    bytes[8..12].copy_from_slice(&(PLAN_FORMAT - 1).to_le_bytes());
    fs::write(&older, bytes).expect("writable");
    let missing = folder.path().join("missing.plan");
    let versions = format!("expected format {PLAN_FORMAT}, found format {}", PLAN_FORMAT - 1);
    for (bad, expected) in
        [(&text, "not a usable plan"), (&older, versions.as_str()), (&missing, "No such file")]
    {
        let mut explain = yggc();
        explain.args(["plan", "explain"]).arg(bad);
        let (mut first, mut second) = (yggc(), yggc());
        first.args(["plan", "diff"]).arg(bad).arg(plan());
        second.args(["plan", "diff"]).arg(plan()).arg(bad);
        for mut command in [explain, first, second] {
            let said = failure(&command.output().expect("yggc starts"), 3);
            assert!(said.contains(expected), "{said}");
            assert!(said.contains(bad.to_str().expect("UTF-8")), "{said}");
        }
    }
    failure(&yggc().args(["plan", "diff"]).arg(plan()).output().expect("yggc starts"), 2);
    failure(&yggc().args(["plan", "explain"]).output().expect("yggc starts"), 2);
}
