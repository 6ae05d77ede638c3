//! Drafter models that come with the program: they are inside it, and are unpacked into the cache where one is needed.
//!
//! ```text
//! <cache>/drafters/NAME/   its files, each put there whole by one rename
//! ```
//!
//! A profile names a shipped drafter by its folder in the repository, so that neither it nor a plan made from it depends on
//! whose cache it was measured from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ygg_profiler::{Profile, replace_file};
use yggc::{
    model::Model,
    plan::{DrafterFile, Plan, SubPlan},
};

use crate::cli::cache::{CacheDir, CacheError, CachePlace};

/// A drafter model inside the program.
#[derive(Debug)]
struct ShippedDrafter {
    name: &'static str,
    /// Its folder in the repository.
    folder: &'static str,
    /// Fingerprint of the one model that it was trained for.
    verifier: &'static str,
    /// Its own fingerprint.
    digest: &'static str,
    /// `(file name, content)`.
    files: [(&'static str, &'static [u8]); 2],
}

/// Every drafter model that is shipped; each card says what it was made from.
const SHIPPED: [ShippedDrafter; 1] = [ShippedDrafter {
    name: "smollm2-135m-instruct-drafter",
    folder: "plans/smollm2-135m-instruct-drafter",
    verifier: "9acbbaa44eaf0ae37ef256cf2033c6d10613ca28283a2b3825c962517d9653ce",
    digest: "721fe382e1c48cc082cdbd2548195cdc36de27eb8d82ba593265a36fd64d5a6d",
    files: [
        ("config.json", include_bytes!("../../plans/smollm2-135m-instruct-drafter/config.json")),
        ("model.safetensors", include_bytes!("../../plans/smollm2-135m-instruct-drafter/model.safetensors")),
    ],
}];

impl ShippedDrafter {
    /// Its folder in the cache, unpacked unless it is there to the byte.
    fn unpacked(&self, cache: &CacheDir) -> Result<PathBuf, CacheError> {
        let folder = cache.drafters().join(self.name);
        for (name, content) in self.files {
            let path = folder.join(name);
            if is_there(&path, content).map_err(CacheError::at("read", &path))? {
                continue;
            }
            fs::create_dir_all(&folder).map_err(CacheError::at("create", &folder))?;
            replace_file(&path, content).map_err(CacheError::at("write", &path))?;
        }
        Ok(folder)
    }
}

fn is_there(path: &Path, content: &[u8]) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) if found.len() == content.len() as u64 => Ok(fs::read(path)? == content),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The folder of the drafter model that is shipped for `model`, if one is.
///
/// # Errors
/// [`CacheError`] if it cannot be unpacked.
pub(crate) fn for_model(model: &Model, cache: &CachePlace) -> Result<Option<PathBuf>, CacheError> {
    let digest = model.fingerprint().to_string();
    let shipped = SHIPPED.iter().find(|shipped| shipped.verifier == digest);
    shipped.map(|shipped| shipped.unpacked(&cache.dir()?)).transpose()
}

/// Says in a plan where the shipped drafter models are that it runs.
///
/// # Errors
/// [`CacheError`] if one cannot be unpacked.
pub(crate) fn find_for_plan(plan: &mut Plan, cache: &CachePlace) -> Result<(), CacheError> {
    for shipped in &SHIPPED {
        let runs_it = |sub_plan: &SubPlan| {
            sub_plan.drafter.draft_model().is_some_and(|file| file.digest == shipped.digest)
        };
        let of_bands = plan.bands.iter_mut().flat_map(|band| &mut band.by_drafter);
        let mut running = plan.by_drafter.iter_mut().chain(of_bands).filter(|plan| runs_it(plan)).peekable();
        if running.peek().is_none() {
            continue;
        }
        let path = shipped.unpacked(&cache.dir()?)?.display().to_string();
        let file = DrafterFile { path, digest: shipped.digest.to_owned() };
        running.for_each(|sub_plan| sub_plan.drafter = sub_plan.drafter.clone().with_draft_model_at(&file));
    }
    Ok(())
}

/// Names the shipped drafter models of a profile as the repository does, wherever they were measured from.
pub(crate) fn name_in_profile(profile: &mut Profile) {
    for file in profile.drafters.iter_mut().filter_map(|drafter| drafter.file.as_mut()) {
        if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.digest == file.digest) {
            shipped.folder.clone_into(&mut file.path);
        }
    }
}

/// Says in a profile where the shipped drafter models are that it measured.
///
/// # Errors
/// [`CacheError`] if one cannot be unpacked.
pub(crate) fn find_for_profile(profile: &mut Profile, cache: &CachePlace) -> Result<(), CacheError> {
    for file in profile.drafters.iter_mut().filter_map(|drafter| drafter.file.as_mut()) {
        if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.digest == file.digest) {
            file.path = shipped.unpacked(&cache.dir()?)?.display().to_string();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use yggc::engine::DraftModel;

    use super::*;
    use crate::cli::args::Environment;

    fn cache() -> (tempfile::TempDir, CachePlace) {
        let folder = tempfile::tempdir().unwrap();
        let flag = Some(folder.path().to_owned());
        let place = CachePlace { flag, environment: Environment::default(), keeps_packed: false };
        (folder, place)
    }

    #[test]
    fn what_is_unpacked_is_what_the_repository_keeps_and_is_mended() {
        let (_folder, cache) = cache();
        let cache = cache.dir().unwrap();
        for shipped in &SHIPPED {
            let folder = shipped.unpacked(&cache).unwrap();
            assert_eq!(DraftModel::open(&folder).unwrap().fingerprint().to_string(), shipped.digest);
            let kept = DraftModel::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(shipped.folder)).unwrap();
            assert_eq!(kept.fingerprint().to_string(), shipped.digest);
            for (name, content) in shipped.files {
                let mut damaged = content.to_vec();
                damaged[content.len() / 2] ^= 1;
                for wrong in [&damaged[..], &content[1..]] {
                    fs::write(folder.join(name), wrong).unwrap();
                    assert_eq!(shipped.unpacked(&cache).unwrap(), folder);
                    assert!(fs::read(folder.join(name)).unwrap() == content, "{name}");
                }
            }
            let bytes: usize = shipped.files.iter().map(|(_, content)| content.len()).sum();
            assert!(bytes < 16 << 20, "{}: {bytes} bytes in every program", shipped.name);
        }
    }

    #[test]
    fn the_kept_plan_of_the_default_model_runs_what_is_shipped() {
        let (folder, cache) = cache();
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/amd-epyc-zen4-2-threads");
        let mut profile = Profile::read(&kept.join("smollm2-135m-instruct.profile")).unwrap();
        assert_eq!(profile.fingerprints.model.digest, SHIPPED[0].verifier);
        let mut plan = yggc::plan::read(&kept.join("smollm2-135m-instruct.plan")).unwrap();
        let at = |plan: &Plan| -> Vec<String> {
            let models = plan.by_drafter.iter().filter_map(|sub_plan| sub_plan.drafter.draft_model());
            models.map(|file| file.path.clone()).collect()
        };
        assert!(!at(&plan).is_empty() && at(&plan).iter().all(|path| path == SHIPPED[0].folder));
        find_for_plan(&mut plan, &cache).unwrap();
        assert!(at(&plan).iter().all(|path| Path::new(path).starts_with(folder.path())));
        let before = profile.clone();
        find_for_profile(&mut profile, &cache).unwrap();
        assert_ne!(profile, before);
        name_in_profile(&mut profile);
        assert_eq!(profile, before);
    }
}
