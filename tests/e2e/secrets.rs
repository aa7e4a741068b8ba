//! What is secret is on no disk and in no log, opens for deliveries only, and moves from key to key.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, wait_for};

const BEARER: &str = "Bearer 5e6f70a1b2c3";
const PASSWORD: &str = "hunter2-is-in-no-file";

/// A schedule with everything that may be a secret.
fn yaml(consumer: &Consumer) -> String {
    format!(
        "kind: Schedule\nid: one\ntriggers: [{{cron: '0 0 1 1 *'}}]\nevents: 2\ntarget:\n  http:\n    url: {}\n    \
         secret: {SECRET}\n    headers: {{Authorization: '{BEARER}'}}\npayload: {{password: {PASSWORD}}}\n",
        consumer.url()
    )
}

fn folder(database: &Database) -> PathBuf {
    let Database::Sqlite(folder) = database else { panic!("not SQLite") };
    folder.path().to_owned()
}

/// The files of a folder that hold a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

/// What is stored as the installation's secret.
async fn installation_secret(database: &Database) -> Vec<u8> {
    let options = SqliteConnectOptions::new().filename(folder(database).join("tollgate.db"));
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let secret = sqlx::query_scalar("SELECT secret FROM installation").fetch_one(&mut connection).await;
    connection.close().await.unwrap();
    secret.unwrap()
}

fn files_hold(folder: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let file = std::fs::read(entry.unwrap().path()).unwrap();
        file.windows(bytes.len()).any(|window| window == bytes)
    })
}

/// A new key's line, and the file that holds these lines.
fn new_key(id: &str) -> String {
    Cli::new("http://127.0.0.1:1").ok(&["secrets", "generate-key", id])
}

fn key_file(folder: &tempfile::TempDir, lines: &[&str]) -> String {
    let file = folder.path().join("keys");
    std::fs::write(&file, lines.concat()).unwrap();
    file.to_str().unwrap().to_owned()
}

async fn consumer(service: &Service) -> Consumer {
    Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..2)).await
}

async fn deliver(service: &Service, consumer: &Consumer, wanted: usize) {
    Cli::new(service.url()).ok(&["trigger", "one"]);
    wait_for("deliveries", 30, async || (consumer.notes.arrivals_count() >= wanted).then_some(())).await;
    // Each has been signed with the secret.
    consumer.notes.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_secret_is_on_disk_or_in_the_log() {
    let (database, keys) = (Database::new(Kind::Sqlite).await, tempfile::tempdir().unwrap());
    let file = key_file(&keys, &[&new_key("k1")]);
    // Also where an installation was there before its first process.
    let first = ["key", "create", "ops", "--scopes", "admin", "--all-namespaces", "--store", &database.url()];
    assert_eq!(Cli::new("").run(&first).code, 0);
    let flags = ["--secret-keys-file", &file, "--log", "debug"];
    let service = Service::start_with(&database, &flags).await;
    let consumer = consumer(&service).await;
    let cli = Cli::new(service.url());
    let applied = cli.apply(&yaml(&consumer));
    assert_eq!(applied.code, 0, "{applied:?}");
    let again = cli.apply(&yaml(&consumer));
    assert!(again.out.contains("unchanged"), "{again:?}");
    deliver(&service, &consumer, 2).await;
    let shown = cli.json(&["get", "schedule", "one"]).to_string() + &cli.ok(&["describe", "schedule", "one"]);
    assert!(shown.contains(PASSWORD), "who may read a schedule reads its payload: {shown}");
    let audit = cli.json(&["audit"]).to_string();
    let log = service.log();
    assert!(log.contains("DEBUG"), "it says enough to give something away");
    for hidden in [&SECRET[6..], BEARER] {
        for text in [&shown, &audit, &log] {
            assert!(!text.contains(hidden), "{hidden} is in {text}");
        }
    }
    for hidden in [&SECRET[6..], BEARER, PASSWORD] {
        // While it runs, journal and all; and after it.
        assert_eq!(files_with(&folder(&database), hidden), [""; 0], "{hidden}");
    }
    assert!(!audit.contains(PASSWORD) && !log.contains(PASSWORD), "{audit}\n{log}");
    service.stop().await;
    for hidden in [&SECRET[6..], BEARER, PASSWORD] {
        assert_eq!(files_with(&folder(&database), hidden), [""; 0], "{hidden}");
    }
    assert!(installation_secret(&database).await.starts_with(b"enc:v1:k1:"), "with it, tokens can be made");
    assert_ne!(files_with(&folder(&database), "enc:v1:k1:"), [""; 0], "the search finds what is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_clear_is_sealed_by_a_rotation() {
    let (database, keys) = (Database::new(Kind::Sqlite).await, tempfile::tempdir().unwrap());
    let service = Service::start(&database).await;
    assert!(service.log().contains("are stored in clear"), "{}", service.log());
    let consumer = consumer(&service).await;
    assert_eq!(Cli::new(service.url()).apply(&yaml(&consumer)).code, 0);
    service.stop().await;
    for hidden in [&SECRET[6..], BEARER] {
        assert_ne!(files_with(&folder(&database), hidden), [""; 0], "{hidden} can be found");
    }
    let secret = installation_secret(&database).await;
    assert!(
        secret.len() == 32 && files_hold(&folder(&database), &secret),
        "what is searched for can be found"
    );
    let (cli, store) = (Cli::new("http://127.0.0.1:1"), database.url());
    let refused = cli.run(&["secrets", "rotate", "--store", &store]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("--secret-keys-file"), "{refused:?}");
    let file = key_file(&keys, &[&new_key("k1")]);
    let rotate = ["secrets", "rotate", "--store", &store, "--secret-keys-file", &file];
    let done = cli.ok(&rotate);
    assert_eq!(done, "3 rows hold secrets; 3 were brought under key \"k1\"\n");
    assert_eq!(cli.ok(&rotate), "3 rows hold secrets; 0 were brought under key \"k1\"\n");
    for hidden in [&SECRET[6..], BEARER] {
        assert_eq!(files_with(&folder(&database), hidden), [""; 0], "{hidden}");
    }
    assert!(!files_hold(&folder(&database), &secret), "the installation's secret is in clear");
    let service = Service::start_with(&database, &["--secret-keys-file", &file]).await;
    deliver(&service, &consumer, 2).await;
    service.stop().await;
}

async fn keys_are_rotated_while_it_runs(kind: Kind) {
    let (database, keys) = (Database::new(kind).await, tempfile::tempdir().unwrap());
    let (old, new) = (new_key("k1"), new_key("k2"));
    // An installation of before there were keys.
    Service::start(&database).await.stop().await;
    let service = Service::start_with(&database, &["--secret-keys-file", &key_file(&keys, &[&old])]).await;
    let consumer = consumer(&service).await;
    assert_eq!(Cli::new(service.url()).apply(&yaml(&consumer)).code, 0);
    assert!(service.log().contains("`tollgate secrets rotate` seals it"), "{}", service.log());
    deliver(&service, &consumer, 2).await;
    service.stop().await;

    // The wrong key: nothing is sent, and everybody says which one is missing.
    let file = key_file(&keys, &[&new]);
    let service = Service::start_with(&database, &["--secret-keys-file", &file]).await;
    let cli = Cli::new(service.url());
    cli.ok(&["trigger", "one"]);
    wait_for("a word about the key", 30, async || {
        service.log().contains("key \"k1\", which this process does not have (it has k2)").then_some(())
    })
    .await;
    let refused = cli.apply(&yaml(&consumer).replace("events: 2", "events: 3"));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("\"k1\""), "{refused:?}");
    let failed = cli.run(&["secrets", "rotate", "--store", &database.url(), "--secret-keys-file", &file]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.err.contains("\"k1\"") && failed.err.contains("it has k2"), "{failed:?}");
    assert_eq!(consumer.notes.arrivals_count(), 2);
    service.stop().await;

    // Both: what waited is sent, and everything is brought under the first beside the running process.
    let file = key_file(&keys, &[&new, &old]);
    let service = Service::start_with(&database, &["--secret-keys-file", &file]).await;
    consumer.notes.assert_clean();
    let done = Cli::new(service.url()).ok(&[
        "secrets",
        "rotate",
        "--store",
        &database.url(),
        "--secret-keys-file",
        &file,
    ]);
    assert!(done.starts_with("3 rows hold secrets; 3 were brought under key \"k2\"\n"), "{done}");
    assert!(done.contains("in use"), "{done}");
    service.stop().await;

    // The old key may go, and is of no use any more.
    let only_old = key_file(&keys, &[&old]);
    let store = database.url();
    let serve = ["serve", "--store", &store, "--listen", "127.0.0.1:0", "--secret-keys-file", &only_old];
    let refused = Cli::new("").run(&serve);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("the installation's secret is sealed with key \"k2\""), "{refused:?}");
    let file = key_file(&keys, &[&new]);
    let service = Service::start_with(&database, &["--secret-keys-file", &file]).await;
    let consumer_again = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..2)).await;
    let moved = yaml(&consumer_again);
    assert_eq!(Cli::new(service.url()).apply(&moved).code, 0);
    deliver(&service, &consumer_again, 2).await;
    service.stop().await;
}

/// Whoever reads the database can make tokens where nothing seals the installation's secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_on_the_machine_reads_the_database() {
    use std::os::unix::fs::PermissionsExt as _;
    let database = Database::new(Kind::Sqlite).await;
    let modes = || {
        let entries = std::fs::read_dir(folder(&database)).unwrap().map(Result::unwrap);
        let mut modes: Vec<(String, u32)> = entries
            .map(|entry| {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                (entry.file_name().to_str().unwrap().to_owned(), mode)
            })
            .filter(|(name, _)| name.starts_with("tollgate.db"))
            .collect();
        modes.sort();
        modes
    };
    let service = Service::start(&database).await;
    assert!(modes().len() >= 4, "{:?}", modes());
    assert!(modes().iter().all(|(_, mode)| *mode == 0o600), "{:?}", modes());
    service.stop().await;
    // One that an older version made; its group keeps what it may.
    for (name, mode) in modes() {
        assert_eq!(mode, 0o600, "{name}");
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(folder(&database).join(name), open).unwrap();
    }
    let service = Service::start(&database).await;
    let of_database = modes().into_iter().filter(|(name, _)| !name.ends_with(".lock"));
    assert!(
        of_database.clone().count() >= 3 && of_database.clone().all(|(_, mode)| mode == 0o640),
        "{:?}",
        modes()
    );
    service.stop().await;
}

#[test]
fn keys_that_are_none_stop_the_start_and_are_not_repeated() {
    let keys = tempfile::tempdir().unwrap();
    let line = new_key("k1");
    let cut = &line[..line.len() - 9];
    let file = key_file(&keys, &["# keys\n", cut]);
    let store = format!("sqlite:{}", keys.path().join("t.db").display());
    let cli = Cli::new("http://127.0.0.1:1");
    let serve = |file: &str| {
        cli.run(&["serve", "--store", &store, "--listen", "127.0.0.1:0", "--secret-keys-file", file])
    };
    let refused = serve(&file);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("line 2") && refused.err.contains("\"k1\""), "{refused:?}");
    assert!(!refused.err.contains(&cut[3..]), "{refused:?}");
    for file in ["/nowhere/keys", &key_file(&keys, &["# none\n"])] {
        let refused = serve(file);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("secret_keys_file") && refused.err.contains(file), "{refused:?}");
    }
}

on_both_stores!(keys_are_rotated_while_it_runs);
