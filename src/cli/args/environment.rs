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
    pub(crate) home: Option<OsString>,
    pub(crate) hub: HubEnvironment,
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
            home: read("HOME"),
            hub: HubEnvironment {
                endpoint: set("HF_ENDPOINT"),
                home: set("HF_HOME"),
                cache: set("HF_HUB_CACHE"),
                token: set("HF_TOKEN"),
                token_path: set("HF_TOKEN_PATH"),
                offline: set("HF_HUB_OFFLINE"),
            },
        }
    }

    /// The folder of caches. As the XDG specification asks, a relative path counts as none.
    pub(crate) fn caches(&self) -> Option<PathBuf> {
        let absolute =
            |value: &Option<OsString>| value.clone().map(PathBuf::from).filter(|folder| folder.is_absolute());
        absolute(&self.xdg_cache_home).or_else(|| absolute(&self.home).map(|home| home.join(".cache")))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("xdg_cache_home", &self.xdg_cache_home)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}
