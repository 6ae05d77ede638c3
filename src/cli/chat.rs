//! The chat of `yggc run` without a prompt: lines in, answers out, the conversation kept.

use std::io::{self, BufRead};

use yggc::engine::{Engine, ErrorKind, Message, Prompt, Request, Role};

use crate::cli::{args::RunArgs, error::Failure, output, settings, stats, stream::stream};

/// Forgets the conversation.
const RESET: &str = "/reset";

/// Answers line by line until the input ends. A message that does not fit the context is refused and forgotten; the
/// conversation before it stays.
pub(crate) fn command(engine: &mut Engine, args: &RunArgs) -> Result<(), Failure> {
    let (max_tokens, sampling) = (args.max_tokens, settings::sampling(&args.sampling));
    if engine.loaded().chat_template()?.is_none() {
        return Err(Failure::Input(
            "the model has no chat template, so there can be no chat: expected one in its files, found none; give the \
             whole prompt with -p TEXT --raw"
                .to_owned(),
        ));
    }
    output::remark(format_args!("a chat: {RESET} forgets it, the end of input (Ctrl-D) ends it"));
    let mut messages: Vec<Message> = Vec::new();
    let mut lines = io::stdin().lock().lines();
    loop {
        output::prompt_mark();
        let Some(line) = lines.next() else { return Ok(()) };
        let line = line.map_err(|error| {
            Failure::Input(format!("the input is not text: {error}; expected lines of UTF-8"))
        })?;
        match line.trim() {
            "" => continue,
            RESET => {
                messages.clear();
                continue;
            }
            said => messages.push(Message::new(Role::User, said)),
        }
        let prompt = Prompt::Chat(messages.clone());
        let request = Request { max_tokens, sampling, ..Request::new(prompt) };
        let mut answer = String::new();
        match stream(engine, &request, |text| answer.push_str(text)) {
            Ok(report) => {
                output::text("\n")?;
                if args.stats {
                    output::remark(stats::table(&report).trim_end());
                }
                messages.push(Message::new(Role::Assistant, answer));
            }
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::Input => {
                messages.pop();
                output::remark(format_args!("not answered: {error}; {RESET} begins anew"));
            }
            Err(other) => return Err(other),
        }
    }
}
