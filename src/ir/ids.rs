//! Ids: numbers of one kind of thing each, and vectors that they index.

use std::{
    fmt::Debug,
    marker::PhantomData,
    ops::{Deref, Index, IndexMut},
};

/// The number of a thing among those of its kind, counted from 0.
pub trait Id: Copy + Eq + Debug {
    /// The id of the thing at a place.
    fn new(index: usize) -> Self;

    /// Its place.
    fn index(self) -> usize;
}

/// Declares a type of ids.
macro_rules! id {
    ($(#[$attribute:meta])* $visibility:vis $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility struct $name(u32);

        impl $crate::ir::Id for $name {
            fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("far fewer than 2^32"))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use id;

id! {
    /// A program among those that are loaded together.
    pub ProgramId
}

impl ProgramId {
    /// The first program. What all programs of a graph have in common is read from it.
    pub const FIRST: Self = Self(0);
}

id! {
    /// A step of a program.
    pub StepId
}

id! {
    /// An output row of a program.
    pub OutputId
}

/// A vector that is indexed by ids of one kind.
#[derive(Clone, Debug)]
pub struct IdVec<I, T> {
    values: Vec<T>,
    ids: PhantomData<fn(I)>,
}

impl<I: Id, T> IdVec<I, T> {
    /// Appends a value; returns its id.
    pub fn push(&mut self, value: T) -> I {
        self.values.push(value);
        I::new(self.values.len() - 1)
    }

    /// All ids, ascending.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.values.len()).map(I::new)
    }

    /// Every value with its id.
    pub fn pairs(&self) -> impl Iterator<Item = (I, &T)> {
        self.ids().zip(&self.values)
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self { values: Vec::new(), ids: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(values: S) -> Self {
        Self { values: values.into_iter().collect(), ids: PhantomData }
    }
}

impl<I, T> Extend<T> for IdVec<I, T> {
    fn extend<S: IntoIterator<Item = T>>(&mut self, values: S) {
        self.values.extend(values);
    }
}

impl<I, T> Deref for IdVec<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.values[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.values[id.index()]
    }
}
