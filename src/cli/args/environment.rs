//! The environment, read in this file alone.

use std::{ffi::OsString, fmt, path::PathBuf};

/// The variables that are read: folders for the cache, settings of the Hugging Face hub, the key of the service, which
/// as an argument every user of the machine could see, and whether spans are sent. OpenTelemetry's crates read its
/// other variables by themselves.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    #[cfg(feature = "serve")]
    pub(crate) api_key: Option<OsString>,
    #[cfg(feature = "serve")]
    pub(crate) asks_for_spans: bool,
    #[cfg(feature = "serve")]
    pub(crate) span_timeout: Option<OsString>,
    pub(crate) xdg_cache_home: Option<OsString>,
    /// Set on Windows, as `user_profile` is.
    pub(crate) local_app_data: Option<OsString>,
    pub(crate) user_profile: Option<OsString>,
    pub(crate) home: Option<OsString>,
    pub(crate) hub: HubEnvironment,
    pub(crate) pip_index_url: Option<OsString>,
    pub(crate) ssl_cert_file: Option<OsString>,
}

/// The variables of Hugging Face's programs.
#[derive(Clone, Default)]
pub(crate) struct HubEnvironment {
    pub(crate) endpoint: Option<OsString>,
    pub(crate) home: Option<OsString>,
    pub(crate) cache: Option<OsString>,
    pub(crate) token: Option<OsString>,
    pub(crate) token_path: Option<OsString>,
    pub(crate) offline: Option<OsString>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
        let read = std::env::var_os;
        let set = |variable| read(variable).filter(|value| !value.is_empty());
        Self {
            #[cfg(feature = "serve")]
            api_key: read("YGGC_API_KEY"),
            #[cfg(feature = "serve")]
            asks_for_spans: (set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").is_some()
                || set("OTEL_EXPORTER_OTLP_ENDPOINT").is_some())
                && set("OTEL_TRACES_EXPORTER").is_none_or(|exporter| exporter != "none")
                && set("OTEL_SDK_DISABLED").is_none_or(|value| !value.eq_ignore_ascii_case("true")),
            #[cfg(feature = "serve")]
            span_timeout: set("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
                .or_else(|| set("OTEL_EXPORTER_OTLP_TIMEOUT")),
            xdg_cache_home: read("XDG_CACHE_HOME"),
            local_app_data: read("LOCALAPPDATA"),
            user_profile: read("USERPROFILE"),
            home: read("HOME"),
            hub: HubEnvironment {
                endpoint: set("HF_ENDPOINT"),
                home: set("HF_HOME"),
                cache: set("HF_HUB_CACHE"),
                token: set("HF_TOKEN"),
                token_path: set("HF_TOKEN_PATH"),
                offline: set("HF_HUB_OFFLINE"),
            },
            pip_index_url: set("PIP_INDEX_URL"),
            ssl_cert_file: set("SSL_CERT_FILE"),
        }
    }

    /// The folder of caches of programs. As the XDG specification asks, a relative path counts as none. Shells of Unix
    /// set `HOME` on Windows too, so it comes last.
    pub(crate) fn caches(&self) -> Option<PathBuf> {
        absolute(self.xdg_cache_home.as_ref())
            .or_else(|| absolute(self.local_app_data.as_ref()))
            .or_else(|| absolute(self.home.as_ref()).map(|home| home.join(".cache")))
    }

    /// The folder that programs in Python take for caches, those of Hugging Face among them.
    pub(crate) fn caches_of_python(&self) -> Option<PathBuf> {
        let home = || absolute(self.user_profile.as_ref()).or_else(|| absolute(self.home.as_ref()));
        absolute(self.xdg_cache_home.as_ref()).or_else(|| home().map(|home| home.join(".cache")))
    }
}

fn absolute(value: Option<&OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|folder| folder.is_absolute())
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("xdg_cache_home", &self.xdg_cache_home)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}
