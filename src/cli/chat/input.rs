//! Lines of the chat, parsed: messages and commands.

/// The text of `/help`.
pub(super) const HELP: &str = "\
/help             show these commands
/set              show the settings
/set NAME VALUE   change one, as in /set temperature 0.7; none takes it back
/stats            show statistics of the last answer
/reset            forget the conversation
/exit, /quit      quit, like Ctrl-D
\"\"\"               begins and ends a message of several lines
Ctrl-C ends a running answer, and clears the line that you type.";

/// Begins and ends a message of several lines.
pub(super) const BLOCK: &str = "\"\"\"";

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<'a> {
    Nothing,
    Message(&'a str),
    /// The first line of a block, without its mark.
    Block(&'a str),
    Help,
    /// A setting and its value, or neither.
    Set(Option<(&'a str, &'a str)>),
    Stats,
    Reset,
    Quit,
    /// A command that does not exist.
    Unknown(&'a str),
}

impl<'a> Input<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        let line = line.trim();
        if let Some(first) = line.strip_prefix(BLOCK) {
            return Self::Block(first);
        }
        let Some(word) = line.strip_prefix('/') else {
            return if line.is_empty() { Self::Nothing } else { Self::Message(line) };
        };
        match word {
            "help" | "?" => Self::Help,
            "set" => Self::Set(None),
            "stats" => Self::Stats,
            "reset" => Self::Reset,
            "quit" | "exit" => Self::Quit,
            _ if !word.is_empty() && word.chars().all(char::is_alphabetic) => Self::Unknown(line),
            _ => match word.strip_prefix("set ").map(str::trim_start) {
                Some(setting) => Self::Set(Some(setting.split_once(' ').unwrap_or((setting, "")))),
                None => Self::Message(line),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_single_words_behind_a_slash_but_for_settings() {
        for (line, expected) in [
            ("", Input::Nothing),
            (" \t", Input::Nothing),
            (" hello ", Input::Message("hello")),
            ("/help", Input::Help),
            (" /stats ", Input::Stats),
            ("/reset", Input::Reset),
            ("/quit", Input::Quit),
            ("/exit", Input::Quit),
            ("/bye", Input::Unknown("/bye")),
            ("/set", Input::Set(None)),
            ("/set top-p 0.9", Input::Set(Some(("top-p", "0.9")))),
            ("/set system be brief", Input::Set(Some(("system", "be brief")))),
            ("/set seed", Input::Set(Some(("seed", "")))),
            ("\"\"\"one", Input::Block("one")),
            ("/", Input::Message("/")),
            ("/etc/hosts", Input::Message("/etc/hosts")),
            ("/help me", Input::Message("/help me")),
            ("/1", Input::Message("/1")),
        ] {
            assert_eq!(Input::new(line), expected, "{line:?}");
        }
        for command in ["/help", "/set", "/stats", "/reset", "/quit", "/exit"] {
            assert!(HELP.contains(command));
        }
    }
}
