//! Keeps text of messages from being read as control tokens of the template.
//!
//! Before a template lays a conversation out, some characters of the messages are replaced by stand-ins: private-use
//! characters that occur nowhere in the conversation, the template or a control token. Afterwards the layout is cut at
//! the control tokens, and the stand-ins in the pieces of text are turned back. Replaced are
//!
//! - the first character of every control token that a message spells, so that none is found within a message;
//! - the first and the last character of a message, of its white space and of what is left when the template trims it,
//!   where they could form a control token with the template's text next to them.
//!
//! One character stands for one, so trimming, searching and cutting work on a disguised message as on the original
//! unless they look for just those characters. A template that rewrites the text of a message (changes its case, joins
//! pieces of it) can still spell a control token with it, as it could by itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::TextError;
use super::chat::{Conversation, Place};
use super::matcher::Matcher;

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
    /// Disguises the texts of `conversation` for a template with this source.
    ///
    /// # Errors
    /// [`TextError::NoStandIn`] if no private-use character is free.
    pub(super) fn of(
        conversation: &Conversation,
        template: &str,
        controls: &Matcher,
    ) -> Result<(Self, Conversation), TextError> {
        let mut disguised = conversation.clone();
        let mut originals_seen = BTreeSet::new();
        let mut taken: BTreeSet<char> =
            controls.strings().chain([template]).flat_map(str::chars).filter(is_stand_in).collect();
        disguised.visit_texts(&mut |place, text| {
            taken.extend(text.chars().filter(is_stand_in));
            let places = exposed(place, text, controls);
            originals_seen.extend(places.iter().filter_map(|&at| text[at..].chars().next()));
        });
        let mut free = STAND_INS.into_iter().flatten().filter(|character| !taken.contains(character));
        let mut stand_ins = BTreeMap::new();
        for original in originals_seen {
            stand_ins.insert(original, free.next().ok_or(TextError::NoStandIn)?);
        }
        disguised.visit_texts(&mut |place, text| {
            let places = exposed(place, text, controls);
            if !places.is_empty() {
                let character =
                    |(at, character)| if places.contains(&at) { stand_ins[&character] } else { character };
                *text = text.char_indices().map(character).collect();
            }
        });
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

fn is_stand_in(character: &char) -> bool {
    STAND_INS.iter().any(|range| range.contains(character))
}

/// The places in `content`, in bytes, of the characters to replace. Keys, and values that are names, are what templates
/// look for: only whole control tokens are replaced in them.
fn exposed(place: Place, content: &str, controls: &Matcher) -> BTreeSet<usize> {
    let mut places: BTreeSet<usize> =
        (0..content.len()).filter(|&at| controls.match_at(content, at).is_some()).collect();
    let is_name = content.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    if place == Place::Key || (place == Place::Value && is_name) {
        return places;
    }
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
