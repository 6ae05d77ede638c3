//! A store of prefixes over random histories: what it serves is what was kept, of the same owner, to the byte, whatever
//! left, was damaged, or was opened again; and it stays within its limits.
//!
//! The judge is a function that makes the bytes of a block from its owner and all tokens up to its end, and a set of
//! the blocks that were ever kept.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use yggc::prefix::{
    Binding, KeptText, Owner, PrefixDisk, PrefixLimits, PrefixNote, PrefixStore, Served, Shelf, prefix_files,
};

use crate::tiny_model::{Dice, everything};

/// Tokens of a block.
const TOKENS: usize = 4;
/// Bytes of a block.
const BYTES: usize = 4000;
/// Bytes that a block takes in memory: with its tokens and what stands beside it.
const IN_MEMORY: u64 = (BYTES + 4 * TOKENS) as u64 + 512;
/// Bytes of a file without blocks, of its headers, and of a block in it.
const HEAD: u64 = 4096;
const TABLE: u64 = 12_288;
const ON_DISK: u64 = 4096;

/// What a model would have computed.
fn bytes_of(owner: usize, text: &[u32]) -> Vec<u8> {
    let seed = text.iter().fold(owner as u64 + 1, |seed, token| {
        (seed ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    });
    let mut dice = Dice::new(seed);
    (0..BYTES).map(|_| dice.bits() as u8).collect()
}

fn owner(number: usize) -> Owner {
    if number == 0 { Owner::default() } else { Owner::of_secret(format!("key {number}").as_bytes()) }
}

fn binding() -> Binding {
    Binding::new("a model", ["kernels", "format"])
}

/// A store and the notes that it gave.
struct Open {
    store: Arc<PrefixStore>,
    shelf: Arc<Shelf>,
    notes: Arc<Mutex<Vec<PrefixNote>>>,
}

impl Open {
    fn new(limits: &PrefixLimits) -> Self {
        let notes: Arc<Mutex<Vec<PrefixNote>>> = Arc::default();
        let told = Arc::clone(&notes);
        let store = Arc::new(PrefixStore::open(limits, move |note| told.lock().unwrap().push(note)));
        let shelf = store.shelf(binding(), TOKENS, BYTES);
        Self { store, shelf, notes }
    }

    fn keep(&self, of: usize, text: &[u32]) {
        let save = |block: usize, to: &mut [u8]| {
            to.copy_from_slice(&bytes_of(of, &text[..(block + 1) * TOKENS]));
            Ok::<(), Infallible>(())
        };
        self.shelf.keep(&KeptText { owner: owner(of), lead: &[], tokens: text }, save).unwrap();
    }

    /// Serves what there is of a text from block `first` on, checks it, and says which blocks there were.
    fn serve(&self, of: usize, text: &[u32], first: usize) -> (usize, Served) {
        let found = self.shelf.find(&KeptText { owner: owner(of), lead: &[], tokens: text });
        let blocks = found.blocks();
        let mut next = first;
        let served = found.load(first, |bytes| {
            next += 1;
            assert!(bytes == bytes_of(of, &text[..next * TOKENS]), "block {} of {text:?}", next - 1);
            Ok::<(), Infallible>(())
        });
        let served = served.unwrap();
        self.shelf.count(&served);
        assert_eq!(served.memory + served.disk, (next - first) * TOKENS, "of {blocks} blocks");
        (next, served)
    }

    fn notes(&self) -> Vec<PrefixNote> {
        self.notes.lock().unwrap().clone()
    }
}

fn limits(memory_bytes: u64, disk: Option<(&Path, u64)>) -> PrefixLimits {
    let disk = disk.map(|(folder, bytes)| PrefixDisk { folder: folder.to_owned(), bytes });
    PrefixLimits { memory_bytes, disk }
}

fn the_file(folder: &Path) -> PathBuf {
    let files = prefix_files(folder).unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].path.clone()
}

fn bytes_in(folder: &Path) -> u64 {
    prefix_files(folder).unwrap().iter().map(|file| file.bytes).sum()
}

/// A text that begins like one of those before it, as conversations do.
fn any_text(texts: &mut Vec<Vec<u32>>, dice: &mut Dice) -> Vec<u32> {
    let mut text = match texts.len() {
        0 => Vec::new(),
        len => texts[dice.below(len)].clone(),
    };
    text.truncate(dice.within(0, text.len()));
    let more = dice.within(1, 5 * TOKENS);
    text.extend((0..more).map(|_| dice.below(3) as u32));
    text.truncate(12 * TOKENS);
    texts.push(text.clone());
    text
}

/// What befalls a file while nobody has it open.
fn damage(path: &Path, dice: &mut Dice) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    match dice.below(4) {
        0 => file.set_len(dice.below(len as usize + 1) as u64).unwrap(),
        1 => {
            let garbage: Vec<u8> = (0..dice.within(1, 9000)).map(|_| dice.bits() as u8).collect();
            file.write_all_at(&garbage, len).unwrap();
        }
        _ => {
            for _ in 0..dice.within(1, 40) {
                let place = dice.below(len as usize) as u64;
                let mut byte = [0];
                file.read_exact_at(&mut byte, place).unwrap();
                file.write_all_at(&[byte[0] ^ 1 << dice.below(8)], place).unwrap();
            }
        }
    }
}

/// One history; how many tokens were served from memory and from the file, and how many blocks were found damaged.
fn history(case: u64) -> [u64; 3] {
    let mut dice = Dice::new(case);
    let folder = tempfile::tempdir().unwrap();
    let memory = dice.below(9) as u64 * IN_MEMORY + dice.below(300) as u64;
    let disk = HEAD + TABLE + dice.within(1, 40) as u64 * ON_DISK;
    let has_disk = dice.chance(75);
    let limits = limits(memory, has_disk.then_some((folder.path(), disk)));
    let (mut texts, mut kept) = (Vec::new(), BTreeSet::new());
    let mut open = Open::new(&limits);
    let mut sums = [0; 3];
    let mut count = |open: &Open| {
        let counts = open.store.counts();
        for (sum, more) in sums.iter_mut().zip([counts.memory_tokens, counts.disk_tokens, counts.damaged]) {
            *sum += more;
        }
    };
    for _ in 0..dice.within(10, 40) {
        let text = any_text(&mut texts, &mut dice);
        let of = *dice.pick(&[0, 0, 0, 1, 2]);
        match dice.below(10) {
            0..5 => {
                open.keep(of, &text);
                kept.extend((1..=text.len() / TOKENS).map(|end| (of, text[..end * TOKENS].to_vec())));
            }
            5..8 => {
                let own = dice.below(3);
                let (blocks, _) = open.serve(of, &text, own);
                for end in own + 1..=blocks {
                    let block = (of, text[..end * TOKENS].to_vec());
                    assert!(kept.contains(&block), "case {case}: served what {of} never kept: {block:?}");
                }
            }
            8 => {
                let second = Open::new(&limits);
                let is_in_use = matches!(second.notes()[..], [PrefixNote::InUse(_)]);
                assert_eq!(is_in_use, has_disk, "case {case}: {:?}", second.notes());
                second.keep(of, &text);
                assert_eq!(second.serve(of, &text, 0).1.disk, 0);
            }
            _ => {
                count(&open);
                drop(open);
                if has_disk && dice.chance(60) {
                    damage(&the_file(folder.path()), &mut dice);
                }
                open = Open::new(&limits);
                for text in &texts {
                    open.serve(of, text, 0);
                }
            }
        }
        if dice.chance(30) {
            open.store.flush();
        }
        let counts = open.store.counts();
        let most = memory + if has_disk { 64 << 20 } else { 0 };
        assert!(counts.memory_bytes <= most, "case {case}: {counts:?} of {memory}");
        let held = bytes_in(folder.path());
        assert!(held <= disk, "case {case}: {held} bytes of {disk}");
        assert!(open.notes().iter().all(|note| matches!(note, PrefixNote::Damaged(_))), "{:?}", open.notes());
    }
    open.store.flush();
    assert!(open.store.counts().memory_bytes <= memory, "case {case}: nothing waits");
    count(&open);
    sums
}

fn histories(cases: u64) {
    let mut sums = [0; 3];
    for case in 0..cases {
        sums.iter_mut().zip(history(case)).for_each(|(sum, more)| *sum += more);
    }
    let [memory, disk, damaged] = sums;
    let is_enough = memory > 10 * cases && disk > 10 * cases && damaged > cases / 20;
    assert!(is_enough, "{sums:?} in {cases} histories: too few to show anything");
}

#[test]
fn what_is_served_is_what_was_kept() {
    histories(if everything() { 10_000 } else { 300 });
}

#[test]
fn a_text_comes_back_after_a_restart_and_from_memory_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let limits = limits(100 * IN_MEMORY, Some((folder.path(), 1 << 20)));
    let text: Vec<u32> = (0..10 * TOKENS as u32 + 3).collect();
    Open::new(&limits).keep(1, &text);
    let open = Open::new(&limits);
    assert_eq!(open.serve(1, &text, 0), (10, Served { memory: 0, disk: 10 * TOKENS }));
    assert_eq!(open.serve(1, &text, 4), (10, Served { memory: 6 * TOKENS, disk: 0 }));
    assert_eq!(open.serve(0, &text, 0).0, 0, "another owner");
    assert_eq!(open.serve(2, &text, 0).0, 0, "another owner");
    let other = open.store.shelf(Binding::new("a model", ["kernels", "another format"]), TOKENS, BYTES);
    assert_eq!(
        other.find(&KeptText { owner: owner(1), lead: &[], tokens: &text }).blocks(),
        0,
        "another binding"
    );
    let counts = open.store.counts();
    assert_eq!((counts.hits, counts.memory_tokens, counts.disk_tokens), (2, 24, 40), "{counts:?}");
    assert_eq!(counts.memory_bytes, 10 * IN_MEMORY);
    let names: Vec<_> = prefix_files(folder.path()).unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(names, [Some("a model".to_owned()), Some("a model".to_owned())]);
}

#[test]
fn another_process_keeps_in_memory_alone_and_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    let limits = limits(100 * IN_MEMORY, Some((folder.path(), 1 << 20)));
    let (first, second) = (Open::new(&limits), Open::new(&limits));
    let text: Vec<u32> = (0..5 * TOKENS as u32).collect();
    for open in [&first, &second] {
        open.keep(0, &text);
        open.store.shelf(binding(), TOKENS, BYTES);
        assert_eq!(open.serve(0, &text, 0).1, Served { memory: 5 * TOKENS, disk: 0 });
    }
    assert!(first.notes().is_empty());
    let told = second.notes();
    assert!(matches!(told[..], [PrefixNote::InUse(_)]), "{told:?}");
    assert!(told[0].to_string().contains("another process"), "{}", told[0]);
    drop((first, second));
    assert_eq!(Open::new(&limits).serve(0, &text, 0).1.disk, 5 * TOKENS, "the first one's");
}

#[test]
fn what_waits_to_be_written_needs_no_room_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let limits = limits(0, Some((folder.path(), 1 << 20)));
    let text: Vec<u32> = (0..5 * TOKENS as u32).collect();
    let open = Open::new(&limits);
    open.keep(0, &text);
    open.store.flush();
    assert_eq!(open.serve(0, &text, 0).1, Served { memory: 0, disk: 5 * TOKENS });
    assert_eq!((open.store.counts().memory_bytes, open.store.counts().refused), (0, 0));
}

#[test]
fn a_folder_that_cannot_be_used_leaves_memory_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("file");
    fs::write(&taken, "no folder").unwrap();
    let text: Vec<u32> = (0..5 * TOKENS as u32).collect();
    for (place, bytes, why) in [(taken, 1 << 20, "exists"), (folder.path().join("small"), HEAD, "raise it")] {
        let open = Open::new(&limits(100 * IN_MEMORY, Some((&place, bytes))));
        open.keep(0, &text);
        open.store.flush();
        assert_eq!(open.serve(0, &text, 0).1, Served { memory: 5 * TOKENS, disk: 0 });
        let told = open.notes();
        assert!(matches!(&told[..], [PrefixNote::Stopped(..)]), "{told:?}");
        assert!(told[0].to_string().to_lowercase().contains(why), "{}", told[0]);
    }
}

#[test]
fn files_of_other_bindings_make_room_unless_they_are_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let limits = limits(0, Some((folder.path(), 2 * (HEAD + TABLE) + 10 * ON_DISK)));
    let text: Vec<u32> = (0..12 * TOKENS as u32).collect();
    let save = |_: usize, to: &mut [u8]| {
        to.fill(7);
        Ok::<(), Infallible>(())
    };
    let keep = |open: &Open, name: &str| {
        let shelf = open.store.shelf(Binding::new(name, [name]), TOKENS, BYTES);
        let of_nobody = KeptText { owner: owner(0), lead: &[], tokens: &text };
        shelf.keep(&of_nobody, save).unwrap();
        open.store.flush();
        shelf.find(&of_nobody).blocks()
    };
    let first = Open::new(&limits);
    // The store of the tests is open in all of them, and has no block.
    let of_a = keep(&first, "a");
    assert!((9..=12).contains(&of_a), "{of_a} blocks");
    let of_b = keep(&first, "b");
    assert_eq!(of_b, 0, "the files that take the room are in use");
    drop(first);
    let second = Open::new(&limits);
    assert!(keep(&second, "b") > 8, "no longer");
    assert!(bytes_in(folder.path()) <= limits.disk.unwrap().bytes);
}

#[test]
fn what_is_used_stays_and_what_is_not_leaves() {
    let open = Open::new(&limits(20 * IN_MEMORY, None));
    let often: Vec<u32> = (0..8 * TOKENS as u32).collect();
    open.keep(0, &often);
    for other in 0..40 {
        let once: Vec<u32> = (0..4 * TOKENS as u32).map(|token| 1000 + 100 * other + token).collect();
        open.keep(0, &once);
        open.keep(0, &often);
        assert_eq!(open.serve(0, &often, 0).0, 8, "after {other} others");
        assert_eq!(open.serve(0, &once, 0).0, 4, "the last one");
    }
    let counts = open.store.counts();
    assert!(counts.memory_evictions > 100 && counts.memory_bytes <= 20 * IN_MEMORY, "{counts:?}");
}
