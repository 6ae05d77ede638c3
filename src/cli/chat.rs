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
    /// Questions and answers in turn.
    messages: Vec<Message>,
    /// End and report of the last answer.
    last: Option<(FinishReason, Report)>,
}

/// Answers line by line until the input ends. A message that does not fit the context is refused and forgotten; the
/// conversation before it stays.
pub(crate) fn command(
    engine: &mut Engine,
    args: &RunArgs,
    compiled: Option<Matcher>,
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
        messages: Vec::new(),
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
            Input::Reset => chat.messages.clear(),
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

    /// The conversation, without its oldest turns if they leave no room for an answer. A message that does not fit by
    /// itself drops none.
    fn prompt(&mut self) -> Prompt {
        let context = self.engine.context();
        let room = self.settings.max_tokens.unwrap_or(usize::MAX).min(context / ANSWERS_PART);
        let prompt = |from: usize| self.settings.chat(self.messages[from..].iter().cloned());
        let whole = prompt(0);
        if !self.drops_old {
            return whole;
        }
        for from in (0..self.messages.len()).step_by(2) {
            let shorter = prompt(from);
            // What the template refuses, the engine will refuse.
            let Ok(ids) = shorter.token_ids(self.engine.loaded()) else { break };
            let is_last = from + 1 == self.messages.len();
            if ids.len() + if is_last { 1 } else { room } > context {
                continue;
            }
            if from > 0 {
                self.messages.drain(..from);
                output::remark(format_args!(
                    "the context of {context} tokens is full: the oldest turns were dropped, {} of them; /set drop \
                     off refuses messages instead, --context N holds more",
                    from / 2
                ));
            }
            return shorter;
        }
        whole
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
