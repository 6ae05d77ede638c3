//! The element types of ggml by number: those we read, and the names of those we do not.

use ygg_kernels::WeightFormat;

use crate::model::ModelError;

/// Formats that can be run, as errors list them.
const SUPPORTED: &str = "F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q8_0 (8), Q4_K (12), Q6_K (14), BF16 (30)";

/// The format of ggml type `number`; `tensor` is named in the error.
pub(super) fn format_of(tensor: &str, number: u32) -> Result<WeightFormat, ModelError> {
    let known = match number {
        0 => return Ok(WeightFormat::F32),
        1 => return Ok(WeightFormat::F16),
        2 => return Ok(WeightFormat::Q4_0),
        3 => return Ok(WeightFormat::Q4_1),
        8 => return Ok(WeightFormat::Q8_0),
        12 => return Ok(WeightFormat::Q4_K),
        14 => return Ok(WeightFormat::Q6_K),
        30 => return Ok(WeightFormat::BF16),
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => "unknown",
    };
    Err(ModelError::unsupported(
        format_args!("tensor `{tensor}`"),
        format_args!("type {number} ({known})"),
        SUPPORTED,
    ))
}

/// The ggml number of a format.
pub(super) fn number_of(format: WeightFormat) -> u32 {
    match format {
        WeightFormat::F32 => 0,
        WeightFormat::F16 => 1,
        WeightFormat::Q4_0 => 2,
        WeightFormat::Q4_1 => 3,
        WeightFormat::Q8_0 => 8,
        WeightFormat::Q4_K => 12,
        WeightFormat::Q6_K => 14,
        WeightFormat::BF16 => 30,
    }
}
