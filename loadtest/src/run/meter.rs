//! What the processes used between two moments.

use serde::Serialize;
use tollgate_harness::kernel;

use super::round::Stage;

/// Readings at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    service_cpu_s: f64,
    database_cpu_s: Option<f64>,
    sink_cpu_s: f64,
    wal_bytes: Option<i64>,
    disk_bytes: Option<u64>,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Used {
    /// Seconds for 100,000 events: the service, or the yardstick's client.
    pub(crate) service_cpu_s: Option<f64>,
    pub(crate) database_cpu_s: Option<f64>,
    /// Service and database together.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) sink_cpu_s: Option<f64>,
    /// Of PostgreSQL, for an event.
    pub(crate) wal_bytes: Option<f64>,
    /// Written by the service itself, for an event; with SQLite that is the database.
    pub(crate) disk_bytes: Option<f64>,
    /// Of the service; of several processes, the sum.
    pub(crate) peak_mib: Option<f64>,
}

impl Reading {
    pub(crate) async fn take(stage: &mut Stage) -> anyhow::Result<Self> {
        let pids = stage.pids();
        Ok(Self {
            wal_bytes: stage.database.wal_bytes().await?,
            disk_bytes: pids.iter().map(|pid| kernel::written_bytes(*pid)).sum(),
            service_cpu_s: pids.iter().map(|pid| kernel::cpu_s(*pid)).sum(),
            database_cpu_s: stage.database.cpu_s(),
            sink_cpu_s: stage.sink.cpu_s(),
        })
    }

    /// What a round of so many events used that ends now.
    pub(crate) async fn used(self, stage: &mut Stage, events: u64) -> anyhow::Result<Used> {
        let now = Self::take(stage).await?;
        let each = |total: f64| (events > 0).then(|| total / events as f64);
        let per_100k = |total: f64| each(total * 1e5);
        let peak_bytes: Option<u64> = stage.pids().into_iter().map(kernel::peak_bytes).sum();
        let service_cpu_s = now.service_cpu_s - self.service_cpu_s;
        let database_cpu_s = now.database_cpu_s.zip(self.database_cpu_s).map(|(now, then)| now - then);
        Ok(Used {
            service_cpu_s: per_100k(service_cpu_s),
            database_cpu_s: database_cpu_s.and_then(per_100k),
            cpu_s: per_100k(service_cpu_s + database_cpu_s.unwrap_or(0.0)),
            sink_cpu_s: per_100k(now.sink_cpu_s - self.sink_cpu_s),
            wal_bytes: now.wal_bytes.zip(self.wal_bytes).and_then(|(now, then)| each((now - then) as f64)),
            disk_bytes: now
                .disk_bytes
                .zip(self.disk_bytes)
                .and_then(|(now, then)| each(now.saturating_sub(then) as f64)),
            peak_mib: peak_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)),
        })
    }

    /// CPU seconds of the service, and of the database, until now.
    pub(crate) async fn cpu_s(self, stage: &mut Stage) -> anyhow::Result<(f64, f64)> {
        let now = Self::take(stage).await?;
        let database_s = now.database_cpu_s.zip(self.database_cpu_s).map_or(0.0, |(now, then)| now - then);
        Ok((now.service_cpu_s - self.service_cpu_s, database_s))
    }
}
