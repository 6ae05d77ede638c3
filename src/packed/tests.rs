//! Kept weights: used while nothing has changed, and only then.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime},
};

use super::{
    folder::{EXTENSION, limit_of},
    *,
};
use crate::storage::{FileStamp, LockedFile, MappedFile};

/// Weights of more bytes are mapped.
const MOST_READ: usize = 4096;

/// A model that was written long enough ago, and where its weights are kept.
struct Scene {
    folder: tempfile::TempDir,
}

const PACKING: PackedDigest = [7; 32];

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        scene.write();
        scene.settle(&scene.model());
        scene
    }

    fn write(&self) {
        fs::write(self.model(), [5; 5000]).unwrap();
    }

    /// Another model, the same under another name.
    fn other(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::copy(self.model(), &path).unwrap();
        self.settle(&path);
        path
    }

    fn model(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// Waits until changes of the model can be told.
    fn settle(&self, model: &Path) {
        while !MappedFile::open(model).unwrap().stamp().unwrap().unwrap().is_settled() {
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What a start does that packs `parts` unless they are kept: what it reads then, and what it was told.
    fn start_with(&self, packing: PackedDigest, parts: &[&[u8]]) -> (Option<Vec<u8>>, Vec<PackedNote>) {
        self.start_of(&self.model(), [9; 32], None, packing, parts)
    }

    fn start_of(
        &self,
        model: &Path,
        fingerprint: [u8; 32],
        most_bytes: Option<u64>,
        packing: PackedDigest,
        parts: &[&[u8]],
    ) -> (Option<Vec<u8>>, Vec<PackedNote>) {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&notes);
        let place = KeptPlace { folder: self.kept(), least_bytes: 8, most_bytes, most_read_bytes: MOST_READ };
        let files = vec![MappedFile::open(model).unwrap()];
        let stamps = FileStamp::of_all(&files).unwrap().unwrap();
        let model = KeptModel { path: fs::canonicalize(model).unwrap(), fingerprint, files, stamps };
        let weights = KeptWeights::new(place, model, move |note| told.lock().unwrap().push(note));
        let found = weights.kept(&packing).map(|kept| (*kept).as_ref().to_vec());
        if found.is_none() {
            let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            weights.keep(&packing, &sizes, &mut |part, append| append(parts[part]));
        }
        drop(weights);
        (found, Arc::into_inner(notes).unwrap().into_inner().unwrap())
    }

    fn start(&self) -> (Option<Vec<u8>>, Vec<PackedNote>) {
        self.start_with(PACKING, &[&[1; 100], &[2; 64]])
    }

    /// The one kept file.
    fn file(&self) -> PathBuf {
        let files: Vec<_> = fs::read_dir(self.kept())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

/// Parts of these bytes as they are kept.
fn kept(parts: &[&[u8]]) -> Vec<u8> {
    let whole = |part: &&[u8]| {
        let mut part = part.to_vec();
        part.resize(part.len().next_multiple_of(KEPT_ALIGNMENT), 0);
        part
    };
    parts.iter().flat_map(whole).collect()
}

fn expected() -> Vec<u8> {
    kept(&[&[1; 100], &[2; 64]])
}

#[test]
fn the_second_start_maps_what_the_first_kept() {
    let scene = Scene::new();
    let (found, notes) = scene.start();
    assert_eq!((found, notes), (None, vec![PackedNote::Kept(scene.file())]));
    let (found, notes) = scene.start();
    assert_eq!((found, notes), (Some(expected()), vec![PackedNote::Mapped(scene.file())]));
    // Another packing takes its place.
    let (found, notes) = scene.start_with([8; 32], &[&[3; 64]]);
    assert_eq!(
        (found, notes),
        (None, vec![PackedNote::Outdated(scene.file()), PackedNote::Kept(scene.file())])
    );
    // Few bytes are read, and are the same.
    assert_eq!(
        scene.start_with([8; 32], &[]),
        (Some(kept(&[&[3; 64]])), vec![PackedNote::Read(scene.file())])
    );
    // Little is not kept.
    fs::remove_file(scene.file()).unwrap();
    assert_eq!(scene.start_with(PACKING, &[&[1; 7]]), (None, vec![]));
}

/// Even where length and time of modification are put back.
#[test]
fn a_model_that_was_changed_is_packed_again() {
    let scene = Scene::new();
    scene.start();
    let other_model = scene.start_of(&scene.model(), [8; 32], None, PACKING, &[&[1; 100], &[2; 64]]);
    let replaced = vec![PackedNote::Outdated(scene.file()), PackedNote::Kept(scene.file())];
    assert_eq!(other_model, (None, replaced.clone()), "another fingerprint");
    assert_eq!(scene.start(), (None, replaced));
    let (bytes, modified) =
        (fs::read(scene.model()).unwrap(), fs::metadata(scene.model()).unwrap().modified().unwrap());
    let put_back = |time: SystemTime| {
        File::options().write(true).open(scene.model()).unwrap().set_modified(time).unwrap();
        scene.settle(&scene.model());
    };
    // The fingerprint stays: it is of samples.
    let mut changed = bytes.clone();
    let at = changed.len() - 2000;
    changed[at] ^= 1;
    fs::write(scene.model(), &changed).unwrap();
    put_back(modified);
    let (found, notes) = scene.start();
    assert_eq!(
        (found, notes),
        (None, vec![PackedNote::Outdated(scene.file()), PackedNote::Kept(scene.file())])
    );
    assert_eq!(scene.start().0, Some(expected()));
    // Another file under the same name.
    let other = scene.folder.path().join("other");
    fs::write(&other, &bytes).unwrap();
    fs::rename(&other, scene.model()).unwrap();
    put_back(modified);
    assert_eq!(scene.start().0, None);
}

#[test]
fn a_model_that_was_just_written_is_not_kept_yet() {
    let scene = Scene { folder: tempfile::tempdir().unwrap() };
    scene.write();
    let (found, notes) = scene.start();
    assert!(found.is_none() && matches!(notes[..], [PackedNote::Later(_)]), "{notes:?}");
    scene.settle(&scene.model());
    assert_eq!(scene.start().1, [PackedNote::Kept(scene.file())]);
}

#[test]
fn damaged_files_are_told_and_replaced() {
    let scene = Scene::new();
    scene.start();
    let whole = fs::read(scene.file()).unwrap();
    let header = whole.len() - expected().len();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let cases = [
        (Vec::new(), "empty file"),
        (whole[..5].to_vec(), "found 5 bytes"),
        (whole[..100].to_vec(), "found 100 bytes"),
        (whole[..header].to_vec(), "expected 8192 bytes of weights, found 0"),
        (whole[..whole.len() - 1].to_vec(), "found 8191"),
        ([&whole[..], &[0]].concat(), "found 8193"),
        (flipped(0), "a file of kept weights"),
        // The length of the header, the weights', a digest, the path.
        (flipped(12), "header"),
        (flipped(15), "header"),
        (flipped(16), "checksum"),
        (flipped(40), "checksum"),
        (flipped(190), "checksum"),
        (flipped(header + 3), "samples"),
        (flipped(whole.len() - 1), "samples"),
    ];
    for (bytes, how) in cases {
        fs::write(scene.file(), &bytes).unwrap();
        let (found, notes) = scene.start();
        assert!(found.is_none(), "{how}");
        let [PackedNote::Damaged(path, said), PackedNote::Kept(_)] = &notes[..] else {
            panic!("{how}: {notes:?}")
        };
        assert!(*path == scene.file() && said.contains(how) && notes[0].is_warning(), "{how}: {said}");
        assert_eq!(scene.start().0, Some(expected()), "{how}");
    }
    // That of another version is nobody's fault.
    fs::write(scene.file(), flipped(8)).unwrap();
    assert_eq!(scene.start().1, [PackedNote::Outdated(scene.file()), PackedNote::Kept(scene.file())]);
}

#[test]
fn what_cannot_be_written_is_told_and_nothing_else_happens() {
    let scene = Scene::new();
    fs::write(scene.kept(), "a file where the folder would be").unwrap();
    let (found, notes) = scene.start();
    let [PackedNote::Refused(path, _)] = &notes[..] else { panic!("{notes:?}") };
    assert!(found.is_none() && *path == scene.kept() && notes[0].is_warning());
    assert!(notes[0].to_string().contains("the model runs"), "{}", notes[0]);
}

#[test]
fn writers_do_not_meet_and_leave_nothing_behind() {
    let scene = Scene::new();
    fs::create_dir_all(scene.kept()).unwrap();
    let lock = LockedFile::take(File::create(scene.kept().join("lock")).unwrap()).unwrap();
    assert!(lock.is_some());
    let (found, notes) = scene.start();
    assert!(found.is_none() && matches!(notes[..], [PackedNote::Later(_)]), "{notes:?}");
    drop(lock);
    let dead = scene.kept().join(".0123.packed.partial");
    fs::write(&dead, "half").unwrap();
    let strange = scene.kept().join("0123.packed");
    fs::write(&strange, "no kept weights").unwrap();
    scene.start();
    assert!(!dead.exists() && !strange.exists());
    let kept = scene.file();
    // When the model is gone, whoever writes next removes what was kept of it.
    let is_of_nothing = || {
        let files = kept_files(&scene.kept()).unwrap();
        assert!(files.len() == 1 && files[0].path == kept, "{files:?}");
        files[0].is_of_nothing()
    };
    assert!(!is_of_nothing());
    fs::remove_file(scene.model()).unwrap();
    assert!(is_of_nothing());
}

#[test]
fn a_full_folder_loses_what_was_not_used_for_longest() {
    let scene = Scene::new();
    let models = ["a.gguf", "b.gguf", "c.gguf"].map(|name| scene.other(name));
    let keep = |model: &Path, limit| scene.start_of(model, [9; 32], Some(limit), PACKING, &[&[1; 8192]]).1;
    // A page of header, two of weights.
    let size = 3 * 4096;
    let kept = || -> Vec<PathBuf> {
        kept_files(&scene.kept()).unwrap().into_iter().map(|file| file.model.unwrap()).collect()
    };
    let [a, b, c] = models.each_ref().map(|path| fs::canonicalize(path).unwrap());
    for model in [&a, &b] {
        let notes = keep(model, 2 * size);
        assert!(matches!(notes[..], [PackedNote::Kept(_)]), "{notes:?}");
    }
    assert!(matches!(keep(&a, 2 * size)[..], [PackedNote::Mapped(_)]));
    assert_eq!(kept(), [b.clone(), a.clone()]);
    assert!(matches!(keep(&c, 3 * size - 1)[..], [PackedNote::Kept(_)]));
    assert_eq!(kept(), [a.clone(), c.clone()]);
    let notes = keep(&b, size - 1);
    assert_eq!(notes, [PackedNote::TooLarge { needed: size, limit: size - 1 }]);
    assert!(notes[0].is_warning() && notes[0].to_string().contains("limit"), "{}", notes[0]);
    assert_eq!(kept(), [a.clone(), c]);
    // A model's own file is replaced, so it takes no room from the new one.
    let outdated = scene.start_of(&a, [9; 32], Some(size), [8; 32], &[&[3; 8192]]).1;
    assert!(matches!(outdated[..], [PackedNote::Outdated(_), PackedNote::Kept(_)]), "{outdated:?}");
    assert_eq!(kept(), [a]);
}

#[test]
fn without_a_limit_half_of_what_is_free_is_left() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(limit_of(folder.path(), Some(7), 9), 7);
    let most = limit_of(folder.path(), None, u64::MAX);
    assert_eq!(most, 32 << 30);
    let missing = folder.path().join("missing");
    assert_eq!(limit_of(&missing, None, 0), 32 << 30);
    if let Some(free) = crate::storage::free_bytes(folder.path()) {
        assert!(limit_of(folder.path(), None, 0) <= free);
    }
}

#[test]
fn a_check_reads_what_opening_does_not() {
    let scene = Scene::new();
    let weights: Vec<u8> = (0..4 << 20).map(|i: u32| i.to_le_bytes()[1]).collect();
    scene.start_with(PACKING, &[&weights]);
    let file = || kept_files(&scene.kept()).unwrap().remove(0);
    assert_eq!(file().check(), Ok(()));
    let mut bytes = fs::read(scene.file()).unwrap();
    // Between the first two samples.
    let at = bytes.len() - weights.len() + 3 * 4096;
    bytes[at] ^= 1;
    fs::write(scene.file(), &bytes).unwrap();
    assert!(scene.start_with(PACKING, &[&weights]).0.is_some());
    assert!(file().check().unwrap_err().contains("found others"));
    fs::write(scene.file(), &bytes[..100]).unwrap();
    assert!(file().model.is_none() && file().check().unwrap_err().contains("whole header"));
}

/// Many at once, some of which find it and some of which write it: all read the same.
#[test]
fn starts_at_once_agree() {
    let scene = Scene::new();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let (found, notes) = scene.start();
                    assert!(found.is_none_or(|found| found == expected()));
                    assert!(!notes.iter().any(PackedNote::is_warning), "{notes:?}");
                }
            });
        }
    });
    assert_eq!(scene.start().0, Some(expected()));
}
