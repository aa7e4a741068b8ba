//! What the campaign asks of the service, and the independent list of what falls due by it.
//!
//! Schedules are made in waves, each with a beginning and an end, so that what must fire is known without any of the
//! service's code: moments, whole seconds of an interval, triggers that were answered, past days of a backfill.

mod special;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost_types::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tollgate_harness::now_us;
use tollgate_harness::resources::{PARENT, every, ms, once, policy_name, schedule_name, us};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::{
    BackfillScheduleRequest, CancelRunRequest, CreatePolicyRequest, CreateScheduleRequest, FinishCondition,
    GetHandlerStatusRequest, HttpBatch, HttpTarget, ItemsFromResults, KeyLimits, ListRunsRequest, OnFinish,
    Policy, PullTarget, Reclaim, ReleaseMode, Schedule, ScheduleItem, SqsTarget, Target,
    TriggerScheduleRequest, UpdatePolicyRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::audit::{Due, Limit, Ordered};
use crate::sink::{DEADLINE, Doors, POLLED, PULLED, Ports, kind};

/// Time between the starts of two waves.
pub(crate) const WAVE: Duration = Duration::from_secs(6);
/// Of each schedule that fires once.
const BURST: u32 = 20;
/// Of the first run of a chain.
const CHAINED: u32 = 6;
/// Seconds for which the others fire, once in each: the waves overlap, so that something is due at any time.
const SECONDS: i64 = 18;
/// Limits of the policy whose limit changes.
const CHANGING: [u32; 2] = [12, 5];
/// A call is repeated this long.
const CALLS_MAX: Duration = Duration::from_secs(45);

/// A policy, and how its events go out.
struct Lane {
    policy: &'static str,
    limit: u32,
    sqs: bool,
    /// Events share requests.
    together: bool,
    on_response: bool,
    /// Whether the limit is strict: no token comes back without its consumer.
    strict: bool,
    /// What each key may have.
    of_key: Option<u32>,
    /// The policy above.
    below: Option<&'static str>,
    /// Workers of the queue that is called as the policy take its events.
    pulled: bool,
}

/// Policies that are above others: what each is called, has, and is below.
const ABOVE: [(&str, u32, Option<&str>); 2] = [("tree", 14, None), ("tree-middle", 8, Some("tree"))];

/// The keys of schedules under policies that count by key; one has none.
const KEYS: [&str; 3] = ["acme", "zeta", ""];

fn always(policy: &str, max: u32) -> Limit {
    Limit { policy: policy.to_owned(), max, from_us: 0, until_us: i64::MAX }
}

const fn strict(policy: &'static str, limit: u32) -> Lane {
    Lane {
        policy,
        limit,
        sqs: false,
        together: false,
        on_response: false,
        strict: true,
        of_key: None,
        below: None,
        pulled: false,
    }
}

const LANES: [Lane; 14] = [
    strict("strict-a", 6),
    Lane { below: Some("tree-middle"), ..strict("strict-b", 6) },
    Lane { below: Some("tree-middle"), ..strict("strict-c", 4) },
    Lane { of_key: Some(3), below: Some("tree"), ..strict("strict-d", 8) },
    Lane { of_key: Some(1), ..strict("strict-e", 6) },
    strict("changing", CHANGING[0]),
    Lane { on_response: true, ..strict("sync", 8) },
    Lane { sqs: true, ..strict("queue", 10) },
    Lane { together: true, ..strict("together", 10) },
    Lane { together: true, on_response: true, ..strict("together-sync", 10) },
    Lane { strict: false, ..strict(crate::sink::SILENT, 20) },
    Lane { pulled: true, ..strict(PULLED, 8) },
    // What is lost with the answer of a poll comes again after its time.
    Lane { pulled: true, strict: false, ..strict(POLLED, 6) },
    // Without a policy.
    Lane { on_response: true, strict: false, ..strict("", 0) },
];

/// The maker of work. Clones share it.
#[derive(Clone)]
pub(crate) struct Load {
    doors: Doors,
    sink: SocketAddr,
    ports: Ports,
    ordered: Arc<Mutex<Ordered>>,
    healthy: Arc<Mutex<Vec<special::Healthy>>>,
    /// Held while the wall clock is to be left alone.
    pub(crate) clock: Arc<tokio::sync::RwLock<()>>,
}

impl Load {
    /// Makes the policies.
    pub(crate) async fn start(doors: Doors, sink: SocketAddr, ports: Ports) -> Result<Self, Status> {
        let (ordered, healthy, clock) = (Arc::default(), Arc::default(), Arc::default());
        let load = Self { doors, sink, ports, ordered, healthy, clock };
        for (id, limit, parent) in ABOVE {
            let parent = parent.map(str::to_owned);
            load.create(id, Policy { max_in_flight: Some(limit), parent, ..Policy::default() }).await?;
            load.ordered().limits.push(always(id, limit));
        }
        for lane in LANES.iter().filter(|lane| !lane.policy.is_empty()) {
            let reclaim = if lane.strict { Reclaim::Never } else { Reclaim::AfterTtl };
            let policy = Policy {
                max_in_flight: Some(lane.limit),
                reclaim: reclaim.into(),
                token_ttl: Some(ms(2_000)),
                suspect_period: Some(ms(1_000)),
                per_key: lane
                    .of_key
                    .map(|max| KeyLimits { max_in_flight: Some(max), ..KeyLimits::default() }),
                parent: lane.below.map(str::to_owned),
                floor: lane.below.map(|_| 2),
                ..Policy::default()
            };
            load.create(lane.policy, policy).await?;
            if let Some(max) = lane.of_key {
                load.ordered().key_limits.insert(lane.policy.to_owned(), max);
            }
            if lane.strict {
                load.ordered().limits.push(always(lane.policy, lane.limit));
            }
        }
        Ok(load)
    }

    async fn create(&self, id: &str, policy: Policy) -> Result<(), Status> {
        if let Some(parent) = &policy.parent {
            self.ordered().above.insert(id.to_owned(), parent.clone());
        }
        let request = CreatePolicyRequest {
            parent: PARENT.to_owned(),
            policy_id: id.to_owned(),
            policy: Some(policy),
            ..CreatePolicyRequest::default()
        };
        let made = self.repeat(request, |channel, request| async {
            ScheduleMasterServiceClient::new(channel).create_policy(request).await
        });
        made.await.map(drop)
    }

    /// What has been ordered.
    pub(crate) fn ordered(&self) -> MutexGuard<'_, Ordered> {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events are due and wait; none where the process that was asked does not answer.
    pub(crate) async fn waiting(&self) -> Option<u64> {
        let mut handler = EventHandlerServiceClient::new(self.doors.any());
        let answer = handler.get_handler_status(GetHandlerStatusRequest::default()).await;
        answer.ok().map(|answer| answer.into_inner().waiting_count)
    }

    /// Makes the schedules of a wave.
    pub(crate) async fn wave(&self, wave: usize, seed: u64) {
        let _clock = self.clock.read().await;
        let mut random = StdRng::seed_from_u64(seed ^ (wave as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut made = Vec::new();
        for (number, lane) in LANES.iter().enumerate() {
            // Some lie beyond what has been emitted ahead, and are found by the emitters' scans.
            let ahead_s = if random.random_bool(0.4) { 14 } else { 3 };
            let start = Timestamp { seconds: now_us() / 1_000_000 + ahead_s, nanos: 0 };
            let burst = self.finish(once(start, BURST, lane.policy, self.target(lane)), lane);
            let id = format!("w{wave:04}-{number}-burst");
            made.push(Box::pin(self.make(id, burst, vec![us(Some(start))], BURST)));
            let interval = self.finish(every(1, start, 1, lane.policy, self.target(lane)), lane);
            let end = Timestamp { seconds: start.seconds + SECONDS, nanos: 0 };
            let launches = (start.seconds..end.seconds).map(|second| second * 1_000_000).collect();
            let interval = Schedule { end_time: Some(end), ..interval };
            let id = format!("w{wave:04}-{number}-each");
            made.push(Box::pin(self.make(id, interval, launches, 1)));
        }
        self.chain(wave, &mut random).await;
        let by_hand = wave % LANES.len();
        for part in made.chunks_mut(4) {
            futures::future::join_all(part.iter_mut()).await;
        }
        drop(made);
        match wave % 3 {
            0 => self.manual(wave, &LANES[by_hand]).await,
            1 => self.backfill(wave, &LANES[by_hand]).await,
            _ => {}
        }
    }

    /// A run whose results are the items of the next one, which workers take.
    async fn chain(&self, wave: usize, random: &mut StdRng) {
        let by = |policy| LANES.iter().find(|lane| lane.policy == policy).unwrap_or(&LANES[0]);
        let (first, next) = (&LANES[random.random_range(0..6)], by(PULLED));
        let ids = (format!("w{wave:04}{}", kind::CHAIN), format!("w{wave:04}-next"));
        let schedule = Schedule {
            policy: next.policy.to_owned(),
            target: Some(self.target(next)),
            ..Schedule::default()
        };
        // What follows falls due when what it follows has ended, whenever that is.
        self.ordered().by_hand.insert(ids.1.clone());
        if !self.make(ids.1.clone(), self.finish(schedule, next), Vec::new(), 1).await {
            return;
        }
        let start = Timestamp { seconds: now_us() / 1_000_000 + 3, nanos: 0 };
        let on_finish = OnFinish {
            schedule: ids.1.clone(),
            when: FinishCondition::Always.into(),
            items_from_results: Some(ItemsFromResults::default()),
            ..OnFinish::default()
        };
        let schedule = Schedule {
            on_finish: Some(on_finish),
            ..self.finish(once(start, CHAINED, first.policy, self.target(first)), first)
        };
        self.ordered().chains.insert(ids.0.clone(), ids.1);
        self.make(ids.0, schedule, vec![us(Some(start))], CHAINED).await;
    }

    /// A run that is cancelled while its events are being released.
    pub(crate) async fn cancelled_batch(&self, number: usize, lane: usize, after: Duration) -> bool {
        let lane = &LANES[lane % 6];
        let start = Timestamp { seconds: now_us() / 1_000_000 + 2, nanos: 0 };
        let schedule = self.finish(once(start, 4 * BURST, lane.policy, self.target(lane)), lane);
        let id = format!("cancelled-{number}");
        self.ordered().cancelled.insert(id.clone());
        self.make(id.clone(), schedule, vec![us(Some(start))], 4 * BURST).await;
        let wait_us = us(Some(start)) - now_us();
        tokio::time::sleep(Duration::from_micros(u64::try_from(wait_us).unwrap_or_default()) + after).await;
        let request = ListRunsRequest {
            parent: PARENT.to_owned(),
            filter: format!("schedule={id}"),
            ..ListRunsRequest::default()
        };
        let listed = self
            .repeat(request, |channel, request| async {
                EventHandlerServiceClient::new(channel).list_runs(request).await
            })
            .await;
        let Some(run) = listed.ok().and_then(|answer| answer.into_inner().runs.into_iter().next()) else {
            return false;
        };
        let request = CancelRunRequest { name: run.name, reason: "the campaign".to_owned() };
        self.repeat(request, |channel, request| async {
            EventHandlerServiceClient::new(channel).cancel_run(request).await
        })
        .await
        .is_ok()
    }

    /// Changes a limit, to the lower or back.
    pub(crate) async fn change_limit(&self, lower: bool) -> bool {
        let max = CHANGING[usize::from(lower)];
        let limit = Limit { policy: "changing".to_owned(), max, from_us: now_us(), until_us: i64::MAX };
        self.ordered().limits.push(limit);
        let request = UpdatePolicyRequest {
            policy: Some(Policy {
                name: policy_name("changing"),
                max_in_flight: Some(max),
                ..Policy::default()
            }),
            update_mask: Some(prost_types::FieldMask { paths: vec!["max_in_flight".to_owned()] }),
            ..UpdatePolicyRequest::default()
        };
        let changed = self
            .repeat(request, |channel, request| async {
                ScheduleMasterServiceClient::new(channel).update_policy(request).await
            })
            .await;
        if changed.is_ok() {
            // The owner hears of it a moment later.
            let now_us = now_us() + 5_000_000;
            let mut ordered = self.ordered();
            let older = ordered.limits.iter_mut().filter(|limit| limit.policy == "changing");
            for limit in older.filter(|limit| limit.max != max && limit.until_us == i64::MAX) {
                limit.until_us = now_us;
            }
        }
        changed.is_ok()
    }

    /// Something that falls due in the future, and at once if the wall clock jumps there.
    pub(crate) async fn future(&self, ahead_s: i64) {
        for (number, lane) in LANES.iter().enumerate() {
            let start = Timestamp { seconds: now_us() / 1_000_000 + ahead_s, nanos: 0 };
            let schedule = self.finish(once(start, BURST, lane.policy, self.target(lane)), lane);
            self.make(format!("future-{number}"), schedule, vec![us(Some(start))], BURST).await;
        }
    }

    async fn manual(&self, wave: usize, lane: &Lane) {
        let id = format!("w{wave:04}-manual");
        let far = Timestamp { seconds: now_us() / 1_000_000 + 40 * 86_400, nanos: 0 };
        let schedule = self.finish(once(far, BURST, lane.policy, self.target(lane)), lane);
        // Before any call: what is delivered meanwhile was asked for.
        self.ordered().by_hand.insert(id.clone());
        if !self.make(id.clone(), schedule, Vec::new(), BURST).await {
            return;
        }
        let request = TriggerScheduleRequest { name: schedule_name(&id), events: None, ..Default::default() };
        // Not repeated: each call makes a run of its own, also one that is not answered.
        let mut master = ScheduleMasterServiceClient::new(self.doors.any());
        if let Ok(answer) = master.trigger_schedule(request).await {
            let launch_us = us(answer.into_inner().launch_time);
            self.ordered().due.push(Due { schedule: id, launch_us, events: BURST, required: true });
        }
    }

    async fn backfill(&self, wave: usize, lane: &Lane) {
        const DAY_S: i64 = 86_400;
        let id = format!("w{wave:04}-backfill");
        let now_s = now_us() / 1_000_000;
        let anchor = Timestamp { seconds: now_s - 4 * DAY_S - DAY_S / 2, nanos: 0 };
        let mut schedule = self.finish(every(DAY_S, anchor, 3, lane.policy, self.target(lane)), lane);
        schedule.start_time = None;
        if !self.make(id.clone(), schedule, Vec::new(), 3).await {
            return;
        }
        let request = BackfillScheduleRequest {
            name: schedule_name(&id),
            start_time: Some(Timestamp { seconds: now_s - 5 * DAY_S, nanos: 0 }),
            end_time: Some(Timestamp { seconds: now_s, nanos: 0 }),
            priority: None,
            ..Default::default()
        };
        let done = self
            .repeat(request, |channel, request| async {
                ScheduleMasterServiceClient::new(channel).backfill_schedule(request).await
            })
            .await;
        let required = done.is_ok();
        for days in 0..5 {
            let launch_us = (anchor.seconds + days * DAY_S) * 1_000_000;
            self.ordered().due.push(Due { schedule: id.clone(), launch_us, events: 3, required });
        }
    }

    /// Makes a schedule. What falls due before the answer may or may not fire.
    async fn make(&self, id: String, schedule: Schedule, launches_us: Vec<i64>, events: u32) -> bool {
        // Before any call: it may be delivered before that is answered.
        let of_all = schedule.units.unwrap_or(1);
        let units = schedule.items.iter().map(|item| if item.units == 0 { of_all } else { item.units });
        let units: Vec<u32> = if schedule.items.is_empty() { vec![of_all] } else { units.collect() };
        self.ordered().units.insert(id.clone(), units);
        let request = CreateScheduleRequest {
            parent: PARENT.to_owned(),
            schedule_id: id.clone(),
            schedule: Some(schedule),
            ..CreateScheduleRequest::default()
        };
        let made = self
            .repeat(request, |channel, request| async {
                ScheduleMasterServiceClient::new(channel).create_schedule(request).await
            })
            .await;
        let is_there = match &made {
            Ok(_) => true,
            Err(status) => status.code() == Code::AlreadyExists,
        };
        let known_us = now_us();
        let mut ordered = self.ordered();
        ordered.made += usize::from(is_there);
        for launch_us in launches_us {
            let required = is_there && launch_us > known_us;
            ordered.due.push(Due { schedule: id.clone(), launch_us, events, required });
        }
        is_there
    }

    /// Calls one process after the other until one answers.
    async fn repeat<Q, A, F>(&self, request: Q, call: impl Fn(Channel, Q) -> F) -> Result<A, Status>
    where
        Q: Clone,
        F: Future<Output = Result<A, Status>>,
    {
        let end = std::time::Instant::now() + CALLS_MAX;
        loop {
            let error = match Box::pin(call(self.doors.any(), request.clone())).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_answer = matches!(
                error.code(),
                Code::AlreadyExists | Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition
            );
            if is_answer || std::time::Instant::now() > end {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn target(&self, lane: &Lane) -> Target {
        let release = if lane.on_response { ReleaseMode::OnResponse } else { ReleaseMode::Explicit };
        let deadline = Some(ms(i64::try_from(DEADLINE.as_millis()).unwrap_or(1_000)));
        let place = if lane.pulled {
            let requires = if lane.strict { vec!["campaign".to_owned()] } else { Vec::new() };
            TargetKind::Pull(PullTarget { queue: lane.policy.to_owned(), requires, deadline })
        } else if lane.sqs {
            TargetKind::Sqs(SqsTarget {
                queue_url: format!("http://{}/1/queue", self.sink),
                endpoint_url: format!("http://{}", self.sink),
                region: "eu-central-1".to_owned(),
                deadline,
                ..SqsTarget::default()
            })
        } else {
            let url = format!("http://{}/work", self.sink);
            let batch = lane.together.then(|| HttpBatch { max_events: 8, ..HttpBatch::default() });
            TargetKind::Http(HttpTarget { url, deadline, batch, ..HttpTarget::default() })
        };
        Target { target: Some(place), release: release.into() }
    }

    /// What all schedules of the campaign have in common: they never give up, and catch up with everything.
    fn finish(&self, schedule: Schedule, lane: &Lane) -> Schedule {
        debug_assert_eq!(schedule.policy, lane.policy);
        if lane.of_key.is_none() && lane.below.is_none() {
            return special::with_attempts(schedule, 1_000);
        }
        let any_key = || match lane.of_key {
            Some(_) => KEYS[rand::random_range(0..KEYS.len())].to_owned(),
            None => String::new(),
        };
        // Up to as many tokens as there may be, of a key or of the policy.
        let units_max = lane.of_key.unwrap_or(4).min(lane.limit);
        let units = || if rand::random() { rand::random_range(1..=units_max) } else { 0 };
        let of_all = rand::random_range(1..=units_max.min(2));
        // Of every other one, each event has an item, and counts as the key of that.
        let has_items = rand::random();
        let count = schedule.events.filter(|_| has_items).unwrap_or_default();
        let item = |at: u32| {
            let data = Some(prost_types::Value::from(f64::from(at)));
            ScheduleItem { data, key: any_key(), units: units() }
        };
        let items = (0..count).map(item).collect();
        special::with_attempts(Schedule { key: any_key(), items, units: Some(of_all), ..schedule }, 1_000)
    }
}
