//! Verdicts on the checked properties.

/// The verdict on a property. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It held in every case that was tried.
    Holds,
    /// It does not hold.
    Broken,
    /// It does not apply to this model, plan or device.
    NotChecked,
}

impl Verdict {
    /// Its word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::Broken => "FAILED",
            Self::NotChecked => "not checked",
        }
    }
}

/// A property that was checked. Plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// Its name: `plan`, `kernels`, `ties`, `row invariance`, `cache`, `greedy answers`, `sampled answers`, `draws`.
    pub name: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// If it held: what was compared and how often. If not: what was expected and what was found. If it was not
    /// checked: why.
    pub said: String,
    /// Time that it took, in seconds.
    pub seconds: f64,
}

/// All properties, in the order in which they were checked. Plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// The properties.
    pub properties: Vec<Property>,
}

impl Verification {
    /// Whether no property was found broken.
    pub fn holds(&self) -> bool {
        self.broken().next().is_none()
    }

    /// Those that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Property> {
        self.properties.iter().filter(|property| property.verdict == Verdict::Broken)
    }
}
