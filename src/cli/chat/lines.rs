//! Input lines of a chat, from a terminal or a pipe.

use std::{
    fs,
    io::{self, BufRead, IsTerminal, StdinLock},
    path::PathBuf,
};

use rustyline::{Behavior, Config, Editor, error::ReadlineError, history::FileHistory};

use crate::cli::{error::Failure, output};

/// Lines kept in the history.
const REMEMBERED: usize = 1000;

/// The lines of a chat.
pub(super) enum Lines {
    /// A line editor; it draws on the terminal even if stdout is redirected.
    Typed {
        editor: Box<Editor<(), FileHistory>>,
        /// File of the lines of this and earlier chats.
        history: Option<PathBuf>,
    },
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
    /// `history` is where typed lines are kept from chat to chat.
    pub(super) fn of_stdin(history: Option<PathBuf>) -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped(io::stdin().lock()));
        }
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true);
        let config = config.max_history_size(REMEMBERED).map_err(unreadable)?.build();
        let history_of_lines = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history_of_lines).map_err(unreadable)?;
        // There is none before the first chat.
        let _ = history.as_ref().map(|file| editor.load_history(file));
        Ok(Self::Typed { editor: Box::new(editor), history })
    }

    /// Whether the input is a terminal.
    pub(super) fn are_typed(&self) -> bool {
        match self {
            Self::Typed { .. } => true,
            Self::Piped(_) => false,
        }
    }

    /// Waits for the next line, which `prompt` asks for at a terminal.
    ///
    /// # Errors
    /// If the terminal fails or the input is not UTF-8.
    pub(super) fn next(&mut self, prompt: &str) -> Result<NextLine, Failure> {
        match self {
            Self::Typed { editor, .. } => match editor.readline(prompt) {
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

impl Drop for Lines {
    fn drop(&mut self) {
        let Self::Typed { editor, history: Some(file) } = self else { return };
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = folder.map_err(ReadlineError::from).and_then(|()| editor.append_history(file)) {
            output::remark(format_args!(
                "the lines of this chat are not kept in `{}`: {error}",
                file.display()
            ));
        }
    }
}

fn unreadable(error: ReadlineError) -> Failure {
    Failure::Input(format!("the input cannot be read: {error}; expected lines of UTF-8"))
}
