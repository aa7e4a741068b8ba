//! Decides what will fall due: the launch index of a namespace, read as the emitter reads it, for hours or days ahead.
//!
//! In: a span of time. Out: events by policy and slot, and how many in the fullest minute of each slot.
//! Invariants: what a window of the emitter would fire is counted, and nothing else; index entries that fire together
//! are worked out once; fires are bounded, and those left out are counted. Nothing is written.
//! Not here: overlap rules, retries, and how long consumers take: demand is what falls due.

use std::collections::{BTreeMap, HashMap, HashSet};

use tokio_util::sync::CancellationToken;
use tollgate_core::emit::{self, Task, Window};
use tollgate_core::model::{DAY_US, SECOND_US};
use tollgate_core::plan::{Child, Exclusion};
use tollgate_proto::convert::{self, names};
use tollgate_proto::{FieldError, v1};
use tollgate_service::status::status;
use tollgate_store::emit::ScannedChild;
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;

const MINUTE_US: i64 = 60 * SECOND_US;
const DAY_MINUTES: i64 = 24 * 60;
/// The longest span.
const DAYS_MAX: i64 = 8;
/// How far before the span launches are looked for of which events fall due in it: as long as a schedule may take to start.
const BEFORE_US: i64 = DAY_US;
/// Index entries of one read.
const PAGE: u32 = 5_000;
/// The most fires that are worked out for one answer.
const FIRES_MAX: u64 = 50_000_000;

/// What is asked for.
struct Asked {
    namespace: String,
    policy: Option<String>,
    window: Window,
    slot_minutes: usize,
    minutes: usize,
}

/// Demand under one policy.
#[derive(Default)]
struct Row {
    /// By minute of the window.
    minutes: Vec<u64>,
    schedules: HashSet<Uuid>,
}

/// What has been counted.
#[derive(Default)]
struct Count {
    rows: BTreeMap<Option<String>, Row>,
    paused: HashSet<Uuid>,
    left_out: u32,
    fires: u64,
}

/// Schedules under one policy that fire together: their events at the launch time, and those that come later.
#[derive(Default)]
struct Share {
    at_once: u64,
    /// Whose they are.
    schedules: Vec<Uuid>,
    /// Those that do not all fall due at the launch time.
    later: Vec<Later>,
}

/// Events of one schedule, and in microseconds: how long after the launch time the first falls due, and over how long they
/// are spread.
#[derive(Clone, Copy)]
struct Later {
    schedule: Uuid,
    events: u64,
    delay_us: i64,
    spread_us: i64,
}

/// An index entry, and the dates on which it does not fire.
type Fired = (Child, Option<Exclusion>);

/// Index entries that fire together, by policy; paused schedules apart.
#[derive(Default)]
struct Together {
    shares: HashMap<Option<String>, Share>,
    paused: Vec<Uuid>,
}

impl ScheduleMaster {
    pub(crate) async fn forecast_demand(
        &self,
        request: v1::ForecastDemandRequest,
        gone: CancellationToken,
    ) -> Result<v1::DemandForecast, Status> {
        let asked = self.asked(&request)?;
        let store = self.store();
        let Window { start_us, end_us } = asked.window;
        let read = Window { start_us: start_us.saturating_sub(BEFORE_US), end_us };
        let mut eligible = emit::eligible("", read);
        for zone in store.zones().await.map_err(status)? {
            eligible.extend(emit::eligible(&zone, read));
        }
        eligible.sort_unstable();
        eligible.dedup();
        let registry = store.registry(&eligible).await.map_err(status)?;
        let mut count = Count::default();
        for task in emit::tasks(read, registry) {
            let groups = self.read(&task, &asked, &mut count, &gone).await?;
            let left = gone.clone();
            let (window, minutes) = (asked.window, asked.minutes);
            // Many fires take long to work out; calls that wait for an answer must not wait for that.
            let work = move || {
                for (fired, together) in groups {
                    if left.is_cancelled() {
                        break;
                    }
                    count.add(&fired, together, window, minutes);
                }
                count
            };
            count = tokio::task::spawn_blocking(work)
                .await
                .map_err(|_| Status::internal("the forecast did not come to its end"))?;
        }
        let mut limits = BTreeMap::new();
        let ids: Vec<String> = count.rows.keys().flatten().cloned().collect();
        for policy in store.policies(&asked.namespace, &ids).await.map_err(status)? {
            limits.insert(policy.id, policy.limits.max_in_flight);
        }
        Ok(shown(&asked, count, &limits))
    }

    fn asked(&self, request: &v1::ForecastDemandRequest) -> Result<Asked, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let policy = match request.policy.as_str() {
            "" => None,
            text => Some(names::policy_within("policy", &namespace, text)?.id),
        };
        let start = convert::optional_time_us("start_time", request.start_time.as_ref())?;
        let start_us = start.unwrap_or_else(|| self.now_us()).div_euclid(MINUTE_US) * MINUTE_US;
        let end = convert::optional_time_us("end_time", request.end_time.as_ref())?;
        let end_us = end.unwrap_or(start_us.saturating_add(DAY_MINUTES * MINUTE_US));
        let minutes = end_us.saturating_sub(start_us).saturating_add(MINUTE_US - 1).div_euclid(MINUTE_US);
        let minutes = usize::try_from(minutes)
            .ok()
            .filter(|minutes| (1..=DAYS_MAX * DAY_MINUTES).contains(&(*minutes as i64)))
            .ok_or_else(|| {
                let given = request.end_time.as_ref().map(ToString::to_string).unwrap_or_default();
                FieldError::new("end_time", given, "after start_time, and at most 8 days after it")
            })?;
        let slot_minutes = match &request.slot {
            None => 1,
            Some(slot) => Some(slot.seconds)
                .filter(|seconds| slot.nanos == 0 && seconds % 60 == 0)
                .map(|seconds| seconds / 60)
                .filter(|minutes| (1..=DAY_MINUTES).contains(minutes))
                .and_then(|minutes| usize::try_from(minutes).ok())
                .ok_or_else(|| FieldError::new("slot", slot, "whole minutes, 1 minute to 1 day"))?,
        };
        // Whole slots: the last one may reach beyond what was asked for.
        let minutes = minutes.div_ceil(slot_minutes) * slot_minutes;
        let end_us = start_us + MINUTE_US * i64::try_from(minutes).unwrap_or_default();
        Ok(Asked { namespace, policy, window: Window { start_us, end_us }, slot_minutes, minutes })
    }

    /// The index entries of one task, those that fire together as one.
    async fn read(
        &self,
        task: &Task,
        asked: &Asked,
        count: &mut Count,
        gone: &CancellationToken,
    ) -> Result<HashMap<Fired, Together>, Status> {
        let mut groups: HashMap<Fired, Together> = HashMap::new();
        let mut checkpoint = None;
        loop {
            if gone.is_cancelled() {
                return Err(Status::cancelled("the caller has gone"));
            }
            let pages = self.store().scan(&[(task, checkpoint)], PAGE).await.map_err(status)?;
            let Some(page) = pages.into_iter().next() else { return Ok(groups) };
            count.left_out = count.left_out.saturating_add(page.corrupt);
            for scanned in page.children {
                let schedule = &scanned.schedule;
                let wanted = asked.policy.is_none() || schedule.policy == asked.policy;
                if wanted && schedule.namespace == asked.namespace {
                    let ScannedChild { child, schedule, .. } = scanned;
                    let exclusion = Exclusion::of(&schedule.timing);
                    let together = groups.entry((child, exclusion)).or_default();
                    if schedule.pause.is_some() {
                        together.paused.push(schedule.uid);
                        continue;
                    }
                    // How many a list has is not known before it is fetched.
                    let (events, delay_us) = (u64::from(schedule.events.max(1)), schedule.start_delay_us());
                    let share = together.shares.entry(schedule.policy).or_default();
                    let spread_us = schedule.spread_s.filter(|_| events > 1).unwrap_or(0) * SECOND_US;
                    if (delay_us, spread_us) == (0, 0) {
                        share.at_once += events;
                        share.schedules.push(schedule.uid);
                    } else {
                        share.later.push(Later { schedule: schedule.uid, events, delay_us, spread_us });
                    }
                }
            }
            checkpoint = page.next;
            if checkpoint.is_none() {
                return Ok(groups);
            }
        }
    }
}

impl Count {
    /// Adds what falls due in the window of index entries that fire together.
    fn add(&mut self, (child, exclusion): &Fired, together: Together, window: Window, minutes: usize) {
        let is_later = together.shares.values().any(|share| !share.later.is_empty());
        let before_us = if is_later { BEFORE_US } else { 0 };
        let read = Window { start_us: window.start_us.saturating_sub(before_us), ..window };
        let launches = match emit::launch_times(child, exclusion.as_ref(), read) {
            Ok(launches) if self.fires + launches.len() as u64 <= FIRES_MAX => launches,
            // Corrupt, or too much for one answer.
            _ => {
                let entries = together.shares.values().map(|share| share.schedules.len() + share.later.len());
                let entries = u32::try_from(entries.sum::<usize>()).unwrap_or(u32::MAX);
                self.left_out = self.left_out.saturating_add(entries);
                return;
            }
        };
        self.fires += launches.len() as u64;
        let inside = launches.partition_point(|launch_us| *launch_us < window.start_us);
        let inside = &launches[inside..];
        if !inside.is_empty() {
            self.paused.extend(together.paused);
        }
        for (policy, share) in together.shares {
            let mut later = share.later;
            later.retain(|later| launches.iter().any(|launch_us| later.is_due_in(*launch_us, window)));
            if (inside.is_empty() || share.at_once == 0) && later.is_empty() {
                continue;
            }
            let row = self.rows.entry(policy).or_default();
            row.minutes.resize(minutes, 0);
            row.schedules.extend(later.iter().map(|later| later.schedule));
            if share.at_once > 0 && !inside.is_empty() {
                row.schedules.extend(share.schedules);
                inside.iter().for_each(|us| put(&mut row.minutes, us - window.start_us, share.at_once));
            }
            for Later { events, delay_us, spread_us, .. } in later {
                for launch_us in &launches {
                    let after_us = launch_us + delay_us - window.start_us;
                    spread(&mut row.minutes, after_us, events, spread_us);
                }
            }
        }
    }
}

impl Later {
    /// Whether any of its events falls due in the window, of a run that is launched then.
    fn is_due_in(&self, launch_us: i64, window: Window) -> bool {
        let first_us = launch_us + self.delay_us;
        first_us < window.end_us && first_us + self.spread_us >= window.start_us
    }
}

/// Adds events at the time `after_us` from the start.
fn put(minutes: &mut [u64], after_us: i64, events: u64) {
    let minute = usize::try_from(after_us.div_euclid(MINUTE_US)).ok();
    if let Some(cell) = minute.and_then(|minute| minutes.get_mut(minute)) {
        *cell += events;
    }
}

/// Adds events that are spaced evenly: event `i` falls due `i * spread_us / events` after the first, which does so at the
/// time `after_us` from the start, or before the start.
fn spread(minutes: &mut [u64], after_us: i64, events: u64, spread_us: i64) {
    // How many fall due before a moment after the first.
    let before = |us: i64| {
        let spread_us = i128::from(spread_us.max(1));
        let due = (i128::from(us) * i128::from(events) + spread_us - 1).div_euclid(spread_us);
        u64::try_from(due.clamp(0, i128::from(events))).unwrap_or_default()
    };
    let first = usize::try_from(after_us.div_euclid(MINUTE_US).max(0)).unwrap_or(usize::MAX);
    let mut done = before(-after_us);
    for (minute, cell) in minutes.iter_mut().enumerate().skip(first) {
        let end_us = i64::try_from(minute + 1).unwrap_or(i64::MAX).saturating_mul(MINUTE_US);
        let due = before(end_us - after_us);
        *cell += due - done;
        done = due;
        if done == events {
            return;
        }
    }
}

fn shown(asked: &Asked, count: Count, limits: &BTreeMap<String, Option<u32>>) -> v1::DemandForecast {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut all = HashSet::new();
    let mut policies = Vec::new();
    for (policy, row) in count.rows {
        let slots = row.minutes.chunks(asked.slot_minutes).zip(0_u32..);
        let slots: Vec<v1::DemandSlot> = slots
            .map(|(minutes, slot)| v1::DemandSlot {
                slot,
                events_count: minutes.iter().sum(),
                minute_max: minutes.iter().max().copied().unwrap_or_default(),
            })
            .filter(|slot| slot.events_count > 0)
            .collect();
        policies.push(v1::PolicyDemand {
            max_in_flight: policy.as_ref().and_then(|id| limits.get(id).copied().flatten()),
            policy: policy.map(|id| names::of_policy(&asked.namespace, &id)).unwrap_or_default(),
            schedules_count: number(row.schedules.len()),
            events_count: row.minutes.iter().sum(),
            slots,
        });
        all.extend(row.schedules);
    }
    v1::DemandForecast {
        start_time: Some(convert::timestamp(asked.window.start_us)),
        end_time: Some(convert::timestamp(asked.window.end_us)),
        slot: Some(convert::duration_of_s(i64::try_from(asked.slot_minutes).unwrap_or_default() * 60)),
        policies,
        schedules_count: number(all.len()),
        paused_count: number(count.paused.len()),
        left_out_count: count.left_out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_events_fall_into_their_minutes() {
        let mut minutes = [0; 4];
        // 0, 24, 48, 72, 96 s after a launch 30 s into the window.
        spread(&mut minutes, MINUTE_US / 2, 5, 2 * MINUTE_US);
        assert_eq!(minutes, [2, 2, 1, 0]);
        spread(&mut minutes, 3 * MINUTE_US, 10, 10 * MINUTE_US);
        assert_eq!(minutes, [2, 2, 1, 1], "what lies beyond the end is not counted");
        spread(&mut minutes, -MINUTE_US / 2, 4, 2 * MINUTE_US);
        assert_eq!(minutes, [4, 3, 1, 1], "what fell due before the start is not counted");
        spread(&mut minutes, 5 * SECOND_US, 3, 0);
        assert_eq!(minutes, [7, 3, 1, 1], "together");
        minutes = [2, 2, 1, 1];
        put(&mut minutes, -1, 7);
        put(&mut minutes, 4 * MINUTE_US, 7);
        assert_eq!(minutes, [2, 2, 1, 1]);
    }
}
