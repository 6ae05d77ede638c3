//! Matrices of floats of 8 bits as folders have them: a tensor of codes and a tensor of scales.

use std::collections::BTreeMap;

use super::container::Octets;
use crate::model::{ModelError, Scaled, Scales, TensorTable, float8::AS, tensor_bytes};

/// What follows a matrix's name in that of its scales: of block-wise files, and of those with a scale for every row or
/// for all.
const SCALES: [&str; 2] = ["_scale_inv", "_scale"];
/// What stands for `weight` in the name of a number by which activations would be scaled: they are not quantised so
/// here.
pub(super) const INPUTS: &str = "input_scale";

/// Adds the matrices that floats of 8 bits make with the scales among `tensors`, under the names of the former.
///
/// # Errors
/// [`ModelError`] for a tensor without scales, for shapes that do not fit, and for a name that is taken.
pub(super) fn join(floats8: BTreeMap<String, Octets>, tensors: &mut TensorTable) -> Result<(), ModelError> {
    for (name, codes) in floats8 {
        let what = || format!("tensor `{name}`");
        let scales = SCALES.iter().find_map(|suffix| tensors.remove(&format!("{name}{suffix}")));
        let Some(scales) = scales else {
            let missing = format!("{name}{}", SCALES[0]);
            return Err(ModelError::MissingTensor { name: missing, shape: Vec::new() });
        };
        if let Some(base) = name.strip_suffix("weight") {
            tensors.remove(&format!("{base}{INPUTS}"));
        }
        tensor_bytes(&name, &codes.shape, AS)?;
        let [ref outer @ .., rows, columns] = codes.shape[..] else {
            return Err(ModelError::invalid(what(), "a matrix", format_args!("{:?}", codes.shape)));
        };
        // One number for all of a matrix may be without dimensions.
        let of_scales = match scales.shape[..] {
            [] | [1] if outer.is_empty() => vec![1, 1],
            _ => scales.shape.clone(),
        };
        let block = match of_scales[..] {
            [ref others @ .., high, wide] if others == outer => side(rows, high).zip(side(columns, wide)),
            _ => None,
        };
        let Some((high, wide)) = block else {
            let expected = format!("a scale for each block of a matrix of {:?}", codes.shape);
            let found = format!("{:?}", scales.shape);
            return Err(ModelError::invalid(format_args!("scales of tensor `{name}`"), expected, found));
        };
        let of = Scaled::Float8 { format: scales.format, rows: high, columns: wide };
        let scales = Scales { file: scales.file, bytes: scales.bytes, of };
        let shape = codes.shape.clone();
        codes.add_matrix(&name, name.clone(), (shape, AS), scales, tensors)?;
    }
    Ok(())
}

/// The side of blocks of which `count` cover `all`: all, or a power of two; no two of these give more than one block
/// and as many.
fn side(all: usize, count: usize) -> Option<usize> {
    if count == 1 {
        return Some(all);
    }
    (0..usize::BITS).map(|bit| 1 << bit).find(|side| all.div_ceil(*side) == count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorInfo;
    use ygg_kernels::WeightFormat;

    fn codes(shape: &[usize]) -> BTreeMap<String, Octets> {
        let bytes = 0..shape.iter().product();
        BTreeMap::from([("w.weight".to_owned(), Octets { shape: shape.to_vec(), file: 1, bytes })])
    }

    fn scales(name: &str, shape: &[usize]) -> TensorTable {
        let (format, bytes) = (WeightFormat::F32, 0..4 * shape.iter().product::<usize>());
        let info = TensorInfo { shape: shape.to_vec(), format, file: 2, bytes, scales: None };
        TensorTable::from([(name.to_owned(), info.clone()), ("w.input_scale".to_owned(), info)])
    }

    #[test]
    fn pairs_become_matrices() {
        for (suffix, shape, of_scales, rows, columns) in [
            ("_scale_inv", &[300, 200][..], &[3, 2][..], 128, 128),
            ("_scale_inv", &[64, 64], &[1, 1], 64, 64),
            ("_scale_inv", &[2, 256, 384], &[2, 2, 3], 128, 128),
            ("_scale", &[40, 24], &[40, 1], 1, 24),
            ("_scale", &[40, 24], &[1], 40, 24),
            ("_scale", &[40, 24], &[], 40, 24),
        ] {
            let mut tensors = scales(&format!("w.weight{suffix}"), of_scales);
            join(codes(shape), &mut tensors).expect("a pair");
            assert_eq!(tensors.len(), 1, "scales are no tensors of their own");
            let info = &tensors["w.weight"];
            assert_eq!((&info.shape[..], info.format, info.file), (shape, WeightFormat::BF16, 1));
            let found = info.scales.as_ref().expect("they lie elsewhere");
            assert_eq!(
                (found.file, found.of),
                (2, Scaled::Float8 { format: WeightFormat::F32, rows, columns })
            );
        }
    }

    #[test]
    fn what_is_no_pair_is_named() {
        for (name, shape, of_scales, said) in [
            ("other", &[64, 64][..], &[1, 1][..], &["`w.weight_scale_inv` is missing"][..]),
            ("w.weight_scale_inv", &[300, 200], &[4, 2], &["`w.weight`", "[300, 200]", "[4, 2]"]),
            ("w.weight_scale_inv", &[300, 200], &[3], &["`w.weight`", "[3]"]),
            ("w.weight_scale_inv", &[2, 300, 200], &[3, 2], &["`w.weight`", "[3, 2]"]),
            ("w.weight_scale_inv", &[300], &[3, 1], &["`w.weight`", "a matrix", "[300]"]),
            ("w.weight_scale_inv", &[0, 200], &[0, 2], &["`w.weight`", "above 0"]),
        ] {
            let error = join(codes(shape), &mut scales(name, of_scales)).expect_err("no pair").to_string();
            assert!(said.iter().all(|part| error.contains(part)), "{error}, without {said:?}");
        }
    }
}
