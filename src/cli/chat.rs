//! The chat of `yggc run` without a prompt: lines in, answers out, the conversation kept.
//!
//! At a terminal there is a line editor with history, and Ctrl-C ends an answer. Piped input is read line by line, and
//! Ctrl-C ends the program.

use yggc::engine::{Engine, ErrorKind, FinishReason, Message, Prompt, Report, Request, Role};

use self::{
    input::{HELP, Input},
    interrupt::Interrupts,
    lines::{Lines, NextLine},
};
use crate::cli::{args::RunArgs, error::Failure, output, settings, stats, stream::stream};

mod input;
mod interrupt;
mod lines;

/// A running conversation.
struct Chat<'a> {
    engine: &'a mut Engine,
    args: &'a RunArgs,
    interrupts: Option<Interrupts>,
    messages: Vec<Message>,
    /// Report of the last answer.
    report: Option<Report>,
}

/// Answers line by line until the input ends. A message that does not fit the context is refused and forgotten; the
/// conversation before it stays.
pub(crate) fn command(engine: &mut Engine, args: &RunArgs) -> Result<(), Failure> {
    if engine.loaded().chat_template()?.is_none() {
        return Err(Failure::Input(
            "the model has no chat template, so there can be no chat: expected one in its files, found none; give the \
             whole prompt with -p TEXT --raw"
                .to_owned(),
        ));
    }
    let mut lines = Lines::of_stdin()?;
    let interrupts = if lines.are_typed() { Some(Interrupts::watch().map_err(no_handler)?) } else { None };
    output::remark("chat: /help lists the commands, Ctrl-D (end of input) quits");
    let mut chat = Chat { engine, args, interrupts, messages: Vec::new(), report: None };
    loop {
        let line = match lines.next()? {
            NextLine::Line(line) => line,
            NextLine::Dropped => continue,
            NextLine::End => return Ok(()),
        };
        match Input::new(&line) {
            Input::Nothing => {}
            Input::Message(text) => chat.answer(text)?,
            Input::Help => output::remark(HELP),
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

impl Chat<'_> {
    /// Answers a message. The text of a cancelled answer becomes part of the conversation.
    fn answer(&mut self, text: &str) -> Result<(), Failure> {
        self.messages.push(Message::new(Role::User, text));
        let mut request = Request {
            max_tokens: self.args.max_tokens,
            sampling: settings::sampling(&self.args.sampling),
            ..Request::new(Prompt::Chat(self.messages.clone()))
        };
        if let Some(interrupts) = &self.interrupts {
            request.cancel = interrupts.begin();
        }
        let mut answer = String::new();
        match stream(self.engine, &request, |text| answer.push_str(text)) {
            Ok((reason, report)) => {
                output::text("\n")?;
                if reason == FinishReason::Cancelled {
                    output::remark("stopped");
                }
                if self.args.stats {
                    output::remark(stats::table(&report).trim_end());
                }
                self.messages.push(Message::new(Role::Assistant, answer));
                self.report = Some(report);
            }
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::Input => {
                self.messages.pop();
                output::remark(format_args!("not answered: {error}; /reset begins anew"));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn stats(&self) {
        match &self.report {
            Some(report) => output::remark(stats::table(report).trim_end()),
            None => output::remark("there is no answer yet"),
        }
    }
}
