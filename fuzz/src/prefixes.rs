//! Files of kept prefixes: one that was written, then damaged, with checksums of headers made anew at times; opened,
//! looked into, and written to.

use std::{convert::Infallible, fs, path::Path, sync::Arc};

use yggc::prefix::{
    Binding, KeptText, Owner, PrefixDisk, PrefixLimits, PrefixNote, PrefixStore, Shelf, prefix_files,
};

const BLOCK_TOKENS: usize = 4;
const BLOCK_BYTES: usize = 24;
/// Blocks of the text that is in the file.
const BLOCKS: usize = 3;
/// What is before the headers, and a header with its checksum last, as the format says.
const HEAD: usize = 4096;
const HEADER: usize = 3 * 32 + 4 + 4 * BLOCK_TOKENS + 8 + 32;
/// Room for more blocks than there are.
const LIMITS: u64 = 1 << 20;

/// Damages a file as the input says, a change of four bytes each: what, where (two), and by which byte. Whatever a
/// block's bytes are served for must be the text that they were kept for.
pub fn check(input: &[u8]) -> bool {
    thread_local! {
        static WHOLE: Vec<u8> = whole();
    }
    let mut file = WHOLE.with(Clone::clone);
    for [what, low, high, by] in input.as_chunks::<4>().0.iter().take(64) {
        let place = usize::from(u16::from_le_bytes([*low, *high]));
        match what % 4 {
            0 => {
                if let Some(byte) = file.get_mut(place) {
                    *byte ^= by;
                }
            }
            1 => file.truncate(place),
            2 => file.resize(file.len() + place, *by),
            _ => forge(&mut file, usize::from(*low) % (BLOCKS + 1), usize::from(*high), *by),
        }
    }
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let path = folder.path().join(name_of(folder.path()));
    fs::write(&path, &file).expect("the temporary folder is writable");
    for file in prefix_files(folder.path()).expect("a folder") {
        let _ = file.check();
    }
    let found = {
        let shelf = open(folder.path());
        let found = served(&shelf, 0);
        keep(&shelf, 1);
        assert_eq!(served(&shelf, 1), BLOCKS, "what was kept now, in memory");
        found
    };
    let shelf = open(folder.path());
    assert_eq!(served(&shelf, 1), BLOCKS, "what was kept in the damaged file");
    assert!(served(&shelf, 0) <= BLOCKS);
    found > 0
}

/// Changes a byte of a header, and has its checksum be that of what it is now.
fn forge(file: &mut [u8], number: usize, place: usize, by: u8) {
    let Some(header) = file.get_mut(HEAD + number * HEADER..).and_then(|rest| rest.get_mut(..HEADER)) else {
        return;
    };
    let (said, checksum) = header.split_at_mut(HEADER - 32);
    said[place % (HEADER - 32)] ^= by;
    checksum.copy_from_slice(blake3::hash(said).as_bytes());
}

fn open(folder: &Path) -> Arc<Shelf> {
    let disk = Some(PrefixDisk { folder: folder.to_owned(), bytes: LIMITS });
    let limits = PrefixLimits { memory_bytes: LIMITS, disk };
    let store = Arc::new(PrefixStore::open(&limits, |note| {
        assert!(!matches!(note, PrefixNote::InUse(_)), "whoever had it has closed it: {note}");
    }));
    store.shelf(Binding::new("fuzzed", ["fuzzed"]), BLOCK_TOKENS, BLOCK_BYTES)
}

/// The tokens of a text, and the bytes of its blocks.
fn tokens(text: u32) -> Vec<u32> {
    (0..(BLOCKS * BLOCK_TOKENS) as u32).map(|place| text * 1_000 + place).collect()
}

fn payload(text: u32, block: usize) -> [u8; BLOCK_BYTES] {
    std::array::from_fn(|place| (text as usize * 91 + block * 37 + place) as u8)
}

fn keep(shelf: &Shelf, text: u32) {
    let kept = KeptText { owner: Owner::default(), lead: &[], tokens: &tokens(text) };
    let saved = shelf.keep(&kept, |block, bytes| {
        bytes.copy_from_slice(&payload(text, block));
        Ok::<(), Infallible>(())
    });
    saved.expect("it cannot fail");
}

/// How many blocks of a text are served.
fn served(shelf: &Arc<Shelf>, text: u32) -> usize {
    let tokens = tokens(text);
    let found = shelf.find(&KeptText { owner: Owner::default(), lead: &[], tokens: &tokens });
    let mut blocks = 0;
    let loaded = found.load(0, |bytes| {
        assert_eq!(bytes, payload(text, blocks), "block {blocks} of text {text}");
        blocks += 1;
        Ok::<(), Infallible>(())
    });
    loaded.expect("it cannot fail");
    blocks
}

/// The name of the file that a shelf makes in an empty folder, which it leaves as empty as it was.
fn name_of(folder: &Path) -> String {
    drop(open(folder));
    let files = prefix_files(folder).expect("a folder");
    let path = &files.first().expect("the shelf's file").path;
    let name = path.file_name().expect("a file").to_str().expect("letters and digits").to_owned();
    fs::remove_file(path).expect("nobody has it");
    name
}

/// A file with a text.
fn whole() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    {
        let shelf = open(folder.path());
        keep(&shelf, 0);
    }
    fs::read(&prefix_files(folder.path()).expect("a folder")[0].path).expect("it was written")
}
