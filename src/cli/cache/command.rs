//! `yggc cache`: lists, checks and removes what the cache holds.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{
    CachePlace,
    entries::{Entry, entries},
};
use crate::cli::{
    args::{CacheArgs, CacheCommand, EntryKind},
    error::Failure,
    output,
};

/// Runs `yggc cache`.
pub(crate) fn command(args: &CacheArgs, cache: &CachePlace) -> Result<(), Failure> {
    let entries = entries(cache)?;
    match &args.command {
        CacheCommand::List { json: true } => output::json(&listing(&entries, cache)?),
        CacheCommand::List { json: false } => output::text(table(&entries, cache)?),
        CacheCommand::Rm { names } => remove(&named(&entries, names)?),
        CacheCommand::Clear { kinds } => {
            let is_meant = |kind| match kinds.is_empty() {
                true => !matches!(kind, EntryKind::Hub | EntryKind::Session),
                false => kinds.contains(&kind),
            };
            remove(&entries.iter().filter(|entry| is_meant(entry.kind)).collect::<Vec<_>>())
        }
        CacheCommand::Check => check(&entries),
    }
}

/// What `list --json` prints.
#[derive(Serialize)]
struct Listing {
    folder: String,
    bytes: u64,
    entries: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    kind: &'static str,
    name: String,
    bytes: u64,
    /// Seconds since 1970.
    last_used: Option<u64>,
    about: String,
    paths: Vec<String>,
}

fn total(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.bytes).sum()
}

fn listing(entries: &[Entry], cache: &CachePlace) -> Result<Listing, Failure> {
    let seconds =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let listed = |entry: &Entry| Listed {
        kind: entry.kind.name(),
        name: entry.name.clone(),
        bytes: entry.bytes,
        last_used: entry.last_used.map(seconds),
        about: entry.about.clone(),
        paths: entry.paths.iter().map(|path| path.display().to_string()).collect(),
    };
    Ok(Listing {
        folder: cache.dir()?.root.display().to_string(),
        bytes: total(entries),
        entries: entries.iter().map(listed).collect(),
    })
}

#[expect(clippy::disallowed_methods, reason = "how long ago an entry was used is said to people")]
fn table(entries: &[Entry], cache: &CachePlace) -> Result<String, Failure> {
    let now = SystemTime::now();
    let mut text = String::new();
    let row = |entry: &Entry| {
        let age = entry.last_used.map(|time| age(now.duration_since(time).unwrap_or_default()));
        [
            entry.kind.name().to_owned(),
            output::bytes(entry.bytes),
            age.unwrap_or_default(),
            entry.name.clone(),
        ]
    };
    let head = ["kind", "size", "last used", "name"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(entries.iter().map(row)).collect();
    let abouts = std::iter::once("what").chain(entries.iter().map(|entry| &*entry.about));
    for (line, about) in output::table(&rows).lines().zip(abouts) {
        text.push_str(&format!("{line}  {about}\n"));
    }
    let folder = cache.dir()?.root;
    text.push_str(&format!("{} in {}\n", output::bytes(total(entries)), folder.display()));
    Ok(text)
}

/// A time span in the largest unit that fits.
fn age(span: Duration) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let fits = units.into_iter().find(|(seconds, _)| span.as_secs() >= *seconds);
    fits.map_or_else(
        || "now".to_owned(),
        |(seconds, unit)| format!("{} {unit} ago", span.as_secs() / seconds),
    )
}

/// The entries that `names` mean, with the packed weights of models among them.
fn named<'a>(entries: &'a [Entry], names: &[String]) -> Result<Vec<&'a Entry>, Failure> {
    if let Some(unknown) = names.iter().find(|name| !entries.iter().any(|entry| entry.is_called(name))) {
        return Err(Failure::Input(format!(
            "nothing in the cache is called `{unknown}`; expected a name or a path that `yggc cache list` prints"
        )));
    }
    let meant = |entry: &&Entry| names.iter().any(|name| entry.is_called(name));
    let models: Vec<&Entry> =
        entries.iter().filter(|entry| entry.kind == EntryKind::Model).filter(meant).collect();
    let is_of_model = |entry: &Entry| models.iter().any(|model| entry.is_packed_from(&model.paths[0]));
    Ok(entries.iter().filter(|entry| meant(entry) || is_of_model(entry)).collect())
}

fn remove(entries: &[&Entry]) -> Result<(), Failure> {
    let mut bytes = 0;
    for entry in entries {
        entry.remove()?;
        bytes += entry.bytes;
        output::remark(format_args!("removed {} {}", entry.kind.name(), entry.name));
    }
    output::text(format_args!("{} entries, {} removed\n", entries.len(), output::bytes(bytes)))
}

fn check(entries: &[Entry]) -> Result<(), Failure> {
    let mut damaged = Vec::new();
    for entry in entries {
        if let Some(how) = entry.check()? {
            output::remark(format_args!("{} {}: {how}", entry.kind.name(), entry.name));
            damaged.push(&*entry.name);
        }
    }
    if damaged.is_empty() {
        return output::text(format_args!("{} entries checked, none is damaged\n", entries.len()));
    }
    Err(Failure::Broken(format!(
        "{} of {} entries of the cache are damaged; remove them, they are made again: yggc cache rm {}",
        damaged.len(),
        entries.len(),
        damaged.join(" ")
    )))
}
