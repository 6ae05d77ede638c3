//! Streamed answers as server-sent events.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::body::{Bytes, Frame as BodyFrame};
use serde_json::{Value, json};
use tokio::{sync::mpsc::UnboundedReceiver, time::Sleep};
use yggc::engine::{Event, FinishReason, Loaded, Report, TokenLogProbs};

use super::{
    answers::{Frame, Refused, Usage},
    ending::Ending,
    log_probs::{self, Noted, Offsets},
    queue::{Delivery, ReadPrompt, Sent},
    reading::{AnswerForm, AnswerReader},
    requests::PromptReading,
    response_events::{self, Made, Responding},
    routes::{drained, late},
    steps::{self, StepView},
};

/// State of a request that is being answered.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) frame: Frame,
    pub(super) loaded: Arc<Loaded>,
    /// Of the answers that are finished.
    pub(super) usage: Usage,
    /// Text before each answer; there are as many answers.
    pub(super) echoes: Vec<String>,
    /// Answers to each prompt.
    pub(super) each: usize,
    /// Whether log-probabilities were asked for.
    pub(super) reports_log_probs: bool,
    /// What is told of the tokens of prompts.
    pub(super) reading: Option<PromptReading>,
    /// What was read of the prompt.
    pub(super) read: Option<ReadPrompt>,
    /// Where the tokens of the answer begin in its text.
    pub(super) offsets: Offsets,
    /// How answers are written, where they may be more than text.
    pub(super) form: Option<AnswerForm>,
    /// What reads the answer then.
    pub(super) reader: Option<AnswerReader>,
    /// The response that the answer is, at `/v1/responses`.
    pub(super) responding: Option<Responding>,
    pub(super) events: UnboundedReceiver<Delivery>,
    /// Fires at the request's deadline.
    pub(super) deadline: Pin<Box<Sleep>>,
    pub(super) ending: Ending,
}

impl Answering {
    /// Counts a finished answer; whether it was the last. If not, the next begins.
    pub(super) fn finish_choice(&mut self, report: &Report) -> bool {
        self.usage.add(report, self.frame.choice.is_multiple_of(self.each));
        if self.is_only_read() {
            self.usage.completion_tokens -= report.tokens;
        }
        self.frame.choice += 1;
        self.reader = self.form.as_ref().map(AnswerForm::reader);
        self.offsets = Offsets::default();
        self.frame.choice == self.echoes.len()
    }

    /// Whether the prompt is read and nothing is answered.
    pub(super) fn is_only_read(&self) -> bool {
        self.reading.is_some_and(|reading| reading.is_all)
    }

    /// The tokens of the prompt that the answer begins with, if they are told. `text` is the prompt's.
    pub(super) fn note_prompt(&mut self, text: &str) -> Vec<Noted> {
        let (Some(PromptReading { echoed: Some(most), .. }), Some(read)) = (self.reading, &self.read) else {
            return Vec::new();
        };
        self.offsets.note_prompt(read, text, most, self.loaded.tokenizer())
    }

    /// The list of the prompt's tokens, if it is asked for.
    pub(super) fn prompt_list(&self) -> Option<Value> {
        let most = self.reading?.listed?;
        Some(log_probs::of_prompt(self.read.as_ref()?, most, self.loaded.tokenizer()))
    }

    /// The next token of the answer, if it comes with log-probabilities.
    pub(super) fn note(&mut self, id: u32, log_probs: Option<TokenLogProbs>) -> Option<Noted> {
        let log_probs = log_probs?;
        Some(Noted { id, log_probs: Some(log_probs), offset: self.offsets.push(id, self.loaded.tokenizer()) })
    }
}

/// The body of a stream. Dropping it before its end, when the client has left, cancels the request.
#[derive(Debug)]
struct EventBody {
    answering: Answering,
    sends_usage: bool,
    /// What the steps did, where that was asked for.
    steps: Option<StepView>,
    /// Bytes that are ready to be sent.
    ready: VecDeque<Bytes>,
    is_over: bool,
}

/// The response that streams the answers, beginning with the `first` event; with token usage and what the steps did, or
/// without.
pub(super) fn stream(answering: Answering, first: Sent, (usage, steps): (bool, bool)) -> Response {
    let mut body = EventBody {
        answering,
        sends_usage: usage,
        steps: steps.then(StepView::default),
        ready: VecDeque::new(),
        is_over: false,
    };
    body.begin_choice();
    body.take(Ok(first));
    let mut response = Body::new(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl EventBody {
    /// Appends one event.
    fn send(&mut self, value: &Value) {
        let data = event(value);
        self.ready.push_back(match value["type"].as_str() {
            Some(name) => [format!("event: {name}\n").as_bytes(), &data].concat().into(),
            None => data,
        });
    }

    /// Sends what an answer begins with.
    fn begin_choice(&mut self) {
        if let Some(responding) = &mut self.answering.responding {
            let events = responding.begin();
            return events.iter().for_each(|event| self.send(event));
        }
        if let Some(opening) = self.answering.frame.opening() {
            self.send(&opening);
        }
        let choice = self.answering.frame.choice;
        let echo = std::mem::take(&mut self.answering.echoes[choice]);
        if !echo.is_empty() {
            self.piece(&echo, None, None, None);
        }
    }

    fn take(&mut self, delivery: Delivery) {
        let Sent { event, step, read: _ } = match delivery {
            Ok(sent) => sent,
            Err(error) => return self.fail(&error.into()),
        };
        if self.answering.responding.is_some() {
            let Made { events, end } = response_events::take(&mut self.answering, event);
            events.iter().for_each(|event| self.send(event));
            return end.into_iter().for_each(|status| self.end(status));
        }
        match event {
            Event::Token { id, text, log_probs } => {
                let noted = self.answering.note(id, log_probs).map(|noted| [noted]);
                let Answering { reader, loaded, .. } = &mut self.answering;
                let tokenizer = loaded.tokenizer();
                let of_steps = self.steps.as_mut().map(|steps| steps.token(step.as_ref(), tokenizer));
                if let Some(reader) = reader {
                    reader.push(id, &text, tokenizer);
                    return self.send_read(noted.as_ref().map(<[Noted; 1]>::as_slice), None, of_steps);
                }
                if !text.is_empty() || noted.is_some() || of_steps.is_some() {
                    self.piece(&text, noted.as_ref().map(<[Noted; 1]>::as_slice), None, of_steps);
                }
            }
            Event::Finished { reason: FinishReason::Cancelled, .. } => self.fail(&drained()),
            Event::Finished { reason, text, report } => {
                let of_steps = self.steps.as_ref().map(|_| steps::report(&report));
                if let Some(reader) = &mut self.answering.reader {
                    reader.end(&text);
                    self.answering.usage.thought_tokens += reader.thought_tokens();
                    self.send_read(None, Some(reason), of_steps);
                } else {
                    let none = self.answering.reports_log_probs && !text.is_empty();
                    self.piece(&text, none.then_some(&[]), Some(reason), of_steps);
                }
                if !self.answering.finish_choice(&report) {
                    return self.begin_choice();
                }
                if self.sends_usage {
                    let event = self.answering.frame.usage(&self.answering.usage);
                    self.send(&event);
                }
                self.end(StatusCode::OK);
            }
        }
    }

    /// Sends what the answer's reader found, the first chunk with what is said of the token; at its end its reason.
    fn send_read(
        &mut self,
        noted: Option<&[Noted]>,
        reason: Option<FinishReason>,
        mut of_steps: Option<Value>,
    ) {
        let Answering { reader, frame, loaded, .. } = &mut self.answering;
        let reader = reader.as_mut().expect("an answer that is read");
        let mut deltas: Vec<(Value, Option<&str>)> =
            reader.deltas(frame).into_iter().map(|delta| (delta, None)).collect();
        if let Some(reason) = reason {
            deltas.push((json!({}), Some(reader.reason(reason))));
        } else if deltas.is_empty() && (noted.is_some() || of_steps.is_some()) {
            deltas.push((json!({"content": ""}), None));
        }
        let mut noted = noted;
        let last = deltas.len().saturating_sub(1);
        for (place, (delta, reason)) in deltas.into_iter().enumerate() {
            let mut chunk = frame.delta(delta, noted.take(), reason, loaded.tokenizer());
            if let Some(of_steps) = of_steps.take_if(|_| place == last) {
                chunk["yggc"] = of_steps;
            }
            self.ready.push_back(event(&chunk));
        }
    }

    /// Sends a chunk; `of_steps` is what it says of steps.
    fn piece(
        &mut self,
        text: &str,
        noted: Option<&[Noted]>,
        reason: Option<FinishReason>,
        of_steps: Option<Value>,
    ) {
        let Answering { frame, loaded, .. } = &self.answering;
        let mut event = frame.piece(text, noted, reason, loaded.tokenizer());
        if let Some(of_steps) = of_steps {
            event["yggc"] = of_steps;
        }
        self.send(&event);
    }

    /// Sends an error as an event, since the status has already been sent.
    fn fail(&mut self, refused: &Refused) {
        let events = match &mut self.answering.responding {
            Some(responding) => responding.fail(refused),
            None => vec![refused.body()],
        };
        events.iter().for_each(|event| self.send(event));
        self.end(refused.status);
    }

    fn end(&mut self, status: StatusCode) {
        // The last event of a response says that it is the last.
        if self.answering.responding.is_none() {
            self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        }
        self.is_over = true;
        self.answering.ending.end(status);
    }
}

/// An event; `serde_json` writes no line breaks, so it fits one `data:` line.
fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(BodyFrame::data(bytes))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            if self.answering.deadline.as_mut().poll(context).is_ready() {
                self.fail(&late());
                continue;
            }
            match self.answering.events.poll_recv(context) {
                Poll::Ready(Some(delivery)) => self.take(delivery),
                // The decoder has ended.
                Poll::Ready(None) => self.fail(&drained()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
