//! Ids and layouts that Hugging Face's libraries made of the committed tokenizers and templates
//! (`tests/data/text/README.md`).

use serde_json::Value;

use crate::text::{ChatTemplate, Conversation, GenerationPrompt, Json, Message, Special, TokenizerConfig};
use crate::text::{TokenKind, Tokenizer, Vocabulary};

fn data(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&data(name)).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn check(tokenizer: &Tokenizer, corpus: &[String], expected: &[Value], what: &str) {
    assert_eq!(corpus.len(), expected.len());
    for (text, expected) in corpus.iter().zip(expected) {
        let found = tokenizer.encode(text, Special::Parse);
        assert_eq!(found, ids(expected), "{what}: {text:?}");
        let mut stream = tokenizer.detokenizer();
        let mut joined: String = found.iter().map(|&id| stream.push(id).to_owned()).collect();
        joined.push_str(stream.finish());
        assert_eq!(joined, tokenizer.decode(&found), "{what}: {text:?}");
    }
}

/// The metadata of a vocabulary as a GGUF file names it.
fn vocabulary(metadata: &Value) -> Vocabulary {
    let get = |key: &str| &metadata[format!("tokenizer.ggml.{key}")];
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap_or_default() };
    let id = |key: &str| get(key).as_u64().map(|id| u32::try_from(id).unwrap());
    Vocabulary {
        model: get("model").as_str().unwrap().to_owned(),
        tokens: texts(get("tokens")),
        kinds: ids(get("token_type"))
            .into_iter()
            .map(|kind| TokenKind::try_from(i32::try_from(kind).unwrap()).unwrap())
            .collect(),
        merges: texts(get("merges")),
        scores: serde_json::from_value(get("scores").clone()).unwrap_or_default(),
        pre_tokenizer: get("pre").as_str().unwrap_or_default().to_owned(),
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        unknown: id("unknown_token_id"),
        add_bos: get("add_bos_token").as_bool(),
        add_space_prefix: get("add_space_prefix").as_bool(),
        removes_extra_spaces: get("remove_extra_whitespaces").as_bool(),
        ..Vocabulary::default()
    }
}

#[test]
fn ids_are_those_of_hugging_face_from_both_containers() {
    let corpus: Vec<String> = serde_json::from_value(json("tokenizers/corpus.json")).unwrap();
    assert_eq!(corpus.len(), 2_000);
    let kinds: Vec<String> = serde_json::from_value(json("tokenizers/kinds.json")).unwrap();
    assert!(kinds.len() >= 12, "{kinds:?}");
    for kind in kinds {
        let file = json(&format!("tokenizers/{kind}.json"));
        let expected = file["ids"].as_array().unwrap();
        let from_json = Tokenizer::from_json(
            &serde_json::to_vec(&file["tokenizer"]).unwrap(),
            &TokenizerConfig::default(),
        );
        check(&from_json.unwrap(), &corpus, expected, &format!("{kind}, tokenizer.json"));
        let from_gguf = Tokenizer::from_vocabulary(vocabulary(&file["gguf"])).unwrap();
        check(&from_gguf, &corpus, expected, &format!("{kind}, GGUF"));
        let written = serde_json::to_vec(&vocabulary(&file["gguf"]).to_json().unwrap()).unwrap();
        let from_written = Tokenizer::from_json(&written, &TokenizerConfig::default()).unwrap();
        check(&from_written, &corpus, expected, &format!("{kind}, GGUF written as tokenizer.json"));
        assert_eq!(from_gguf.first_difference(&from_written), None, "{kind}");
    }
}

/// Files of Gemma 4 have the merges that those of Gemma 3 leave to scores.
#[test]
fn pieces_with_merges_are_those_of_hugging_face() {
    let corpus: Vec<String> = serde_json::from_value(json("tokenizers/corpus.json")).unwrap();
    let file = json("tokenizers/gemma.json");
    let merges = file["tokenizer"]["model"]["merges"].as_array().unwrap();
    let joined = |merge: &Value| {
        let parts: Vec<String> = serde_json::from_value(merge.clone()).unwrap();
        parts.join(" ")
    };
    let of_scores = vocabulary(&file["gguf"]);
    let (model, merges) = ("gemma4".to_owned(), merges.iter().map(joined).collect());
    let of_merges = Vocabulary { model, merges, scores: Vec::new(), add_space_prefix: None, ..of_scores };
    let tokenizer = Tokenizer::from_vocabulary(of_merges.clone()).unwrap();
    check(&tokenizer, &corpus, file["ids"].as_array().unwrap(), "gemma4, GGUF");
    let written = serde_json::to_vec(&of_merges.to_json().unwrap()).unwrap();
    let from_written = Tokenizer::from_json(&written, &TokenizerConfig::default()).unwrap();
    assert_eq!(tokenizer.first_difference(&from_written), None);
    let broken = Vocabulary { merges: vec!["a".to_owned()], ..of_merges };
    assert!(Tokenizer::from_vocabulary(broken).unwrap_err().to_string().contains("merge"));
}

/// The family of no GGUF files: its flags are in tokenizer.json alone.
const JSON_ALONE: &str = "all-flags";

#[test]
fn control_tokens_amid_white_space_are_those_of_hugging_face_from_both_containers() {
    let families = json("tokenizers/added.json");
    let families = families.as_object().unwrap();
    assert!(families.len() >= 18, "{:?}", families.keys());
    for (family, case) in families {
        let mut file = json(&format!("tokenizers/{}.json", case["kind"].as_str().unwrap()));
        file["tokenizer"]["added_tokens"] = case["added_tokens"].clone();
        let texts: Vec<String> = serde_json::from_value(case["texts"].clone()).unwrap();
        let expected = case["ids"].as_array().unwrap();
        assert!(texts.len() >= 150, "{family}");
        let from_json = Tokenizer::from_json(
            &serde_json::to_vec(&file["tokenizer"]).unwrap(),
            &TokenizerConfig::default(),
        );
        check(&from_json.unwrap(), &texts, expected, &format!("{family}, tokenizer.json"));
        if family == JSON_ALONE {
            continue;
        }
        let gguf = with_added(vocabulary(&file["gguf"]), case["added_tokens"].as_array().unwrap());
        let written = serde_json::to_vec(&gguf.to_json().unwrap()).unwrap();
        let from_gguf = Tokenizer::from_vocabulary(gguf).unwrap();
        check(&from_gguf, &texts, expected, &format!("{family}, GGUF"));
        let from_written = Tokenizer::from_json(&written, &TokenizerConfig::default()).unwrap();
        check(&from_written, &texts, expected, &format!("{family}, GGUF written as tokenizer.json"));
    }
}

/// A vocabulary with these added tokens, as llama.cpp's converter takes them over: their kinds, none of their flags.
fn with_added(mut vocabulary: Vocabulary, added: &[Value]) -> Vocabulary {
    for token in added {
        let id = usize::try_from(token["id"].as_u64().unwrap()).unwrap();
        if id >= vocabulary.tokens.len() {
            vocabulary.tokens.resize(id + 1, String::new());
            vocabulary.kinds.resize(id + 1, TokenKind::Unused);
            if !vocabulary.scores.is_empty() {
                vocabulary.scores.resize(id + 1, 0.0);
            }
        }
        vocabulary.tokens[id] = token["content"].as_str().unwrap().to_owned();
        if vocabulary.kinds[id] != TokenKind::Unknown {
            let is_special = token["special"].as_bool().unwrap();
            vocabulary.kinds[id] = if is_special { TokenKind::Control } else { TokenKind::UserDefined };
        }
    }
    vocabulary
}

/// Eleven tokens were made of these four: the line ends after Phi 3's control tokens belong to them.
#[test]
fn line_ends_behind_the_control_tokens_of_phi_3_are_no_tokens() {
    let case = &json("tokenizers/added.json")["phi3"];
    let file = json("tokenizers/sentencepiece.json");
    let gguf = with_added(vocabulary(&file["gguf"]), case["added_tokens"].as_array().unwrap());
    let tokenizer = Tokenizer::from_vocabulary(gguf).unwrap();
    let ids = tokenizer.encode("<|user|>\n\n\n<|end|>\n<|assistant|>\n\n<|end|>\n", Special::Parse);
    let names: Vec<String> = ids.iter().map(|&id| tokenizer.spelling(id)).collect();
    assert_eq!(names, ["<|user|>", "<|end|>", "<|assistant|>", "<|end|>"]);
}

fn message(value: &Json) -> Message {
    let Json::Object(fields) = value else { panic!("{value:?}") };
    let text = |name: &str| match fields.iter().find(|(known, _)| known == name) {
        Some((_, Json::String(text))) => text.clone(),
        _ => String::new(),
    };
    let mut message = Message::new(text("role").parse().unwrap(), text("content"));
    let is_extra = |(name, value): &&(String, Json)| {
        name != "role" && !(name == "content" && matches!(value, Json::String(_)))
    };
    message.fields = fields.iter().filter(is_extra).cloned().collect();
    message
}

#[test]
fn layouts_are_those_of_transformers() {
    #[derive(serde::Deserialize)]
    struct Case {
        messages: Vec<Json>,
        tools: Vec<Json>,
        variables: Vec<(String, Json)>,
        add_generation_prompt: bool,
    }
    let cases: Vec<Case> = serde_json::from_slice(&data("templates/conversations.json")).unwrap();
    assert_eq!(cases.len(), 10);
    let rendered = json("templates/rendered.json");
    let families = rendered.as_object().unwrap();
    assert!(families.len() >= 16, "{:?}", families.keys());
    for (family, expected) in families {
        let source = String::from_utf8(data(&format!("templates/{family}.jinja"))).unwrap();
        let template = ChatTemplate::compile(&source).unwrap();
        let mut laid_out = 0;
        for (case, expected) in cases.iter().zip(expected.as_array().unwrap()) {
            let prompt =
                if case.add_generation_prompt { GenerationPrompt::Add } else { GenerationPrompt::Omit };
            let conversation = Conversation {
                tools: case.tools.clone(),
                variables: Json::Object(case.variables.clone()).try_into().unwrap(),
                now: chrono::NaiveDate::from_ymd_opt(2026, 3, 5).and_then(|day| day.and_hms_opt(7, 8, 9)),
                ..Conversation::new(case.messages.iter().map(message).collect(), prompt)
            };
            let found = template.render(&conversation, "<BOS>", "<EOS>");
            match expected.as_str() {
                Some(expected) => {
                    assert_eq!(found.unwrap(), expected, "{family}: {:?}", case.messages);
                    laid_out += 1;
                }
                None => assert!(found.is_err(), "{family}: transformers refuses {:?}", case.messages),
            }
        }
        assert!(laid_out >= 2, "{family}");
    }
}
