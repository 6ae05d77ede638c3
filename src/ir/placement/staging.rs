//! Where streamed matrices lie in the staging buffer, and what has to be over before one is read into its place.

use std::ops::Range;

/// What reads of a file begin and end at, in the file and in the buffer.
pub const PAGE: usize = 4096;

/// Bytes that the buffer has in addition to two of the largest matrices, or those of a third if these are fewer: so
/// reading goes on while smaller ones are used.
const SLACK: usize = 8 << 20;

/// Places of streamed matrices in one buffer. Their sequence is endless: after the last one comes the first, for the
/// next forward.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Staging {
    /// Bytes of the buffer.
    pub bytes: usize,
    /// One place for each matrix, in the order of use.
    pub places: Vec<StagingPlace>,
}

/// The place of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagingPlace {
    /// Bytes of the buffer: whole pages.
    pub at: Range<usize>,
    /// How many steps back in the sequence the nearest matrix stands whose bytes this one overwrites; at most the
    /// number of matrices, which is itself in the forward before.
    pub behind: usize,
}

impl Staging {
    /// The smallest buffer for matrices of these bytes in which every one can be read while the one before it is used,
    /// or all of them lie apart.
    pub fn of(sizes: &[usize]) -> Self {
        let pages: Vec<usize> = sizes.iter().map(|size| size.next_multiple_of(PAGE)).collect();
        let (largest, total) = (pages.iter().max().copied().unwrap_or(0), pages.iter().sum());
        // With three of the largest it is so whatever the order.
        let least = 2 * largest + SLACK.min(largest);
        let candidates = (0..=4).map(|quarter| least + quarter * largest / 4);
        let within = candidates.take_while(|bytes| *bytes < total).map(|bytes| Self::in_turn(&pages, bytes));
        let overlaps = |staging: &Self| staging.places.iter().all(|place| place.behind >= 2);
        within.into_iter().find(overlaps).unwrap_or_else(|| Self::in_turn(&pages, total))
    }

    /// One after the other, from the begin of the buffer again where one does not fit any more.
    fn in_turn(pages: &[usize], bytes: usize) -> Self {
        let mut next = 0;
        let place = |pages: &usize| {
            let at = if next + pages > bytes { 0 } else { next };
            next = at + pages;
            at..next
        };
        let at: Vec<Range<usize>> = pages.iter().map(place).collect();
        let behind = |u: usize| {
            let overwrites = |back: &usize| {
                let (own, other) = (&at[u], &at[(u + at.len() - back) % at.len()]);
                own.start < other.end && other.start < own.end
            };
            (1..=at.len()).find(overwrites).expect("a matrix overwrites itself")
        };
        let places = (0..at.len()).map(|u| StagingPlace { at: at[u].clone(), behind: behind(u) });
        Self { bytes, places: places.collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_takes_no_buffer_and_a_few_matrices_lie_apart() {
        assert_eq!(Staging::of(&[]), Staging::default());
        let staging = Staging::of(&[100, 5000]);
        let places = [(0..4096, 2), (4096..12288, 2)];
        let places = places.map(|(at, behind)| StagingPlace { at, behind }).to_vec();
        assert_eq!(staging, Staging { bytes: 12288, places });
    }

    proptest! {
        /// Replays the endless sequence: what a matrix need not wait for lies elsewhere, and it never waits for the one
        /// just before it.
        #[test]
        fn what_is_read_overwrites_nothing_in_use(
            sizes in proptest::collection::vec(prop_oneof![1usize..40_000, 1usize..(12 << 20)], 1..40),
        ) {
            let staging = Staging::of(&sizes);
            let count = sizes.len();
            prop_assert_eq!(staging.places.len(), count);
            for (place, size) in staging.places.iter().zip(&sizes) {
                prop_assert!(place.at.end <= staging.bytes && place.at.start.is_multiple_of(PAGE));
                prop_assert!(place.at.len() >= *size);
            }
            for s in count..3 * count {
                let own = &staging.places[s % count];
                for back in 1..own.behind {
                    let other = &staging.places[(s - back) % count].at;
                    prop_assert!(own.at.end <= other.start || other.end <= own.at.start);
                }
                prop_assert!(own.behind >= 2 || count == 1);
            }
            let largest = sizes.iter().max().unwrap() + PAGE;
            prop_assert!(staging.bytes <= (3 * largest + SLACK).max(sizes.iter().map(|s| s + PAGE).sum()));
        }
    }
}
