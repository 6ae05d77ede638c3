//! What is made of the archives of `.ci/release`: `packaging/install.sh` installs one, `deb.sh`, `formula.sh`, `winget.sh` and
//! `image.py` make a package, a formula, a manifest and an image of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    hub::stub::{Hub, Repository},
    program::{failure, success},
};

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
        let program = format!("#!/bin/sh\necho yggc {version} {triple}\n");
        self.add_program(version, triple, page, &program);
    }

    fn add_program(&self, version: &str, triple: &str, page: &str, program: &str) {
        let name = format!("yggc-{version}-{triple}");
        let release = self.path("release");
        let folder = release.join(&name);
        for below in ["man/man1", "completions"] {
            fs::create_dir_all(folder.join(below)).expect("a folder");
        }
        let page = format!("man/man1/{page}");
        let texts = ["completions/yggc.bash", "completions/_yggc", "completions/yggc.fish", &page];
        for text in texts.into_iter().chain(["LICENSE", "LICENSES-OF-DEPENDENCIES.txt"]) {
            fs::write(folder.join(text), text).expect("it is written");
        }
        fs::write(folder.join("yggc"), program).expect("it is written");
        // As a shell is told: the script needs these programs too.
        let pack = "chmod +x NAME/yggc && tar -czf NAME.tar.gz NAME && cp NAME.tar.gz NAME-symbols.tar.gz && rm -r NAME";
        let pack =
            Command::new("sh").args(["-c", &pack.replace("NAME", &name)]).current_dir(release).status();
        assert!(pack.expect("a shell").success());
        self.sum();
    }

    /// Writes the digests of what is there.
    fn sum(&self) {
        let folder = fs::read_dir(self.path("release")).expect("a folder");
        let mut names: Vec<String> = folder
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
            .filter(|name| name.ends_with(".tar.gz") || name.ends_with(".zip"))
            .collect();
        names.sort();
        let line = |name: &String| {
            let bytes = fs::read(self.path(&format!("release/{name}"))).expect("it is there");
            format!("{}  {name}\n", digest_of(&bytes))
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

fn here(system: &str) -> String {
    format!("{}-{system}", std::env::consts::ARCH)
}

#[test]
fn the_archive_for_this_machine_is_installed_replaced_and_removed() {
    let release = Release::new();
    let (musl, gnu) = (here(MUSL), here(GNU));
    release.add("0.1.0", &musl, "yggc.1");
    release.add("0.1.0", &gnu, "yggc.1");
    release.add("0.1.0", "sparc64-unknown-linux-gnu", "yggc.1");
    let said = success(&release.run(false, &[]));
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
    success(&release.run(true, &[]));
    assert_eq!(release.installed(), format!("yggc 0.1.0 {gnu}"), "the one that can use the driver");
    // A later version, whose pages are others; a version that is named stays available.
    release.add("0.2.0", &musl, "yggc-run.1");
    success(&release.run(false, &["--version", "0.2.0"]));
    assert_eq!(release.installed(), format!("yggc 0.2.0 {musl}"));
    let pages: Vec<String> = release.files().into_iter().filter(|file| file.contains("/man/")).collect();
    assert_eq!(pages, ["share/man/man1/yggc-run.1"]);
    fs::write(release.prefix().join("bin/other"), "somebody else's").expect("it is written");
    success(&release.run(false, &["--uninstall"]));
    assert_eq!(release.files(), ["bin/other"]);
    assert!(failure(&release.run(false, &["--uninstall"]), 1).contains("nothing that this script installed"));
}

#[test]
fn what_cannot_be_installed_leaves_what_was_there() {
    let release = Release::new();
    let musl = here(MUSL);
    assert!(failure(&release.run(false, &[]), 1).contains("expected SHA256SUMS in"));
    release.add("0.1.0", "sparc64-unknown-linux-gnu", "yggc.1");
    let said = failure(&release.run(false, &[]), 1);
    assert!(
        said.contains(&musl) && said.contains("it has: yggc-0.1.0-sparc64-unknown-linux-gnu.tar.gz"),
        "{said}"
    );
    release.add("0.1.0", &musl, "yggc.1");
    success(&release.run(false, &[]));
    let before = release.files();
    let archive = release.path(&format!("release/yggc-0.1.0-{musl}.tar.gz"));
    let good = fs::read(&archive).expect("it is there");
    fs::write(&archive, &good[..good.len() - 1]).expect("it is written");
    let said = failure(&release.run(false, &[]), 1);
    assert!(
        said.contains("is damaged: expected SHA-256") && said.contains("nothing was installed"),
        "{said}"
    );
    // A program for another machine.
    release.add_program("0.1.0", &musl, "yggc.1", "\x7fELF of another machine");
    let said = failure(&release.run(false, &[]), 1);
    assert!(said.contains("does not run here; nothing was installed"), "{said}");
    assert_eq!((release.files(), release.installed()), (before, format!("yggc 0.1.0 {musl}")));
    for (arguments, expected) in [
        (&["--prefix"][..], "--prefix needs a value"),
        (&["--nothing"], "unknown argument --nothing; expected"),
        (&["--version", "9.9.9"], "has no archive for this machine"),
    ] {
        let said = failure(&release.run(false, arguments), 1);
        assert!(said.contains(expected), "{said}");
    }
    let listed = success(&release.run(false, &["--list"]));
    assert_eq!(listed.lines().count(), 2, "no symbols: {listed}");
}

/// As from a server, to another folder.
#[test]
fn releases_are_fetched_over_http() {
    let release = Release::new();
    let musl = here(MUSL);
    release.add("0.1.0", &musl, "yggc.1");
    let archive = format!("yggc-0.1.0-{musl}.tar.gz");
    let files = ["SHA256SUMS", &archive]
        .map(|name| (name, fs::read(release.path("release").join(name)).expect("it is there")));
    let files = files.each_ref().map(|(name, bytes)| (*name, &bytes[..]));
    let server = Hub::new(Repository::new("owner/release", &files));
    let from = format!("{}/owner/release/resolve/main", server.endpoint());
    let prefix = release.path("elsewhere");
    let prefix_text = prefix.display().to_string();
    let run = || release.run(false, &["--from", &from, "--prefix", &prefix_text]);
    success(&run());
    assert!(prefix.join("bin/yggc").is_file() && release.files().is_empty());
    server.repository().files.remove(&archive);
    let said = failure(&run(), 1);
    assert!(said.contains(&format!("cannot fetch {from}/{archive}")), "{said}");
}

/// A script of `packaging`.
fn packaging(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(script));
    command
}

/// What a Debian package says of itself, and its files with their modes.
fn package_of(deb: &Path) -> (String, String) {
    let dpkg = |argument: &str| {
        let output = Command::new("dpkg-deb").arg(argument).arg(deb).output().expect("dpkg-deb starts");
        success(&output)
    };
    (dpkg("--field"), dpkg("--contents"))
}

#[test]
fn an_archive_becomes_a_debian_package() {
    // Systems that are no Debian make none; `.ci/run` runs on one.
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return;
    }
    let release = Release::new();
    let out = release.path("debs");
    fs::create_dir_all(&out).expect("a folder");
    for (processor, architecture) in [("x86_64", "amd64"), ("aarch64", "arm64")] {
        let triple = format!("{processor}-{GNU}");
        release.add("0.1.0", &triple, "yggc.1");
        let archive = release.path(&format!("release/yggc-0.1.0-{triple}.tar.gz"));
        let make = || packaging("deb.sh").arg(&archive).arg(&out).env("SOURCE_DATE_EPOCH", "1").output();
        success(&make().expect("a shell"));
        let deb = out.join(format!("yggc_0.1.0_{architecture}.deb"));
        let (fields, files) = package_of(&deb);
        for field in ["Package: yggc", "Version: 0.1.0", &format!("Architecture: {architecture}")] {
            assert!(fields.lines().any(|line| line == field), "{field}: {fields}");
        }
        assert!(!fields.contains("Depends"), "a program without glibc needs none: {fields}");
        let owner = "root";
        for file in [
            &format!("-rwxr-xr-x {owner}/{owner}"),
            "./usr/bin/yggc",
            "./usr/share/man/man1/yggc.1.gz",
            "./usr/share/bash-completion/completions/yggc",
            "./usr/share/zsh/vendor-completions/_yggc",
            "./usr/share/fish/vendor_completions.d/yggc.fish",
            "./usr/share/doc/yggc/copyright",
            "./usr/lib/systemd/system/yggc.service",
            "./etc/yggc/serve.toml",
        ] {
            assert!(files.contains(file), "{file}: {files}");
        }
        let unpacked = release.path(architecture);
        let output = Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked).output();
        success(&output.expect("dpkg-deb starts"));
        let output = Command::new(unpacked.join("usr/bin/yggc")).output().expect("it is there");
        assert_eq!(success(&output).trim(), format!("yggc 0.1.0 {triple}"));
        let unit =
            fs::read_to_string(unpacked.join("usr/lib/systemd/system/yggc.service")).expect("it is there");
        assert!(unit.contains("\nExecStart=/usr/bin/yggc serve --config /etc/yggc/serve.toml\n"), "{unit}");
    }
    let refused = |name: &str| {
        let archive = release.path(name);
        fs::write(&archive, "no archive").expect("writable");
        let output = packaging("deb.sh").arg(&archive).arg(&out).output().expect("a shell");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(refused("yggc-0.1.0-sparc64-unknown-linux-gnu.tar.gz").contains("expected yggc-VERSION-TRIPLE"));
    refused("yggc-0.1.0-x86_64-unknown-linux-gnu.tar.gz");
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 2, "what fails leaves no package");
}

#[test]
fn a_formula_names_the_static_programs_with_their_digests() {
    let release = Release::new();
    let formula =
        || packaging("formula.sh").arg(release.path("release")).arg("0.2.0").output().expect("a shell");
    release.add("0.2.0", &format!("x86_64-{GNU}"), "yggc.1");
    assert!(failure(&formula(), 1).contains("expected a digest of yggc-0.2.0-*-unknown-linux-musl.tar.gz"));
    release.add("0.2.0", &format!("x86_64-{MUSL}"), "yggc.1");
    release.add("0.1.0", &format!("aarch64-{MUSL}"), "yggc.1");
    let one = success(&formula());
    assert!(one.contains("on_intel do") && !one.contains("on_arm do"), "an older version is another: {one}");
    release.add("0.2.0", &format!("aarch64-{MUSL}"), "yggc.1");
    let both = success(&formula());
    let sums = fs::read_to_string(release.path("release/SHA256SUMS")).expect("it is there");
    for processor in ["x86_64", "aarch64"] {
        let name = format!("yggc-0.2.0-{processor}-{MUSL}.tar.gz");
        let line = sums.lines().find(|line| line.ends_with(&name)).expect("it is summed");
        let (digest, _) = line.split_once(' ').expect("a digest");
        assert!(both.contains(&format!("/v0.2.0/{name}\"\n      sha256 \"{digest}\"")), "{both}");
    }
    // Blocks and their ends.
    let begun =
        |line: &&str| line.ends_with(" do") || line.starts_with("class ") || line.starts_with("  def ");
    let ended = both.lines().filter(|line| line.trim() == "end").count();
    assert_eq!(both.lines().filter(begun).count(), ended, "{both}");
}

#[test]
fn a_manifest_for_winget_names_the_program_for_windows_with_its_digest() {
    let release = Release::new();
    let out = release.path("winget");
    let make = || {
        let mut script = packaging("winget.sh");
        script.arg(release.path("release")).arg("0.2.0").arg(&out).output().expect("a shell")
    };
    release.add("0.2.0", &format!("x86_64-{MUSL}"), "yggc.1");
    let name = "yggc-0.2.0-x86_64-pc-windows-gnu";
    assert!(failure(&make(), 1).contains(&format!("expected a digest of {name}.zip")));
    assert!(!out.exists(), "what fails leaves no manifest");
    fs::write(release.path(&format!("release/{name}.zip")), "an archive").expect("it is written");
    release.sum();
    success(&make());
    let file = |part: &str| {
        let text = fs::read_to_string(out.join(format!("Yggdrasil.yggc{part}.yaml"))).expect("it is there");
        assert!(text.starts_with("PackageIdentifier: Yggdrasil.yggc\nPackageVersion: 0.2.0\n"), "{text}");
        text
    };
    let installer = file(".installer");
    let digest: String = Sha256::digest("an archive").iter().map(|byte| format!("{byte:02X}")).collect();
    for line in [
        format!("- RelativeFilePath: {name}\\yggc.exe"),
        format!("  InstallerSha256: {digest}"),
        "ManifestType: installer".to_owned(),
    ] {
        assert!(installer.lines().any(|found| found == line), "{line}: {installer}");
    }
    assert!(installer.contains(&format!("/v0.2.0/{name}.zip\n")), "{installer}");
    assert!(file("").contains("ManifestType: version") && file(".locale.en-US").contains("defaultLocale"));
}

#[test]
fn archives_become_an_image_for_each_processor() {
    let release = Release::new();
    let said = failure(&image(&release, "none.oci.tar"), 1);
    assert!(said.contains("expected archives yggc-*-musl.tar.gz"), "{said}");
    for processor in ["x86_64", "aarch64"] {
        release.add("0.2.0", &format!("{processor}-{MUSL}"), "yggc.1");
    }
    release.add("0.2.0", &format!("x86_64-{GNU}"), "yggc.1");
    success(&image(&release, "image.oci.tar"));
    success(&image(&release, "again.oci.tar"));
    let bytes = |name: &str| fs::read(release.path(name)).expect("it was made");
    assert!(bytes("image.oci.tar") == bytes("again.oci.tar"), "the same archives give the same bytes");

    let folder = release.path("image");
    fs::create_dir(&folder).expect("a folder");
    let tar =
        |arguments: &[&str]| success(&Command::new("tar").args(arguments).output().expect("tar starts"));
    let [from, to] = [release.path("image.oci.tar"), folder.clone()].map(|path| path.display().to_string());
    tar(&["-xf", &from, "-C", &to]);
    // What a description names is there, and is what it says.
    let blob = |described: &Value| -> (PathBuf, Vec<u8>) {
        let digest = described["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let path = folder.join("blobs/sha256").join(digest.expect("a digest"));
        let bytes = fs::read(&path).expect("it is there");
        assert_eq!(
            (Some(&*digest_of(&bytes)), described["size"].as_u64()),
            (digest, Some(bytes.len() as u64))
        );
        (path, bytes)
    };
    let json = |described: &Value| -> Value { serde_json::from_slice(&blob(described).1).expect("JSON") };
    let index = fs::read(folder.join("index.json")).expect("it is there");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "yggc:0.2.0");
    let images = json(&index["manifests"][0]);
    for (at, (of_images, of_archives)) in [("arm64", "aarch64"), ("amd64", "x86_64")].into_iter().enumerate()
    {
        let described = &images["manifests"][at];
        assert_eq!(described["platform"], json!({"architecture": of_images, "os": "linux"}));
        let manifest = json(described);
        let config = json(&manifest["config"]);
        assert_eq!(config["architecture"], of_images);
        assert_eq!(config["config"]["Entrypoint"], json!(["yggc", "serve", "--host", "0.0.0.0"]));
        let (layer, _) = blob(&manifest["layers"][0]);
        let layer = layer.display().to_string();
        let program = tar(&["-xOzf", &layer, "usr/local/bin/yggc"]);
        assert_eq!(program, format!("#!/bin/sh\necho yggc 0.2.0 {of_archives}-{MUSL}\n"));
        let listed = tar(&["-tvzf", &layer, "--numeric-owner"]);
        for (rights, path) in
            [("-rwxr-xr-x 0/0", "usr/local/bin/yggc"), ("drwxr-xr-x 10001/10001", "var/cache/yggc/")]
        {
            let is_there = |line: &str| line.starts_with(rights) && line.ends_with(path);
            assert!(listed.lines().any(is_there), "{rights} {path}: {listed}");
        }
    }
}

fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes an image of a release.
fn image(release: &Release, name: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/image.py");
    fs::create_dir_all(release.path("release")).expect("a folder");
    let mut command = Command::new("python3");
    command.arg("-B").arg(script).arg(release.path("release")).arg(release.path(name));
    command.output().expect("python3 starts")
}
