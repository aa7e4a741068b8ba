//! Decides which time holds when clocks disagree.
//!
//! In: at each [`ClockReading`] the machine's wall clock, the time that was held so far (it runs on the monotonic clock), and the
//! database's clock where there is one. Out: the time to hold from now on, and a [`ClockState`]. Invariants: a wall clock that
//! jumps changes nothing before it has been confirmed, by the database's clock or, where there is none, by staying
//! where it is; of three clocks the two that agree are right. Pure: the caller reads the clocks.

/// What is known of the machine's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// It is right, and followed.
    Right,
    /// It is off. The time that is held is right all the same: it was, and the monotonic clock has gone on since.
    Off,
    /// It differs from the database's, and nothing tells which of the two is right.
    Unknown,
    /// The database's clock has jumped away from both clocks of this machine, which are followed: it is wrong, or this machine
    /// has stood still, as a virtual one does that is paused.
    Apart,
}

/// Clocks, read at one moment, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The monotonic clock.
    pub mono_us: i64,
    /// The machine's wall clock.
    pub machine_us: i64,
    /// The time that has been held so far.
    pub held_us: i64,
    /// The database's clock, if it answered.
    pub database_us: Option<i64>,
}

/// What a reading comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The time that holds, in microseconds.
    pub wall_us: i64,
    /// What is known of the machine's clock.
    pub state: ClockState,
    /// By how much it is ahead, in microseconds: of the database's clock, or of the time that was held.
    pub offset_us: i64,
}

/// Judges reading after reading.
#[derive(Debug)]
pub struct ClockJudge {
    tolerance_us: i64,
    /// Where there is no other clock: the time after which a jump is believed.
    settle_us: Option<i64>,
    /// Two clocks have agreed at least once.
    known: bool,
    /// By how much the machine's clock was ahead of the database's at the reading before.
    before_us: Option<i64>,
    database_off: bool,
    /// Since when (monotonic) the machine's clock has been off, and by how much.
    jump: Option<(i64, i64)>,
}

impl ClockJudge {
    /// A judge beside a database whose clock can be asked. Clocks agree that differ by at most `tolerance_us`; 0: nothing is
    /// compared.
    pub fn beside_a_database(tolerance_us: i64) -> Self {
        Self { settle_us: None, known: false, ..Self::alone(tolerance_us, 0) }
    }

    /// A judge who has the machine's clocks only, and believes a jump after `settle_us`.
    pub fn alone(tolerance_us: i64, settle_us: i64) -> Self {
        Self {
            tolerance_us,
            settle_us: Some(settle_us),
            known: true,
            before_us: None,
            database_off: false,
            jump: None,
        }
    }

    /// What holds from this reading on.
    pub fn read(&mut self, reading: ClockReading) -> Verdict {
        let (state, wall_us, offset_us) = match reading.database_us {
            _ if self.tolerance_us <= 0 => (ClockState::Right, reading.machine_us, 0),
            Some(database_us) => self.beside(reading, database_us),
            None => self.by_itself(reading),
        };
        Verdict { wall_us, state, offset_us }
    }

    fn agree(&self, difference_us: i64) -> bool {
        difference_us.abs() <= self.tolerance_us
    }

    fn beside(&mut self, reading: ClockReading, database_us: i64) -> (ClockState, i64, i64) {
        let offset_us = reading.machine_us - database_us;
        let before_us = self.before_us.replace(offset_us);
        let jumped = before_us.is_some_and(|before_us| (offset_us - before_us).abs() > self.tolerance_us / 2);
        if self.agree(offset_us) {
            (self.known, self.database_off) = (true, false);
            (ClockState::Right, reading.machine_us, offset_us)
        } else if !self.known {
            (ClockState::Unknown, database_us, offset_us)
        } else if self.agree(reading.held_us - database_us) {
            (ClockState::Off, reading.held_us, offset_us)
        } else if self.agree(reading.machine_us - reading.held_us) && (self.database_off || jumped) {
            self.database_off = true;
            (ClockState::Apart, reading.machine_us, offset_us)
        } else {
            (ClockState::Unknown, reading.held_us, offset_us)
        }
    }

    /// Without another clock: for now, or for good.
    fn by_itself(&mut self, reading: ClockReading) -> (ClockState, i64, i64) {
        let offset_us = reading.machine_us - reading.held_us;
        if !self.known {
            return (ClockState::Unknown, reading.held_us, offset_us);
        }
        if self.agree(offset_us) {
            self.jump = None;
            let state = if self.database_off { ClockState::Apart } else { ClockState::Right };
            return (state, reading.machine_us, offset_us);
        }
        let (since_us, _) = *match &mut self.jump {
            Some(jump) if (jump.1 - offset_us).abs() <= self.tolerance_us => jump,
            jump => jump.insert((reading.mono_us, offset_us)),
        };
        if self.settle_us.is_some_and(|settle_us| reading.mono_us - since_us >= settle_us) {
            self.jump = None;
            return (ClockState::Right, reading.machine_us, 0);
        }
        (ClockState::Off, reading.held_us, offset_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * S;

    /// Clocks that go, and what is held.
    struct World {
        judge: ClockJudge,
        mono_us: i64,
        /// Beyond the monotonic clock.
        machine_us: i64,
        database_us: Option<i64>,
        held_us: i64,
    }

    impl World {
        fn new(judge: ClockJudge, database_us: Option<i64>) -> Self {
            Self { judge, mono_us: 0, machine_us: 0, database_us, held_us: 0 }
        }

        /// What is known after `seconds`, and how far the time that holds is from the monotonic clock.
        fn after(&mut self, seconds: i64) -> (ClockState, i64) {
            self.mono_us += seconds * S;
            let verdict = self.judge.read(ClockReading {
                mono_us: self.mono_us,
                machine_us: self.mono_us + self.machine_us,
                held_us: self.mono_us + self.held_us,
                database_us: self.database_us.map(|database_us| self.mono_us + database_us),
            });
            self.held_us = verdict.wall_us - self.mono_us;
            (verdict.state, self.held_us)
        }
    }

    #[test]
    fn a_clock_that_jumps_is_not_followed_and_one_that_comes_back_is() {
        for by_us in [2 * HOUR, -2 * HOUR, 50 * 24 * HOUR] {
            let mut world = World::new(ClockJudge::beside_a_database(5 * S), Some(0));
            assert_eq!(world.after(1), (ClockState::Right, 0));
            world.machine_us = by_us;
            assert_eq!(world.after(1), (ClockState::Off, 0));
            assert_eq!(world.after(3600), (ClockState::Off, 0), "for good");
            // A database that does not answer confirms nothing.
            world.database_us = None;
            assert_eq!(world.after(3600), (ClockState::Off, 0));
            world.database_us = Some(0);
            world.machine_us = 2 * S;
            assert_eq!(world.after(1), (ClockState::Right, 2 * S));
        }
    }

    #[test]
    fn at_the_start_nothing_tells_which_clock_is_right() {
        let mut world = World::new(ClockJudge::beside_a_database(5 * S), Some(0));
        (world.machine_us, world.held_us) = (HOUR, HOUR);
        assert_eq!(world.after(1), (ClockState::Unknown, 0));
        assert_eq!(world.after(1), (ClockState::Unknown, 0), "it does not come to agree with itself");
        world.machine_us = 0;
        assert_eq!(world.after(1), (ClockState::Right, 0));
        let mut world = World::new(ClockJudge::beside_a_database(5 * S), None);
        assert_eq!(world.after(1).0, ClockState::Unknown);
    }

    #[test]
    fn a_database_that_jumps_stops_nobody() {
        let mut world = World::new(ClockJudge::beside_a_database(5 * S), Some(0));
        assert_eq!(world.after(1), (ClockState::Right, 0));
        world.database_us = Some(HOUR);
        assert_eq!(world.after(1), (ClockState::Apart, 0));
        assert_eq!(world.after(600), (ClockState::Apart, 0));
        world.database_us = None;
        assert_eq!(world.after(1), (ClockState::Apart, 0), "it has said nothing else");
        world.database_us = Some(HOUR);
        assert_eq!(world.after(1), (ClockState::Apart, 0));
        world.machine_us = -HOUR;
        assert_eq!(world.after(1), (ClockState::Unknown, 0), "and now no two agree");
        (world.machine_us, world.database_us) = (0, Some(0));
        assert_eq!(world.after(1), (ClockState::Right, 0));
    }

    #[test]
    fn a_clock_that_drifts_away_is_off() {
        let mut world = World::new(ClockJudge::beside_a_database(5 * S), Some(0));
        for drift in 0..=5 {
            world.machine_us = drift * S;
            assert_eq!(world.after(1).0, ClockState::Right, "{drift}");
        }
        world.machine_us = 6 * S;
        // What is held was followed up to the last reading.
        assert_eq!(world.after(1), (ClockState::Off, 5 * S));
    }

    #[test]
    fn a_machine_that_slept_is_believed_beside_a_database_at_once_and_alone_after_a_while() {
        let mut world = World::new(ClockJudge::beside_a_database(5 * S), Some(0));
        assert_eq!(world.after(1), (ClockState::Right, 0));
        (world.machine_us, world.database_us) = (HOUR, Some(HOUR));
        assert_eq!(world.after(1), (ClockState::Right, HOUR));

        let mut world = World::new(ClockJudge::alone(5 * S, 60 * S), None);
        assert_eq!(world.after(1), (ClockState::Right, 0));
        world.machine_us = HOUR;
        assert_eq!(world.after(1), (ClockState::Off, 0));
        assert_eq!(world.after(59), (ClockState::Off, 0));
        assert_eq!(world.after(1), (ClockState::Right, HOUR));
        world.machine_us = 0;
        assert_eq!(world.after(15), (ClockState::Off, HOUR));
        world.machine_us = HOUR;
        assert_eq!(world.after(1), (ClockState::Right, HOUR), "seconds change nothing");
    }

    #[test]
    fn a_tolerance_of_zero_compares_nothing() {
        let mut world = World::new(ClockJudge::beside_a_database(0), Some(HOUR));
        assert_eq!(world.after(1), (ClockState::Right, 0));
        world.machine_us = HOUR;
        assert_eq!(world.after(1), (ClockState::Right, HOUR));
    }
}
