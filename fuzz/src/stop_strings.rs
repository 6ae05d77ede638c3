//! Stop strings: any strings, in a text that is split in any way.

use arbitrary::{Arbitrary, Unstructured};
use yggc::text::{Heard, StopStrings};

/// Strings, and a text in pieces.
#[derive(Debug, Arbitrary)]
struct Case {
    stops: Vec<String>,
    pieces: Vec<String>,
}

/// What is handed out is the text before the first stop string, however the text is cut.
pub fn check(input: &[u8]) -> bool {
    let Ok(Case { stops, pieces }) = Case::arbitrary_take_rest(Unstructured::new(input)) else {
        return false;
    };
    let (said, stopped) = heard(&stops, pieces.iter().map(String::as_str));
    assert_eq!((said.clone(), stopped), heard(&stops, [pieces.concat().as_str()]));
    let some = stops.iter().any(|stop| !stop.is_empty() && pieces.concat().contains(stop.as_str()));
    assert_eq!(stopped.is_some(), some);
    assert!(stops.iter().all(|stop| stop.is_empty() || !said.contains(stop.as_str())), "{said:?}");
    !pieces.is_empty() && !stops.is_empty()
}

fn heard<'p>(stops: &[String], pieces: impl IntoIterator<Item = &'p str>) -> (String, Option<usize>) {
    let mut matcher = StopStrings::new(stops.to_vec());
    let mut said = String::new();
    for piece in pieces {
        match matcher.push(piece) {
            Heard::Text(text) => said.push_str(text),
            Heard::Stopped(text, number) => return (said + text, Some(number)),
        }
    }
    (said + matcher.finish(), None)
}
