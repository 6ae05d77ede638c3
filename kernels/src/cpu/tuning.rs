//! How a linear goes over rows and weights: what decides its speed for one shape, and no bit of its result.
//!
//! Law: two tunings of one linear give equal bits, whatever the tier, the format and the width.

use super::{
    PackedLinear,
    activations::{GROUP, Layout},
    codes::{MANY, TOGETHER},
};
use crate::{Tier, WeightFormat};
use std::{fmt, ops::Range, str::FromStr, sync::OnceLock};

/// Tiles at a time that are few enough to stay in a core's second cache, whatever the format.
const NEAR_TILES: usize = 8;

/// Distances worth trying over dense weights, bytes. At 0 a dense block asks for its own lines together, before it
/// reads the first. A processor's own fetching stops at the end of a page, so the longest is one page.
const DISTANCES: [usize; 3] = [0, 2048, LONG_DISTANCE];
/// A page.
const LONG_DISTANCE: usize = 4096;

/// Ways of reading codes that are worth trying.
const READINGS: [(usize, Ahead); 5] = [
    (1, Ahead::Bytes(0)),
    (1, Ahead::Pairs(4096)),
    (1, Ahead::Bytes(8192)),
    (2, Ahead::Bytes(0)),
    (2, Ahead::Bytes(2048)),
];

/// Longest distance that is understood. Plan files name distances; any bound above those of [`READINGS`] works.
const MOST_AHEAD: usize = 1 << 20;

/// Which bytes a linear asks for while it uses others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ahead {
    /// The usual distance: the same place in the next tile of dense weights; over codes, what suits the processor and
    /// the rows.
    Usual,
    /// The same place in the next tile.
    Tile,
    /// So many bytes on; 0 leaves it to the processor.
    Bytes(usize),
    /// So many bytes on, one line of every two: of codes, whose other line the processor brings by itself. Of dense
    /// weights all lines.
    Pairs(usize),
}

/// How many tiles of codes a linear reads in turn, as so many rising streams of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Streams {
    /// What suits the processor.
    Usual,
    /// So many.
    Count(usize),
}

/// How codes are read, for one processor and number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) streams: usize,
    /// Bytes from a weight to the one that is fetched while it is used; 0 fetches none.
    pub(super) ahead: usize,
    /// Whether one line of every two is fetched.
    pub(super) in_pairs: bool,
}

impl Reading {
    /// The usual way to read codes. A processor that reads one stream best fetches it ahead by itself, and with more
    /// requests under way than its first cache has, as long as it does little with each line (`is_light`); but it stops
    /// where a page ends. Few requests, a page ahead, lead it on.
    fn usual(wants_one_stream: bool, is_light: bool) -> Self {
        match (wants_one_stream, is_light) {
            (true, true) => Self { streams: 1, ahead: 4096, in_pairs: true },
            (true, false) => Self { streams: 1, ahead: 8192, in_pairs: false },
            (false, _) => Self { streams: 2, ahead: 2048, in_pairs: false },
        }
    }
}

/// Whether little is done with each line of weights: few rows, codes without a plane of single bits, products summed in
/// 32 bits.
fn is_light(format: WeightFormat, layout: Layout, rows: usize) -> bool {
    let is_plain = format.coding().is_some_and(|coding| matches!(coding.bits, 4 | 6 | 8));
    let sums_in_32_bits = match layout {
        Layout::Coded(coded) => !coded.is_split,
        Layout::F32 | Layout::F32Sums | Layout::Bf16 | Layout::Bf16Tiles => false,
    };
    rows <= 2 && is_plain && sums_in_32_bits
}

/// Whether this processor reads one stream faster than two: those of AMD, by measurement of Zen 4.
fn wants_one_stream() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            let vendor = std::arch::x86_64::__cpuid(0);
            [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    })
}

/// The way of one linear over its rows and weights. Displays as `rows=64,tiles=2,streams=usual,ahead=usual`, and reads
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuning {
    rows: usize,
    tiles: usize,
    streams: Streams,
    ahead: Ahead,
}

impl Tuning {
    /// What serves every shape.
    pub const DEFAULT: Self =
        Self { rows: MANY, tiles: TOGETHER, streams: Streams::Usual, ahead: Ahead::Usual };

    /// A tuning of at most 64 rows (of dense weights at most 8) that share the unpacking of a weight, tiles that such a
    /// group of rows meets before the next group does, streams of codes (dense weights are read in one), and a distance
    /// of prefetching.
    ///
    /// # Errors
    /// If there are no rows or too many, no tiles, not one or two streams, or the distance is longer than a mebibyte.
    pub fn new(rows: usize, tiles: usize, streams: Streams, ahead: Ahead) -> Result<Self, TuningError> {
        let far = match ahead {
            Ahead::Usual | Ahead::Tile => false,
            Ahead::Bytes(bytes) | Ahead::Pairs(bytes) => bytes > MOST_AHEAD,
        };
        let too_many = match streams {
            Streams::Usual => false,
            Streams::Count(count) => !(1..=TOGETHER).contains(&count),
        };
        let tuning = Self { rows, tiles, streams, ahead };
        if !(1..=MANY).contains(&rows) || tiles == 0 || too_many || far {
            return Err(TuningError { found: tuning.to_string() });
        }
        Ok(tuning)
    }

    /// The tunings that are worth measuring for `width` rows by weights in `format`, the default first. A tier without
    /// a choice has the default alone.
    pub fn candidates(tier: Tier, format: WeightFormat, width: usize) -> Vec<Self> {
        let mut all = vec![Self::DEFAULT];
        match tier {
            Tier::Reference | Tier::Portable | Tier::Cuda => return all,
            Tier::Neon | Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx => {}
        }
        if !format.is_dense() {
            all.extend(READINGS.map(|(streams, ahead)| Self {
                streams: Streams::Count(streams),
                ahead,
                ..Self::DEFAULT
            }));
            return all;
        }
        let ahead = |ahead| Self { ahead, ..Self::DEFAULT };
        if width <= GROUP || (tier, format) == (Tier::Amx, WeightFormat::BF16) {
            all.extend(DISTANCES.map(|bytes| ahead(Ahead::Bytes(bytes))));
            return all;
        }
        let near = Self { tiles: NEAR_TILES, ..Self::DEFAULT };
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

    /// How `rows` rows in this layout read these weights.
    pub(super) fn reading(self, weights: &PackedLinear, layout: Layout, rows: usize) -> Reading {
        let usual = if weights.format().is_dense() {
            Reading { streams: 1, ahead: weights.tile_bytes(), in_pairs: false }
        } else {
            Reading::usual(wants_one_stream(), is_light(weights.format(), layout, rows))
        };
        let streams = match self.streams {
            Streams::Usual => usual.streams,
            Streams::Count(count) => count,
        };
        let (ahead, in_pairs) = match self.ahead {
            Ahead::Usual => (usual.ahead, usual.in_pairs),
            Ahead::Tile => (weights.tile_bytes(), false),
            Ahead::Bytes(bytes) => (bytes, false),
            Ahead::Pairs(bytes) => (bytes, true),
        };
        Reading { streams, ahead, in_pairs }
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
        let Self { rows, tiles, streams, ahead } = self;
        write!(f, "rows={rows},tiles={tiles},streams=")?;
        match streams {
            Streams::Usual => f.write_str("usual")?,
            Streams::Count(count) => write!(f, "{count}")?,
        }
        f.write_str(",ahead=")?;
        match ahead {
            Ahead::Usual => f.write_str("usual"),
            Ahead::Tile => f.write_str("tile"),
            Ahead::Bytes(bytes) => write!(f, "{bytes}"),
            Ahead::Pairs(bytes) => write!(f, "pairs:{bytes}"),
        }
    }
}

/// A tuning that no linear has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown tuning `{found}`: expected `rows=R,tiles=T,streams=S,ahead=A` with R of 1 to {MANY}, T of 1 or more, S \
     `usual` or 1 to {TOGETHER}, and A `usual`, `tile`, or at most {MOST_AHEAD} bytes, optionally prefixed with \
     `pairs:`"
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
        let streams = match part("streams")? {
            "usual" => Streams::Usual,
            count => Streams::Count(number(count)?),
        };
        let ahead = match part("ahead")? {
            "usual" => Ahead::Usual,
            "tile" => Ahead::Tile,
            bytes => match bytes.strip_prefix("pairs:") {
                Some(bytes) => Ahead::Pairs(number(bytes)?),
                None => Ahead::Bytes(number(bytes)?),
            },
        };
        if parts.next().is_some() {
            return Err(refused());
        }
        Self::new(rows, tiles, streams, ahead).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Activations;
    use crate::cpu::codes::ByteProducts;

    #[test]
    fn tunings_read_back_and_others_are_refused() {
        for width in 1..=64 {
            for format in [WeightFormat::BF16, WeightFormat::Q4_0] {
                for tuning in Tuning::candidates(Tier::Avx512, format, width) {
                    assert_eq!(tuning.to_string().parse(), Ok(tuning));
                }
            }
        }
        assert_eq!(Tuning::DEFAULT.to_string(), "rows=64,tiles=2,streams=usual,ahead=usual");
        assert_eq!(
            "rows=8,tiles=1,streams=2,ahead=tile".parse(),
            Tuning::new(8, 1, Streams::Count(2), Ahead::Tile)
        );
        for text in [
            "",
            "rows=8",
            "rows=65,tiles=1,streams=1,ahead=tile",
            "rows=0,tiles=1,streams=1,ahead=tile",
            "rows=8,tiles=0,streams=1,ahead=tile",
            "rows=8,tiles=1,streams=1,ahead=1048577",
            "rows=8,tiles=1,streams=1,ahead=-1",
            "rows=8,tiles=1,streams=1,ahead=pairs:",
            "rows=8,tiles=1,streams=1,ahead=pairs:1048577",
            "rows=8,tiles=1,streams=1,ahead=tile,more=1",
            "tiles=1,rows=8,streams=1,ahead=tile",
            "rows=8,tiles=1,streams=3,ahead=tile",
            "rows=8,tiles=1,ahead=tile",
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
    fn a_processor_that_wants_one_stream_is_led_on_while_it_has_little_to_do() {
        let layout = |format, tier, is_split| {
            let products = if is_split { ByteProducts::Split } else { ByteProducts::Unsigned };
            Layout::of(format, Activations::Int8, tier, products)
        };
        for (format, rows, is_split, expected) in [
            (WeightFormat::Q4_K, 2, false, true),
            (WeightFormat::Q8_0, 1, false, true),
            (WeightFormat::Q4_K, 3, false, false),
            (WeightFormat::Q4_K, 1, true, false),
            (WeightFormat::Q5_K, 1, false, false),
            (WeightFormat::Q6_K, 1, false, true),
            (WeightFormat::Q6_K, 1, true, false),
        ] {
            let found = is_light(format, layout(format, Tier::Avx512, is_split), rows);
            assert_eq!(found, expected, "{format}, {rows} rows, split: {is_split}");
            assert_eq!(Reading::usual(true, found).in_pairs, expected);
            assert_eq!(Reading::usual(false, found), Reading { streams: 2, ahead: 2048, in_pairs: false });
        }
        let native =
            Layout::of(WeightFormat::Q4_K, Activations::Native, Tier::Avx512, ByteProducts::Unsigned);
        assert!(!is_light(WeightFormat::Q4_K, native, 1));
    }

    #[test]
    fn passes_are_all_tiles_in_order() {
        let tuning = Tuning { tiles: 4, ..Tuning::DEFAULT };
        let passes: Vec<_> = tuning.passes(3..12).collect();
        assert_eq!(passes, [3..7, 7..11, 11..12]);
        assert_eq!(tuning.passes(5..5).count(), 0);
    }
}
