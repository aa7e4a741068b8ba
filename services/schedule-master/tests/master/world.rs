//! A Schedule Master behind a real gRPC server, over SQLite in a directory of its own.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::allow_attributes,
    reason = "each test uses its part"
)]

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_clock::Clock;
use tollgate_core::emit::Window;
use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{MINUTE_US, SECOND_US};
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::schedule_master_service_server::ScheduleMasterServiceServer;
use tollgate_proto::{json as proto_json, v1};
use tollgate_schedule_master::{Options, ScheduleMaster};
use tollgate_store::Store;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// 2026-03-02 10:00:00.5 UTC, a Monday.
pub const NOW_US: i64 = 1_772_445_600 * SECOND_US + SECOND_US / 2;
/// The whole second before.
pub const NOW_S: i64 = 1_772_445_600;
pub const PARENT: &str = "namespaces/default";

pub type Client = ScheduleMasterServiceClient<Channel>;

pub struct World {
    pub client: Client,
    pub master: ScheduleMaster,
    pub store: Arc<dyn Store>,
    pub clock: Clock,
    pub woken: Arc<Mutex<Vec<u16>>>,
    pub shards: u16,
    _directory: Arc<tempfile::TempDir>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tollgate.db");
        let store = tollgate_store::open(path.to_str().unwrap(), 4).await.unwrap();
        Self::over(store, Arc::new(directory), Clock::manual(NOW_US), options).await
    }

    /// Another Schedule Master over the same store.
    pub async fn beside(&self, options: Options) -> Self {
        Self::over(Arc::clone(&self.store), Arc::clone(&self._directory), self.clock.clone(), options).await
    }

    async fn over(
        store: Arc<dyn Store>,
        directory: Arc<tempfile::TempDir>,
        clock: Clock,
        options: Options,
    ) -> Self {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let wake = {
            let woken = Arc::clone(&woken);
            Arc::new(move |shard| woken.lock().unwrap().push(shard))
        };
        let master = ScheduleMaster::new(Arc::clone(&store), clock.clone(), wake, options).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let service = ScheduleMasterServiceServer::new(master.clone());
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let client = Client::connect(address).await.unwrap();
        let shards = store.installation().await.unwrap().shards;
        Self { client, master, store, clock, woken, shards, _directory: directory }
    }

    /// Opens one window, up to so many minutes after the whole second before now.
    pub async fn open_window(&self, minutes: i64) -> i64 {
        let start_us = NOW_S * SECOND_US;
        let window = Window { start_us, end_us: start_us + minutes * MINUTE_US };
        assert!(self.store.open_window(window, &[], NOW_US).await.unwrap());
        window.end_us
    }

    pub async fn create(&mut self, id: &str, schedule: Value) -> Result<v1::Schedule, Status> {
        let schedule = Some(self::schedule(schedule));
        let request = v1::CreateScheduleRequest {
            parent: PARENT.to_owned(),
            schedule_id: id.to_owned(),
            schedule,
            validate_only: false,
        };
        Ok(self.client.create_schedule(as_alice(request)).await?.into_inner())
    }

    pub async fn create_policy(&mut self, id: &str, policy: Value) -> Result<v1::Policy, Status> {
        let policy = Some(proto_json::from_json(policy).unwrap());
        let request = v1::CreatePolicyRequest {
            parent: PARENT.to_owned(),
            policy_id: id.to_owned(),
            policy,
            validate_only: false,
        };
        Ok(self.client.create_policy(as_alice(request)).await?.into_inner())
    }

    pub async fn get(&mut self, id: &str) -> Result<v1::Schedule, Status> {
        let request = v1::GetScheduleRequest { name: name(id) };
        Ok(self.client.get_schedule(request).await?.into_inner())
    }

    pub async fn update(&mut self, id: &str, schedule: Value, mask: &[&str]) -> Result<v1::Schedule, Status> {
        let mut schedule = self::schedule(schedule);
        schedule.name = name(id);
        let paths = mask.iter().map(|path| (*path).to_owned()).collect();
        let update_mask = Some(prost_types::FieldMask { paths });
        let request =
            v1::UpdateScheduleRequest { schedule: Some(schedule), update_mask, validate_only: false };
        Ok(self.client.update_schedule(as_alice(request)).await?.into_inner())
    }

    pub async fn pause(&mut self, id: &str, reason: &str) -> v1::Schedule {
        let request =
            v1::PauseScheduleRequest { name: name(id), reason: reason.to_owned(), ..Default::default() };
        self.client.pause_schedule(as_alice(request)).await.unwrap().into_inner()
    }

    pub async fn resume(&mut self, id: &str) -> v1::Schedule {
        let request = v1::ResumeScheduleRequest { name: name(id), ..Default::default() };
        self.client.resume_schedule(as_alice(request)).await.unwrap().into_inner()
    }

    pub async fn delete(&mut self, id: &str, etag: &str) -> Result<(), Status> {
        let request =
            v1::DeleteScheduleRequest { name: name(id), etag: etag.to_owned(), ..Default::default() };
        self.client.delete_schedule(as_alice(request)).await.map(drop)
    }

    pub async fn apply(
        &mut self,
        requests: Vec<v1::ApplyResourcesRequest>,
    ) -> Result<v1::ApplyResourcesResponse, Status> {
        let stream = tokio_stream::iter(requests);
        Ok(self.client.apply_resources(as_alice(stream)).await?.into_inner())
    }

    pub async fn ids(&mut self, filter: &str) -> Vec<String> {
        let request = v1::ListSchedulesRequest {
            parent: PARENT.to_owned(),
            page_size: 1000,
            filter: filter.to_owned(),
            ..Default::default()
        };
        let answer = self.client.list_schedules(request).await.unwrap().into_inner();
        answer.schedules.iter().map(|row| row.name.rsplit('/').next().unwrap().to_owned()).collect()
    }

    pub async fn audit(&mut self, filter: &str) -> Vec<v1::AuditEntry> {
        let request = v1::ListAuditEntriesRequest {
            parent: PARENT.to_owned(),
            page_size: 1000,
            filter: filter.to_owned(),
            ..Default::default()
        };
        self.client.list_audit_entries(request).await.unwrap().into_inner().audit_entries
    }

    pub async fn skipped(&mut self, id: &str) -> Vec<(i64, i32)> {
        let request =
            v1::ListSkippedTriggersRequest { parent: name(id), page_size: 1000, ..Default::default() };
        let answer = self.client.list_skipped_triggers(request).await.unwrap().into_inner();
        let row = |row: &v1::SkippedTrigger| (row.launch_time.unwrap().seconds - NOW_S, row.reason);
        answer.skipped_triggers.iter().map(row).collect()
    }

    /// All that waits in the inboxes.
    pub async fn inbox(&self) -> Vec<(u16, Message)> {
        let mut found = Vec::new();
        for shard in 0..self.shards {
            let messages = self.store.inbox(shard, 10_000).await.unwrap();
            found.extend(messages.into_iter().map(|message| (shard, message)));
        }
        found
    }

    /// What waits in the inboxes about generation `generation` of schedules.
    pub async fn told(&self, generation: i64) -> Vec<Told> {
        let told = self.inbox().await.into_iter().filter_map(|(shard, message)| match message.control {
            Control::ScheduleChanged { schedule, onward, schedule_id, policy_uid, .. } => {
                Some(Told { shard, id: message.id, schedule, onward, schedule_id, policy_uid })
            }
            _ => None,
        });
        told.filter(|told| told.schedule.generation == generation).collect()
    }

    /// Everything that a refused call must leave alone.
    pub async fn state(&mut self) -> String {
        let schedules = self.store.list_schedules("default", &Default::default(), None, 1000).await.unwrap();
        let policies = self.store.list_policies("default", &Default::default(), None, 1000).await.unwrap();
        let audit = self.store.audit("default", &Default::default(), None, 10_000).await.unwrap();
        let runs = self.store.list_runs("default", &Default::default(), None, 10_000).await.unwrap();
        let registry = self.store.registry(&[]).await.unwrap();
        format!("{schedules:?}{policies:?}{audit:?}{runs:?}{registry:?}{:?}", self.inbox().await)
    }
}

/// A `ScheduleChanged` in an inbox.
#[derive(Debug)]
pub struct Told {
    pub shard: u16,
    pub id: uuid::Uuid,
    pub schedule: ShardSchedule,
    pub onward: Vec<u16>,
    pub schedule_id: String,
    pub policy_uid: Option<uuid::Uuid>,
}

impl Told {
    /// Launch times in seconds after [`NOW_S`].
    pub fn launches(&self) -> Vec<i64> {
        self.schedule.launches_us.iter().map(|us| us / SECOND_US - NOW_S).collect()
    }
}

pub fn name(id: &str) -> String {
    format!("{PARENT}/schedules/{id}")
}

pub fn policy_name(id: &str) -> String {
    format!("{PARENT}/policies/{id}")
}

pub fn as_alice<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("tollgate-actor", "alice".parse().unwrap());
    request
}

/// A schedule that fires every minute; `with` replaces and adds fields.
pub fn schedule(with: Value) -> v1::Schedule {
    let mut all = json!({
        "triggers": [{"cron": "* * * * *"}],
        "target": {"http": {"url": "http://127.0.0.1:9/"}},
    });
    for (key, value) in with.as_object().unwrap() {
        all[key] = value.clone();
    }
    proto_json::from_json(all).unwrap()
}

pub fn given_schedule(id: &str, source: &str, with: Value) -> v1::ApplyResourcesRequest {
    let mut schedule = schedule(with);
    schedule.name = id.to_owned();
    given(source, v1::apply_resources_request::Resource::Schedule(schedule))
}

pub fn given_policy(id: &str, source: &str, policy: Value) -> v1::ApplyResourcesRequest {
    let mut policy: v1::Policy = proto_json::from_json(policy).unwrap();
    policy.name = id.to_owned();
    given(source, v1::apply_resources_request::Resource::Policy(policy))
}

fn given(source: &str, resource: v1::apply_resources_request::Resource) -> v1::ApplyResourcesRequest {
    v1::ApplyResourcesRequest {
        namespace: "default".to_owned(),
        resource: Some(resource),
        source: source.to_owned(),
        validate_only: false,
        revision: 0,
    }
}

/// Is refused as a bad argument: this field, and these words.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Status>, field: &str, said: &str) {
    let status = result.unwrap_err();
    assert_eq!(
        (status.code(), fields(&status)),
        (Code::InvalidArgument, vec![field.to_owned()]),
        "{status:?}"
    );
    assert!(status.message().contains(said), "{}", status.message());
}

/// The fields that a refusal names.
pub fn fields(status: &Status) -> Vec<String> {
    let details = status.get_details_bad_request();
    details
        .into_iter()
        .flat_map(|details| details.field_violations)
        .map(|violation| violation.field)
        .collect()
}
