//! `GroupSet`: a set of sub-layers, small enough to be copied.

use serde::{Deserialize, Serialize};

/// A set of groups: `2 * layer` is a layer's attention, `2 * layer + 1` its MLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSet([u64; 8]);

impl GroupSet {
    /// How many groups can be told apart: models of 256 layers.
    pub const MOST_GROUPS: u32 = 512;

    /// No group.
    pub const EMPTY: Self = Self([0; 8]);

    /// The set of these groups.
    ///
    /// # Panics
    /// If a group is not below [`MOST_GROUPS`](Self::MOST_GROUPS).
    pub fn of(groups: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::EMPTY;
        groups.into_iter().for_each(|group| set.insert(group));
        set
    }

    /// Adds a group.
    ///
    /// # Panics
    /// If it is not below [`MOST_GROUPS`](Self::MOST_GROUPS).
    pub fn insert(&mut self, group: u32) {
        self.0[group as usize / 64] |= 1 << (group % 64);
    }

    /// Takes a group out.
    ///
    /// # Panics
    /// If it is not below [`MOST_GROUPS`](Self::MOST_GROUPS).
    pub fn remove(&mut self, group: u32) {
        self.0[group as usize / 64] &= !(1 << (group % 64));
    }

    /// Whether the group is in the set.
    pub fn contains(&self, group: u32) -> bool {
        self.0.get(group as usize / 64).is_some_and(|word| word >> (group % 64) & 1 == 1)
    }

    /// How many groups are in it.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether no group is in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many groups are in one of the two sets only.
    pub fn distance(&self, other: &Self) -> u32 {
        self.0.iter().zip(&other.0).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    /// The groups, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..Self::MOST_GROUPS).filter(|group| self.contains(*group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_in_and_not_taken_out() {
        let mut set = GroupSet::of([3, 64, 511, 3]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 64, 511]);
        assert_eq!(
            (set.len(), set.contains(64), set.contains(65), set.contains(9_999)),
            (3, true, false, false)
        );
        assert_eq!(set.distance(&GroupSet::of([64, 70])), 3);
        set.remove(64);
        set.remove(65);
        assert_eq!(set, GroupSet::of([511, 3]));
        assert!(GroupSet::EMPTY.is_empty() && !set.is_empty());
    }
}
