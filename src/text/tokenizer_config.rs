//! Reads Hugging Face `tokenizer_config.json`.

use serde::Deserialize;

use super::TextError;
use crate::storage::json_fault;

/// The fields of `tokenizer_config.json` that are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// `bos_token`: the text of the token that begins a text.
    pub bos: Option<String>,
    /// `eos_token`: the text of the token that ends one.
    pub eos: Option<String>,
    /// `add_bos_token`; without it, tokenizer.json's post-processor decides.
    pub add_bos: Option<bool>,
    /// `chat_template`; of several named ones, `default`.
    pub chat_template: Option<String>,
}

impl TokenizerConfig {
    /// Reads the bytes of a `tokenizer_config.json`.
    ///
    /// # Errors
    /// Not JSON, or one of the four fields has another form than Hugging Face gives it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TextError> {
        let file: ConfigFile = serde_json::from_slice(bytes)
            .map_err(|error| TextError::Json { file: "tokenizer_config.json", reason: json_fault(&error) })?;
        let chat_template = file.chat_template.and_then(|template| match template {
            TemplateField::One(source) => Some(source),
            TemplateField::Named(templates) => {
                templates.into_iter().find(|named| named.name == "default").map(|named| named.template)
            }
        });
        Ok(Self {
            bos: file.bos_token.map(TokenField::text),
            eos: file.eos_token.map(TokenField::text),
            add_bos: file.add_bos_token,
            chat_template,
        })
    }
}

#[derive(Deserialize)]
struct ConfigFile {
    bos_token: Option<TokenField>,
    eos_token: Option<TokenField>,
    add_bos_token: Option<bool>,
    chat_template: Option<TemplateField>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a token that is neither a text nor an object with `content`")]
enum TokenField {
    Text(String),
    Object { content: String },
}

impl TokenField {
    fn text(self) -> String {
        match self {
            Self::Text(content) | Self::Object { content } => content,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a chat template that is neither a text nor a list of named ones")]
enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}
