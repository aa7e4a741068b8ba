//! Corrupt rows: each stops what it describes, by name, and everything else goes on. No limit is passed because of one,
//! and it stays in the store until somebody puts it right, or a change of what it describes does.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_harness::resources::{PARENT, every, http, once, policy, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Link, Notes, Releases, Service, wait_for};
use tollgate_proto::v1::{
    CorruptRow, GetEmitterStatusRequest, GetHandlerStatusRequest, ListSchedulesRequest, PauseScheduleRequest,
    ReleaseStatus, ReleaseTokenRequest, ResumeScheduleRequest, RunState,
};
use tonic::{Code, Status};

const LIMIT: u32 = 2;
const EVENTS: u32 = 4;
/// Schedules whose consumers hold two of four events when a row of theirs breaks, and what breaks.
const VICTIMS: [(&str, &str); 6] = [
    ("strange-run", "UPDATE runs SET state = 'DANCING' WHERE schedule_id = 'strange-run'"),
    ("negative-run", "UPDATE runs SET next_index = -1 WHERE schedule_id = 'negative-run'"),
    (
        "spec",
        "UPDATE run_specs SET body = '{' WHERE schedule_uid = (SELECT uid FROM schedules WHERE id = 'spec')",
    ),
    (
        "token",
        "UPDATE token_batches SET gone = substr(gone, 1, 0) \
         WHERE run_id = (SELECT run_id FROM runs WHERE schedule_id = 'token')",
    ),
    (
        "schedule",
        "UPDATE shard_schedules SET body = '[]' WHERE schedule_uid = (SELECT uid FROM schedules WHERE id = 'schedule')",
    ),
    (
        "policy",
        "UPDATE shard_policies SET body = '{}' WHERE policy_uid = (SELECT uid FROM policies WHERE id = 'policy')",
    ),
];
/// Rows that break while nobody holds anything.
const OTHERS: [&str; 3] = [
    "UPDATE schedules SET spec = 'null' WHERE id = 'unread'",
    "UPDATE schedule_children SET rule = 'sometimes' \
     WHERE schedule_uid = (SELECT uid FROM schedules WHERE id = 'childish')",
    // A stop may leave messages that are sound: this one is put in by hand.
    "INSERT INTO shard_inbox (shard_id, message_id, body) SELECT 7, lease_id, '{\"kind\": \"dance\"}' \
     FROM queue_shards WHERE shard_id = 7",
];

struct World {
    database: Database,
    service: Service,
    /// Where the consumer releases.
    link: Link,
    consumer: Consumer,
}

impl World {
    async fn start(kind: Kind) -> Self {
        let database = Database::new(kind).await;
        let service = start(&database).await;
        let link = service.link();
        let consumer =
            Consumer::start(link.clone(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
                "good" | "unread" | "childish" => Conduct::work(1..10),
                _ => Conduct::keep(),
            })
            .await;
        Self { database, service, link, consumer }
    }

    /// Stops the service, does something to its store, and starts it again.
    async fn while_stopped(self, statements: &[&str]) -> Self {
        let Self { database, service, link, consumer } = self;
        service.stop().await;
        for sql in statements {
            assert!(database.sql(sql).await > 0, "nothing was touched by {sql}");
        }
        let service = start(&database).await;
        link.follow(&service);
        Self { database, service, link, consumer }
    }

    async fn release(&self, id: &str) -> Result<ReleaseStatus, Status> {
        let release = ReleaseTokenRequest { name: id.to_owned(), ..ReleaseTokenRequest::default() };
        Ok(self.service.handler().release_token(release).await?.into_inner().status())
    }

    /// Waits until the consumer has got so many events of a schedule, and returns their ids in order of their indexes.
    async fn delivered(&self, schedule: &str, count: usize) -> Vec<String> {
        wait_for(&format!("{count} events of {schedule}"), 20, async || {
            let ids = ids(&self.consumer.notes, schedule);
            (ids.len() >= count).then_some(ids)
        })
        .await
    }

    async fn corrupt_rows(&self) -> (Vec<CorruptRow>, Vec<CorruptRow>) {
        let handler = self.service.handler().get_handler_status(GetHandlerStatusRequest::default()).await;
        let emitter = self.service.emitter().get_emitter_status(GetEmitterStatusRequest {}).await;
        (handler.unwrap().into_inner().corrupt_rows, emitter.unwrap().into_inner().corrupt_rows)
    }

    /// Waits until a healthy schedule has fired so many times more.
    async fn goes_on(&self, times: usize) {
        let before = ids(&self.consumer.notes, "good").len();
        self.delivered("good", before + times).await;
    }
}

async fn start(database: &Database) -> Service {
    Service::start_with(database, &["--window", "1s", "--ahead", "2s"]).await
}

/// The distinct events of a schedule that were delivered, by index.
fn ids(notes: &Notes, schedule: &str) -> Vec<String> {
    let arrivals = notes.arrivals().into_iter().filter(|arrival| arrival.schedule == schedule);
    let ids: BTreeMap<(String, u32), String> =
        arrivals.map(|arrival| ((arrival.run, arrival.index), arrival.event_id)).collect();
    ids.into_values().collect()
}

/// How many rows of each table are named.
fn by_table(rows: &[CorruptRow]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        assert!(!row.key.is_empty() && !row.message.is_empty() && !row.column.is_empty(), "{row:?}");
        *counts.entry(row.table.as_str()).or_default() += 1;
    }
    counts
}

/// A world with healthy schedules, and the events that the consumers of the victims hold.
async fn holding(kind: Kind) -> (World, BTreeMap<&'static str, Vec<String>>) {
    let world = World::start(kind).await;
    for (id, _) in VICTIMS {
        world.service.create_policy(id, policy(LIMIT)).await.unwrap();
        let schedule = once(soon(1_000), EVENTS, id, http(&world.consumer));
        world.service.create_schedule(id, schedule).await.unwrap();
    }
    world.service.create_policy("good", policy(5)).await.unwrap();
    for id in ["good", "unread", "childish"] {
        let schedule = every(1, soon(1_000), 1, "good", http(&world.consumer));
        world.service.create_schedule(id, schedule).await.unwrap();
    }
    for id in ["good", "unread", "childish"] {
        world.delivered(id, 2).await;
    }
    let mut held = BTreeMap::new();
    for (id, _) in VICTIMS {
        held.insert(id, world.delivered(id, LIMIT as usize).await);
    }
    // The schedule's row in its shard exists once it has been paused.
    let name = schedule_name("schedule");
    let pause = PauseScheduleRequest { name: name.clone(), ..PauseScheduleRequest::default() };
    world.service.master().pause_schedule(pause).await.unwrap();
    world
        .service
        .master()
        .resume_schedule(ResumeScheduleRequest { name, ..Default::default() })
        .await
        .unwrap();
    world.goes_on(1).await;
    (world, held)
}

async fn a_corrupt_row_stops_what_it_describes_and_nothing_else(kind: Kind) {
    let (world, held) = holding(kind).await;
    let breaks: Vec<&str> = VICTIMS.iter().map(|(_, sql)| *sql).chain(OTHERS).collect();
    let world = world.while_stopped(&breaks).await;

    // Everything else goes on, and so does the emitter.
    world.goes_on(3).await;
    all_are_named(&world).await;
    lists_leave_out_what_cannot_be_read(&world).await;
    nothing_corrupt_fires(&world, &held).await;
    // Its consumer's release frees a token of a corrupt batch.
    assert_eq!(world.release(&held["token"][0]).await.unwrap(), ReleaseStatus::Released);
    let all = world.delivered("token", 4).await;
    for event in &all[2..] {
        assert_eq!(world.release(event).await.unwrap(), ReleaseStatus::Released);
    }
    let run = world.service.finished("token", 10).await;
    assert_eq!(run.counts.unwrap().succeeded, EVENTS, "each has ended once: {run:?}");
    // A change of the schedule brings a sound row.
    let pause = PauseScheduleRequest { name: schedule_name("schedule"), ..PauseScheduleRequest::default() };
    world.service.master().pause_schedule(pause).await.unwrap();
    let resume = ResumeScheduleRequest { name: schedule_name("schedule"), ..Default::default() };
    world.service.master().resume_schedule(resume).await.unwrap();
    world.delivered("schedule", 4).await;
    repaired(world, &held).await;
}

/// Each corrupt row is named in the status, and once in the log.
async fn all_are_named(world: &World) {
    let named = wait_for("the corrupt rows", 10, async || {
        let (handler, emitter) = world.corrupt_rows().await;
        (handler.len() >= 7 && emitter.len() >= 2).then_some((handler, emitter))
    })
    .await;
    let of_handler = BTreeMap::from([
        ("run_specs", 1),
        ("runs", 2),
        ("shard_inbox", 1),
        ("shard_policies", 1),
        ("shard_schedules", 1),
        ("token_batches", 1),
    ]);
    assert_eq!(by_table(&named.0), of_handler, "{named:?}");
    assert_eq!(by_table(&named.1), BTreeMap::from([("schedule_children", 1), ("schedules", 1)]), "{named:?}");
    assert!(named.0.iter().all(|row| row.shard.is_some()), "{named:?}");
    let log = world.service.log();
    for row in named.0.iter().chain(&named.1) {
        let lines = log
            .lines()
            .filter(|line| line.contains("a corrupt row is passed over") && line.contains(&row.key));
        let lines: Vec<&str> = lines.filter(|line| line.contains(&row.table)).collect();
        assert_eq!(lines.len(), 1, "{row:?} is named once: {lines:#?}");
    }
    assert!(!log.contains("panicked"), "{log}");
}

/// Lists leave out what cannot be read, and nothing else.
async fn lists_leave_out_what_cannot_be_read(world: &World) {
    let list =
        ListSchedulesRequest { parent: PARENT.to_owned(), page_size: 3, ..ListSchedulesRequest::default() };
    let first = world.service.master().list_schedules(list.clone()).await.unwrap().into_inner();
    let mut listed: Vec<String> = first.schedules.into_iter().map(|schedule| schedule.name).collect();
    let mut token = first.next_page_token;
    while !token.is_empty() {
        let page = ListSchedulesRequest { page_token: token, ..list.clone() };
        let page = world.service.master().list_schedules(page).await.unwrap().into_inner();
        listed.extend(page.schedules.into_iter().map(|schedule| schedule.name));
        token = page.next_page_token;
    }
    let mut all: Vec<String> = VICTIMS.iter().map(|(id, _)| schedule_name(id)).collect();
    all.extend(["good", "childish"].map(schedule_name));
    all.sort();
    assert_eq!(listed, all);
    assert!(world.service.runs("strange-run").await.is_empty());
    assert_eq!(world.service.runs("token").await.len(), 1);
}

/// What is corrupt fires nothing, and passes no limit.
async fn nothing_corrupt_fires(world: &World, held: &BTreeMap<&str, Vec<String>>) {
    for (id, before) in held {
        assert_eq!(ids(&world.consumer.notes, id), *before, "{id}");
    }
    let (unread, childish) =
        (ids(&world.consumer.notes, "unread").len(), ids(&world.consumer.notes, "childish").len());
    for id in ["strange-run", "negative-run", "spec"] {
        let refused = world.release(&held[id][0]).await.unwrap_err();
        assert!([Code::Internal, Code::Unavailable].contains(&refused.code()), "{id}: {refused:?}");
        assert!(refused.message().contains("corrupt"), "{id}: {refused:?}");
    }
    // The tokens of a corrupt batch count: one release lets one event through, not two.
    assert_eq!(world.release(&held["token"][1]).await.unwrap(), ReleaseStatus::Released);
    world.delivered("token", 3).await;
    // Events of a policy that cannot be read wait, as do those of such a schedule.
    for id in ["policy", "schedule"] {
        for event in &held[id] {
            assert_eq!(world.release(event).await.unwrap(), ReleaseStatus::Released, "{id}");
        }
    }
    world.goes_on(2).await;
    assert_eq!(ids(&world.consumer.notes, "token").len(), 3);
    for id in ["policy", "schedule", "strange-run", "negative-run", "spec"] {
        assert_eq!(ids(&world.consumer.notes, id).len(), 2, "{id}");
    }
    let fired = |id: &str| ids(&world.consumer.notes, id).len();
    assert_eq!(
        (fired("unread"), fired("childish")),
        (unread, childish),
        "they cannot be read, and do not fire"
    );
}

/// The rows were left as they are; once they are put right, what they describe goes on. The batch was repaired by what
/// became of its events.
async fn repaired(world: World, held: &BTreeMap<&str, Vec<String>>) {
    let mended = [
        "UPDATE runs SET state = 'RUNNING' WHERE state = 'DANCING'",
        "UPDATE runs SET next_index = 2 WHERE next_index = -1",
        "UPDATE shard_policies SET body = (SELECT spec FROM policies WHERE id = 'policy') WHERE body = '{}'",
        "DELETE FROM shard_inbox WHERE body = '{\"kind\": \"dance\"}'",
        "DELETE FROM run_specs WHERE body = '{'",
    ];
    let world = world.while_stopped(&mended).await;
    world.delivered("policy", 4).await;
    for id in ["strange-run", "negative-run"] {
        for event in &held[id] {
            assert_eq!(world.release(event).await.unwrap(), ReleaseStatus::Released, "{id}");
        }
        let all = world.delivered(id, 4).await;
        for event in &all[2..] {
            assert_eq!(world.release(event).await.unwrap(), ReleaseStatus::Released, "{id}");
        }
        let run = world.service.finished(id, 10).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
    }
    // A spec that is missing is named as well.
    wait_for("only what is still corrupt, named", 20, async || {
        let (handler, _) = world.corrupt_rows().await;
        let left: BTreeSet<(&str, &str)> = handler.iter().map(|row| (&*row.table, &*row.column)).collect();
        (left == BTreeSet::from([("run_specs", "body")])).then_some(())
    })
    .await;
    world.service.stop().await;
}

/// A release that was recorded for a run that cannot be read is carried out once it can.
async fn a_recorded_release_waits_for_its_run(kind: Kind) {
    let world = World::start(kind).await;
    for (id, limit) in [("spec", LIMIT), ("good", 5)] {
        world.service.create_policy(id, policy(limit)).await.unwrap();
    }
    let schedule = once(soon(1_000), EVENTS, "spec", http(&world.consumer));
    world.service.create_schedule("spec", schedule).await.unwrap();
    let schedule = every(1, soon(1_000), 1, "good", http(&world.consumer));
    world.service.create_schedule("good", schedule).await.unwrap();
    let held = world.delivered("spec", LIMIT as usize).await;
    world.goes_on(1).await;

    let run = match kind {
        Kind::Sqlite => "lower(hex(run_id))",
        Kind::Postgres => "CAST(run_id AS text)",
    };
    let of_it = "WHERE schedule_uid = (SELECT uid FROM schedules WHERE id = 'spec')";
    let breaks = format!("UPDATE run_specs SET body = '{{' || body {of_it}");
    let mends = format!("UPDATE run_specs SET body = substr(body, 2) {of_it}");
    let (before, after) = (
        r#"{"kind":"release","release":{"run":""#,
        r#"","index":0,"attempt":1,"outcome":"SUCCEEDED","message":""}}"#,
    );
    let recorded = format!(
        "INSERT INTO shard_inbox (shard_id, message_id, body) \
         SELECT shard_id, run_id, '{before}' || {run} || '{after}' FROM runs WHERE schedule_id = 'spec'"
    );
    let world = world.while_stopped(&[breaks.as_str(), recorded.as_str()]).await;
    world.goes_on(3).await;
    assert_eq!(ids(&world.consumer.notes, "spec"), held, "nothing of it goes on");
    let world = world.while_stopped(&[mends.as_str()]).await;
    let all = world.delivered("spec", 3).await;
    assert_eq!(all[..2], held, "its token is free: the next event has come");
    assert_eq!(world.release(&held[0]).await.unwrap(), ReleaseStatus::AlreadyReleased);
    world.service.stop().await;
}

on_both_stores!(a_corrupt_row_stops_what_it_describes_and_nothing_else, a_recorded_release_waits_for_its_run);
