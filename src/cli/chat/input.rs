//! Lines of the chat, parsed: messages and commands.

/// The text of `/help`.
pub(super) const HELP: &str = "\
/help      show these commands
/stats     show statistics of the last answer
/reset     forget the conversation
/quit      quit, like Ctrl-D
Ctrl-C ends a running answer, and clears the line that you type.";

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<'a> {
    Nothing,
    Message(&'a str),
    Help,
    Stats,
    Reset,
    Quit,
    /// A command that does not exist.
    Unknown(&'a str),
}

impl<'a> Input<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        let line = line.trim();
        let Some(word) = line.strip_prefix('/') else {
            return if line.is_empty() { Self::Nothing } else { Self::Message(line) };
        };
        match word {
            "help" => Self::Help,
            "stats" => Self::Stats,
            "reset" => Self::Reset,
            "quit" => Self::Quit,
            _ if !word.is_empty() && word.chars().all(char::is_alphabetic) => Self::Unknown(line),
            _ => Self::Message(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_single_words_behind_a_slash() {
        for (line, expected) in [
            ("", Input::Nothing),
            (" \t", Input::Nothing),
            (" hello ", Input::Message("hello")),
            ("/help", Input::Help),
            (" /stats ", Input::Stats),
            ("/reset", Input::Reset),
            ("/quit", Input::Quit),
            ("/exit", Input::Unknown("/exit")),
            ("/", Input::Message("/")),
            ("/etc/hosts", Input::Message("/etc/hosts")),
            ("/help me", Input::Message("/help me")),
            ("/1", Input::Message("/1")),
        ] {
            assert_eq!(Input::new(line), expected, "{line:?}");
        }
        for command in ["/help", "/stats", "/reset", "/quit"] {
            assert!(HELP.contains(command));
        }
    }
}
