//! Views of `[W, columns]` f32 buffers with a row stride, so that several threads may fill one buffer.

use std::{marker::PhantomData, ops::Range, slice};

/// Prologue of a linear, or the op itself: `x / sqrt(mean(x^2) + eps) * weight`.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// `[K]`.
    pub weight: &'a [f32],
    /// Added to the mean of squares.
    pub eps: f32,
}

/// `[W, columns]` of f32 to read; row `w` starts `w * stride` elements after the first.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    start: *const f32,
    width: usize,
    columns: usize,
    stride: usize,
    buffer: PhantomData<&'a [f32]>,
}

// SAFETY: a shared view of plain numbers, as `&[f32]` is.
unsafe impl Send for Rows<'_> {}
// SAFETY: as above.
unsafe impl Sync for Rows<'_> {}

impl<'a> Rows<'a> {
    /// All of `data` as rows that follow each other.
    ///
    /// # Panics
    /// If `data` is not a whole, positive number of rows.
    pub fn new(data: &'a [f32], columns: usize) -> Self {
        let width = whole_rows(data.len(), columns);
        // SAFETY: the slice covers every row and is borrowed for `'a`.
        unsafe { Self::from_raw(data.as_ptr(), width, columns, columns) }
    }

    /// A view of memory that something else owns, such as an arena.
    ///
    /// # Safety
    /// For `'a`, the `columns` elements of each of the `width` rows are initialised, inside one allocation, and
    /// written by nobody.
    ///
    /// # Panics
    /// If there is no row or rows would overlap.
    pub unsafe fn from_raw(start: *const f32, width: usize, columns: usize, stride: usize) -> Self {
        check_shape(width, columns, stride);
        Self { start, width, columns, stride, buffer: PhantomData }
    }

    /// Rows, `W`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Row `w`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, w: usize) -> &'a [f32] {
        assert!(w < self.width, "row {w} of {}", self.width);
        // SAFETY: `from_raw` promised that row `w` is readable for `'a`.
        unsafe { slice::from_raw_parts(self.start.add(w * self.stride), self.columns) }
    }

    /// The same rows cut to `columns`: the queries of a fused q|k|v buffer, say.
    ///
    /// # Panics
    /// If the range is empty or leaves the row.
    #[must_use]
    pub fn slice_columns(&self, columns: Range<usize>) -> Self {
        check_columns(&columns, self.columns);
        // SAFETY: a part of rows that are readable for `'a`.
        unsafe { Self::from_raw(self.start.add(columns.start), self.width, columns.len(), self.stride) }
    }

    /// The rows `rows` alone.
    ///
    /// # Panics
    /// If the range is empty or leaves the view.
    #[must_use]
    pub fn slice_rows(&self, rows: Range<usize>) -> Self {
        assert!(rows.start < rows.end && rows.end <= self.width, "rows {rows:?} of {}", self.width);
        // SAFETY: some of the rows that are readable for `'a`.
        unsafe {
            Self::from_raw(self.start.add(rows.start * self.stride), rows.len(), self.columns, self.stride)
        }
    }
}

/// `[W, columns]` of f32 to write; row `w` starts `w * stride` elements after the first.
///
/// Threads that fill disjoint parts of one buffer each hold a view of the whole; an op writes exactly the rows,
/// columns or units it was given.
#[derive(Debug)]
pub struct RowsMut<'a> {
    /// Element `held.start` of row 0.
    start: *mut f32,
    width: usize,
    columns: usize,
    stride: usize,
    /// Columns that are there.
    held: Range<usize>,
    buffer: PhantomData<&'a mut [f32]>,
}

// SAFETY: a view of plain numbers; `from_raw` promises that nobody else touches what is accessed through it.
unsafe impl Send for RowsMut<'_> {}

impl<'a> RowsMut<'a> {
    /// All of `data` as rows that follow each other.
    ///
    /// # Panics
    /// If `data` is not a whole, positive number of rows.
    pub fn new(data: &'a mut [f32], columns: usize) -> Self {
        let width = whole_rows(data.len(), columns);
        // SAFETY: the slice covers every row and is borrowed mutably for `'a`.
        unsafe { Self::from_raw(data.as_mut_ptr(), width, columns, columns) }
    }

    /// A view of memory that something else owns, such as an arena.
    ///
    /// # Safety
    /// For `'a`, the `columns` elements of each of the `width` rows are initialised and inside one allocation, and
    /// those which ops are told to write through this view are touched by nobody else.
    ///
    /// # Panics
    /// If there is no row or rows would overlap.
    pub unsafe fn from_raw(start: *mut f32, width: usize, columns: usize, stride: usize) -> Self {
        check_shape(width, columns, stride);
        Self { start, width, columns, stride, held: 0..columns, buffer: PhantomData }
    }

    /// A window on rows of `columns`: `data` holds columns `held` of every row and no others, row after row.
    ///
    /// # Panics
    /// If `data` is not a whole, positive number of rows, or `held` leaves them.
    pub(crate) fn window(data: &'a mut [f32], held: Range<usize>, columns: usize) -> Self {
        check_columns(&held, columns);
        let width = whole_rows(data.len(), held.len());
        let stride = held.len();
        Self { start: data.as_mut_ptr(), width, columns, stride, held, buffer: PhantomData }
    }

    /// Rows, `W`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The same view for a shorter time.
    pub fn reborrow(&mut self) -> RowsMut<'_> {
        RowsMut { held: self.held.clone(), ..*self }
    }

    /// The same rows cut to `columns`.
    ///
    /// # Panics
    /// If the range is empty or leaves what is there of the row.
    #[must_use]
    pub fn slice_columns(self, columns: Range<usize>) -> Self {
        check_columns(&columns, self.held.end);
        let before = columns.start.checked_sub(self.held.start).expect("columns that the window holds");
        // SAFETY: a part of the rows that `self` gave up.
        unsafe { Self::from_raw(self.start.add(before), self.width, columns.len(), self.stride) }
    }

    /// Elements `columns` of row `w`. Crate-internal: an op may only ask for what it was told to write.
    #[inline]
    pub(crate) fn span(&mut self, w: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(
            w < self.width
                && self.held.start <= columns.start
                && columns.start <= columns.end
                && columns.end <= self.held.end
        );
        let at = w * self.stride + (columns.start - self.held.start);
        // SAFETY: inside the view by the assertion; `from_raw` promised that what an op writes is ours alone, and a
        // window borrows it.
        unsafe { slice::from_raw_parts_mut(self.start.add(at), columns.len()) }
    }

    /// Row `w`, for an op that writes whole rows.
    #[inline]
    pub(crate) fn row(&mut self, w: usize) -> &mut [f32] {
        let columns = self.columns;
        self.span(w, 0..columns)
    }
}

fn whole_rows(len: usize, columns: usize) -> usize {
    assert!(columns > 0 && len.is_multiple_of(columns), "{len} elements are not rows of {columns}");
    len / columns
}

fn check_shape(width: usize, columns: usize, stride: usize) {
    assert!(
        width > 0 && columns > 0 && stride >= columns,
        "a view needs rows, columns and a stride that keeps rows apart: W {width}, columns {columns}, stride {stride}"
    );
}

fn check_columns(columns: &Range<usize>, all: usize) {
    assert!(columns.start < columns.end && columns.end <= all, "columns {columns:?} of {all}");
}
