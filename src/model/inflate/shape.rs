//! The shape that a model is inflated to, as it is asked for.

use std::str::FromStr;

/// A shape: one of [`NAMES`](Self::NAMES), or sizes such as `layers=32,width=4096,mlp=11008,heads=32,kv_heads=8`.
///
/// Without `heads` there are as many as fit the width; without `kv_heads` as many query heads share one as in the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InflatedShape {
    /// As it was asked for.
    pub(super) name: String,
    pub(super) layers: usize,
    /// Hidden size.
    pub(super) width: usize,
    /// Hidden size of the MLPs.
    pub(super) mlp: usize,
    pub(super) attention: AttentionSize,
}

/// How much attention there is: a shape's name fixes the sizes of matrices, whatever the size of the model's heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttentionSize {
    /// Elements of all queries of a row, and of all its keys.
    Elements { queries: usize, keys: usize },
    /// Numbers of heads.
    Heads { queries: Option<usize>, keys: Option<usize> },
}

impl InflatedShape {
    /// Shapes that have names: that of Llama 2 7B, and two of as many layers that have the weights of Llama 3.2 1B and
    /// 3B. Those models have fewer layers than small ones.
    pub const NAMES: [&'static str; 3] = ["1b", "3b", "7b"];

    /// What sizes are called.
    pub(super) const KEYS: [&'static str; 5] = ["layers", "width", "mlp", "heads", "kv_heads"];

    fn named(name: &str) -> Option<Self> {
        let [layers, width, mlp, queries, keys] = match name {
            "1b" => [32, 1536, 5120, 1536, 512],
            "3b" => [32, 2560, 9216, 2560, 1280],
            "7b" => [32, 4096, 11_008, 4096, 4096],
            _ => return None,
        };
        let attention = AttentionSize::Elements { queries, keys };
        Some(Self { name: name.to_owned(), layers, width, mlp, attention })
    }
}

impl FromStr for InflatedShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(shape) = Self::named(text) {
            return Ok(shape);
        }
        let expected = || {
            format!("expected {}, or sizes such as layers=32,width=4096,mlp=11008", Self::NAMES.join(", "))
        };
        let mut sizes = [None; Self::KEYS.len()];
        for part in text.split(',') {
            let (key, number) = part.split_once('=').ok_or_else(expected)?;
            let place = Self::KEYS.iter().position(|known| *known == key);
            let place = place
                .ok_or_else(|| format!("expected sizes called {}, found `{key}`", Self::KEYS.join(", ")))?;
            let number = number.parse().ok().filter(|number| *number > 0);
            let number =
                number.ok_or_else(|| format!("{key}: expected an integer above 0, found `{part}`"))?;
            if sizes[place].replace(number).is_some() {
                return Err(format!("{key}: expected one size, found a second one"));
            }
        }
        let needed =
            |place: usize| sizes[place].ok_or_else(|| format!("{}: expected a size", Self::KEYS[place]));
        Ok(Self {
            name: text.to_owned(),
            layers: needed(0)?,
            width: needed(1)?,
            mlp: needed(2)?,
            attention: AttentionSize::Heads { queries: sizes[3], keys: sizes[4] },
        })
    }
}
