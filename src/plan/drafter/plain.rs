//! Plain decoding: the drafter that proposes nothing.

use super::{settings::*, *};

/// Plain decoding has no settings.
#[derive(Debug, Clone, Copy)]
pub struct PlainDecoding;

impl DrafterSettings for PlainDecoding {
    const NAME: &'static str = "none";
    const SUMMARY: &'static str = "Nothing: plain decoding";
    const RECORDED_AS: RecordedAs = RecordedAs::Nothing;

    parameters!();
}
