//! What requests may ask of tools, and the grammars of calls.

use serde_json::{Value, json};
use yggc::grammar::GrammarTokens;
use yggc::text::{TokenKind, Vocabulary};

use super::*;

/// Bytes as tokens, and one control token.
pub(in crate::serve) fn tokenizer() -> std::sync::Arc<Tokenizer> {
    let mut tokens: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
    tokens.extend(["Ġ", "Ċ", "[TOOL_CALLS]", "<|end|>"].map(String::from));
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    let last = kinds.len() - 1;
    kinds[last - 1..].fill(TokenKind::Control);
    let (model, pre_tokenizer) = ("gpt2".into(), "smollm".into());
    let vocabulary = Vocabulary { model, pre_tokenizer, tokens, kinds, ..Vocabulary::default() };
    std::sync::Arc::new(Tokenizer::from_vocabulary(vocabulary).unwrap())
}

fn asked(body: Value) -> Result<Option<Tools>, Refused> {
    serde_json::from_value::<ToolsBody>(body).unwrap().asked()
}

fn some() -> Value {
    json!([
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "find", "parameters": {
            "$defs": {"Number": {"type": "integer"}}, "type": "object", "properties": {"n": {"$ref": "#/$defs/Number"}},
            "required": ["n"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "say", "parameters": {
            "properties": {"text": {"type": "string"}, "loud": {"type": "boolean"}}, "required": ["text"]}}},
    ])
}

#[test]
fn choices_of_tools_are_understood_or_refused_by_field() {
    let chosen = |choice: Value| asked(json!({"tools": some(), "tool_choice": choice}));
    assert!(asked(json!({})).unwrap().is_none());
    assert!(chosen(json!("none")).unwrap().is_none());
    assert_eq!(asked(json!({"tools": some()})).unwrap().unwrap().must, Must::No);
    assert_eq!(chosen(json!("required")).unwrap().unwrap().must, Must::Some);
    let named = chosen(json!({"type": "function", "function": {"name": "find"}})).unwrap().unwrap();
    assert_eq!((named.must, named.callable.len(), named.definitions.len()), (Must::One, 1, 3));
    let alone = json!({"tools": some(), "tool_choice": "required", "parallel_tool_calls": false});
    assert_eq!(asked(alone).unwrap().unwrap().must, Must::One);
    for (body, parts) in [
        (json!({"tool_choice": "required"}), ["tool_choice", "`tools`"]),
        (json!({"tools": some(), "tool_choice": {"function": {"name": "fly"}}}), ["tool_choice", "fly"]),
        (json!({"tools": [{"type": "web_search"}]}), ["tools", "function"]),
        (json!({"tools": [{"type": "custom", "function": {"name": "x"}}]}), ["tools", "custom"]),
        (json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}), ["tools", "a b"]),
    ] {
        let message = asked(body).unwrap_err().message;
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn a_call_that_must_be_made_is_all_that_an_answer_can_be() {
    let tokenizer = tokenizer();
    let grammar =
        GrammarTokens::new(std::sync::Arc::clone(&tokenizer), tokenizer.vocab_len(), tokenizer.end_ids())
            .unwrap();
    let required = |several: bool| {
        let body = json!({"tools": some(), "tool_choice": "required", "parallel_tool_calls": several});
        asked(body).unwrap().unwrap()
    };
    for (format, several, good, bad) in [
        (CallFormat::Llama3, true, r#"{"name": "find", "parameters": {"n": 3}}"#, r#"{"name": "fly"#),
        (CallFormat::Hermes, false, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "{"),
        (
            CallFormat::Hermes,
            true,
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"find\", \
             \"arguments\": {\"n\": 1}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": \"",
        ),
        (
            CallFormat::Mistral,
            true,
            "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"find\", \"arguments\": {\"n\": 1}}]",
            "[",
        ),
        (
            CallFormat::Mistral,
            false,
            "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]",
            "[TOOL_CALLS][]",
        ),
        (
            CallFormat::MistralArgs,
            true,
            "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]find[ARGS]{\"n\": 1}",
            "[TOOL_CALLS]find[ARGS]{}",
        ),
        (
            CallFormat::Harmony,
            true,
            "<|channel|>commentary to=functions.find <|constrain|>json<|message|>{\"n\": 1}",
            "<|channel|>final",
        ),
        (
            CallFormat::Xml,
            true,
            "<tool_call>\n<function=find>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n\
             <function=now>\n</function>\n</tool_call>",
            "<tool_call>\n<function=find>\n</function>",
        ),
        (
            CallFormat::Xml,
            false,
            "<tool_call>\n<function=say>\n<parameter=text>\na < b\n</p>\n</parameter>\n</function>\n</tool_call>",
            "<tool_call>\n<function=say>\n<parameter=loud>\ntrue\n",
        ),
    ] {
        let constraint = required(several).constraint(format, &tokenizer).unwrap().unwrap();
        let mut matcher =
            grammar.matcher(&constraint).unwrap_or_else(|error| panic!("{constraint:?}: {error}"));
        let special = yggc::text::Special::Parse;
        for id in tokenizer.encode(good, special) {
            assert!(matcher.mask().unwrap().allows(id), "{format:?}: {} in {good}", tokenizer.spelling(id));
            matcher.accept(id).unwrap();
        }
        assert!(matcher.may_end().unwrap(), "{good}");
        let mut matcher = grammar.matcher(&constraint).unwrap();
        let ids = tokenizer.encode(bad, special);
        let fits = ids.iter().all(|id| matcher.mask().unwrap().allows(*id) && matcher.accept(*id).is_ok());
        assert!(!fits, "{format:?}: {bad}");
    }
    let free = asked(json!({"tools": some()})).unwrap().unwrap();
    assert_eq!(free.constraint(CallFormat::Hermes, &tokenizer).unwrap(), None);
    let refused = required(false).constraint(CallFormat::Gemma, &tokenizer).unwrap_err();
    assert!(refused.message.contains("none or auto"), "{}", refused.message);
}

#[test]
fn numbers_of_tools_and_schemas_keep_their_digits_from_the_body_on() {
    let body = br#"{"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"const": 36893488147419103233}}, "required": ["n"], "additionalProperties": false}}}],
        "tool_choice": "required", "response_format": {"json_schema": {"schema": {"enum": [36893488147419103233, 1.50]}}, "type": "json_schema"}}"#;
    let tools = crate::serve::requests::parse::<ToolsBody>(body).unwrap().asked().unwrap().unwrap();
    let digits = "36893488147419103233";
    assert!(tools.definitions[0].to_string().contains(digits));
    assert!(serde_json::to_string(&tools.definitions).unwrap().contains(digits));
    let tokenizer = tokenizer();
    let constraint = tools.constraint(CallFormat::Llama3, &tokenizer).unwrap().unwrap();
    let grammar =
        GrammarTokens::new(std::sync::Arc::clone(&tokenizer), tokenizer.vocab_len(), tokenizer.end_ids())
            .unwrap();
    for (arguments, fits) in [
        (format!("{{\"n\": {digits}}}"), true),
        ("{\"n\": 36893488147419103232}".into(), false),
        ("3".into(), false),
    ] {
        let mut matcher = grammar.matcher(&constraint).unwrap();
        let call = format!("{{\"name\": \"f\", \"parameters\": {arguments}}}");
        let ids = tokenizer.encode(&call, yggc::text::Special::Parse);
        let taken = ids.iter().all(|id| matcher.mask().unwrap().allows(*id) && matcher.accept(*id).is_ok());
        assert_eq!(taken && matcher.may_end().unwrap(), fits, "{call}");
    }
    #[derive(serde::Deserialize)]
    struct Body {
        response_format: crate::serve::structured::ResponseFormat,
    }
    let format = crate::serve::requests::parse::<Body>(body).unwrap().response_format.into_constraint();
    assert_eq!(format, Some(Constraint::JsonSchema(format!("{{\"enum\":[{digits},1.50]}}"))));
}
