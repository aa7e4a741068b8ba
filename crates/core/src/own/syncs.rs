//! Callers who wait until what was in the inbox when they asked has been carried out, durably.
//!
//! Each waits for a read that begins after it asked, and then for the commit that records what was read. Commits are
//! counted by the machine: with another machine, its callers wait for a read again.

/// Callers by what they wait for.
#[derive(Debug)]
pub(super) struct Syncs<C> {
    /// A read to begin.
    new: Vec<C>,
    /// The read under way.
    reading: Vec<C>,
    /// The commit of this number.
    committing: Vec<(u64, C)>,
}

impl<C> Default for Syncs<C> {
    fn default() -> Self {
        Self { new: Vec::new(), reading: Vec::new(), committing: Vec::new() }
    }
}

impl<C> Syncs<C> {
    /// Somebody waits from now on.
    pub(super) fn asked(&mut self, caller: C) {
        self.new.push(caller);
    }

    /// A read begins.
    pub(super) fn read_begins(&mut self) {
        self.reading.append(&mut self.new);
    }

    /// The read was not the last one: those who wait for it wait for the rest, too.
    pub(super) fn read_goes_on(&mut self) {
        self.new.append(&mut self.reading);
    }

    /// All was read, and is durable after the commit of this number.
    pub(super) fn read_ended(&mut self, after: u64) {
        self.committing.extend(self.reading.drain(..).map(|caller| (after, caller)));
    }

    /// Those who are to be answered, now that `commits` commits are durable.
    pub(super) fn durable(&mut self, commits: u64) -> Vec<C> {
        let done = self.committing.extract_if(.., |(after, _)| *after <= commits);
        done.map(|(_, caller)| caller).collect()
    }

    /// The machine is gone, and with it what was read and not committed.
    pub(super) fn machine_lost(&mut self) {
        self.new.append(&mut self.reading);
        self.new.extend(self.committing.drain(..).map(|(_, caller)| caller));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_begins_later_and_its_commit_are_waited_for() {
        let mut syncs = Syncs::default();
        syncs.read_begins();
        syncs.asked("it");
        syncs.read_ended(0);
        assert!(syncs.durable(9).is_empty(), "the read began before it asked");
        syncs.read_begins();
        syncs.read_goes_on();
        syncs.read_begins();
        syncs.read_ended(11);
        assert!(syncs.durable(10).is_empty());
        assert_eq!(syncs.durable(11), ["it"]);
    }

    #[test]
    fn numbers_of_a_lost_machine_mean_nothing_to_the_next() {
        // The next machine counts from zero, so that this would be too early for the first caller and never for the second.
        let mut syncs = Syncs::default();
        for (caller, after) in [("early", 1), ("late", 1_000)] {
            syncs.asked(caller);
            syncs.read_begins();
            syncs.read_ended(after);
        }
        syncs.machine_lost();
        assert!(syncs.durable(1).is_empty(), "what it waits for has to be read again");
        syncs.read_begins();
        syncs.read_ended(2);
        assert_eq!(syncs.durable(2), ["early", "late"]);
    }
}
