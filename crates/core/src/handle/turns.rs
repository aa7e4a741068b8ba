//! Orders of turns: one after the other, and one after the other by weight and by what each has taken.
//!
//! Invariant: what has come waits for no more than one turn of each of the others, and whoever has taken more than its weight
//! in one turn sits as many rounds out as that was worth (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round
//! Robin", 1996, with a debt instead of a credit). Nobody walks those that are not next.

use std::collections::BTreeMap;

use uuid::Uuid;

/// An order that can be left from anywhere, without a look at the others in it.
#[derive(Debug)]
pub(super) struct TurnOrder<T>(BTreeMap<i64, T>);

impl<T> Default for TurnOrder<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> TurnOrder<T> {
    pub(super) fn push(&mut self, item: T, first: bool) -> i64 {
        let place = if first {
            self.0.first_key_value().map_or(0, |(place, _)| place - 1)
        } else {
            self.0.last_key_value().map_or(0, |(place, _)| place + 1)
        };
        self.0.insert(place, item);
        place
    }

    pub(super) fn pop(&mut self) -> Option<(i64, T)> {
        self.0.pop_first()
    }

    /// What was popped has its place again.
    pub(super) fn put_back(&mut self, place: i64, item: T) {
        self.0.insert(place, item);
    }

    pub(super) fn remove(&mut self, place: i64) {
        self.0.remove(&place);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A place among those that take turns: its round, and its place within that.
pub(super) type Turn = (i64, i64);

/// An order in which whoever has taken much sits rounds out.
#[derive(Debug)]
pub(super) struct RoundOrder<T> {
    turns: BTreeMap<Turn, T>,
    /// That of the latest turn.
    round: i64,
    /// Places that were ever taken behind others, and before them.
    pushed: i64,
    pushed_first: i64,
}

impl<T> Default for RoundOrder<T> {
    fn default() -> Self {
        Self { turns: BTreeMap::new(), round: 0, pushed: 0, pushed_first: 0 }
    }
}

impl<T> RoundOrder<T> {
    /// It takes turns from now on: before all others, or behind them.
    pub(super) fn push(&mut self, item: T, first: bool) -> Turn {
        if first {
            let round = self.turns.first_key_value().map_or(self.round, |((round, _), _)| *round);
            self.pushed_first -= 1;
            self.insert((round, self.pushed_first), item)
        } else {
            self.push_after(item, 1)
        }
    }

    /// It has had its turn, which was worth so many.
    pub(super) fn push_after(&mut self, item: T, rounds: u32) -> Turn {
        self.pushed += 1;
        self.insert((self.round + i64::from(rounds), self.pushed), item)
    }

    fn insert(&mut self, turn: Turn, item: T) -> Turn {
        self.turns.insert(turn, item);
        turn
    }

    pub(super) fn pop(&mut self) -> Option<(Turn, T)> {
        let (turn, item) = self.turns.pop_first()?;
        self.round = turn.0;
        Some((turn, item))
    }

    /// What was popped has its place again.
    pub(super) fn put_back(&mut self, turn: Turn, item: T) -> Turn {
        self.insert(turn, item)
    }

    pub(super) fn remove(&mut self, turn: Turn) {
        self.turns.remove(&turn);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

/// The lanes of one circle that take turns. Never empty.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Its circle's place among those that take turns.
    pub turn: Turn,
    /// What it has had in a row.
    had: u32,
    /// By their schedules.
    pub lanes: TurnOrder<Uuid>,
}

impl Ring {
    /// Its circle has had a turn that took so many tokens: it has another one, or sits as many rounds out as that was worth.
    pub(super) fn had_turn(
        &mut self,
        turns: &mut RoundOrder<u128>,
        (turn, circle): (Turn, u128),
        (units, weight): (u32, u32),
    ) {
        self.had += units.max(1);
        let rounds = self.had / weight.max(1);
        self.had %= weight.max(1);
        self.turn = match rounds {
            0 => turns.put_back(turn, circle),
            rounds => turns.push_after(circle, rounds),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has the next turns, where each takes so many in one.
    fn turns(order: &mut RoundOrder<String>, takes: impl Fn(&str) -> u32, count: usize) -> String {
        let turn = |_| {
            let (_, name) = order.pop()?;
            let rounds = takes(&name);
            order.push_after(name.clone(), rounds);
            Some(name)
        };
        (0..count).filter_map(turn).collect()
    }

    #[test]
    fn whoever_takes_three_sits_two_rounds_out() {
        let mut order = RoundOrder::default();
        for name in ["a", "b", "c"] {
            order.push(name.to_owned(), false);
        }
        let takes = |name: &str| if name == "a" { 3 } else { 1 };
        assert_eq!(turns(&mut order, takes, 14), "abcbcbcabcbcbc");
        // Alone, it waits for nobody.
        let mut alone = RoundOrder::default();
        alone.push("a".to_owned(), false);
        assert_eq!(turns(&mut alone, |_| 1_000, 3), "aaa");
    }

    #[test]
    fn who_comes_goes_behind_those_who_wait_and_before_what_they_take_next() {
        let mut order = RoundOrder::default();
        ["a", "b"].into_iter().for_each(|name| {
            order.push(name.to_owned(), false);
        });
        assert_eq!(turns(&mut order, |_| 1, 1), "a");
        order.push("new".to_owned(), false);
        order.push("first".to_owned(), true);
        assert_eq!(turns(&mut order, |_| 1, 6), "firstbanewfirstb");
    }
}
