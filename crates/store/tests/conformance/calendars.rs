//! Calendars: which schedules go by them, and that dates and schedules change together or not at all.

use futures::future::join_all;
use tollgate_core::model::{Calendar, CalendarUse, Schedule};
use tollgate_store::calendar::CalendarUser;
use tollgate_store::plan::{Filter, PlanWrite};
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{audit, child, delete, put, schedule};

fn calendar(id: &str, generation: i64, dates: &[&str]) -> Calendar {
    let mut calendar = Calendar {
        uid: Uuid::from_u128(0xca1e << 8 | u128::from(id.as_bytes()[0])),
        namespace: "default".to_owned(),
        id: id.to_owned(),
        dates: dates.iter().map(|date| date.parse().unwrap()).collect(),
        generation,
        dates_generation: generation,
        ..Calendar::default()
    };
    calendar.labels.insert("team".to_owned(), id.to_owned());
    calendar
}

fn put_calendar(calendar: &Calendar, users: Vec<CalendarUser>) -> PlanWrite {
    PlanWrite::PutCalendar {
        calendar: Box::new(calendar.clone()),
        expected_generation: (calendar.generation > 1).then(|| calendar.generation - 1),
        users,
        audit: audit("namespaces/default/calendars/x"),
    }
}

fn delete_calendar(calendar: &Calendar) -> PlanWrite {
    PlanWrite::DeleteCalendar {
        uid: calendar.uid,
        name: calendar.id.clone(),
        expected_generation: calendar.generation,
        audit: audit("namespaces/default/calendars/x"),
    }
}

/// A schedule that goes by these calendars.
fn by(id: &str, calendars: &[&Calendar]) -> Schedule {
    let mut schedule = schedule(id);
    schedule.timing.exclude.clear();
    let of = |calendar: &&Calendar| CalendarUse { id: calendar.id.clone(), ..CalendarUse::default() };
    schedule.timing.calendars = calendars.iter().map(of).collect();
    given(schedule, calendars)
}

fn given(mut schedule: Schedule, calendars: &[&Calendar]) -> Schedule {
    schedule.timing.take_dates(|id| calendars.iter().copied().find(|calendar| calendar.id == id));
    schedule
}

/// The schedule with the new dates of a calendar.
fn user(before: &Schedule, calendar: &Calendar) -> CalendarUser {
    let after = Schedule { generation: before.generation + 1, ..given(before.clone(), &[calendar]) };
    CalendarUser {
        schedule: Box::new(after),
        expected_generation: before.generation,
        shard: 5,
        audit: audit("namespaces/default/schedules/x"),
    }
}

async fn stored(store: &dyn Store, id: &str) -> Schedule {
    store.schedule("default", id).await.unwrap().unwrap()
}

pub(crate) async fn a_calendar_is_read_as_written_listed_and_goes(place: &Place) {
    let store = place.open().await;
    let (a, b) = (calendar("a", 1, &["2026-12-24..2026-12-26"]), calendar("b", 1, &[]));
    store.write_plan(vec![put_calendar(&a, vec![]), put_calendar(&b, vec![])]).await.unwrap();
    assert_eq!(store.calendar("default", "a").await.unwrap(), Some(a.clone()));
    assert_eq!(store.calendar("other", "a").await.unwrap(), None);
    assert!(store.list_namespaces(None, 9).await.unwrap().contains(&"default".to_owned()));
    let error = store.write_plan(vec![put_calendar(&a, vec![])]).await.expect_err("the name is taken");
    assert!(matches!(&error, StoreError::Conflict { what } if what.contains("already exists")), "{error}");
    let list =
        async |filter: Filter, after| store.list_calendars("default", &filter, after, 9).await.unwrap();
    assert_eq!(list(Filter::default(), None).await, [a.clone(), b.clone()]);
    assert_eq!(list(Filter::default(), Some("a")).await, std::slice::from_ref(&b));
    let labels = vec![("team".to_owned(), "a".to_owned())];
    assert_eq!(list(Filter { labels, ..Filter::default() }, None).await, std::slice::from_ref(&a));
    let id_prefix = Some("b".to_owned());
    assert_eq!(list(Filter { id_prefix, ..Filter::default() }, None).await, [b]);
    let changed = Calendar { description: "x".to_owned(), dates_generation: 1, ..calendar("a", 2, &[]) };
    store.write_plan(vec![put_calendar(&changed, vec![])]).await.unwrap();
    assert_eq!(store.calendar("default", "a").await.unwrap(), Some(changed.clone()));
    let error = store.write_plan(vec![put_calendar(&changed, vec![])]).await.expect_err("it is stale");
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    store.write_plan(vec![delete_calendar(&changed)]).await.unwrap();
    assert_eq!(store.calendar("default", "a").await.unwrap(), None);
    let error = store.write_plan(vec![delete_calendar(&changed)]).await.expect_err("it has gone");
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
}

pub(crate) async fn a_schedule_is_written_with_the_dates_of_its_calendars_or_not_at_all(place: &Place) {
    let store = place.open().await;
    let (a, b) = (calendar("a", 1, &["2026-12-24"]), calendar("b", 1, &["2026-12-25"]));
    let one = by("one", &[&a, &b]);
    let error = store.write_plan(vec![put(&one, None, vec![])]).await.expect_err("there are none");
    assert!(matches!(&error, StoreError::NotFound { what } if what == "calendar \"a\""), "{error}");
    store.write_plan(vec![put_calendar(&a, vec![]), put_calendar(&b, vec![])]).await.unwrap();
    store.write_plan(vec![put(&one, None, vec![child("H.2", 30)])]).await.unwrap();
    assert_eq!(stored(&*store, "one").await, one);
    let used = store.calendars_used(&[a.uid, b.uid]).await.unwrap();
    assert_eq!(used, [(a.uid, 1), (b.uid, 1)].into());
    assert_eq!(store.calendar_users(a.uid, None, 9).await.unwrap(), ["one"]);
    let error = store.write_plan(vec![delete_calendar(&a)]).await.expect_err("it is used");
    assert!(matches!(&error, StoreError::InUse { what } if what.contains("\"one\"")), "{error}");

    let later = calendar("a", 2, &["2026-12-31"]);
    store.write_plan(vec![put_calendar(&later, vec![user(&one, &later)])]).await.unwrap();
    let error = store.write_plan(vec![put(&by("two", &[&a]), None, vec![])]).await.expect_err("old dates");
    assert!(matches!(&error, StoreError::Conflict { what } if what.contains("dates of calendar")), "{error}");
    let now = stored(&*store, "one").await;
    assert_eq!((now.generation, now.timing.exclude.len()), (2, 2));
    assert_eq!(now.timing.exclude[0].to_string(), "2026-12-31");
    assert_eq!(store.children(one.uid, None, 9).await.unwrap().len(), 1, "children stay");
    assert_eq!(store.specs(5, &[(one.uid, 2)]).await.unwrap().len(), 1, "runs of it have their spec");

    // It goes by one of them no longer, and then goes itself.
    let without = Schedule { generation: 3, ..by("one", &[&b]) };
    store.write_plan(vec![put(&Schedule { uid: one.uid, ..without }, Some(2), vec![])]).await.unwrap();
    assert_eq!(store.calendars_used(&[a.uid, b.uid]).await.unwrap(), [(b.uid, 1)].into());
    store.write_plan(vec![delete_calendar(&later)]).await.unwrap();
    let gone = stored(&*store, "one").await;
    store.write_plan(vec![delete(&gone)]).await.unwrap();
    assert!(store.calendars_used(&[b.uid]).await.unwrap().is_empty());
    store.write_plan(vec![delete_calendar(&b)]).await.unwrap();
}

pub(crate) async fn dates_change_with_all_schedules_or_not_at_all(place: &Place) {
    let store = place.open().await;
    let (first, other) = (calendar("a", 1, &[]), calendar("b", 1, &[]));
    store.write_plan(vec![put_calendar(&first, vec![]), put_calendar(&other, vec![])]).await.unwrap();
    let (mut one, two) = (by("one", &[&first, &other]), by("two", &[&first]));
    one.payload = one.payload.with_items("acme\t7\t1\n");
    store.write_plan(vec![put(&one, None, vec![]), put(&two, None, vec![])]).await.unwrap();
    let second = calendar("a", 2, &["2026-12-31"]);
    let refused = async |users: Vec<CalendarUser>| {
        let error = store.write_plan(vec![put_calendar(&second, users)]).await.expect_err("not all");
        assert!(matches!(&error, StoreError::Conflict { what } if what.contains("meanwhile")), "{error}");
        assert_eq!(store.calendar("default", "a").await.unwrap(), Some(first.clone()));
        assert_eq!((stored(&*store, "one").await, stored(&*store, "two").await), (one.clone(), two.clone()));
    };
    refused(vec![user(&one, &second)]).await;
    refused(vec![]).await;
    let stale = CalendarUser { expected_generation: 7, ..user(&two, &second) };
    refused(vec![user(&one, &second), stale]).await;
    let stranger = by("three", &[&second]);
    refused(vec![user(&one, &second), user(&two, &second), user(&stranger, &second)]).await;
    let both = vec![user(&one, &second), user(&two, &second)];
    store.write_plan(vec![put_calendar(&second, both)]).await.unwrap();
    // The other calendar of one of them knows it as before.
    assert_eq!(store.calendar_users(other.uid, None, 9).await.unwrap(), ["one"]);
    let third = calendar("b", 2, &["2027-01-01"]);
    let now = stored(&*store, "one").await;
    assert_eq!((now.generation, &now.payload), (one.generation + 1, &one.payload), "its items stay");
    store.write_plan(vec![put_calendar(&third, vec![user(&now, &third)])]).await.unwrap();
    assert_eq!(stored(&*store, "one").await.timing.exclude.len(), 2);
    assert_eq!(store.audit("default", &Default::default(), None, 99).await.unwrap().len(), 9);
}

/// What a version does that knows no calendars: it writes the dates as the schedule's own.
pub(crate) async fn a_link_counts_for_the_generation_that_it_names(place: &Place) {
    let store = place.open().await;
    let first = calendar("a", 1, &["2026-12-24"]);
    store.write_plan(vec![put_calendar(&first, vec![])]).await.unwrap();
    let one = by("one", &[&first]);
    store.write_plan(vec![put(&one, None, vec![])]).await.unwrap();
    let mut flat = Schedule { generation: 2, ..one.clone() };
    flat.timing.calendars.clear();
    let spec = serde_json::to_string(&flat).unwrap();
    place.sql(&format!("UPDATE schedules SET generation = 2, spec = '{spec}' WHERE id = 'one'")).await;
    assert_eq!(stored(&*store, "one").await.timing.own_exclude(), first.dates);
    assert!(store.calendar_users(first.uid, None, 9).await.unwrap().is_empty());
    let second = calendar("a", 2, &[]);
    store.write_plan(vec![put_calendar(&second, vec![])]).await.unwrap();
    assert_eq!(stored(&*store, "one").await, flat);
    store.write_plan(vec![delete_calendar(&second)]).await.unwrap();
    let again = calendar("a", 1, &[]);
    store.write_plan(vec![put_calendar(&again, vec![])]).await.unwrap();
    assert!(store.calendars_used(&[again.uid]).await.unwrap().is_empty(), "links went with the calendar");
}

/// Many write schedules that go by a calendar while it changes: none is left with other dates than it has.
pub(crate) async fn whoever_is_first_schedules_have_the_dates_of_their_calendar(place: &Place) {
    let store = place.open().await;
    store.write_plan(vec![put_calendar(&calendar("a", 1, &["2026-01-01"]), vec![])]).await.unwrap();
    let current = async || store.calendar("default", "a").await.unwrap().unwrap();
    let change = async |day: u32| loop {
        let before = current().await;
        let next = calendar("a", before.generation + 1, &[&format!("2026-03-{day:02}")]);
        let ids = store.calendar_users(next.uid, None, 999).await.unwrap();
        let users = store.schedules("default", &ids).await.unwrap();
        let users = users.iter().map(|schedule| user(schedule, &next)).collect();
        match store.write_plan(vec![put_calendar(&next, users)]).await {
            Ok(()) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let make = async |n: u32| {
        let id = format!("s{n:02}");
        loop {
            let made = by(&id, &[&current().await]);
            match store.write_plan(vec![put(&made, None, vec![child("H.2", 30)])]).await {
                Ok(()) => break,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        loop {
            let before = stored(&*store, &id).await;
            let calendar = current().await;
            let next = given(
                Schedule { generation: before.generation + 1, priority: 9, ..before.clone() },
                &[&calendar],
            );
            match store.write_plan(vec![put(&next, Some(before.generation), vec![])]).await {
                Ok(()) => return,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    futures::future::join(
        async {
            for day in 1..=15 {
                change(day).await;
            }
        },
        join_all((0..12).map(make)),
    )
    .await;
    let (calendar, all) =
        (current().await, store.list_schedules("default", &Filter::default(), None, 99).await.unwrap());
    assert_eq!((calendar.generation, all.len()), (16, 12));
    for schedule in all {
        assert_eq!(schedule.timing.exclude, calendar.dates, "{} is left behind", schedule.id);
        assert_eq!(schedule.priority, 9);
    }
    assert_eq!(store.calendars_used(&[calendar.uid]).await.unwrap()[&calendar.uid], 12);
}

/// As many as may go by one calendar.
pub(crate) async fn a_change_of_many_schedules_is_one_transaction(place: &Place) {
    let store = place.open().await;
    let first = calendar("a", 1, &["2026-12-24"]);
    store.write_plan(vec![put_calendar(&first, vec![])]).await.unwrap();
    let mut all: Vec<Schedule> =
        (0..Calendar::SCHEDULES_MAX).map(|n| by(&format!("s{n:04}"), &[&first])).collect();
    for schedule in &mut all {
        schedule.payload.json = "x".repeat(4_000);
    }
    for chunk in all.chunks(100) {
        let children = || (0..60).map(|minute| child("H.2", minute)).collect();
        store.write_plan(chunk.iter().map(|one| put(one, None, children())).collect()).await.unwrap();
    }
    let second = calendar("a", 2, &["2026-12-24..2027-01-02"]);
    let users = all.iter().map(|schedule| user(schedule, &second)).collect();
    store.write_plan(vec![put_calendar(&second, users)]).await.unwrap();
    assert_eq!(store.calendars_used(&[second.uid]).await.unwrap()[&second.uid], all.len() as u64);
    let last = stored(&*store, "s1999").await;
    assert_eq!((last.generation, &last.timing.exclude), (2, &second.dates));
    assert_eq!(last.payload, all[1_999].payload);
}
