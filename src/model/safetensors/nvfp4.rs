//! Matrices in NVFP4 as folders have them: a tensor of codes, a tensor of scales in 8 bits, and a number for all of it.

use std::collections::BTreeMap;

use super::{container::Octets, float8::INPUTS};
use crate::model::{
    ModelError, Scaled, Scales, TensorTable,
    nvfp4::{AS, GROUP},
    tensor_bytes,
};
use ygg_kernels::WeightFormat;

/// How a writer names the parts of a matrix, each after what the matrix's name has before `weight`.
struct Names {
    codes: &'static str,
    /// A number for the whole matrix.
    whole: &'static str,
    /// Whether scales are divided by that number, else multiplied.
    is_divisor: bool,
    /// A number by which activations would be scaled: they are not quantised so here.
    inputs: &'static str,
}

/// Of compressed-tensors (`nvfp4-pack-quantized`) and of ModelOpt.
const NAMES: [Names; 2] = [
    Names {
        codes: "weight_packed",
        whole: "weight_global_scale",
        is_divisor: true,
        inputs: "input_global_scale",
    },
    Names { codes: "weight", whole: "weight_scale_2", is_divisor: false, inputs: INPUTS },
];
/// The name of the scales of groups: of both.
const SCALES: &str = "weight_scale";

/// Whether a tensor of bytes may be the codes of a matrix.
pub(super) fn is_codes(name: &str) -> bool {
    split(name).is_some()
}

/// What a name of codes begins with, and whose it is.
fn split(name: &str) -> Option<(&str, &'static Names)> {
    let of = |names: &'static Names| {
        let base = name.strip_suffix(names.codes)?;
        (base.is_empty() || base.ends_with('.')).then_some((base, names))
    };
    NAMES.iter().find_map(of)
}

/// Adds the matrices, `[N, K]`, whose codes are among `octets`, two in a byte, and whose scales are among `floats8`, a
/// tensor `[N, K / 16]` for each; takes all their parts away.
///
/// # Errors
/// [`ModelError`] for a part that is missing, for shapes that do not fit, and for a name that is taken.
pub(super) fn join(
    octets: &mut BTreeMap<String, Octets>,
    floats8: &mut BTreeMap<String, Octets>,
    tensors: &mut TensorTable,
) -> Result<(), ModelError> {
    for (name, codes) in octets.extract_if(.., |name, _| is_codes(name)) {
        let (base, names) = split(&name).expect("the name of codes");
        let invalid = |of: &str, expected: String, shape: &[usize]| {
            ModelError::invalid(format_args!("tensor `{base}{of}`"), expected, format_args!("{shape:?}"))
        };
        let missing = |of: &str| ModelError::MissingTensor { name: format!("{base}{of}"), shape: Vec::new() };
        let scales = floats8.remove(&format!("{base}{SCALES}")).ok_or_else(|| missing(SCALES))?;
        let whole = tensors.remove(&format!("{base}{}", names.whole)).ok_or_else(|| missing(names.whole))?;
        tensors.remove(&format!("{base}{}", names.inputs));
        let [rows, half] = codes.shape[..] else {
            return Err(invalid(names.codes, "a matrix".to_owned(), &codes.shape));
        };
        // Sizes of tensors without elements, which are refused, may be any numbers.
        let shape = vec![rows, half.saturating_mul(2)];
        let matrix = format!("{base}weight");
        tensor_bytes(&matrix, &shape, AS)?;
        let groups = [rows, shape[1] / GROUP];
        if scales.shape != groups {
            let expected =
                format!("a scale for each {GROUP} elements of a row of `{name}`, {:?}", codes.shape);
            return Err(invalid(SCALES, expected, &scales.shape));
        }
        if whole.format != WeightFormat::F32 || whole.bytes.len() != size_of::<f32>() {
            return Err(invalid(names.whole, "one number in F32".to_owned(), &whole.shape));
        }
        let of = Scaled::Nvfp4 { file: whole.file, start: whole.bytes.start, is_divisor: names.is_divisor };
        let scales = Scales { file: scales.file, bytes: scales.bytes, of };
        codes.add_matrix(&name, matrix, (shape, AS), scales, tensors)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorInfo;

    fn octets(name: &str, shape: &[usize]) -> BTreeMap<String, Octets> {
        let bytes = 0..shape.iter().product();
        BTreeMap::from([(name.to_owned(), Octets { shape: shape.to_vec(), file: 1, bytes })])
    }

    fn number(name: &str, shape: &[usize]) -> (String, TensorInfo) {
        let bytes = 40..40 + 4 * shape.iter().product::<usize>();
        let info =
            TensorInfo { shape: shape.to_vec(), format: WeightFormat::F32, file: 2, bytes, scales: None };
        (name.to_owned(), info)
    }

    #[test]
    fn parts_become_matrices() {
        for (codes, whole, shape, inputs, is_divisor) in [
            ("m.weight_packed", "m.weight_global_scale", &[1][..], "m.input_global_scale", true),
            ("m.weight", "m.weight_scale_2", &[], "m.input_scale", false),
        ] {
            let (mut found, mut floats8) = (octets(codes, &[6, 32]), octets("m.weight_scale", &[6, 4]));
            let mut tensors = TensorTable::from([number(whole, shape), number(inputs, &[1])]);
            join(&mut found, &mut floats8, &mut tensors).expect("all parts");
            assert!(found.is_empty() && floats8.is_empty() && tensors.len() == 1, "parts are taken away");
            let of = Scaled::Nvfp4 { file: 2, start: 40, is_divisor };
            let expected = TensorInfo {
                shape: vec![6, 64],
                format: WeightFormat::NVFP4,
                file: 1,
                bytes: 0..192,
                scales: Some(Scales { file: 1, bytes: 0..24, of }),
            };
            assert_eq!(tensors["m.weight"], expected);
        }
        let mut others = octets("m.w_blocks", &[6, 2, 16]);
        join(&mut others, &mut BTreeMap::new(), &mut TensorTable::new()).expect("none of these");
        assert_eq!(others.len(), 1, "bytes of other formats are left");
    }

    #[test]
    fn what_is_no_matrix_is_named() {
        // More bytes than there are addresses, of fewer elements.
        let huge = &[30, 1 << 59][..];
        for (codes, of_scales, whole, of_whole, said) in [
            (&[6, 32][..], &[6, 4][..], "other", &[1][..], &["`m.weight_global_scale` is missing"][..]),
            (&[6, 32], &[6, 2], "m.weight_global_scale", &[1], &["each 16", "[6, 32]", "[6, 2]"]),
            (&[6, 24], &[6, 3], "m.weight_global_scale", &[1], &["`m.weight`", "blocks of 32", "48 columns"]),
            (&[6, 32], &[6, 4], "m.weight_global_scale", &[2], &["`m.weight_global_scale`", "one number"]),
            (&[144], &[18], "m.weight_global_scale", &[1], &["`m.weight_packed`", "a matrix", "[144]"]),
            (&[0, 32], &[0, 4], "m.weight_global_scale", &[1], &["`m.weight`", "above 0"]),
            (huge, &[1, 1], "m.weight_global_scale", &[1], &["`m.weight`", "2^64"]),
        ] {
            let (mut found, mut floats8) = (octets("m.weight_packed", codes), BTreeMap::new());
            floats8.append(&mut octets("m.weight_scale", of_scales));
            let mut tensors = TensorTable::from([number(whole, of_whole)]);
            let error = join(&mut found, &mut floats8, &mut tensors).expect_err("no matrix").to_string();
            assert!(said.iter().all(|part| error.contains(part)), "{error}, without {said:?}");
        }
        let mut tensors = TensorTable::from([number("m.weight_scale_2", &[])]);
        let error = join(&mut octets("m.weight", &[6, 32]), &mut BTreeMap::new(), &mut tensors);
        let error = error.expect_err("no scales").to_string();
        assert!(error.contains("`m.weight_scale` is missing"), "{error}");
    }
}
