//! The chat of `yggc run` without a prompt: lines in, answers out, the conversation kept.
//!
//! At a terminal there is a line editor with history, and Ctrl-C ends an answer. Piped input is read line by line, and
//! Ctrl-C ends the program.

use yggc::engine::{
    Engine, ErrorKind, FinishReason, Matcher, Message, Prompt, Report, Request, Role, Speculation,
};

use self::{
    input::{BLOCK, HELP, Input},
    interrupt::Interrupts,
    lines::{Lines, NextLine},
    wrap::Wrap,
};
use crate::cli::{
    args::{AnswerArgs, RunArgs},
    cache::CachePlace,
    error::Failure,
    kept_chat::KeptChat,
    output, settings, stats,
    stream::stream,
};

mod input;
mod interrupt;
mod lines;
mod wrap;

/// The part of the context that is kept free for an answer, at most.
const ANSWERS_PART: usize = 4;

/// A running conversation.
struct Chat<'a> {
    engine: &'a mut Engine,
    settings: AnswerArgs,
    /// What every answer must be.
    compiled: Option<Matcher>,
    speculation: Speculation,
    /// Whether the oldest turns make room for new ones.
    drops_old: bool,
    shows_stats: bool,
    wrap: Wrap,
    interrupts: Option<Interrupts>,
    /// Questions and answers in turn, as far back as they fit.
    messages: Vec<Message>,
    /// Where all of them are kept, if they are.
    session: Option<KeptChat>,
    /// End and report of the last answer.
    last: Option<(FinishReason, Report)>,
}

/// Answers line by line until the input ends. A message that does not fit the context is refused and forgotten; the
/// conversation before it stays.
pub(crate) fn command(
    engine: &mut Engine,
    args: &RunArgs,
    (compiled, session): (Option<Matcher>, Option<KeptChat>),
    cache: &CachePlace,
) -> Result<(), Failure> {
    if engine.loaded().chat_template()?.is_none() {
        return Err(Failure::Input(
            "the model has no chat template, so there can be no chat: expected one in its files, found none; give the \
             whole prompt with -p TEXT --raw"
                .to_owned(),
        ));
    }
    let mut lines = Lines::of_stdin(cache.dir().ok().map(|cache| cache.chat_history()))?;
    let interrupts = if lines.are_typed() { Some(Interrupts::watch().map_err(no_handler)?) } else { None };
    output::remark("chat: /help lists the commands, Ctrl-D (end of input) quits");
    let mut chat = Chat {
        engine,
        settings: args.answer.clone(),
        compiled,
        speculation: settings::speculation(args),
        drops_old: true,
        shows_stats: args.stats,
        wrap: Wrap::of_stdout(),
        interrupts,
        messages: session.as_ref().map(KeptChat::messages).unwrap_or_default(),
        session,
        last: None,
    };
    loop {
        let line = match lines.next("> ")? {
            NextLine::Line(line) => line,
            NextLine::Dropped => continue,
            NextLine::End => return Ok(()),
        };
        match Input::new(&line) {
            Input::Nothing => {}
            Input::Message(text) => chat.answer(text)?,
            Input::Block(first) => {
                if let Some(text) = block(first, &mut lines)? {
                    chat.answer(&text)?;
                }
            }
            Input::Help => output::remark(HELP),
            Input::Set(None) => chat.show_settings(),
            Input::Set(Some((name, value))) => chat.set(name, value.trim()),
            Input::Stats => chat.stats(),
            Input::Reset => chat.reset()?,
            Input::Quit => return Ok(()),
            Input::Unknown(word) => {
                output::remark(format_args!("there is no command {word}; /help names them"))
            }
        }
    }
}

fn no_handler(error: std::io::Error) -> Failure {
    Failure::Device(format!("Ctrl-C cannot be watched for: {error}; pipe the lines of the chat in instead"))
}

/// A message of several lines, whose first is `first`; `None` if it is dropped, or empty. The end of the input ends it.
fn block(first: &str, lines: &mut Lines) -> Result<Option<String>, Failure> {
    let mut text = first.to_owned();
    while !text.trim_end().ends_with(BLOCK) {
        match lines.next(". ")? {
            NextLine::Line(line) => {
                text.push('\n');
                text.push_str(line.trim_end_matches(['\r', '\n']));
            }
            NextLine::Dropped => return Ok(None),
            NextLine::End => break,
        }
    }
    let text = text.trim_end();
    let text = text.strip_suffix(BLOCK).unwrap_or(text).trim();
    Ok(if text.is_empty() { None } else { Some(text.to_owned()) })
}

/// The conversation, without its oldest turns if they leave no room for an answer, which is said, and how many messages
/// these are. A message that does not fit by itself drops none.
pub(crate) fn fitting(engine: &Engine, settings: &AnswerArgs, messages: &[Message]) -> (Prompt, usize) {
    let context = engine.context();
    let room = settings.max_tokens.unwrap_or(usize::MAX).min(context / ANSWERS_PART);
    let prompt = |from: usize| settings.chat(messages[from..].iter().cloned());
    for from in (0..messages.len()).step_by(2) {
        let shorter = prompt(from);
        // What the template refuses, the engine will refuse.
        let Ok(ids) = shorter.token_ids(engine.loaded()) else { break };
        let is_last = from + 1 == messages.len();
        if ids.len() + if is_last { 1 } else { room } > context {
            continue;
        }
        if from > 0 {
            output::remark(format_args!(
                "the context of {context} tokens is full: the oldest turns were dropped, {} of them; --context N \
                 holds more",
                from / 2
            ));
        }
        return (shorter, from);
    }
    (prompt(0), 0)
}

impl Chat<'_> {
    /// Answers a message. The text of a cancelled answer becomes part of the conversation.
    fn answer(&mut self, text: &str) -> Result<(), Failure> {
        self.messages.push(Message::new(Role::User, text));
        let prompt = self.prompt();
        let compiled = self.compiled.clone();
        let constraint = compiled.as_ref().map(|compiled| compiled.constraint().clone());
        let speculation = self.speculation;
        let mut request =
            Request { constraint, compiled, speculation, ..settings::request(&self.settings, prompt) };
        if let Some(interrupts) = &self.interrupts {
            request.cancel = interrupts.begin();
        }
        let mut answer = String::new();
        let wrap = &mut self.wrap;
        let streamed = stream(self.engine, &request, |text| {
            answer.push_str(text);
            output::text(wrap.push(text))
        });
        match streamed {
            Ok((reason, report)) => {
                output::text(format_args!("{}\n", wrap.finish()))?;
                if reason == FinishReason::Cancelled {
                    output::remark("stopped");
                }
                if let Some(cut) = stats::cut(reason, &report, self.settings.max_tokens) {
                    output::remark(format_args!("{cut}; in this chat /set n N"));
                }
                if self.shows_stats {
                    output::remark(stats::table(reason, &report).trim_end());
                }
                if let Some(session) = &mut self.session {
                    session.add(text, &answer)?;
                }
                self.messages.push(Message::new(Role::Assistant, answer));
                self.last = Some((reason, report));
            }
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::Input => {
                self.messages.pop();
                output::remark(format_args!("not answered: {error}; /reset begins anew"));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Begins anew.
    fn reset(&mut self) -> Result<(), Failure> {
        self.messages.clear();
        self.session.as_mut().map_or(Ok(()), KeptChat::reset)
    }

    fn prompt(&mut self) -> Prompt {
        if !self.drops_old {
            return self.settings.chat(self.messages.iter().cloned());
        }
        let (prompt, dropped) = fitting(self.engine, &self.settings, &self.messages);
        if dropped > 0 {
            self.messages.drain(..dropped);
            output::remark("/set drop off refuses messages instead of dropping turns");
        }
        prompt
    }

    fn show_settings(&self) {
        let or = |on| if on { "on" } else { "off" }.to_owned();
        let mut rows: Vec<_> = self.settings.shown();
        rows.push(("drop", or(self.drops_old)));
        for (name, value) in rows {
            output::remark(format_args!("{name:<20}{value}"));
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        let done = match (name, value) {
            ("drop", "on" | "off") => {
                self.drops_old = value == "on";
                Ok(())
            }
            ("drop", _) => Err("expected on or off".to_owned()),
            _ => self.settings.set(name, value),
        };
        if let Err(refused) = done {
            output::remark(format_args!("/set {name}: {refused}"));
        }
    }

    fn stats(&self) {
        match &self.last {
            Some((reason, report)) => output::remark(stats::table(*reason, report).trim_end()),
            None => output::remark("there is no answer yet"),
        }
    }
}
