//! What a process refuses to start with, and what it says when nobody is asked for a key.

use tollgate_harness::{Cli, Database, Kind, Service};

use super::{key, rest, serve};

fn refused(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("a.db").display());
    let answer = Cli::new("").run(&[&["serve", "--store", &store], flags].concat());
    assert_eq!(answer.code, 2, "{flags:?}: {answer:?}");
    answer.err
}

#[test]
fn a_port_that_others_reach_is_not_opened_unasked() {
    let text = refused(&["--listen", "0.0.0.0:0", "--auth", "off"]);
    for part in
        ["others can reach 0.0.0.0:0", "--auth keys", "tollgate key create", "--auth mtls", "--auth insecure"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(refused(&["--listen", "[::]:0", "--auth", "off"]).contains("others can reach [::]:0"));
}

#[test]
fn half_a_setup_is_refused() {
    let loopback = ["--listen", "127.0.0.1:0"];
    let with = |flags: &[&str]| refused(&[&loopback[..], flags].concat());
    assert!(with(&["--auth", "mtls"]).contains("tls_client_ca"));
    assert!(with(&["--tls-cert", "a.pem"]).contains("tls_key"));
    assert!(with(&["--tls-client-ca", "a.pem"]).contains("tls_cert"));
    assert!(with(&["--auth", "none"]).contains("expected keys, mtls"));
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("a.db").display());
    let flags = [
        "serve",
        "--store",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "/nowhere",
        "--tls-key",
        "/nowhere",
    ];
    let answer = Cli::new("").run(&flags);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("tls_cert: \"/nowhere\" cannot be read"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_asked_depends_on_the_address() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let warnings = service.log().matches("auth is off").count();
    assert_eq!(warnings, 1, "one warning: {}", service.log());
    service.stop().await;

    let far = serve(&database, "0.0.0.0:0", &[]).await;
    let url = far.url().replace("0.0.0.0", "127.0.0.1");
    assert_eq!(rest(&url, "GET", "/v1/handlerStatus", None).0, 401, "others are asked without a word");
    assert!(far.log().contains("keys travel in the clear"), "{}", far.log());
    drop(far);
    let service = Service::join(&database, &["--auth", "insecure"]).await;
    assert!(service.log().contains("auth is insecure"));
    service.stop().await;
    let service = Service::join(&database, &["--auth", "keys"]).await;
    assert!(service.log().contains("there is no key yet"), "{}", service.log());
    assert_eq!(rest(service.url(), "GET", "/v1/handlerStatus", None).0, 401);
    service.stop().await;
    let _made_before_the_start = key(&database, "ops", "admin", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    assert!(!service.log().contains("there is no key yet"));
    service.stop().await;
}
