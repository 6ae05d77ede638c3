//! Answers of `/v1/responses`: deltas of a chat, made into items and the events of their stream.
//!
//! A whole response is what the last event of its stream has, so both come from the same deltas.

use axum::http::StatusCode;
use serde_json::{Value, json};
use yggc::engine::{Event, FinishReason};

use super::{
    answers::{Frame, Refused},
    events::Answering,
    routes::drained,
};

/// A response on its way.
#[derive(Debug)]
pub(super) struct Responding {
    /// What every form of it says, without its state.
    head: Value,
    /// What makes the ids of its items this request's.
    number: String,
    items: Vec<Item>,
    /// Whether more of the last item may come.
    is_open: bool,
    /// Events so far.
    sequence: u64,
}

/// An item of the output.
#[derive(Debug)]
enum Item {
    Thought(String),
    Message(String),
    Call { id: String, name: String, arguments: String },
}

/// What an event of the decoder makes of a response.
#[derive(Debug)]
pub(super) struct Made {
    /// Events of the stream.
    pub(super) events: Vec<Value>,
    /// The status that it ended with, if it did.
    pub(super) end: Option<StatusCode>,
}

impl Responding {
    /// A response that repeats what `head` says of its request.
    pub(super) fn new(mut head: Value, frame: &Frame) -> Self {
        head["id"] = json!(frame.id);
        head["created_at"] = json!(frame.created);
        head["model"] = json!(frame.model);
        Self { head, number: frame.number.clone(), items: Vec::new(), is_open: false, sequence: 0 }
    }

    /// What a stream begins with.
    pub(super) fn begin(&mut self) -> Vec<Value> {
        let mut out = Vec::new();
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress");
            self.event(kind, json!({"response": response}), &mut out);
        }
        out
    }

    /// More of the answer: a delta of a chat.
    fn delta(&mut self, delta: &Value, out: &mut Vec<Value>) {
        if let Some(text) = delta["reasoning_content"].as_str().filter(|text| !text.is_empty()) {
            self.thought(text, out);
        }
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            self.text(text, out);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            if let (Some(id), Some(name)) = (call["id"].as_str(), function["name"].as_str()) {
                let (id, name) = (id.to_owned(), name.to_owned());
                self.open(Item::Call { id, name, arguments: String::new() }, out);
            }
            if let Some(text) = function["arguments"].as_str().filter(|text| !text.is_empty()) {
                self.arguments(text, out);
            }
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<Value>) {
        if !(self.is_open && matches!(self.items.last(), Some(Item::Message(_)))) {
            self.open(Item::Message(String::new()), out);
        }
        if let Some(Item::Message(so_far)) = self.items.last_mut() {
            so_far.push_str(text);
        }
        let place = self.items.len() - 1;
        let delta = json!({"item_id": self.id(place), "output_index": place, "content_index": 0, "delta": text, "logprobs": []});
        self.event("response.output_text.delta", delta, out);
    }

    fn thought(&mut self, text: &str, out: &mut Vec<Value>) {
        if !(self.is_open && matches!(self.items.last(), Some(Item::Thought(_)))) {
            self.open(Item::Thought(String::new()), out);
        }
        if let Some(Item::Thought(so_far)) = self.items.last_mut() {
            so_far.push_str(text);
        }
        let place = self.items.len() - 1;
        let delta =
            json!({"item_id": self.id(place), "output_index": place, "content_index": 0, "delta": text});
        self.event("response.reasoning_text.delta", delta, out);
    }

    fn arguments(&mut self, text: &str, out: &mut Vec<Value>) {
        if let Some(Item::Call { arguments, .. }) = self.items.last_mut() {
            arguments.push_str(text);
        }
        let place = self.items.len() - 1;
        let delta = json!({"item_id": self.id(place), "output_index": place, "delta": text});
        self.event("response.function_call_arguments.delta", delta, out);
    }

    /// Begins an item; the one before it is over.
    fn open(&mut self, item: Item, out: &mut Vec<Value>) {
        self.close("completed", out);
        self.items.push(item);
        self.is_open = true;
        let place = self.items.len() - 1;
        let mut begun = self.item(place, "in_progress");
        let part = match self.items[place] {
            Item::Message(_) => {
                Some(json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []}))
            }
            Item::Thought(_) => Some(json!({"type": "reasoning_text", "text": ""})),
            Item::Call { .. } => None,
        };
        if part.is_some() {
            begun["content"] = json!([]);
        }
        self.event("response.output_item.added", json!({"output_index": place, "item": begun}), out);
        if let Some(part) = part {
            let part =
                json!({"item_id": self.id(place), "output_index": place, "content_index": 0, "part": part});
            self.event("response.content_part.added", part, out);
        }
    }

    /// Ends the item that is open, if one is.
    fn close(&mut self, status: &str, out: &mut Vec<Value>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let place = self.items.len() - 1;
        let (id, item) = (self.id(place), self.item(place, status));
        match &self.items[place] {
            Item::Thought(text) => {
                let done = json!({"item_id": id, "output_index": place, "content_index": 0, "text": text});
                self.event("response.reasoning_text.done", done, out);
                let part = json!({"item_id": id, "output_index": place, "content_index": 0, "part": item["content"][0]});
                self.event("response.content_part.done", part, out);
            }
            Item::Message(text) => {
                let done = json!({"item_id": id, "output_index": place, "content_index": 0, "text": text, "logprobs": []});
                self.event("response.output_text.done", done, out);
                let part = json!({"item_id": id, "output_index": place, "content_index": 0, "part": item["content"][0]});
                self.event("response.content_part.done", part, out);
            }
            Item::Call { name, arguments, .. } => {
                let done =
                    json!({"item_id": id, "output_index": place, "name": name, "arguments": arguments});
                self.event("response.function_call_arguments.done", done, out);
            }
        }
        self.event("response.output_item.done", json!({"output_index": place, "item": item}), out);
    }

    /// The answer is over.
    fn end(&mut self, reason: FinishReason, usage: Value, out: &mut Vec<Value>) {
        if self.items.iter().all(|item| matches!(item, Item::Thought(_))) {
            self.open(Item::Message(String::new()), out);
        }
        let is_cut = reason == FinishReason::Length;
        let status = if is_cut { "incomplete" } else { "completed" };
        self.close(status, out);
        self.head["usage"] = usage;
        if is_cut {
            self.head["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        let response = self.response(status);
        self.event(&format!("response.{status}"), json!({"response": response}), out);
    }

    /// Ends a stream that failed, since its status has already been sent.
    pub(super) fn fail(&mut self, refused: &Refused) -> Vec<Value> {
        let mut out = Vec::new();
        self.close("incomplete", &mut out);
        self.head["error"] = json!({"code": "server_error", "message": refused.message});
        let response = self.response("failed");
        self.event("response.failed", json!({"response": response}), &mut out);
        out
    }

    fn event(&mut self, kind: &str, mut event: Value, out: &mut Vec<Value>) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        out.push(event);
    }

    fn id(&self, place: usize) -> String {
        let kind = match self.items[place] {
            Item::Thought(_) => "rs",
            Item::Message(_) => "msg",
            Item::Call { .. } => "fc",
        };
        format!("{kind}_{}_{place}", self.number)
    }

    fn item(&self, place: usize, status: &str) -> Value {
        let id = self.id(place);
        match &self.items[place] {
            Item::Thought(text) => {
                let part = json!({"type": "reasoning_text", "text": text});
                json!({"type": "reasoning", "id": id, "status": status, "summary": [], "content": [part]})
            }
            Item::Message(text) => {
                let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": [part]})
            }
            Item::Call { id: call_id, name, arguments } => {
                json!({"type": "function_call", "id": id, "status": status, "call_id": call_id, "name": name, "arguments": arguments})
            }
        }
    }

    /// The response as it is now; of a state of its own only the last item can be.
    pub(super) fn response(&self, status: &str) -> Value {
        let last = self.items.len().wrapping_sub(1);
        let items = (0..self.items.len())
            .map(|place| self.item(place, if place == last { item_status(status) } else { "completed" }));
        let mut response = self.head.clone();
        response["status"] = json!(status);
        response["output"] = items.collect();
        response
    }
}

fn item_status(of_response: &str) -> &str {
    if of_response == "failed" { "incomplete" } else { of_response }
}

/// Takes an event of an answer that is a response.
pub(super) fn take(answering: &mut Answering, event: Event) -> Made {
    let mut events = Vec::new();
    match event {
        Event::Token { id, text, .. } => {
            let deltas = match &mut answering.reader {
                Some(reader) => {
                    reader.push(id, &text, answering.loaded.tokenizer());
                    reader.deltas(&answering.frame)
                }
                None => vec![json!({"content": text})],
            };
            let responding = responding(answering);
            deltas.iter().for_each(|delta| responding.delta(delta, &mut events));
            Made { events, end: None }
        }
        Event::Finished { reason: FinishReason::Cancelled, .. } => {
            let refused = drained();
            Made { events: responding(answering).fail(&refused), end: Some(refused.status) }
        }
        Event::Finished { reason, text, report } => {
            let deltas = match &mut answering.reader {
                Some(reader) => {
                    reader.end(&text);
                    answering.usage.thought_tokens += reader.thought_tokens();
                    reader.deltas(&answering.frame)
                }
                None => vec![json!({"content": text})],
            };
            answering.finish_choice(&report);
            let usage = answering.usage.of_response();
            let responding = responding(answering);
            deltas.iter().for_each(|delta| responding.delta(delta, &mut events));
            responding.end(reason, usage, &mut events);
            Made { events, end: Some(StatusCode::OK) }
        }
    }
}

/// The response of an answer that is one.
pub(super) fn responding(answering: &mut Answering) -> &mut Responding {
    answering.responding.as_mut().expect("an answer that is a response")
}
