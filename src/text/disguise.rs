//! Keeps text of messages from being read as control tokens of the template.
//!
//! Before a template lays a conversation out, some characters of the messages are replaced by stand-ins: private-use
//! characters that occur nowhere in the conversation, the template or a control token. Afterwards the layout is cut at the
//! control tokens, and the stand-ins in the pieces of text are turned back. Replaced are
//!
//! - the first character of every control token that a message spells, so that none is found within a message;
//! - the first and the last character of a message, of its white space and of what is left when the template trims it,
//!   where they could form a control token with the template's text beside them.
//!
//! One character stands for one, so trimming, searching and cutting work on a disguised message as on the original
//! unless they look for just those characters. A template that rewrites the text of a message (changes its case, joins
//! pieces of it) can still spell a control token with it, as it could by itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::matcher::Matcher;
use super::{Message, TextError};

/// The supplementary private-use planes.
const STAND_INS: [std::ops::RangeInclusive<char>; 2] =
    ['\u{F0000}'..='\u{FFFFD}', '\u{100000}'..='\u{10FFFD}'];

/// The stand-ins of one conversation.
#[derive(Debug)]
pub(super) struct Disguise {
    /// Original by stand-in.
    originals: BTreeMap<char, char>,
}

impl Disguise {
    /// Disguises `messages` for a template with this source.
    ///
    /// # Errors
    /// [`TextError::NoStandIn`] if no private-use character is free.
    pub(super) fn of(
        messages: &[Message],
        template: &str,
        controls: &Matcher,
    ) -> Result<(Self, Vec<Message>), TextError> {
        let places: Vec<BTreeSet<usize>> =
            messages.iter().map(|message| exposed(&message.content, controls)).collect();
        let mut stand_ins = BTreeMap::new();
        if places.iter().any(|places| !places.is_empty()) {
            let texts = messages.iter().map(|message| message.content.as_str());
            let taken: BTreeSet<char> = texts
                .chain(controls.strings())
                .chain([template])
                .flat_map(str::chars)
                .filter(|character| STAND_INS.iter().any(|range| range.contains(character)))
                .collect();
            let mut free = STAND_INS.into_iter().flatten().filter(|character| !taken.contains(character));
            for (message, places) in messages.iter().zip(&places) {
                for original in places.iter().filter_map(|&at| message.content[at..].chars().next()) {
                    if let std::collections::btree_map::Entry::Vacant(entry) = stand_ins.entry(original) {
                        entry.insert(free.next().ok_or(TextError::NoStandIn)?);
                    }
                }
            }
        }
        let disguised = messages
            .iter()
            .zip(&places)
            .map(|(message, places)| {
                let characters = message.content.char_indices();
                let content = characters
                    .map(
                        |(at, character)| {
                            if places.contains(&at) { stand_ins[&character] } else { character }
                        },
                    )
                    .collect();
                Message { role: message.role, content }
            })
            .collect();
        let originals = stand_ins.into_iter().map(|(original, stand_in)| (stand_in, original)).collect();
        Ok((Self { originals }, disguised))
    }

    /// `text` with the originals back in their places.
    pub(super) fn removed_from<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.originals.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(
            text.chars().map(|character| *self.originals.get(&character).unwrap_or(&character)).collect(),
        )
    }
}

/// The places in `content`, in bytes, of the characters to replace.
fn exposed(content: &str, controls: &Matcher) -> BTreeSet<usize> {
    let mut places: BTreeSet<usize> =
        (0..content.len()).filter(|&at| controls.match_at(content, at).is_some()).collect();
    let trimmed_start = content.len() - content.trim_start().len();
    for (start, text) in [(0, content), (trimmed_start, content.trim())] {
        let (Some((first, _)), Some((last, _))) =
            (text.char_indices().next(), text.char_indices().next_back())
        else {
            continue;
        };
        for control in controls.strings() {
            for (cut, _) in control.char_indices().skip(1) {
                let (before, after) = control.split_at(cut);
                if text.starts_with(after) || after.starts_with(text) {
                    places.insert(start + first);
                }
                if text.ends_with(before) {
                    places.insert(start + last);
                }
            }
        }
    }
    places
}
