//! What holds whatever comes: nothing twice, nothing left open.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tollgate_core::alert::{Look, Message, Rules, State};
use tollgate_core::model::SECOND_US;
use tollgate_core::trouble::{Severity, Trouble};

use super::{RULES, critical, step, trouble};

/// What the receiver knows of a trouble.
#[derive(Default)]
struct Told {
    is_raised: bool,
    is_critical: bool,
    last_us: i64,
}

/// One moment: which troubles there are, how bad, whether all of them can be seen, what the alert wants from now on, how the
/// attempt ends, and whether the process dies before it has written that.
#[derive(Clone, Debug)]
struct Moment {
    after_s: i64,
    present: [bool; 4],
    critical: [bool; 4],
    is_sure: bool,
    wanted: Option<[bool; 4]>,
    is_taken: bool,
    dies: bool,
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let troubles = (any::<[bool; 4]>(), any::<[bool; 4]>(), prop::bool::weighted(0.8));
    let wanted = prop::option::weighted(0.1, any::<[bool; 4]>());
    let moment = (1_i64..40, troubles, wanted, any::<bool>(), prop::bool::weighted(0.2));
    let moment = moment.prop_map(|(after_s, (present, critical, is_sure), wanted, is_taken, dies)| Moment {
        after_s,
        present,
        critical,
        is_sure,
        wanted,
        is_taken,
        dies,
    });
    prop::collection::vec(moment, 1..80)
}

/// A world with a receiver that notes each message the first time it comes.
struct World {
    rules: Rules,
    wanted: [bool; 4],
    stored: State,
    now_us: i64,
    received: BTreeMap<u64, Message>,
    offered: BTreeMap<u64, Message>,
    known: BTreeMap<String, Told>,
    /// Of what the alert did not want any more, the receiver may know what is not so.
    dropped: BTreeSet<String>,
}

impl World {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            wanted: [true; 4],
            stored: State::default(),
            now_us: 0,
            received: BTreeMap::new(),
            offered: BTreeMap::new(),
            known: BTreeMap::new(),
            dropped: BTreeSet::new(),
        }
    }

    fn go(&mut self, moment: &Moment) {
        self.now_us += moment.after_s * SECOND_US;
        if let Some(wanted) = moment.wanted {
            self.rules.generation += 1;
            self.wanted = wanted;
        }
        let names = ["a", "b", "c", "d"];
        let all: Vec<Trouble> = (0..4)
            .filter(|at| moment.present[*at])
            .map(|at| if moment.critical[at] { critical(names[at]) } else { trouble(names[at]) })
            .collect();
        let is_wanted =
            |found: &Trouble| (0..4).any(|at| self.wanted[at] && names[at] == found.subject.schedule);
        let (found, others): (Vec<Trouble>, Vec<Trouble>) = all.iter().cloned().partition(is_wanted);
        if moment.wanted.is_some() {
            self.dropped.extend(others.iter().map(|other| other.subject.schedule.clone()));
        }
        let mut state = self.stored.clone();
        state.renew(&self.rules, &all, &found);
        let sent = state.step(&self.rules, Look { troubles: &found, is_sure: moment.is_sure }, self.now_us);
        self.stored = state.clone();
        let Some(message) = sent else { return };
        let before = self.offered.insert(message.number, message.clone());
        assert!(before.is_none_or(|before| before == message), "another content under the same number");
        if moment.is_taken {
            self.receive(&message);
            state.taken(message.number, self.now_us);
        } else {
            state.failed(message.number, "no".to_owned(), None, self.now_us);
        }
        if !moment.dies {
            self.stored = state;
        }
    }

    fn receive(&mut self, message: &Message) {
        if self.received.insert(message.number, message.clone()).is_some() {
            return;
        }
        let repeat_us = self.rules.repeat_us;
        let certain = |item: &&tollgate_core::alert::Item| !self.dropped.contains(&item.subject.schedule);
        for item in message.raised.iter().filter(certain) {
            let told = self.known.entry(item.subject.schedule.clone()).or_default();
            if told.is_raised {
                let is_worse = item.severity == Severity::Critical && !told.is_critical;
                let may = is_worse || repeat_us > 0 && message.made_us - told.last_us >= repeat_us;
                assert!(may, "{item:?} again after {} us", message.made_us - told.last_us);
                assert_eq!((item.is_repeated, item.is_worse), (true, is_worse));
            }
            let is_critical = item.severity == Severity::Critical;
            *told = Told { is_raised: true, is_critical, last_us: message.made_us };
        }
        for item in message.resolved.iter().filter(certain) {
            let told = self.known.get_mut(&item.subject.schedule).expect("it was told as raised");
            assert!(std::mem::take(&mut told.is_raised), "{item:?} is over for the second time");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_told_twice_and_all_that_was_raised_is_resolved(
        moments in moments(),
        repeat_s in prop::sample::select(vec![0_i64, 60, 300]),
        wait_s in 0_i64..30,
    ) {
        let rules = Rules { repeat_us: repeat_s * SECOND_US, group_wait_us: wait_s * SECOND_US, ..RULES };
        let mut world = World::new(rules);
        for moment in &moments {
            world.go(moment);
        }
        // All is well, and the receiver too.
        for _ in 0..10 {
            world.go(&Moment {
                after_s: 700,
                present: [false; 4],
                critical: [false; 4],
                is_sure: true,
                wanted: None,
                is_taken: true,
                dies: false,
            });
        }
        let open = |(name, told): (&String, &Told)| told.is_raised && !world.dropped.contains(name);
        prop_assert!(!world.known.iter().any(open));
        prop_assert_eq!(&world.stored.pending, &None);
        prop_assert_eq!(&world.stored.raised, &vec![]);
        prop_assert_eq!(world.received.len() as u64, world.stored.sent);
        let numbers: Vec<u64> = world.received.keys().copied().collect();
        prop_assert_eq!(numbers, (1..=world.stored.made).collect::<Vec<u64>>(), "each message is taken");
    }

    #[test]
    fn what_stays_is_told_once_in_each_repeat_interval(stays in 1_i64..2_000, every_s in 1_i64..7) {
        let mut state = State::default();
        let mut told = vec![];
        for s in (0..stays).step_by(every_s as usize) {
            if let Some(message) = step(&mut state, &["a"], s) {
                told.push(s);
                state.taken(message.number, s * SECOND_US);
            }
        }
        prop_assert!(told.windows(2).all(|pair| pair[1] - pair[0] >= 100 && pair[1] - pair[0] < 107), "{:?}", told);
        let has_looked = (0..stays).step_by(every_s as usize).any(|s| s >= 10);
        prop_assert_eq!(!told.is_empty(), has_looked);
    }
}
