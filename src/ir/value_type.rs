//! The type of a value: how many rows, how many columns, of what.

use std::fmt;

/// Number of rows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One row per token of the forward (`W`); symbolic until bound.
    Width,
    /// One row per token whose logits are wanted (`R`); symbolic until bound.
    Outputs,
    /// Bound to a number.
    Fixed(usize),
}

/// Element type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32-bit float: every activation.
    F32,
    /// 32-bit unsigned integer: row inputs such as token ids.
    U32,
    /// No bytes: the fact that something was done (a key/value append).
    Effect,
}

/// `[rows, columns]` of `dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueType {
    /// Rows, possibly symbolic.
    pub rows: Rows,
    /// Elements in a row; 0 for effects and for tables whose row length the executable decides.
    pub columns: usize,
    /// Element type.
    pub dtype: Dtype,
}

impl ValueType {
    /// A float activation `[rows, columns]`.
    pub fn activation(rows: Rows, columns: usize) -> Self {
        Self { rows, columns, dtype: Dtype::F32 }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self.rows {
            Rows::Width => "W".to_owned(),
            Rows::Outputs => "R".to_owned(),
            Rows::Fixed(n) => n.to_string(),
        };
        match self.dtype {
            Dtype::F32 => write!(f, "f32[{rows}, {}]", self.columns),
            Dtype::U32 => write!(f, "u32[{rows}]"),
            Dtype::Effect => f.write_str("effect"),
        }
    }
}
