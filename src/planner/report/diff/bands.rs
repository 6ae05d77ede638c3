//! In what two plans differ for requests of temperatures above 0.
use serde::Serialize;
use ygg_profiler::DrafterName;

use crate::plan::Band;

use super::{Change, DrafterDiff, lacking, refusals, sub_plans};

/// One temperature of which anything differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BandDiff {
    /// The temperature.
    pub temperature: f32,
    /// What is decided for it otherwise.
    pub facts: Vec<Change>,
    /// Drafters of which anything differs, in the order of A, then of B.
    pub drafters: Vec<DrafterDiff>,
}

/// The temperatures of both of which anything but prices differs, ascending.
pub(super) fn changes(a: &[Band], b: &[Band]) -> Vec<BandDiff> {
    let both = a
        .iter()
        .filter_map(|band| Some((band, b.iter().find(|other| other.temperature == band.temperature)?)));
    let diffs = both.map(|(a, b)| BandDiff {
        temperature: a.temperature,
        facts: facts(a, b),
        drafters: sub_plans::changes(&a.by_drafter, &b.by_drafter),
    });
    diffs.filter(|diff| !diff.facts.is_empty() || !diff.drafters.is_empty()).collect()
}

/// In what the decisions of two bands differ, apart from those of each drafter.
pub(super) fn facts(a: &Band, b: &Band) -> Vec<Change> {
    let Band { temperature: _, by_drafter: _, chosen_index: _, alternatives, refused, left_out } = a;
    let changes = [
        Change::of("chosen drafter", &a.chosen().name, &b.chosen().name, DrafterName::to_string),
        Change::of("shapes priced", &alternatives.len(), &b.alternatives.len(), usize::to_string),
        Change::of("refused", &refused[..], &b.refused, refusals),
        Change::of("left out", &left_out[..], &b.left_out, lacking),
    ];
    changes.into_iter().flatten().collect()
}
