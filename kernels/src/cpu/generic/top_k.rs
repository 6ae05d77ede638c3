//! The largest values of a row.

/// Keeps a sorted list; most entries are dismissed sixteen at a time.
pub(in crate::cpu) fn top_k(row: &[f32], ids: &mut [u32], values: &mut [f32]) -> usize {
    let k = ids.len();
    if k == 0 {
        return 0;
    }
    let mut found = 0;
    for (c, chunk) in row.chunks(16).enumerate() {
        if found == k && !chunk.iter().fold(false, |any, &x| any | (x > values[k - 1])) {
            continue;
        }
        for (i, &x) in chunk.iter().enumerate() {
            if x.is_nan() || (found == k && x <= values[k - 1]) {
                continue;
            }
            // Later entries come after their equals.
            let place = values[..found].partition_point(|&kept| kept >= x);
            found = k.min(found + 1);
            values.copy_within(place..found - 1, place + 1);
            ids.copy_within(place..found - 1, place + 1);
            (values[place], ids[place]) = (x, (c * 16 + i) as u32);
        }
    }
    found
}
