//! Matrices in MXFP4 as folders have them: a tensor of codes and a tensor of scales.

use std::collections::BTreeMap;

use super::container::Octets;
use crate::model::{ModelError, Scaled, Scales, TensorTable, lent::CODES, tensor_bytes};
use ygg_kernels::WeightFormat;

/// What the name of a tensor of codes ends with: `[..., N, K / 32, 16]`, two codes in a byte.
const BLOCKS: &str = "_blocks";
/// What the name of a tensor of scales ends with: `[..., N, K / 32]`, powers of two.
const SCALES: &str = "_scales";

/// Whether a tensor of bytes may be a part of a matrix.
pub(super) fn is_part(name: &str) -> bool {
    name.ends_with(BLOCKS) || name.ends_with(SCALES)
}

/// Adds the matrices, `[..., N, K]`, that tensors of bytes make in pairs, under what the two names begin with.
///
/// # Errors
/// [`ModelError`] for a tensor without its other half, for shapes that do not fit, and for a name that is taken.
pub(super) fn join(octets: BTreeMap<String, Octets>, tensors: &mut TensorTable) -> Result<(), ModelError> {
    for name in octets.keys() {
        let whole = name.strip_suffix(BLOCKS).or(name.strip_suffix(SCALES));
        let whole = whole.expect("others are refused where files are read");
        let part = |suffix: &str| {
            let name = format!("{whole}{suffix}");
            octets.get(&name).ok_or(ModelError::MissingTensor { name, shape: Vec::new() })
        };
        let (blocks, scales) = (part(BLOCKS)?, part(SCALES)?);
        if name.ends_with(SCALES) {
            continue;
        }
        let fits = blocks.shape.len() >= 3 && blocks.shape == [&scales.shape[..], &[CODES]].concat();
        if !fits {
            let expected = format!("the shape of `{whole}{SCALES}`, {:?}, and {CODES} bytes", scales.shape);
            return Err(ModelError::invalid(
                format_args!("tensor `{name}`"),
                expected,
                format_args!("{:?}", blocks.shape),
            ));
        }
        let format = WeightFormat::MXFP4;
        let mut shape = scales.shape.clone();
        let columns = shape.last_mut().expect("at least two dimensions");
        // Sizes of tensors without elements, which are refused, may be any numbers.
        *columns = columns.saturating_mul(format.block_len());
        let expected = tensor_bytes(whole, &shape, format)?;
        assert_eq!(blocks.bytes.len() + scales.bytes.len(), expected, "shapes were compared");
        let scales = Scales { file: scales.file, bytes: scales.bytes.clone(), of: Scaled::Mxfp4 };
        blocks.clone().add_matrix(name, whole.to_owned(), (shape, format), scales, tensors)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorInfo;

    type Parts<'a> = &'a [(&'a str, &'a [usize])];

    fn octets(parts: Parts<'_>) -> BTreeMap<String, Octets> {
        let mut start = 0;
        let mut part = |(name, shape): &(&str, &[usize])| {
            let bytes = start..start + shape.iter().product::<usize>();
            start = bytes.end;
            ((*name).to_owned(), Octets { shape: shape.to_vec(), file: 3, bytes })
        };
        parts.iter().map(&mut part).collect()
    }

    #[test]
    fn pairs_become_matrices() {
        let mut tensors = TensorTable::new();
        join(octets(&[("w_blocks", &[5, 4, 2, 16]), ("w_scales", &[5, 4, 2])]), &mut tensors)
            .expect("a pair");
        let expected = TensorInfo {
            shape: vec![5, 4, 64],
            format: WeightFormat::MXFP4,
            file: 3,
            bytes: 0..640,
            scales: Some(Scales { file: 3, bytes: 640..680, of: Scaled::Mxfp4 }),
        };
        assert_eq!(tensors, TensorTable::from([("w".to_owned(), expected.clone())]));
        let twice = octets(&[("w_blocks", &[4, 2, 16]), ("w_scales", &[4, 2])]);
        let error = join(twice, &mut tensors).expect_err("two of a name").to_string();
        assert!(error.contains("`w`") && error.contains("one tensor"), "{error}");
    }

    #[test]
    fn what_is_no_pair_is_named() {
        let huge: &[usize] = &[0, usize::MAX];
        let cases: &[(Parts<'_>, &[&str])] = &[
            (&[("w_blocks", &[4, 2, 16])], &["`w_scales`"]),
            (&[("w_scales", &[4, 2])], &["`w_blocks`"]),
            (&[("w_blocks", &[4, 3, 16]), ("w_scales", &[4, 2])], &["`w_blocks`", "[4, 2]", "[4, 3, 16]"]),
            (&[("w_blocks", &[4, 2, 8]), ("w_scales", &[4, 2])], &["`w_blocks`", "16 bytes", "[4, 2, 8]"]),
            (&[("w_blocks", &[2, 16]), ("w_scales", &[2])], &["`w_blocks`", "[2, 16]"]),
            (&[("w_blocks", &[0, 2, 16]), ("w_scales", &[0, 2])], &["`w`", "above 0"]),
            (&[("w_blocks", &[0, usize::MAX, 16]), ("w_scales", huge)], &["`w`", "above 0"]),
        ];
        for (parts, said) in cases {
            let error = join(octets(parts), &mut TensorTable::new()).expect_err("no pair").to_string();
            assert!(said.iter().all(|part| error.contains(part)), "{error}, without {said:?}");
        }
    }
}
