//! Calendars through the API: their lives, what schedules take from them, and what a change of one makes of what has been
//! emitted.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_proto::v1;
use tollgate_proto::v1::apply_resources_request::Resource;
use tonic::{Code, Status};

use crate::world::{NOW_S, PARENT, World, as_alice, fields, given_schedule, name, schedule};

fn calendar_name(id: &str) -> String {
    format!("{PARENT}/calendars/{id}")
}

fn calendar(id: &str, dates: &[&str]) -> v1::Calendar {
    let dates = dates.iter().map(|date| (*date).to_owned()).collect();
    v1::Calendar { name: calendar_name(id), dates, ..v1::Calendar::default() }
}

async fn make(world: &mut World, id: &str, dates: &[&str]) -> v1::Calendar {
    let request = v1::CreateCalendarRequest {
        parent: PARENT.to_owned(),
        calendar_id: id.to_owned(),
        calendar: Some(calendar(id, dates)),
        validate_only: false,
    };
    world.client.create_calendar(as_alice(request)).await.unwrap().into_inner()
}

async fn change(world: &mut World, id: &str, dates: &[&str]) -> Result<v1::Calendar, Status> {
    let calendar = Some(calendar(id, dates));
    let request = v1::UpdateCalendarRequest { calendar, ..Default::default() };
    world.client.update_calendar(as_alice(request)).await.map(tonic::Response::into_inner)
}

async fn get(world: &mut World, id: &str) -> Result<v1::Calendar, Status> {
    let request = v1::GetCalendarRequest { name: calendar_name(id) };
    world.client.get_calendar(request).await.map(tonic::Response::into_inner)
}

fn given_calendar(id: &str, source: &str, dates: &[&str]) -> v1::ApplyResourcesRequest {
    let resource = v1::Calendar { name: id.to_owned(), ..calendar(id, dates) };
    v1::ApplyResourcesRequest {
        namespace: "default".to_owned(),
        resource: Some(Resource::Calendar(resource)),
        source: source.to_owned(),
        validate_only: false,
        revision: 0,
    }
}

#[tokio::test]
async fn a_calendar_is_made_changed_listed_and_deleted() {
    let mut world = World::new().await;
    let made = make(&mut world, "holidays", &["2026-12-25", "2026-12-24..2027-01-01"]).await;
    assert_eq!((made.name.as_str(), made.etag.as_str()), (calendar_name("holidays").as_str(), "1"));
    assert_eq!((made.dates.len(), made.used_by_count), (2, 0));
    let request = v1::CreateCalendarRequest {
        parent: PARENT.to_owned(),
        calendar_id: "holidays".to_owned(),
        calendar: Some(v1::Calendar::default()),
        validate_only: false,
    };
    let taken = world.client.create_calendar(as_alice(request.clone())).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    let only = v1::CreateCalendarRequest { calendar_id: "other".to_owned(), validate_only: true, ..request };
    world.client.create_calendar(as_alice(only)).await.unwrap();
    assert_eq!(get(&mut world, "other").await.unwrap_err().code(), Code::NotFound);

    let wrong = change(&mut world, "holidays", &["2026-12-25", "25.12.2026"]).await.unwrap_err();
    assert_eq!((wrong.code(), fields(&wrong)), (Code::InvalidArgument, vec!["calendar.dates[1]".to_owned()]));
    let many = vec!["2026-12-25"; 1_001];
    let wrong = change(&mut world, "holidays", &many).await.unwrap_err();
    assert_eq!(fields(&wrong), ["calendar.dates"]);
    let same = change(&mut world, "holidays", &["2026-12-25", "2026-12-24..2027-01-01"]).await.unwrap();
    assert_eq!(same.etag, "1", "nothing is written");
    let mut stale = calendar("holidays", &["2026-12-31"]);
    stale.etag = "7".to_owned();
    let request = v1::UpdateCalendarRequest { calendar: Some(stale), ..Default::default() };
    let stale = world.client.update_calendar(as_alice(request)).await.unwrap_err();
    assert_eq!(stale.code(), Code::Aborted);
    assert_eq!(change(&mut world, "holidays", &["2026-12-31"]).await.unwrap().etag, "2");

    make(&mut world, "bank", &[]).await;
    let list = v1::ListCalendarsRequest { parent: PARENT.to_owned(), ..Default::default() };
    let list = world.client.list_calendars(list).await.unwrap().into_inner().calendars;
    let names: Vec<&str> = list.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [calendar_name("bank"), calendar_name("holidays")]);
    let delete = v1::DeleteCalendarRequest {
        name: calendar_name("holidays"),
        etag: "2".to_owned(),
        ..Default::default()
    };
    world.client.delete_calendar(as_alice(delete)).await.unwrap();
    assert_eq!(get(&mut world, "holidays").await.unwrap_err().code(), Code::NotFound);
    let actions: Vec<String> = world.audit("").await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["delete", "create", "update", "create"]);
}

#[tokio::test]
async fn a_schedule_takes_the_dates_of_its_calendars_beside_its_own() {
    let mut world = World::new().await;
    make(&mut world, "holidays", &["2026-03-03"]).await;
    make(&mut world, "closed", &["2026-03-05"]).await;
    let daily = json!({"triggers": [{"cron": "0 12 * * *"}], "exclude": ["2026-03-02"],
        "exclude_calendars": ["holidays", calendar_name("closed")]});
    let made = world.create("a", daily.clone()).await.unwrap();
    assert_eq!(made.exclude, ["2026-03-02"]);
    assert_eq!(made.exclude_calendars, [calendar_name("holidays"), calendar_name("closed")]);
    // 2026-03-04 12:00, two days and two hours from the 2nd, 10:00.
    assert_eq!(made.next_launch_time.unwrap().seconds, NOW_S + 50 * 3_600);
    let read = world.get("a").await.unwrap();
    assert_eq!((read.exclude, read.exclude_calendars), (made.exclude, made.exclude_calendars));
    assert_eq!(get(&mut world, "closed").await.unwrap().used_by, [name("a")]);

    // What is not named in the mask stays; what changes nothing writes nothing.
    let same = world.update("a", daily, &[]).await.unwrap();
    assert_eq!(same.etag, "1");
    let described = world.update("a", json!({"description": "x"}), &["description"]).await.unwrap();
    assert_eq!((described.exclude_calendars.len(), described.etag.as_str()), (2, "2"));
    world.pause("a", "").await;
    let resumed = world.resume("a").await;
    assert_eq!(resumed.next_launch_time.unwrap().seconds, NOW_S + 50 * 3_600);
    assert_eq!(get(&mut world, "holidays").await.unwrap().used_by_count, 1);

    let preview = |source| v1::PreviewScheduleRequest { source: Some(source), from_time: None, count: 2 };
    use v1::preview_schedule_request::Source;
    let stored = world.client.preview_schedule(preview(Source::Name(name("a")))).await.unwrap().into_inner();
    let days: Vec<&str> = stored.launch_times.iter().map(|launch| &launch.local_time[..10]).collect();
    assert_eq!(days, ["2026-03-04", "2026-03-06"]);
    let mut draft = schedule(json!({"triggers": [{"cron": "0 12 * * *"}], "exclude_calendars": ["closed"]}));
    let nowhere = world.client.preview_schedule(preview(Source::Schedule(draft.clone()))).await.unwrap_err();
    assert_eq!(fields(&nowhere), ["schedule.exclude_calendars[0]"], "of which namespace?");
    draft.name = name("draft");
    let drawn = world.client.preview_schedule(preview(Source::Schedule(draft))).await.unwrap().into_inner();
    assert_eq!(drawn.launch_times.len(), 2);

    let dropped = world.update("a", json!({}), &["exclude_calendars"]).await.unwrap();
    assert_eq!(dropped.next_launch_time.unwrap().seconds, NOW_S + 26 * 3_600);
    let delete = v1::DeleteCalendarRequest {
        name: calendar_name("closed"),
        etag: String::new(),
        ..Default::default()
    };
    world.client.delete_calendar(as_alice(delete)).await.unwrap();
}

#[tokio::test]
async fn names_of_calendars_are_judged() {
    let mut world = World::new().await;
    make(&mut world, "holidays", &["2026-03-03"]).await;
    let refused = world.create("a", json!({"exclude_calendars": ["holiday"]})).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(fields(&refused), ["schedule.exclude_calendars[0]"]);
    assert!(refused.message().contains("did you mean holidays?"), "{refused}");
    let twice = json!({"exclude_calendars": ["holidays", calendar_name("holidays")]});
    let refused = world.create("a", twice).await.unwrap_err();
    assert_eq!(fields(&refused), ["schedule.exclude_calendars[1]"]);
    let other = json!({"exclude_calendars": ["namespaces/other/calendars/holidays"]});
    let refused = world.create("a", other).await.unwrap_err();
    assert_eq!(fields(&refused), ["schedule.exclude_calendars[0]"]);
    let many: Vec<String> = (0..17).map(|n| format!("c{n}")).collect();
    let refused = world.create("a", json!({"exclude_calendars": many})).await.unwrap_err();
    assert!(fields(&refused).contains(&"schedule.exclude_calendars".to_owned()), "{refused}");
    // 2026-03-03T12:00:00Z.
    let shot = json!({"triggers": [{"at": "2026-03-03T12:00:00Z"}], "exclude_calendars": ["holidays"]});
    let refused = world.create("a", shot).await.unwrap_err();
    assert_eq!(fields(&refused), ["schedule.triggers[0].at"]);
    assert!(refused.message().contains("the calendar holidays"), "{refused}");
    // Together they may have no more dates than a schedule may.
    let dates = vec!["2026-03-03"; 900];
    for id in ["c1", "c2", "c3"] {
        make(&mut world, id, &dates).await;
    }
    let refused = world.create("a", json!({"exclude_calendars": ["c1", "c2", "c3"]})).await.unwrap_err();
    assert!(refused.message().contains("2700 dates"), "{refused}");

    world.create("a", json!({"exclude_calendars": ["holidays", "c1", "c2"]})).await.unwrap();
    let delete = v1::DeleteCalendarRequest {
        name: calendar_name("holidays"),
        etag: String::new(),
        ..Default::default()
    };
    let used = world.client.delete_calendar(as_alice(delete)).await.unwrap_err();
    assert_eq!(used.code(), Code::FailedPrecondition);
    assert!(used.message().contains("is used by schedules \"a\""), "{used}");
    // Nor may a calendar grow beyond that.
    let before = world.state().await;
    let refused = change(&mut world, "c1", &vec!["2026-03-03"; 1_000]).await;
    assert!(refused.is_ok(), "1,901 are few enough: {refused:?}");
    assert_ne!(world.state().await, before);
    change(&mut world, "c1", &dates).await.unwrap();
    change(&mut world, "c2", &vec!["2026-03-03"; 1_000]).await.unwrap();
    let refused = change(&mut world, "c1", &vec!["2026-03-03"; 1_000]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("schedule a: 2001 dates"), "{refused}");
}

#[tokio::test]
async fn a_change_puts_right_what_has_been_emitted() {
    let mut world = World::new().await;
    make(&mut world, "holidays", &[]).await;
    world.create("a", json!({"exclude_calendars": ["holidays"]})).await.unwrap();
    world.create("b", json!({"exclude_calendars": ["holidays"], "exclude": ["2026-03-02"]})).await.unwrap();
    world.create("c", json!({})).await.unwrap();
    world.open_window(5).await;

    let changed = change(&mut world, "holidays", &["2026-03-02"]).await.unwrap();
    assert_eq!((changed.etag.as_str(), changed.used_by_count), ("2", 2));
    let mut told = world.told(2).await;
    told.sort_by(|one, other| one.schedule_id.cmp(&other.schedule_id));
    let ids: Vec<&str> = told.iter().map(|one| one.schedule_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"], "and nothing of c");
    assert!(told.iter().all(|one| one.launches().is_empty()), "what was emitted is withdrawn: {told:?}");
    let a = world.get("a").await.unwrap();
    // The next day, at midnight: 14 hours from 10:00.
    assert_eq!((a.etag.as_str(), a.next_launch_time.unwrap().seconds), ("2", NOW_S + 14 * 3_600));
    assert!(world.store.outbox_lanes().await.unwrap().is_empty());

    change(&mut world, "holidays", &["2026-03-09"]).await.unwrap();
    let told = world.told(3).await;
    let launches = |id: &str| told.iter().find(|one| one.schedule_id == id).unwrap().launches();
    assert_eq!(launches("a"), [60, 120, 180, 240, 300], "what is not excluded any more is made");
    assert_eq!(launches("b"), [0; 0], "its own dates stay");
    assert_eq!(world.get("b").await.unwrap().exclude, ["2026-03-02"]);
    let entries = world.audit(&format!("resource={}", name("a"))).await;
    assert_eq!(entries.len(), 3);
    assert!(format!("{:?}", entries[0].difference).contains("calendars/holidays"), "{:?}", entries[0]);

    // What changes no dates changes no schedule.
    let mut named = calendar("holidays", &["2026-03-09"]);
    named.description = "for all".to_owned();
    let request = v1::UpdateCalendarRequest { calendar: Some(named), ..Default::default() };
    let named = world.client.update_calendar(as_alice(request)).await.unwrap().into_inner();
    assert_eq!((named.etag.as_str(), world.get("a").await.unwrap().etag.as_str()), ("4", "3"));
    // And the schedule can be changed as before.
    world.update("a", json!({"description": "x"}), &["description"]).await.unwrap();
}

#[tokio::test]
async fn a_change_that_a_schedule_could_not_be_stored_with_is_refused() {
    let mut world = World::new().await;
    make(&mut world, "holidays", &[]).await;
    let shot = json!({"triggers": [{"at": "2026-03-04T12:00:00Z"}], "exclude_calendars": ["holidays"]});
    world.create("shot", shot).await.unwrap();
    let until = json!({"triggers": [{"cron": "0 12 * * *"}], "end_time": "2026-03-06T00:00:00Z",
        "exclude_calendars": ["holidays"]});
    world.create("until", until).await.unwrap();
    let before = world.state().await;
    let refused = change(&mut world, "holidays", &["2026-03-04"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("schedule shot: schedule.triggers[0].at"), "{refused}");
    assert_eq!(world.state().await, before);
    assert_eq!(get(&mut world, "holidays").await.unwrap().etag, "1");
    // That one never fires any more is warned of, as it is where its own dates do that.
    let warned = change(&mut world, "holidays", &["2026-03-01..2026-03-03", "2026-03-05"]).await.unwrap();
    assert!(warned.warnings.is_empty(), "the 4th is left: {warned:?}");
    world.delete("shot", "").await.unwrap();
    let warned = change(&mut world, "holidays", &["2026-03-01..2026-03-31"]).await.unwrap();
    assert_eq!(warned.warnings.len(), 1);
    assert!(warned.warnings[0].message.contains("schedule until never fires"), "{warned:?}");
}

#[tokio::test]
async fn calendars_are_applied_before_schedules_whatever_their_order() {
    let mut world = World::new().await;
    let daily = |more: serde_json::Value| {
        let mut with = json!({"triggers": [{"cron": "0 12 * * *"}], "exclude_calendars": ["holidays"]});
        for (key, value) in more.as_object().unwrap() {
            with[key] = value.clone();
        }
        with
    };
    let file = |dates: &[&str], more: serde_json::Value| {
        vec![
            given_schedule("a", "f:1", daily(more)),
            given_schedule("b", "f:9", daily(json!({}))),
            given_calendar("holidays", "f:19", dates),
        ]
    };
    let done = world.apply(file(&["2026-03-02"], json!({}))).await.unwrap();
    assert_eq!((done.created_count, done.unchanged_count, done.failed_count), (3, 0, 0), "{done:?}");
    assert_eq!(world.get("a").await.unwrap().next_launch_time.unwrap().seconds, NOW_S + 26 * 3_600);
    let done = world.apply(file(&["2026-03-02"], json!({}))).await.unwrap();
    assert_eq!((done.unchanged_count, done.updated_count), (3, 0));

    // A schedule of which only the calendar changes is changed by that; one that changes itself, too, gets both.
    let mut dry = file(&["2026-03-02..2026-03-03"], json!({"priority": 7}));
    dry.iter_mut().for_each(|given| given.validate_only = true);
    let would = world.apply(dry).await.unwrap();
    assert_eq!((would.updated_count, would.unchanged_count), (2, 1), "{would:?}");
    let done = world.apply(file(&["2026-03-02..2026-03-03"], json!({"priority": 7}))).await.unwrap();
    assert_eq!((done.updated_count, done.unchanged_count, done.failed_count), (2, 1, 0), "{done:?}");
    let (a, b) = (world.get("a").await.unwrap(), world.get("b").await.unwrap());
    assert_eq!((a.priority, a.etag.as_str(), b.etag.as_str()), (Some(7), "3", "2"));
    let next = |schedule: &v1::Schedule| schedule.next_launch_time.unwrap().seconds - NOW_S;
    assert_eq!((next(&a), next(&b)), (50 * 3_600, 50 * 3_600));
    let results: Vec<&str> = done.results.iter().map(|result| result.name.as_str()).collect();
    assert_eq!(results, [calendar_name("holidays"), name("a")]);

    let missing = vec![given_schedule("z", "f:1", json!({"exclude_calendars": ["holiday"]}))];
    let refused = world.apply(missing).await.unwrap_err();
    assert!(refused.message().contains("did you mean holidays?"), "{refused}");
    // Nothing is written where one is wrong.
    let before = world.state().await;
    let shot = json!({"triggers": [{"at": "2026-03-04T12:00:00Z"}], "exclude_calendars": ["new"]});
    let wrong = vec![given_schedule("z", "f:1", shot), given_calendar("new", "f:5", &["2026-03-04"])];
    let refused = world.apply(wrong).await.unwrap_err();
    assert!(refused.message().contains("the calendar new"), "{refused}");
    assert_eq!(world.state().await, before);
    assert_eq!(get(&mut world, "new").await.unwrap_err().code(), Code::NotFound);
}

/// Whoever is first: at the end each schedule has the dates of the calendar.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_that_are_made_while_their_calendar_changes_have_its_dates() {
    let mut world = World::new().await;
    make(&mut world, "holidays", &["2026-03-03"]).await;
    let mut client = world.client.clone();
    let changes = tokio::spawn(async move {
        for day in 1..=20 {
            let calendar = Some(calendar("holidays", &[&format!("2026-04-{day:02}")]));
            let request = v1::UpdateCalendarRequest { calendar, ..Default::default() };
            while let Err(status) = client.update_calendar(as_alice(request.clone())).await {
                assert_eq!(status.code(), Code::Aborted, "{status}");
            }
        }
    });
    let mut refused = 0;
    for n in 0..20 {
        match world.create(&format!("s{n}"), json!({"exclude_calendars": ["holidays"]})).await {
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::Aborted, "{status}");
                refused += 1;
            }
        }
    }
    changes.await.unwrap();
    let calendar = world.store.calendar("default", "holidays").await.unwrap().unwrap();
    let all = world.store.list_schedules("default", &Default::default(), None, 100).await.unwrap();
    assert_eq!(all.len() + refused, 20);
    for schedule in &all {
        assert_eq!(schedule.timing.exclude, calendar.dates, "{}", schedule.id);
        assert_eq!(schedule.timing.calendars[0].dates_generation, calendar.dates_generation);
    }
    assert_eq!(get(&mut world, "holidays").await.unwrap().used_by_count as usize, all.len());
}

/// As many as may go by one calendar, each with a hundred children and four kilobytes to send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calendar_of_many_schedules_changes_in_a_moment() {
    let mut world = World::new().await;
    make(&mut world, "holidays", &["2026-03-03"]).await;
    let with = json!({"triggers": [{"cron": "*/15 0-23 * * *"}], "payload": "x".repeat(4_000),
        "exclude_calendars": ["holidays"]});
    let many = (0..2_000).map(|n| given_schedule(&format!("s{n:04}"), "", with.clone())).collect();
    let done = world.apply(many).await.unwrap();
    assert_eq!((done.created_count, done.failed_count), (2_000, 0), "{:?}", done.errors);
    let full = world.create("more", json!({"exclude_calendars": ["holidays"]})).await.unwrap_err();
    assert_eq!(fields(&full), ["schedule.exclude_calendars[0]"]);
    assert!(full.message().contains("fewer than 2000 schedules"), "{full}");
    world.update("s0001", json!({"description": "x"}), &["description"]).await.unwrap();
    world.open_window(5).await;
    let changed = change(&mut world, "holidays", &["2026-03-02..2026-03-04"]).await.unwrap();
    assert_eq!((changed.used_by_count, changed.used_by.len()), (2_000, 100));
    // One of them had been told before.
    assert_eq!(world.told(2).await.len() + world.told(3).await.len(), 2_001);
    for id in ["s0000", "s1999"] {
        // 2026-03-05T00:00:00Z.
        assert_eq!(world.get(id).await.unwrap().next_launch_time.unwrap().seconds, NOW_S + 62 * 3_600);
    }
}
