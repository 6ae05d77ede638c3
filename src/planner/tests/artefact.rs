//! The plan file: round trips, damage of every kind, invalid contents, and plans made elsewhere.
use std::fs;

use ygg_profiler::{TunedShape, TuningMeasurement, TuningSamples, UnixTime};

use super::synthetic::{
    Echo, MADE_AT, MEASURED_AT, Oracle, fingerprints, in_full, name, profile, record, samples,
};
use crate::{
    plan::{
        Calibration, FittedPlan, Header, LeftOut, PLAN_FORMAT, Plan, PlanError, RowChoice, Schedule, decode,
        encode, read, write,
    },
    planner::{Fix, FreeDrafter, make_plan},
};

fn small_plan() -> Plan {
    small_plan_made(MADE_AT)
}

fn small_plan_made(made_at: UnixTime) -> Plan {
    let mut cells = vec![samples("draft:lookup", 1, 0.5)];
    cells.extend([(1, 90.0), (2, 91.0), (4, 95.0)].map(|(w, us)| samples("verify", w, us)));
    cells.extend([(1, 9.0), (2, 10.0)].map(|(w, us)| samples("draft:layer_skip", w, us)));
    let trace = record(&Oracle { seed: 5, skill: 95 }, 10, 2, 3, 4);
    let request = ygg_profiler::TokenTrace {
        kind: "copy".into(),
        temperature: 0.0,
        seed: 0,
        prompt: vec![1, 2, 1],
        output: vec![2, 1, 2, 1, 2, 1],
    };
    let mut echo = Echo;
    let mut free =
        [FreeDrafter { name: name("lookup"), drafter: &mut echo, depths: vec![2], widths: vec![1, 2] }];
    let mut profile = profile(cells, vec![trace], vec![request]);
    profile.tunings = vec![tuned("linear.q4_1.avx512", 2.0), tuned("linear_gated.q4_1.avx512", 4.0)];
    make_plan(&profile, &mut free, &Fix::default(), made_at).unwrap()
}

/// A kernel whose one other tuning takes 2 microseconds.
fn tuned(kernel: &str, default_us: f64) -> TuningMeasurement {
    let samples = |tuning: &str, us| TuningSamples { tuning: tuning.to_owned(), samples_us: vec![us; 9] };
    TuningMeasurement {
        shape: TunedShape { kernel: kernel.to_owned(), outputs: 96, columns: 64, rows: 2 },
        tunings: vec![samples("default", default_us), samples("other", 2.0)],
    }
}

#[test]
fn a_plan_has_and_shows_the_tunings_that_won() {
    let plan = small_plan();
    let [chosen] = &plan.tunings[..] else { panic!("{:?}", plan.tunings) };
    assert_eq!((chosen.shape.kernel.as_str(), chosen.tuning.as_str()), ("linear_gated.q4_1.avx512", "other"));
    assert_eq!((chosen.default_us, chosen.tuned_us, chosen.gain), (4.0, 2.0, 2.0));
    let text = in_full(&plan);
    let line = text.lines().find(|line| line.contains("linear_gated.q4_1.avx512")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["linear_gated.q4_1.avx512", "96", "64", "2", "4.00", "2.00", "2.000", "other"]);
    assert!(!in_full(&Plan { tunings: Vec::new(), ..plan }).contains("tuned for their shape"));
}

#[test]
fn one_profile_makes_one_plan_but_for_the_time_at_which_it_is_made() {
    let (plan, later) = (small_plan(), small_plan_made(UnixTime::from_seconds(MADE_AT.seconds() + 1)));
    assert_eq!((plan.header.measured_at, plan.header.made_at), (MEASURED_AT, MADE_AT));
    assert_ne!(encode(&plan).unwrap(), encode(&later).unwrap());
    let header = Header { made_at: plan.header.made_at, ..later.header.clone() };
    let at_once = Plan { header, ..later };
    assert_eq!(encode(&plan).unwrap(), encode(&at_once).unwrap());
}

#[test]
fn a_plan_survives_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plan");
    let plan = small_plan();
    write(&plan, &path).unwrap();
    write(&plan, &path).unwrap();
    assert_eq!(read(&path).unwrap(), plan);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(encode(&plan).unwrap(), encode(&decode(&encode(&plan).unwrap()).unwrap()).unwrap());
}

#[test]
fn every_flipped_byte_is_refused() {
    let mut bytes = encode(&small_plan()).unwrap();
    for place in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            bytes[place] ^= mask;
            let error = decode(&bytes).expect_err("a damaged plan was read");
            let expected = match place {
                0..8 => "begins with `YGGPLAN`",
                8..12 => "expected format ",
                12..20 => " bytes, found ",
                _ => "expected the checksum ",
            };
            assert!(error.to_string().contains(expected), "byte {place}: {error}");
            bytes[place] ^= mask;
        }
    }
    decode(&bytes).unwrap();
}

#[test]
fn every_truncation_and_extension_is_refused() {
    let mut bytes = encode(&small_plan()).unwrap();
    let said = |bytes: &[u8]| decode(bytes).expect_err("a part of a plan was read").to_string();
    assert!(said(&[]).contains("found an empty file"));
    let whole = bytes.len();
    for length in 1..whole {
        assert!(said(&bytes[..length]).contains(&format!("bytes, found {length} bytes")), "length {length}");
    }
    bytes.push(0);
    assert!(said(&bytes).contains(&format!("expected {whole} bytes, found {} bytes", whole + 1)));
}

/// A file with a right header around any payload.
fn sealed(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    [&b"YGGPLAN\0"[..], &PLAN_FORMAT.to_le_bytes(), &length, blake3::hash(payload).as_bytes(), payload]
        .concat()
}

#[test]
fn sealed_nonsense_is_refused_without_panic_or_large_allocation() {
    let good = encode(&small_plan()).unwrap()[52..].to_vec();
    decode(&sealed(&good)).unwrap();
    let said = |payload: &[u8]| decode(&sealed(payload)).expect_err("nonsense was read").to_string();
    let expected = format!("expected the fields of format {PLAN_FORMAT}");
    assert!(said(&[0xff; 4096]).contains(&expected) && said(&[]).contains(&expected));
    let mut longer = good.clone();
    longer.push(0);
    assert!(said(&longer).contains(&expected));
    for place in 0..good.len() {
        let mut changed = good.clone();
        changed[place] ^= 0xff;
        // Whatever still decodes obeys the rules of a plan.
        if let Ok(plan) = decode(&sealed(&changed)) {
            plan.validate().unwrap();
        }
        assert!(decode(&sealed(&good[..place])).is_err());
    }
}

#[test]
fn plans_of_another_format_name_both_versions() {
    let mut bytes = encode(&small_plan()).unwrap();
    bytes[8..12].copy_from_slice(&(PLAN_FORMAT + 1).to_le_bytes());
    let error = decode(&bytes).unwrap_err().to_string();
    let expected = format!("expected format {PLAN_FORMAT}, found format {}", PLAN_FORMAT + 1);
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn file_errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.plan");
    let error = read(&missing).unwrap_err().to_string();
    assert!(error.contains("missing.plan") && error.contains("cannot read"), "{error}");
    let text = folder.path().join("text.plan");
    fs::write(&text, "hello, this is no plan").unwrap();
    let error = read(&text).unwrap_err().to_string();
    assert!(error.contains("not a usable plan") && error.contains("`hello, t`"), "{error}");
    let nowhere = folder.path().join("no").join("such.plan");
    assert!(write(&small_plan(), &nowhere).unwrap_err().to_string().contains("cannot write"));
}

/// What the error must mention, and the change that causes it.
type Break = (&'static str, fn(&mut Plan));

#[test]
fn contradictory_contents_are_refused() {
    let breaks: [Break; 23] = [
        ("planned widths", |p| p.planned.verify.insert(0, 2)),
        ("planned widths", |p| p.planned.draft.clear()),
        ("planned verify width", |p| p.planned.verify.push(64)),
        ("sub-plans", |p| p.bands[0].by_drafter.swap(0, 1)),
        ("sub-plans", |p| {
            let twice = p.bands[0].by_drafter[1].clone();
            p.bands[0].by_drafter.push(twice);
        }),
        ("sub-plans", |p| p.bands[0].by_drafter.clear()),
        ("chosen sub-plan", |p| p.bands[0].chosen_index = 99),
        ("shape of plain decoding", |p| p.bands[0].by_drafter[0].ranges[0].depth = 1),
        ("shape", |p| p.bands[0].by_drafter[1].ranges[0].depth = 0),
        ("verify width", |p| p.bands[0].by_drafter[1].ranges[0].row_choice = RowChoice::fixed(1, 90.0)),
        ("schedule", |p| p.bands[0].by_drafter[0].schedule = Schedule::HeadAhead),
        ("calibration", |p| {
            let nothing = Calibration { by_depth: Vec::new(), fitted_nodes: 0, held_out: None };
            p.bands[0].by_drafter[1].ranges[0].row_choice.calibration = Some(nothing);
        }),
        ("choice of rows", |p| p.bands[0].by_drafter[1].ranges[0].row_choice.widths.clear()),
        ("candidates per node", |p| p.bands[0].by_drafter[1].top_k = 0),
        ("draft temperature", |p| p.bands[0].by_drafter[1].draft_temperature = f32::NAN),
        ("prediction", |p| p.bands[0].by_drafter[1].ranges[0].predicted.step_us = f64::INFINITY),
        ("prediction", |p| p.bands[0].by_drafter[1].ranges[0].predicted.speedup *= 1.5),
        ("acceptance", |p| p.bands[0].by_drafter[1].acceptance.by_depth[0] = 1.5),
        ("alternative", |p| p.bands[0].alternatives[0].aal = f64::NAN),
        ("alternative", |p| p.bands[0].alternatives[0].drafter = 99),
        ("tuning", |p| p.tunings[0].gain = f64::NAN),
        ("tunings", |p| p.tunings.push(p.tunings[0].clone())),
        ("drafter left out", |p| {
            p.bands[0].left_out.push(LeftOut { name: name("layer_skip"), lacks: String::new() })
        }),
    ];
    for (what, change) in breaks {
        let mut plan = small_plan();
        change(&mut plan);
        let error = plan.validate().unwrap_err().to_string();
        assert!(error.contains(&format!("invalid plan: {what}:")), "{what}: {error}");
        assert!(encode(&plan).is_err());
    }
}

#[test]
fn a_plan_fits_only_where_it_was_made() {
    let plan = small_plan();
    assert!(FittedPlan::new(plan.clone(), &fingerprints()).unwrap().ignored().is_empty());
    let mut renamed = fingerprints();
    renamed.model.name = "another name".into();
    assert!(FittedPlan::new(plan.clone(), &renamed).is_ok());

    let mut here = fingerprints();
    here.machine.threads = 1;
    here.model.digest = "ee".into();
    here.build.kernels = "ff".into();
    here.build.plan_format = PLAN_FORMAT + 1;
    here.build.draft_formats = "as stored".into();
    let error = FittedPlan::new(plan.clone(), &here).unwrap_err();
    let PlanError::Mismatch { differences } = &error else { panic!("{error}") };
    let names: Vec<&str> = differences.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["threads", "model", "plan format", "kernel set", "formats of drafter models"]);
    let text = error.to_string();
    for part in [
        "threads: expected `2`, found `1`",
        "tiny ab",
        "tiny ee",
        "kernel set: expected `cd`, found `ff`",
        "formats of drafter models: expected `f16 in q8_0`, found `as stored`",
        "yggc plan",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let forced = FittedPlan::forced(plan.clone(), &here);
    assert_eq!((forced.ignored().len(), forced.bands[0].chosen()), (5, plan.bands[0].chosen()));
}
