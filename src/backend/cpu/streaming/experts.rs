//! Experts that are read when rows use them: places in memory that the matrices of a routed product share.
//!
//! Every routed product has a *pool*. Once its routes are known, a forward *calls* the matrices that they name, in the
//! order in which workers take them; each gets a *turn* and a place. What lies in a place already is used there; what
//! does not is read into the place that was used longest ago. A forward that uses more matrices than there are places
//! reads into a place again once all workers have passed the turn that was there. Laws:
//! - Workers read a matrix between the end of its reading and their passing its turn, and none once its product is over.
//! - Readers take the parts of calls in order and wait for earlier turns only, so they always come to an end.
//! - Calls of one model are those of one forward at a time.
//! - All workers end a forward alike when reading has failed: whether it has is asked where matrices are called.
//!
//! Nothing here allocates or takes a lock once it was made.

use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use ygg_kernels::{
    Routes,
    cpu::{self, PackedLinear},
};

use crate::packed::PackedFile;

use super::{
    super::barrier::relax,
    BackendError, NAP, READERS, SPINS_BEFORE_SLEEP,
    readers::{CHUNK, Part, Readers, Reading},
};

/// No turn, no place, no matrix.
const NONE: u32 = u32::MAX;

/// The number of a pool, in the order of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::backend::cpu) struct PoolId(pub(in crate::backend::cpu) usize);

/// What a pool is made of.
#[derive(Debug)]
pub(in crate::backend::cpu) struct PoolSpec {
    /// First bytes of all matrices, from the begin of the file's weights: of all experts the first matrix, then the
    /// second where each has two.
    pub(in crate::backend::cpu) starts: Vec<u64>,
    /// Of one matrix.
    pub(in crate::backend::cpu) bytes: usize,
    /// Matrices of an expert.
    pub(in crate::backend::cpu) of_each: usize,
    /// Where places begin, and a matrix in each.
    pub(in crate::backend::cpu) places: Vec<(usize, Arc<PackedLinear>)>,
    /// The pool whose product follows by the same routes.
    pub(in crate::backend::cpu) next: Option<PoolId>,
}

/// A matrix that a forward uses.
#[derive(Debug)]
struct Turn {
    matrix: AtomicU32,
    place: AtomicU32,
    /// The earlier turn that has to be passed before the place is written, if one has.
    needs: AtomicU32,
    /// Parts that are not read yet.
    left: AtomicUsize,
    /// Workers that have done with it.
    passed: AtomicUsize,
}

/// A place.
#[derive(Debug)]
struct Place {
    at: usize,
    linear: Arc<PackedLinear>,
    holds: AtomicU32,
    /// The call that used it last, and its turn.
    call: AtomicU64,
    turn: AtomicU32,
}

#[derive(Debug)]
struct Pool {
    starts: Vec<u64>,
    bytes: usize,
    of_each: usize,
    next: Option<PoolId>,
    /// Parts of a matrix.
    parts: usize,
    places: Vec<Place>,
    /// The places of matrices.
    lies_in: Vec<AtomicU32>,
    /// The turns of matrices in the present call.
    turn_of: Vec<AtomicU32>,
    turns: Vec<Turn>,
    /// Turns of the present call.
    count: AtomicUsize,
    /// Whether the present call was made ahead of its product.
    is_called: AtomicBool,
}

impl Pool {
    fn new(PoolSpec { starts, bytes, of_each, places, next }: PoolSpec) -> Self {
        let number = |value: u32| AtomicU32::new(value);
        let turn = |_| Turn {
            matrix: number(NONE),
            place: number(NONE),
            needs: number(NONE),
            left: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
        };
        let place = |(at, linear)| Place {
            at,
            linear,
            holds: number(NONE),
            call: AtomicU64::new(0),
            turn: number(NONE),
        };
        Self {
            parts: bytes.div_ceil(CHUNK),
            places: places.into_iter().map(place).collect(),
            lies_in: starts.iter().map(|_| number(NONE)).collect(),
            turn_of: starts.iter().map(|_| number(NONE)).collect(),
            turns: starts.iter().map(turn).collect(),
            count: AtomicUsize::new(0),
            is_called: AtomicBool::new(false),
            starts,
            bytes,
            of_each,
            next,
        }
    }

    fn experts(&self) -> usize {
        self.starts.len() / self.of_each
    }

    /// Gives turns to the matrices of the experts that routes name, and notes what they use of what is there.
    fn give_turns(&self, routes: Routes<'_>, call: u64) -> usize {
        let last = self.count.load(Ordering::Relaxed);
        for turn in &self.turns[..last] {
            self.turn_of[turn.matrix.load(Ordering::Relaxed) as usize].store(NONE, Ordering::Relaxed);
        }
        let named = (0..routes.width()).flat_map(|row| routes.experts(row));
        named.for_each(|expert| self.turn_of[expert].store(0, Ordering::Relaxed));
        let mut count = 0;
        for expert in 0..self.experts() {
            if self.turn_of[expert].load(Ordering::Relaxed) == NONE {
                continue;
            }
            for matrix in (0..self.of_each).map(|part| part * self.experts() + expert) {
                let turn = &self.turns[count];
                turn.matrix.store(matrix as u32, Ordering::Relaxed);
                turn.passed.store(0, Ordering::Relaxed);
                self.turn_of[matrix].store(count as u32, Ordering::Relaxed);
                if let Some(place) = self.places.get(self.lies_in[matrix].load(Ordering::Relaxed) as usize) {
                    place.call.store(call, Ordering::Relaxed);
                    place.turn.store(count as u32, Ordering::Relaxed);
                }
                count += 1;
            }
        }
        self.count.store(count, Ordering::Relaxed);
        count
    }

    /// The place that a turn of a call reads into, and the turn that has to be passed before: what this call does not
    /// use, the one used longest ago; else what was passed first; else what is used last, which is then read again.
    fn free(&self, turn: u32, call: u64) -> (u32, u32) {
        let rank = |place: &Place| {
            let used = place.turn.load(Ordering::Relaxed);
            match place.call.load(Ordering::Relaxed) {
                last if last < call => (0, last),
                _ if used < turn => (1, u64::from(used)),
                _ => (2, u64::MAX - u64::from(used)),
            }
        };
        let (number, place) =
            self.places.iter().enumerate().min_by_key(|(_, place)| rank(place)).expect("a pool has places");
        let needs = if rank(place).0 == 1 { place.turn.load(Ordering::Relaxed) } else { NONE };
        (number as u32, needs)
    }

    /// Gives a place to a turn of a call; says whether its matrix has to be read.
    fn give_place(&self, number: usize, call: u64) -> bool {
        let turn = &self.turns[number];
        let matrix = turn.matrix.load(Ordering::Relaxed);
        let lies_in = &self.lies_in[matrix as usize];
        let found = lies_in.load(Ordering::Relaxed);
        if found != NONE {
            turn.place.store(found, Ordering::Relaxed);
            turn.left.store(0, Ordering::Relaxed);
            return false;
        }
        let (found, needs) = self.free(number as u32, call);
        let place = &self.places[found as usize];
        if let Some(before) = self.lies_in.get(place.holds.swap(matrix, Ordering::Relaxed) as usize) {
            before.store(NONE, Ordering::Relaxed);
        }
        place.call.store(call, Ordering::Relaxed);
        place.turn.store(number as u32, Ordering::Relaxed);
        lies_in.store(found, Ordering::Relaxed);
        turn.place.store(found, Ordering::Relaxed);
        turn.needs.store(needs, Ordering::Relaxed);
        turn.left.store(self.parts, Ordering::Relaxed);
        true
    }

    /// A part of the matrix of a turn.
    fn part(&self, turn: &Turn, part: usize) -> Part {
        let first = part * CHUNK;
        let matrix = turn.matrix.load(Ordering::Relaxed) as usize;
        let place = turn.place.load(Ordering::Relaxed) as usize;
        Part {
            start: self.starts[matrix] + first as u64,
            bytes: (self.bytes - first).min(CHUNK),
            at: self.places[place].at + first,
        }
    }
}

/// What readers and workers share.
#[derive(Debug)]
struct Shared {
    reading: Arc<Reading>,
    pools: Vec<Pool>,
    /// Parts to be read: pool, turn and part. As many as two pools have, the most that are asked for at a time.
    asked: Vec<AtomicU64>,
    /// How many were taken, and how many were asked for; both only grow.
    taken: AtomicU64,
    end: AtomicU64,
    /// Those that were asked for and are not read.
    pending: AtomicUsize,
    /// Workers of the present forward.
    workers: AtomicUsize,
    /// Readers that sleep until more is asked for.
    asleep: Vec<AtomicBool>,
    /// Readers that write into a place.
    writing: AtomicUsize,
}

impl Shared {
    /// The next part that nobody has taken.
    fn take(&self) -> Option<(&Pool, usize, usize)> {
        let mut taken = self.taken.load(Ordering::Acquire);
        while taken < self.end.load(Ordering::SeqCst) {
            // It is not overwritten before it is read, which needs that it is taken.
            let asked = self.asked[(taken % self.asked.len() as u64) as usize].load(Ordering::Relaxed);
            match self.taken.compare_exchange(taken, taken + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let field = |shift: u32| (asked >> shift) as usize & FIELD;
                    return Some((&self.pools[field(2 * BITS)], field(BITS), field(0)));
                }
                Err(now) => taken = now,
            }
        }
        None
    }

    /// Reads what is asked for until it is stopped or something fails.
    fn read(&self, reader: usize) -> io::Result<()> {
        while self.reading.goes_on() {
            let Some((pool, turn, part)) = self.take() else {
                let asleep = &self.asleep[reader];
                asleep.store(true, Ordering::SeqCst);
                // Whoever asks looks for sleepers after that, so one of both sees the other.
                if self.taken.load(Ordering::SeqCst) >= self.end.load(Ordering::SeqCst)
                    && self.reading.goes_on()
                {
                    thread::park();
                }
                asleep.store(false, Ordering::SeqCst);
                continue;
            };
            let turn = &pool.turns[turn];
            if let Some(before) = pool.turns.get(turn.needs.load(Ordering::Relaxed) as usize) {
                let is_passed =
                    || before.passed.load(Ordering::Acquire) >= self.workers.load(Ordering::Relaxed);
                if !wait_until(is_passed, || self.reading.goes_on()) {
                    return Ok(());
                }
            }
            let _writing = Writing::begin(&self.writing);
            if !self.reading.goes_on() {
                return Ok(());
            }
            // SAFETY: the place is this turn's, parts lie apart, and workers read what was there no more: the call that
            // used it is over, or they have passed the turn.
            unsafe { self.reading.fetch(&pool.part(turn, part)) }?;
            turn.left.fetch_sub(1, Ordering::AcqRel);
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// A reader that writes into a place, for as long as this lives.
struct Writing<'a>(&'a AtomicUsize);

impl<'a> Writing<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bits of a number in what is asked for: of pools, turns and parts there are fewer.
const BITS: u32 = 20;
const FIELD: usize = (1 << BITS) - 1;

/// Waits; says whether what it waits for came before an end.
fn wait_until(came: impl Fn() -> bool, goes_on: impl Fn() -> bool) -> bool {
    let mut turns = 0;
    while !came() {
        if !goes_on() {
            return false;
        }
        if turns < SPINS_BEFORE_SLEEP {
            turns += 1;
            std::hint::spin_loop();
        } else {
            thread::sleep(NAP);
        }
    }
    true
}

/// The experts of a model that share places, and the threads that read them.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Experts {
    shared: Arc<Shared>,
    /// Calls so far.
    calls: AtomicU64,
    /// Whether a forward has its turn.
    busy: AtomicBool,
    /// Whether a forward ended in a panic, so that some of what it called may be under way.
    is_abandoned: AtomicBool,
    readers: Readers,
}

impl Experts {
    /// Pools, at least one, whose places are in `memory`.
    ///
    /// # Errors
    /// [`BackendError::Threads`] if the system refuses readers.
    pub(in crate::backend::cpu) fn new(
        file: Arc<PackedFile>,
        pools: Vec<PoolSpec>,
        memory: Arc<cpu::Staging>,
    ) -> Result<Self, BackendError> {
        let pools: Vec<Pool> = pools.into_iter().map(Pool::new).collect();
        let most = pools.iter().map(|pool| pool.turns.len() * pool.parts).max().expect("at least one pool");
        let most_turns = pools.iter().map(|pool| pool.turns.len()).max().expect("at least one pool");
        assert!(
            [pools.len(), most_turns, most].iter().all(|number| *number <= FIELD),
            "as many as have numbers"
        );
        let shared = Arc::new(Shared {
            reading: Arc::new(Reading::new(file, memory)),
            pools,
            asked: (0..2 * most).map(|_| AtomicU64::new(0)).collect(),
            taken: AtomicU64::new(0),
            end: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
            asleep: (0..READERS).map(|_| AtomicBool::new(false)).collect(),
            writing: AtomicUsize::new(0),
        });
        let read = Arc::clone(&shared);
        let readers = Readers::begin(&shared.reading, "expert", move |reader| read.read(reader))?;
        let (busy, is_abandoned) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { shared, calls: AtomicU64::new(0), busy, is_abandoned, readers })
    }

    /// Begins a forward of so many workers; waits for the turn of any other.
    pub(in crate::backend::cpu) fn begin(&self, workers: usize) -> Calls<'_> {
        let mut turns = 0;
        while self.busy.swap(true, Ordering::Acquire) {
            relax(&mut turns);
        }
        let shared = &*self.shared;
        if self.is_abandoned.swap(false, Ordering::Relaxed) {
            for pool in &shared.pools {
                pool.turns.iter().for_each(|turn| turn.passed.store(usize::MAX, Ordering::Release));
                pool.is_called.store(false, Ordering::Relaxed);
            }
            wait_until(|| shared.pending.load(Ordering::Acquire) == 0, || shared.reading.goes_on());
        }
        shared.workers.store(workers, Ordering::Relaxed);
        Calls { experts: self, has_ended: AtomicBool::new(false) }
    }

    /// What went wrong with reading, if something did: from then on every forward ends at its first call.
    pub(in crate::backend::cpu) fn failure(&self) -> Option<&BackendError> {
        self.shared.reading.failure()
    }

    /// Asks for all parts of a turn.
    fn ask(&self, pool: PoolId, turn: usize) {
        let shared = &*self.shared;
        let parts = shared.pools[pool.0].parts;
        let end = shared.end.load(Ordering::Relaxed);
        shared.pending.fetch_add(parts, Ordering::Relaxed);
        for part in 0..parts {
            let place = (end + part as u64) % shared.asked.len() as u64;
            let asked = (pool.0 << (2 * BITS) | turn << BITS | part) as u64;
            shared.asked[place as usize].store(asked, Ordering::Relaxed);
        }
        shared.end.store(end + parts as u64, Ordering::SeqCst);
    }

    /// Calls the matrices of a pool that routes name.
    fn call(&self, id: PoolId, routes: Routes<'_>) {
        let pool = &self.shared.pools[id.0];
        let call = 1 + self.calls.fetch_add(1, Ordering::Relaxed);
        for turn in 0..pool.give_turns(routes, call) {
            if pool.give_place(turn, call) {
                self.ask(id, turn);
            }
        }
        for (asleep, thread) in self.shared.asleep.iter().zip(&self.readers.threads) {
            if asleep.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
    }
}

/// The calls of a forward; its turn is given back when they are dropped.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Calls<'a> {
    experts: &'a Experts,
    /// Whether reading had failed when matrices were called.
    has_ended: AtomicBool,
}

impl<'a> Calls<'a> {
    /// Calls what a product uses, and what the next one by the same routes does if its places are enough, so that it is
    /// read meanwhile. One worker calls before all meet.
    pub(in crate::backend::cpu) fn call(&self, id: PoolId, routes: Routes<'_>) {
        let pools = &self.experts.shared.pools;
        let pool = &pools[id.0];
        if self.experts.shared.reading.has_failed() {
            self.has_ended.store(true, Ordering::Relaxed);
            return;
        }
        if !pool.is_called.swap(false, Ordering::Relaxed) {
            self.experts.call(id, routes);
        }
        if let Some(next) = pool.next {
            let other = &pools[next.0];
            let experts = pool.count.load(Ordering::Relaxed) / pool.of_each;
            if experts * other.of_each <= other.places.len() {
                self.experts.call(next, routes);
                other.is_called.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether the forward has to end, asked by all workers after they have met behind a call: to all alike.
    pub(in crate::backend::cpu) fn have_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// What a worker takes of the matrices that were called of a pool.
    pub(in crate::backend::cpu) fn called(&self, id: PoolId) -> Called<'a> {
        let shared = &*self.experts.shared;
        Called { shared, pool: &shared.pools[id.0], at: Cell::new(0) }
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.experts.is_abandoned.store(true, Ordering::Relaxed);
        }
        self.experts.busy.store(false, Ordering::Release);
    }
}

/// How far a worker is with the matrices of a call; it passes all of them when it is dropped.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Called<'a> {
    shared: &'a Shared,
    pool: &'a Pool,
    /// The turn that it has not passed.
    at: Cell<usize>,
}

impl<'a> Called<'a> {
    /// A matrix of the pool, by its number. One that was called is waited for; whoever takes it has done with all that
    /// were called before. Any other is a matrix of the same shape, whose numbers are not to be read.
    pub(in crate::backend::cpu) fn matrix(&self, number: usize) -> &'a PackedLinear {
        let of_shape = &self.pool.places[0].linear;
        let turn = self.pool.turn_of[number].load(Ordering::Relaxed);
        if turn == NONE || (turn as usize) < self.at.get() {
            return of_shape;
        }
        self.pass(turn as usize);
        let turn = &self.pool.turns[turn as usize];
        let came = || turn.left.load(Ordering::Acquire) == 0;
        if !wait_until(came, || !self.shared.reading.has_failed()) {
            // The forward has failed and its products go on with whatever is there, once nobody writes any more: a
            // reader that begins later sees the failure.
            wait_until(|| self.shared.writing.load(Ordering::SeqCst) == 0, || true);
            return of_shape;
        }
        &self.pool.places[turn.place.load(Ordering::Relaxed) as usize].linear
    }

    /// Passes all turns before one.
    fn pass(&self, turn: usize) {
        for turn in &self.pool.turns[self.at.get()..turn] {
            turn.passed.fetch_add(1, Ordering::Release);
        }
        self.at.set(turn);
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        self.pass(self.pool.count.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
