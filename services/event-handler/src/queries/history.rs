//! What became of events by steps of time, from what owners have written.
//!
//! In: whose, from, to, the length of a step. Out: a point for each step, also where nothing happened. Not here: what
//! is counted.

use std::collections::HashMap;

use tollgate_core::model::{DAY_US, MINUTE_US, MinuteCounts, SECOND_US};
use tollgate_proto::convert::{self, names};
use tollgate_proto::{FieldError, v1};
use tollgate_service::status::status as store_status;
use tollgate_store::minutes::{HOURS_AFTER_US, Whose};
use tonic::Status;

use crate::Shared;

const HOUR_US: i64 = 60 * MINUTE_US;
/// The most points of an answer.
const POINTS_MAX: i64 = 3_000;
/// As many are enough for a picture.
const POINTS_GOOD: i64 = 300;
/// Steps to choose from where none is asked for.
const STEPS_US: [i64; 6] = [MINUTE_US, 5 * MINUTE_US, 15 * MINUTE_US, HOUR_US, 6 * HOUR_US, DAY_US];
/// So long after its end a minute is written.
const WRITTEN_US: i64 = 5 * SECOND_US;

/// The steps that are asked for: those that begin within a range.
#[derive(Debug, PartialEq, Eq)]
struct Steps {
    from_us: i64,
    to_us: i64,
    step_us: i64,
}

impl Shared {
    /// What became of events. `reach`: the one namespace that the caller reaches.
    pub(crate) async fn list_history(
        &self,
        request: v1::ListHistoryRequest,
        reach: Option<&str>,
    ) -> Result<v1::ListHistoryResponse, Status> {
        let Steps { from_us, to_us, step_us } = steps(&request, self.clock.wall_us())?;
        let whose = self.whose(&request.parent, reach).await?;
        let counts = self.people.minutes(&whose, from_us..to_us, step_us).await.map_err(store_status)?;
        let mut counts: HashMap<i64, MinuteCounts> = counts.into_iter().collect();
        let times = (from_us..to_us).step_by(usize::try_from(step_us).unwrap_or(usize::MAX));
        let points = times.map(|at_us| point(at_us, &counts.remove(&at_us).unwrap_or_default())).collect();
        Ok(v1::ListHistoryResponse { step: Some(convert::duration_of_s(step_us / SECOND_US)), points })
    }

    async fn whose(&self, parent: &str, reach: Option<&str>) -> Result<Whose, Status> {
        if parent.is_empty() {
            return Ok(reach.map_or(Whose::All, |namespace| Whose::Namespace(namespace.to_owned())));
        }
        if !parent.contains("/policies/") {
            return Ok(Whose::Namespace(names::namespace("parent", parent)?));
        }
        let name = names::policy("parent", parent)?;
        let policy = self.people.policy_by_name(&name.namespace, &name.id).await.map_err(store_status)?;
        let policy =
            policy.ok_or_else(|| Status::not_found(format!("parent: there is no policy {parent}")))?;
        Ok(Whose::Policy(policy.uid))
    }
}

fn steps(request: &v1::ListHistoryRequest, now_us: i64) -> Result<Steps, FieldError> {
    let from_us = convert::optional_time_us("from_time", request.from_time.as_ref())?;
    let to_us = convert::optional_time_us("to_time", request.to_time.as_ref())?;
    let to_us = to_us.unwrap_or_else(|| floor(now_us - WRITTEN_US, MINUTE_US));
    let from_us = from_us.unwrap_or(to_us - HOUR_US);
    if from_us >= to_us {
        let given = request.to_time.as_ref().map(ToString::to_string).unwrap_or_default();
        return Err(FieldError::new("to_time", given, "a moment after from_time"));
    }
    let least_us = if from_us < now_us - HOURS_AFTER_US { HOUR_US } else { MINUTE_US };
    let wanted_us = match &request.step {
        Some(step) => asked_us(step)?,
        None => {
            let good = |step_us: &&i64| to_us - from_us <= POINTS_GOOD * **step_us;
            STEPS_US.iter().find(good).copied().unwrap_or(DAY_US)
        }
    };
    let step_us = if wanted_us < least_us { least_us } else { wanted_us };
    let (from_us, to_us) = (floor(from_us, step_us), floor(to_us + step_us - 1, step_us));
    if (to_us - from_us) / step_us > POINTS_MAX {
        let given = format!("{} s", step_us / SECOND_US);
        return Err(FieldError::new("step", given, format!("a step that makes at most {POINTS_MAX} points")));
    }
    Ok(Steps { from_us, to_us, step_us })
}

fn asked_us(step: &prost_types::Duration) -> Result<i64, FieldError> {
    let is_whole = step.nanos == 0 && (60..=86_400).contains(&step.seconds) && step.seconds % 60 == 0;
    if is_whole {
        return Ok(step.seconds * SECOND_US);
    }
    Err(FieldError::new("step", step, "whole minutes, 1 minute to 1 day"))
}

fn floor(us: i64, step_us: i64) -> i64 {
    us - us.rem_euclid(step_us)
}

fn point(at_us: i64, counts: &MinuteCounts) -> v1::HistoryPoint {
    v1::HistoryPoint {
        time: Some(convert::timestamp(at_us)),
        due_count: counts.due,
        started_count: counts.started,
        retried_count: counts.retried,
        succeeded_count: counts.succeeded,
        failed_count: counts.failed,
        dead_count: counts.dead,
        expired_count: counts.expired,
        cancelled_count: counts.cancelled,
        lost_count: counts.lost,
        waiting_count: counts.waiting,
        held_count: counts.held,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Noon of a day, and a little.
    const NOW_US: i64 = 1_795_262_400 * SECOND_US + 33 * SECOND_US;
    const NOON_US: i64 = NOW_US - 33 * SECOND_US;

    fn of(from_us: Option<i64>, to_us: Option<i64>, step_s: Option<i64>) -> Result<Steps, FieldError> {
        let request = v1::ListHistoryRequest {
            parent: String::new(),
            from_time: from_us.map(convert::timestamp),
            to_time: to_us.map(convert::timestamp),
            step: step_s.map(convert::duration_of_s),
        };
        steps(&request, NOW_US)
    }

    #[test]
    fn the_last_hour_is_shown_where_nothing_is_asked_for() {
        let expected = Steps { from_us: NOON_US - HOUR_US, to_us: NOON_US, step_us: MINUTE_US };
        assert_eq!(of(None, None, None).unwrap(), expected);
    }

    #[test]
    fn steps_are_as_long_as_the_time_needs() {
        let step_s = |ago_us: i64| of(Some(NOW_US - ago_us), Some(NOW_US), None).unwrap().step_us / SECOND_US;
        let hours = [1, 5, 6, 24, 49, 24 * 30, 24 * 45].map(|hours| step_s(hours * HOUR_US));
        assert_eq!(hours, [60, 60, 300, 300, 3_600, 21_600, 21_600]);
        let asked = of(Some(NOW_US - 3 * DAY_US), None, Some(60)).unwrap();
        assert_eq!((asked.step_us, asked.from_us % HOUR_US, asked.to_us % HOUR_US), (HOUR_US, 0, 0));
        let whole = of(Some(NOW_US), Some(NOW_US + 1), Some(600)).unwrap();
        assert_eq!(
            whole,
            Steps { from_us: NOON_US, to_us: NOON_US + 10 * MINUTE_US, step_us: 10 * MINUTE_US }
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let field = |asked: Result<Steps, FieldError>| asked.unwrap_err().field;
        assert_eq!(field(of(Some(NOW_US), Some(NOW_US), None)), "to_time");
        for step_s in [0, -60, 59, 61, 86_460] {
            assert_eq!(field(of(None, None, Some(step_s))), "step", "{step_s}");
        }
        assert_eq!(field(of(Some(NOW_US - DAY_US), Some(NOW_US + 2 * DAY_US), Some(60))), "step");
    }
}
