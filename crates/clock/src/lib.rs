//! The one place where services read the time, so that tests can move it, and wait for it where milliseconds count.
//!
//! A [`Clock`] yields both clocks at once, as the core wants them. [`instant_now`] is for timers. [`Alarms`] wake at an instant.
//!
//! The wall clock that a [`Clock`] shows goes with the monotonic one, from what the machine's showed when it was made: a machine
//! whose clock jumps changes nothing until somebody who has compared it ([`ClockJudge`]) says so ([`Clock::hold`]).

#![expect(clippy::disallowed_methods, reason = "here, and nowhere else, the machine's clocks are read")]

mod alarms;
mod judge;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::model::Now;

pub use alarms::Alarms;
pub use judge::{ClockJudge, ClockReading, ClockState, Verdict};

/// How often both clocks are read, to find them close together.
const LOOKS: u32 = 3;
/// A wall clock that is right and has gone on for so much longer than the monotonic one says that the machine stood still, in
/// microseconds. What is less, the margins of leases cover.
const STOOD_STILL_US: i64 = 500_000;

/// A source of time; cheap to clone, all clones agree.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// A [`ClockState`].
    state: Arc<AtomicU8>,
    /// How often the machine may have stood still.
    stops: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
enum Source {
    /// The wall clock is `ahead_us` ahead of the monotonic one.
    System {
        start: Instant,
        ahead_us: Arc<AtomicI64>,
    },
    Manual {
        wall_us: Arc<AtomicI64>,
        mono_us: Arc<AtomicI64>,
    },
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        // In this order: what passes in between makes it late, and never early.
        let (wall_us, start) = (machine_us(), Instant::now());
        Self::over(Source::System { start, ahead_us: Arc::new(AtomicI64::new(wall_us)) })
    }

    /// A clock that stands at `wall_us` until it is moved.
    pub fn manual(wall_us: i64) -> Self {
        let (wall_us, mono_us) = (Arc::new(AtomicI64::new(wall_us)), Arc::default());
        Self::over(Source::Manual { wall_us, mono_us })
    }

    fn over(source: Source) -> Self {
        Self { source, state: Arc::new(AtomicU8::new(ClockState::Right as u8)), stops: Arc::default() }
    }

    /// Both clocks now.
    pub fn now(&self) -> Now {
        let mono_us = self.mono_us();
        let wall_us = match &self.source {
            Source::System { ahead_us, .. } => mono_us.saturating_add(ahead_us.load(Ordering::SeqCst)),
            Source::Manual { wall_us, .. } => wall_us.load(Ordering::SeqCst),
        };
        Now { wall_us, mono_us }
    }

    /// The wall clock, in microseconds since the Unix epoch.
    pub fn wall_us(&self) -> i64 {
        self.now().wall_us
    }

    /// The monotonic clock, in microseconds since this clock was made.
    pub fn mono_us(&self) -> i64 {
        match &self.source {
            Source::System { start, .. } => micros(start.elapsed().as_micros()),
            Source::Manual { mono_us, .. } => mono_us.load(Ordering::SeqCst),
        }
    }

    /// What the machine's wall clock shows, right or wrong, and both clocks right after: of a few looks the one with the least
    /// in between. A caller that takes one for the time of the other is late by that, and never early.
    pub fn machine(&self) -> (i64, Now) {
        let look = || {
            let began_us = self.mono_us();
            let machine_us = match &self.source {
                Source::System { .. } => machine_us(),
                Source::Manual { wall_us, .. } => wall_us.load(Ordering::SeqCst),
            };
            let now = self.now();
            (now.mono_us - began_us, machine_us, now)
        };
        let (_, machine_us, now) =
            (1..LOOKS).map(|_| look()).fold(look(), |best, next| if next.0 < best.0 { next } else { best });
        (machine_us, now)
    }

    /// From now on, the wall clock showed `wall_us` when the monotonic one showed `mono_us`; and this is known of the machine's.
    pub fn hold(&self, wall_us: i64, mono_us: i64, state: ClockState) {
        let held = self.now();
        let gained_us = (wall_us - mono_us) - (held.wall_us - held.mono_us);
        match &self.source {
            Source::System { ahead_us, .. } => ahead_us.store(wall_us - mono_us, Ordering::SeqCst),
            Source::Manual { wall_us: shown_us, .. } => {
                shown_us.store(wall_us + self.mono_us() - mono_us, Ordering::SeqCst);
            }
        }
        let before = self.state.swap(state as u8, Ordering::SeqCst);
        // Where its wall clock has been set since, as that of a suspended one is, it is right.
        let was_set = state == ClockState::Right && gained_us > STOOD_STILL_US;
        if was_set || state == ClockState::Apart && before != ClockState::Apart as u8 {
            self.stops.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often the machine may have stood still, its monotonic clock with it: others have not.
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::SeqCst)
    }

    /// What is known of the machine's wall clock. While it is [`ClockState::Unknown`], nothing may be decided by time.
    pub fn state(&self) -> ClockState {
        match self.state.load(Ordering::SeqCst) {
            right if right == ClockState::Right as u8 => ClockState::Right,
            off if off == ClockState::Off as u8 => ClockState::Off,
            apart if apart == ClockState::Apart as u8 => ClockState::Apart,
            _ => ClockState::Unknown,
        }
    }

    /// Moves a manual clock ahead; a system clock goes its own way.
    pub fn advance_us(&self, by_us: i64) {
        if let Source::Manual { wall_us, mono_us } = &self.source {
            wall_us.fetch_add(by_us, Ordering::SeqCst);
            mono_us.fetch_add(by_us, Ordering::SeqCst);
        }
    }
}

/// Now on the monotonic clock, as the runtime's timers count it: for deadlines, and for how long something takes. What plan, emit
/// and handle decide by is [`Clock::now`].
pub fn instant_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

fn machine_us() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
}

fn micros(us: u128) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_whose_wall_clock_alone_has_gone_on_has_stood_still() {
        let clock = Clock::manual(0);
        clock.advance_us(1_000_000);
        clock.hold(1_000_000, 1_000_000, ClockState::Right);
        assert_eq!(clock.stops(), 0);
        // A clock that is set right, by a little or back, says nothing of the kind.
        clock.hold(1_000_000 + STOOD_STILL_US, 1_000_000, ClockState::Right);
        clock.hold(1_000_000, 1_000_000, ClockState::Right);
        assert_eq!(clock.stops(), 0);
        // Nor does one that is wrong.
        clock.hold(60_000_000, 1_000_000, ClockState::Off);
        clock.hold(1_000_000, 1_000_000, ClockState::Right);
        assert_eq!(clock.stops(), 0);
        // Suspended for a minute, and woken with a clock that agrees with the others'.
        clock.hold(61_000_000, 1_000_000, ClockState::Right);
        assert_eq!(clock.stops(), 1);
        clock.hold(61_000_000, 1_000_000, ClockState::Right);
        assert_eq!(clock.stops(), 1);
    }
}
