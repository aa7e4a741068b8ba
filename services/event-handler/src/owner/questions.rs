//! Answers what an owner is asked of its shard: by people, by other processes, for metrics and troubles.
//!
//! In: questions; the machine. Out: answers. What is asked changes nothing but what is counted; with the counts of a minute goes
//! what the desk remembers of events that have ended.

use tollgate_core::model::Now;

use super::{Life, Owner};
use crate::routes::Question;

impl Owner {
    /// Whoever asked may have gone, and needs no answer.
    pub(super) fn answer(&mut self, life: &mut Life, question: Question, now: Now) {
        match question {
            Question::Explain { run, index, reply } => {
                let _gone = reply.send(life.machine().explain(run, index, now));
            }
            Question::Outstanding { runs, reply } => {
                let machine = life.machine();
                let counts = runs.iter().map(|run| machine.outstanding(*run));
                let both = counts.zip(machine.outlooks(&runs, now));
                let _gone = reply.send(both.map(|(counts, outlook)| counts.zip(outlook)).collect());
            }
            Question::Keys { policy, reply } => {
                let _gone = reply.send(life.machine().key_counts(policy, now));
            }
            Question::Status { busy_only, reply } => {
                let machine = life.machine();
                let status = if busy_only { machine.busy_status(now) } else { machine.status(now) };
                let _gone = reply.send(status);
            }
            Question::CountMinutes { reply } => {
                self.shared.minutes.put(life.take_minutes(self.lease.epoch, now));
                let machine = life.machine();
                let attempt = |run, index| machine.pulled(run, index).map(|event| event.attempt);
                self.shared.desk.look(self.lease.shard, attempt);
                let _gone = reply.send(());
            }
            Question::Sight { unable, reply } => {
                let mut sight = life.machine().sight(now);
                life.machine().see_unserved(&mut sight, &unable, now);
                let _gone = reply.send(sight);
            }
        }
    }
}
