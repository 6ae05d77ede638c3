//! A store of kept prefixes, and its shelves.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Binding, KeptText, PrefixCounts, PrefixNote,
    counts::{Counters, Served},
    file::BlockFile,
    folder::Folder,
    key::{Link, chain},
    layout::Layout,
    memory::{Block, Memory, Room, bytes_of},
    note::Notify,
    readers::Readers,
    writer::{Job, Writer},
};

/// Memory of blocks that wait to be written and are in no level, where memory keeps fewer bytes than that: enough that
/// the end of a long prompt is written with its beginning, little beside any model.
const MOST_WAITING_BYTES: u64 = 64 << 20;

/// Files of kept prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixDisk {
    /// The folder, which need not exist.
    pub folder: PathBuf,
    /// Most bytes of all files in it together.
    pub bytes: u64,
}

/// How much is kept, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixLimits {
    /// Most bytes in memory. With a disk, up to 64 MiB more while blocks wait to be written.
    pub memory_bytes: u64,
    /// Files; `None` keeps prefixes in memory alone.
    pub disk: Option<PrefixDisk>,
}

/// Kept prefixes, which all engines of a process share. When the last user drops it, what waits to be written is
/// written.
///
/// ```
/// use std::sync::Arc;
/// use yggc::{engine::{Engine, Options}, prefix::{PrefixLimits, PrefixStore}};
/// # let folder = tempfile::tempdir()?;
/// # let model = folder.path().join("tiny.gguf");
/// # yggc::model::synthetic::SyntheticSpec::default().write_gguf(&model)?;
///
/// let limits = PrefixLimits { memory_bytes: 64 << 20, disk: None };
/// let prefixes = Arc::new(PrefixStore::open(&limits, |note| println!("{note}")));
/// let mut engine = Engine::open(&Options { prefixes: Some(Arc::clone(&prefixes)), ..Options::new(&model) })?;
/// # use yggc::engine::{Prompt, Request};
/// let ask = |text: &str| Request { max_tokens: 1, ..Request::new(Prompt::Tokens(text.bytes().map(|b| u32::from(b) %
/// 32).collect())) }; let one = "a".repeat(100);
/// engine.generate(&ask(&one))?.collect_answer()?;
/// engine.generate(&ask("something else"))?.collect_answer()?;
/// let again = engine.generate(&ask(&one))?.collect_answer()?;
/// assert_eq!((again.report.reused_tokens, prefixes.counts().memory_tokens), (64, 64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PrefixStore {
    memory: Mutex<Memory>,
    folder: Option<Folder>,
    /// Files that are open, by what their blocks are bound to; `None` of those that cannot be used.
    files: Mutex<BTreeMap<Binding, Option<Arc<BlockFile>>>>,
    /// None without files.
    writer: Option<Writer>,
    readers: Option<Readers>,
    counters: Arc<Counters>,
    notify: Arc<Notify>,
}

impl fmt::Debug for PrefixStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixStore({:?})", self.counts())
    }
}

/// The lock's content, whatever happened to another holder: what it guards is changed by whole operations.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PrefixStore {
    /// A store of these limits. Its threads run where the caller may: open it before sessions bind that. `notify` is
    /// told what a user should know, on whichever thread learns it: where a folder cannot be used, prefixes are kept in
    /// memory alone.
    pub fn open(limits: &PrefixLimits, notify: impl Fn(PrefixNote) + Send + Sync + 'static) -> Self {
        let PrefixLimits { memory_bytes, disk } = limits;
        let mut folder = disk.as_ref().map(|disk| Folder { path: disk.folder.clone(), limit: disk.bytes });
        let writer = folder.as_ref().map(|_| Writer::start()).transpose().unwrap_or_else(|error| {
            let refused = folder.take().expect("a thread was asked for");
            notify(PrefixNote::Stopped(refused.path, format!("no thread to write them: {error}")));
            None
        });
        Self {
            memory: Mutex::new(Memory::new(*memory_bytes)),
            readers: folder.as_ref().map(|_| Readers::start()),
            folder,
            files: Mutex::default(),
            writer,
            counters: Arc::default(),
            notify: Arc::new(notify),
        }
    }

    /// What it keeps under a binding, in blocks of so many tokens and bytes.
    pub fn shelf(self: &Arc<Self>, binding: Binding, block_tokens: usize, block_bytes: usize) -> Arc<Shelf> {
        let layout = Layout { block_tokens, block_bytes };
        let file = self.folder.as_ref().and_then(|folder| {
            let mut files = locked(&self.files);
            let open =
                || BlockFile::open(folder, &binding, layout, &self.counters, &self.notify).map(Arc::new);
            files.entry(binding.clone()).or_insert_with(open).clone()
        });
        Arc::new(Shelf { store: Arc::clone(self), binding, layout, file })
    }

    /// What it did since it was opened, and what it holds now.
    pub fn counts(&self) -> PrefixCounts {
        let waiting = self.writer.as_ref().map_or(0, Writer::bytes);
        let files = locked(&self.files);
        let on_disk = files.values().flatten().map(|file| file.bytes()).sum();
        self.counters.counts(locked(&self.memory).bytes() + waiting, on_disk)
    }

    /// Waits until everything that waits to be written is.
    pub fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.finish();
        }
    }
}

/// The blocks of one binding in a store.
#[derive(Debug)]
pub struct Shelf {
    store: Arc<PrefixStore>,
    binding: Binding,
    layout: Layout,
    file: Option<Arc<BlockFile>>,
}

impl Shelf {
    /// Tokens of a block.
    pub fn block_tokens(&self) -> usize {
        self.layout.block_tokens
    }

    /// Notes that the whole blocks of a text are used, as far as they are in memory.
    pub fn touch(&self, text: &KeptText<'_>) {
        let mut memory = locked(&self.store.memory);
        self.links(text).iter().for_each(|link| memory.tree.touch(&link.key));
    }

    /// Counts what a request was served.
    pub fn count(&self, served: &Served) {
        let counters = &self.store.counters;
        Counters::add(&counters.memory_tokens, served.memory);
        Counters::add(&counters.disk_tokens, served.disk);
        Counters::add(&counters.hits, usize::from(*served != Served::default()));
    }

    /// The file of its blocks, if there is one.
    pub(super) fn file(&self) -> Option<&Arc<BlockFile>> {
        self.file.as_ref()
    }

    /// Who helps to read it.
    pub(super) fn readers(&self) -> Option<&Readers> {
        self.store.readers.as_ref()
    }

    /// The whole blocks of a text.
    pub(super) fn links<'t>(&self, text: &KeptText<'t>) -> Vec<Link<'t>> {
        chain(&self.binding, text, self.layout.block_tokens)
    }

    /// Those of a text that are in memory, from the first on.
    pub(super) fn in_memory(&self, text: &[Link<'_>]) -> Vec<Arc<Block>> {
        let memory = locked(&self.store.memory);
        text.iter().map_while(|link| memory.tree.get(link).cloned()).collect()
    }

    /// Keeps the whole blocks of a text for its owner. `save` writes the bytes of the block of a number, and is asked
    /// for those that are not in memory yet. What is written to a file is written later, by another thread.
    ///
    /// # Errors
    /// The first of `save`; the blocks before are kept.
    pub fn keep<E>(
        &self,
        text: &KeptText<'_>,
        mut save: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let text = self.links(text);
        for link in &text {
            let is_on_disk = self.file.as_ref().is_none_or(|file| !file.is_writable() || file.has(link));
            let here = {
                let mut memory = locked(&self.store.memory);
                memory.tree.touch(&link.key);
                memory.tree.get(link).cloned()
            };
            let (block, is_here) = match here {
                Some(block) => (block, true),
                None => {
                    let Some(mut bytes) = self.buffer(&text, is_on_disk) else {
                        Counters::add(&self.store.counters.refused, 1);
                        break;
                    };
                    save(link.number as usize, &mut bytes)?;
                    let block = Arc::new(Block::new(link, bytes));
                    let is_here = locked(&self.store.memory).insert(&block);
                    (block, is_here)
                }
            };
            if !is_on_disk && let (Some(file), Some(writer)) = (&self.file, &self.store.writer) {
                let bytes = bytes_of(block.tokens.len(), block.bytes.len());
                let bytes_here = if is_here { 0 } else { bytes };
                writer.push(Job { file: Arc::clone(file), block, bytes_here });
            }
        }
        Ok(())
    }

    /// A buffer for a block of a text: memory has room for it, or it may wait to be written.
    fn buffer(&self, text: &[Link<'_>], is_on_disk: bool) -> Option<Vec<u8>> {
        let Layout { block_tokens, block_bytes } = self.layout;
        let Room { fits, freed, left } =
            locked(&self.store.memory).make_room(block_tokens, block_bytes, text);
        Counters::add(&self.store.counters.memory_evictions, left);
        let may_wait = || {
            let waiting = self.store.writer.as_ref().filter(|_| !is_on_disk).map(Writer::bytes);
            waiting.is_some_and(|waiting| waiting + bytes_of(block_tokens, block_bytes) <= MOST_WAITING_BYTES)
        };
        (fits || may_wait()).then(|| freed.unwrap_or_else(|| vec![0; block_bytes]))
    }

    /// Takes a block that was read into memory, if there is room.
    pub(super) fn take_in(&self, text: &[Link<'_>], block: Arc<Block>) {
        let mut memory = locked(&self.store.memory);
        let room = memory.make_room(block.tokens.len(), block.bytes.len(), text);
        if room.fits {
            memory.insert(&block);
        }
        drop(memory);
        Counters::add(&self.store.counters.memory_evictions, room.left);
    }
}
