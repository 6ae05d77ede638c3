//! Values of arguments that are names: drafters, devices, stages, arms of a bench.

use std::{ffi::OsStr, str::FromStr};

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use yggc::{
    compile::stage_names,
    engine::{Activations, KvFormat, Tier},
    plan::{DrafterId, DrafterKind},
    policy::SkipObjective,
    speculate::DraftGrowth,
    verify::property_names,
};

/// Reads one of `values` by its name; help and completion list the names with the text of each.
fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [(&'static str, T, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let named = values.iter().map(|(name, _, help)| {
        let value = PossibleValue::new(*name);
        if help.is_empty() { value } else { value.help(*help) }
    });
    PossibleValuesParser::new(named).map(|text| {
        let found = values.iter().find(|(name, ..)| *name == text);
        found.expect("the parser before lets the names of values through alone").1
    })
}

/// Objective of a skip set.
pub(super) fn skip_objective() -> impl TypedValueParser<Value = SkipObjective> {
    one_of(&[
        (
            "matchness",
            SkipObjective::Matchness,
            "Most tokens reproduced, with a constant number of layers left out",
        ),
        ("speed", SkipObjective::Speed, "Least predicted time per token, with any number of layers left out"),
    ])
}

/// Growth of drafts.
pub(super) fn draft_growth() -> impl TypedValueParser<Value = DraftGrowth> {
    one_of(&[
        ("equal", DraftGrowth::Equal, "Trees of equal growth, as planned"),
        (
            "confident",
            DraftGrowth::Confident,
            "A chain that ends at the first uncertain token, with its siblings; the plan's predictions do not apply",
        ),
    ])
}

/// Instruction sets of CPUs, which are [`Tier`]s; whether this one has it shows when it is asked for.
pub(super) fn isa() -> impl TypedValueParser<Value = Tier> {
    one_of(&[
        ("portable", Tier::Portable, ""),
        ("neon", Tier::Neon, ""),
        ("avx2", Tier::Avx2, ""),
        ("avx512", Tier::Avx512, ""),
        ("avx512bf16", Tier::Avx512Bf16, ""),
        ("amx", Tier::Amx, ""),
    ])
}

/// Activations of linears.
pub(super) fn activations() -> impl TypedValueParser<Value = Activations> {
    one_of(&[
        ("int8", Activations::Int8, "Bytes with a scale per 32 or 256 values, as most engines use"),
        ("native", Activations::Native, "Floating-point numbers: more exact and slower"),
    ])
}

/// Element type of the key/value cache.
pub(super) fn cache_format() -> impl TypedValueParser<Value = KvFormat> {
    one_of(&[
        ("f16", KvFormat::F16, "Floating-point numbers of 16 bits"),
        ("q8", KvFormat::Q8, "Bytes with a scale per key and value: half the memory, less exact"),
    ])
}

/// Kinds of drafter model that can be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DistilledKind {
    /// One layer that reads the model's hidden rows and shares its head
    Hidden,
    /// An EAGLE-3 head, which other engines load too: one layer that reads three inner rows, with a head of its own
    Eagle3,
    /// A small model of its own, which any engine can load
    Plain,
}

impl DistilledKind {
    /// Its name in the training program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Eagle3 => "eagle3",
            Self::Plain => "plain",
        }
    }
}

/// A kind of drafter, by its name in plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KindName(pub(crate) DrafterId);

impl ValueEnum for KindName {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: [KindName; DrafterId::ALL.len()] = {
            let mut all = [KindName(DrafterId::None); DrafterId::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = KindName(DrafterId::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.0.summary()))
    }
}

impl KindName {
    /// Its name in plans.
    pub(crate) fn name(self) -> &'static str {
        self.0.name()
    }
}

/// A drafter of a plan: a kind, or a variant as the plan calls it. Whether the plan has it shows when that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DrafterName(String);

impl DrafterName {
    /// Its kind.
    pub(crate) fn kind(&self) -> DrafterId {
        DrafterId::of_name(&self.0).expect("it was parsed as the name of a kind or variant")
    }

    /// As it was typed.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for DrafterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match DrafterId::of_name(text) {
            Some(_) => Ok(Self(text.to_owned())),
            None => Err(format!(
                "expected a kind of drafter ({}) or a variant as the plan calls it, such as lookup_short",
                DrafterKind::NAMES.join(", ")
            )),
        }
    }
}

/// Parses [`DrafterName`]s, and has help and completion list the kinds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrafterNames;

impl TypedValueParser for DrafterNames {
    type Value = DrafterName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<DrafterName, clap::Error> {
        TypedValueParser::parse_ref(&DrafterName::from_str, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KindName::value_variants().iter().filter_map(KindName::to_possible_value)))
    }
}

/// A property of `yggc verify`, by the name in its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PropertyName(pub(crate) &'static str);

impl PropertyName {
    /// That the model is what it was when it was first opened: checked by the program, with its cache.
    pub(crate) const MODEL: Self = Self("model");

    fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::MODEL).chain(property_names().map(Self))
    }

    /// Its name without spaces.
    fn typed(self) -> String {
        self.0.replace(' ', "-")
    }
}

impl FromStr for PropertyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|name| name.typed() == text).ok_or_else(|| {
            let names: Vec<String> = Self::all().map(Self::typed).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    Cpu,
    Cuda,
}

/// A stage between model file and program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageName {
    Config,
    Tensors,
    Graph,
    Passes,
    /// The graph after one pass, by the pass's name.
    Pass(&'static str),
    Program,
    Memory,
}

impl FromStr for StageName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "config" => Self::Config,
            "tensors" => Self::Tensors,
            "graph" => Self::Graph,
            "passes" => Self::Passes,
            "program" => Self::Program,
            "memory" => Self::Memory,
            _ => Self::Pass(stage_names().find(|name| *name == text).ok_or_else(|| {
                let passes: Vec<&str> = stage_names().collect();
                format!(
                    "expected config, tensors, graph, passes, program, memory or one of {}",
                    passes.join(", ")
                )
            })?),
        })
    }
}

/// One arm of `bench`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Plain decoding.
    Ar,
    /// Plain decoding op by op, without static programs.
    Eager,
    /// Each plan, as it serves.
    Plan,
    /// Each plan, without its guard.
    Unguarded,
    /// One drafter, forced.
    Drafter(DrafterName),
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ar" => Ok(Self::Ar),
            "eager" => Ok(Self::Eager),
            "plan" => Ok(Self::Plan),
            "unguarded" => Ok(Self::Unguarded),
            "none" => Err("plain decoding is the arm `ar`".to_owned()),
            name => match DrafterName::from_str(name) {
                Ok(drafter) => Ok(Self::Drafter(drafter)),
                Err(_) => Err("expected ar, eager, plan, unguarded or a drafter".to_owned()),
            },
        }
    }
}

impl std::fmt::Display for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ar => "ar",
            Self::Eager => "eager",
            Self::Plan => "plan",
            Self::Unguarded => "unguarded",
            Self::Drafter(drafter) => drafter.name(),
        })
    }
}
