//! What a commit costs: 500 events that ended and 500 that are acquired in their place, behind the fence; and the
//! emission of a run.
//!
//! PostgreSQL is the one at `TOLLGATE_TEST_POSTGRES`, whose user may create databases; without it only SQLite is measured.

#![expect(clippy::unwrap_used, reason = "benchmarks")]

mod machine;

use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use machine::Machine;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::runtime::Runtime;
use tollgate_core::model::{Run, RunId};
use tollgate_store::Store;
use tollgate_store::handle::Lease;

fn main() {
    divan::main();
}

/// A store, a shard of it, and the shard's machine.
struct Owner {
    runtime: Runtime,
    store: Arc<dyn Store>,
    lease: Lease,
    machine: Machine,
    run: Run,
}

impl Owner {
    fn new(url: &str, max_in_flight: u32) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (machine, run) = Machine::new(max_in_flight);
        let (store, lease) = runtime.block_on(async {
            let store = tollgate_store::open(url, 4).await.unwrap();
            let leases = store.leases().await.unwrap();
            let lease = store.take_shard(&leases[0], "bench").await.unwrap().unwrap();
            store.emit(std::slice::from_ref(&run), &[]).await.unwrap();
            (store, lease)
        });
        let mut owner = Self { runtime, store, lease, machine, run };
        // The first commits only acquire.
        (0..3).for_each(|_| owner.cycle());
        owner
    }

    fn cycle(&mut self) {
        let Some(commit) = self.machine.answer() else { return };
        self.runtime.block_on(self.store.commit(&self.lease, &commit.changes)).unwrap();
        self.machine.committed();
    }

    fn bench(mut self, bencher: Bencher<'_, '_>, events: u32) {
        bencher.counter(ItemsCount::new(events)).bench_local(|| self.cycle());
        self.runtime.block_on(self.store.close());
    }

    /// A run is one row, however many events it has.
    fn bench_emission(mut self, bencher: Bencher<'_, '_>) {
        bencher.bench_local(|| {
            self.run.launch_us += 1;
            self.run.id = RunId::derive(self.run.schedule_uid, self.run.launch_us);
            self.runtime.block_on(self.store.emit(std::slice::from_ref(&self.run), &[])).unwrap()
        });
        self.runtime.block_on(self.store.close());
    }
}

#[divan::bench(args = [64, 500], sample_count = 200, sample_size = 1)]
fn sqlite(bencher: Bencher, events: u32) {
    on_sqlite(events, |owner| owner.bench(bencher, events));
}

#[divan::bench(args = [64, 500], sample_count = 200, sample_size = 1)]
fn postgres(bencher: Bencher, events: u32) {
    on_postgres(events, |owner| owner.bench(bencher, events));
}

#[divan::bench(sample_count = 200, sample_size = 1)]
fn sqlite_emission(bencher: Bencher) {
    on_sqlite(64, |owner| owner.bench_emission(bencher));
}

#[divan::bench(sample_count = 200, sample_size = 1)]
fn postgres_emission(bencher: Bencher) {
    on_postgres(64, |owner| owner.bench_emission(bencher));
}

fn on_sqlite(max_in_flight: u32, bench: impl FnOnce(Owner)) {
    let folder = tempfile::tempdir().unwrap();
    bench(Owner::new(&format!("sqlite:{}", folder.path().join("bench.db").display()), max_in_flight));
}

/// Nothing where no server is named.
fn on_postgres(max_in_flight: u32, bench: impl FnOnce(Owner)) {
    let Ok(server) = std::env::var("TOLLGATE_TEST_POSTGRES") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let execute = |sql: String| {
        runtime.block_on(async {
            let mut connection = PgConnection::connect(&server).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        });
    };
    let name = format!("tollgate_{}", uuid::Uuid::now_v7().simple());
    execute(format!("CREATE DATABASE {name}"));
    let (base, _) = server.rsplit_once('/').unwrap();
    bench(Owner::new(&format!("{base}/{name}"), max_in_flight));
    execute(format!("DROP DATABASE {name} WITH (FORCE)"));
}
