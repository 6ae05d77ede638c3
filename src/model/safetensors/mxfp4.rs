//! Matrices in MXFP4 as folders have them: a tensor of codes and a tensor of scales.

use std::collections::BTreeMap;

use super::container::Octets;
use crate::model::{ModelError, TensorInfo, TensorTable, lent::CODES, tensor_bytes};
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
        let scales = Some((scales.file, scales.bytes.clone()));
        let info = TensorInfo { shape, format, file: blocks.file, bytes: blocks.bytes.clone(), scales };
        if tensors.insert(whole.to_owned(), info).is_some() {
            let found = format!("one, and one of `{name}` and its scales");
            return Err(ModelError::invalid(format_args!("tensor `{whole}`"), "one tensor", found));
        }
    }
    Ok(())
}
