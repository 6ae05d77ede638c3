//! Streams over a file of known bytes: what is delivered is the matrix, whatever forwards leave out and however often
//! they run.

use std::{fs, panic::AssertUnwindSafe, path::PathBuf};

use super::*;
use crate::ir::PAGE;

/// Bytes of matrices, of which the largest are several reads long.
const SIZES: [usize; 7] = [3 << 20, 700, 1 << 20, 5_000_000, 64, 4096, 2_500_032];

/// Bytes before the weights.
const START: u64 = 8192;

struct Scene {
    folder: tempfile::TempDir,
    units: Vec<Unit>,
    bytes: Vec<u8>,
    staging: Staging,
}

impl Scene {
    fn new() -> Self {
        let mut units = Vec::new();
        let mut end = PAGE as u64;
        for bytes in SIZES {
            units.push(Unit { start: end, bytes });
            end = (end + bytes as u64).next_multiple_of(PAGE as u64);
        }
        let bytes = (0..end).map(|at| (at * 7 / 3 % 251) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        let scene = Self { folder, units, bytes, staging: small_staging() };
        fs::write(scene.path(), [&vec![0xee; START as usize], &scene.bytes[..]].concat()).unwrap();
        scene
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("weights.packed")
    }

    /// Reads as if they passed the cache by, or as they do.
    fn streamer(&self, is_direct: bool) -> Streamer {
        let file = fs::File::open(self.path()).unwrap();
        let file = PackedFile { file, path: self.path(), start: START, is_direct };
        let memory = Arc::new(cpu::Staging::new(self.staging.bytes).unwrap());
        Streamer::new(Arc::new(file), &self.units, &self.staging, memory).unwrap()
    }

    /// Compares a delivered matrix with the file's.
    fn check(&self, streamer: &Streamer, unit: usize) {
        let Unit { start, bytes } = self.units[unit];
        let at = self.staging.places[unit].at.start;
        // SAFETY: it was delivered and is not released.
        let found = unsafe { streamer.shared.reading.memory().part(at..at + bytes) };
        assert!(*found == self.bytes[start as usize..][..bytes], "matrix {unit}");
    }
}

/// Places that overlap: the buffer is too small for all matrices.
fn small_staging() -> Staging {
    let mut staging = Staging::of(&SIZES);
    let apart = staging.bytes;
    let largest = staging.places.iter().map(|place| place.at.len()).max().unwrap();
    let shift = |place: &mut crate::ir::StagingPlace| {
        let len = place.at.len();
        place.at.start %= largest;
        place.at.end = place.at.start + len;
    };
    staging.places.iter_mut().for_each(shift);
    let count = staging.places.len();
    for u in 0..count {
        let overwrites = |back: &usize| {
            let (own, other) = (&staging.places[u].at, &staging.places[(u + count - back) % count].at);
            own.start < other.end && other.start < own.end
        };
        staging.places[u].behind = (1..=count).find(overwrites).unwrap();
    }
    staging.bytes = 2 * largest;
    assert!(staging.bytes < apart && staging.places.iter().any(|place| place.behind < count));
    staging
}

#[test]
fn every_forward_gets_every_matrix_that_it_waits_for() {
    let scene = Scene::new();
    for is_direct in [false, true] {
        let streamer = scene.streamer(is_direct);
        for forward in 0..12_usize {
            let turn = streamer.begin();
            let takes = |unit: &usize| match forward % 3 {
                0 => true,
                1 => !(unit * 5 + forward).is_multiple_of(3),
                // All before it are left out, whose places it needs.
                _ => unit + 1 == SIZES.len(),
            };
            // Two workers, one of which releases.
            for unit in (0..SIZES.len()).filter(takes) {
                thread::scope(|scope| {
                    let wait = || {
                        assert!(turn.wait(UnitId(unit)));
                        scene.check(&streamer, unit);
                    };
                    scope.spawn(wait);
                    turn.skip_to(UnitId(unit));
                    wait();
                });
                turn.release(UnitId(unit));
            }
        }
        assert!(streamer.failure().is_none());
        assert_eq!(streamer.forwards(), 12);
    }
}

#[test]
fn forwards_take_turns_and_one_that_panics_is_finished_by_the_next() {
    let scene = Scene::new();
    let streamer = scene.streamer(true);
    let forward = || {
        let turn = streamer.begin();
        for unit in 0..SIZES.len() {
            assert!(turn.wait(UnitId(unit)));
            scene.check(&streamer, unit);
            turn.release(UnitId(unit));
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..4).for_each(|_| forward()));
        }
    });
    let interrupted = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let turn = streamer.begin();
        assert!(turn.wait(UnitId(0)));
        turn.release(UnitId(0));
        panic!("planted");
    }));
    assert!(interrupted.is_err());
    forward();
    assert_eq!(streamer.forwards(), 14);
}

#[test]
fn a_file_that_was_cut_fails_all_workers_alike_and_says_so() {
    for (is_direct, left) in [(false, 5 << 20), (true, 5 << 20), (true, (5 << 20) + 100)] {
        let scene = Scene::new();
        fs::File::options().write(true).open(scene.path()).unwrap().set_len(left).unwrap();
        let streamer = scene.streamer(is_direct);
        let turn = streamer.begin();
        let reached = (0..SIZES.len()).take_while(|unit| {
            let came = thread::scope(|scope| {
                let other = scope.spawn(|| turn.wait(UnitId(*unit)));
                let own = turn.wait(UnitId(*unit));
                assert_eq!(own, other.join().unwrap());
                own
            });
            if came {
                turn.release(UnitId(*unit));
            }
            came
        });
        // The fourth is the first that the file does not hold.
        assert!(reached.count() <= 3);
        drop(turn);
        let said = streamer.failure().unwrap().to_string();
        assert!(said.contains("weights.packed") && said.contains("it was cut"), "{said}");
        // And from then on, without waiting.
        assert!(!streamer.begin().wait(UnitId(SIZES.len() - 1)));
    }
}
