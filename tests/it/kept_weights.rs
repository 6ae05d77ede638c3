//! Packed weights that are kept: the second start maps them and gives the same bits, and nothing but the same model
//! uses them.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Output,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use ygg_kernels::WeightFormat;
use yggc::{
    engine::{Activations, KvFormat, LoadOptions, Loaded, Pinning, Tier},
    measure::score,
    model::{Model, synthetic::SyntheticSpec},
    packed::{KeptPlace, PackedNote},
    storage::MappedFile,
};

use crate::program::{success, yggc};

fn write(path: &Path, spec: &SyntheticSpec) {
    spec.write_gguf(path).expect("the folder is writable");
    let is_settled = || {
        let stamp = MappedFile::open(path).expect("it was written").stamp().expect("the system says");
        stamp.expect("a system that notes changes").is_settled()
    };
    while !is_settled() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// The bits of the log-likelihoods of some tokens, and what was told of kept weights.
fn start(
    path: &Path,
    folder: &Path,
    most_read_bytes: usize,
    tier: Tier,
    threads: usize,
) -> (Vec<u64>, Vec<PackedNote>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&notes);
    let place = KeptPlace { folder: folder.to_owned(), least_bytes: 0, most_bytes: None, most_read_bytes };
    let model = Model::open(path).expect("a synthetic model");
    let model = model
        .kept_in(place, move |note| told.lock().expect("nobody panics").push(note))
        .expect("the system says how old it is");
    let options = LoadOptions {
        tier: Some(tier),
        activations: Activations::Int8,
        cache: KvFormat::F16,
        threads: Some(threads),
        widths: vec![4],
        resident: None,
    };
    let loaded = Loaded::new(model, &options).expect("a synthetic model");
    let ids: Vec<u32> = (3..60).collect();
    let scored = score(&loaded, &ids, Pinning::default()).expect("tokens of the model");
    let notes = notes.lock().expect("nobody panics").clone();
    (scored.tokens.iter().map(|token| token.nll.to_bits()).collect(), notes)
}

#[test]
fn kept_weights_give_the_same_bits_on_every_tier() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, kept) = (folder.path().join("tiny.gguf"), folder.path().join("kept"));
    let spec = SyntheticSpec { width: 256, head_dim: 64, feed_forward: 256, ..SyntheticSpec::default() };
    write(&path, &SyntheticSpec { format: WeightFormat::Q4_K, ..spec });
    let (expected, notes) = start(&path, &kept, 0, Tier::Portable, 1);
    assert!(matches!(&notes[..], [PackedNote::Kept(_)]), "{notes:?}");
    for tier in [Tier::Portable, Tier::detect_best()] {
        let (found, notes) = start(&path, &kept, 0, tier, 2);
        assert!(matches!(&notes[..], [PackedNote::Mapped(_)]), "{tier}: {notes:?}");
        assert_eq!(found, expected, "{tier}, mapped");
        let (found, notes) = start(&path, &kept, usize::MAX, tier, 2);
        assert!(matches!(&notes[..], [PackedNote::Read(_)]), "{tier}: {notes:?}");
        assert_eq!(found, expected, "{tier}, read");
    }
    // Heads and programs of an engine that come later find what is mapped, and are not kept.
    assert_eq!(fs::read_dir(&kept).expect("it is there").count(), 2);
}

/// A model whose packed weights are worth a file to the program.
pub(crate) fn large(folder: &Path) -> PathBuf {
    let path = folder.join("large.gguf");
    let spec = SyntheticSpec {
        width: 256,
        head_dim: 64,
        feed_forward: 256,
        vocabulary: 70_000,
        ..SyntheticSpec::default()
    };
    write(&path, &SyntheticSpec { format: WeightFormat::Q8_0, distinct_rows: 64, ..spec });
    path
}

#[test]
fn the_program_keeps_them_in_its_cache_unless_it_is_told_not_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (model, cache) = (large(folder.path()), folder.path().join("cache"));
    let ids = folder.path().join("ids.json");
    fs::write(&ids, "[5, 6, 7, 8]").expect("the folder is writable");
    let score = |flags: &[&str]| -> Output {
        let mut command = yggc();
        command.arg("score").arg("-m").arg(&model).arg("--token-ids").arg(&ids).arg("--json");
        command.arg("--cache-dir").arg(&cache).args(flags).output().expect("yggc starts")
    };
    let expected = success(&score(&["--no-packed-cache"]));
    assert!(!cache.exists());
    assert_eq!(success(&score(&[])), expected);
    let files = || {
        let entries =
            fs::read_dir(cache.join("packed")).expect("it is there").map(|e| e.expect("an entry").path());
        entries.filter(|path| path.extension().is_some_and(|e| e == "packed")).collect::<Vec<_>>()
    };
    let [file] = &files()[..] else { panic!("{:?}", files()) };
    let inode = || fs::metadata(file).expect("it is there").ino();
    let before = inode();
    assert_eq!(success(&score(&[])), expected);
    assert_eq!((inode(), files().len()), (before, 1), "it was mapped");

    let mut bytes = fs::read(file).expect("it is there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(file, &bytes).expect("it is writable");
    let output = score(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("warning: ") && said.contains("damaged") && said.contains("packed again"),
        "{said}"
    );
    assert_eq!(success(&output), expected);
    let again = score(&[]);
    assert_eq!((success(&again), again.stderr.is_empty()), (expected, true));
}
