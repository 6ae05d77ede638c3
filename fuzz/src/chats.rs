//! Chat templates, which come from model files, and messages, which come from clients.

use std::sync::OnceLock;

use yggc::text::{ChatTemplate, Conversation, GenerationPrompt, Message, Role};

use super::tiny::loaded;

/// Roles by the first letter of a message.
const ROLES: [Role; 4] = [Role::System, Role::User, Role::Assistant, Role::Tool];

/// Lays out a conversation: a template, then messages after zero bytes, each a letter that chooses the role and what is
/// said. An empty template is the model's own, of which it is known how many control tokens it prints.
pub fn check(input: &[u8]) -> bool {
    let mut parts = input.split(|byte| *byte == 0);
    let template = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let messages: Vec<Message> = parts.filter_map(message).collect();
    if template.is_empty() { own(&messages) } else { given(&template, &messages) }
}

fn message(part: &[u8]) -> Option<Message> {
    let (role, content) = part.split_first()?;
    Some(Message::new(ROLES[usize::from(*role) % ROLES.len()], String::from_utf8_lossy(content)))
}

fn given(template: &str, messages: &[Message]) -> bool {
    let Ok(template) = ChatTemplate::compile(template) else { return false };
    let tokenizer = loaded().tokenizer();
    let Ok(ids) =
        tokenizer.encode_chat(&template, &Conversation::new(messages.to_vec(), GenerationPrompt::Add))
    else {
        return false;
    };
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_len()), "{ids:?}");
    true
}

/// Nothing that a message says is a control token, and all of it is text.
fn own(messages: &[Message]) -> bool {
    static TEMPLATE: OnceLock<ChatTemplate> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        loaded().chat_template().expect("it compiles").expect("the tiny model has one").clone()
    });
    let tokenizer = loaded().tokenizer();
    let Ok(ids) =
        tokenizer.encode_chat(template, &Conversation::new(messages.to_vec(), GenerationPrompt::Omit))
    else {
        return false;
    };
    let controls = ids.iter().filter(|id| tokenizer.is_control(**id)).count();
    assert_eq!(controls, 2 * messages.len(), "{messages:?}");
    let said: String = messages.iter().map(|m| format!("{}\n{}\n", m.role, m.content)).collect();
    assert_eq!(tokenizer.decode(&ids), said);
    true
}
