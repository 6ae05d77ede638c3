//! Assistant prefill: the last message is the beginning of the answer.

use yggc::engine::{Conversation, GenerationPrompt, Message, Role};

use super::answers::Refused;

/// Whether the last message is to be continued: by `continue_final_message`, or by the field `prefix` of that message.
pub(super) fn is_asked(
    prefixes: impl ExactSizeIterator<Item = bool>,
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
) -> Result<bool, Refused> {
    let last = prefixes.len().saturating_sub(1);
    let mut is_prefix = false;
    for (place, is_set) in prefixes.enumerate() {
        if is_set && place != last {
            let what = "expected the last message to be the one with a prefix, found another";
            return Err(Refused::field(format!("messages[{place}].prefix"), what));
        }
        is_prefix = is_set;
    }
    let continues = continue_final_message.unwrap_or(is_prefix);
    if continues && add_generation_prompt == Some(true) {
        let what = "expected false where the last message is continued, found true; leave it out";
        return Err(Refused::field("add_generation_prompt", what));
    }
    Ok(continues)
}

/// The conversation of these messages, the last of which the model continues.
pub(super) fn continued(mut messages: Vec<Message>) -> Result<Conversation, Refused> {
    match messages.pop() {
        Some(Message { role: Role::Assistant, content, .. }) => {
            let conversation = Conversation::new(messages, GenerationPrompt::Add);
            Ok(Conversation { opening: content, ..conversation })
        }
        other => {
            let found = other.map_or("none", |message| message.role.as_str());
            let what =
                format!("expected the last to be of the assistant, whose text is continued, found {found}");
            Err(Refused::field("messages", what))
        }
    }
}
