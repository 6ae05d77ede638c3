//! The element types of ggml by number: those we read, and the names of those we do not.

use ygg_kernels::WeightFormat;

use crate::model::ModelError;

/// The number of 64-bit integers.
pub(super) const I64: u32 = 27;

/// The format of ggml type `number`; `tensor` is named in the error.
pub(super) fn format_of(tensor: &str, number: u32) -> Result<WeightFormat, ModelError> {
    if let Some(format) = WeightFormat::of_ggml_type(number) {
        return Ok(format);
    }
    let known = match number {
        9 => "Q8_1",
        15 => "Q8_K",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        I64 => "I64",
        28 => "F64",
        34 => "TQ1_0",
        35 => "TQ2_0",
        _ => "unknown",
    };
    let supported =
        |format: WeightFormat| Some(format!("{} ({})", format.name().to_uppercase(), format.ggml_type()?));
    let supported: Vec<String> = WeightFormat::of_gguf().filter_map(supported).collect();
    Err(ModelError::unsupported(
        format_args!("tensor `{tensor}`"),
        format_args!("type {number} ({known})"),
        supported.join(", "),
    ))
}
