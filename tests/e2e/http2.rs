//! HTTP/2 with a server that is not ours: nginx, which closes connections as they are used, and has few streams.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use tollgate_harness::process::Process;
use tollgate_harness::resources::{once, policy, soon};
use tollgate_harness::{Database, Kind, Service, free_port, wait_for};
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::{Http2, HttpTarget, ReleaseMode, RunState, Target};

use crate::mistakes::certificate;

/// After so many requests nginx says that it goes away.
const REQUESTS: usize = 20;

/// An nginx that answers all with 200 and notes it; killed when dropped.
struct Nginx {
    folder: tempfile::TempDir,
    clear: u16,
    tls: u16,
    /// With TLS, and without HTTP/2.
    old: u16,
    _process: Process,
}

/// A request as nginx notes it.
struct Noted {
    protocol: String,
    connection: String,
    id: String,
}

impl Nginx {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [clear, tls, old] = std::array::from_fn(|_| free_port().unwrap());
        let [certificate, key] = certificate(folder.path());
        let own = folder.path().display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|of| format!("{of}_temp_path {own}/{of};"))
            .join(" ");
        let settings = format!(
            "daemon off; master_process off; pid {own}/pid; error_log {own}/error.log;
             events {{ worker_connections 512; }}
             http {{
                 {temporary}
                 log_format noted '$server_protocol $connection $http_webhook_id $status';
                 access_log {own}/noted noted;
                 keepalive_requests {REQUESTS};
                 http2_max_concurrent_streams 8;
                 server {{
                     listen 127.0.0.1:{clear} http2;
                     listen 127.0.0.1:{tls} ssl http2;
                     ssl_certificate {certificate};
                     ssl_certificate_key {key};
                     location / {{ return 200; }}
                 }}
                 server {{
                     listen 127.0.0.1:{old} ssl;
                     ssl_certificate {certificate};
                     ssl_certificate_key {key};
                     location / {{ return 200; }}
                 }}
             }}"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, settings).unwrap();
        let installed =
            ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx", "/opt/homebrew/bin/nginx"];
        let program = installed.iter().find(|path| Path::new(path).exists());
        let program = program.expect("nginx is missing; ./tests/run installs it");
        let mut command = Command::new(program);
        command.arg("-c").arg(&file).arg("-e").arg(folder.path().join("error.log")).stderr(Stdio::null());
        let process = Process::start(&mut command).unwrap();
        for port in [clear, tls, old] {
            wait_for("nginx", 10, async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok())
                .await;
        }
        Self { folder, clear, tls, old, _process: process }
    }

    fn noted(&self) -> Vec<Noted> {
        let noted = std::fs::read_to_string(self.folder.path().join("noted")).unwrap();
        let of_it = noted.lines().map(|line| {
            let [protocol, connection, id, status] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert_eq!(status, "200");
            Noted { protocol: protocol.to_owned(), connection: connection.to_owned(), id: id.to_owned() }
        });
        of_it.collect()
    }
}

/// A run of 300 events, 32 at once, which nginx notes once each; what was noted of it.
async fn runs(service: &Service, nginx: &Nginx, id: &str, url: String, http2: Http2) -> Vec<Noted> {
    let before = nginx.noted().len();
    let http = HttpTarget { url, http2: http2.into(), ..HttpTarget::default() };
    let target = Target { target: Some(TargetKind::Http(http)), release: ReleaseMode::OnResponse.into() };
    service.create_schedule(id, once(soon(300), 300, "few", target)).await.unwrap();
    let run = service.finished(id, 60).await;
    assert_eq!(run.state(), RunState::Finished, "{run:?}");
    let noted = wait_for("what nginx notes", 10, async || {
        let noted = nginx.noted();
        (noted.len() >= before + 300).then_some(noted)
    })
    .await;
    let noted: Vec<Noted> = noted.into_iter().skip(before).collect();
    let ids: BTreeSet<&str> = noted.iter().map(|noted| noted.id.as_str()).collect();
    assert_eq!((noted.len(), ids.len()), (300, 300), "each came once");
    noted
}

/// How many requests each connection had, and by which protocol.
fn connections(noted: &[Noted], protocol: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for Noted { protocol: by, connection, .. } in noted {
        assert_eq!(by, protocol);
        *counts.entry(connection.clone()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_gets_each_event_once_by_whatever_is_agreed_on() {
    let (nginx, database) = (Nginx::start().await, Database::new(Kind::Sqlite).await);
    // The one that the service trusts.
    let roots = [("SSL_CERT_FILE", nginx.folder.path().join("node.pem").display().to_string())];
    let service = Service::join_on(&database, &[], &roots).await;
    service.owns_all().await.unwrap();
    service.create_policy("few", policy(32)).await.unwrap();
    let clear = |path: &str| format!("http://127.0.0.1:{}/{path}", nginx.clear);
    let tls = |path: &str| format!("https://127.0.0.1:{}/{path}", nginx.tls);

    let known = runs(&service, &nginx, "known", clear("known"), Http2::PriorKnowledge).await;
    let known = connections(&known, "HTTP/2.0");
    // Each connection takes so many, and says that it goes away; what it has not looked at goes to another.
    assert!(known.values().all(|requests| *requests <= REQUESTS), "{known:?}");
    assert!((300 / REQUESTS..=150).contains(&known.len()), "{known:?}");

    let agreed = runs(&service, &nginx, "agreed", tls("agreed"), Http2::Unspecified).await;
    assert!(connections(&agreed, "HTTP/2.0").values().any(|requests| *requests > 8));
    let never = runs(&service, &nginx, "never", tls("never"), Http2::Never).await;
    connections(&never, "HTTP/1.1");
    // All of a burst wait for the first connection, which tells what is spoken.
    let old = format!("https://127.0.0.1:{}/old", nginx.old);
    let old = runs(&service, &nginx, "old", old, Http2::Unspecified).await;
    connections(&old, "HTTP/1.1");
    service.stop().await;
}
