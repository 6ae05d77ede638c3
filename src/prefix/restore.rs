//! Blocks that were found, brought back in order.
//!
//! Reading a file and checking what was read take about as long as putting it where it is needed, so the store's
//! readers read ahead.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{
    KeptText,
    counts::Served,
    file::{BlockFile, Place},
    key::Link,
    memory::Block,
    readers::Readers,
    store::Shelf,
};

/// The blocks that are kept of the beginning of a text.
#[derive(Debug)]
pub struct Found<'t> {
    shelf: Arc<Shelf>,
    text: Vec<Link<'t>>,
    /// Of the first blocks.
    in_memory: Vec<Arc<Block>>,
    /// Of those after them.
    on_disk: Vec<Place>,
}

impl Shelf {
    /// The blocks of a text that its owner has here, from the first on.
    pub fn find<'t>(self: &Arc<Self>, text: &KeptText<'t>) -> Found<'t> {
        let mut text = self.links(text);
        let in_memory = self.in_memory(&text);
        let on_disk = self.file().map_or_else(Vec::new, |file| file.find(&text, in_memory.len()));
        text.truncate(in_memory.len() + on_disk.len());
        Found { shelf: Arc::clone(self), text, in_memory, on_disk }
    }
}

impl Found<'_> {
    /// Blocks, from the first of the text on.
    pub fn blocks(&self) -> usize {
        self.in_memory.len() + self.on_disk.len()
    }

    /// The first `most` of them, or all if there are fewer.
    #[must_use]
    pub fn of_first(mut self, most: usize) -> Self {
        self.text.truncate(most);
        self.in_memory.truncate(most);
        self.on_disk.truncate(most - self.in_memory.len());
        self
    }

    /// Hands the blocks from number `first` on to `load`, in order, until one of them turns out to be damaged.
    ///
    /// # Errors
    /// The first of `load`.
    pub fn load<E>(self, first: usize, mut load: impl FnMut(&[u8]) -> Result<(), E>) -> Result<Served, E> {
        let Self { shelf, text, in_memory, on_disk } = self;
        let mut served = Served::default();
        let tokens = shelf.block_tokens();
        let loaded = in_memory.iter().skip(first).try_for_each(|block| {
            load(&block.bytes)?;
            served.memory += tokens;
            Ok(())
        });
        let first_read = first.max(in_memory.len());
        // Blocks of this text do not leave for others of it; what was served may leave.
        drop(in_memory);
        let loaded = loaded.and_then(|()| match (shelf.file(), shelf.readers()) {
            (Some(file), Some(readers)) if first_read < text.len() => {
                let skipped = first_read - (text.len() - on_disk.len()).min(first_read);
                let wanted: Vec<(Link<'_>, Place)> =
                    text[first_read..].iter().copied().zip(on_disk.iter().skip(skipped).copied()).collect();
                read_in_order(file, readers, &wanted, |link, bytes| {
                    load(&bytes)?;
                    served.disk += tokens;
                    shelf.take_in(&text, Arc::new(Block::new(link, bytes)));
                    Ok(())
                })
            }
            _ => Ok(()),
        });
        loaded.map(|()| served)
    }
}

/// How far the reading of some blocks is.
#[derive(Default)]
struct Progress {
    /// The next block that nobody reads yet.
    next: usize,
    /// Blocks that were handed on.
    taken: usize,
    /// What was read and not handed on, by the block's place in the order; `None` of one that is damaged.
    ready: Vec<(usize, Option<Vec<u8>>)>,
    /// Nothing more is wanted.
    is_over: bool,
}

/// Blocks of a file that are read in order, by the caller and whoever helps.
struct Reading {
    file: Arc<BlockFile>,
    places: Vec<Place>,
    /// How many blocks may be read before they are needed.
    ahead: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Reading {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads ahead until nothing is left.
    fn help(&self) {
        let mut progress = self.progress();
        while !progress.is_over && progress.next < self.places.len() {
            if progress.next >= progress.taken + self.ahead {
                progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let number = progress.next;
            progress.next += 1;
            drop(progress);
            let read = self.file.read(&self.places[number]);
            progress = self.progress();
            progress.ready.push((number, read));
            self.changed.notify_all();
        }
    }

    /// The block of this place in the order, read here if nobody reads it yet.
    fn take(&self, number: usize) -> Option<Vec<u8>> {
        let mut progress = self.progress();
        progress.taken = number + 1;
        self.changed.notify_all();
        if progress.next == number {
            progress.next += 1;
            drop(progress);
            return self.file.read(&self.places[number]);
        }
        loop {
            if let Some(place) = progress.ready.iter().position(|(ready, _)| *ready == number) {
                return progress.ready.swap_remove(place).1;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends the reading, however it ends.
struct End<'r>(&'r Reading);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.progress().is_over = true;
        self.0.changed.notify_all();
    }
}

/// Reads blocks of a file and hands them on in order; ends at the first that is damaged, which is dropped.
fn read_in_order<'t, E>(
    file: &Arc<BlockFile>,
    readers: &Readers,
    wanted: &[(Link<'t>, Place)],
    mut hand_on: impl FnMut(&Link<'t>, Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let helpers = readers.count().min(wanted.len().saturating_sub(1));
    let reading = Arc::new(Reading {
        file: Arc::clone(file),
        places: wanted.iter().map(|(_, place)| *place).collect(),
        // Each helper has one in hand and one ready.
        ahead: 2 * helpers,
        progress: Mutex::default(),
        changed: Condvar::new(),
    });
    let _end = End(&reading);
    for _ in 0..helpers {
        let reading = Arc::clone(&reading);
        readers.give(move || reading.help());
    }
    for (number, (link, place)) in wanted.iter().enumerate() {
        match reading.take(number) {
            Some(bytes) => hand_on(link, bytes)?,
            None => {
                file.drop_damaged(link, place);
                break;
            }
        }
    }
    Ok(())
}
