//! Tests of where the cache is, what it trusts and what survives a killed writer.

use std::{sync::mpsc, thread, time::Duration};

use super::*;

/// "abc", whose digest the SHA-256 standard gives.
const ABC: FileIdentity = FileIdentity {
    file_name: "abc.gguf",
    bytes: 3,
    sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
};

fn new_cache() -> (tempfile::TempDir, CacheDir) {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::resolve(Some(folder.path().join("cache")), &Environment::default()).unwrap();
    (folder, cache)
}

fn install(cache: &CacheDir, content: &str) -> PathBuf {
    let locked = cache.lock(|| panic!("nobody holds the lock")).unwrap();
    let file = locked.work().join("file");
    fs::write(&file, content).unwrap();
    locked.install(&file, &ABC).unwrap()
}

#[test]
fn the_flag_comes_before_xdg_and_xdg_before_home() {
    let root = |flag: Option<&str>, xdg: Option<&str>, home: Option<&str>| {
        let environment = Environment {
            xdg_cache_home: xdg.map(Into::into),
            home: home.map(Into::into),
            ..Environment::default()
        };
        CacheDir::resolve(flag.map(Into::into), &environment).map(|cache| cache.root)
    };
    assert_eq!(root(Some("/flag"), Some("/xdg"), Some("/own")).unwrap(), Path::new("/flag"));
    assert_eq!(root(None, Some("/xdg"), Some("/own")).unwrap(), Path::new("/xdg/yggc"));
    assert_eq!(root(None, Some("relative"), Some("/own")).unwrap(), Path::new("/own/.cache/yggc"));
    assert_eq!(root(None, Some(""), Some("/own")).unwrap(), Path::new("/own/.cache/yggc"));
    assert!(root(Some("here"), None, None).unwrap().is_absolute());
    let error = root(None, None, Some("")).unwrap_err();
    assert!(error.to_string().contains("--cache-dir"), "{error}");
}

#[test]
fn an_installed_file_is_found_with_its_proof() {
    let (_folder, cache) = new_cache();
    assert_eq!(cache.find(&ABC).unwrap(), None);
    let path = install(&cache, "abc");
    assert_eq!(cache.find(&ABC).unwrap(), Some(path.clone()));
    let proof = fs::read_to_string(proof_path(&path)).unwrap();
    assert_eq!(proof, format!("{}  abc.gguf\n", ABC.sha256));
}

#[test]
fn a_file_of_the_wrong_size_is_not_trusted_even_with_a_proof() {
    let (_folder, cache) = new_cache();
    let path = install(&cache, "abc");
    fs::write(path, "ab").unwrap();
    assert_eq!(cache.find(&ABC).unwrap(), None);
}

#[test]
fn without_a_whole_proof_the_file_is_hashed() {
    let (_folder, cache) = new_cache();
    let path = install(&cache, "abc");
    let proof = proof_path(&path);
    fs::write(&proof, "ba78").unwrap();
    assert_eq!(cache.find(&ABC).unwrap(), Some(path.clone()));
    assert_eq!(fs::read_to_string(&proof).unwrap(), ABC.proof(), "the proof was not renewed");

    fs::write(&path, "abd").unwrap();
    fs::remove_file(&proof).unwrap();
    assert_eq!(cache.find(&ABC).unwrap(), None);
    assert!(!proof.exists());
}

#[test]
fn the_next_holder_clears_what_a_dead_process_left() {
    let (_folder, cache) = new_cache();
    let left = cache.root.join("partial/12345/half.gguf");
    fs::create_dir_all(left.parent().unwrap()).unwrap();
    fs::write(&left, "half").unwrap();
    let locked = cache.lock(|| panic!("the dead hold no lock")).unwrap();
    assert!(!left.exists());
    assert_eq!(fs::read_dir(locked.work()).unwrap().count(), 0);
    let work = locked.work().to_owned();
    drop(locked);
    assert!(!work.exists());
}

#[test]
fn a_second_writer_waits_for_the_first() {
    let (_folder, cache) = new_cache();
    let first = cache.lock(|| ()).unwrap();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let second = cache.lock(|| send.send("waiting").unwrap()).unwrap();
            assert!(second.work().exists());
            send.send("locked").unwrap();
        });
        assert_eq!(receive.recv().unwrap(), "waiting");
        assert!(receive.recv_timeout(Duration::from_millis(50)).is_err(), "two writers at once");
        assert!(first.work().exists(), "the second writer removed the first one's work");
        drop(first);
        assert_eq!(receive.recv().unwrap(), "locked");
    });
}

#[test]
fn a_full_disk_is_told_apart() {
    let path = Path::new("/cache/model.gguf");
    let full = CacheError::at("write", path)(io::Error::from(io::ErrorKind::StorageFull));
    assert!(matches!(full, CacheError::DiskFull { .. }));
    assert!(
        full.to_string().contains("/cache/model.gguf") && full.to_string().contains("-m PATH.gguf"),
        "{full}"
    );
    let other = CacheError::at("write", path)(io::Error::from(io::ErrorKind::PermissionDenied));
    assert!(matches!(other, CacheError::Io { .. }));
    assert!(other.to_string().contains("cannot write /cache/model.gguf"), "{other}");
}
