//! `packaging/install.sh` over archives as `.ci/release` makes them.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

const MUSL: &str = "unknown-linux-musl";
const GNU: &str = "unknown-linux-gnu";

/// A release in a folder, and a place to install into.
struct Release {
    folder: tempfile::TempDir,
}

impl Release {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prefix(&self) -> PathBuf {
        self.path("home/.local")
    }

    /// Adds the archive of a version for a machine, and one of its symbols. Its program says what it is.
    fn add(&self, version: &str, triple: &str, page: &str) {
        let name = format!("yggc-{version}-{triple}");
        let mut archive = Archive::default();
        let program = format!("#!/bin/sh\necho yggc {version} {triple}\n");
        archive.file(&format!("{name}/yggc"), 0o755, program.as_bytes());
        archive.file(&format!("{name}/man/man1/{page}"), 0o644, b"a page");
        for completions in ["yggc.bash", "_yggc", "yggc.fish"] {
            archive.file(&format!("{name}/completions/{completions}"), 0o644, b"words");
        }
        archive.file(&format!("{name}/LICENSE"), 0o644, b"Apache");
        archive.file(&format!("{name}/LICENSES-OF-DEPENDENCIES.txt"), 0o644, b"others");
        let bytes = archive.end();
        fs::create_dir_all(self.path("release")).expect("a folder");
        fs::write(self.path(&format!("release/{name}.tar.gz")), &bytes).expect("it is written");
        fs::write(self.path(&format!("release/{name}-symbols.tar.gz")), b"symbols").expect("it is written");
        self.sum();
    }

    /// Writes the digests of what is there.
    fn sum(&self) {
        let folder = fs::read_dir(self.path("release")).expect("a folder");
        let mut names: Vec<String> = folder
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
            .filter(|name| name.ends_with(".tar.gz"))
            .collect();
        names.sort();
        let line = |name: &String| {
            let bytes = fs::read(self.path(&format!("release/{name}"))).expect("it is there");
            let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digest}  {name}\n")
        };
        let sums: String = names.iter().map(line).collect();
        fs::write(self.path("release/SHA256SUMS"), sums).expect("it is written");
    }

    /// Runs the script with these arguments, on a machine with or without an NVIDIA driver.
    fn run(&self, has_driver: bool, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/install.sh");
        let driver = if has_driver { self.folder.path().to_owned() } else { self.path("no driver") };
        let mut command = Command::new("sh");
        command.arg(script).args(arguments).env("HOME", self.path("home")).env("YGGC_NVIDIA", driver);
        command.env_remove("YGGC_PREFIX").env("YGGC_RELEASES", self.path("release"));
        command.output().expect("a shell")
    }

    /// What the installed program says.
    fn installed(&self) -> String {
        let output = Command::new(self.prefix().join("bin/yggc")).output().expect("it is installed");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// The installed files, below the prefix.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() { walk(&path, files) } else { files.push(path) }
            }
        }
        let mut files = Vec::new();
        walk(&self.prefix(), &mut files);
        let below = |path: PathBuf| path.strip_prefix(self.prefix()).expect("below").display().to_string();
        let mut files: Vec<String> = files.into_iter().map(below).collect();
        files.sort();
        files
    }
}

/// A tar archive of files, as POSIX.1-1988 lays it out.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let mut head = [0_u8; 512];
        let mut put =
            |place: usize, text: &str| head[place..place + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(124, &format!("{:011o}", bytes.len()));
        put(136, &format!("{:011o}", 0));
        put(148, "        ");
        put(156, "0");
        put(257, "ustar");
        put(263, "00");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(head);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&self.0).expect("memory");
        packed.finish().expect("memory")
    }
}

fn here(system: &str) -> String {
    format!("{}-{system}", std::env::consts::ARCH)
}

#[track_caller]
fn passes(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[track_caller]
fn fails(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn the_archive_for_this_machine_is_installed_replaced_and_removed() {
    let release = Release::new();
    let (musl, gnu) = (here(MUSL), here(GNU));
    release.add("0.1.0", &musl, "yggc.1");
    release.add("0.1.0", &gnu, "yggc.1");
    release.add("0.1.0", "sparc64-unknown-linux-gnu", "yggc.1");
    let said = passes(&release.run(false, &[]));
    assert!(said.contains(&format!("yggc 0.1.0 {musl} is in")) && said.contains("export PATH="), "{said}");
    assert_eq!(release.installed(), format!("yggc 0.1.0 {musl}"), "a static program runs everywhere");
    let expected = [
        "bin/yggc",
        "share/bash-completion/completions/yggc",
        "share/fish/vendor_completions.d/yggc.fish",
        "share/man/man1/yggc.1",
        "share/yggc/LICENSE",
        "share/yggc/LICENSES-OF-DEPENDENCIES.txt",
        "share/yggc/installed",
        "share/zsh/site-functions/_yggc",
    ];
    assert_eq!(release.files(), expected);
    passes(&release.run(true, &[]));
    assert_eq!(release.installed(), format!("yggc 0.1.0 {gnu}"), "the one that can use the driver");
    // A later version, whose pages are others; a version that is named stays available.
    release.add("0.2.0", &musl, "yggc-run.1");
    passes(&release.run(false, &["--version", "0.2.0"]));
    assert_eq!(release.installed(), format!("yggc 0.2.0 {musl}"));
    let pages: Vec<String> = release.files().into_iter().filter(|file| file.contains("/man/")).collect();
    assert_eq!(pages, ["share/man/man1/yggc-run.1"]);
    fs::write(release.prefix().join("bin/other"), "somebody else's").expect("it is written");
    passes(&release.run(false, &["--uninstall"]));
    assert_eq!(release.files(), ["bin/other"]);
    assert!(fails(&release.run(false, &["--uninstall"])).contains("nothing that this script installed"));
}

#[test]
fn what_cannot_be_installed_leaves_what_was_there() {
    let release = Release::new();
    let musl = here(MUSL);
    assert!(fails(&release.run(false, &[])).contains("expected SHA256SUMS in"));
    release.add("0.1.0", "sparc64-unknown-linux-gnu", "yggc.1");
    let said = fails(&release.run(false, &[]));
    assert!(
        said.contains(&musl) && said.contains("it has: yggc-0.1.0-sparc64-unknown-linux-gnu.tar.gz"),
        "{said}"
    );
    release.add("0.1.0", &musl, "yggc.1");
    passes(&release.run(false, &[]));
    let before = release.files();
    let archive = release.path(&format!("release/yggc-0.1.0-{musl}.tar.gz"));
    let good = fs::read(&archive).expect("it is there");
    fs::write(&archive, &good[..good.len() - 1]).expect("it is written");
    let said = fails(&release.run(false, &[]));
    assert!(
        said.contains("is damaged: expected SHA-256") && said.contains("nothing was installed"),
        "{said}"
    );
    // A program for another machine.
    let mut other = Archive::default();
    other.file(&format!("yggc-0.1.0-{musl}/yggc"), 0o755, b"\x7fELF of another machine");
    fs::write(&archive, other.end()).expect("it is written");
    release.sum();
    let said = fails(&release.run(false, &[]));
    assert!(said.contains("does not run here; nothing was installed"), "{said}");
    assert_eq!((release.files(), release.installed()), (before, format!("yggc 0.1.0 {musl}")));
    for (arguments, expected) in [
        (&["--prefix"][..], "--prefix needs a value"),
        (&["--nothing"], "unknown argument --nothing; expected"),
        (&["--version", "9.9.9"], "has no archive for this machine"),
    ] {
        let said = fails(&release.run(false, arguments));
        assert!(said.contains(expected), "{said}");
    }
    let listed = passes(&release.run(false, &["--list"]));
    assert_eq!(listed.lines().count(), 2, "no symbols: {listed}");
}

/// As from a server, to another folder.
#[test]
fn releases_are_fetched_over_http() {
    let release = Release::new();
    let musl = here(MUSL);
    release.add("0.1.0", &musl, "yggc.1");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let folder = release.path("release");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a request");
            let name = line.split(' ').nth(1).expect("a path").trim_start_matches('/').to_owned();
            let _ = match fs::read(folder.join(name)) {
                Ok(bytes) => {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                        bytes.len()
                    );
                    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes))
                }
                Err(_) => stream
                    .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
            };
        }
    });
    let (from, prefix) = (format!("http://{address}"), release.path("elsewhere"));
    let prefix_text = prefix.display().to_string();
    passes(&release.run(false, &["--from", &from, "--prefix", &prefix_text]));
    assert!(prefix.join("bin/yggc").is_file() && release.files().is_empty());
    fs::remove_file(release.path(&format!("release/yggc-0.1.0-{musl}.tar.gz"))).expect("it is there");
    let said = fails(&release.run(false, &["--from", &from, "--prefix", &prefix_text]));
    assert!(said.contains(&format!("cannot fetch {from}/yggc-0.1.0-{musl}.tar.gz")), "{said}");
}
