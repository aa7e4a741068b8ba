//! Callers who wait until what was in the inbox when they asked has been carried out, durably.
//!
//! Each waits for a read that begins after it asked, and then for the commit that records what was read. Commits are
//! counted by the machine: with another machine, its callers wait for a read again.

use tokio::sync::oneshot;

type Caller = oneshot::Sender<()>;

/// Callers by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// A read to begin.
    new: Vec<Caller>,
    /// The read under way.
    reading: Vec<Caller>,
    /// The commit of this number.
    committing: Vec<(u64, Caller)>,
}

impl Syncs {
    /// Somebody waits from now on.
    pub(super) fn asked(&mut self, caller: Caller) {
        self.new.push(caller);
    }

    /// A read begins.
    pub(super) fn read_begins(&mut self) {
        self.reading.append(&mut self.new);
    }

    /// The read was not the last one: who waits for it waits for the rest, too.
    pub(super) fn read_goes_on(&mut self) {
        self.new.append(&mut self.reading);
    }

    /// All was read, and is durable after the commit of this number.
    pub(super) fn read_ended(&mut self, after: u64) {
        self.committing.extend(self.reading.drain(..).map(|caller| (after, caller)));
    }

    /// So many commits are durable.
    pub(super) fn durable(&mut self, commits: u64) {
        for (_, caller) in self.committing.extract_if(.., |(after, _)| *after <= commits) {
            // A caller that has gone needs no answer.
            let _gone = caller.send(());
        }
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

    fn is_answered(answer: &mut oneshot::Receiver<()>) -> bool {
        answer.try_recv().is_ok()
    }

    #[test]
    fn a_read_that_begins_later_and_its_commit_are_waited_for() {
        let (mut syncs, (caller, mut answer)) = (Syncs::default(), oneshot::channel());
        syncs.read_begins();
        syncs.asked(caller);
        syncs.read_ended(0);
        syncs.durable(9);
        assert!(!is_answered(&mut answer), "the read began before it asked");
        syncs.read_begins();
        syncs.read_goes_on();
        syncs.read_begins();
        syncs.read_ended(11);
        syncs.durable(10);
        assert!(!is_answered(&mut answer));
        syncs.durable(11);
        assert!(is_answered(&mut answer));
    }

    #[test]
    fn numbers_of_a_lost_machine_mean_nothing_to_the_next() {
        // The next machine counts from zero, so that this would be too early for the first caller and never for the second.
        let mut syncs = Syncs::default();
        let [(first, mut early), (second, mut late)] = [oneshot::channel(), oneshot::channel()];
        for (caller, after) in [(first, 1), (second, 1_000)] {
            syncs.asked(caller);
            syncs.read_begins();
            syncs.read_ended(after);
        }
        syncs.machine_lost();
        syncs.durable(1);
        assert!(!is_answered(&mut early), "what it waits for has to be read again");
        syncs.read_begins();
        syncs.read_ended(2);
        syncs.durable(2);
        assert!(is_answered(&mut early) && is_answered(&mut late));
    }
}
