//! Calendars with a real service: what they leave out does not fire, and what has been emitted follows their changes.

use std::time::{Duration, Instant};

use chrono::{DateTime, Days, Utc};
use tollgate_harness::resources::{every, http, schedule_name, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::{
    Calendar, CreateCalendarRequest, GetScheduleRequest, PreviewScheduleRequest, Schedule,
    UpdateCalendarRequest, preview_schedule_request::Source,
};

const NAME: &str = "namespaces/default/calendars/holidays";

/// From so many days after today to the day after that, so that midnight changes nothing.
fn days(later: u64) -> String {
    let today = DateTime::<Utc>::from_timestamp_micros(now_us()).unwrap().date_naive();
    let day = |days: u64| today.checked_add_days(Days::new(days)).unwrap();
    format!("{}..{}", day(later), day(later + 1))
}

async fn set(service: &Service, dates: &str) -> Calendar {
    let calendar = Calendar { name: NAME.to_owned(), dates: vec![dates.to_owned()], ..Calendar::default() };
    let request = UpdateCalendarRequest { calendar: Some(calendar), ..UpdateCalendarRequest::default() };
    service.master().update_calendar(request).await.unwrap().into_inner()
}

/// What was due before a change may still arrive shortly after it; then nothing does.
async fn falls_silent(consumer: &Consumer) {
    let mut quiet = (consumer.notes.arrivals_count(), Instant::now());
    wait_for("five seconds without a delivery", 40, async || {
        if consumer.notes.arrivals_count() != quiet.0 {
            quiet = (consumer.notes.arrivals_count(), Instant::now());
        }
        (quiet.1.elapsed() > Duration::from_secs(5)).then_some(())
    })
    .await;
}

async fn what_is_emitted_follows_a_calendar(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    let other = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    let today = Calendar { dates: vec![days(0)], ..Calendar::default() };
    let request = CreateCalendarRequest {
        parent: "namespaces/default".to_owned(),
        calendar_id: "holidays".to_owned(),
        calendar: Some(today),
        validate_only: false,
    };
    service.master().create_calendar(request).await.unwrap();
    let by = |target| Schedule {
        exclude_calendars: vec!["holidays".to_owned()],
        ..every(1, soon(1_000), 1, "", target)
    };
    service.create_schedule("tick", by(http(&consumer))).await.unwrap();
    service.create_schedule("tock", every(1, soon(1_000), 1, "", http(&other))).await.unwrap();
    wait_for("runs of another schedule", 40, async || (other.notes.arrivals_count() > 5).then_some(())).await;
    assert_eq!(consumer.notes.arrivals_count(), 0, "it fires on an excluded day");
    let source = Some(Source::Name(schedule_name("tick")));
    let preview = PreviewScheduleRequest { source, from_time: None, count: 1 };
    let preview = service.master().preview_schedule(preview).await.unwrap().into_inner();
    let first = preview.launch_times[0].time.unwrap().seconds;
    assert!(first * 1_000_000 > now_us() + 86_400_000_000, "{preview:?}");

    // What the emitter has passed over is made: the windows of the next five minutes have long been scanned.
    let changed = set(&service, &days(300)).await;
    assert_eq!((changed.used_by_count, changed.used_by), (1, vec![schedule_name("tick")]));
    wait_for("what was left out", 40, async || (consumer.notes.arrivals_count() > 5).then_some(())).await;
    // What it has made is withdrawn, also where the process dies as soon as it has said so.
    let changed = set(&service, &days(0)).await;
    assert_eq!(changed.etag, "3");
    service.kill9();
    let service = Service::start(&database).await;
    let before = other.notes.arrivals_count();
    wait_for("the next process", 60, async || (other.notes.arrivals_count() > before + 5).then_some(()))
        .await;
    falls_silent(&consumer).await;
    let request = GetScheduleRequest { name: schedule_name("tick") };
    let schedule = service.master().get_schedule(request).await.unwrap().into_inner();
    assert_eq!((schedule.etag.as_str(), schedule.exclude.len()), ("3", 0));
    assert!(schedule.next_launch_time.unwrap().seconds >= first, "{schedule:?}");
    service.stop().await;
}

async fn calendars_stand_in_files(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let file = |dates: &str| {
        format!(
            "kind: Schedule\nid: nightly\nlabels: {{app: a}}\ntriggers: [{{cron: \"0 3 * * *\"}}]\n\
             excludeCalendars: [holidays]\ntarget: {{http: {{url: \"http://127.0.0.1:9/\"}}}}\n---\n\
             kind: Calendar\nid: holidays\nlabels: {{app: a}}\ndates: [\"{dates}\"]\n"
        )
    };
    // A preview needs nothing that is stored.
    let previewed = cli.run_with(&["preview", "--count", "3", "-f", "-"], &file(&days(0)));
    assert_eq!(previewed.code, 0, "{previewed:?}");
    let tomorrow = days(1)[..10].to_owned();
    assert!(!previewed.out.contains(&tomorrow), "{previewed:?}");
    let applied = cli.apply(&file(&days(0)));
    let expected = "calendar/holidays created\nschedule/nightly created\n2 created, 0 updated, 0 unchanged\n";
    assert_eq!((applied.code, applied.out.as_str()), (0, expected), "{applied:?}");
    let changed = cli.apply(&file(&days(7)));
    assert!(changed.out.ends_with("0 created, 1 updated, 1 unchanged\n"), "{changed:?}");
    assert!(cli.ok(&["preview", "nightly"]).contains(&tomorrow));
    let listed = cli.ok(&["get", "calendars"]);
    assert!(listed.contains("holidays") && listed.contains(&days(7)[12..]), "{listed}");
    assert!(cli.ok(&["describe", "calendar/holidays"]).contains("schedules/nightly"));
    let used = cli.run(&["delete", "calendar", "holidays"]);
    assert!(used.code != 0 && used.err.contains("is used by schedules \"nightly\""), "{used:?}");

    // What is shown as YAML is taken back unchanged.
    let shown = format!(
        "{}---\n{}",
        cli.ok(&["get", "calendars", "-o", "yaml"]),
        cli.ok(&["get", "schedules", "-o", "yaml"])
    );
    let again = cli.apply(&shown);
    assert!(again.out.ends_with("0 created, 0 updated, 2 unchanged\n"), "{again:?}\n{shown}");
    let none = "kind: Policy\nid: p\nmaxInFlight: 1\nlabels: {app: a}\n";
    let pruned = cli.run_with(&["apply", "--prune", "-l", "app=a", "--yes", "-f", "-"], none);
    assert!(pruned.out.contains("schedule/nightly deleted\ncalendar/holidays deleted\n"), "{pruned:?}");
    let typo = cli.run_with(&["apply", "-f", "-"], "kind: Calender\nid: x\ndates: []\n");
    assert!(typo.err.contains("did you mean Calendar?"), "{typo:?}");
    service.stop().await;
}

on_both_stores!(what_is_emitted_follows_a_calendar, calendars_stand_in_files);
