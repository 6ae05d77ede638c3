//! Selects cells of a profile that are to be measured again.
use std::{fmt, str::FromStr};

use crate::{
    subject::{Cell, NameError, Stage},
    table::LatencyTable,
};

/// Some cells of a profile. Its text form is `all`, `noisy`, or a stage, with an optional width and context:
/// `verify`, `verify@4`, `draft:lookup@1x128`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellSelection {
    /// Every cell.
    All,
    /// Those whose samples disagree by more than the profile's noise threshold.
    Noisy,
    /// Those of one stage.
    Of {
        /// The stage.
        stage: Stage,
        /// The width, if only that.
        width: Option<u32>,
        /// The context, if only that.
        context: Option<u32>,
    },
}

impl CellSelection {
    /// Whether it picks `cell` of a profile with these latencies.
    pub fn picks(&self, cell: &Cell, latencies: &LatencyTable) -> bool {
        match self {
            CellSelection::All => true,
            CellSelection::Noisy => latencies.get(cell).is_some_and(|summary| summary.noisy),
            CellSelection::Of { stage, width, context } => {
                cell.stage == *stage
                    && width.is_none_or(|width| cell.width == width)
                    && context.is_none_or(|context| cell.context == context)
            }
        }
    }
}

impl fmt::Display for CellSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CellSelection::All => f.write_str("all"),
            CellSelection::Noisy => f.write_str("noisy"),
            CellSelection::Of { stage, width, context } => {
                write!(f, "{stage}")?;
                if let Some(width) = width {
                    write!(f, "@{width}")?;
                }
                context.map_or(Ok(()), |context| write!(f, "x{context}"))
            }
        }
    }
}

/// A text that selects no cells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The stage is none.
    #[error(transparent)]
    Stage(#[from] NameError),
    /// What follows the stage is no width and context.
    #[error(
        "bad cells `{text}`: expected all, noisy, STAGE, STAGE@WIDTH or STAGE@WIDTHxCONTEXT, found `{found}`"
    )]
    Numbers {
        /// The text.
        text: String,
        /// What should be a positive number.
        found: String,
    },
}

impl FromStr for CellSelection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let number = |digits: &str| match digits.parse() {
            Ok(number @ 1..) => Ok(number),
            Ok(0) | Err(_) => {
                Err(SelectionError::Numbers { text: text.to_owned(), found: digits.to_owned() })
            }
        };
        match text {
            "all" => return Ok(CellSelection::All),
            "noisy" => return Ok(CellSelection::Noisy),
            _ => {}
        }
        let Some((stage, place)) = text.split_once('@') else {
            return Ok(CellSelection::Of { stage: text.parse()?, width: None, context: None });
        };
        let stage = stage.parse()?;
        let (width, context) = match place.split_once('x') {
            Some((width, context)) => (width, Some(number(context)?)),
            None => (place, None),
        };
        Ok(CellSelection::Of { stage, width: Some(number(width)?), context })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{grid::CellSamples, subject::DrafterName};

    fn cell(stage: Stage, width: u32, context: u32) -> Cell {
        Cell { stage, width, context }
    }

    #[test]
    fn texts_pick_what_they_say() {
        let lookup = Stage::Draft(DrafterName::new("lookup").unwrap());
        let cells = [
            cell(Stage::Verify, 1, 128),
            cell(Stage::Verify, 4, 128),
            cell(Stage::Verify, 4, 1024),
            cell(lookup, 1, 128),
        ];
        let samples = |i: usize| if i == 1 { vec![1000.0, 2000.0, 3000.0] } else { vec![1000.0; 3] };
        let measured = cells
            .iter()
            .enumerate()
            .map(|(i, cell)| CellSamples { cell: cell.clone(), samples_us: samples(i) });
        let table = LatencyTable::from_samples(&measured.collect::<Vec<_>>(), 0.1).unwrap();
        for (text, expected) in [
            ("all", vec![0, 1, 2, 3]),
            ("noisy", vec![1]),
            ("verify", vec![0, 1, 2]),
            ("verify@4", vec![1, 2]),
            ("verify@4x1024", vec![2]),
            ("draft:lookup", vec![3]),
            ("host:grow", vec![]),
        ] {
            let selection: CellSelection = text.parse().unwrap();
            let picked = (0..cells.len()).filter(|i| selection.picks(&cells[*i], &table));
            assert_eq!(picked.collect::<Vec<_>>(), expected, "{text}");
            assert_eq!(selection.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "quiet", "verify@", "verify@0", "verify@4x", "verify@x128", "verify@4x-1", "verify 4"]
        {
            assert!(text.parse::<CellSelection>().is_err(), "{text}");
        }
    }
}
