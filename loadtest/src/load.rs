//! Decides which policies and schedules a variant needs.
//!
//! In: a variant, the round, the consumer's ports. Out: resources to apply, and when they fall due. Every round has
//! schedules of its own, so that one round's runs are never another's.

use chrono_tz::TZ_VARIANTS;
use prost_types::value::Kind as Json;
use prost_types::{Duration, Struct, Timestamp, Value};
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::trigger::Trigger as Rule;
use tollgate_proto::v1::{
    Http2, HttpBatch, HttpTarget, Interval, Item, Items, KeyLimits, OnFinish, Policy, PullTarget,
    ReleaseMode, Schedule, SqsTarget, SubmissionHeader, SubmitItemsRequest, Target, Trigger,
};

use crate::generate::ZONES;
use crate::scenario::{Kind, Variant};
use crate::service::NAMESPACE;
use crate::sink::lane::{Protocol, Release};
use crate::sink::worker;

/// Further ahead than any load test lasts, in seconds.
const NEVER_S: i64 = 300 * 86_400;
/// Schedules that the service can surely apply in a second.
const APPLIED_PER_S: u64 = 1_000;
/// The same of such as fire every few seconds: their runs within the emitted horizon are made at once.
const INTERVALS_APPLIED_PER_S: u64 = 200;
/// Items that the service can surely take in a second.
const SUBMITTED_PER_S: u64 = 20_000;
/// Items of one message.
const ITEMS_AT_ONCE: u32 = 500;

/// One round of one variant.
pub(crate) struct Load<'a> {
    pub(crate) variant: &'a Variant,
    /// Ports of the consumer and of the neighbour's.
    pub(crate) ports: [u16; 2],
    /// Part of the schedules' ids.
    pub(crate) round: u32,
}

impl Load<'_> {
    /// Time that is needed before the first launch, in milliseconds.
    pub(crate) fn lead_ms(&self) -> i64 {
        let schedules = self.schedules_count();
        let is_frequent = self.variant.kind == Kind::Intervals;
        let applied_per_s = if is_frequent { INTERVALS_APPLIED_PER_S } else { APPLIED_PER_S };
        let items = if self.variant.items { self.variant.expected() } else { 0 };
        let apply_ms = schedules * 1_000 / applied_per_s + items * 1_000 / SUBMITTED_PER_S;
        2_500 + i64::try_from(apply_ms).unwrap_or(i64::MAX)
    }

    fn schedules_count(&self) -> u64 {
        let Variant { kind, schedules, policies, per_second, .. } = self.variant;
        match kind {
            Kind::Singles | Kind::Triggered | Kind::Chained => self.variant.expected(),
            Kind::Spaced => u64::from(*per_second).min(SPACED_SCHEDULES.max(u64::from(*schedules))),
            _ => u64::from(*schedules) * u64::from(*policies),
        }
    }

    fn policies_count(&self) -> u32 {
        if self.variant.max_in_flight.is_some() { self.variant.policies } else { 0 }
    }

    /// Everything to apply. The first launch is at the second `start_s`.
    pub(crate) fn resources(&self, start_s: i64) -> Vec<Resource> {
        let mut all = Vec::new();
        for number in 0..self.policies_count() {
            all.push(Resource::Policy(self.policy(number)));
        }
        if self.variant.tree {
            all.extend(self.below_the_root().map(Resource::Policy));
        }
        all.extend(
            (0..self.schedules_count()).map(|number| Resource::Schedule(self.schedule(number, start_s))),
        );
        if self.variant.kind == Kind::Chained {
            let before = |number| Resource::Schedule(self.before(number, start_s));
            all.extend((0..self.schedules_count()).map(before));
        }
        if let Some(beside) = self.variant.beside {
            let target = target(Protocol::Http, self.ports[1], 0, Release::OnResponse);
            all.extend((0..beside.schedules).map(|number| {
                let id = format!("beside-{number}");
                let mut schedule = self.named(&id, vec![at(start_s)], beside.events, target.clone());
                if beside.same_policy {
                    schedule.policy = self.policy_id(0);
                }
                if self.variant.key_each {
                    schedule.key = "beside".to_owned();
                }
                Resource::Schedule(schedule)
            }));
        }
        all
    }

    /// The schedule that is triggered, where that with this number follows one.
    fn before(&self, number: u64, start_s: i64) -> Schedule {
        let target = target(Protocol::Http, self.ports[1], 0, Release::OnResponse);
        let schedule = self.schedule(number, start_s);
        let on_finish = OnFinish { schedule: self.schedule_id(number), ..OnFinish::default() };
        Schedule {
            name: format!("{}-before", schedule.name),
            target: Some(target),
            on_finish: Some(on_finish),
            ..schedule
        }
    }

    /// The id of the schedule that is triggered for the one with this number.
    pub(crate) fn triggered_id(&self, number: u64) -> String {
        let id = self.schedule_id(number);
        if self.variant.kind == Kind::Chained { format!("{id}-before") } else { id }
    }

    /// The schedule with this number.
    pub(crate) fn schedule_id(&self, number: u64) -> String {
        format!("{}-r{}-{number}", self.variant.name, self.round)
    }

    fn policy_id(&self, number: u32) -> String {
        format!("{}-{number}", self.variant.policy.as_ref().unwrap_or(&self.variant.name))
    }

    /// The policy with this number.
    pub(crate) fn policy(&self, number: u32) -> Policy {
        let name = format!("namespaces/{NAMESPACE}/policies/{}", self.policy_id(number));
        let Variant { max_in_flight, max_in_flight_per_key, .. } = *self.variant;
        let of_key = |_| KeyLimits { max_in_flight: max_in_flight_per_key, ..KeyLimits::default() };
        let per_key = max_in_flight_per_key.map(of_key);
        Policy { name, max_in_flight, per_key, ..Policy::default() }
    }

    /// A policy for each schedule, by twos below others, which are below the variant's.
    fn below_the_root(&self) -> impl Iterator<Item = Policy> {
        let below = |id: String, parent: String| Policy {
            name: format!("namespaces/{NAMESPACE}/policies/{id}"),
            parent: Some(parent),
            ..Policy::default()
        };
        let schedules = self.schedules_count();
        let middle = move |pair: u64| below(self.middle_id(pair), self.policy_id(0));
        let leaf = move |number: u64| below(self.leaf_id(number), self.middle_id(number / 2));
        (0..schedules.div_ceil(2)).map(middle).chain((0..schedules).map(leaf))
    }

    fn middle_id(&self, pair: u64) -> String {
        format!("{}-middle-{pair}", self.policy_id(0))
    }

    fn leaf_id(&self, number: u64) -> String {
        format!("{}-leaf-{number}", self.policy_id(0))
    }

    /// How many runs are submitted.
    pub(crate) fn submissions_count(&self) -> u64 {
        if self.variant.items { self.schedules_count() } else { 0 }
    }

    /// What is submitted to the schedule with this number, for the second `start_s`. Keys take turns, so that each has as many.
    pub(crate) fn submission(
        &self,
        number: u64,
        start_s: i64,
    ) -> impl Iterator<Item = SubmitItemsRequest> + use<> {
        let Variant { events, keys, payload_bytes, .. } = *self.variant;
        let header = SubmissionHeader {
            name: format!("namespaces/{NAMESPACE}/schedules/{}", self.schedule_id(number)),
            request_id: "load".to_owned(),
            launch_time: Some(moment(start_s)),
            ..SubmissionHeader::default()
        };
        let item = move |index: u32| {
            let start = format!("{{\"n\":{index},\"pad\":\"");
            let pad = "x".repeat(payload_bytes.saturating_sub(start.len() + 2));
            let key = if keys > 0 { format!("key-{}", index % keys) } else { String::new() };
            Item { data: format!("{start}{pad}\"}}"), key, units: 0 }
        };
        let items = (0..events.div_ceil(ITEMS_AT_ONCE)).map(move |part| {
            let first = part * ITEMS_AT_ONCE;
            Part::Items(Items { items: (first..events.min(first + ITEMS_AT_ONCE)).map(item).collect() })
        });
        std::iter::once(Part::Header(header)).chain(items).map(|part| SubmitItemsRequest { part: Some(part) })
    }

    /// The schedule with this number. The first launch of all is at the second `start_s`.
    pub(crate) fn schedule(&self, number: u64, start_s: i64) -> Schedule {
        let Variant { kind, events, per_second, seconds, every_s, .. } = *self.variant;
        let number_s = i64::try_from(number).unwrap_or(0);
        let group = if self.policies_count() > 0 { number % u64::from(self.policies_count()) } else { 0 };
        let target = target(self.variant.protocol, self.ports[0], group, self.variant.release);
        let id = number.to_string();
        let mut schedule = match kind {
            Kind::Burst if self.variant.items => {
                Schedule { payload: None, ..self.named(&id, vec![at(start_s + NEVER_S)], 1, target) }
            }
            Kind::Burst => self.named(&id, vec![at(start_s)], events, target),
            Kind::Singles => self.named(&id, vec![at(start_s + number_s / i64::from(per_second))], 1, target),
            Kind::Spaced => {
                let events = self.spaced_events(number);
                let spread = Some(Duration { seconds: i64::from(seconds), nanos: 0 });
                Schedule { spread, ..self.named(&id, vec![at(start_s)], events, target) }
            }
            Kind::Triggered | Kind::Chained => self.named(&id, vec![at(start_s + NEVER_S)], 1, target),
            Kind::Intervals => {
                let phase = start_s + number_s % i64::from(every_s);
                let end_s = start_s + i64::from(seconds / every_s * every_s);
                Schedule {
                    start_time: Some(moment(start_s)),
                    end_time: Some(moment(end_s)),
                    ..self.named(&id, vec![every(every_s, phase)], events, target)
                }
            }
            Kind::Apply | Kind::Windows | Kind::Workers | Kind::Polls => {
                let minute = number % 1_440;
                let cron = Rule::Cron(format!("{} {} * * *", minute % 60, minute / 60));
                let day = usize::try_from(number / 1_440).unwrap_or(0);
                let zone = match self.variant.zones {
                    Some(zones) => TZ_VARIANTS[day % zones].name(),
                    None => ZONES[day % ZONES.len()],
                };
                let triggers = vec![Trigger { trigger: Some(cron) }];
                Schedule { time_zone: zone.to_owned(), ..self.named(&id, triggers, events, target) }
            }
        };
        if self.variant.key_each {
            schedule.key = format!("key-{number}");
        }
        if self.policies_count() > 0 {
            schedule.policy = self.policy_id(u32::try_from(group).unwrap_or(0));
        }
        if self.variant.tree {
            schedule.policy = self.leaf_id(number);
        }
        schedule
    }

    /// All of them sum up to what is expected, and no two are the same, so that the events of different schedules hardly
    /// ever fall together.
    fn spaced_events(&self, number: u64) -> u32 {
        let (total, count) = (self.variant.expected(), self.schedules_count());
        let (middle, half) = (total / count, count / 2);
        let uneven = |number: u64| {
            if number < half { middle + number + 1 } else { middle.saturating_sub(number - half + 1) }
        };
        let rest = || total.saturating_sub((0..count - 1).map(uneven).sum());
        u32::try_from(if number + 1 == count { rest() } else { uneven(number) }).unwrap_or(1)
    }

    fn named(&self, id: &str, triggers: Vec<Trigger>, events: u32, target: Target) -> Schedule {
        Schedule {
            name: format!("namespaces/{NAMESPACE}/schedules/{}-r{}-{id}", self.variant.name, self.round),
            triggers,
            events: Some(events),
            target: Some(target),
            payload: Some(payload(self.variant.payload_bytes)),
            ..Schedule::default()
        }
    }
}

/// Schedules that share evenly spaced events, unless the variant has more.
const SPACED_SCHEDULES: u64 = 10;

/// A whole second.
pub(crate) fn moment(second: i64) -> Timestamp {
    Timestamp { seconds: second, nanos: 0 }
}

fn at(second: i64) -> Trigger {
    Trigger { trigger: Some(Rule::At(moment(second))) }
}

fn every(every_s: u32, anchor_s: i64) -> Trigger {
    let every = Some(Duration { seconds: i64::from(every_s), nanos: 0 });
    Trigger { trigger: Some(Rule::Interval(Interval { every, anchor: Some(moment(anchor_s)) })) }
}

fn target(protocol: Protocol, port: u16, group: u64, release: Release) -> Target {
    let place = match protocol {
        Protocol::Http | Protocol::Http2 | Protocol::HttpBatch => TargetKind::Http(HttpTarget {
            url: format!("http://127.0.0.1:{port}/{group}"),
            http2: if protocol == Protocol::Http2 { Http2::PriorKnowledge } else { Http2::Unspecified }
                .into(),
            batch: (protocol == Protocol::HttpBatch)
                .then(|| HttpBatch { max_events: 100, ..HttpBatch::default() }),
            ..HttpTarget::default()
        }),
        Protocol::Sqs => TargetKind::Sqs(SqsTarget {
            queue_url: format!("http://127.0.0.1:{port}/000000000000/q{group}"),
            endpoint_url: format!("http://127.0.0.1:{port}"),
            region: "eu-central-1".to_owned(),
            ..SqsTarget::default()
        }),
        Protocol::Pull => {
            TargetKind::Pull(PullTarget { queue: worker::queue(port), ..PullTarget::default() })
        }
    };
    let mode = match release {
        Release::OnResponse => ReleaseMode::OnResponse,
        Release::Stream | Release::Unary => ReleaseMode::Explicit,
    };
    Target { target: Some(place), release: mode.into() }
}

/// `{"pad":"xxx"}` of this length.
fn payload(bytes: usize) -> Value {
    let pad = Value { kind: Some(Json::StringValue("x".repeat(bytes.saturating_sub(10)))) };
    let fields = [("pad".to_owned(), pad)].into();
    Value { kind: Some(Json::StructValue(Struct { fields })) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn spaced_events_sum_up() {
        let text = "{name: x, kind: spaced, per_second: 200, seconds: 10}";
        let variant: Variant = serde_saphyr::from_str(text).unwrap();
        let load = Load { variant: &variant, ports: [1, 2], round: 1 };
        let all: Vec<u32> = (0..load.schedules_count()).map(|number| load.spaced_events(number)).collect();
        assert_eq!(all.iter().map(|n| u64::from(*n)).sum::<u64>(), variant.expected());
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() >= all.len() - 1, "{all:?}");
    }

    #[test]
    fn a_burst_has_one_schedule_for_each_run() {
        let text = "{name: x, kind: burst, events: 5, schedules: 2, policies: 3, max_in_flight: 4}";
        let variant: Variant = serde_saphyr::from_str(text).unwrap();
        let load = Load { variant: &variant, ports: [1, 2], round: 1 };
        assert_eq!(load.resources(0).len(), 3 + 6);
        assert_eq!(variant.expected(), 30);
    }
}
