//! A hub in this process: one repository, whose files it serves as the real one does.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use sha2::{Digest, Sha256};

/// The commit of the one branch.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the hub has, and how it behaves.
#[derive(Default)]
pub(crate) struct Repository {
    /// `OWNER/REPO`.
    pub(crate) name: &'static str,
    /// By path.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Without it nothing is shown.
    pub(crate) token: Option<&'static str>,
    /// Ends the next transfer of this file after so many bytes.
    pub(crate) cut: Option<(&'static str, usize)>,
    /// Answers with other content than announced.
    pub(crate) lies: bool,
}

impl Repository {
    pub(crate) fn new(name: &'static str, files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
        Self { name, files, ..Self::default() }
    }
}

/// The hub while it runs; dropping it ends it.
pub(crate) struct Hub {
    address: SocketAddr,
    repository: Arc<Mutex<Repository>>,
    requests: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl Hub {
    pub(crate) fn new(repository: Repository) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let (repository, requests) = (Arc::new(Mutex::new(repository)), Arc::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let (of_thread, log, over) = (Arc::clone(&repository), Arc::clone(&requests), Arc::clone(&is_over));
        let serving = thread::spawn(move || {
            for connection in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                // A client that leaves in the middle is none of the hub's concern.
                let _ = connection.and_then(|stream| answer(&stream, address, &of_thread, &log));
            }
        });
        Self { address, repository, requests, is_over, serving: Some(serving) }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn repository(&self) -> MutexGuard<'_, Repository> {
        self.repository.lock().expect("no test panicked with it")
    }

    /// What was asked for since the last call: paths, and ranges after them.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().expect("the hub does not panic"))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        let _ = self.serving.take().map(JoinHandle::join);
    }
}

fn answer(
    stream: &TcpStream,
    address: SocketAddr,
    repository: &Mutex<Repository>,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let range = headers.get("range").map(String::as_str);
    log.lock().expect("no test panicked with it").push(format!("{path} {}", range.unwrap_or("")));
    let mut repository = repository.lock().expect("no test panicked with it");
    let token = repository.token.map(|token| format!("Bearer {token}"));
    let mut out = stream;
    if token.is_some() && headers.get("authorization") != token.as_ref() {
        return out.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let name = repository.name;
    if path == format!("/api/models/{name}/revision/main") {
        let siblings: Vec<_> =
            repository.files.keys().map(|file| serde_json::json!({"rfilename": file})).collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        return out.write_all((head + &body).as_bytes());
    }
    let resolved = ["main", COMMIT].map(|revision| format!("/{name}/resolve/{revision}/"));
    let on_hub = resolved.iter().find_map(|prefix| path.strip_prefix(prefix.as_str()));
    let on_store = path.strip_prefix("/store/");
    let file = on_hub.or(on_store).filter(|file| repository.files.contains_key(*file)).map(str::to_owned);
    let Some(file) = file else {
        return out.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let mut content = repository.files[&file].clone();
    let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    // Large files are elsewhere, and known by their SHA-256.
    if on_hub.is_some() && [".gguf", ".safetensors"].iter().any(|end| file.ends_with(end)) {
        let head = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{address}/store/{file}\r\nX-Linked-Etag: \"{digest}\"\r\n\
             X-Repo-Commit: {COMMIT}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        return out.write_all(head.as_bytes());
    }
    let (first, last) =
        range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')).unwrap_or(("0", ""));
    let first: usize = first.parse().unwrap_or_default();
    let end = last.parse().map_or(content.len(), |last: usize| (last + 1).min(content.len()));
    if repository.lies {
        content.iter_mut().for_each(|byte| *byte ^= 1);
    }
    let mut body = content.get(first..end).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/{}\r\nContent-Length: {}\r\n\
         ETag: \"{}\"\r\nX-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n",
        end.saturating_sub(1),
        content.len(),
        body.len(),
        // As short as those of git.
        &digest[..40]
    );
    out.write_all(head.as_bytes())?;
    if repository.cut.is_some_and(|(name, _)| name == file) && range != Some("bytes=0-0") {
        let (_, bytes) = repository.cut.take().expect("just seen");
        body = &body[..bytes];
    }
    out.write_all(body)
}
