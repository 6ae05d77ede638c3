//! Counts every allocation of the process: a decode step makes none, a session takes the memory it announced, and a
//! damaged model file takes little.
//!
//! A program of its own because an allocator belongs to a whole program; every part in a process of its own because all
//! threads are counted.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicIsize, AtomicUsize, Ordering},
    },
};

use ygg_kernels::{Activations, Tier};
use yggc::{model::synthetic::SyntheticExperts, plan::Schedule, sample::Sampling};

mod checks;
mod damaged;
mod made;

use checks::{SAMPLED, check_observed, check_steps, check_store_memory, check_streamed, check_tier};
use made::{model, of_family, set, streaming, with_drafts};

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);
/// The most that were live at once, since it was last set.
static PEAK_BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(layout: Layout) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    let size = layout.size().cast_signed();
    let live = LIVE_BYTES.fetch_add(size, Ordering::Relaxed) + size;
    PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

/// What `work` leaves allocated, and what it gives.
fn bytes_kept<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = LIVE_BYTES.load(Ordering::SeqCst);
    let result = work();
    let kept = LIVE_BYTES.load(Ordering::SeqCst) - before;
    (usize::try_from(kept).expect("what is kept is not negative"), result)
}

/// The most bytes that `work` has live at once beyond those before it, and what it gives.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = LIVE_BYTES.load(Ordering::SeqCst);
    PEAK_BYTES.store(before, Ordering::SeqCst);
    let result = work();
    let peak = PEAK_BYTES.load(Ordering::SeqCst) - before;
    (usize::try_from(peak).expect("a peak is not below what it began with"), result)
}

/// Names the part that a process of its own checks.
const PART: &str = "YGG_TEST_PART";

/// The one test. It has no harness, whose notice of a test that takes long would be counted. Filters of `cargo test`
/// leave it out as they would with one.
#[allow(clippy::print_stdout, reason = "it stands for the harness")]
fn main() {
    const NAME: &str = "a_step_allocates_nothing_and_a_session_takes_what_it_announced";
    #[expect(
        clippy::disallowed_methods,
        reason = "how a process of this program tells another what to check"
    )]
    if let Some(part) = std::env::var_os(PART) {
        let known = parts().into_iter().find(|known| *known.name == *part);
        return (known.expect("a part").check)();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let takes_a_value =
        |argument: &String| ["--skip", "--test-threads", "--format"].contains(&argument.as_str());
    let mut filters = Vec::new();
    for (place, argument) in arguments.iter().enumerate() {
        if !argument.starts_with('-')
            && !place.checked_sub(1).is_some_and(|before| takes_a_value(&arguments[before]))
        {
            filters.push(argument);
        }
    }
    let is_wanted = filters.is_empty() || filters.iter().any(|filter| NAME.contains(filter.as_str()));
    if is_wanted && !arguments.iter().any(|argument| argument == "--list") {
        let names: Vec<String> = parts().into_iter().map(|part| part.name).collect();
        assert!(!names.is_empty(), "nothing to check");
        check_in_processes(&names);
        println!("test {NAME} ... ok, in {} parts", names.len());
    }
}

/// Checks every part in a process of its own, since allocations are those of a whole process: as many at once as there
/// are processors for.
fn check_in_processes(names: &[String]) {
    let next = AtomicUsize::new(0);
    let program = std::env::current_exe().expect("this program");
    // Sessions on the processor have up to two threads, which wait for each other by spinning.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from) / if is_cuda() { 1 } else { 2 };
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = Command::new(&program).env(PART, name).status().expect("it starts");
                    if !ended.success() {
                        failed.lock().expect("nobody panics").push(format!("{name}: {ended}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panics");
    assert!(failed.is_empty(), "{failed:?}");
}

/// Whether the environment asks for a GPU instead of this processor, as the other tests do.
fn is_cuda() -> bool {
    #[expect(clippy::disallowed_methods, reason = "which device is tested is told by the environment")]
    let device = std::env::var_os("YGG_TEST_DEVICE");
    device.is_some_and(|device| device == "cuda")
}

/// What one process checks.
struct Part {
    name: String,
    check: Box<dyn FnOnce()>,
}

impl Part {
    fn new(name: impl Into<String>, check: impl FnOnce() + 'static) -> Self {
        Part { name: name.into(), check: Box::new(check) }
    }
}

/// All that is checked on this machine, or on the device that the environment names.
fn parts() -> Vec<Part> {
    if is_cuda() {
        return parts_of_cuda();
    }
    let tiers = yggc::backend::available_tiers();
    let fastest = *tiers.last().expect("a tier for every processor");
    let mut parts = vec![
        Part::new("streamed weights", move || check_streamed(fastest, None)),
        Part::new("streamed experts", move || {
            check_streamed(fastest, Some(SyntheticExperts { count: 5, used: 2, are_copies: false }));
        }),
        Part::new("a store", check_store_memory),
    ];
    for (name, family) in
        [("gated delta rules", "qwen35"), ("selective scans", "granitehybrid"), ("shared keys", "gemma4")]
    {
        parts.push(Part::new(name, move || {
            let set = set(&of_family(family), fastest, Activations::Native);
            for name in ["none", "layer_skip", "lookup"] {
                check_steps(&set, (name, Schedule::Plain), 2, Sampling::GREEDY);
            }
        }));
    }
    for family in damaged::FAMILIES {
        let check = move || [false, true].into_iter().for_each(|is_folder| damaged::check(family, is_folder));
        parts.push(Part::new(format!("damaged files, {family}"), check));
    }
    for (tier, activations) in
        tiers.into_iter().flat_map(|tier| Activations::ALL.map(|activations| (tier, activations)))
    {
        let name = format!("{tier}, {activations}");
        parts.push(Part::new(name, move || check_tier(tier, activations, tier == fastest)));
    }
    parts
}

/// On a GPU, or its emulation, which allocates elsewhere: under every schedule, with what the host verifies by rule.
fn parts_of_cuda() -> Vec<Part> {
    let of = |name: &'static str, schedules: &'static [Schedule]| {
        Part::new(format!("{name}, {}", schedules[0]), move || {
            let model = model();
            let set = with_drafts(&set(&model, Tier::Cuda, Activations::Native), &model);
            for schedule in schedules {
                check_steps(&set, (name, *schedule), 1, Sampling::GREEDY);
            }
        })
    };
    let mut parts: Vec<Part> = Schedule::ALL.chunks(2).map(|schedules| of("layer_skip", schedules)).collect();
    parts.extend([
        of("lookup", &[Schedule::Plain, Schedule::DeviceWalk]),
        of("model", &[Schedule::HeadAhead, Schedule::TwoLaunches]),
        of("hidden_state", &[Schedule::TwoLaunches, Schedule::WholeStep]),
        of("eagle3", &[Schedule::TwoLaunches, Schedule::WholeStep]),
        of("block", &[Schedule::Plain, Schedule::DeviceWalk]),
        Part::new("sampled", || {
            let set = set(&model(), Tier::Cuda, Activations::Native);
            let sampled = Sampling { top_p: 1.0, min_p: 0.0, ..SAMPLED };
            check_steps(&set, ("layer_skip", Schedule::TwoLaunches), 1, sampled);
        }),
        Part::new("experts, states and shared keys", || {
            for family in ["gpt_oss", "qwen35", "granitehybrid", "gemma4"] {
                let set = set(&of_family(family), Tier::Cuda, Activations::Native);
                for drafter in [("none", Schedule::Plain), ("layer_skip", Schedule::DeviceWalk)] {
                    check_steps(&set, drafter, 1, Sampling::GREEDY);
                }
            }
        }),
        Part::new("streamed weights", || {
            let streamed = streaming(Tier::Cuda, None);
            check_observed(&streamed, 1);
            for drafter in [("none", Schedule::Plain), ("layer_skip", Schedule::WholeStep)] {
                check_steps(&streamed, drafter, 1, Sampling::GREEDY);
            }
        }),
    ]);
    parts
}
