//! `tollgate demo`: the main job in half a minute, on a temporary SQLite file, with a real consumer that measures.
//!
//! What the summary says was seen by the consumer, not by Tollgate. The exit status is 1 if a promise was broken.

mod consumer;
mod report;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tollgate_clock::{Clock, instant_now};
use tollgate_core::model::SECOND_US;
use tollgate_proto::v1;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tonic::transport::Channel;

use crate::config::ServeConfig;
use consumer::Consumer;
use report::Progress;

/// Arguments of `tollgate demo`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// The number of events of the large schedule, from 1 to 5,000
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    events: u32,
    /// The policy's max_in_flight, from 1 to 500
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=500))]
    tokens: u32,
    /// Stay up afterwards, with the console, until Ctrl-C
    #[arg(long)]
    hold: bool,
}

/// The small schedule, beside which the large one must not be felt.
const SMALL_EVENTS: u32 = 40;
/// From now to the launch time, whole seconds.
const LEAD_S: i64 = 3;
/// The demo gives up then.
const PATIENCE: Duration = Duration::from_secs(55);
const PARENT: &str = "namespaces/default";

/// Runs the demo.
///
/// # Errors
/// What keeps it from running; a broken promise is an exit status instead.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(show(args))
}

async fn show(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let store = folder.path().join("demo.db");
    let config = ServeConfig {
        store: format!("sqlite:{}", store.display()),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        ..ServeConfig::default()
    };
    let service = crate::serve::start(config).await?;
    let channel = Channel::from_shared(format!("http://{}", service.address))?.connect().await?;
    let total = args.events + SMALL_EVENTS;
    // The consumer's work is sized so that the whole takes about fifteen seconds.
    let work_mean_ms = (15_000 * u64::from(args.tokens) / u64::from(total)).clamp(2, 1_000);
    let consumer = Consumer::start(channel.clone(), work_mean_ms).await?;
    report::intro(&args, SMALL_EVENTS, service.address, consumer.address, work_mean_ms)?;
    let launch_us = create(&channel, &args, consumer.address).await?;
    watch(&channel, &consumer, total, launch_us).await?;
    let measured = consumer.measured();
    let runs = finished_runs(&channel).await?;
    let kept = if args.hold {
        let kept = report::summary(&measured, &args, total, &runs)?;
        report::held(service.address)?;
        until_interrupted().await?;
        service.stop().await?;
        kept
    } else {
        service.stop().await?;
        report::summary(&measured, &args, total, &runs)?
    };
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for Ctrl-C or SIGTERM.
async fn until_interrupted() -> anyhow::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
    }
}

/// One policy, two schedules that are due together.
async fn create(channel: &Channel, args: &DemoArgs, consumer: SocketAddr) -> anyhow::Result<i64> {
    let mut master = ScheduleMasterServiceClient::new(channel.clone());
    let policy = v1::Policy { max_in_flight: Some(args.tokens), ..v1::Policy::default() };
    let request = v1::CreatePolicyRequest {
        parent: PARENT.to_owned(),
        policy_id: "gentle".to_owned(),
        policy: Some(policy),
        ..v1::CreatePolicyRequest::default()
    };
    master.create_policy(request).await?;
    let launch_s = Clock::system().wall_us().div_euclid(SECOND_US) + LEAD_S;
    for (id, events) in [("nightly-backup", args.events), ("tenant-sync", SMALL_EVENTS)] {
        let at = prost_types::Timestamp { seconds: launch_s, nanos: 0 };
        let http = v1::HttpTarget { url: format!("http://{consumer}/work"), ..v1::HttpTarget::default() };
        let schedule = v1::Schedule {
            triggers: vec![v1::Trigger { trigger: Some(v1::trigger::Trigger::At(at)) }],
            events: Some(events),
            policy: "gentle".to_owned(),
            target: Some(v1::Target {
                target: Some(v1::target::Target::Http(http)),
                ..v1::Target::default()
            }),
            ..v1::Schedule::default()
        };
        let request = v1::CreateScheduleRequest {
            parent: PARENT.to_owned(),
            schedule_id: id.to_owned(),
            schedule: Some(schedule),
            ..v1::CreateScheduleRequest::default()
        };
        master.create_schedule(request).await?;
    }
    Ok(launch_s * SECOND_US)
}

/// Shows how it goes, until all is done or patience ends.
async fn watch(channel: &Channel, consumer: &Consumer, total: u32, launch_us: i64) -> anyhow::Result<()> {
    let mut handler = EventHandlerServiceClient::new(channel.clone());
    let terminal = std::io::stdout().is_terminal();
    let every = Duration::from_millis(if terminal { 200 } else { 1_000 });
    let began = instant_now();
    let clock = Clock::system();
    loop {
        let status = handler.get_handler_status(v1::GetHandlerStatusRequest::default()).await?.into_inner();
        let measured = consumer.measured();
        let progress = Progress {
            waiting: status.waiting_count,
            held: status.held_count,
            total,
            until_launch_us: launch_us - clock.wall_us(),
        };
        report::progress(&progress, &measured, terminal)?;
        let done = measured.released >= u64::from(total) && status.held_count == 0;
        if done || began.elapsed() > PATIENCE {
            return report::progress_end(terminal);
        }
        tokio::time::sleep(every).await;
    }
}

async fn finished_runs(channel: &Channel) -> anyhow::Result<Vec<v1::Run>> {
    let mut handler = EventHandlerServiceClient::new(channel.clone());
    let request = v1::ListRunsRequest { parent: PARENT.to_owned(), ..v1::ListRunsRequest::default() };
    Ok(handler.list_runs(request).await?.into_inner().runs)
}
