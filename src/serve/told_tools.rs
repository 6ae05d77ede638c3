//! Tools for models whose chat template knows none: the conversation tells of them in Hermes' form, and has calls and
//! results as text. And ids of calls for templates that are particular about them.

use yggc::engine::{Conversation, Json, Loaded, Message, Prompt, Role};

use super::{answers::Refused, messages::member};

/// How Mistral's templates refuse the ids of others.
const WANTS_SHORT_IDS: &str = "id|length != 9";
/// Characters of an id that they take.
const SHORT_ID: usize = 9;

/// Lays out what the template of a chat does not: its tools, calls and results. A template that knows tools is left to
/// it, with ids that it takes.
pub(super) fn lay_out(prompt: &mut Prompt, loaded: &Loaded) -> Result<(), Refused> {
    let template = loaded.chat_template().map_err(Refused::from)?;
    if let (Prompt::Chat(conversation), Some(template)) = (prompt, template) {
        if !knows_tools(template.source()) {
            rewrite(conversation);
        } else if template.source().contains(WANTS_SHORT_IDS) {
            conversation.messages.iter_mut().for_each(shorten_ids);
        }
    }
    Ok(())
}

/// Gives the calls of a message, and the call that it answers, ids of nine letters and digits.
fn shorten_ids(message: &mut Message) {
    for (name, value) in &mut message.fields {
        match (name.as_str(), value) {
            ("tool_call_id", Json::String(id)) => *id = short_id(id),
            ("tool_calls", Json::Array(calls)) => calls.iter_mut().for_each(shorten_id),
            _ => {}
        }
    }
}

fn shorten_id(call: &mut Json) {
    let Json::Object(entries) = call else { return };
    for (key, value) in entries {
        if let ("id", Json::String(id)) = (key.as_str(), value) {
            *id = short_id(id);
        }
    }
}

/// The same for the same id; one that is short already stays.
fn short_id(id: &str) -> String {
    if id.len() == SHORT_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // FNV-1a, <https://datatracker.ietf.org/doc/draft-eastlake-fnv/>.
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let digit = |_| {
        let digit = u32::try_from(hash % 36).expect("below 36");
        hash /= 36;
        char::from_digit(digit, 36).expect("below 36")
    };
    (0..SHORT_ID).map(digit).collect()
}

/// Whether a template lays out tools, or the calls of a history in a form of its own.
pub(super) fn knows_tools(template: &str) -> bool {
    template.contains("tools") || template.contains("tool_calls")
}

fn rewrite(conversation: &mut Conversation) {
    let mut messages: Vec<Message> = Vec::with_capacity(conversation.messages.len());
    let mut answers_calls = false;
    for mut message in std::mem::take(&mut conversation.messages) {
        let is_result = message.role == Role::Tool;
        if is_result {
            message =
                Message::new(Role::User, format!("<tool_response>\n{}\n</tool_response>", message.content));
        } else if let Some((_, Json::Array(calls))) =
            message.fields.iter().find(|(name, _)| name == "tool_calls")
        {
            let said = (!message.content.is_empty()).then(|| message.content.clone());
            let parts: Vec<String> = said.into_iter().chain(calls.iter().map(call)).collect();
            message = Message::new(message.role, parts.join("\n"));
        }
        match messages.last_mut() {
            // Results of several calls are one turn.
            Some(last) if is_result && answers_calls => {
                last.content = format!("{}\n{}", last.content, message.content);
            }
            _ => messages.push(message),
        }
        answers_calls = is_result;
    }
    conversation.messages = messages;
    let tools = std::mem::take(&mut conversation.tools);
    if !tools.is_empty() {
        tell(&tools, &mut conversation.messages);
    }
}

/// A call as the model would have written it.
fn call(call: &Json) -> String {
    let function = member(call, "function");
    let [name, arguments] =
        ["name", "arguments"].map(|name| function.and_then(|function| member(function, name)));
    let name = name.map_or_else(|| "null".to_owned(), Json::to_string);
    let arguments = match arguments {
        // What is no JSON stands as it was written.
        Some(Json::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "{}".to_owned(),
    };
    format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
}

/// Tells of the tools in the system's message, or where there is none in the user's first: not every template has a
/// system.
fn tell(tools: &[Json], messages: &mut Vec<Message>) {
    let list: Vec<String> = tools.iter().map(Json::to_string).collect();
    let told = format!(
        "You can call these functions:\n<tools>\n{}\n</tools>\nTo call one, answer with its name and its arguments as \
         JSON:\n\
         <tool_call>\n{{\"name\": \"NAME\", \"arguments\": {{}}}}\n</tool_call>",
        list.join("\n")
    );
    match messages.iter_mut().find(|message| matches!(message.role, Role::System | Role::User)) {
        Some(system) if system.role == Role::System => {
            system.content = format!("{}\n\n{told}", system.content)
        }
        Some(user) => user.content = format!("{told}\n\n{}", user.content),
        None => messages.insert(0, Message::new(Role::User, told)),
    }
}

#[cfg(test)]
mod tests {
    use yggc::engine::GenerationPrompt;

    use super::*;

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    fn laid_out(messages: Vec<Message>, tools: Vec<Json>) -> Vec<(&'static str, String)> {
        let mut conversation = Conversation { tools, ..Conversation::new(messages, GenerationPrompt::Add) };
        rewrite(&mut conversation);
        assert!(conversation.tools.is_empty());
        conversation.messages.into_iter().map(|message| (message.role.as_str(), message.content)).collect()
    }

    #[test]
    fn calls_and_results_become_text_and_results_of_one_turn_one_message() {
        let mut assistant = Message::new(Role::Assistant, "I look.");
        let calls = r#"[{"id": "1", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}, {"function": {"name": "g", "arguments": "{\"x\": [1"}}]"#;
        assistant.fields.push(("tool_calls".to_owned(), json(calls)));
        let said = laid_out(
            vec![
                Message::new(Role::User, "q"),
                assistant,
                Message::new(Role::Tool, "one"),
                Message::new(Role::Tool, "two"),
                Message::new(Role::Assistant, "Three."),
                Message::new(Role::User, "thanks"),
            ],
            Vec::new(),
        );
        let called = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\":1,\"a\":2}}\n</tool_call>\n\
                      <tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": [1}\n</tool_call>";
        let results = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>";
        let expected = [
            ("user", "q"),
            ("assistant", called),
            ("user", results),
            ("assistant", "Three."),
            ("user", "thanks"),
        ];
        assert_eq!(said, expected.map(|(role, text)| (role, text.to_owned())));
    }

    #[test]
    fn a_template_that_writes_calls_keeps_its_form() {
        for (template, expected) in [
            ("{% for message in messages %}{{ message.content }}{% endfor %}", false),
            ("{% if tools %}{{ tools | tojson }}{% endif %}", true),
            ("{% if message['tool_calls'] is defined %}<calls>{% endif %}", true),
        ] {
            assert_eq!(knows_tools(template), expected, "{template}");
        }
    }

    #[test]
    fn ids_become_short_where_a_template_wants_that_and_calls_keep_their_results() {
        let mut call = Message::new(Role::Assistant, "");
        call.fields.push((
            "tool_calls".to_owned(),
            json(r#"[{"id": "call_12_0", "x": "call_12_0"}, {"id": "abcDEF123"}]"#),
        ));
        let mut result = Message::new(Role::Tool, "3");
        result.fields.push(("tool_call_id".to_owned(), json(r#""call_12_0""#)));
        shorten_ids(&mut call);
        shorten_ids(&mut result);
        let Json::String(id) = &result.fields[0].1 else { panic!("{result:?}") };
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        let expected = format!(r#"[{{"id":"{id}","x":"call_12_0"}},{{"id":"abcDEF123"}}]"#);
        assert_eq!(call.fields[0].1.to_string(), expected);
        assert_ne!(short_id("call_12_0"), short_id("call_12_1"));
    }

    #[test]
    fn tools_are_told_of_where_the_template_has_room() {
        let tool = || vec![json(r#"{"type": "function", "function": {"name": "f"}}"#)];
        let user = || Message::new(Role::User, "q");
        for (messages, role, begin, end) in [
            (
                vec![Message::new(Role::System, "Be brief."), user()],
                "system",
                "Be brief.\n\n",
                "</tool_call>",
            ),
            (vec![user()], "user", "You can call", "\n\nq"),
            (vec![Message::new(Role::Assistant, "a")], "user", "You can call", "</tool_call>"),
        ] {
            let (found, text) = laid_out(messages, tool()).remove(0);
            assert_eq!(found, role);
            assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
            assert!(text.contains(r#"{"type":"function","function":{"name":"f"}}"#), "{text}");
        }
    }
}
