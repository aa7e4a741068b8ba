//! Decides what a trigger may ask for: how many events, when, how urgent, with what payload.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tollgate_core::model::{DAY_US, EVENTS_MAX, Payload, Run, RunKind, RunSpec, SECOND_US, Schedule};
use tollgate_proto::convert::{self, moment, payload, schedule::PRIORITIES};
use tollgate_proto::{FieldError, v1};
use tonic::Status;

use crate::ScheduleMaster;
use crate::requests::Asked;
use crate::secrets::sealed_status;

/// How far ahead a run may be made by hand: a shard remembers for that long that a schedule or a policy has been deleted.
const AHEAD_MAX_US: i64 = DAY_US;
/// How far back a launch time may lie: clocks differ, and calls take their time.
const BACK_MAX_US: i64 = 60 * SECOND_US;
/// Launch times that may take the place of one that is asked for, in microseconds after it.
const PLACES: u128 = 998;

/// A run that is wanted.
pub(crate) struct Wanted {
    events: Option<u32>,
    launch_us: Option<i64>,
    priority: Option<u8>,
    payload: Option<prost_types::Value>,
}

impl Wanted {
    /// What a request asks for.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub(crate) fn read(request: &v1::TriggerScheduleRequest) -> Result<Self, FieldError> {
        if let Some(events) = request.events
            && !(1..=EVENTS_MAX).contains(&events)
        {
            return Err(FieldError::new("events", events, "1 to 10,000,000"));
        }
        let launch_us = convert::optional_time_us("launch_time", request.launch_time.as_ref())?;
        let priority = request.priority.map(|priority| {
            let small = u8::try_from(priority).ok().filter(|_| PRIORITIES.contains(&priority));
            small.ok_or_else(|| FieldError::new("priority", priority, "0 (last) to 9 (first)"))
        });
        // What is merged is checked once more.
        payload::to_core("payload", request.payload.as_ref())?;
        Ok(Self {
            events: request.events,
            launch_us,
            priority: priority.transpose()?,
            payload: request.payload.clone(),
        })
    }

    /// Whether the moment is one for which a run is made; not asked where the run has been made already.
    ///
    /// # Errors
    /// Moments too far back or ahead, in `launch_time`.
    pub(crate) fn check_time(&self, now_us: i64) -> Result<(), FieldError> {
        let Some(launch_us) = self.launch_us else { return Ok(()) };
        let refused = |expected: &str| Err(FieldError::new("launch_time", moment(launch_us), expected));
        if launch_us < now_us - BACK_MAX_US {
            return refused("a moment that is at most a minute ago; runs of the past are made by a backfill");
        }
        if launch_us > now_us + AHEAD_MAX_US {
            return refused(
                "a moment that is at most 24 hours ahead; for a later one make a schedule with the trigger `at`",
            );
        }
        Ok(())
    }

    /// As a request of a schedule that may come again.
    pub(crate) fn asked(&self, request_id: &str, schedule: &Schedule) -> Result<Option<Asked>, FieldError> {
        let given = payload::to_core("payload", self.payload.as_ref())?;
        // It may be a secret, and a long one.
        let digest = self.payload.as_ref().map(|_| {
            let bytes = Sha256::new().chain_update(schedule.uid).chain_update(&given.json).finalize();
            bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        let content = [
            ("events", self.events.map(Value::from)),
            ("launch_time", self.launch_us.map(|us| Value::from(moment(us)))),
            ("priority", self.priority.map(Value::from)),
            ("payload", digest.map(|digest| Value::from(format!("SHA-256 {digest}")))),
        ];
        Asked::read(request_id, "trigger", content)
    }
}

impl ScheduleMaster {
    /// The run that is wanted, and the spec that it has for itself alone where it has a payload of its own.
    pub(crate) fn wanted_run(
        &self,
        schedule: &Schedule,
        wanted: &Wanted,
        now_us: i64,
    ) -> Result<(Run, Option<RunSpec>), Status> {
        if let Some(events) = wanted.events
            && !schedule.payload.items.is_empty()
            && events != schedule.events
        {
            let expected = format!("none, or {}: each event has an item of the schedule", schedule.events);
            return Err(FieldError::new("events", events, expected).into());
        }
        if let Some(events) = wanted.events.filter(|_| schedule.payload.from.is_some()) {
            let expected = "none: as many as its list has when it is fetched";
            return Err(FieldError::new("events", events, expected).into());
        }
        let launch_us = match wanted.launch_us {
            None => self.manual_launch_us(),
            Some(wanted_us) => place_after(wanted_us, self.new_id(now_us).as_u128()),
        };
        let spec =
            wanted.payload.as_ref().map(|patch| self.own_spec(schedule, patch, launch_us)).transpose()?;
        let made = self.run(schedule, launch_us, RunKind::Manual, now_us);
        let run = Run {
            events: wanted.events.unwrap_or(schedule.events),
            priority: wanted.priority.unwrap_or(schedule.priority),
            generation: spec.as_ref().map_or(schedule.generation, |spec| spec.generation),
            ..made
        };
        Ok((run, spec))
    }

    /// The spec of a run whose payload is the schedule's with a patch over it, sealed as the schedule's is.
    fn own_spec(
        &self,
        stored: &Schedule,
        patch: &prost_types::Value,
        launch_us: i64,
    ) -> Result<RunSpec, Status> {
        let opened = self.opened(stored).map_err(|error| sealed_status(stored, &error))?;
        let payload: Payload = payload::merged("payload", &opened.payload, patch)?;
        let mut own = Schedule { payload, ..opened };
        self.seal(&mut own, Some(stored)).map_err(|error| sealed_status(stored, &error))?;
        Ok(RunSpec::of_one_run(&own, launch_us))
    }
}

/// A launch time just after a moment: never a whole second, which may be that of a scheduled run, and hardly ever that of another
/// run by hand. `chance`: any number, another one each time.
fn place_after(wanted_us: i64, chance: u128) -> i64 {
    let us = wanted_us + 1 + i64::try_from(chance % PLACES).unwrap_or_default();
    us + i64::from(us % SECOND_US == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_time_is_at_most_a_millisecond_late_and_no_whole_second() {
        for wanted_us in [0, 999_400, 7 * SECOND_US] {
            for chance in 0..2 * PLACES {
                let late_us = place_after(wanted_us, chance) - wanted_us;
                assert!((1..=1_000).contains(&late_us), "{late_us}");
                assert_ne!(place_after(wanted_us, chance) % SECOND_US, 0);
            }
        }
    }
}
