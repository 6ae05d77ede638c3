//! Matrices in another format than the one they are stored in.

use std::{sync::Mutex, thread};

use super::{Matrix, WeightFormat};

/// Rows that a thread takes at a time.
const ROWS: usize = 64;

/// The rows of `matrix`, quantised to `format` one by one on at most `threads` threads; how many changes no byte.
///
/// # Panics
/// If the columns are no whole number of the format's blocks.
pub fn requantised(matrix: &Matrix<'_>, format: WeightFormat, threads: usize) -> Vec<u8> {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let row_bytes = format.row_bytes(columns).expect("whole blocks");
    let mut all = vec![0; rows * row_bytes];
    let jobs = Mutex::new((0..rows).step_by(ROWS).zip(all.chunks_mut(ROWS * row_bytes)));
    let work = || {
        let (mut values, mut row) = (vec![0.0; columns], Vec::with_capacity(row_bytes));
        loop {
            let Some((first, out)) = jobs.lock().expect("no quantising thread panics").next() else { return };
            for (number, out) in (first..).zip(out.chunks_exact_mut(row_bytes)) {
                matrix.format().dequantise_row(matrix.row(number), &mut values);
                row.clear();
                format.quantise_row(&values, &mut row);
                out.copy_from_slice(&row);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(rows.div_ceil(ROWS)) {
            // A thread that is refused leaves its part to the others.
            let _refused = thread::Builder::new().spawn_scoped(scope, work).is_err();
        }
        work();
    });
    all
}
