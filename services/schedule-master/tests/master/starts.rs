//! When runs start, and on which dates they do not: what is shown of `start_within`, `spread` of one event and `exclude`.
#![expect(clippy::unwrap_used, reason = "tests")]

use prost_types::{Duration, Timestamp};
use serde_json::json;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;

use crate::world::{self, NOW_S, PARENT, World, name, schedule};

async fn preview(world: &mut World, source: Source, count: i32) -> Vec<v1::LaunchTime> {
    let request = v1::PreviewScheduleRequest { source: Some(source), from_time: None, count };
    world.client.preview_schedule(request).await.unwrap().into_inner().launch_times
}

fn us(time: &Timestamp) -> i64 {
    time.seconds * 1_000_000 + i64::from(time.nanos / 1_000)
}

fn delay_us(schedule: &v1::Schedule) -> i64 {
    schedule.start_delay.map_or(0, |delay| delay.seconds * 1_000_000 + i64::from(delay.nanos / 1_000))
}

/// Events by minute of [0, minutes) after `from_s`.
async fn forecast(world: &mut World, from_s: i64, minutes: i64) -> Vec<(i64, u64)> {
    let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
    let request = v1::ForecastDemandRequest {
        parent: PARENT.to_owned(),
        start_time: at(from_s),
        end_time: at(from_s + 60 * minutes),
        slot: Some(Duration { seconds: 60, nanos: 0 }),
        policy: String::new(),
    };
    let forecast = world.client.forecast_demand(request).await.unwrap().into_inner();
    let slots = forecast.policies.iter().flat_map(|policy| &policy.slots);
    slots.map(|slot| (i64::from(slot.slot), slot.events_count)).collect()
}

#[tokio::test]
async fn a_start_is_shown_beside_the_launch_time_and_stays_through_edits() {
    let mut world = World::new().await;
    let within = json!({"start_within": "600s", "events": 3});
    let made = world.create("a", within.clone()).await.unwrap();
    let delay = delay_us(&made);
    assert!((1..600_000_000).contains(&delay) && delay % 1_000 == 0, "{delay}");
    let next = |schedule: &v1::Schedule| {
        (us(&schedule.next_launch_time.unwrap()), us(&schedule.next_start_time.unwrap()))
    };
    let (launch_us, start_us) = next(&made);
    assert_eq!((launch_us % 60_000_000, start_us - launch_us), (0, delay));
    let shown = preview(&mut world, Source::Name(name("a")), 5).await;
    assert_eq!(us(&shown[0].time.unwrap()), launch_us);
    assert!(shown.iter().all(|row| us(&row.start_time.unwrap()) - us(&row.time.unwrap()) == delay));
    // Of what does not exist nobody knows it.
    let described = preview(&mut world, Source::Schedule(schedule(within)), 5).await;
    assert!(described.iter().all(|row| row.start_time.is_none()));
    // An edit of anything else leaves it; twice the time doubles it.
    for (change, factor) in
        [(json!({"start_within": "600s", "description": "x"}), 1), (json!({"start_within": "1200s"}), 2)]
    {
        let mut given = schedule(change);
        given.name = name("a");
        let request = v1::UpdateScheduleRequest { schedule: Some(given), ..Default::default() };
        let changed = world.client.update_schedule(request).await.unwrap().into_inner();
        assert!((delay_us(&changed) - factor * delay).abs() <= 1_000, "{changed:?}");
    }
}

#[tokio::test]
async fn a_forecast_counts_events_where_they_fall_due() {
    let mut world = World::new().await;
    let midnight = NOW_S - NOW_S % 86_400 + 86_400;
    let daily = |with: serde_json::Value| {
        let mut all = json!({"triggers": [{"cron": "@daily"}]});
        with.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        all
    };
    let delayed =
        world.create("delayed", daily(json!({"start_within": "86400s", "events": 5}))).await.unwrap();
    let alone = world.create("alone", daily(json!({"spread": "3600s"}))).await.unwrap();
    world.create("at-once", daily(json!({"events": 7}))).await.unwrap();
    let minute = |schedule: &v1::Schedule| delay_us(schedule) / 60_000_000;
    let mut expected = std::collections::BTreeMap::from([(0, 7)]);
    *expected.entry(minute(&delayed)).or_default() += 5;
    *expected.entry(minute(&alone)).or_default() += 1;
    let day = forecast(&mut world, midnight, 24 * 60).await;
    assert_eq!(day, expected.clone().into_iter().collect::<Vec<_>>());
    // What was launched before the span and starts in it.
    let from = minute(&delayed);
    let hour = forecast(&mut world, midnight + from * 60, 60).await;
    // The hour may go on into the next day, which is like this one.
    let due = (0..60).filter_map(|minute| Some((minute, *expected.get(&((from + minute) % (24 * 60)))?)));
    assert_eq!(hour, due.collect::<Vec<_>>());
}

#[tokio::test]
async fn excluded_dates_are_left_out_of_what_is_shown() {
    let mut world = World::new().await;
    let day = |days: i64| {
        let seconds = NOW_S + days * 86_400;
        Timestamp { seconds, nanos: 0 }.to_string()[..10].to_owned()
    };
    let given =
        json!({"triggers": [{"cron": "0 12 * * *"}], "exclude": [day(1), format!("{}..{}", day(3), day(4))]});
    let made = world.create("a", given).await.unwrap();
    assert_eq!(made.exclude, [day(1), format!("{}..{}", day(3), day(4))]);
    let shown = preview(&mut world, Source::Name(name("a")), 3).await;
    let dates: Vec<String> = shown.iter().map(|row| row.local_time[..10].to_owned()).collect();
    assert_eq!(dates, [day(0), day(2), day(5)]);
    let midnight = NOW_S - NOW_S % 86_400;
    let fires = forecast(&mut world, midnight, 6 * 24 * 60).await;
    assert_eq!(fires.iter().map(|(minute, _)| minute / (24 * 60)).collect::<Vec<_>>(), [0, 2, 5]);
    let once = json!({"triggers": [{"at": "2027-01-01T00:00:00Z"}], "exclude": ["2026-13-01"]});
    let wrong = world.create("b", once).await;
    assert_eq!(world::fields(&wrong.unwrap_err()), ["schedule.exclude[0]"]);
}
