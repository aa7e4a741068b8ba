//! Every page in light and dark, on a desk and on a phone: nothing is said to the console, nothing comes from elsewhere,
//! nothing is wider than its window, and axe-core finds no serious barrier. A picture of each is kept.

use std::path::PathBuf;

use tollgate_harness::browser::{Browser, LOOKS, Look};
use tollgate_proto::v1::EventState;

use super::world::{World, page_of};

/// A page: its picture's name, its path, and what it must show.
type Page = (&'static str, String, Vec<&'static str>);

/// Keeps a picture beside those of all pages.
pub(super) async fn picture(browser: &Browser, name: &str) {
    browser.screenshot(&pictures().join(format!("{name}.png"))).await;
}

fn pictures() -> PathBuf {
    let built = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/screenshots"));
    std::env::var_os("TOLLGATE_TEST_SCREENSHOTS").map_or_else(built, PathBuf::from)
}

async fn pages(world: &World) -> Vec<Page> {
    let of = |collection: &str, id: &str| format!("/n/default/{collection}/{id}");
    let held = world.event("batch", EventState::Held).await;
    let waiting = world.event("batch", EventState::Waiting).await;
    let retrying = world.event("flaky", EventState::Retrying).await;
    let dead = world.event("hopeless", EventState::Dead).await;
    let (large, tenants) = (world.event("tenants", EventState::Held).await, world.run("tenants").await);
    let (batch, hopeless) = (world.run("batch").await, world.run("hopeless").await);
    let hour = (tollgate_harness::now_us() / 1_000_000 / 86_400 + 1) * 86_400 - 3_600;
    vec![
        (
            "now",
            "/".to_owned(),
            vec![
                "Policies",
                "Running",
                "Due, not started",
                "Windows at risk",
                "The last 24 hours, by 15 minutes",
            ],
        ),
        ("now-empty", "/n/nowhere".to_owned(), vec!["Nothing is wrong", "No policies yet"]),
        ("history", "/n/default/history?span=1h".to_owned(), vec!["The last hour of default", "Fell due"]),
        ("failures", "/n/default/failures".to_owned(), vec!["What went wrong", "HTTP 400", "hopeless"]),
        ("alerts", "/n/default/alerts".to_owned(), vec!["on-call", "not taken", "all troubles"]),
        ("alerts-none", "/n/nowhere/alerts".to_owned(), vec!["Nobody is told when something is wrong."]),
        (
            "alert",
            of("alerts", "on-call"),
            vec!["Latest failure", "A message is under way", "Send a test message"],
        ),
        ("alert-edit", format!("{}/edit", of("alerts", "on-call")), vec!["Only these troubles", "As YAML"]),
        ("alert-new", "/n/default/new/alert".to_owned(), vec!["Whom it tells: one of the three", "Make it"]),
        ("calendars", "/n/default/calendars".to_owned(), vec!["holidays", "Nobody works", "2031-01-02"]),
        ("calendars-none", "/n/nowhere/calendars".to_owned(), vec!["There are no calendars."]),
        (
            "one-calendar",
            of("calendars", "holidays"),
            vec!["2030-12-31..2031-01-02", "nightly", "Edit this calendar"],
        ),
        (
            "calendar-edit",
            format!("{}/edit", of("calendars", "holidays")),
            vec!["One on each line", "As YAML"],
        ),
        ("policies", "/n/default/policies".to_owned(), vec!["gentle", "paused"]),
        ("schedules", "/n/default/schedules".to_owned(), vec!["every day at 02:30 in Berlin", "nightly"]),
        ("schedules-found", "/n/default/schedules?name=ni".to_owned(), vec!["nightly"]),
        (
            "schedule",
            of("schedules", "nightly"),
            vec![
                "500 events every day at 02:30 in Berlin",
                "Next fires",
                "Around the next clock change",
                "Internals: how the emitter finds it",
                "Trigger…",
            ],
        ),
        (
            "schedule-runs",
            of("schedules", "done"),
            vec!["Past runs", "the height is how long it took", "every 2 seconds"],
        ),
        (
            "schedule-missed",
            of("schedules", "missed"),
            vec!["missed in an outage", "the schedule was paused"],
        ),
        (
            "schedule-chain",
            of("schedules", "convert"),
            vec![
                "a run is launched when one before it in its chain has ended",
                "fetch",
                "finished",
                "always",
                "publish waits for the end of convert, of which 3 events are left.",
            ],
        ),
        ("schedule-paused", of("schedules", "resting"), vec!["until the move", "Resume"]),
        (
            "schedule-edit",
            format!("{}/edit", of("schedules", "nightly")),
            vec!["Fires at", "Fires every", "Save", "Check only"],
        ),
        (
            "workers",
            "/n/farm/workers".to_owned(),
            vec!["render-7", "zone:eu", "What they take, and what waits for them"],
        ),
        ("workers-none", "/n/nowhere/workers".to_owned(), vec!["No worker is connected."]),
        ("runs", "/n/default/runs".to_owned(), vec!["finished", "running"]),
        (
            "run",
            page_of(&batch.name),
            vec!["Why its next event waits", "Timeline", "Cancel what has not started"],
        ),
        ("run-items", page_of(&tenants.name), vec!["Key", "Tokens", "acme", "initech", "With the key"]),
        ("run-of-key", format!("{}?key=globex", page_of(&tenants.name)), vec!["globex", "Show all"]),
        ("run-dead", page_of(&hopeless.name), vec!["Dead", "What went wrong", "Try 3 dead events again"]),
        ("run-expired", page_of(&world.run("hasty").await.name), vec!["Expired"]),
        ("event-held", page_of(&held.name), vec!["holds its token until now", "Free its token"]),
        ("event-item", page_of(&large.name), vec!["Key", "acme", "Tokens", "5", "Item", "\"tenant\""]),
        (
            "event-waiting",
            page_of(&waiting.name),
            vec!["Why it is where it is", "all tokens of its policy are held"],
        ),
        ("event-retrying", page_of(&retrying.name), vec!["attempt refused", "503", "Answer after"]),
        ("event-dead", page_of(&dead.name), vec!["given up", "Attempts", "400"]),
        (
            "calendar",
            "/n/default/calendar".to_owned(),
            vec!["exact from the launch index", "Where most will wait"],
        ),
        ("calendar-week", "/n/default/calendar?span=week".to_owned(), vec!["ten minutes", "gentle"]),
        (
            "calendar-hour",
            format!("/n/default/calendar?span=hour&at={hour}"),
            vec!["gentle", "The fullest minutes"],
        ),
        ("audit", "/n/default/audit".to_owned(), vec!["create", "pause", "the disk of b7 is full"]),
        ("new-policy", "/n/default/new/policy".to_owned(), vec!["In flight at most", "Make it"]),
        ("new-schedule", "/n/default/new/schedule".to_owned(), vec!["Fires every", "HTTP: URL"]),
        ("policy-edit", format!("{}/edit", of("policies", "gentle")), vec!["When a consumer falls silent"]),
        ("submit", format!("{}/submit", of("schedules", "nightly")), vec!["How it is written", "Read it…"]),
        ("backfill", format!("{}/backfill", of("schedules", "nightly")), vec!["Launch times from"]),
        ("search", "/n/default/go?q=st".to_owned(), vec!["Policies", "Schedules", "stuck"]),
        ("search-nothing", "/n/default/go?q=nothing-so".to_owned(), vec!["Nothing in this namespace has"]),
        ("namespaces", "/n/default/namespaces".to_owned(), vec!["default", "Another namespace"]),
        ("you", "/n/default/you".to_owned(), vec!["Name in the audit log"]),
        ("nothing", "/n/other/schedules".to_owned(), vec!["No schedules yet."]),
        (
            "policy",
            of("policies", "gentle"),
            vec![
                "Who holds tokens",
                "Schedules that wait",
                "urgent",
                "A bar is what was counted by the minute",
                "Free…",
            ],
        ),
        ("policy-units", of("policies", "exports"), vec!["Who holds tokens", "Tokens", "tenants"]),
        ("policy-quick", of("policies", "quick"), vec!["99 of 100", "Who holds tokens"]),
        ("policy-paused", of("policies", "stopped"), vec!["the disk of b7 is full", "Resume"]),
        ("policy-tree", of("policies", "site-imports"), vec!["Its tree", "Held below", "5 tokens of site"]),
        ("policy-tree-root", of("policies", "site"), vec!["Its tree", "site-imports-slow"]),
        ("not-there", of("policies", "none"), vec!["There is no such thing here."]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_sound_in_every_look() {
    let world = World::start().await;
    let mut wrong = Vec::new();
    let pages = pages(&world).await;
    // So that the charts have something to show.
    world.limit("quick", 12).await;
    for look in LOOKS {
        world.browser.look(look).await;
        for page in &pages {
            wrong.extend(faults(&world.browser, world.service.url(), page, look).await);
        }
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
    world.stop().await;
}

async fn faults(browser: &Browser, base: &str, (name, path, shown): &Page, look: Look) -> Vec<String> {
    let mut wrong = Vec::new();
    browser.noise().await;
    browser.open(path).await;
    for text in shown {
        browser.sees(text, 20).await;
    }
    let file = format!("{name}-{}.png", look.name);
    browser.screenshot(&pictures().join(&file)).await;
    let noise = browser.noise().await;
    // A page that is not there is a refusal, which the browser notes as one.
    let errors = noise.errors.into_iter().filter(|error| !(*name == "not-there" && error.contains("404")));
    wrong.extend(errors.map(|error| format!("{file}: {error}")));
    assert!(!noise.requests.is_empty(), "{file}: no request is seen, so nothing is known of them");
    let foreign =
        noise.requests.into_iter().filter(|url| !url.starts_with(base) && !url.starts_with("data:"));
    wrong.extend(foreign.map(|url| format!("{file}: asks for {url}")));
    let overflow = browser.overflow().await;
    if overflow > 0 {
        wrong.push(format!("{file}: {overflow} pixels wider than the window"));
    }
    wrong.extend(browser.axe().await.into_iter().map(|barrier| format!("{file}: {barrier}")));
    wrong
}
