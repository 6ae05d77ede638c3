//! Plans made on first use, one per machine, model, drafter model, threads, instruction set, activations, cache, build
//! (its kernels, and the formats in which it reads drafter models), format of profiles, and budget of memory if the
//! plan divides one.
//!
//! ```text
//! <cache>/plans/KEY.profile   the profile, as `yggc profile` writes it
//! <cache>/plans/KEY.plan      the plan made from it, written after it
//! <cache>/plans/KEY.refined   after `yggc plan refine`
//! <cache>/plans/KEY.failure   why no plan could be made, so that it is not tried again on every run, but an hour later
//! <cache>/plans/lock
//! ```
//!
//! Invariants: files appear complete by a rename, the plan last, so a plan that exists is complete; the key
//! is a digest of the fingerprints, and the plan's own fingerprints are compared as well; only the holder of the
//! lock writes, so partial files that it finds were left by a dead process, and are removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};
use ygg_profiler::{BuildFingerprint, Fingerprints, ModelFingerprint, Profile};
use yggc::{
    measure::profile_file::{self, PROFILE_FORMAT},
    plan::{self, FittedPlan, Plan, PlanError},
    planner::MemoryBudget,
    storage::{LockedFile, replace_file},
};

use crate::cli::{
    cache::{CacheDir, CacheError, hex, take_lock},
    error::Failure,
};

/// Time after which a plan that could not be made is tried again: what was in its way, such as another program's load,
/// may be gone.
const RETRY_AFTER: Duration = Duration::from_secs(3600);

/// The place of the cached plan of one set of fingerprints; the plan may not exist.
#[derive(Debug)]
pub(crate) struct CachedPlan {
    folder: PathBuf,
    key: String,
    here: Fingerprints,
    /// Whether the plan divides a budget of memory, and so says itself how many bytes of weights stay.
    divides_memory: bool,
}

/// Content of the cache for one set of fingerprints.
#[derive(Debug)]
pub(crate) enum Found {
    Plan(Box<Plan>),
    Nothing,
    /// The reason why no plan could be made.
    Failure(String),
    /// Why the cached file cannot be used.
    Unusable(PlanError),
}

impl CachedPlan {
    /// Includes the fingerprint of a drafter model, if there is one, and the budget of memory that the plan divides, if
    /// it divides one.
    pub(crate) fn new(
        cache: &CacheDir,
        here: Fingerprints,
        draft_digest: Option<&str>,
        budget: Option<MemoryBudget>,
    ) -> Self {
        let budget = budget.map(|MemoryBudget { bytes, context }| format!("{bytes} bytes, {context} tokens"));
        let added: Vec<&str> = draft_digest.into_iter().chain(budget.as_deref()).collect();
        let key = key(&here, PROFILE_FORMAT, &added);
        Self { folder: cache.plans(), key, here, divides_memory: budget.is_some() }
    }

    /// Path of the plan.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.plan", self.key))
    }

    /// Path of the profile.
    pub(crate) fn profile_path(&self) -> PathBuf {
        self.folder.join(format!("{}.profile", self.key))
    }

    /// Path of the reason why no plan could be made.
    pub(crate) fn failure_path(&self) -> PathBuf {
        self.folder.join(format!("{}.failure", self.key))
    }

    /// Path of the file that says that the plan was refined.
    pub(crate) fn refined_path(&self) -> PathBuf {
        self.folder.join(format!("{}.refined", self.key))
    }

    pub(crate) fn find(&self) -> Found {
        let path = self.path();
        if !path.exists() {
            return self.fresh_failure().map_or(Found::Nothing, Found::Failure);
        }
        let fitted = |plan: Plan| {
            let mut here = self.here.clone();
            if self.divides_memory {
                here.machine.resident_bytes = plan.header.fingerprints.machine.resident_bytes;
            }
            FittedPlan::new(plan, &here)
        };
        match plan::read(&path).and_then(fitted) {
            Ok(fitted) => Found::Plan(Box::new((*fitted).clone())),
            Err(why) => Found::Unusable(why),
        }
    }

    /// The reason of a failure that is not old; an unreadable one counts as none.
    fn fresh_failure(&self) -> Option<String> {
        let path = self.failure_path();
        let age = fs::metadata(&path).ok()?.modified().ok()?.elapsed().unwrap_or_default();
        (age < RETRY_AFTER).then(|| fs::read_to_string(path).ok())?
    }

    /// Takes the lock of all plans: measurements of two processes would disturb each other. `on_wait` is called before
    /// waiting for another process.
    pub(crate) fn lock(&self, on_wait: impl FnOnce()) -> Result<LockedPlan<'_>, CacheError> {
        fs::create_dir_all(&self.folder).map_err(CacheError::at("create", &self.folder))?;
        let lock = take_lock(&self.folder.join("lock"), on_wait)?;
        let entries = fs::read_dir(&self.folder).map_err(CacheError::at("list", &self.folder))?;
        for entry in entries.flatten() {
            if is_half_written(&entry.path()) {
                // A partial file that cannot be removed does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(LockedPlan { place: self, _lock: lock })
    }
}

/// The place of a plan while this process holds the lock.
#[derive(Debug)]
pub(crate) struct LockedPlan<'a> {
    place: &'a CachedPlan,
    _lock: LockedFile,
}

impl LockedPlan<'_> {
    /// Stores a plan with the profile it was made from. It is not refined until [`store_refined`](Self::store_refined).
    pub(crate) fn store(&self, profile: &Profile, plan: &Plan) -> Result<(), Failure> {
        // A mark that stays says too much of the next plan, and costs no more than its refinement.
        let _ = fs::remove_file(self.place.refined_path());
        profile_file::write(profile, &self.place.profile_path())?;
        Ok(plan::write(plan, &self.place.path())?)
    }

    /// Stores a plan that was measured for longer, and says so. A process that is killed before leaves the former one.
    pub(crate) fn store_refined(&self, profile: &Profile, plan: &Plan) -> Result<(), Failure> {
        self.store(profile, plan)?;
        let path = self.place.refined_path();
        Ok(replace_file(&path, b"yggc plan refine\n").map_err(CacheError::at("write", &path))?)
    }

    /// Stores why no plan could be made, and removes an unusable plan, which would hide the reason.
    pub(crate) fn store_failure(&self, reason: &str) -> Result<(), CacheError> {
        let path = self.place.failure_path();
        replace_file(&path, reason.as_bytes()).map_err(CacheError::at("write", &path))?;
        match fs::remove_file(self.place.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CacheError::at("remove", &self.place.path())(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Whether this is a partial file that a killed writer left (see [`yggc::storage::replace_file`]).
fn is_half_written(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') && name.ends_with(".partial")
}

/// A digest of everything that decides whether a plan fits and its profile can be read; the model's name is not part of
/// it.
fn key(here: &Fingerprints, profile_format: u32, added: &[&str]) -> String {
    let Fingerprints { machine, model: ModelFingerprint { name: _, digest: model }, build } = here;
    let BuildFingerprint { plan_format, kernels, draft_formats } = build;
    let mut hasher = Sha256::new();
    let (machine, format, profile_format) =
        (machine.digest(), plan_format.to_string(), profile_format.to_string());
    let facts = [&machine, model, &format, &profile_format, kernels, draft_formats].map(String::as_str);
    for fact in facts.iter().chain(added) {
        hasher.update((fact.len() as u64).to_le_bytes());
        hasher.update(fact);
    }
    hex(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use ygg_profiler::MachineFingerprint;

    use super::*;
    use crate::cli::args::Environment;

    fn here() -> Fingerprints {
        Fingerprints {
            machine: MachineFingerprint::from_cpuinfo("vendor_id : X\n", 2, "portable").unwrap(),
            model: ModelFingerprint { name: "tiny".to_owned(), digest: "d".to_owned() },
            build: BuildFingerprint {
                plan_format: 1,
                kernels: "k".to_owned(),
                draft_formats: "f16 in q8_0".to_owned(),
            },
        }
    }

    #[test]
    fn the_key_follows_from_every_fact_but_the_name() {
        let changes: [fn(&mut Fingerprints); 9] = [
            |f| f.machine.threads = 3,
            |f| f.machine.isa.push_str(", native activations"),
            |f| f.machine.isa.push_str(", q8 cache"),
            |f| f.model.digest = "e".to_owned(),
            |f| f.build.plan_format = 2,
            |f| f.build.kernels = "l".to_owned(),
            |f| f.build.draft_formats = "f16 in q4_0".to_owned(),
            |f| f.machine.gpu = Some("H200".to_owned()),
            |f| f.machine.driver = Some("580".to_owned()),
        ];
        let key = |here: &Fingerprints, draft_digest: Option<&str>| key(here, 1, draft_digest.as_slice());
        for change in changes {
            let mut other = here();
            change(&mut other);
            assert_ne!(key(&other, None), key(&here(), None));
        }
        assert_ne!(super::key(&here(), 2, &[]), key(&here(), None));
        assert_ne!(key(&here(), Some("e")), key(&here(), None));
        assert_ne!(key(&here(), Some("e")), key(&here(), Some("f")));
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::resolve(Some(folder.path().to_owned()), &Environment::default()).unwrap();
        let within = |bytes, context| {
            let budget = MemoryBudget { bytes, context };
            CachedPlan::new(&cache, here(), None, Some(budget)).key
        };
        assert_ne!(within(1, 2), key(&here(), None));
        assert!(within(1, 2) != within(2, 2) && within(1, 2) != within(1, 3));
        let mut renamed = here();
        renamed.model.name = "other".to_owned();
        assert_eq!(key(&renamed, None), key(&here(), None));
    }

    /// A plan of the kept profile's latencies alone, which is said to be made here.
    fn plan() -> Plan {
        let kept =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/profiles/amd-epyc-zen4-2-threads.profile");
        let mut profile = profile_file::read(&kept).unwrap();
        profile.measurements.retain(|measured| measured.cell.stage.drafter().is_none());
        profile.drafters.clear();
        profile.traces.clear();
        profile.live_traces.clear();
        profile.fingerprints = here();
        yggc::planner::plan_from_profile(&profile, &yggc::planner::Fix::default(), profile.measured_at)
            .unwrap()
    }

    #[test]
    fn a_plan_of_another_build_is_made_anew_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::resolve(Some(folder.path().to_owned()), &Environment::default()).unwrap();
        let place = CachedPlan::new(&cache, here(), None, None);
        fs::create_dir_all(cache.plans()).unwrap();
        let mut plan = plan();
        plan::write(&plan, &place.path()).unwrap();
        assert!(matches!(place.find(), Found::Plan(_)));
        plan.header.fingerprints.build.draft_formats = "f16 in q4_0".to_owned();
        plan::write(&plan, &place.path()).unwrap();
        let Found::Unusable(why) = place.find() else { panic!("a plan of another build was used") };
        let expected = "formats of drafter models: expected `f16 in q4_0`, found `f16 in q8_0`";
        assert!(why.to_string().contains(expected), "{why}");
        // Where its own build would look, it is not even seen.
        let other = CachedPlan::new(&cache, plan.header.fingerprints, None, None);
        assert!(matches!(other.find(), Found::Nothing));
    }

    #[test]
    fn what_a_dead_writer_left_is_removed_and_no_plan() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::resolve(Some(folder.path().to_owned()), &Environment::default()).unwrap();
        let place = CachedPlan::new(&cache, here(), None, None);
        assert!(matches!(place.find(), Found::Nothing));
        fs::create_dir_all(cache.plans()).unwrap();
        let half = cache.plans().join(format!(".{}.plan.123.partial", place.key));
        fs::write(&half, "YGGPLAN").unwrap();
        let kept = cache.plans().join("other.plan");
        fs::write(&kept, "").unwrap();
        assert!(matches!(place.find(), Found::Nothing));
        place.lock(|| panic!("nobody holds the lock")).unwrap();
        assert!(!half.exists() && kept.exists());

        fs::write(place.path(), "YGGPLAN\0 cut").unwrap();
        assert!(matches!(place.find(), Found::Unusable(_)));
    }
}
