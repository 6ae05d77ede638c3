//! How a linear goes over rows and weights: what decides its speed for one shape, and no bit of its result.
//!
//! Law: two tunings of one linear give equal bits, whatever the tier, the format and the width.

#[cfg(target_arch = "x86_64")]
use super::PackedLinear;
use super::{
    activations::{GROUP, Layout},
    codes::{MANY, TOGETHER},
};
use crate::{Tier, WeightFormat};
use std::{fmt, ops::Range, str::FromStr};

/// Tiles at a time that are few enough to stay in a core's second cache, whatever the format.
const NEAR_TILES: usize = 8;

/// Distances worth trying, bytes. At 0 a dense block asks for its own lines together, before it reads the first; one of codes
/// asks for none.
const DISTANCES: [usize; 3] = [0, 2048, 4096];
/// Bytes ahead over codes.
#[cfg(target_arch = "x86_64")]
const USUAL_DISTANCE: usize = 2048;
const LONG_DISTANCE: usize = 4096;

/// Longest distance that is understood.
const MOST_AHEAD: usize = 1 << 20;

/// Which bytes a linear asks for while it uses others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ahead {
    /// What suits most shapes: the same place in the next tile of dense weights, two kibibytes on over weights of codes.
    Usual,
    /// The same place in the next tile.
    Tile,
    /// So many bytes on.
    Bytes(usize),
}

/// The way of one linear over its rows and weights. Displays as `rows=64,tiles=2,ahead=usual`, and reads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuning {
    rows: usize,
    tiles: usize,
    ahead: Ahead,
}

impl Tuning {
    /// What serves every shape.
    pub const DEFAULT: Self = Self { rows: MANY, tiles: TOGETHER, ahead: Ahead::Usual };

    /// A tuning of at most 64 rows (of dense weights at most 8) that share the unpacking of a weight, tiles that such a group of rows meets before the
    /// next group does, and a distance of prefetching.
    ///
    /// # Errors
    /// If there are no rows or too many, no tiles, or the distance is longer than a mebibyte.
    pub fn new(rows: usize, tiles: usize, ahead: Ahead) -> Result<Self, TuningError> {
        let far = match ahead {
            Ahead::Usual | Ahead::Tile => false,
            Ahead::Bytes(bytes) => bytes > MOST_AHEAD,
        };
        let tuning = Self { rows, tiles, ahead };
        if !(1..=MANY).contains(&rows) || tiles == 0 || far {
            return Err(TuningError { found: tuning.to_string() });
        }
        Ok(tuning)
    }

    /// What is worth measuring for `width` rows by weights in `format`, the default first. A tier without a choice has the default
    /// alone.
    pub fn candidates(tier: Tier, format: WeightFormat, width: usize) -> Vec<Self> {
        let mut all = vec![Self::DEFAULT];
        let ahead = |ahead| Self { ahead, ..Self::DEFAULT };
        match tier {
            Tier::Reference | Tier::Portable | Tier::Cuda => return all,
            Tier::Avx2 | Tier::Avx512 | Tier::Amx => {}
        }
        all.extend(DISTANCES.map(|bytes| ahead(Ahead::Bytes(bytes))));
        if width <= GROUP || !format.is_dense() || (tier, format) == (Tier::Amx, WeightFormat::BF16) {
            return all;
        }
        let near = Self { tiles: NEAR_TILES, ..Self::DEFAULT };
        all.truncate(1);
        all.extend([
            ahead(Ahead::Bytes(LONG_DISTANCE)),
            near,
            Self { tiles: NEAR_TILES, ..ahead(Ahead::Bytes(LONG_DISTANCE)) },
        ]);
        // As many groups, but none of them with few rows.
        let rows = width.div_ceil(width.div_ceil(GROUP));
        if rows != GROUP {
            all.extend([Self { rows, ..Self::DEFAULT }, Self { rows, ..near }]);
        }
        all
    }

    /// Rows in a full group.
    pub(super) fn rows(self, layout: Layout) -> usize {
        self.rows.min(layout.most_rows())
    }

    /// Bytes from a weight to the one that is fetched while it is used; 0 over weights of codes fetches none.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn ahead(self, weights: &PackedLinear) -> usize {
        match self.ahead {
            Ahead::Usual if weights.format().is_dense() => weights.tile_bytes(),
            Ahead::Usual => USUAL_DISTANCE,
            Ahead::Tile => weights.tile_bytes(),
            Ahead::Bytes(bytes) => bytes,
        }
    }

    /// The given tiles, as many at a time as a group of rows meets.
    pub(super) fn passes(self, tiles: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let end = tiles.end;
        tiles.step_by(self.tiles).map(move |first| first..end.min(first + self.tiles))
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, tiles, ahead } = self;
        write!(f, "rows={rows},tiles={tiles},ahead=")?;
        match ahead {
            Ahead::Usual => f.write_str("usual"),
            Ahead::Tile => f.write_str("tile"),
            Ahead::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// A tuning that no linear has: the fault of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown tuning `{found}`: expected `rows=R,tiles=T,ahead=A` with R of 1 to {MANY}, T of 1 or more, and A `usual`, \
     `tile` or at most {MOST_AHEAD} bytes"
)]
pub struct TuningError {
    /// What was given.
    pub found: String,
}

impl FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Self, TuningError> {
        let refused = || TuningError { found: text.to_owned() };
        let mut parts = text.split(',');
        let mut part = |name: &str| {
            let part = parts.next().and_then(|part| part.strip_prefix(name)?.strip_prefix('='));
            part.ok_or_else(refused)
        };
        let number = |text: &str| text.parse().map_err(|_| refused());
        let (rows, tiles) = (number(part("rows")?)?, number(part("tiles")?)?);
        let ahead = match part("ahead")? {
            "usual" => Ahead::Usual,
            "tile" => Ahead::Tile,
            bytes => Ahead::Bytes(number(bytes)?),
        };
        if parts.next().is_some() {
            return Err(refused());
        }
        Self::new(rows, tiles, ahead).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunings_read_back_and_others_are_refused() {
        for width in 1..=64 {
            for tuning in Tuning::candidates(Tier::Avx512, WeightFormat::BF16, width) {
                assert_eq!(tuning.to_string().parse(), Ok(tuning));
            }
        }
        assert_eq!(Tuning::DEFAULT.to_string(), "rows=64,tiles=2,ahead=usual");
        assert_eq!("rows=8,tiles=1,ahead=tile".parse(), Tuning::new(8, 1, Ahead::Tile));
        for text in [
            "",
            "rows=8",
            "rows=65,tiles=1,ahead=tile",
            "rows=0,tiles=1,ahead=tile",
            "rows=8,tiles=0,ahead=tile",
            "rows=8,tiles=1,ahead=1048577",
            "rows=8,tiles=1,ahead=-1",
            "rows=8,tiles=1,ahead=tile,more=1",
            "tiles=1,rows=8,ahead=tile",
        ] {
            assert_eq!(text.parse::<Tuning>(), Err(TuningError { found: text.to_owned() }));
        }
    }

    #[test]
    fn candidates_are_few_distinct_and_begin_with_the_default() {
        for tier in Tier::ALL {
            for format in WeightFormat::ALL {
                for width in 1..=64 {
                    let all = Tuning::candidates(tier, format, width);
                    assert_eq!(all[0], Tuning::DEFAULT);
                    assert!(all.len() <= 6, "{all:?}");
                    assert!((1..all.len()).all(|i| !all[..i].contains(&all[i])), "{all:?}");
                }
            }
        }
        let twelve = Tuning::candidates(Tier::Avx512, WeightFormat::F32, 12);
        assert!(twelve.contains(&Tuning { rows: 6, ..Tuning::DEFAULT }));
        assert_eq!(Tuning::candidates(Tier::Portable, WeightFormat::F32, 12), [Tuning::DEFAULT]);
    }

    #[test]
    fn passes_are_all_tiles_in_order() {
        let tuning = Tuning { tiles: 4, ..Tuning::DEFAULT };
        let passes: Vec<_> = tuning.passes(3..12).collect();
        assert_eq!(passes, [3..7, 7..11, 11..12]);
        assert_eq!(tuning.passes(5..5).count(), 0);
    }
}
