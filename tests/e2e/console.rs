//! The web console over HTTP: every page with real data, each action and its effect, and who is refused.

mod charts;
mod edits;

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tollgate_harness::resources::{self, PARENT, http, once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::trigger::Trigger as Rule;
use tollgate_proto::v1::{
    Event, EventState, ExplainEventRequest, GetEventRequest, GetHandlerStatusRequest, GetPolicyRequest,
    GetScheduleRequest, ListAuditEntriesRequest, Policy, RunKind, RunState, Schedule, Trigger,
};

/// What would run if it were not escaped.
const SCRIPT: &str = "<script>alert('x')</script>";
const ESCAPED: &str = "&lt;script&gt;alert('x')&lt;/script&gt;";

/// A browser without scripts.
pub(crate) struct Browser {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    cookie: String,
}

pub(crate) struct Page {
    status: StatusCode,
    headers: hyper::HeaderMap,
    pub(crate) text: String,
}

impl Page {
    /// Where it sends the browser, without what it says was done.
    pub(crate) fn goes_to(&self) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        let location = self.headers[header::LOCATION].to_str().unwrap();
        location.split('?').next().unwrap().to_owned()
    }

    pub(crate) fn shows(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.text.contains(part), "{part}\n{}", self.text);
        }
    }
}

impl Browser {
    pub(crate) fn new(service: &Service) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, base: service.url().to_owned(), cookie: String::new() }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Page {
        let answer = self.client.request(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Page { status: parts.status, headers: parts.headers, text }
    }

    /// Whatever is answered.
    async fn look(&self, path: &str) -> Page {
        let uri = format!("{}{path}", self.base);
        self.send(Request::get(uri).body(Full::default()).unwrap()).await
    }

    /// A page that must be there, with all that protects it.
    pub(crate) async fn page(&self, path: &str) -> Page {
        let page = self.look(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}\n{}", page.text);
        let text = |name: &str| page.headers[name].to_str().unwrap();
        assert_eq!(text("content-type"), "text/html; charset=utf-8", "{path}");
        let policy = text("content-security-policy");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
        }
        assert_eq!(text("x-content-type-options"), "nosniff");
        assert_eq!(text("cache-control"), "no-store");
        for part in ["<title>", "lang=\"en\"", "href=\"#main\"", "<h1>", "</html>"] {
            assert!(page.text.contains(part), "{path} lacks {part}\n{}", page.text);
        }
        for foreign in ["<script>", "style=\"", "onclick", "//cdn", "https://"] {
            assert!(!page.text.contains(foreign), "{path} has {foreign}\n{}", page.text);
        }
        page
    }

    /// A page that shows a text, if not at once, then soon.
    async fn in_time(&self, path: &str, text: &str) -> Page {
        wait_for(text, 20, async || {
            let page = self.page(path).await;
            page.text.contains(text).then_some(page)
        })
        .await
    }

    fn form(&self, path: &str, fields: &[(&str, &str)]) -> hyper::http::request::Builder {
        assert!(!fields.is_empty());
        Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::COOKIE, &self.cookie)
    }

    /// Posts a form as the page does that asks first.
    pub(crate) async fn confirmed(&self, path: &str, fields: &[(&str, &str)], reason: &str) -> Page {
        self.post(path, &[fields, &[("confirmed", "yes"), ("reason", reason)]].concat()).await
    }

    /// Posts a form as a page of the console does.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let form = self.form(path, fields);
        let form = form.header("sec-fetch-site", "same-origin").header(header::ORIGIN, &self.base);
        self.send(form.body(encoded(fields)).unwrap()).await
    }
}

fn encoded(fields: &[(&str, &str)]) -> Full<Bytes> {
    let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    Full::from(pairs.join("&"))
}

/// A service with a policy of two tokens that are held and eight events that wait, and a schedule for every weekday.
async fn busy(database: &Database) -> (Service, Consumer) {
    let service = Service::start(database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let gentle = Policy { description: SCRIPT.to_owned(), ..policy(2) };
    service.create_policy("gentle", gentle).await.unwrap();
    let batch = once(soon(300), 10, "gentle", http(&consumer));
    service.create_schedule("batch", Schedule { description: SCRIPT.to_owned(), ..batch }).await.unwrap();
    let nightly = Schedule {
        triggers: vec![Trigger { trigger: Some(Rule::Cron("0 3 * * MON-FRI".to_owned())) }],
        time_zone: "Europe/Berlin".to_owned(),
        start_time: Some(resources::next_january()),
        ..once(soon(300), 100, "gentle", http(&consumer))
    };
    service.create_schedule("nightly", nightly).await.unwrap();
    wait_for("two held tokens", 20, async || {
        let held = held(&service).await;
        (held.len() == 2).then_some(())
    })
    .await;
    (service, consumer)
}

async fn held(service: &Service) -> Vec<Event> {
    let runs = service.runs("batch").await;
    let Some(run) = runs.first() else { return Vec::new() };
    let events = service.events(&run.name).await;
    events.into_iter().filter(|event| event.state() == EventState::Held).collect()
}

fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_what_is_there() {
    let database = Database::new(Kind::Sqlite).await;
    let (service, _consumer) = busy(&database).await;
    let browser = Browser::new(&service);
    let run = service.runs("batch").await.remove(0);
    let (run_id, event) = (short(&run.name).to_owned(), held(&service).await.remove(0));

    browser.in_time("/", ">batch</a>").await;
    let now = browser.in_time("/", "data-stream=\"/n/default/live\"").await;
    now.shows(&[">gentle</a>", "Running", ">batch</a>", "Due, not started", "Windows at risk", "Internals"]);

    let page = browser.page("/n/default/policies").await;
    page.shows(&["/n/default/policies/gentle", ESCAPED, "Held / limit"]);
    let page = browser.page("/n/default/policies/gentle").await;
    page.shows(&[ESCAPED, "Who holds tokens", &format!("/n/default/events/{}", event.event_id)]);
    page.shows(&["Schedules that wait", "In flight at most", "/n/default/schedules/batch", "2 / 2"]);
    let page = browser.page("/n/default/policies?state=PAUSED").await;
    page.shows(&["No policy fits this."]);
    let page = browser.page("/n/default/schedules").await;
    page.shows(&["every weekday at 03:00 in Berlin", "/n/default/schedules/nightly"]);
    let page = browser.page("/n/default/schedules?policy=gentle&state=ACTIVE").await;
    page.shows(&[">batch</a>", ">nightly</a>"]);
    let page = browser.page("/n/default/schedules/nightly").await;
    page.shows(&["100 events every weekday at 03:00 in Berlin", "0 3 * * MON-FRI", "03:00:00", "+01:00"]);
    page.shows(&["Around the next clock change", "+02:00", "It has not fired yet.", "Trigger…"]);
    let page = browser.page("/n/default/schedules/batch").await;
    page.shows(&[ESCAPED, "once, on ", "Past runs", "Children", &run_id]);

    let page = browser.page("/n/default/runs?schedule=batch&state=RUNNING").await;
    page.shows(&[&format!("/n/default/runs/{run_id}")]);
    let page = browser.page(&format!("/n/default/runs/{run_id}")).await;
    page.shows(&["running", "Timeline", "emitted", "first event started", &event.event_id]);
    let page = browser.page(&format!("/n/default/runs/{run_id}?state=WAITING")).await;
    assert!(!page.text.contains(&event.event_id), "{}", page.text);

    let page = browser.page(&format!("/n/default/events/{}", event.event_id)).await;
    page.shows(&["held", "token acquired", "delivered", "holds its token until now", "Free its token"]);
    let waiting = service.events(&run.name).await;
    let waiting = waiting.iter().find(|event| event.state() == EventState::Waiting).unwrap();
    let page = browser.page(&format!("/n/default/events/{}", waiting.event_id)).await;
    let request = ExplainEventRequest { name: waiting.name.clone() };
    let why = service.handler().explain_event(request).await.unwrap().into_inner();
    page.shows(&["Why it is where it is", "limit reached", &why.reasons[0].message]);

    browser.in_time("/n/default/calendar", "exact from the launch index").await;
    let week = browser.in_time("/n/default/calendar?span=week", "Where most will wait").await;
    week.shows(&["Every column is ten minutes"]);
    let page = browser.page("/n/default/schedules/nightly/edit").await;
    page.shows(&["0 3 * * MON-FRI", "Europe/Berlin", "All of it, as JSON", "&quot;has_secret&quot;: true"]);
    assert!(!page.text.contains(tollgate_harness::SECRET), "a secret is shown");
    let page = browser.page("/n/default/audit").await;
    page.shows(&["create", "max_in_flight", ">nightly</a>"]);
    let page = browser.page("/n/default/audit?resource=policy/gentle").await;
    assert!(!page.text.contains(">nightly</a>"), "{}", page.text);
    browser.page("/n/default/you").await.shows(&["Name in the audit log"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let browser = Browser::new(&service);
    browser.page("/").await.shows(&["No policies yet", "tollgate apply -f FILE", "Nothing runs"]);
    browser.page("/n/default/schedules").await.shows(&["No schedules yet."]);
    browser.page("/n/default/runs").await.shows(&["Nothing has run yet."]);
    browser.in_time("/n/default/calendar", "Nothing falls due in this time.").await;
    browser.page("/n/default/audit").await.shows(&["Nothing has been changed"]);
    for (path, status) in [
        ("/n/default/policies/none", StatusCode::NOT_FOUND),
        ("/n/default/schedules/none", StatusCode::NOT_FOUND),
        ("/n/default/runs/00-00000000000000000000000000000000", StatusCode::NOT_FOUND),
        ("/n/default/runs/x", StatusCode::UNPROCESSABLE_ENTITY),
        ("/n/default/schedules?page=broken", StatusCode::UNPROCESSABLE_ENTITY),
        ("/console/none.js", StatusCode::NOT_FOUND),
    ] {
        let page = browser.look(path).await;
        assert_eq!(page.status, status, "{path}\n{}", page.text);
        assert!(!page.text.contains("<script>"), "{path}\n{}", page.text);
        assert!(page.headers.contains_key("content-security-policy"), "{path}");
    }
    browser
        .page("/n/default/go?q=%3Cscript%3E")
        .await
        .shows(&["Nothing in this namespace", "&lt;script&gt;"]);
    browser.page("/n/default/namespaces").await.shows(&[">default</a>", "Another namespace"]);
    for (file, kind) in
        [("console.css", "text/css"), ("console.js", "text/javascript"), ("icon.svg", "image/svg+xml")]
    {
        let page = browser.look(&format!("/console/{file}")).await;
        assert!(page.headers["content-type"].to_str().unwrap().starts_with(kind), "{file}");
        assert!(!page.text.is_empty());
    }
    // Whatever else speaks on the port is not hidden by it.
    service.handler().get_handler_status(GetHandlerStatusRequest::default()).await.unwrap();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_take_effect() {
    let database = Database::new(Kind::Sqlite).await;
    let (service, _consumer) = busy(&database).await;
    let mut browser = Browser::new(&service);
    let page = browser.post("/n/default/you", &[("name", "ann@ops")]).await;
    let cookie = page.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    browser.cookie = cookie.split(';').next().unwrap().to_owned();
    act_on_a_policy(&service, &browser).await;
    act_on_a_schedule(&service, &browser).await;
    let page = browser.confirmed("/n/default", &[("action", "pause")], "fire drill").await;
    assert_eq!(page.goes_to(), "/n/default");
    assert!(shards_paused(&service).await);
    wait_for("the warning", 20, async || {
        browser.page("/").await.text.contains("Dispatch is paused").then_some(())
    })
    .await;
    browser.confirmed("/n/default", &[("action", "resume")], "").await.goes_to();
    assert!(!shards_paused(&service).await);
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..ListAuditEntriesRequest::default() };
    let entries = service.master().list_audit_entries(request).await.unwrap().into_inner().audit_entries;
    let by_ann: Vec<&str> =
        entries.iter().filter(|entry| entry.actor == "ann@ops").map(|entry| entry.action.as_str()).collect();
    for action in ["update", "pause", "resume", "trigger", "cancel", "delete"] {
        assert!(by_ann.contains(&action), "{action}: {by_ann:?}");
    }
    // Why each was done stands beside it.
    for (action, reason) in
        [("cancel", "a mistake"), ("trigger", "by hand"), ("update", "more of them"), ("delete", "gone")]
    {
        let noted =
            |entry: &tollgate_proto::v1::AuditEntry| format!("{:?}", entry.difference).contains(reason);
        assert!(entries.iter().any(|entry| entry.action == action && noted(entry)), "{action}: {entries:?}");
    }
    browser.page("/n/default/audit").await.shows(&["ann@ops", "max_in_flight"]);
    service.stop().await;
}

async fn shards_paused(service: &Service) -> bool {
    let status = service.handler().get_handler_status(GetHandlerStatusRequest::default()).await;
    status.unwrap().into_inner().shards.iter().all(|shard| shard.paused)
}

async fn act_on_a_policy(service: &Service, browser: &Browser) {
    const PATH: &str = "/n/default/policies/gentle";
    let stored = async || {
        let request = GetPolicyRequest { name: policy_name("gentle") };
        service.master().get_policy(request).await.unwrap().into_inner()
    };
    let etag = stored().await.etag;
    let limit = |limit: &'static str, etag: &str| {
        let etag = etag.to_owned();
        async move {
            let fields =
                [("action", "limit"), ("max_in_flight", limit), ("etag", &etag), ("confirmed", "yes")];
            browser.post(PATH, &[&fields[..], &[("reason", "more of them")]].concat()).await
        }
    };
    // Nothing is done before it has been confirmed, and nothing dangerous without a reason.
    let fields = [("action", "limit"), ("max_in_flight", "3"), ("etag", &*etag)];
    let asked = browser.post(PATH, &fields).await;
    assert_eq!(asked.status, StatusCode::OK);
    asked.shows(&[
        "Change the limits of gentle?",
        "<del>2</del>",
        "1 event may start at once",
        "of 8 that wait",
    ]);
    let asked = browser.post(PATH, &[&fields[..], &[("confirmed", "yes")]].concat()).await;
    assert_eq!(asked.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(stored().await.max_in_flight, Some(2));
    assert_eq!(limit("3", &etag).await.goes_to(), PATH);
    assert_eq!(stored().await.max_in_flight, Some(3));
    let late = limit("4", &etag).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "{}", late.text);
    late.shows(&["Somebody else changed it", "Who holds tokens"]);
    for wrong in ["0", "many"] {
        let page = limit(wrong, "").await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
        page.shows(&["max_in_flight", "role=\"alert\""]);
    }
    assert_eq!(stored().await.max_in_flight, Some(3));

    let event = held(service).await.remove(0);
    let free = [("action", "release"), ("event", &*event.name), ("outcome", "SUCCEEDED")];
    let page = browser.post(PATH, &free).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "a token was freed without a reason");
    let with_reason = [free[0], free[1], free[2], ("reason", "its consumer <b>died</b>")];
    assert_eq!(browser.post(PATH, &with_reason).await.goes_to(), PATH);
    let request = GetEventRequest { name: event.name.clone() };
    let ended = service.handler().get_event(request).await.unwrap().into_inner();
    assert_eq!(ended.state(), EventState::Succeeded);
    assert_eq!(ended.message, "freed by ann@ops: its consumer <b>died</b>");
    let page = browser.page(&format!("/n/default/events/{}", event.event_id)).await;
    page.shows(&["its consumer &lt;b&gt;died&lt;/b&gt;", "token released: done"]);

    assert_eq!(browser.confirmed(PATH, &[("action", "pause")], SCRIPT).await.goes_to(), PATH);
    assert_eq!(stored().await.pause.unwrap().reason, SCRIPT);
    browser.page(PATH).await.shows(&["ann@ops", ESCAPED, "Nothing under it starts"]);
    browser.post(PATH, &[("action", "resume")]).await.shows(&[
        "Resume gentle?",
        "may start at once",
        ESCAPED,
    ]);
    browser.confirmed(PATH, &[("action", "resume")], "").await.goes_to();
    assert_eq!(stored().await.pause, None);
    browser.post(PATH, &[("action", "delete")]).await.shows(&["2 schedules", "cannot be undone"]);
    let page = browser.confirmed(PATH, &[("action", "delete")], "tidy").await;
    assert_eq!(page.status, StatusCode::CONFLICT, "a policy in use was deleted");
    let page = browser.post(PATH, &[("action", "explode")]).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
}

async fn act_on_a_schedule(service: &Service, browser: &Browser) {
    const PATH: &str = "/n/default/schedules/nightly";
    let stored = async || {
        let request = GetScheduleRequest { name: schedule_name("nightly") };
        service.master().get_schedule(request).await.unwrap().into_inner()
    };
    browser.confirmed(PATH, &[("action", "pause")], "holidays").await.goes_to();
    assert_eq!(stored().await.pause.unwrap().reason, "holidays");
    browser.page("/n/default/schedules?state=PAUSED").await.shows(&[">nightly</a>"]);
    browser.confirmed(PATH, &[("action", "resume")], "").await.goes_to();
    assert_eq!(stored().await.pause, None);
    let asked = browser.post(PATH, &[("action", "trigger"), ("events", "7")]).await;
    asked.shows(&["Trigger nightly now?", "7 events", "0 events may start at once"]);
    assert!(service.runs("nightly").await.is_empty(), "a run was made before it was confirmed");
    let page = browser.confirmed(PATH, &[("action", "trigger"), ("events", "7")], "by hand").await.goes_to();
    let run = service.runs("nightly").await.remove(0);
    assert_eq!((run.kind(), run.events), (RunKind::Manual, 7), "{run:?}");
    assert_eq!(page, format!("/n/default/runs/{}", short(&run.name)));
    browser.page(&page).await.shows(&["hand", "Cancel what has not started"]);
    browser.post(&page, &[("action", "cancel")]).await.shows(&["7 events", "cannot be undone"]);
    browser.confirmed(&page, &[("action", "cancel")], "a mistake").await.goes_to();
    wait_for("the end of what had not started", 20, async || {
        let run = service.run(&run.name).await;
        (run.waiting_count == 0 && run.state() != RunState::Waiting).then_some(())
    })
    .await;
    assert_eq!(
        browser.confirmed(PATH, &[("action", "delete")], "gone").await.goes_to(),
        "/n/default/schedules"
    );
    assert_eq!(browser.look(PATH).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_sites_are_refused() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let browser = Browser::new(&service);
    let path = "/n/default/policies/p";
    let fields = [("action", "pause"), ("reason", "mine"), ("confirmed", "yes")];
    let sent: [&[(&str, &str)]; 6] = [
        &[],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://evil.example")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "null")],
        &[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
    ];
    for headers in sent {
        let mut form = browser.form(path, &fields);
        for (name, value) in headers {
            form = form.header(*name, *value);
        }
        let page = browser.send(form.body(encoded(&fields)).unwrap()).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{headers:?}\n{}", page.text);
    }
    let request = GetPolicyRequest { name: policy_name("p") };
    assert_eq!(service.master().get_policy(request).await.unwrap().into_inner().pause, None);
    // A name of somebody else's that leads here, as DNS rebinding makes one.
    let foreign = Request::get(format!("{}/", browser.base)).header(header::HOST, "evil.example");
    let page = browser.send(foreign.body(Full::default()).unwrap()).await;
    assert_eq!(page.status, StatusCode::MISDIRECTED_REQUEST);
    assert!(!page.text.contains("policies"));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_told_what_changes_and_does_not_hold_the_service_up() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let browser = Browser::new(&service);
    let request = Request::get(format!("{}/n/default/live", browser.base)).body(Full::default()).unwrap();
    let mut answer = browser.client.request(request).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    service.create_policy("fresh", policy(2)).await.unwrap();
    let told = async {
        let mut told = String::new();
        while !told.contains(">fresh</a>") {
            let frame = answer.frame().await.unwrap().unwrap();
            told.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        told
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    assert!(told.starts_with("data: "), "{told}");
    let began = std::time::Instant::now();
    service.stop().await;
    assert!(began.elapsed() < Duration::from_secs(8), "an open page held the service up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_can_be_switched_off() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start_with(&database, &["--roles", "master,emitter,handler"]).await;
    let page = Browser::new(&service).look("/").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    service.stop().await;
}

/// A list of many is shown a page at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_paged() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    for n in 0..60 {
        service.create_policy(&format!("p{n:02}"), policy(1)).await.unwrap();
    }
    let browser = Browser::new(&service);
    let first = browser.page("/n/default/policies").await;
    first.shows(&[">p00</a>", ">p49</a>", "Next page"]);
    assert!(!first.text.contains(">p50</a>"));
    let (_, rest) = first.text.split_once("/n/default/policies?page=").unwrap();
    let token = rest.split('"').next().unwrap();
    let second = browser.page(&format!("/n/default/policies?page={token}")).await;
    second.shows(&[">p50</a>", ">p59</a>", "First page"]);
    assert!(!second.text.contains(">p49</a>") && !second.text.contains("Next page"));
    service.stop().await;
}
