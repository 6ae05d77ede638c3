//! Settings of Hugging Face's programs from the environment: `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`,
//! `HF_TOKEN_PATH`, `HF_HUB_OFFLINE`.

use std::{ffi::OsString, fmt, fs, path::PathBuf};

use super::HubError;
use crate::cli::args::Environment;

/// Default address of the hub.
const ENDPOINT: &str = "https://huggingface.co";

/// Address of the hub, its cache, and the user's token.
pub(crate) struct HubSettings {
    /// Without a `/` at its end.
    pub(super) endpoint: String,
    /// Folder of repositories, absolute.
    pub(crate) cache: PathBuf,
    pub(super) token: Option<String>,
    /// Whether no request may be made.
    pub(super) offline: bool,
}

impl HubSettings {
    /// # Errors
    /// If the environment names no folder for the cache, or a variable is not UTF-8.
    pub(crate) fn new(environment: &Environment) -> Result<Self, HubError> {
        let hub = &environment.hub;
        let home = || {
            let folder = hub.home.clone().map(PathBuf::from);
            let caches = environment.caches_of_python().map(|caches| caches.join("huggingface"));
            folder.or(caches).ok_or(HubError::NoFolder)
        };
        let cache = match &hub.cache {
            Some(folder) => folder.into(),
            None => home()?.join("hub"),
        };
        let cache = std::path::absolute(&cache).map_err(|_| HubError::NoFolder)?;
        let endpoint = text("HF_ENDPOINT", hub.endpoint.as_ref())?.unwrap_or_else(|| ENDPOINT.to_owned());
        let token = match text("HF_TOKEN", hub.token.as_ref())? {
            Some(token) => Some(token),
            None => {
                let file = hub.token_path.clone().map(PathBuf::from);
                let file = file.map_or_else(|| home().map(|home| home.join("token")), Ok);
                // Public models need no token.
                file.ok().and_then(|file| fs::read_to_string(file).ok())
            }
        };
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let offline = text("HF_HUB_OFFLINE", hub.offline.as_ref())?;
        let is_yes = |text: String| matches!(&*text.to_ascii_lowercase(), "1" | "on" | "yes" | "true");
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { endpoint, cache, token, offline: offline.is_some_and(is_yes) })
    }
}

impl fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, cache, token: _, offline } = self;
        f.debug_struct("HubSettings")
            .field("endpoint", endpoint)
            .field("cache", cache)
            .field("offline", offline)
            .finish_non_exhaustive()
    }
}

/// A variable that must be text, if it is set.
fn text(variable: &'static str, value: Option<&OsString>) -> Result<Option<String>, HubError> {
    value.map(|value| value.clone().into_string().map_err(|_| HubError::NotText { variable })).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::HubEnvironment;

    fn settings(hub: HubEnvironment) -> HubSettings {
        HubSettings::new(&Environment { hub, home: Some("/me".into()), ..Environment::default() }).unwrap()
    }

    #[test]
    fn the_environments_words_are_those_of_the_hubs_own_programs() {
        let plain = settings(HubEnvironment::default());
        assert_eq!(plain.endpoint, "https://huggingface.co");
        assert_eq!(plain.cache, PathBuf::from("/me/.cache/huggingface/hub"));
        assert!(plain.token.is_none() && !plain.offline);

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), " secret\n").unwrap();
        let set = settings(HubEnvironment {
            endpoint: Some("http://127.0.0.1:8/".into()),
            home: Some(folder.path().into()),
            offline: Some("1".into()),
            ..HubEnvironment::default()
        });
        assert_eq!((&*set.endpoint, set.cache), ("http://127.0.0.1:8", folder.path().join("hub")));
        assert_eq!((set.token.as_deref(), set.offline), (Some("secret"), true));

        let others = settings(HubEnvironment {
            home: Some(folder.path().into()),
            cache: Some("/caches/hub".into()),
            token: Some("other".into()),
            offline: Some("0".into()),
            ..HubEnvironment::default()
        });
        assert_eq!((others.cache, others.token.as_deref()), (PathBuf::from("/caches/hub"), Some("other")));
        assert!(!others.offline);
        assert!(
            !format!(
                "{:?}",
                settings(HubEnvironment { token: Some("secret".into()), ..HubEnvironment::default() })
            )
            .contains("secret")
        );
    }

    #[test]
    fn without_a_folder_the_variable_is_named() {
        let error = HubSettings::new(&Environment::default()).unwrap_err().to_string();
        assert!(error.contains("HF_HOME"), "{error}");
    }
}
