//! Matrices in NVFP4 as llama.cpp's converter writes them: blocks of 64 elements with four scales in 8 bits, and a
//! further tensor with a number that multiplies the whole matrix, or one for each expert.

use crate::model::{
    ModelError, Scaled, Scales, TensorInfo, TensorTable,
    nvfp4::{AS, FILE_BLOCK, FILE_BLOCK_BYTES},
    tensor_bytes,
};
use ygg_kernels::WeightFormat;

/// The number of the type.
pub(super) const NUMBER: u32 = 40;

/// How the numbers of a matrix may be named, after the matrix's name without `.weight`.
const NUMBERS: [&str; 2] = [".scale", ".weight.scale"];
/// Numbers by which activations would be scaled: they are not quantised so here.
const INPUTS: [&str; 2] = [".input_scale", ".weight.input_scale"];

/// A tensor whose place in the file, and whose numbers, are not known yet.
///
/// # Errors
/// [`ModelError`] for what is no matrix, and for rows that are no whole blocks.
pub(super) fn tensor(name: &str, shape: Vec<usize>) -> Result<TensorInfo, ModelError> {
    if shape.len() < 2 || !shape.last().is_some_and(|columns| columns.is_multiple_of(FILE_BLOCK)) {
        let expected = format!("a matrix with rows of whole NVFP4 blocks of {FILE_BLOCK}");
        return Err(ModelError::invalid(
            format_args!("tensor `{name}`"),
            expected,
            format_args!("{shape:?}"),
        ));
    }
    let elements = tensor_bytes(name, &shape, AS)? / AS.block_bytes() * AS.block_len();
    let bytes = 0..elements / FILE_BLOCK * FILE_BLOCK_BYTES;
    let scales = Some(Scales { file: 0, bytes: 0..0, of: Scaled::Nvfp4InBlocks });
    Ok(TensorInfo { shape, format: AS, file: 0, bytes, scales })
}

/// Gives every matrix its numbers, and takes them from the table. A matrix without any has 1.
///
/// # Errors
/// [`ModelError`] for numbers that are not one F32 for each matrix of a tensor.
pub(super) fn scale(tensors: &mut TensorTable) -> Result<(), ModelError> {
    let is_nvfp4 = |info: &TensorInfo| info.scales.as_ref().is_some_and(|s| s.of == Scaled::Nvfp4InBlocks);
    let names: Vec<String> =
        tensors.iter().filter(|(_, info)| is_nvfp4(info)).map(|(name, _)| name.clone()).collect();
    for name in names {
        let base = name.strip_suffix(".weight").unwrap_or(&name);
        for inputs in INPUTS {
            tensors.remove(&format!("{base}{inputs}"));
        }
        let found = NUMBERS.iter().find_map(|suffix| tensors.remove_entry(&format!("{base}{suffix}")));
        let Some((of, numbers)) = found else { continue };
        let matrix = tensors.get_mut(&name).expect("it is a name of the table");
        let matrices: usize = matrix.shape.iter().rev().skip(2).product();
        if numbers.format != WeightFormat::F32 || numbers.shape.iter().product::<usize>() != matrices {
            let expected = format!("{matrices} in F32, one for each matrix of `{name}`");
            let found = format!("{:?} in {}", numbers.shape, numbers.format.name());
            return Err(ModelError::invalid(format_args!("tensor `{of}`"), expected, found));
        }
        let of = Scaled::Nvfp4InBlocks;
        matrix.scales = Some(Scales { file: numbers.file, bytes: numbers.bytes, of });
    }
    Ok(())
}
