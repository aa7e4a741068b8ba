//! The pages: metrics and probes; the console's login.

use tollgate_harness::{Cli, Database, Kind, Service, wait_for};

use super::{curl, key};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_for_keys_that_read_everything() {
    let database = Database::new(Kind::Sqlite).await;
    let reader = key(&database, "prometheus", "read", None);
    let bound = key(&database, "bound", "admin", Some("default"));
    let writer = key(&database, "writer", "schedule:write", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let get = |path: &str, key: Option<&str>| {
        let header = key.map(|key| format!("authorization: Bearer {key}"));
        let url = format!("{}{path}", service.url());
        let mut arguments = vec![url.as_str()];
        if let Some(header) = &header {
            arguments.extend(["-H", header]);
        }
        curl(&arguments)
    };
    for path in ["/livez", "/openapi.json"] {
        assert_eq!(get(path, None).0, 200, "{path}");
    }
    assert_ne!(get("/readyz", None).0, 401);
    assert_eq!(get("/metrics", None).0, 401);
    assert_eq!(get("/metrics", Some("tgk_x")).0, 401);
    assert_eq!(get("/metrics", Some(&bound)).0, 403);
    assert_eq!(get("/metrics", Some(&writer)).0, 403);
    let (code, text) = get("/metrics", Some(&reader));
    assert!(code == 200 && text.contains("tollgate_build_info"), "{code} {text}");
    service.stop().await;
    let service = Service::join(&database, &["--auth", "keys", "--metrics-open", "true"]).await;
    assert_eq!(curl(&[&format!("{}/metrics", service.url())]).0, 200);
    service.stop().await;
}

/// A browser that says whose page it comes from.
fn browse(service: &Service, path: &str, cookie: Option<&str>, form: Option<&[&str]>) -> (u16, String) {
    let url = format!("{}{path}", service.url());
    let cookie = cookie.map(|cookie| format!("cookie: {cookie}"));
    let mut arguments = vec!["-i", &url];
    if let Some(cookie) = &cookie {
        arguments.extend(["-H", cookie]);
    }
    if let Some(form) = form {
        arguments.extend(["-H", "sec-fetch-site: same-origin"]);
        arguments.extend(form.iter().flat_map(|field| ["--data-urlencode", field]));
    }
    curl(&arguments)
}

fn cookie(answer: &str) -> (String, String) {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap_or_else(|| panic!("{answer}"));
    let (pair, attributes) = line.split_once(';').unwrap();
    (pair.to_owned(), attributes.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_asks_for_a_key_and_acts_with_it() {
    let database = Database::new(Kind::Sqlite).await;
    let writer = key(&database, "ops", "read,schedule:write", Some("default"));
    let reader = key(&database, "viewer", "read", Some("default"));
    let blind = key(&database, "blind", "schedule:write", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let applied = Cli::new(service.url())
        .run_with(&["apply", "-f", "-", "--api-key", &writer], "kind: Policy\nid: p\nmaxInFlight: 1\n");
    assert_eq!(applied.code, 0, "{applied:?}");

    let (code, page) = browse(&service, "/n/default/policies", None, None);
    assert_eq!(code, 303);
    assert!(page.contains("location: /console/login?next="), "{page}");
    let pause = ["action=pause", "confirmed=yes", "reason=drill"];
    assert_eq!(browse(&service, "/n/default/policies/p", None, Some(&pause)).0, 401);
    assert_eq!(browse(&service, "/n/default/live", None, None).0, 401);
    assert_eq!(browse(&service, "/console/login", None, None).0, 200);
    assert_eq!(browse(&service, "/console/console.css", None, None).0, 200);
    for wrong in ["tgk_x", &blind, &format!("tgk_0123456789abcdef_{}", "0".repeat(64))] {
        let (code, page) = browse(&service, "/console/login", None, Some(&[&format!("key={wrong}")]));
        assert_eq!(code, 401);
        assert!(page.contains("This key is not good") && !page.contains("set-cookie"), "{page}");
    }
    // A page of another site cannot log somebody in.
    let field = format!("key={writer}");
    let url = format!("{}/console/login", service.url());
    assert_eq!(curl(&["-H", "sec-fetch-site: cross-site", "-d", &field, &url]).0, 403);

    let log_in = |key: &str| {
        let next = "next=//evil.example";
        let (code, answer) = browse(&service, "/console/login", None, Some(&[&format!("key={key}"), next]));
        assert_eq!(code, 303, "{answer}");
        assert!(answer.contains("location: /\r\n"), "{answer}");
        let (pair, attributes) = cookie(&answer);
        for part in ["HttpOnly", "SameSite=Strict", "Max-Age="] {
            assert!(attributes.contains(part), "{attributes}");
        }
        pair
    };
    let (ops, viewer) = (log_in(&writer), log_in(&reader));
    let (code, page) = browse(&service, "/n/default/policies/p", Some(&ops), None);
    assert!(code == 200 && page.contains("ops/console"), "{code} {page}");
    assert!(!page.contains(&writer), "the key stands in the page");
    assert_eq!(browse(&service, "/n/other", Some(&ops), None).0, 403);
    assert!(browse(&service, "/", Some(&ops), None).1.contains("location: /n/default"));
    let (code, page) = browse(&service, "/n/default/policies/p", Some(&viewer), Some(&pause));
    assert!(code == 403 && page.contains("lacks the scope"), "{code} {page}");
    assert_eq!(browse(&service, "/n/default/policies/p", Some(&ops), Some(&pause)).0, 303);
    let audit = Cli::new(service.url()).ok(&["audit", "--api-key", &writer]);
    assert!(audit.contains("ops/console"), "{audit}");
    let (_, answer) = browse(&service, "/console/logout", Some(&ops), Some(&["x=y"]));
    assert!(cookie(&answer).1.contains("Max-Age=0"), "{answer}");
    service.stop().await;
}

/// The cookie of a visitor with this key.
fn visitor(service: &Service, key: &str) -> String {
    cookie(&browse(service, "/console/login", None, Some(&[&format!("key={key}")])).1).0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_one_namespace_sees_what_waits_there() {
    let database = Database::new(Kind::Sqlite).await;
    let writer = key(&database, "ops", "read,schedule:write", Some("default"));
    let other = key(&database, "other", "read", Some("other"));
    let reader = key(&database, "viewer", "read", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let cli = Cli::new(service.url());
    let resources = "kind: Policy\nid: p\nmaxInFlight: 1\n---\nkind: Schedule\nid: late\npolicy: p\n\
                     triggers: [{cron: '0 0 1 1 *'}]\ntarget: {http: {url: 'http://127.0.0.1:9/'}}\n";
    let applied = cli.run_with(&["apply", "-f", "-", "--api-key", &writer], resources);
    assert_eq!(applied.code, 0, "{applied:?}");
    cli.ok(&["pause", "policy", "p", "--reason", "a drill", "--api-key", &writer]);
    cli.ok(&["trigger", "late", "--api-key", &writer]);
    for (key, reaches_all) in [(&writer, false), (&reader, true)] {
        let cookie = visitor(&service, key);
        let page = wait_for("the run that waits, in the page", 20, async || {
            let (code, page) = browse(&service, "/n/default", Some(&cookie), None);
            assert_eq!(code, 200, "{page}");
            // A row of its own, under what it waits for.
            page.contains("<tr id=\"r-").then_some(page)
        })
        .await;
        assert!(!page.contains("Nothing: all that is due has started."), "{page}");
        assert!(!page.contains("cannot be shown"), "{page}");
        assert_eq!(page.contains("Internals of the whole installation"), reaches_all, "{page}");
    }
    // Nobody else is told of it.
    let (code, page) = browse(&service, "/n/other", Some(&visitor(&service, &other)), None);
    assert!(code == 200 && page.contains("Nothing: all that is due has started."), "{code} {page}");
    service.stop().await;
}
