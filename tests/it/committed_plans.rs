//! The profiles that are kept, of known machines and for tests: what is planned from each is what is kept with it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use yggc::{
    measure::profile_file,
    plan::{self, PLAN_FORMAT, Plan},
    planner::{Fix, plan_from_profile, report},
};

/// Bytes of a file that is fetched with the sources.
const MOST_BYTES: u64 = 2_000_000;
/// Bytes of a machine's profile and its plan.
const MOST_PLANNED_BYTES: u64 = 200_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A part of a profile of the default model, measured on a machine.
pub(crate) fn machine_profile() -> PathBuf {
    root().join("tests/data/profiles/amd-epyc-zen4-2-threads.profile")
}

/// Every `plans/MACHINE/NAME.profile`, and the one for tests.
fn profiles() -> Vec<PathBuf> {
    let listed = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).expect("listed").map(|entry| entry.expect("listed").path()).collect()
    };
    let machines = listed(&root().join("plans"));
    let mut files: Vec<PathBuf> =
        machines.iter().filter(|path| path.is_dir()).flat_map(|machine| listed(machine)).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "profile"));
    files.push(machine_profile());
    files.sort();
    files
}

/// What `yggc plan show` prints on the day on which the plan was made, and what `yggc plan explain` prints.
fn told(plan: &Plan) -> String {
    let explained = report::explain::text(plan, &report::explain(plan));
    format!("{}\n\n{explained}", report::text(plan, plan.header.made_at).trim_end())
}

/// A plan is kept as the text that reports print of it; a machine's also as the file, which has the parts of it that
/// were fixed.
#[test]
fn every_kept_plan_follows_from_its_profile() {
    #[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the library")]
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for file in profiles() {
        let name = file.display();
        let profile = profile_file::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let format = profile.fingerprints.build.plan_format;
        assert_eq!(format, PLAN_FORMAT, "{name} is for plans of another format: profile that machine again");
        let kept = file.with_extension("plan");
        let kept = kept.exists().then(|| plan::read(&kept).unwrap_or_else(|error| panic!("{name}: {error}")));
        let fixed = kept.as_ref().map_or("", |kept| &kept.header.fixed);
        let fix = if fixed.is_empty() { Fix::default() } else { Fix::parse(fixed).expect("was read") };
        let made_at = kept.as_ref().map_or(profile.measured_at, |kept| kept.header.made_at);
        let derived = plan_from_profile(&profile, &fix, made_at);
        let derived = derived.unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Some(kept) = kept {
            let difference = report::diff(&kept, &derived);
            assert!(difference.is_empty(), "{name}, kept and derived:\n{}", report::diff::text(&difference));
            assert_eq!(kept, derived, "{name}");
        }
        let (text, shown) = (file.with_extension("txt"), told(&derived));
        let screen = report::text(&derived, derived.header.made_at);
        assert!(screen.lines().count() <= 24, "{name}: more than a screen\n{screen}");
        assert!(
            screen.lines().all(|line| line.chars().count() <= 100),
            "{name}: wider than a screen\n{screen}"
        );
        if update {
            fs::write(&text, &shown).expect("the checkout is writable");
        }
        let found = fs::read_to_string(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found, shown, "{name}: the text beside it is that of another plan");
    }
}

/// Whoever opens the folder fetches it with the sources.
#[test]
fn a_machines_profile_and_plan_are_small() {
    let size =
        |file: &Path| fs::metadata(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
    let kept: Vec<PathBuf> = profiles().into_iter().filter(|file| *file != machine_profile()).collect();
    assert!(kept.len() >= 2, "{kept:?}");
    for file in kept {
        let bytes = size(&file) + size(&file.with_extension("plan"));
        assert!(bytes <= MOST_PLANNED_BYTES, "{}: {bytes} bytes with its plan", file.display());
    }
}

/// What is fetched with the sources stays small: `git ls-files` knows what that is.
#[test]
fn no_file_of_the_repository_is_large() {
    let listed = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = listed.expect("the sources are a checkout of git");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("UTF-8");
    let names: Vec<&str> = names.split_terminator('\0').collect();
    assert!(names.len() > 500, "{} files", names.len());
    // A file that was removed and not yet committed has no size.
    let size = |name: &str| fs::metadata(root().join(name)).map_or(0, |found| found.len());
    let large: Vec<_> = names.iter().filter(|name| size(name) > MOST_BYTES).collect();
    assert!(large.is_empty(), "above {MOST_BYTES} bytes: {large:?}");
}
