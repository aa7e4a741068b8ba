//! Alerts by form, resources as JSON and YAML: what does harm is asked once more, however it is written. And what is found.

mod submit;

use hyper::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tollgate_harness::resources::{http, once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service};
use tollgate_proto::v1::{
    Alert, CreateScheduleRequest, GetAlertRequest, GetPolicyRequest, GetScheduleRequest,
    ListAuditEntriesRequest, ListRunsRequest, Policy, Schedule,
};

use super::{Browser, PARENT, short};

/// A port that answers each request with 204, once a connection.
async fn takes_all() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            });
        }
    });
    port
}

async fn alert(service: &Service) -> Alert {
    let name = format!("{PARENT}/alerts/on-call");
    service.master().get_alert(GetAlertRequest { name }).await.unwrap().into_inner()
}

async fn alerts_are_made_and_steered(kind: Kind) {
    const PATH: &str = "/n/default/alerts/on-call";
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let browser = Browser::new(&service);
    let url = format!("http://127.0.0.1:{}/hook", takes_all().await);
    browser.page("/n/default/alerts").await.shows(&["Nobody is told when something is wrong."]);
    browser.page("/n/default/new/alert").await.shows(&[
        "Only these troubles",
        "a target refuses",
        "Disabled",
    ]);
    let form = |fields: &[(&'static str, &str)]| {
        let common = [("form", "fields"), ("id", "on-call"), ("troubles", "yes"), ("group_wait", "1s")];
        let all = common.iter().chain(fields).map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        all.collect::<Vec<(String, String)>>()
    };
    let post = async |path: &str, fields: &[(&'static str, &str)]| {
        let fields = form(fields);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, text)| (&**name, &**text)).collect();
        browser.post(path, &fields).await
    };
    let wrong = post("/n/default/new/alert", &[("action", "save"), ("target.http.url", "nowhere")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", wrong.text);
    wrong.shows(&["id=\"error-target-http-url\"", "value=\"nowhere\""]);
    let kinds = [("troubles.kinds:TROUBLE_KIND_POLICY_PAUSED", "yes"), ("runs", "ALERT_RUNS_FINISHED")];
    let rest = [("action", "save"), ("target.http.url", &*url), ("policies", "p\nq"), ("reason", "nights")];
    let page = post("/n/default/new/alert", &[&kinds[..], &rest[..]].concat()).await;
    page.shows(&["It has been made.", "<code>policies[0]</code>: ", "<code>policies[1]</code>: "]);
    let made = alert(&service).await;
    let troubles = made.troubles.clone().unwrap();
    assert_eq!(
        troubles.kinds().map(|kind| kind.as_str_name()).collect::<Vec<_>>(),
        ["TROUBLE_KIND_POLICY_PAUSED"]
    );
    assert_eq!((made.policies.len(), made.group_wait.map(|wait| wait.seconds)), (2, Some(1)));
    browser.page(PATH).await.shows(&["a policy is paused and events wait", &url, "policy p, q", "quiet"]);
    browser.page("/n/default/alerts").await.shows(&[">on-call</a>", &url]);
    assert_eq!(browser.look("/n/default/go?q=call").await.goes_to(), PATH);

    browser.post(PATH, &[("action", "test")]).await.shows(&["The receiver has taken the test message."]);
    browser
        .post(PATH, &[("action", "disable")])
        .await
        .shows(&["Disable on-call?", "is told nothing any more"]);
    assert!(!alert(&service).await.disabled, "disabled before it was confirmed");
    let page = browser.confirmed(PATH, &[("action", "disable")], "").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "disabled without a reason");
    assert_eq!(browser.confirmed(PATH, &[("action", "disable")], "a move").await.goes_to(), PATH);
    assert!(alert(&service).await.disabled);
    browser.page(PATH).await.shows(&[">disabled</span>", "a move"]);
    let enabled = browser.confirmed(PATH, &[("action", "enable")], "").await;
    enabled.shows(&["Enabled.", "<code>policies[0]</code>: "]);
    assert!(!alert(&service).await.disabled);

    tells_others(&service, &browser).await;
    browser.post(PATH, &[("action", "delete")]).await.shows(&["cannot be undone"]);
    assert_eq!(browser.confirmed(PATH, &[("action", "delete")], "gone").await.goes_to(), "/n/default/alerts");
    assert_eq!(browser.look(PATH).await.status, StatusCode::NOT_FOUND);
    service.stop().await;
}

/// Of the alert `on-call`.
async fn tells_others(service: &Service, browser: &Browser) {
    const PATH: &str = "/n/default/alerts/on-call";
    let made = alert(service).await;
    // Whom it tells is asked once more, also as JSON, which is the whole alert.
    let whole = json!({"troubles": {}, "target": {"http": {"url": "http://127.0.0.1:9/none"}}}).to_string();
    let edit = format!("{PATH}/edit");
    let fields = [("form", "json"), ("action", "save"), ("etag", &*made.etag), ("json", &*whole)];
    browser.post(&edit, &fields).await.shows(&["Change on-call?", "http://127.0.0.1:9/none</strong>"]);
    assert_eq!(alert(service).await.target, made.target);
    assert_eq!(browser.confirmed(&edit, &fields, "the old one is gone").await.goes_to(), PATH);
    assert!(alert(service).await.policies.is_empty());
    let page = browser.post(PATH, &[("action", "test")]).await;
    page.shows(&["The receiver has not taken the test message."]);
    browser
        .page("/n/default/audit?resource=alert/on-call")
        .await
        .shows(&["the old one is gone", ">on-call</a>"]);
}

/// A limit that is raised in the JSON is asked as one that is raised in its field, and so are triggers and events.
async fn what_is_written_as_json_is_asked_too(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(2)).await.unwrap();
    service.create_schedule("s", once(soon(3_600_000), 5, "p", http(&consumer))).await.unwrap();
    let browser = Browser::new(&service);
    let limits = async || {
        let request = GetPolicyRequest { name: policy_name("p") };
        service.master().get_policy(request).await.unwrap().into_inner()
    };
    let timing = async || {
        let request = GetScheduleRequest { name: schedule_name("s") };
        service.master().get_schedule(request).await.unwrap().into_inner()
    };
    let (Policy { etag, .. }, path) = (limits().await, "/n/default/policies/p/edit");
    let raised =
        [("form", "json"), ("action", "save"), ("etag", &*etag), ("json", r#"{"max_in_flight": 5000}"#)];
    let asked = browser.post(path, &raised).await;
    assert_eq!(asked.status, StatusCode::OK);
    asked.shows(&["Change the limits of p?", "<del>2</del> → <strong>5,000</strong>", "Save all changes"]);
    assert_eq!(limits().await.max_in_flight, Some(2), "raised before it was confirmed");
    let without = browser.confirmed(path, &raised, " ").await;
    assert_eq!((without.status, limits().await.max_in_flight), (StatusCode::UNPROCESSABLE_ENTITY, Some(2)));
    assert_eq!(browser.confirmed(path, &raised, "a larger host").await.goes_to(), "/n/default/policies/p");
    assert_eq!(limits().await.max_in_flight, Some(5_000));

    let (Schedule { etag, .. }, path) = (timing().await, "/n/default/schedules/s/edit");
    let target = json!({"http": {"url": consumer.url(), "has_secret": true}});
    let new =
        json!({"triggers": [{"cron": "*/5 * * * *"}], "events": 20_000, "policy": "p", "target": target});
    let new = new.to_string();
    let changed = [("form", "json"), ("action", "save"), ("etag", &*etag), ("json", &*new)];
    browser.post(path, &changed).await.shows(&[
        "Change s?",
        "It fires: ",
        "20,000 events",
        "every 5 minutes",
    ]);
    assert_eq!(timing().await.events, Some(5), "changed before it was confirmed");
    assert_eq!(browser.confirmed(path, &changed, "more often").await.goes_to(), "/n/default/schedules/s");
    assert_eq!(timing().await.events, Some(20_000));
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..ListAuditEntriesRequest::default() };
    let entries = service.master().list_audit_entries(request).await.unwrap().into_inner().audit_entries;
    for reason in ["a larger host", "more often"] {
        assert!(
            entries.iter().any(|entry| format!("{:?}", entry.difference).contains(reason)),
            "{entries:?}"
        );
    }
    copied(&service, &browser).await;
    faults_and_warnings_are_said(&service, &browser).await;
    service.stop().await;
}

/// All that is wrong with a text is said, each with its line; what is accepted and warned of is read before and after.
async fn faults_and_warnings_are_said(service: &Service, browser: &Browser) {
    let path = "/n/default/new/schedule";
    let wrong = "{\n\"triggers\": [{\"cron\": \"* * * * *\"},\n{\"cron\": \"0 25 * * *\"}],\n\"events\": 0,\n\
                 \"colour\": 1,\n\"uid\": \"x\"\n}";
    let refused =
        browser.post(path, &[("form", "json"), ("action", "check"), ("id", "w"), ("json", wrong)]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    for (line, field) in [(3, "triggers[1].cron"), (4, "events"), (5, "colour"), (6, "uid")] {
        refused.shows(&[&format!("Line {line}, <code>{field}")]);
    }
    let past = json!({
        "triggers": [{"at": "2020-01-01T00:00:00Z"}], "target": {"http": {"url": "http://127.0.0.1:9/"}},
    });
    let past = past.to_string();
    let fields = |action: &'static str| [("form", "json"), ("action", action), ("id", "w"), ("json", &*past)];
    let warned = ["<code>triggers[0].at</code>: ", "will probably not do what is meant"];
    browser.post(path, &fields("check")).await.shows(&[&warned[..], &["Nothing is wrong with it"]].concat());
    let saved = browser.post(path, &fields("save")).await;
    assert_eq!(saved.status, StatusCode::OK, "{}", saved.text);
    saved.shows(&[&warned[..], &["It has been made.", "/n/default/schedules/w/edit"]].concat());
    let request = GetScheduleRequest { name: schedule_name("w") };
    let Schedule { etag, .. } = service.master().get_schedule(request).await.unwrap().into_inner();
    let more = past.replacen('{', "{\"events\": 9,", 1);
    let edit = [("form", "json"), ("action", "save"), ("etag", &*etag), ("json", &*more)];
    let path = "/n/default/schedules/w/edit";
    browser.post(path, &edit).await.shows(&["Change w?", "Warning: ", warned[0]]);
    browser.confirmed(path, &edit, "a drill").await.shows(&[warned[0], "The schedule has been changed."]);
}

/// What a page shows as YAML is the resource: applied, it changes nothing.
async fn copied(service: &Service, browser: &Browser) {
    let folder = tempfile::tempdir().unwrap();
    let alert =
        json!({"troubles": {}, "target": {"slack": {"url": "http://127.0.0.1:9/secret/path"}}}).to_string();
    let fields = [("form", "json"), ("action", "save"), ("id", "on-call"), ("json", &*alert)];
    browser.post("/n/default/new/alert", &fields).await.goes_to();
    let mut all = Vec::new();
    for page in ["policies/p", "schedules/s", "alerts/on-call", "schedules/s/edit"] {
        let text = browser.page(&format!("/n/default/{page}")).await.text;
        let (_, rest) = text.split_once("id=\"file\"").unwrap();
        let (_, rest) = rest.split_once("<pre").unwrap();
        let (_, rest) = rest.split_once("<code>").unwrap();
        let (yaml, _) = rest.split_once("</code>").unwrap();
        let yaml =
            yaml.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        assert!(!yaml.contains("secret/path") && !yaml.contains(tollgate_harness::SECRET), "{yaml}");
        all.push(yaml);
    }
    assert_eq!(all.pop().as_ref(), all.get(1), "the form shows the same");
    let file = folder.path().join("all.yaml");
    std::fs::write(&file, all.join("---\n")).unwrap();
    let said = Cli::new(service.url()).ok(&["apply", "-f", file.to_str().unwrap()]);
    assert!(said.contains("3 unchanged"), "{said}\n{}", all.join("---\n"));
}

/// Runs by any beginning of their ids, however old; namespaces that have no policy.
async fn what_there_is_is_found(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    let schedule = Some(once(soon(3_600_000), 1, "", http(&consumer)));
    let (parent, schedule_id) = ("namespaces/lonely".to_owned(), "far".to_owned());
    let request = CreateScheduleRequest { parent, schedule_id, schedule, validate_only: false };
    service.master().create_schedule(request).await.unwrap();
    service.create_schedule("s", once(soon(500), 1, "", http(&consumer))).await.unwrap();
    let run = service.finished("s", 60).await;
    for _ in 0..3 {
        Cli::new(service.url()).ok(&["trigger", "s"]);
    }
    let browser = Browser::new(&service);
    browser.page("/n/default/namespaces").await.shows(&[">default</a>", ">lonely</a>"]);
    let (page, id) = (format!("/n/default/runs/{}", short(&run.name)), short(&run.name));
    let (_, own) = id.split_once('-').unwrap();
    let all = service.runs("s").await;
    assert_eq!(all.len(), 4);
    let shared =
        (1..32).find(|n| all.iter().filter(|run| short(&run.name)[3..].starts_with(&own[..*n])).count() == 1);
    let beginning = own[..shared.unwrap().max(3)].to_ascii_uppercase();
    for sought in [id, &id[..id.len() - 1], &beginning] {
        assert_eq!(browser.look(&format!("/n/default/go?q={sought}")).await.goes_to(), page, "{sought}");
    }
    assert!(
        browser.look(&format!("/n/lonely/go?q={beginning}")).await.text.contains("Nothing in this namespace")
    );
    let request =
        |filter: String| ListRunsRequest { parent: PARENT.to_owned(), filter, ..ListRunsRequest::default() };
    let found = service.handler().list_runs(request(format!("name={own}* AND state=FINISHED"))).await;
    assert_eq!(found.unwrap().into_inner().runs.len(), 1);
    let ordered = |order_by: &str, page_token: String| ListRunsRequest {
        parent: PARENT.to_owned(),
        order_by: order_by.to_owned(),
        page_size: 2,
        page_token,
        ..ListRunsRequest::default()
    };
    let mut pages = Vec::new();
    for order in ["", "launch_time desc", "launch_time"] {
        let first = service.handler().list_runs(ordered(order, String::new())).await.unwrap().into_inner();
        let next = first.next_page_token.clone();
        let rest = service.handler().list_runs(ordered(order, next.clone())).await.unwrap().into_inner();
        pages.push([first.runs, rest.runs].concat().into_iter().map(|run| run.name).collect::<Vec<_>>());
        let other = if order == "launch_time" { "" } else { "launch_time" };
        let foreign = service.handler().list_runs(ordered(other, next)).await.unwrap_err();
        assert!(foreign.message().contains("page_token"), "{foreign}");
    }
    assert_eq!((pages[0].len(), &pages[0]), (4, &pages[1]));
    assert_eq!(pages[2].iter().rev().collect::<Vec<_>>(), pages[0].iter().collect::<Vec<_>>());
    let refused = service.handler().list_runs(ordered("name", String::new())).await.unwrap_err();
    assert!(refused.message().contains("order_by"), "{refused}");
    let shown = async |order: &str| {
        let page = browser.look(&format!("/n/default/runs?when=all&order={order}")).await.text;
        pages[0].iter().map(|name| page.find(short(name)).unwrap()).collect::<Vec<_>>()
    };
    assert!(shown("").await.is_sorted() && shown("launch_time").await.iter().rev().is_sorted());
    let refused = browser.look("/n/default/runs?order=name").await;
    assert!(refused.text.contains("order_by"), "{}", refused.text);
    for wrong in ["name=0a-12", "name=xyz*", "name=0ab-1*"] {
        let refused = service.handler().list_runs(request(wrong.to_owned())).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong}");
    }
    consumer.notes.assert_sound();
    service.stop().await;
}

async fn calendars_are_made_and_changed(kind: Kind) {
    const PATH: &str = "/n/default/calendars/holidays";
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let browser = Browser::new(&service);
    browser.page("/n/default/schedules").await.shows(&["href=\"/n/default/calendars\""]);
    browser.page("/n/default/calendars").await.shows(&["There are no calendars."]);
    browser.page("/n/default/new/calendar").await.shows(&["New calendar", "One on each line"]);
    let new = [("form", "fields"), ("id", "holidays"), ("description", "for all")];
    let with = |dates: &'static str| [&new[..], &[("action", "save"), ("dates", dates)]].concat();
    let wrong = browser.post("/n/default/new/calendar", &with("25.12.2026")).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", wrong.text);
    wrong.shows(&["25.12.2026"]);
    let made = browser.post("/n/default/new/calendar", &with("2030-12-25\n2030-12-31..2031-01-02")).await;
    assert_eq!(made.goes_to(), PATH);

    let schedule = [("form", "fields"), ("id", "s"), ("cron", "0 3 * * *"), ("time_zone", "UTC")];
    let target = [
        ("target.http.url", "http://127.0.0.1:9/"),
        ("events", "1"),
        ("action", "save"),
        ("exclude_calendars", "holidays"),
    ];
    let made = browser.post("/n/default/new/schedule", &[&schedule[..], &target[..]].concat()).await;
    assert_eq!(made.goes_to(), "/n/default/schedules/s", "{}", made.text);
    browser
        .page("/n/default/schedules/s")
        .await
        .shows(&["Not on the dates of", "href=\"/n/default/calendars/holidays\""]);
    browser.page("/n/default/schedules/s/edit").await.shows(&[">holidays</textarea>"]);
    browser.page(PATH).await.shows(&["for all", "2030-12-31..2031-01-02", "href=\"/n/default/schedules/s\""]);
    browser.page("/n/default/calendars").await.shows(&[">holidays</a>", "2031-01-02"]);

    let edit = format!("{PATH}/edit");
    let changed =
        [("form", "fields"), ("action", "save"), ("etag", "1"), ("dates", "2030-12-25\n2030-12-24")];
    browser.post(&edit, &changed).await.shows(&[
        "Change the dates of holidays?",
        "<strong>2030-12-24</strong>",
        "<strong>2030-12-31..2031-01-02</strong>",
        "1 schedule named it",
    ]);
    assert_eq!(browser.confirmed(&edit, &changed, "a new law").await.goes_to(), PATH);
    browser.page(PATH).await.shows(&["2030-12-24", "a new law"]);
    browser.page("/n/default/schedules/s").await.shows(&["calendars/holidays"]);
    let used = browser.confirmed(PATH, &[("action", "delete")], "gone").await;
    used.shows(&["is used by schedules"]);
    service.stop().await;
}

on_both_stores!(
    calendars_are_made_and_changed,
    alerts_are_made_and_steered,
    what_is_written_as_json_is_asked_too,
    what_there_is_is_found
);
