//! What a rendering may still spend, and what values cost.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{Object, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Levels of lists and objects in a value: as many as `tojson` writes.
pub(super) const MAX_DEPTH: usize = 100;

/// The variable that carries the budget. No template can name it.
pub(super) const VARIABLE: &str = "\0budget";

/// Bytes that a value takes in a list.
const ITEM_BYTES: u64 = 32;

/// What looking at a value in another one costs: about as long as copying so many bytes takes, and likewise what a call
/// costs in addition to the work on its arguments.
const LOOK_BYTES: u64 = 16;
const CALL_BYTES: u64 = 64;

/// Bytes that the engine keeps of a macro.
const MACRO_BYTES: u64 = 16;

/// Bytes that a rendering may still copy, compare or make.
#[derive(Debug)]
pub(in crate::text) struct Budget {
    left: AtomicU64,
    limit: u64,
    /// Macros that were made so far.
    macros: AtomicU64,
}

impl Object for Budget {}

impl Budget {
    pub(in crate::text) fn new(limit: u64) -> Self {
        Self { left: AtomicU64::new(limit), limit, macros: AtomicU64::new(0) }
    }

    /// The name and the value of the variable that carries it.
    pub(in crate::text) fn into_variable(self) -> (&'static str, Value) {
        (VARIABLE, Value::from_object(self))
    }

    /// The budget of the rendering that this is.
    pub(in crate::text) fn of(state: &State<'_, '_>) -> Result<Arc<Self>, Error> {
        let budget = state.lookup(VARIABLE).and_then(|value| value.downcast_object::<Self>());
        budget.ok_or_else(|| refused("it is rendered without a budget".to_owned()))
    }

    /// Takes `bytes` off.
    ///
    /// # Errors
    /// Fewer are left.
    pub(in crate::text) fn charge(&self, bytes: u64) -> Result<(), Error> {
        let spend = |left: u64| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend) {
            Ok(_) => Ok(()),
            Err(_) => {
                // What is left is spent, too: nothing that goes on after an error finds any.
                self.left.store(0, Ordering::Relaxed);
                Err(refused(format!("it makes, copies or compares more than {} bytes", self.limit)))
            }
        }
    }

    /// Charges `times` as much as `charge` does.
    pub(super) fn times(
        &self,
        times: u64,
        charge: impl FnOnce(&Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.left.load(Ordering::Relaxed);
        charge(self)?;
        let spent = before.saturating_sub(self.left.load(Ordering::Relaxed));
        self.charge(spent.saturating_mul(times - 1))
    }

    /// Charges for `count` places in a list.
    pub(super) fn charge_items(&self, count: usize) -> Result<(), Error> {
        self.charge((count as u64).saturating_mul(ITEM_BYTES))
    }

    /// Charges for calling a function.
    pub(super) fn charge_call(&self) -> Result<(), Error> {
        self.charge(CALL_BYTES)
    }

    /// Charges for a macro that a template makes: the engine keeps a list of them all, and may copy it for every new
    /// one.
    pub(super) fn charge_macro(&self) -> Result<(), Error> {
        let before = self.macros.fetch_add(1, Ordering::Relaxed);
        self.charge(CALL_BYTES + MACRO_BYTES.saturating_mul(before))
    }

    /// Charges for looking at a value, but not at what is in it.
    pub(super) fn charge_outside(&self, value: &Value) -> Result<(), Error> {
        self.charge(1 + text_bytes(value).or_else(|| value.len()).unwrap_or(0) as u64)
    }

    /// Charges for looking at everything in a value.
    pub(super) fn charge_inside(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, 0)
    }

    fn walk(&self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(refused(format!("a value nests more than {MAX_DEPTH} deep")));
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                self.charge(LOOK_BYTES)?;
                value.try_iter()?.try_for_each(|item| self.walk_item(&item, depth))
            }
            ValueKind::Map => {
                self.charge(LOOK_BYTES)?;
                value.try_iter()?.try_for_each(|key| {
                    self.walk_item(&key, depth)?;
                    self.walk_item(&value.get_item(&key)?, depth)
                })
            }
            _ => self.charge(LOOK_BYTES + text_bytes(value).unwrap_or(0) as u64),
        }
    }

    fn walk_item(&self, value: &Value, depth: usize) -> Result<(), Error> {
        check_data(value)?;
        self.walk(value, depth + 1)
    }

    /// Charges for a new value, and checks how deep it nests.
    pub(super) fn admit(&self, value: Value) -> Result<Value, Error> {
        let value = self.admit_flat(value)?;
        self.charge_inside(&value)?;
        Ok(value)
    }

    /// As [`admit`](Self::admit), for what nests no deeper than what it was made of. What would be a view of another
    /// value becomes a list of its own.
    pub(super) fn admit_flat(&self, value: Value) -> Result<Value, Error> {
        match value.kind() {
            ValueKind::Iterable => {
                let mut items = Vec::new();
                for item in value.try_iter()? {
                    self.charge_items(1)?;
                    items.push(item);
                }
                Ok(Value::from(items))
            }
            _ => {
                match text_bytes(&value) {
                    Some(bytes) => self.charge(bytes as u64)?,
                    None => self.charge_items(value.len().unwrap_or(0))?,
                }
                Ok(value)
            }
        }
    }

    /// Charges for the text of a value, before it is made.
    pub(super) fn charge_printed(&self, value: &Value) -> Result<(), Error> {
        if let Some(bytes) = text_bytes(value) {
            return self.charge(1 + bytes as u64);
        }
        let mut meter = Meter { budget: self, refusal: None };
        match write!(meter, "{value}") {
            Ok(()) => self.charge(1),
            Err(fmt::Error) => {
                Err(meter.refusal.unwrap_or_else(|| refused("a value has no text".to_owned())))
            }
        }
    }
}

/// Checks that a value may be in another one, or in a namespace: a namespace could be changed to contain itself, and
/// functions keep whatever they were made in.
pub(super) fn check_data(value: &Value) -> Result<(), Error> {
    let is_named = |names: &[&str]| {
        value.as_object().is_some_and(|object| names.iter().any(|name| object.type_name().contains(name)))
    };
    let what = match value.kind() {
        ValueKind::Plain | ValueKind::Invalid => "something that is no data",
        // Macros, loops and what macros enclose look like objects.
        ValueKind::Map if is_named(&["minijinja::vm::"]) => "something that is no data",
        ValueKind::Map if is_named(&["namespace_object"]) => "a namespace",
        _ => return Ok(()),
    };
    Err(refused(format!("a list, an object or a namespace holds {what}")))
}

/// Bytes of a text.
pub(super) fn text_bytes(value: &Value) -> Option<usize> {
    value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len))
}

/// Charges for what is written, and keeps nothing.
struct Meter<'b> {
    budget: &'b Budget,
    refusal: Option<Error>,
}

impl fmt::Write for Meter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.budget.charge(text.len() as u64).map_err(|refusal| {
            self.refusal = Some(refusal);
            fmt::Error
        })
    }
}

/// The error of a template that goes beyond a limit.
pub(super) fn refused(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the template is refused: {reason}"))
}
