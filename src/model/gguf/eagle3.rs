//! EAGLE-3 heads in GGUF files, as llama.cpp's converter writes them: `general.architecture` is `eagle3`.

use std::path::Path;

use super::{
    describe::{numbers, vocabulary},
    file::{MAGIC, parse_beside},
    nvfp4,
    rope::ROPE_TENSORS,
    split::model_name,
};
use crate::{
    model::{
        Container, Eagle3, HiddenStateParts, Identity, ModelError,
        config::{Fields, only},
        draft_vocabulary::DraftVocabulary,
        eagle3::JoiningNorms,
        family::{EAGLE3, Naming},
        hidden_state::Layout,
    },
    storage::MappedFile,
};

/// The tensor of the tokens of a head, as ids of the verifier.
const TOKENS: &str = "d2t";

/// Opens an EAGLE-3 head; `None` for a file of something else, and for one that cannot be read as a model either.
pub(in crate::model) fn open_hidden_state(
    path: &Path,
) -> Result<Option<(HiddenStateParts, Vec<MappedFile>)>, ModelError> {
    let Ok(map) = MappedFile::open(path) else { return Ok(None) };
    if !says_hidden_state(map.bytes()) {
        return Ok(None);
    }
    let parts = describe_hidden_state(map.bytes(), &model_name(path));
    Ok(Some((parts.map_err(|error| error.in_file(path))?, vec![map])))
}

/// Whether bytes are those of a GGUF file of a head.
pub(in crate::model) fn says_hidden_state(bytes: &[u8]) -> bool {
    let architecture = |bytes: &[u8]| {
        let (file, _) = parse_beside(bytes, &[TOKENS]).ok()?;
        file.text("general.architecture").ok()?.map(str::to_owned)
    };
    bytes.starts_with(MAGIC) && architecture(bytes).as_deref() == Some(EAGLE3.name)
}

/// Everything but the weights of a head. `file_name` is its name if the file gives none.
pub(in crate::model) fn describe_hidden_state(
    bytes: &[u8],
    file_name: &str,
) -> Result<HiddenStateParts, ModelError> {
    let (mut file, mut integers) = parse_beside(bytes, &[TOKENS])?;
    nvfp4::scale(&mut file.tensors)?;
    let config = numbers(&file, &[bytes], file_name, &vocabulary(&file)?, &EAGLE3)?;
    let key = |name: &str| format!("{}.{name}", EAGLE3.name);
    let flag = |name: &str| Ok::<bool, ModelError>(file.flag(&key(name))?.unwrap_or(false));
    only(
        &key("norm_output"),
        file.flag(&key("norm_output"))?,
        false,
        "rows before the last norm are handed on",
    )?;
    let norms = match (flag("norm_before_fc")?, flag("fc_norm")?) {
        (false, false) => JoiningNorms::None,
        (true, false) => JoiningNorms::Whole,
        (false, true) => JoiningNorms::Each,
        (true, true) => {
            let expected = "false where the other norm is there";
            return Err(ModelError::invalid(format_args!("key `{}`", key("fc_norm")), expected, true));
        }
    };
    let layers = key("extract_layers");
    let layers = match file.counts(&layers)? {
        Some(layers) => layers,
        None => {
            return Err(ModelError::MissingKey { key: layers, expected: "the layers whose rows it reads" });
        }
    };
    let tokens = integers.remove(TOKENS);
    let bytes_of_tokens: Vec<u8> = tokens.iter().flatten().flat_map(|token| token.to_le_bytes()).collect();
    let offsets =
        tokens.map(|tokens| (0..).zip(tokens).map(|(row, token)| token.saturating_sub(row)).collect());
    let earlier = file.tensors.contains_key("blk.0.hidden_norm.weight");
    let renamed: &[(&str, &str)] = if earlier { &[("attn_norm_2", "hidden_norm")] } else { &[] };
    let mut head = Eagle3 {
        naming: Naming { renamed, ..Naming::of(Container::Gguf) },
        layers: Some(layers),
        target_width: file.count(&key("target_hidden_size"))?,
        vocabulary: DraftVocabulary::of(offsets.as_ref().map_or(config.vocabulary, Vec::len)),
        norm_before_residual: flag("norm_before_residual")?,
        norms,
        gives_normed: false,
        read_tensors: ROPE_TENSORS.to_vec(),
    };
    head.vocabulary.map(config.vocabulary, offsets, None)?;
    let identity = Identity::default().with(&bytes[..file.header_bytes]).with(&bytes_of_tokens);
    let verifier = String::new();
    Ok(HiddenStateParts { config, verifier, layout: Layout::Eagle3(head), identity, tensors: file.tensors })
}
