//! Input lines of a chat, from a terminal or a pipe.

use std::io::{self, BufRead, IsTerminal, StdinLock};

use rustyline::{Behavior, Config, Editor, error::ReadlineError, history::MemHistory};

use crate::cli::error::Failure;

/// Lines kept in the history.
const REMEMBERED: usize = 1000;

/// The lines of a chat.
pub(super) enum Lines {
    /// A line editor with history; it draws on the terminal even if stdout is redirected.
    Typed(Box<Editor<(), MemHistory>>),
    Piped(StdinLock<'static>),
}

/// Why there is no next line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    Line(String),
    /// Ctrl-C: the typed text is dropped.
    Dropped,
    End,
}

impl Lines {
    pub(super) fn of_stdin() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped(io::stdin().lock()));
        }
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true);
        let config = config.max_history_size(REMEMBERED).map_err(unreadable)?.build();
        let history = MemHistory::with_config(&config);
        Ok(Self::Typed(Box::new(Editor::with_history(config, history).map_err(unreadable)?)))
    }

    /// Whether the input is a terminal.
    pub(super) fn are_typed(&self) -> bool {
        match self {
            Self::Typed(_) => true,
            Self::Piped(_) => false,
        }
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// If the terminal fails or the input is not UTF-8.
    pub(super) fn next(&mut self) -> Result<NextLine, Failure> {
        match self {
            Self::Typed(editor) => match editor.readline("> ") {
                Ok(line) => Ok(NextLine::Line(line)),
                Err(ReadlineError::Interrupted) => Ok(NextLine::Dropped),
                Err(ReadlineError::Eof) => Ok(NextLine::End),
                Err(other) => Err(unreadable(other)),
            },
            Self::Piped(stdin) => {
                let mut line = String::new();
                match stdin.read_line(&mut line) {
                    Ok(0) => Ok(NextLine::End),
                    Ok(_) => Ok(NextLine::Line(line)),
                    Err(error) => Err(unreadable(error.into())),
                }
            }
        }
    }
}

fn unreadable(error: ReadlineError) -> Failure {
    Failure::Input(format!("the input cannot be read: {error}; expected lines of UTF-8"))
}
