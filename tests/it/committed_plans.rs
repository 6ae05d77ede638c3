//! The plans that are kept for known machines: each follows from the profile beside it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ygg_profiler::Profile;
use yggc::{
    measure::plan_from_profile,
    plan::{self, Fix, PLAN_FORMAT},
};

/// Every `plans/MACHINE/NAME.profile`.
fn profiles() -> Vec<PathBuf> {
    let folders = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).expect("listed").map(|entry| entry.expect("listed").path()).collect()
    };
    let machines = folders(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plans"));
    let mut files: Vec<PathBuf> =
        machines.iter().filter(|path| path.is_dir()).flat_map(|machine| folders(machine)).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "profile"));
    files.sort();
    files
}

#[test]
fn every_committed_plan_follows_from_its_profile() {
    let profiles = profiles();
    assert!(!profiles.is_empty(), "no profile is kept");
    for file in profiles {
        let name = file.display();
        let profile = Profile::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let format = profile.fingerprints.build.plan_format;
        assert_eq!(format, PLAN_FORMAT, "{name} is for plans of another format: profile that machine again");
        let kept = plan::read(&file.with_extension("plan")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let fix =
            if kept.fixed.is_empty() { Fix::default() } else { Fix::parse(&kept.fixed).expect("was read") };
        let derived = plan_from_profile(&profile, &fix).unwrap_or_else(|error| panic!("{name}: {error}"));
        let difference = plan::diff(&kept, &derived);
        assert!(difference.is_empty(), "{name}, kept and derived:\n{}", plan::diff::text(&difference));
        assert_eq!(kept, derived, "{name}");
        let shown =
            fs::read_to_string(file.with_extension("txt")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(shown, plan::text(&kept), "{name}: the text beside it is that of another plan");
        let bytes = fs::metadata(file.with_extension("plan")).expect("read above").len();
        assert!(bytes < 1_000_000, "{name}: {bytes} bytes for a plan that is fetched with the sources");
    }
}
