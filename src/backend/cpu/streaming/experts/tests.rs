//! Calls over a file of known bytes: what a worker takes is the matrix that it asked for, whatever forwards use and
//! however few places there are.

use std::{fs, panic::AssertUnwindSafe, path::PathBuf};

use proptest::prelude::*;
use ygg_kernels::{Matrix, Rows, WeightFormat, cpu::Packing};

use super::*;
use crate::ir::PAGE;

/// Bytes before the weights.
const START: u64 = 8192;

/// Of a pool: experts, matrices of each, places, rows of a matrix of 800 columns.
type Shape = (usize, usize, usize, usize);

struct Scene {
    folder: tempfile::TempDir,
    shapes: Vec<Shape>,
    /// First bytes of the matrices of every pool.
    starts: Vec<Vec<u64>>,
    bytes: Vec<u8>,
}

impl Scene {
    fn new(shapes: &[Shape]) -> Self {
        let (mut starts, mut end) = (Vec::new(), 0);
        for (experts, of_each, _, rows) in shapes {
            let bytes = packing_bytes(*rows).next_multiple_of(PAGE) as u64;
            starts.push((0..experts * of_each).map(|matrix| end + matrix as u64 * bytes).collect());
            end += (experts * of_each) as u64 * bytes;
        }
        let bytes = (0..end).map(|at| (at * 7 / 3 % 251) as u8).collect();
        let scene = Self { folder: tempfile::tempdir().unwrap(), shapes: shapes.to_vec(), starts, bytes };
        fs::write(scene.path(), [&vec![0xee; START as usize], &scene.bytes[..]].concat()).unwrap();
        scene
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("weights.packed")
    }

    /// Two pools in turn use the same routes.
    fn experts(&self, is_direct: bool) -> Experts {
        let places = |(_, of_each, places, rows): &Shape| {
            of_each * places * packing_bytes(*rows).next_multiple_of(PAGE)
        };
        let memory = Arc::new(cpu::Staging::new(self.shapes.iter().map(places).sum()).unwrap());
        let mut at = 0;
        let pool = |(number, (shape, starts)): (usize, (&Shape, &Vec<u64>))| {
            let (_, of_each, count, rows) = *shape;
            let bytes = packing_bytes(rows);
            let matrix = vec![0; 800 * 2 * rows];
            let matrix = Matrix::new(WeightFormat::BF16, rows, 800, &matrix).unwrap();
            let packing = Packing::stack(&[matrix]).unwrap();
            let place = |place: usize| {
                let at = at + place * bytes.next_multiple_of(PAGE);
                // SAFETY: it is read as products read it.
                (at, Arc::new(unsafe { packing.clone().staged(&memory, at) }))
            };
            let places: Vec<_> = (0..count * of_each).map(place).collect();
            at += places.len() * bytes.next_multiple_of(PAGE);
            let next = (number % 2 == 0 && number + 1 < self.shapes.len()).then(|| PoolId(number + 1));
            PoolSpec { starts: starts.clone(), bytes, of_each, places, next }
        };
        let pools = self.shapes.iter().zip(&self.starts).enumerate().map(pool).collect();
        let file = fs::File::open(self.path()).unwrap();
        let file = PackedFile { file, path: self.path(), start: START, is_direct };
        Experts::new(Arc::new(file), pools, memory).unwrap()
    }

    /// A forward of several workers; says whether it came to its end.
    fn forward(&self, experts: &Experts, workers: usize, routes: Routes<'_>) -> bool {
        let calls = experts.begin(workers);
        for (pool, (shape, starts)) in self.shapes.iter().zip(&self.starts).enumerate() {
            let (count, of_each, _, rows) = *shape;
            calls.call(PoolId(pool), routes);
            if calls.have_ended() {
                return false;
            }
            let work = |worker: usize| {
                let called = calls.called(PoolId(pool));
                // One of them has no share of the product.
                if worker == 2 {
                    return;
                }
                assert_eq!(called.matrix(0).outputs(), rows);
                for expert in (0..count).filter(|expert| routes.of(*expert).next().is_some()) {
                    for matrix in (0..of_each).map(|part| part * count + expert) {
                        let found = called.matrix(matrix).bytes();
                        let expected = &self.bytes[starts[matrix] as usize..][..packing_bytes(rows)];
                        let has_failed = experts.failure().is_some();
                        assert!(found == expected || has_failed, "matrix {matrix} of pool {pool}");
                    }
                    assert_eq!(called.matrix(0).outputs(), rows);
                }
            };
            thread::scope(|scope| (0..workers).for_each(|worker| drop(scope.spawn(move || work(worker)))));
        }
        experts.failure().is_none()
    }
}

fn packing_bytes(rows: usize) -> usize {
    cpu::packed_bytes(WeightFormat::BF16, rows, 800)
}

/// Routes of rows that use these experts.
fn routes_of(rows: &[Vec<usize>]) -> Vec<f32> {
    rows.iter()
        .flat_map(|row| row.iter().map(|expert| *expert as f32).chain(row.iter().map(|_| 0.5)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Fewer places than are used, as many, and more; parts of one matrix and of several.
    #[test]
    fn workers_take_what_they_ask_for(
        places in 2usize..7,
        rows in prop_oneof![Just(16usize), Just(5usize), Just(700usize)],
        forwards in prop::collection::vec(
            (prop::collection::vec(prop::sample::subsequence((0..6usize).collect::<Vec<_>>(), 2), 1..5), 1usize..4),
            1..8,
        ),
        is_direct: bool,
    ) {
        let scene = Scene::new(&[(6, 2, places, rows), (6, 1, places, 16), (6, 1, 2, 16)]);
        let experts = scene.experts(is_direct);
        for (rows, workers) in &forwards {
            let numbers = routes_of(rows);
            prop_assert!(scene.forward(&experts, *workers, Routes::new(Rows::new(&numbers, 4))));
        }
    }
}

/// What was used longest ago goes first, and what lies in a place is not read again.
#[test]
fn what_was_used_last_stays() {
    let scene = Scene::new(&[(6, 1, 3, 16)]);
    let experts = scene.experts(false);
    let read = |rows: &[usize]| {
        let before = experts.shared.end.load(Ordering::Relaxed);
        let numbers = routes_of(&[rows.to_vec()]);
        assert!(scene.forward(&experts, 1, Routes::new(Rows::new(&numbers, 4))));
        experts.shared.end.load(Ordering::Relaxed) - before
    };
    let counts = [[0, 1], [0, 2], [0, 1], [2, 3], [0, 3], [1, 2]].map(|rows| read(&rows));
    // 0 and 1; 2 into the third place; nothing; 3 in the place of 0; 0 in that of 1; 1 in that of 3.
    assert_eq!(counts, [2, 1, 0, 1, 1, 1]);
}

#[test]
fn forwards_take_turns_and_one_that_panics_is_finished_by_the_next() {
    let scene = Scene::new(&[(6, 2, 2, 700), (6, 1, 2, 16)]);
    let experts = scene.experts(true);
    let numbers = [routes_of(&[vec![0, 5], vec![1, 3]]), routes_of(&[vec![2, 4]])];
    let forward = |numbers: &[f32]| assert!(scene.forward(&experts, 2, Routes::new(Rows::new(numbers, 4))));
    thread::scope(|scope| {
        for numbers in &numbers {
            scope.spawn(|| (0..4).for_each(|_| forward(numbers)));
        }
    });
    let interrupted = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let calls = experts.begin(2);
        calls.call(PoolId(0), Routes::new(Rows::new(&numbers[0], 4)));
        panic!("planted");
    }));
    assert!(interrupted.is_err());
    numbers.iter().for_each(|numbers| forward(numbers));
}

#[test]
fn a_file_that_was_cut_fails_all_workers_alike_and_says_so() {
    for is_direct in [false, true] {
        let scene = Scene::new(&[(6, 2, 2, 700), (6, 1, 2, 16)]);
        let experts = scene.experts(is_direct);
        let numbers = routes_of(&[vec![0, 5], vec![1, 3]]);
        let forward = || scene.forward(&experts, 3, Routes::new(Rows::new(&numbers, 4)));
        assert!(forward());
        fs::File::options().write(true).open(scene.path()).unwrap().set_len(5000).unwrap();
        assert!(!forward());
        let said = experts.failure().unwrap().to_string();
        assert!(said.contains("weights.packed") && said.contains("it was cut"), "{said}");
        // And from then on, without waiting.
        assert!(!forward());
    }
}
