//! What requests of every temperature get, and why it differs.
use serde::Serialize;

use crate::plan::{Band, PricedShape};

/// What requests of one temperature, and of those nearer to it than to another, get.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BandReason {
    /// Temperature of the requests that were recorded.
    pub temperature: f32,
    /// The highest temperature that goes by it; `None` for the last, which has no end.
    pub up_to: Option<f32>,
    /// The chosen shape.
    pub chosen: PricedShape,
    /// How it compares with what is chosen at temperature 0, in words.
    pub reason: String,
}

/// All of them, ascending.
pub(super) fn reasons(bands: &[Band]) -> Vec<BandReason> {
    let first = bands[0].chosen().priced();
    let reason = |(place, band): (usize, &Band)| {
        let (temperature, chosen) = (band.temperature, band.chosen().priced());
        let up_to = bands.get(place + 1).map(|next| (temperature + next.temperature) / 2.0);
        let reason = if place == 0 { "greedy requests".to_owned() } else { words(&first, band, &chosen) };
        BandReason { temperature, up_to, chosen, reason }
    };
    bands.iter().enumerate().map(reason).collect()
}

/// How `chosen`, of a band, stands to the `first` choice, that of temperature 0.
fn words(first: &PricedShape, band: &Band, chosen: &PricedShape) -> String {
    // A band predicts no depths, so the same trees stand for those.
    let is_alike = |shape: &PricedShape| {
        let choice = |p: &PricedShape| (p.name.clone(), p.shape, p.schedule, p.rule);
        choice(shape) == choice(first)
    };
    let tokens = |shape: &PricedShape| format!("{:.2} tokens a step instead of {:.2}", shape.aal, first.aal);
    match band.priced().find(is_alike) {
        Some(_) if is_alike(chosen) && chosen.shape.depth == 0 => "as at 0".to_owned(),
        Some(_) if is_alike(chosen) => format!("as at 0, with {}", tokens(chosen)),
        Some(same) => {
            format!("the choice of 0 would give {} here, {:.2}x plain decoding", tokens(&same), same.speedup)
        }
        None => "the choice of 0 has no price here".to_owned(),
    }
}
