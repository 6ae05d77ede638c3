//! The level on disk: a file of blocks of one binding, which one process at a time has.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    Binding, PrefixNote,
    counts::Counters,
    folder::{EXTENSION, Folder},
    key::{BlockKey, Link},
    layout::{Header, Layout, Read},
    memory::Block,
    note::Notify,
    tree::Tree,
};
use crate::storage::{LockedFile, read_exact_at, write_all_at};

/// Where a block is in a file, and what its bytes must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    number: u32,
    digest: [u8; 32],
}

/// What is where in a file.
#[derive(Debug)]
struct Index {
    tree: Tree<Place>,
    /// Places that have no block.
    free: Vec<u32>,
    places: u32,
    /// Writes so far.
    written: u64,
}

/// A file of blocks, whose lock this process holds.
pub(super) struct BlockFile {
    file: LockedFile,
    path: PathBuf,
    folder: Folder,
    layout: Layout,
    index: Mutex<Index>,
    bytes: AtomicU64,
    /// Nothing is written or read any more.
    is_off: AtomicBool,
    has_told_damage: AtomicBool,
    counters: Arc<Counters>,
    notify: Arc<Notify>,
}

impl std::fmt::Debug for BlockFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockFile({}, {} bytes)", self.path.display(), self.bytes())
    }
}

impl BlockFile {
    /// Opens or makes the file of a binding in a folder. Without one, the notes say why.
    pub(super) fn open(
        folder: &Folder,
        binding: &Binding,
        layout: Layout,
        counters: &Arc<Counters>,
        notify: &Arc<Notify>,
    ) -> Option<Self> {
        let name = format!("{}.{EXTENSION}", &blake3::Hash::from_bytes(*binding.digest()).to_hex()[..32]);
        let path = folder.path.join(&name);
        match Self::open_at(folder, &name, binding, layout, counters, notify) {
            Ok(Some(file)) => Some(file),
            Ok(None) => {
                notify(PrefixNote::InUse(path));
                None
            }
            Err(error) => {
                notify(PrefixNote::Stopped(path, error.to_string()));
                None
            }
        }
    }

    /// As `open`; `None` if another process has it.
    fn open_at(
        folder: &Folder,
        name: &str,
        binding: &Binding,
        layout: Layout,
        counters: &Arc<Counters>,
        notify: &Arc<Notify>,
    ) -> io::Result<Option<Self>> {
        folder.create()?;
        let file = {
            // Who removes files holds it, so that none is removed between its opening and its lock.
            let _lock = folder.lock()?;
            match LockedFile::take(folder.open(name)?)? {
                Some(file) => file,
                None => return Ok(None),
            }
        };
        let path = folder.path.join(name);
        let opened = Self {
            index: Mutex::new(Index { tree: Tree::new(), free: Vec::new(), places: 0, written: 0 }),
            file,
            path,
            folder: folder.clone(),
            layout,
            bytes: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
            has_told_damage: AtomicBool::new(false),
            counters: Arc::clone(counters),
            notify: Arc::clone(notify),
        };
        let head = layout.head(binding);
        let mut found = vec![0; head.len()];
        let is_known = read_exact_at(&opened.file, &mut found, 0).is_ok() && found == head;
        let found_places = if is_known { layout.places(opened.file.metadata()?.len()) } else { 0 };
        let places = opened.fitting(found_places)?;
        if !is_known {
            // Of another version, or cut in its first page: nothing of it can be used.
            opened.file.set_len(0)?;
            opened.set_places(places)?;
            write_all_at(&opened.file, &head, 0)?;
        } else {
            opened.set_places(places)?;
        }
        opened.scan()?;
        touch(&opened.file);
        Ok(Some(opened))
    }

    /// At most so many places that the folder's limit allows at all.
    fn fitting(&self, places: u32) -> io::Result<u32> {
        let fits = |places: u32| self.layout.file_bytes(places) <= self.folder.limit;
        if !fits(1) {
            let (limit, needed) = (self.folder.limit, self.layout.file_bytes(1));
            return Err(io::Error::other(format!(
                "expected a limit of {needed} bytes or more, found {limit}; raise it"
            )));
        }
        let (mut least, mut most) = (0, places);
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(middle) { least = middle } else { most = middle - 1 }
        }
        Ok(least)
    }

    /// Gives the file as many places, or fewer where the folder is full.
    fn set_places(&self, mut places: u32) -> io::Result<()> {
        // Halving ends at no place, of which there is room or an error.
        while !self.folder.resize(&self.file, &self.path, self.layout.file_bytes(places))? {
            if places == 0 {
                return Err(io::Error::other(format!(
                    "the folder's limit of {} bytes is taken by files that are in use; raise it",
                    self.folder.limit
                )));
            }
            places /= 2;
        }
        self.bytes.store(self.layout.file_bytes(places), Ordering::Relaxed);
        self.index().places = places;
        Ok(())
    }

    /// Reads all headers and notes which blocks there are; places without one are free.
    fn scan(&self) -> io::Result<()> {
        let (layout, places) = (&self.layout, self.index().places);
        let mut found = Vec::new();
        layout.each_header(&self.file, places, |place, read| match read {
            Read::Block(header) => found.push((header, place)),
            Read::Empty | Read::Broken => {}
        })?;
        // Those before others first, and of equal ones the last that was written.
        found.sort_by(|(a, _), (b, _)| a.number.cmp(&b.number).then(b.written.cmp(&a.written)));
        let mut index = self.index();
        let mut is_taken = vec![false; places as usize];
        let mut by_age = Vec::new();
        for (header, place) in &found {
            let link = header.link();
            index.written = index.written.max(header.written);
            if index.tree.has_place_for(&link) {
                let value = Place { number: *place, digest: header.digest };
                index.tree.insert(&link, header.tokens.as_slice().into(), value);
                is_taken[*place as usize] = true;
                by_age.push((header.written, header.key));
            }
        }
        // What was written last counts as used last.
        by_age.sort_unstable();
        by_age.iter().for_each(|(_, key)| index.tree.touch(key));
        index.free = (0..places).rev().filter(|place| !is_taken[*place as usize]).collect();
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // A thread that panicked left whole operations: an index is changed by single calls.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    /// Uses the file no more, and says why.
    fn stop(&self, why: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            (self.notify)(PrefixNote::Stopped(self.path.clone(), why.to_string()));
        }
    }

    /// Where the blocks of a text are, from the one of number `first` on, as far as they are here.
    pub(super) fn find(&self, text: &[Link<'_>], first: usize) -> Vec<Place> {
        if self.is_off() {
            return Vec::new();
        }
        let index = self.index();
        text.iter().skip(first).map_while(|link| index.tree.get(link).copied()).collect()
    }

    /// Whether a block is here; if so it was used now.
    pub(super) fn has(&self, link: &Link<'_>) -> bool {
        let mut index = self.index();
        index.tree.touch(&link.key);
        index.tree.get(link).is_some()
    }

    /// Whether blocks are written here.
    pub(super) fn is_writable(&self) -> bool {
        !self.is_off()
    }

    /// Reads a block that was found; `None` if it is not there whole.
    pub(super) fn read(&self, place: &Place) -> Option<Vec<u8>> {
        if self.is_off() {
            return None;
        }
        let mut bytes = vec![0; self.layout.block_bytes];
        match read_exact_at(&self.file, &mut bytes, self.layout.payload_at(place.number)) {
            Ok(()) => (*blake3::hash(&bytes).as_bytes() == place.digest).then_some(bytes),
            // Others cut the file: what is left of it can be read.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => {
                self.stop(&error);
                None
            }
        }
    }

    /// Drops a block that could not be read whole, with those after it.
    pub(super) fn drop_damaged(&self, link: &Link<'_>, place: &Place) {
        let mut index = self.index();
        // It may have left for another meanwhile.
        if index.tree.get(link).is_none_or(|now| now.number != place.number || now.digest != place.digest) {
            return;
        }
        let gone = index.tree.take_with_followers(&link.key);
        drop(index);
        // Before others may be written there.
        let cleared = vec![0; self.layout.header_bytes()];
        for place in &gone {
            if let Err(error) = write_all_at(&self.file, &cleared, self.layout.header_at(place.number)) {
                self.stop(&error);
            }
        }
        self.index().free.extend(gone.iter().map(|place| place.number));
        Counters::add(&self.counters.damaged, 1);
        if !self.has_told_damage.swap(true, Ordering::Relaxed) {
            (self.notify)(PrefixNote::Damaged(self.path.clone()));
        }
    }

    /// Writes a block, if the one before it is here. Only one thread writes.
    pub(super) fn write(&self, block: &Block) {
        if self.is_off() {
            return;
        }
        if let Err(error) = self.try_write(block) {
            self.stop(&error);
        }
    }

    fn try_write(&self, block: &Block) -> io::Result<()> {
        let link = block.link();
        if !self.index().tree.has_place_for(&link) {
            return Ok(());
        }
        let Some(place) = self.free_place(&block.parent)? else {
            Counters::add(&self.counters.refused, 1);
            return Ok(());
        };
        let written = self.index().written + 1;
        let header = Header {
            key: block.key,
            parent: block.parent,
            digest: *blake3::hash(&block.bytes).as_bytes(),
            number: block.number,
            tokens: block.tokens.to_vec(),
            written,
        };
        for (at, bytes) in writes(&self.layout, place, &header, &block.bytes) {
            write_all_at(&self.file, &bytes, at)?;
        }
        let mut index = self.index();
        index.written = written;
        if index.tree.has_place_for(&link) {
            let value = Place { number: place, digest: header.digest };
            index.tree.insert(&link, Arc::clone(&block.tokens), value);
        } else {
            // The block before it was found damaged meanwhile.
            index.free.push(place);
        }
        Ok(())
    }

    /// A place for a block after another, which stays: free, new, or of the block that is worth least. `None` if all
    /// belong to its own text.
    fn free_place(&self, parent: &BlockKey) -> io::Result<Option<u32>> {
        let places = {
            let mut index = self.index();
            if let Some(place) = index.free.pop() {
                return Ok(Some(place));
            }
            index.places
        };
        let bytes = self.layout.file_bytes(places + 1);
        if bytes <= self.folder.limit && self.folder.resize(&self.file, &self.path, bytes)? {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.index().places = places + 1;
            return Ok(Some(places));
        }
        // Of its own text only the block before it is an end.
        let taken = self.index().tree.take_cheapest(|key, _| key != parent);
        Counters::add(&self.counters.disk_evictions, usize::from(taken.is_some()));
        Ok(taken.map(|place| place.number))
    }
}

/// The writes that put a block at a place, in order: the header is cleared, the payload written, then the header. So a
/// header is there only with the whole payload before it.
pub(super) fn writes<'b>(
    layout: &Layout,
    place: u32,
    header: &Header,
    payload: &'b [u8],
) -> [(u64, std::borrow::Cow<'b, [u8]>); 3] {
    [
        (layout.header_at(place), vec![0; layout.header_bytes()].into()),
        (layout.payload_at(place), payload.into()),
        (layout.header_at(place), layout.header(header).into()),
    ]
}

/// Marks a file as used now. A file system that refuses keeps the order it had.
#[expect(clippy::disallowed_methods, reason = "which file was used last decides which is removed first")]
fn touch(file: &File) {
    let _ = file.set_modified(std::time::SystemTime::now());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::{KeptText, Owner, key::chain};

    const LAYOUT: Layout = Layout { block_tokens: 4, block_bytes: 9000 };

    struct Kept {
        folder: tempfile::TempDir,
        notes: Arc<Mutex<Vec<PrefixNote>>>,
        limit: u64,
    }

    impl Kept {
        fn new(places: u32) -> Self {
            let (folder, notes) = (tempfile::tempdir().unwrap(), Arc::default());
            Self { folder, notes, limit: LAYOUT.file_bytes(places) }
        }

        fn open(&self) -> BlockFile {
            let folder = Folder { path: self.folder.path().to_owned(), limit: self.limit };
            let told = Arc::clone(&self.notes);
            let notify: Arc<Notify> = Arc::new(move |note| told.lock().unwrap().push(note));
            BlockFile::open(&folder, &binding(), LAYOUT, &Arc::default(), &notify).unwrap()
        }
    }

    fn binding() -> Binding {
        Binding::new("test", ["nothing"])
    }

    fn text(seed: u32, blocks: u32) -> Vec<u32> {
        (0..4 * blocks).map(|place| seed * 100 + place).collect()
    }

    fn links(text: &[u32]) -> Vec<Link<'_>> {
        chain(&binding(), &KeptText { owner: Owner::default(), lead: &[], tokens: text }, 4)
    }

    fn payload(link: &Link<'_>) -> Vec<u8> {
        link.key.0.iter().copied().cycle().take(LAYOUT.block_bytes).collect()
    }

    fn write(file: &BlockFile, text: &[u32]) {
        links(text).iter().for_each(|link| file.write(&Block::new(link, payload(link))));
    }

    /// How many blocks of a text can be read, all of which must be whole.
    fn readable(file: &BlockFile, text: &[u32]) -> usize {
        let links = links(text);
        let read = links.iter().zip(file.find(&links, 0)).map_while(|(link, place)| {
            let bytes = file.read(&place);
            if bytes.is_none() {
                file.drop_damaged(link, &place);
            }
            bytes.inspect(|bytes| assert!(*bytes == payload(link), "block {}", link.number))
        });
        read.count()
    }

    #[test]
    fn whoever_is_killed_at_any_point_of_a_write_loses_that_block_alone() {
        let (old, new) = (text(1, 3), text(2, 1));
        let link = links(&new)[0];
        let bytes = payload(&link);
        for write_number in 0..3 {
            for part in [0, 1, 30, 64, 100, 139, 4096, usize::MAX] {
                let place = Kept::new(3);
                write(&place.open(), &old);
                // The block that is worth least makes room: the end of the old text.
                let header = Header {
                    key: link.key,
                    parent: link.parent,
                    digest: *blake3::hash(&bytes).as_bytes(),
                    number: 0,
                    tokens: new.clone(),
                    written: 9,
                };
                let is_whole = write_number == 2 && part >= LAYOUT.header_bytes();
                let path = {
                    let file = place.open();
                    let all = writes(&LAYOUT, 2, &header, &bytes);
                    for (at, bytes) in &all[..write_number] {
                        write_all_at(&file.file, bytes, *at).unwrap();
                    }
                    let (at, bytes) = &all[write_number];
                    write_all_at(&file.file, &bytes[..part.min(bytes.len())], *at).unwrap();
                    file.path.clone()
                };
                let file = place.open();
                let what = format!("{part} bytes of write {write_number} of {}", path.display());
                assert_eq!(readable(&file, &new), usize::from(is_whole), "{what}");
                let before = readable(&file, &old);
                assert!(before == 2 || before == 3 && write_number == 0, "{what}: {before} of the old text");
                write(&file, &new);
                drop(file);
                let file = place.open();
                assert_eq!((readable(&file, &new), readable(&file, &old)), (1, 2), "{what}: it goes on");
                let told = place.notes.lock().unwrap();
                assert!(told.iter().all(|note| matches!(note, PrefixNote::Damaged(_))), "{told:?}");
            }
        }
    }

    #[test]
    fn a_file_without_room_keeps_what_is_worth_most() {
        let place = Kept::new(5);
        let file = place.open();
        let (first, second, long) = (text(1, 3), text(2, 3), text(3, 9));
        write(&file, &first);
        write(&file, &second);
        assert_eq!((readable(&file, &first), readable(&file, &second)), (2, 3));
        links(&first).iter().for_each(|link| assert!(file.has(link) == (link.number < 2)));
        write(&file, &long);
        assert_eq!(readable(&file, &long), 5, "a text never makes room for itself");
        assert_eq!(file.bytes(), place.limit);
        assert!(place.notes.lock().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_was_cut_or_is_of_another_kind_is_begun_anew() {
        let place = Kept::new(6);
        let text = text(4, 6);
        write(&place.open(), &text);
        let path = place.open().path.clone();
        let whole = std::fs::read(&path).unwrap();
        for (length, readable_then) in
            [(LAYOUT.payload_at(3), 3), (LAYOUT.payload_at(0) - 1, 0), (4096, 0), (700, 0), (0, 0)]
        {
            std::fs::write(&path, &whole[..length as usize]).unwrap();
            assert_eq!(readable(&place.open(), &text), readable_then, "{length} bytes");
        }
        let mut other = whole.clone();
        other[50] ^= 4;
        std::fs::write(&path, &other).unwrap();
        let file = place.open();
        assert_eq!(readable(&file, &text), 0, "of another binding");
        write(&file, &text);
        assert_eq!(readable(&file, &text), 6);
        assert!(place.notes.lock().unwrap().is_empty());
    }
}
