//! The world of a campaign, and what it does to it: one fault after the other, each followed until deliveries resume.

mod inject;
mod others;
mod wrong;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tollgate_harness::machine::{self, Machine};
use tollgate_harness::proxy::{Held, Mode, Proxy};
use tollgate_harness::{free_port, now_us};

use crate::audit::{Ahead, Disturbance, Watch};
use crate::load::{Load, WAVE};
use crate::names::Names;
use crate::order::{CHANGE_POINTS, Fault, Order, World};
use crate::postgres::Postgres;
use crate::process::Process;
use crate::sink::{Doors, Orders, Sink};

/// Deliveries that were under way when a fault began are no sign of recovery.
const UNDER_WAY_US: i64 = 300_000;
/// Deliveries must resume within this time after a fault has ended.
const RESUME_MAX: Duration = Duration::from_secs(60);
/// How long healthy work is watched before the first fault.
const CALM: Duration = Duration::from_secs(5);
/// No new wave is made while so many events wait.
const BACKLOG_MAX: u64 = 2_500;
/// How far the wall clock is moved.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// What is asked of a campaign.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) seed: u64,
    /// No new round begins after this long; none: one round.
    pub(crate) length: Option<Duration>,
    pub(crate) postgres: bool,
    /// Of the processes.
    pub(crate) lease: Duration,
    /// Only kinds that contain this.
    pub(crate) only: Option<String>,
    /// Keep logs and journal even when every promise was kept.
    pub(crate) keep: bool,
}

/// How long things took after the faults of one kind, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    /// From the start of the fault to the next delivery of a shard that it concerned.
    pub(crate) affected_ms: Vec<i64>,
    /// From the start of the fault to the next delivery anywhere.
    pub(crate) any_ms: Vec<i64>,
    /// From the end of the fault; 0 where deliveries resumed before.
    pub(crate) after_end_ms: Vec<i64>,
}

/// What the campaign itself has to tell.
#[derive(Default)]
pub(crate) struct Log {
    /// Faults injected, by kind.
    pub(crate) injected: BTreeMap<String, u64>,
    /// Points that no process came by in time.
    pub(crate) missed_points: BTreeMap<String, u64>,
    pub(crate) recovery: BTreeMap<String, Recovery>,
    pub(crate) disturbances: Vec<Disturbance>,
    pub(crate) watches: Vec<Watch>,
    /// Faults that cannot be injected here, and why.
    pub(crate) left_out: Vec<String>,
    /// Seconds for which snapshots were held, and how many dead rows of leases there were more at their ends.
    pub(crate) dead_rows: Vec<(u64, u64)>,
    pub(crate) ahead: Option<Ahead>,
    /// Tokens of cancelled events that an operator had to give back.
    pub(crate) freed_by_hand: u64,
    /// What a process did that no fault explains.
    pub(crate) oddities: Vec<String>,
}

/// The world of a campaign.
pub(crate) struct Campaign {
    wish: Wish,
    pub(crate) processes: Vec<Process>,
    postgres: Option<Postgres>,
    stores: Vec<Proxy>,
    peers: Vec<Proxy>,
    consumer: Proxy,
    names: Option<Arc<Names>>,
    change_point: Option<&'static str>,
    pub(crate) sink: Sink,
    pub(crate) load: Load,
    pub(crate) log: Log,
    /// When the fault under way took effect, where that was not at once.
    effect_us: Option<i64>,
    /// The queue shards that the fault under way concerns, where it knows better than its victim tells.
    near: Option<HashSet<u16>>,
    /// How many faults there have been.
    count: usize,
}

impl Campaign {
    /// Starts everything in this folder.
    pub(crate) async fn start(wish: Wish, folder: &Path) -> Result<Self> {
        let library = machine::compile(folder)?;
        machine::allow_connections()?;
        let mut log = Log::default();
        let names = match Names::start(folder).await {
            Ok(names) => Some(Arc::new(names)),
            Err(error) => {
                log.leave_out(format!("look-ups that hang: {error:#}"));
                None
            }
        };
        let change_point = change_point()?;
        if change_point.is_none() {
            log.leave_out(format!("the binary has none of the points {CHANGE_POINTS:?}"));
        }
        let postgres = if wish.postgres {
            Some(Postgres::start(folder, Machine::new(&library, folder.join("machine-postgres"))?).await?)
        } else {
            None
        };
        let (mut processes, mut stores, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..if wish.postgres { 3 } else { 1 } {
            let port = free_port()?;
            let peer = Proxy::start(([127, 0, 0, 1], port).into()).await?;
            let store = match &postgres {
                Some(postgres) => {
                    let proxy = Proxy::start(postgres.server.address()).await?;
                    let url = format!("postgres://tollgate@{}/tollgate", proxy.address);
                    stores.push(proxy);
                    url
                }
                None => format!("sqlite:{}", folder.join("tollgate.db").display()),
            };
            let machine = Machine::new(&library, folder.join(format!("machine-{number}")))?;
            let advertise = format!("http://{}", peer.address);
            let names = names.clone();
            let at = (port, advertise);
            processes.push(Process::new(number, store, at, wish.lease, folder, machine, names)?);
            peers.push(peer);
        }
        for process in &mut processes {
            process.start().await?;
        }
        let doors = Doors(processes.iter().map(|process| process.channel.clone()).collect());
        let (sink, ports) = Sink::start(wish.seed, doors.clone()).await?;
        sink.start_workers();
        let consumer = Proxy::holding(ports.common, Held::Lost).await?;
        let load =
            Load::start(doors, consumer.address, ports).await.context("the policies cannot be made")?;
        Ok(Self {
            wish,
            processes,
            postgres,
            stores,
            peers,
            consumer,
            names,
            change_point,
            sink,
            load,
            log,
            effect_us: None,
            near: None,
            count: 0,
        })
    }

    /// Makes waves of work and injects faults, as long as was wished.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let began = Instant::now();
        let enough = Arc::new(AtomicBool::new(false));
        let waves = tokio::spawn(make_waves(self.load.clone(), self.wish.seed, enough.clone()));
        self.load.healthy(self.names.is_some()).await;
        self.deliveries_begin().await?;
        tokio::time::sleep(CALM).await;
        let mut order = Order::new(self.wish.seed, self.world());
        for round in 0.. {
            let mut faults = order.round();
            if let Some(only) = &self.wish.only {
                faults.retain(|fault| fault.kind().contains(only));
                anyhow::ensure!(!faults.is_empty(), "no fault of this round has {only:?} in its name");
            }
            // In every second round of a long campaign somebody has an old snapshot.
            let is_held = self.wish.length.is_some() && self.wish.only.is_none() && round % 2 == 1;
            let snapshot = if is_held { self.begin_snapshot().await? } else { None };
            let is_over = self.round(faults, &mut order, began).await?;
            if let Some(snapshot) = snapshot {
                self.end_snapshot(snapshot).await;
            }
            if is_over || self.wish.length.is_none() {
                break;
            }
        }
        // A wave that is being made is made to its end, so that everything that fires has been written down.
        enough.store(true, SeqCst);
        waves.await.context("the maker of waves broke off")
    }

    /// The faults of a round. True where the time is over.
    async fn round(&mut self, faults: Vec<Fault>, order: &mut Order, began: Instant) -> Result<bool> {
        for fault in faults {
            if self.wish.length.is_some_and(|length| began.elapsed() >= length) {
                return Ok(true);
            }
            let pause = order.pause();
            self.one(fault).await?;
            tokio::time::sleep(pause).await;
        }
        Ok(false)
    }

    fn world(&self) -> World {
        World {
            processes: self.processes.len(),
            lease: self.wish.lease,
            postgres: self.wish.postgres,
            names: self.names.is_some(),
            change_point: self.change_point,
            short: self.wish.length.is_none() && self.wish.only.is_none(),
        }
    }

    async fn begin_snapshot(&self) -> Result<Option<OldSnapshot>> {
        let Some(postgres) = &self.postgres else { return Ok(None) };
        let held_s = Arc::new(AtomicU64::new(0));
        let holder = tokio::spawn(postgres.snapshots(held_s.clone()));
        Ok(Some(OldSnapshot { holder, held_s, dead_rows: postgres.dead_lease_rows().await? }))
    }

    async fn end_snapshot(&mut self, snapshot: OldSnapshot) {
        // The statistics of a server that has crashed begin anew, and one that is down tells nothing.
        let dead = match &self.postgres {
            Some(postgres) => postgres.dead_lease_rows().await.unwrap_or_default(),
            None => 0,
        };
        snapshot.holder.abort();
        let held = Duration::from_secs(snapshot.held_s.load(SeqCst));
        self.judge_dead_rows(dead - snapshot.dead_rows, held);
    }

    /// The number of the fault under way.
    fn number(&self) -> usize {
        self.count
    }

    /// The last step: the wall clock jumps ahead by an hour and stays there. What fell due in that hour fires.
    pub(crate) async fn jump_ahead(&mut self) -> Result<()> {
        self.load.future(1_800).await;
        // What is due before it is due by either clock.
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.log.ahead = Some(Ahead { from_us: now_us(), by_us: HOUR_US });
        // The database's, too: a process that is alone with its opinion must not fire.
        if let Some(postgres) = &self.postgres {
            postgres.machine.clock_offset(HOUR_US)?;
        }
        for process in &self.processes {
            process.note("the wall clock jumps an hour ahead");
            process.machine.clock_offset(HOUR_US)?;
        }
        if self.postgres.is_none() {
            // There is no second clock: a jump is believed when it has lasted.
            tokio::time::sleep(Duration::from_secs(65)).await;
        }
        *self.log.injected.entry("wall clock forward an hour".to_owned()).or_default() += 1;
        Ok(())
    }

    /// Injects one fault, undoes it, and waits until deliveries have resumed.
    async fn one(&mut self, fault: Fault) -> Result<()> {
        let kind = fault.kind();
        self.count += 1;
        let (shards, owned) = match fault.victim() {
            Some(victim) => self.shards_of(victim).await,
            None => (None, None),
        };
        if fault.spares_others() {
            self.settle_down().await;
        }
        let (since, began_us) = (self.sink.journal().entries.len(), now_us());
        progress(&format!("{kind}: {fault:?}"));
        for process in &self.processes {
            process.note(&kind);
        }
        let happened = self.inject(&fault).await.with_context(|| kind.clone())?;
        let ended_us = now_us();
        if happened {
            *self.log.injected.entry(kind.clone()).or_default() += 1;
        } else {
            *self.log.missed_points.entry(kind.clone()).or_default() += 1;
        }
        let effect_us = self.effect_us.take().unwrap_or(began_us);
        if let Some(reason) = fault.excuse() {
            self.disturbed(&fault, reason, (began_us, effect_us, ended_us));
        }
        let shards_near = self.near.take().or(owned);
        self.log.watches.push(Watch {
            kind: kind.clone(),
            from_us: began_us,
            until_us: ended_us,
            shards: shards_near,
            spares_others: fault.spares_others(),
        });
        self.look_after_the_dead().await?;
        if happened {
            self.follow(&kind, since, effect_us, ended_us, shards.as_ref()).await;
        }
        Ok(())
    }

    /// Answers of the last moments before it may not have been recorded. A process that died cannot do more harm later;
    /// after other faults, things need a while.
    fn disturbed(
        &mut self,
        fault: &Fault,
        reason: &'static str,
        (began_us, effect_us, ended_us): (i64, i64, i64),
    ) {
        let from_us = if fault.kills() && !fault.holds_commits() { effect_us } else { began_us };
        let until_us = if fault.kills() { effect_us + 2_000_000 } else { ended_us + 5_000_000 };
        self.log.disturbances.push(Disturbance { reason, from_us: from_us - 2_000_000, until_us });
    }

    /// Starts again what has ended by itself, and writes that down: no fault explains it.
    async fn look_after_the_dead(&mut self) -> Result<()> {
        // It gives up where it cannot recover, on a full disk for one; somebody starts it again.
        if let Some(postgres) = &self.postgres
            && !postgres.server.is_up()?
        {
            progress("PostgreSQL ended by itself");
            *self.log.injected.entry("PostgreSQL ended by itself".to_owned()).or_default() += 1;
            postgres.server.up()?;
        }
        for (number, process) in self.processes.iter_mut().enumerate() {
            if let Some(status) = process.exited()? {
                if process.was_ready() {
                    let text = format!("process {number} ended by itself with {status} at {}", now_us());
                    progress(&text);
                    self.log.oddities.push(text);
                }
                process.start().await?;
            }
        }
        Ok(())
    }

    /// Waits until deliveries have resumed, and notes how long that took.
    async fn follow(
        &mut self,
        kind: &str,
        since: usize,
        began_us: i64,
        ended_us: i64,
        shards: Option<&HashSet<u16>>,
    ) {
        let (mut any, mut affected) = (None, None);
        let end = Instant::now() + RESUME_MAX;
        while (any.is_none() || affected.is_none()) && Instant::now() < end {
            {
                let journal = self.sink.journal();
                any = any.or_else(|| journal.delivery_after(since, began_us + UNDER_WAY_US, None));
                affected =
                    affected.or_else(|| journal.delivery_after(since, began_us + UNDER_WAY_US, shards));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if any.is_none() {
            self.log.oddities.push(format!("no delivery within {RESUME_MAX:?} after {kind} at {began_us}"));
        }
        let recovery = self.log.recovery.entry(kind.to_owned()).or_default();
        recovery.any_ms.extend(any.map(|at_us| (at_us - began_us) / 1_000));
        recovery.affected_ms.extend(affected.map(|at_us| (at_us - began_us) / 1_000));
        recovery.after_end_ms.extend(affected.map(|at_us| (at_us - ended_us).max(0) / 1_000));
    }

    /// The shards of a process that have work all the time, none where nobody says, or it has none; and all of its shards.
    async fn shards_of(&self, victim: usize) -> (Option<HashSet<u16>>, Option<HashSet<u16>>) {
        let Some(status) = self.processes[victim].status().await else { return (None, None) };
        let owned = status.shards.iter().filter(|shard| shard.owner == status.handler);
        let owned: HashSet<u16> = owned.filter_map(|shard| u16::try_from(shard.shard).ok()).collect();
        let busy = self.sink.journal().busy_shards();
        let both: HashSet<u16> = owned.intersection(&busy).copied().collect();
        ((!both.is_empty()).then_some(both), Some(owned))
    }

    async fn deliveries_begin(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while self.sink.journal().done() == 0 {
            anyhow::ensure!(Instant::now() < end, "nothing is delivered within a minute");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Undoes whatever is still done to the world.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        *self.sink.orders() = Orders::default();
        if let Some(names) = &self.names {
            names.hang(false);
        }
        for proxy in self.stores.iter().chain(&self.peers).chain([&self.consumer]) {
            proxy.set(Mode::Pass);
        }
        self.look_after_the_dead().await
    }
}

/// Somebody's old snapshot.
struct OldSnapshot {
    holder: tokio::task::JoinHandle<()>,
    held_s: Arc<AtomicU64>,
    /// How many of the leases there were at its beginning.
    dead_rows: i64,
}

impl Log {
    /// Says loudly that something is not tried.
    fn leave_out(&mut self, what: String) {
        progress(&format!("LEFT OUT: {what}"));
        self.left_out.push(what);
    }
}

/// The program with fault points.
fn faults_binary() -> Result<PathBuf> {
    Ok(std::env::var_os("TOLLGATE_FAULTS_BIN").context("TOLLGATE_FAULTS_BIN is not set")?.into())
}

/// The point between the commit of a change and its message that the binary has.
fn change_point() -> Result<Option<&'static str>> {
    let path = faults_binary()?;
    let binary = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
    let finds = |point: &&str| binary.windows(point.len()).any(|part| part == point.as_bytes());
    Ok(CHANGE_POINTS.into_iter().find(finds))
}

async fn make_waves(load: Load, seed: u64, enough: Arc<AtomicBool>) {
    let mut ticks = tokio::time::interval(WAVE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut wave = 0;
    while !enough.load(SeqCst) {
        ticks.tick().await;
        // Where nobody says, there is room.
        if load.waiting().await.is_none_or(|waiting| waiting < BACKLOG_MAX) {
            load.wave(wave, seed).await;
            wave += 1;
        }
    }
}

/// One line for whoever watches.
#[expect(clippy::print_stderr, reason = "for whoever watches")]
pub(crate) fn progress(text: &str) {
    let now = chrono::Utc::now().format("%H:%M:%S%.3f");
    eprintln!("{now} {text}");
}
