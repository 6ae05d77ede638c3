//! The largest values of a row.

/// Writes the ids and values of the `ids.len()` largest entries of `row`, largest first, equal values by lowest id.
/// NaN is never chosen. Returns how many were found.
///
/// # Panics
/// If `ids` and `values` differ in length.
pub fn top_k(row: &[f32], ids: &mut [u32], values: &mut [f32]) -> usize {
    assert_eq!(ids.len(), values.len());
    let mut order: Vec<usize> = (0..row.len()).filter(|&i| !row[i].is_nan()).collect();
    order.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).expect("NaN was filtered").then(a.cmp(&b)));
    order.truncate(ids.len());
    for (slot, &i) in order.iter().enumerate() {
        (ids[slot], values[slot]) = (i as u32, row[i]);
    }
    order.len()
}
