//! Names of drafters, as callers give them: what they choose, and the one refusal of those that choose nothing.

use crate::plan::{Band, DrafterId, DrafterKind, SubPlan};

use super::{DrafterChoice, Error, Hint, Options};

impl DrafterChoice {
    /// What a name asks for: nothing by `none`, else the drafter of that name. Whether there is such a drafter, the
    /// plan says, so [`Options::check_drafter`] does.
    ///
    /// ```
    /// use yggc::engine::DrafterChoice;
    ///
    /// assert_eq!(DrafterChoice::named("none"), DrafterChoice::Plain);
    /// assert_eq!(DrafterChoice::named("lookup_short"), DrafterChoice::Forced("lookup_short".to_owned()));
    /// ```
    pub fn named(name: &str) -> Self {
        if name == DrafterId::None.name() { Self::Plain } else { Self::Forced(name.to_owned()) }
    }
}

impl Options {
    /// Checks that a drafter can be forced by this name with the plan of these options: the name of a kind, or of a
    /// variant in the plan. Opening an engine checks the same.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` that lists the drafters of the plan, and all kinds.
    pub fn check_drafter(&self, name: &str) -> Result<(), Error> {
        match &self.plan {
            None if name == DrafterId::None.name() => Ok(()),
            None => Err(without_plan(name, self.plan_absent_reason.as_deref())),
            Some(source) => in_band(name, &source.plan.bands[0], &source.name).map(|_| ()),
        }
    }
}

/// The sub-plan of the drafter with this name or of this kind in a band of a plan.
///
/// # Errors
/// [`Error`] of kind `Input` if there is none.
pub(super) fn in_band<'p>(name: &str, band: &'p Band, plan_name: &str) -> Result<&'p SubPlan, Error> {
    band.for_drafter(name).ok_or_else(|| {
        let left_out = band.left_out.iter().find(|left_out| left_out.name.as_str() == name);
        let why = match (left_out, DrafterId::of_name(name)) {
            (Some(left_out), _) => format!("no {}", left_out.lacks),
            (None, Some(_)) => "it never measured it".to_owned(),
            (None, None) => "there is no such drafter".to_owned(),
        };
        let measured: Vec<&str> = band.by_drafter.iter().map(|sub_plan| sub_plan.name.as_str()).collect();
        refused(
            name,
            format!(
                "the plan {plan_name} has no shape for drafter `{name}` ({why}): expected one of {}",
                measured.join(", ")
            ),
        )
    })
}

/// The refusal of a drafter where there is no plan, because it is `absent`.
pub(super) fn without_plan(name: &str, absent: Option<&str>) -> Error {
    let absent = absent.unwrap_or("no plan");
    let what = match DrafterId::of_name(name) {
        Some(_) => "a plan that measured it",
        None => "the name of a drafter, and a plan that measured it",
    };
    refused(
        name,
        format!("drafter `{name}` cannot be forced without a plan: expected {what}, found none ({absent})"),
    )
}

/// In addition to its cause it lists all kinds, and says how to measure the drafter if it is of one.
fn refused(name: &str, cause: String) -> Error {
    let error = Error::input(format!("{cause}; kinds of drafters are {}", DrafterKind::NAMES.join(", ")));
    match DrafterId::of_name(name) {
        // Such a mixture is measured with its kind and that of its model.
        Some(_) if DrafterId::of_mixed_model(name).is_some() => {
            error.with_hint(Hint::Profile { drafter: name.to_owned() })
        }
        Some(kind) => error.with_hint(Hint::Profile { drafter: kind.name().to_owned() }),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ErrorKind;

    #[test]
    fn a_name_without_a_plan_is_refused_with_the_kinds_and_what_would_measure_it() {
        let options =
            Options { plan_absent_reason: Some("none was made".to_owned()), ..Options::new("m.gguf") };
        options.check_drafter("none").unwrap();
        for (name, kind) in [
            ("lookup", Some("lookup")),
            ("substitute4", Some("substitute")),
            ("lookup_short", Some("lookup")),
            ("ngram_pool", Some("ngram")),
            ("model_hidden", Some("model")),
            ("layer_skip_v8192", Some("layer_skip")),
            ("mixed", Some("mixed")),
            ("mixed_substitute4", Some("mixed_substitute4")),
            ("mixed_model_hidden", Some("mixed_model_hidden")),
            ("mixed_layer_skip_v8192", Some("mixed_layer_skip_v8192")),
            ("mixed_2", Some("mixed")),
            ("mixed-model", None),
            ("oracle", None),
            ("lookups", None),
            ("layer-skip", None),
            ("Lookup", None),
            ("", None),
        ] {
            let error = options.check_drafter(name).unwrap_err();
            let expected = kind.map(|kind| Hint::Profile { drafter: kind.to_owned() });
            assert_eq!((error.kind(), error.hint()), (ErrorKind::Input, expected.as_ref()), "{name}");
            let said = error.to_string();
            assert!(said.contains(&format!("`{name}`")) && said.contains("(none was made)"), "{said}");
            assert!(said.contains("layer_skip, retrieval"), "{said}");
        }
    }
}
