//! Searching several drafters at a time: one thread takes one drafter after another, at all temperatures.
use std::{
    collections::BTreeMap,
    num::NonZero,
    panic::resume_unwind,
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use ygg_profiler::DrafterName;

use crate::planner::{Fix, FreeDrafter, SearchError, judge::selection::Found, search::origin::Search};

/// What was found of one drafter at one temperature.
pub(in crate::planner) type Searched = Result<Found, SearchError>;

/// Searches every drafter of the profile at every temperature; `progress` gets (drafters searched, drafters in all).
/// The result, by search and then by the place of the drafter in the profile, is the same on any number of threads.
pub(in crate::planner) fn search_drafters(
    searches: &[Search<'_>],
    free_drafters: &mut [FreeDrafter<'_>],
    fix: &Fix,
    threads: NonZero<usize>,
    progress: &mut dyn FnMut(usize, usize),
) -> Vec<Vec<Searched>> {
    let drafters = searches.first().map_or(&[][..], |search| &search.profile.drafters);
    let mut free: BTreeMap<DrafterName, &mut FreeDrafter<'_>> =
        free_drafters.iter_mut().map(|drafter| (drafter.name.clone(), drafter)).collect();
    let jobs: Vec<_> = drafters.iter().map(|drafter| free.remove(&drafter.name)).enumerate().collect();
    let (all, workers) = (jobs.len(), threads.get().min(jobs.len()));
    let jobs = Mutex::new(jobs.into_iter());
    progress(0, all);
    let none = |_: &Search<'_>| (0..all).map(|_| None).collect();
    let mut found: Vec<Vec<Option<Searched>>> = searches.iter().map(none).collect();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let worker = || {
            let (sender, jobs) = (sender.clone(), &jobs);
            scope.spawn(move || {
                let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some((place, mut free)) = next() {
                    let search = |search: &Search<'_>| search.drafter(place, free.as_deref_mut(), fix);
                    let at_all_temperatures: Vec<Searched> = searches.iter().map(search).collect();
                    if sender.send((place, at_all_temperatures)).is_err() {
                        return;
                    }
                }
            })
        };
        let workers: Vec<_> = (0..workers).map(|_| worker()).collect();
        drop(sender);
        for (done, (place, at_all_temperatures)) in (1..).zip(receiver) {
            for (found, searched) in found.iter_mut().zip(at_all_temperatures) {
                found[place] = Some(searched);
            }
            progress(done, all);
        }
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let whole = |found: Vec<Option<Searched>>| {
        found.into_iter().map(|searched| searched.expect("every drafter was searched")).collect()
    };
    found.into_iter().map(whole).collect()
}
