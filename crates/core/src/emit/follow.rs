//! Decides what follows the end of a run: the next run of its chain, a recorded skip, or nothing.
//!
//! In: an end, the schedule that follows as it is now. Out: a [`Next`]. Invariants: the same end gives the same run, however
//! often it is asked; what falls due in a pause, or is missed in an outage, is judged as a launch of that schedule's own. Not
//! here: after what ends another run follows ([`crate::model::FinishCondition`]), writing.

use super::{Fate, Judge};
use crate::model::{Predecessor, Run, RunEnd, RunKind, RunState, Schedule, Skipped};
use crate::plan::{PlanError, home};

/// What follows the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This run.
    Run(Box<Run>),
    /// No run, and that is recorded.
    Skip(Skipped),
    /// Nothing is to follow, or the schedule does not exist any more: the chain ends here.
    Nothing,
}

/// What follows `end`, where `next` is the schedule that it names. `base`: see
/// [`Layout`](crate::plan::Layout).
///
/// # Errors
/// [`PlanError`] where that schedule's timing had to be asked and cannot be read.
pub fn follow(
    end: &RunEnd,
    next: Option<&Schedule>,
    base: u16,
    judge: &mut Judge,
) -> Result<Next, PlanError> {
    let (Some(on_finish), Some(next)) = (&end.next, next) else { return Ok(Next::Nothing) };
    let (launch_us, emitted_us) = (end.launch_us(), judge.now_us());
    // One that was made since under this name follows all the same.
    if next.created_us < launch_us
        && let Fate::Skip(reason) = judge.fate(next, launch_us, None)?
    {
        let schedule_uid = next.uid;
        return Ok(Next::Skip(Skipped { schedule_uid, launch_us, reason, recorded_us: emitted_us }));
    }
    let has_own = next.payload.from.is_some() || !next.payload.items.is_empty();
    // One that has got items of its own since goes by these.
    let items = end.of.items.clone().filter(|_| !has_own);
    let (state, events) = match &items {
        Some(_) => (RunState::Listing, 0),
        None => (RunState::first(next), on_finish.events.filter(|_| !has_own).unwrap_or(next.events)),
    };
    Ok(Next::Run(Box::new(Run {
        shard: home(next, base),
        id: end.next_run(next.uid),
        schedule_uid: next.uid,
        generation: next.generation,
        namespace: next.namespace.clone(),
        schedule_id: next.id.clone(),
        policy_uid: next.policy_uid,
        launch_us,
        events,
        priority: next.priority,
        kind: RunKind::Followed,
        state,
        cursor_in: end.cursor.clone(),
        predecessor: Some(Box::new(Predecessor { items, ..end.of.clone() })),
        emitted_us,
        ..Run::default()
    })))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::model::{
        CatchUp, Counts, FinishCondition, ItemsFrom, MINUTE_US, OnFinish, Pause, ResultItems, RunId,
        SkipReason, Trigger,
    };
    use uuid::Uuid;

    const ENDED_US: i64 = 100 * MINUTE_US;

    fn end(events: Option<u32>) -> RunEnd {
        RunEnd {
            namespace: "default".into(),
            of: Predecessor {
                shard: 3,
                run: RunId::derive(Uuid::from_u128(9), 90 * MINUTE_US),
                schedule_id: "load".into(),
                place: 2,
                state: RunState::Finished,
                counts: Counts { succeeded: 4, ..Counts::default() },
                root: None,
                items: None,
            },
            ended_us: ENDED_US,
            cursor: Some("42".into()),
            next: Some(OnFinish {
                schedule: "report".into(),
                when: FinishCondition::Always,
                events,
                items: None,
            }),
        }
    }

    fn schedule() -> Schedule {
        let yearly = Trigger::Cron { expression: "0 0 1 1 *".into() };
        let schedule = crate::plan::warnings::tests::schedule(yearly);
        Schedule { created_us: 0, events: 2, ..schedule }
    }

    fn next_of(end: &RunEnd, schedule: &Schedule, now_us: i64) -> Next {
        follow(end, Some(schedule), 64, &mut Judge::new(now_us, MINUTE_US)).unwrap()
    }

    fn run_of(end: &RunEnd, schedule: &Schedule) -> Run {
        match next_of(end, schedule, ENDED_US + 5) {
            Next::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_end_makes_the_same_run_that_knows_what_was_before() {
        let run = run_of(&end(None), &schedule());
        assert_eq!((run.kind, run.events, run.place()), (RunKind::Followed, 2, 3));
        assert_eq!((run.launch_us, run.cursor_in.as_deref()), (ENDED_US + 1, Some("42")));
        assert_eq!(run.predecessor.as_deref(), Some(&end(None).of));
        let Next::Run(again) = next_of(&end(None), &schedule(), ENDED_US + MINUTE_US) else { panic!() };
        assert_eq!((again.id, again.shard, again.launch_us), (run.id, run.shard, run.launch_us));
    }

    #[test]
    fn the_number_of_events_is_the_chains_where_the_schedule_has_no_items() {
        assert_eq!(run_of(&end(Some(7)), &schedule()).events, 7);
        let mut listed = schedule();
        listed.events = 0;
        listed.payload.from = Some(Arc::new(ItemsFrom::http("http://a/x".into())));
        let run = run_of(&end(Some(7)), &listed);
        assert_eq!((run.events, run.state), (0, RunState::Listing));
    }

    #[test]
    fn items_from_results_are_listed_unless_the_schedule_has_its_own() {
        let items = Some(Box::new(ResultItems { key_field: "tenant".into(), ..ResultItems::default() }));
        let before = end(None);
        let end = RunEnd { of: Predecessor { items: items.clone(), ..before.of.clone() }, ..before };
        let run = run_of(&end, &schedule());
        assert_eq!((run.events, run.state, run.result_items()), (0, RunState::Listing, items.as_deref()));
        let mut own = schedule();
        own.payload.items = "\t1\n".into();
        let run = run_of(&end, &own);
        assert_eq!((run.events, run.state, run.result_items()), (2, RunState::Emitted, None));
    }

    #[test]
    fn a_pause_an_outage_and_a_deletion_end_the_chain() {
        assert_eq!(follow(&end(None), None, 64, &mut Judge::new(ENDED_US, 0)).unwrap(), Next::Nothing);
        let reason = |next: Next| match next {
            Next::Skip(skipped) => skipped.reason,
            other => panic!("{other:?}"),
        };
        let pause = Pause { reason: String::new(), actor: "a".into(), since_us: ENDED_US - 1 };
        let paused = Schedule { pause: Some(pause), ..schedule() };
        assert_eq!(reason(next_of(&end(None), &paused, ENDED_US + 5)), SkipReason::Paused);
        let strict = Schedule { catch_up: CatchUp::None, ..schedule() };
        let late_us = ENDED_US + 2 * MINUTE_US;
        assert_eq!(reason(next_of(&end(None), &strict, late_us)), SkipReason::Missed);
        // By default a chain goes on after an outage.
        assert!(matches!(next_of(&end(None), &schedule(), late_us), Next::Run(_)));
        // Made anew under its name since.
        let young = Schedule { created_us: ENDED_US + 3, ..paused };
        assert!(matches!(next_of(&end(None), &young, late_us), Next::Run(_)));
    }
}
