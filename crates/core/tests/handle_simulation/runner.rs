//! Many worlds, on all cores.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Instant;

use crate::bug::Bug;
use crate::totals::Totals;
use crate::world::World;

pub(crate) fn env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

/// One world; what a check said, where one failed.
pub(crate) fn play(seed: u64, bug: Bug) -> Result<Totals, String> {
    static QUIET: Once = Once::new();
    // What a world says when it fails is told once, with its seed.
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let in_a_world = std::thread::current().name().is_some_and(|name| name.starts_with("world"));
            if !in_a_world {
                usual(panic);
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(|| World::new(seed, bug).play())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

fn on_threads(work: impl Fn() + Sync) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let builder = std::thread::Builder::new().name(format!("world {number}"));
            builder.spawn_scoped(scope, &work).unwrap();
        }
    });
    threads
}

/// Plays all seeds, or until `end`. Returns the totals, how many worlds, and on how many threads.
pub(crate) fn play_all(seeds: Range<u64>, bug: Bug, end: Option<Instant>) -> (Totals, u64, usize) {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let totals = Mutex::new((Totals::default(), 0));
    let failed = Mutex::new(None::<(u64, String)>);
    let threads = on_threads(|| {
        while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            match play(seed, bug) {
                Ok(more) => {
                    let mut totals = totals.lock().unwrap();
                    totals.0.add(&more);
                    totals.1 += 1;
                }
                Err(text) => {
                    stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap();
                    if failed.as_ref().is_none_or(|(first, _)| seed < *first) {
                        *failed = Some((seed, text));
                    }
                }
            }
        }
    });
    if let Some((seed, text)) = failed.into_inner().unwrap() {
        panic!("{text}\nreplay with TOLLGATE_SIM_SEED={seed}");
    }
    let (totals, worlds) = totals.into_inner().unwrap();
    (totals, worlds, threads)
}

/// The first of the seeds whose world fails, and what its check says.
pub(crate) fn first_failure(seeds: u64, bug: Bug) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let found = Mutex::new(None::<(u64, String)>);
    on_threads(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || found.lock().unwrap().as_ref().is_some_and(|(first, _)| *first < seed) {
                break;
            }
            if let Err(text) = play(seed, bug) {
                let mut found = found.lock().unwrap();
                if found.as_ref().is_none_or(|(first, _)| seed < *first) {
                    *found = Some((seed, text));
                }
            }
        }
    });
    found.into_inner().unwrap()
}
