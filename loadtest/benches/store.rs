//! What a commit costs: 500 events that ended and 500 that are acquired in their place, behind the fence.
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
        let mut owner = Self { runtime, store, lease, machine };
        // The first commits only acquire.
        (0..3).for_each(|_| owner.cycle());
        owner
    }

    fn cycle(&mut self) {
        let Some(commit) = self.machine.answer() else { return };
        self.runtime.block_on(self.store.commit(&mut self.lease, &commit.changes)).unwrap();
        self.machine.committed();
    }

    fn bench(mut self, bencher: Bencher<'_, '_>, events: u32) {
        bencher.counter(ItemsCount::new(events)).bench_local(|| self.cycle());
        self.runtime.block_on(self.store.close());
    }
}

#[divan::bench(args = [64, 500], sample_count = 200, sample_size = 1)]
fn sqlite(bencher: Bencher, events: u32) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    Owner::new(&url, events).bench(bencher, events);
}

#[divan::bench(args = [64, 500], sample_count = 200, sample_size = 1)]
fn postgres(bencher: Bencher, events: u32) {
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
    Owner::new(&format!("{base}/{name}"), events).bench(bencher, events);
    execute(format!("DROP DATABASE {name} WITH (FORCE)"));
}
