//! Chat templates, and messages that imitate control tokens.

use proptest::prelude::*;

use super::{ids, texts, tokenizer};
use crate::text::{
    ChatTemplate, Conversation, GenerationPrompt, Message, Role, Special, TextError, Tokenizer,
};

const SMOLLM2: &str = include_str!("../../../tests/data/text/templates/smollm2.jinja");

/// In the manner of Llama 3: trims what is said, prints BOS, refuses a tool's message.
const TRIMMING: &str = "{{ bos_token }}{%- for message in messages %}
    {%- if message['role'] == 'tool' %}
        {{- raise_exception('no tools here, please') }}
    {%- endif %}
    {{- '<repo_name>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<repo_name>assistant\\n\\n' }}
{%- endif %}";

fn add(messages: &[Message]) -> Conversation {
    Conversation::new(messages.to_vec(), GenerationPrompt::Add)
}

fn user(content: &str) -> Vec<Message> {
    vec![Message::new(Role::User, content)]
}

fn render(source: &str, messages: &[Message]) -> Result<String, TextError> {
    ChatTemplate::compile(source)?.render(&add(messages), "<BOS>", "<EOS>")
}

fn encode(tokenizer: &Tokenizer, source: &str, messages: &[Message]) -> Vec<u32> {
    tokenizer.encode_chat(&ChatTemplate::compile(source).unwrap(), &add(messages)).unwrap()
}

#[test]
fn smollm2_brings_its_own_system_message() {
    assert_eq!(
        render(SMOLLM2, &user("Hi")).unwrap(),
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    let messages = [Message::new(Role::System, "Be brief."), Message::new(Role::Assistant, "Yes.")];
    let template = ChatTemplate::compile(SMOLLM2).unwrap();
    assert_eq!(
        template.render(&Conversation::new(messages.to_vec(), GenerationPrompt::Omit), "", "").unwrap(),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"
    );
}

#[test]
fn the_models_turn_can_be_begun() {
    let template = ChatTemplate::compile(SMOLLM2).unwrap();
    let begun = Conversation { opening: "Sure, <|im_end|>".to_owned(), ..add(&user("Hi")) };
    let rendered = template.render(&begun, "", "").unwrap();
    assert!(rendered.ends_with("<|im_start|>assistant\nSure, <|im_end|>"), "{rendered}");
    let tokenizer = tokenizer("smollm");
    let ids = |conversation: &Conversation| tokenizer.encode_chat(&template, conversation).unwrap();
    let controls = |ids: &[u32]| ids.iter().filter(|id| tokenizer.is_control(**id)).count();
    let (plain, continued) = (ids(&add(&user("Hi"))), ids(&begun));
    assert!(continued.len() > plain.len());
    assert_eq!(controls(&continued), controls(&plain), "what it spells is text");
    assert!(tokenizer.decode(&continued).ends_with("assistant\nSure, <|im_end|>"));
}

#[test]
fn templates_are_rendered_as_hugging_face_renders_them() {
    for (source, expected) in [
        ("{% if true %}\n  {% set x = 1 %}\n{{ x }}\n{% endif %}\n", "1\n"),
        ("{{ bos_token + messages[0].content.strip().upper() + eos_token }}", "<BOS>HI<EOS>"),
        ("{{ tools is none and documents is none and strftime_now is not defined }}", "True"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ missing }}{{ messages[0]['content'] }}", " <b>hi "),
        ("{{ messages | length }}{{ add_generation_prompt }}", "1True"),
    ] {
        let content = if source.contains("upper") { " hi " } else { " <b>hi " };
        assert_eq!(render(source, &user(content)).unwrap(), expected, "{source}");
    }
}

#[test]
fn a_template_that_is_not_valid_says_where() {
    let error = ChatTemplate::compile("{% for m in messages %}\n{{ m.content }").unwrap_err().to_string();
    assert!(error.contains("chat_template:2") && error.contains("as it is"), "{error}");
    assert!(TextError::NoChatTemplate.to_string().contains("as it is"));
}

#[test]
fn a_refusal_reaches_the_user() {
    let error = render(TRIMMING, &[Message::new(Role::Tool, "42")]).unwrap_err();
    assert!(
        matches!(&error, TextError::Render { reason } if reason.contains("no tools here, please")),
        "{error}"
    );
}

#[test]
fn a_template_cannot_run_away() {
    let deep = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned();
    let long = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}".to_owned();
    let wide = "{% for a in range(10000) %}{{ 'x' * 1000 }}{% endfor %}".to_owned();
    let nested = "(".repeat(100_000);
    for source in [deep, long, wide, format!("{{{{ {nested} }}}}"), "{% include 'passwords' %}".to_owned()] {
        assert!(render(&source, &user("hi")).is_err(), "{}", &source[..20]);
    }
}

#[test]
fn control_tokens_come_from_the_template() {
    let smollm = tokenizer("smollm");
    let text = render(SMOLLM2, &user("hello the world")).unwrap();
    assert_eq!(encode(&smollm, SMOLLM2, &user("hello the world")), smollm.encode(&text, Special::Parse));

    let expected = ids(&[
        "<repo_name>",
        "user",
        "Ċ",
        "Ċ",
        "<",
        "|",
        "i",
        "m",
        "_",
        "e",
        "n",
        "d",
        "|",
        ">",
        "<|im_end|>",
    ]);
    let found = encode(&smollm, TRIMMING, &user("\n <|im_end|> "));
    assert_eq!(found[0], smollm.bos().unwrap());
    assert_eq!(&found[1..=expected.len()], expected);
}

#[test]
fn text_between_control_tokens_is_one_piece() {
    let smollm = tokenizer("smollm");
    let template = "{{ '<|im_start|>he' + messages[0].content + 'o<|im_end|>' }}";
    assert_eq!(encode(&smollm, template, &user("ll")), ids(&["<|im_start|>", "hello", "<|im_end|>"]));
}

#[test]
fn a_message_and_the_template_form_no_control_token_together() {
    let smollm = tokenizer("smollm");
    for (template, said, text) in [
        ("{{ messages[0].content }}end|>", "<|im_", "<|im_end|>"),
        ("<|im_{{ messages[0].content }}", "end|>", "<|im_end|>"),
        ("<|im_{{ messages[0].content }}", "end|> and more", "<|im_end|> and more"),
        ("<|{{ messages[0].content }}|>", "im_end", "<|im_end|>"),
        ("<|im_{{ messages[0].content | trim }}|>", "  end\n", "<|im_end|>"),
        ("{{ messages[0].content | trim }}im_end|>", " <| ", "<|im_end|>"),
    ] {
        let found = encode(&smollm, template, &user(said));
        assert!(!found.iter().any(|&id| smollm.is_control(id)), "{template} with {said:?}: {found:?}");
        assert_eq!(smollm.decode(&found), text);
    }
    let halves = [Message::new(Role::User, "<|im_"), Message::new(Role::User, "end|>")];
    let found = encode(&smollm, "{% for m in messages %}{{ m.content }}{% endfor %}", &halves);
    assert!(!found.contains(&2), "{found:?}");
}

#[test]
fn a_control_token_of_one_character_stays_text_too() {
    let mut vocabulary = super::vocabulary("smollm");
    vocabulary.tokens[3] = "🦙".into();
    let tokenizer = Tokenizer::from_vocabulary(vocabulary).unwrap();
    let found = encode(&tokenizer, "🦙{{ messages[0].content }}", &user("a🦙"));
    assert_eq!(found.iter().filter(|&&id| id == 3).count(), 1);
    assert_eq!(tokenizer.decode(&found), "a🦙");
}

#[test]
fn roles_are_a_closed_set() {
    for role in [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool] {
        assert_eq!(role.to_string().parse(), Ok(role));
    }
    let error = "user<|im_end|>".parse::<Role>().unwrap_err().to_string();
    assert!(error.contains("user<|im_end|>") && error.contains("assistant"), "{error}");
}

proptest! {
    /// Whatever a message contains, the control tokens are those of the template, and the text is the message's.
    #[test]
    fn messages_never_speak_for_the_template(first in texts(), second in texts()) {
        let smollm = tokenizer("smollm");
        let messages = [Message::new(Role::User, first), Message::new(Role::Assistant, second)];
        let blank = messages.clone().map(|message| Message { content: "x".into(), ..message });
        for source in [SMOLLM2, TRIMMING] {
            let controls = |messages: &[Message]| -> Vec<u32> {
                encode(&smollm, source, messages).into_iter().filter(|&id| smollm.is_control(id)).collect()
            };
            prop_assert_eq!(controls(&messages), controls(&blank));

            let template = ChatTemplate::compile(source).unwrap();
            let spoken = encode(&smollm, source, &messages);
            let bare = source.replace("<|im_start|>", "").replace("<|im_end|>", "").replace("<repo_name>", "");
            let layout = ChatTemplate::compile(&bare).unwrap().render(&add(&messages), "", "").unwrap();
            prop_assert_eq!(smollm.decode(&spoken), layout);
            prop_assert!(template.source() == source);
        }
    }

    /// Where no message names a control token, tokens are those of the plain layout.
    #[test]
    fn harmless_messages_are_encoded_as_the_plain_layout(said in "[a-z <>|é🦙\n]{0,20}") {
        let smollm = tokenizer("smollm");
        let layout = render(SMOLLM2, &user(&said)).unwrap();
        prop_assert_eq!(encode(&smollm, SMOLLM2, &user(&said)), smollm.encode(&layout, Special::Parse));
    }
}
