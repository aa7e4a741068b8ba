//! TLS and client certificates, with an authority that each test makes for itself.

use std::path::Path;

use chrono::Datelike as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use tempfile::TempDir;
use tollgate_harness::resources::{PARENT, http, once, policy, schedule_name, soon};
use tollgate_harness::{
    Answer, Cli, Conduct, Consumer, Database, FREE_PORT, Kind, Releases, Service, lasting_shares, wait_for,
};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{
    GetHandlerStatusRequest, ListAuditEntriesRequest, ReleaseStatus, ReleaseTokenRequest,
    TriggerScheduleRequest,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::{curl, key, rest, wire};

/// An authority, and where its files are.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).to_str().unwrap().to_owned()
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    /// `{name}.pem` and `{name}.key`, good for 127.0.0.1, and for a client by this name.
    fn issue(&self, name: &str, to: &Path) {
        self.issue_for(name, to, None);
    }

    /// As [`Authority::issue`], good in these days from today on only.
    fn issue_for(&self, name: &str, to: &Path, days: Option<std::ops::Range<i64>>) {
        let mut params = CertificateParams::new(vec![name.to_owned(), "localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(days) = days {
            let day = |days: i64| {
                let day = (chrono::Utc::now() + chrono::TimeDelta::days(days)).date_naive();
                let (month, of_month) = (u8::try_from(day.month()), u8::try_from(day.day()));
                rcgen::date_time_ymd(day.year(), month.unwrap(), of_month.unwrap())
            };
            (params.not_before, params.not_after) = (day(days.start), day(days.end));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(to.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(to.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn with(names: &[&str]) -> Self {
        let authority = Self::new();
        for name in names {
            authority.issue(name, authority.folder.path());
        }
        authority
    }

    /// The flags of a port with the certificate of `node`.
    fn node(&self) -> Vec<String> {
        let flags = ["--tls-cert", &self.path("node.pem"), "--tls-key", &self.path("node.key")];
        flags.map(str::to_owned).to_vec()
    }

    async fn channel(&self, url: &str, identity: Option<&str>) -> Result<Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.text("ca.pem")));
        if let Some(name) = identity {
            let identity = [self.text(&format!("{name}.pem")), self.text(&format!("{name}.key"))];
            tls = tls.identity(Identity::from_pem(&identity[0], &identity[1]));
        }
        Endpoint::from_shared(url.to_owned())?.tls_config(tls)?.connect().await
    }
}

async fn serve(database: &Database, flags: &[String], more: &[&str]) -> Service {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    super::serve(database, FREE_PORT, &[&flags[..], more].concat()).await
}

fn cli(url: &str, arguments: &[&str]) -> Answer {
    Cli::new(url).run(arguments)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_speaks_tls_and_takes_a_new_certificate_up() {
    let database = Database::new(Kind::Sqlite).await;
    let admin = key(&database, "ops", "admin", None);
    let authority = Authority::with(&["node"]);
    let served = serve(&database, &authority.node(), &["--auth", "keys"]).await;
    assert!(served.url().starts_with("https://"), "{}", served.url());
    let ca = authority.path("ca.pem");
    let status = |ca: &str| cli(served.url(), &["status", "--ca", ca, "--api-key", &admin]);
    assert_eq!(status(&ca).code, 0, "{:?}", status(&ca));
    wait_for("readiness", 20, async || {
        (cli(served.url(), &["ping", "--ca", &ca]).out == "ready\n").then_some(())
    })
    .await;
    // Who does not know the authority, or speaks without TLS, gets nowhere.
    let stranger = cli(served.url(), &["ping"]);
    assert_eq!(stranger.code, 1);
    assert!(stranger.err.contains("cannot reach"), "{stranger:?}");
    let plain = served.url().replace("https", "http");
    assert_eq!(cli(&plain, &["ping"]).code, 1);
    let bearer = format!("authorization: Bearer {admin}");
    let (code, body) = curl(&["--cacert", &ca, "-H", &bearer, &format!("{}/v1/handlerStatus", served.url())]);
    assert_eq!(code, 200, "{body}");
    let (code, _) = curl(&["--http1.1", "--cacert", &ca, &format!("{}/v1/handlerStatus", served.url())]);
    assert_eq!(code, 401);
    assert_eq!(curl(&[&format!("{}/livez", served.url())]).0, 0, "an unknown authority");

    // Another authority's certificate in the same files; connections that are open stay.
    let open = authority.channel(served.url(), None).await.unwrap();
    let other = Authority::with(&[]);
    other.issue("node", authority.folder.path());
    wait_for("the new certificate", 15, async || (status(&other.path("ca.pem")).code == 0).then_some(()))
        .await;
    assert_eq!(status(&ca).code, 1, "the old one is still shown");
    let mut handler = EventHandlerServiceClient::new(wire(open, Some(&format!("Bearer {admin}"))));
    handler.get_handler_status(GetHandlerStatusRequest::default()).await.unwrap();
    let metrics = || {
        let (code, text) =
            curl(&["--cacert", &other.path("ca.pem"), "-H", &bearer, &format!("{}/metrics", served.url())]);
        assert_eq!(code, 200, "{text}");
        text
    };
    let end = metrics()
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_certificate_end_seconds ")?.parse::<f64>().ok());
    assert!(end.is_some_and(|end_s| end_s > chrono::Utc::now().timestamp() as f64), "{end:?}");
    assert!(metrics().contains("\ntollgate_certificate_stale 0"));
    // One that has expired, or is not good yet, is not taken, and named.
    let files = ["node.pem", "node.key"].map(|file| (authority.path(file), authority.text(file)));
    for (word, days) in [("has expired", -400..-30), ("is not valid yet", 30..400)] {
        other.issue_for("node", authority.folder.path(), Some(days));
        wait_for("the warning", 15, async || served.log().contains(word).then_some(())).await;
        assert!(served.log().contains("stay as they were: tls_cert"), "{}", served.log());
        assert_eq!(status(&other.path("ca.pem")).code, 0, "the one before is shown no more");
        wait_for("the metric", 15, async || {
            metrics().contains("\ntollgate_certificate_stale 1").then_some(())
        })
        .await;
    }
    for (path, text) in files {
        std::fs::write(path, text).unwrap();
    }
    // A broken file changes nothing.
    std::fs::write(authority.path("node.pem"), "no certificate").unwrap();
    wait_for("the warning", 15, async || {
        served.log().contains("node.pem\" holds no certificate").then_some(())
    })
    .await;
    assert_eq!(status(&other.path("ca.pem")).code, 0);
}

/// Browsers that have seen a page over TLS stay with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_over_tls_say_so() {
    let database = Database::new(Kind::Sqlite).await;
    let authority = Authority::with(&["node"]);
    let served =
        serve(&database, &authority.node(), &["--auth", "keys", "--advertise", "https://node:1"]).await;
    let ca = authority.path("ca.pem");
    let port = served.url().rsplit_once(':').unwrap().1;
    let page = |host: &str| {
        let (to, url) = (format!("{host}:{port}:127.0.0.1"), format!("https://{host}:{port}/console/login"));
        curl(&["-i", "--cacert", &ca, "--resolve", &to, &url])
    };
    let (code, answer) = page("node");
    assert_eq!(code, 200, "{answer}");
    assert!(answer.to_lowercase().contains("strict-transport-security: max-age="), "{answer}");
    // That would be all ports of the machine.
    let (code, answer) = page("localhost");
    assert_eq!(code, 200, "{answer}");
    assert!(!answer.to_lowercase().contains("strict-transport-security"), "{answer}");
    drop(served);
    let plain = Service::join(&database, &["--auth", "keys"]).await;
    let (code, answer) = curl(&["-i", &format!("{}/console/login", plain.url())]);
    assert_eq!(code, 200, "{answer}");
    assert!(!answer.to_lowercase().contains("strict-transport-security"), "{answer}");
    plain.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_says_who_calls() {
    let database = Database::new(Kind::Sqlite).await;
    let reader = key(&database, "viewer", "read", Some("default"));
    let authority = Authority::with(&["node", "ann.example"]);
    let strangers = Authority::with(&["ann.example"]);
    let ca = authority.path("ca.pem");
    let served = serve(&database, &authority.node(), &["--auth", "mtls", "--tls-client-ca", &ca]).await;
    let call = |arguments: &[&str], files: Option<&Authority>| {
        let pair = files.map(|files| (files.path("ann.example.pem"), files.path("ann.example.key")));
        let mut all = [arguments, &["--ca", &ca]].concat();
        if let Some((certificate, key)) = &pair {
            all.extend(["--cert", certificate, "--key", key]);
        }
        cli(served.url(), &all)
    };
    let own = Some(&authority);
    wait_for("readiness", 20, async || (call(&["ping"], own).code == 0).then_some(())).await;
    assert_eq!(call(&["pause", "all", "--reason", "drill"], own).code, 0);
    let policy = "kind: Policy\nid: p\nmaxInFlight: 1\n";
    let file = authority.path("p.yaml");
    std::fs::write(&file, policy).unwrap();
    assert_eq!(call(&["apply", "-f", &file, "--actor", "desk"], own).code, 0);
    // No certificate, and one that somebody else has signed, come no further than the handshake.
    for files in [None, Some(&strangers)] {
        for command in [&["ping"][..], &["get", "policies"], &["release", "1f-00-1-x"]] {
            let refused = call(command, files);
            assert_eq!(refused.code, 1, "{command:?}: {refused:?}");
        }
    }
    let channel = authority.channel(served.url(), Some("ann.example")).await.unwrap();
    let mut master =
        tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient::new(channel);
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..ListAuditEntriesRequest::default() };
    let entries = master.list_audit_entries(request).await.unwrap().into_inner().audit_entries;
    assert_eq!(entries[0].actor, "ann.example/desk", "{entries:?}");
    // A key beside the certificate says less.
    let narrowed = call(&["pause", "all", "--api-key", &reader], own);
    assert!(narrowed.err.contains("viewer"), "{narrowed:?}");
    assert_eq!(call(&["get", "policies", "--api-key", &reader], own).code, 0);
    // Browsers that have a certificate get the console, which asks the API from inside.
    let pair = [authority.path("ann.example.pem"), authority.path("ann.example.key")];
    let (code, page) = curl(&[
        "--cacert",
        &ca,
        "--cert",
        &pair[0],
        "--key",
        &pair[1],
        &format!("{}/n/default", served.url()),
    ]);
    assert_eq!(code, 200);
    assert!(page.contains("Dispatch is paused"), "{page}");
}

/// Waits until two processes have a lasting share of the shards each.
async fn both_have_shards(authority: &Authority, header: &str, urls: [&str; 2]) {
    let status = async |at: &str| {
        let channel = authority.channel(at, Some("ann.example")).await.unwrap();
        let mut handler = EventHandlerServiceClient::new(wire(channel, Some(header)));
        handler.get_handler_status(GetHandlerStatusRequest::default()).await.unwrap().into_inner()
    };
    let ids = [status(urls[0]).await.handler, status(urls[1]).await.handler];
    lasting_shares(&ids.into(), async || status(urls[0]).await).await;
}

/// Two processes over TLS: what a consumer releases at one is forwarded to the other, the owner of the event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_forward_to_each_other_over_tls() {
    const EVENTS: u32 = 40;
    let database = Database::new(Kind::Postgres).await;
    let admin = key(&database, "ops", "admin", None);
    let authority = Authority::with(&["node", "ann.example"]);
    let ca = authority.path("ca.pem");
    let more = [
        "--auth",
        "keys",
        "--tls-client-ca",
        &ca,
        "--tls-ca",
        &ca,
        "--allow-private-addresses",
        "127.0.0.0/8",
    ];
    let master =
        serve(&database, &authority.node(), &[&more[..], &["--roles", "master,emitter"]].concat()).await;
    let owner = serve(&database, &authority.node(), &[&more[..], &["--roles", "handler"]].concat()).await;
    let consumer = {
        // It only takes events; its releases go by hand, below.
        let plain = Service::join(&Database::new(Kind::Sqlite).await, &[]).await;
        Consumer::start(plain.link(), Releases::Unary, |_| Conduct::keep()).await
    };
    let channel = authority.channel(master.url(), Some("ann.example")).await.unwrap();
    let header = format!("Bearer {admin}");
    let mut plan = tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient::new(
        wire(channel, Some(&header)),
    );
    let parent = PARENT.to_owned();
    plan.create_policy(tollgate_proto::v1::CreatePolicyRequest {
        parent: parent.clone(),
        policy_id: "p".to_owned(),
        policy: Some(policy(EVENTS)),
        ..Default::default()
    })
    .await
    .unwrap();
    plan.create_schedule(tollgate_proto::v1::CreateScheduleRequest {
        parent,
        schedule_id: "s".to_owned(),
        schedule: Some(once(soon(3_600_000), EVENTS, "p", http(&consumer))),
        ..Default::default()
    })
    .await
    .unwrap();
    plan.trigger_schedule(TriggerScheduleRequest { name: schedule_name("s"), ..Default::default() })
        .await
        .unwrap();
    wait_for("the events", 30, async || (consumer.notes.arrivals_count() == EVENTS as usize).then_some(()))
        .await;
    let joined = serve(&database, &authority.node(), &[&more[..], &["--roles", "handler"]].concat()).await;
    // While a shard goes from one owner to the next, its releases wait in the inbox.
    both_have_shards(&authority, &header, [owner.url(), joined.url()]).await;
    let mut statuses = Vec::new();
    for (number, arrival) in consumer.notes.arrivals().into_iter().enumerate() {
        let at = if number % 2 == 0 { owner.url() } else { joined.url() };
        let channel = authority.channel(at, Some("ann.example")).await.unwrap();
        let request = ReleaseTokenRequest { name: arrival.event_id, ..ReleaseTokenRequest::default() };
        let answer =
            EventHandlerServiceClient::new(channel).release_token(request).await.unwrap().into_inner();
        statuses.push((answer.status(), answer.message));
    }
    // Through the inbox it would say so: nobody was reached. A call or two may have taken too long.
    let forwarded = (ReleaseStatus::Released, String::new());
    let count = statuses.iter().filter(|answer| **answer == forwarded).count();
    let done = [ReleaseStatus::Released, ReleaseStatus::AlreadyReleased];
    assert!(statuses.iter().all(|(status, _)| done.contains(status)), "{statuses:?}");
    assert!(count + 4 >= EVENTS as usize, "{statuses:?}");
    assert_eq!(rest(owner.url(), "GET", "/livez", None).0, 0, "a connection without a certificate");
}
