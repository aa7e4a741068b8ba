//! `tollgate serve`: opens the store, starts the roles, serves gRPC, and stops in order.
//!
//! Only here is known which store driver there is, and which roles share the process.

mod bind;
mod console;
mod door;
mod files;
mod listen;
mod looks;
mod reflection;
mod telemetry;
mod time;
mod tls;
mod upkeep;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tollgate_auth::Door;
use tollgate_clock::Clock;
use tollgate_event_emitter::{Emitter, Follower};
use tollgate_event_handler::{EventHandler, Peers, Stores};
use tollgate_gateway::{Bodies, Hosts, Port};
use tollgate_metrics::trace::Traces;
use tollgate_metrics::{Metrics, Sources};
use tollgate_proto::v1::event_emitter_service_server::EventEmitterServiceServer;
use tollgate_proto::v1::event_handler_service_server::EventHandlerServiceServer;
use tollgate_proto::v1::schedule_master_service_server::ScheduleMasterServiceServer;
use tollgate_proto::v1::worker_service_server::WorkerServiceServer;
use tollgate_schedule_master::ScheduleMaster;
use tollgate_secrets::Keys;
use tollgate_service::follow::Follow;
use tollgate_service::wake::Wake;
use tollgate_store::Store;
use tollgate_target::{KafkaLogins, ListClient, Post, TargetOptions, Targets};
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;

use crate::config::{Auth, Role, ServeConfig, without_password};
use files::Files;
use listen::Limits;
use tls::Tls;

/// How long open connections may take to end once everything else has stopped.
const CONNECTIONS_GRACE: Duration = Duration::from_secs(2);
/// What a stop may take beyond its grace: to hand shards over and to close. A database that does not answer gets no more.
const STOP_SPARE: Duration = Duration::from_secs(5);

/// A service that runs.
pub(crate) struct Running {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    scheme: &'static str,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Stops in order: nothing new starts, deliveries under way end, shards are given up, the store closes.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await.context("the service ended by a panic")?
    }
}

/// Serves until SIGTERM or Ctrl-C.
///
/// # Errors
/// What keeps it from starting, or from going on.
pub(crate) fn run(config: ServeConfig) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let done = runtime.block_on(until_interrupted(config));
    // What does not come to its end (a look-up of a name, a database that is silent) keeps nobody from leaving.
    runtime.shutdown_background();
    done
}

/// The runtime. A core is left to the others, the database among them: on two cores that is faster than to take both, and
/// costs a quarter less. `TOKIO_WORKER_THREADS` says otherwise. What a database answers is looked for every few tasks: a queue
/// of deliveries is no reason to let the next commit wait.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        builder.worker_threads(cores.saturating_sub(1).max(1));
    }
    // PostgreSQL's answers come from sockets, SQLite's from another thread.
    builder.event_interval(16).global_queue_interval(4);
    builder.enable_all().build()
}

async fn until_interrupted(config: ServeConfig) -> anyhow::Result<()> {
    // Before anybody can know that it is there, and end it.
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let patience = Duration::from_millis(config.shutdown_grace_ms) + STOP_SPARE;
    let mut running = tokio::select! {
        running = start(config) => running?,
        signal = interrupted(&mut terminate) => {
            tracing::info!("{} received before the service had started", signal?);
            return Ok(());
        }
    };
    let Running { scheme, address, .. } = &running;
    tracing::info!("listening on {scheme}://{address}");
    tokio::select! {
        signal = interrupted(&mut terminate) => {
            tracing::info!("{} received, stopping", signal?);
            match tokio::time::timeout(patience, running.stop()).await {
                Ok(stopped) => stopped?,
                // As after a crash: what was acknowledged is in the store, and others take the shards over when the lease ends.
                Err(_) => tracing::warn!(
                    "the stop has not come to its end within {} s: does the database answer? The process ends",
                    patience.as_secs()
                ),
            }
            tracing::info!("stopped");
            Ok(())
        }
        ended = &mut running.task => ended.context("the service ended by a panic")?,
    }
}

/// Starts the roles that the configuration names.
///
/// # Errors
/// A store that cannot be opened, an address that cannot be listened on.
pub(crate) async fn start(config: ServeConfig) -> anyhow::Result<Running> {
    let auth = door::chosen(&config)?;
    let files = files::divide(&config);
    let tls = tls::Files::of(&config).map(Tls::load).transpose()?.map(Arc::new);
    let targets = target_options(&config, auth, files)?;
    let store = tollgate_store::open(&config.store, config.store_connections)
        .await
        .with_context(|| format!("cannot open the store {}", without_password(&config.store)))?;
    let listener = bind::bind(config.listen).await?;
    let address = listener.local_addr()?;
    let (scheme, shared) = (config.scheme(), config.store.starts_with("postgres"));
    if shared && address.ip().is_unspecified() && config.advertise.is_none() {
        tracing::warn!("other processes cannot reach {scheme}://{address}; name an address with --advertise");
    }
    let stop = CancellationToken::new();
    let clock = Clock::system();
    let metrics = Metrics::with_traces(telemetry::traces(&config, address)?);
    // Before anything looks at the time: the door asks which keys have expired.
    let tolerance_ms = config.clock_offset_max_ms;
    let keeper =
        time::Keeper::start(store.clone(), clock.clone(), metrics.clone(), shared, tolerance_ms).await;
    tokio::spawn(keeper.run(stop.clone()));
    let door = door::open(auth, &config, &store, &clock, &stop).await?;
    let (connections, incoming) = listen::queue();
    let inside = listen::Inside(connections.clone());
    let time = (clock, metrics);
    let parts = Parts::start(&config, targets, store.clone(), time, address, &stop, (&door, inside)).await?;
    let entrance =
        Entrance { listener, tls, door, connections, incoming, connections_max: files.connections_max };
    let task = tokio::spawn(serve(parts, entrance, config, stop.clone(), store));
    Ok(Running { address, scheme, stop, task })
}

/// How callers come in.
struct Entrance {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    door: Door,
    connections: listen::Sender,
    incoming: listen::Receiver,
    connections_max: usize,
}

/// What a process runs.
struct Parts {
    routes: Routes,
    metrics: Metrics,
    /// What `/metrics` and `/readyz` tell.
    sources: Sources,
    /// The web console's pages, where this process has them.
    console: Option<axum::Router>,
    roles: Vec<JoinHandle<()>>,
    traces: Traces,
}

impl Parts {
    async fn start(
        config: &ServeConfig,
        targets: TargetOptions,
        store: Arc<dyn Store>,
        (clock, metrics): (Clock, Metrics),
        address: SocketAddr,
        stop: &CancellationToken,
        (door, inside): (&Door, listen::Inside),
    ) -> anyhow::Result<Self> {
        let keys = secret_keys(config)?;
        let traces = metrics.traces().clone();
        let mut sources = telemetry::sources(&metrics, &clock, store.clone(), stop.clone());
        let secret = crate::secrets::of_installation(&store, &keys).await?;
        let stores = Stores::of(store.clone());
        let peers = Peers::new(&stores, secret, tls::to_others(config)?);
        let wake: Wake = {
            let peers = peers.clone();
            Arc::new(move |shard| peers.wake(shard))
        };
        let (health, health_service) = tonic_health::server::health_reporter();
        let mut services = RoutesBuilder::default();
        services.add_service(health_service);
        add_reflection(&mut services, &metrics)?;
        let mut roles = Vec::new();
        if config.roles.contains(&Role::Handler) {
            let targets = TargetOptions {
                traces: traces.clone(),
                keys: keys.clone(),
                clock: clock.clone(),
                ..targets.clone()
            };
            let options = handler_options(config, address, &metrics, &keys);
            let follower = follower(config, &store, (clock.clone(), metrics.clone()), wake.clone()).await?;
            let ways = (ways(targets)?, follower);
            let handler = EventHandler::new(&stores, ways, clock.clone(), peers.clone(), options);
            let service = EventHandlerServiceServer::new(handler.service());
            services.add_service(service.max_decoding_message_size(config.message_max));
            services.add_service(WorkerServiceServer::new(handler.workers()));
            services.add_service(handler.peer_service());
            health.set_serving::<EventHandlerServiceServer<tollgate_event_handler::HandlerService>>().await;
            health.set_serving::<WorkerServiceServer<tollgate_event_handler::Workers>>().await;
            telemetry::handler(&mut sources, &metrics, &handler);
            let token = stop.clone();
            roles.push(tokio::spawn(async move { handler.run(token).await }));
        } else {
            let token = stop.clone();
            roles.push(tokio::spawn(async move { peers.watch(token).await }));
        }
        if config.roles.contains(&Role::Emitter) {
            let emitter = Emitter::new(store.clone(), clock.clone(), wake.clone(), emitter_options(config));
            let emitter = Arc::new(emitter.with_traces(traces.clone()));
            services.add_service(EventEmitterServiceServer::new(emitter.service()));
            health.set_serving::<EventEmitterServiceServer<tollgate_event_emitter::EmitterService>>().await;
            telemetry::emitter(&mut sources, &emitter);
            let token = stop.clone();
            roles.push(tokio::spawn(async move { emitter.run(token).await }));
        }
        if config.roles.contains(&Role::Master) {
            let options = master_options(config, &metrics, &keys, &targets);
            let master = ScheduleMaster::new(store.clone(), clock.clone(), wake, options).await?;
            let (sweeper, token) = (master.clone(), stop.clone());
            roles.push(tokio::spawn(async move { sweeper.sweep_until(token).await }));
            let (deleter, token) = (master.clone(), stop.clone());
            roles.push(tokio::spawn(async move { deleter.delete_done_until(token).await }));
            let service = ScheduleMasterServiceServer::new(master);
            services.add_service(service.max_decoding_message_size(config.message_max));
            health.set_serving::<ScheduleMasterServiceServer<ScheduleMaster>>().await;
            let token = stop.clone();
            let (clock, days) = (clock.clone(), config.retention_days);
            roles.push(tokio::spawn(upkeep::run(store, clock, days, token)));
        }
        let console = if config.roles.contains(&Role::Console) {
            Some(console::router(config, (clock, &metrics), address, stop, door, inside)?)
        } else {
            None
        };
        Ok(Self { routes: services.routes(), metrics, sources, console, roles, traces })
    }
}

/// All that the port answers: gRPC and gRPC-Web by the services, every other request by the routers merged here.
///
/// A router brings paths of its own and no fallback; what none of them knows is 404.
///
/// Every call goes through the door, which stands before all services.
fn port(
    grpc: Routes,
    (sources, metrics): (Sources, &Metrics),
    console: Option<axum::Router>,
    (door, hosts): (&Door, Hosts),
    config: &ServeConfig,
) -> anyhow::Result<Port> {
    // The door is the outer one: nothing is read for a caller whom it refuses.
    let bodies = Bodies::new(config.message_max);
    let grpc = Routes::from(grpc.into_axum_router().layer(bodies.clone()).layer(door.clone()));
    let rest =
        tollgate_gateway::rest(grpc.clone(), door.clone(), bodies, config.message_max, metrics.clone())?;
    let pages = door::metrics(tollgate_metrics::router(sources), door, config.metrics_open);
    let http = axum::Router::new().merge(rest).merge(pages);
    let http = http.merge(console.unwrap_or_default());
    Ok(Port::new(grpc, http, hosts))
}

async fn serve(
    parts: Parts,
    entrance: Entrance,
    config: ServeConfig,
    stop: CancellationToken,
    store: Arc<dyn Store>,
) -> anyhow::Result<()> {
    // Consumers release while deliveries under way come to their end, so the door closes last.
    let close = CancellationToken::new();
    let Entrance { listener, tls, door, connections, incoming, connections_max } = entrance;
    let address = listener.local_addr()?;
    let hosts = door::hosts(&config, address, &door);
    let metrics = parts.metrics;
    let port = port(parts.routes, (parts.sources, &metrics), parts.console, (&door, hosts), &config)?;
    if let Some(tls) = &tls {
        tokio::spawn(tls.clone().watch(metrics.clone(), stop.clone()));
    }
    let patience = Duration::from_millis(config.handshake_timeout_ms);
    // Only the machine itself reaches a loopback address, mostly by one.
    let divided = !address.ip().is_loopback();
    let limits = Limits { connections_max, divided, patience };
    tokio::spawn(listen::accept(listener, tls, limits, metrics, connections, close.clone()));
    let server = Server::builder()
        .accept_http1(true)
        .max_concurrent_streams(config.streams_max)
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .serve_with_incoming_shutdown(port, ReceiverStream::new(incoming), close.clone().cancelled_owned());
    let mut server = tokio::spawn(server);
    tokio::select! {
        () = stop.cancelled() => {}
        ended = &mut server => {
            stop.cancel();
            tracing::error!("the gRPC server ended by itself");
            ended.context("the gRPC server ended by a panic")??;
        }
    }
    for role in parts.roles {
        role.await.context("a role ended by a panic")?;
    }
    close.cancel();
    if !server.is_finished() && tokio::time::timeout(CONNECTIONS_GRACE, &mut server).await.is_err() {
        server.abort();
    }
    parts.traces.close().await;
    store.close().await;
    Ok(())
}

/// The keys that seal secrets; with a word where there are none and somebody might have meant to have some.
fn secret_keys(config: &ServeConfig) -> anyhow::Result<Arc<Keys>> {
    let keys = crate::secrets::keys(config)?;
    let in_memory = config.store.ends_with(":memory:");
    if keys.is_empty() && config.store != ServeConfig::default().store && !in_memory {
        tracing::warn!(
            "the installation's secret, signing secrets, header values and payloads are stored in clear; `tollgate secrets generate-key` prints a \
             key for --secret-keys-file"
        );
    }
    Ok(Arc::new(keys))
}

fn target_options(config: &ServeConfig, auth: Auth, files: Files) -> anyhow::Result<TargetOptions> {
    Ok(TargetOptions {
        allow_private_addresses: config.private_addresses(auth),
        sqs_endpoints: config.allowed_endpoints(auth),
        kafka_servers: config.allowed_servers(auth),
        kafka_logins: kafka_logins(config)?,
        connections_max: files.targets_max,
        retry_after_max_ms: config.retry_after_max_s * 1_000,
        ..TargetOptions::default()
    })
}

/// How the brokers of Kafka targets are spoken to, where that is not in the clear.
fn kafka_logins(config: &ServeConfig) -> anyhow::Result<KafkaLogins> {
    let Some(file) = &config.kafka_logins_file else { return Ok(KafkaLogins::default()) };
    let read = KafkaLogins::read(Path::new(file));
    read.map_err(|wrong| anyhow::anyhow!("kafka_logins_file: {}", wrong.join("\n")))
}

/// Connections for messages of alerts.
const ALERT_CONNECTIONS: usize = 64;

/// Targets for events, what messages of alerts go by, and what lists come by: nothing that events use up is theirs.
fn ways(options: TargetOptions) -> anyhow::Result<(Targets, Post, ListClient)> {
    let of_alerts = TargetOptions { connections_max: ALERT_CONNECTIONS, lookups_max: 8, ..options.clone() };
    let lists = ListClient::new(&of_alerts).context("cannot set up the fetching of lists")?;
    let post = Post::new(of_alerts).context("cannot set up messages of alerts")?;
    Ok((Targets::new(options).context("cannot set up HTTP, SQS and Kafka")?, post, lists))
}

fn handler_options(
    config: &ServeConfig,
    address: SocketAddr,
    metrics: &Metrics,
    keys: &Arc<Keys>,
) -> tollgate_event_handler::Options {
    let roles: Vec<String> = config.roles.iter().map(ToString::to_string).collect();
    tollgate_event_handler::Options {
        roles: roles.join(","),
        address: config.advertise.clone().unwrap_or_else(|| format!("{}://{address}", config.scheme())),
        exclusive_store: !config.store.starts_with("postgres"),
        lease_ttl_ms: config.lease_ttl_ms,
        stop_grace_ms: config.shutdown_grace_ms,
        machine: tollgate_core::handle::Options {
            sends_max: config.sends_max,
            retrying_max: config.retrying_max,
            ..tollgate_core::handle::Options::default()
        },
        metrics: metrics.clone(),
        keys: keys.clone(),
        ..tollgate_event_handler::Options::default()
    }
}

/// What launches the runs that follow others.
async fn follower(
    config: &ServeConfig,
    store: &Arc<dyn Store>,
    (clock, metrics): (Clock, Metrics),
    wake: Wake,
) -> anyhow::Result<Arc<dyn Follow>> {
    let base = store.installation().await?.shards;
    let late_after_us = emitter_options(config).late_after_us();
    Ok(Arc::new(Follower::new((store.clone(), base), clock, wake, late_after_us, metrics)))
}

fn emitter_options(config: &ServeConfig) -> tollgate_event_emitter::Options {
    tollgate_event_emitter::Options {
        window_s: config.window_s,
        ahead_s: config.ahead_s,
        ..tollgate_event_emitter::Options::default()
    }
}

fn master_options(
    config: &ServeConfig,
    metrics: &Metrics,
    keys: &Arc<Keys>,
    targets: &TargetOptions,
) -> tollgate_schedule_master::Options {
    tollgate_schedule_master::Options {
        addresses: looks::of(targets),
        speaks_kafka: tollgate_target::SPEAKS_KAFKA,
        retention_s: i64::from(config.retention_days) * 86_400,
        metrics: metrics.clone(),
        keys: keys.clone(),
        quotas: config.quotas.clone(),
        root_policy: config.root_policy.clone(),
        ..tollgate_schedule_master::Options::default()
    }
}

/// Reflection in its two versions: many clients speak only the older one.
fn add_reflection(services: &mut RoutesBuilder, metrics: &Metrics) -> anyhow::Result<()> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tollgate_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = "the proto descriptors are broken";
    let streams = reflection::Streams::new(metrics.clone());
    services.add_service(streams.bound(builder().build_v1().context(broken)?));
    services.add_service(streams.bound(builder().build_v1alpha().context(broken)?));
    Ok(())
}

async fn interrupted(terminate: &mut tokio::signal::unix::Signal) -> anyhow::Result<&'static str> {
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.map(|()| "SIGINT").map_err(Into::into),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}
