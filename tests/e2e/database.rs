//! What the service does while its PostgreSQL is away, silent, locked or read-only, and while people ask it for much.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_harness::proxy::Mode;
use tollgate_harness::resources::{every, http, policy, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::ListAuditEntriesRequest;

/// A second of grace, and what a stop may take besides, on a busy machine.
const ENDS_MAX: Duration = Duration::from_secs(20);

/// A process with a schedule that fires each second, and events under way.
async fn at_work(database: &Database, lease: &str) -> (Service, Consumer) {
    let flags = ["--shutdown-grace", "1s", "--lease-ttl", lease];
    let service = Service::start_with(database, &flags).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    service.create_policy("p", policy(5)).await.unwrap();
    service.create_schedule("s", every(1, soon(500), 2, "p", http(&consumer))).await.unwrap();
    wait_for("arrivals", 30, async || (consumer.notes.arrivals_count() > 0).then_some(())).await;
    (service, consumer)
}

/// The process ends within its grace and what a stop may take besides, whatever the database does.
async fn ends_although(mode: Mode) {
    let database = Database::new(Kind::Postgres).await;
    let (proxy, through) = database.behind_a_proxy().await;
    let (mut service, _consumer) = at_work(&through, "2s").await;
    proxy.set(mode);
    // Something is under way that gets no answer.
    tokio::time::sleep(Duration::from_secs(2)).await;
    service.end(ENDS_MAX).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_a_process_whose_database_is_silent() {
    ends_although(Mode::Stall).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_a_process_whose_database_refuses_it() {
    ends_although(Mode::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_a_process_whose_tables_are_locked() {
    let database = Database::new(Kind::Postgres).await;
    let (mut service, _consumer) = at_work(&database, "2s").await;
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    let lock = "BEGIN; LOCK TABLE members, queue_shards, runs, event_history IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    service.end(ENDS_MAX).await.unwrap();
    other.close().await.unwrap();
}

/// Many people ask for what takes long, and events go out as if nobody did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reads_by_people_stop_neither_heartbeats_nor_dispatch() {
    let database = Database::new(Kind::Postgres).await;
    // No pause of the machine alone is taken for a database that does not answer.
    let (service, consumer) = at_work(&database, "6s").await;
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE").execute(&mut other).await.unwrap();
    let reading: Vec<_> = (0..40)
        .map(|_| {
            let mut master = service.master();
            tokio::spawn(async move {
                loop {
                    let request = ListAuditEntriesRequest {
                        parent: "namespaces/default".to_owned(),
                        ..Default::default()
                    };
                    // It is refused, or takes too long.
                    let _answer = master.list_audit_entries(request).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Longer than a lease: whoever cannot show a sign of life stops sending.
    for _ in 0..7 {
        let before = consumer.notes.arrivals_count();
        wait_for("more arrivals", 10, async || (consumer.notes.arrivals_count() >= before + 4).then_some(()))
            .await;
    }
    let log = service.log();
    assert!(!log.contains("no sign of life"), "{log}");
    reading.iter().for_each(tokio::task::JoinHandle::abort);
    other.close().await.unwrap();
    consumer.notes.assert_clean();
    service.stop().await;
}

/// Connections come to a server that only reads, for some seconds: a standby, before it is the one that writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_does_not_stay_on_a_server_that_only_reads() {
    let database = Database::new(Kind::Postgres).await;
    let (service, consumer) = at_work(&database, "2s").await;
    let reads_only = async |on: bool| {
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        let text = format!(
            "BEGIN READ WRITE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {on}',
                current_database()); END $$; COMMIT;
             SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE {on} AND datname = current_database() AND pid <> pg_backend_pid()"
        );
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    };
    reads_only(true).await;
    let ready = async |wanted: bool| {
        let what = if wanted { "a process that is ready" } else { "a process that says that it is not" };
        wait_for(what, 40, async || (is_ready(service.url()).await == wanted).then_some(())).await;
    };
    ready(false).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!is_ready(service.url()).await);
    reads_only(false).await;
    ready(true).await;
    let before = consumer.notes.arrivals_count();
    wait_for("more arrivals", 30, async || (consumer.notes.arrivals_count() > before + 2).then_some(()))
        .await;
    service.stop().await;
}

/// What `/readyz` says.
pub(crate) async fn is_ready(url: &str) -> bool {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.starts_with("HTTP/1.1 200")
}
