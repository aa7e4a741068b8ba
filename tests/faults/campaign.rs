//! The world of a campaign, and what it does to it: one fault after the other, each followed until deliveries resume.

mod inject;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tollgate_tests::now_us;

use crate::audit::{Ahead, Disturbance};
use crate::load::{Load, WAVE};
use crate::machine::{self, Machine};
use crate::order::{Fault, Order};
use crate::postgres::{Postgres, free_port};
use crate::process::Process;
use crate::proxy::{Mode, Proxy};
use crate::sink::{Doors, Sink};

/// Deliveries that were under way when a fault began are no sign of recovery.
const UNDER_WAY_US: i64 = 300_000;
/// Deliveries must resume within this time after a fault has ended.
const RESUME_MAX: Duration = Duration::from_secs(60);
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
    pub(crate) sink: Sink,
    pub(crate) load: Load,
    pub(crate) log: Log,
    /// When the fault under way took effect, where that was not at once.
    effect_us: Option<i64>,
}

impl Campaign {
    /// Starts everything in this folder.
    pub(crate) async fn start(wish: Wish, folder: &Path) -> Result<Self> {
        let library = machine::compile(folder)?;
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
                    let proxy = Proxy::start(postgres.address()).await?;
                    let url = format!("postgres://tollgate@{}/tollgate", proxy.address);
                    stores.push(proxy);
                    url
                }
                None => format!("sqlite:{}", folder.join("tollgate.db").display()),
            };
            let machine = Machine::new(&library, folder.join(format!("machine-{number}")))?;
            let advertise = format!("http://{}", peer.address);
            processes.push(Process::new(number, store, port, advertise, wish.lease, folder, machine)?);
            peers.push(peer);
        }
        for process in &mut processes {
            process.start().await?;
        }
        let doors = Doors(processes.iter().map(|process| process.channel.clone()).collect());
        let (sink, address) = Sink::start(wish.seed, doors.clone()).await?;
        let consumer = Proxy::start(address).await?;
        let load = Load::start(doors, consumer.address).await.context("the policies cannot be made")?;
        Ok(Self {
            wish,
            processes,
            postgres,
            stores,
            peers,
            consumer,
            sink,
            load,
            log: Log::default(),
            effect_us: None,
        })
    }

    /// Makes waves of work and injects faults, as long as was wished.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let began = Instant::now();
        let enough = Arc::new(AtomicBool::new(false));
        let waves = tokio::spawn(make_waves(self.load.clone(), self.wish.seed, enough.clone()));
        self.deliveries_begin().await?;
        let mut order = Order::new(self.wish.seed, self.processes.len(), self.wish.lease, self.wish.postgres);
        'rounds: loop {
            let mut faults = order.round();
            if let Some(only) = &self.wish.only {
                faults.retain(|fault| fault.kind().contains(only));
                anyhow::ensure!(!faults.is_empty(), "no fault of this round has {only:?} in its name");
            }
            for fault in faults {
                if self.wish.length.is_some_and(|length| began.elapsed() >= length) {
                    break 'rounds;
                }
                let pause = order.pause();
                self.one(fault).await?;
                tokio::time::sleep(pause).await;
            }
            if self.wish.length.is_none() {
                break;
            }
        }
        // A wave that is being made is made to its end, so that everything that fires has been written down.
        enough.store(true, SeqCst);
        waves.await.context("the maker of waves broke off")
    }

    /// The last step: the wall clock jumps ahead by an hour and stays there. What fell due in that hour fires.
    pub(crate) async fn jump_ahead(&mut self) -> Result<()> {
        self.load.future(1_800).await;
        // What is due before it is due by either clock.
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.log.ahead = Some(Ahead { from_us: now_us(), by_us: HOUR_US });
        for process in &self.processes {
            process.note("the wall clock jumps an hour ahead");
            process.machine.clock_offset(HOUR_US)?;
        }
        // One clock that jumps would not be believed.
        match &self.postgres {
            Some(postgres) => postgres.machine.clock_offset(HOUR_US)?,
            None => tokio::time::sleep(Duration::from_secs(65)).await,
        }
        *self.log.injected.entry("wall clock forward an hour".to_owned()).or_default() += 1;
        Ok(())
    }

    /// Injects one fault, undoes it, and waits until deliveries have resumed.
    async fn one(&mut self, fault: Fault) -> Result<()> {
        let kind = fault.kind();
        let shards = match fault.victim() {
            Some(victim) => self.shards_of(victim).await,
            None => None,
        };
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
        if fault.disturbs() {
            self.disturbed(&fault, (began_us, effect_us, ended_us));
        }
        self.look_after_the_dead().await?;
        if happened {
            self.follow(&kind, since, effect_us, ended_us, shards.as_ref()).await;
        }
        Ok(())
    }

    /// Answers of the last moments before it may not have been recorded. A process that died cannot do more harm later;
    /// after other faults, things need a while.
    fn disturbed(&mut self, fault: &Fault, (began_us, effect_us, ended_us): (i64, i64, i64)) {
        let (from_us, until_us) = match fault {
            Fault::Kill { .. } | Fault::KillAt { .. } | Fault::Limit { .. } => {
                (effect_us, effect_us + 2_000_000)
            }
            _ => (began_us, ended_us + 5_000_000),
        };
        self.log.disturbances.push(Disturbance { from_us: from_us - 2_000_000, until_us });
    }

    /// Starts again what has ended by itself, and writes that down: no fault explains it.
    async fn look_after_the_dead(&mut self) -> Result<()> {
        // It gives up where it cannot recover, on a full disk for one; somebody starts it again.
        if let Some(postgres) = &self.postgres
            && !postgres.is_up()?
        {
            progress("PostgreSQL ended by itself");
            *self.log.injected.entry("PostgreSQL ended by itself".to_owned()).or_default() += 1;
            postgres.up()?;
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

    /// The shards of a process that have work all the time; none where nobody says, or it has none.
    async fn shards_of(&self, victim: usize) -> Option<HashSet<u16>> {
        let status = self.processes[victim].status().await?;
        let owned = status.shards.iter().filter(|shard| shard.owner == status.handler);
        let owned: HashSet<u16> = owned.filter_map(|shard| u16::try_from(shard.shard).ok()).collect();
        let busy = self.sink.journal().busy_shards();
        let both: HashSet<u16> = owned.intersection(&busy).copied().collect();
        (!both.is_empty()).then_some(both)
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
        self.sink.outage(None);
        for proxy in self.stores.iter().chain(&self.peers).chain([&self.consumer]) {
            proxy.set(Mode::Pass);
        }
        self.look_after_the_dead().await
    }
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
