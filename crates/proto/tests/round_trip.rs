//! Every schedule and policy of the core survives the way to a message, to JSON, and back.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::items::{Item, UNITS_MAX, to_lines};
use tollgate_core::model::{
    CatchUp, CheckAgain, ContentMode, FinishCondition, GapRule, Http2, HttpBatch, HttpItems, HttpTarget,
    ItemsFrom, KafkaTarget, KeyRule, KeyRules, Limits, ListFormat, OnFinish, OnGuard, OverlapRule, PastPause,
    Pause, Payload, Policy, Reclaim, ReleaseMode, RepeatRule, ResultItems, RetryPolicy, Schedule, SqsTarget,
    Target, Timing, Trigger, TtlFrom,
};
use tollgate_proto::convert::{Name, policy, schedule};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::v1;
use uuid::Uuid;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";
const YEAR_S: i64 = 365 * 24 * 3_600;

fn name() -> Name {
    Name { namespace: "a".to_owned(), id: "b".to_owned() }
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-z.]{1,8}", "[^\\p{Cc}]{0,20}", 0..4)
}

fn pause() -> impl Strategy<Value = Option<Pause>> {
    of((".{0,20}", "[a-z]{1,8}", 0..4_000_000_000_000_000_i64).prop_map(|(reason, actor, since_us)| Pause {
        reason,
        actor,
        since_us,
    }))
}

fn trigger() -> impl Strategy<Value = Trigger> {
    let field = || of("[0-9*,/-]{1,6}");
    prop_oneof![
        "[0-9*,/ -]{0,20}".prop_map(|expression| Trigger::Cron { expression }),
        (field(), field(), field(), field(), field()).prop_map(
            |(month, day_of_month, day_of_week, hour, minute)| Trigger::Fields {
                month,
                day_of_month,
                day_of_week,
                hour,
                minute
            }
        ),
        (1..=i64::from(i32::MAX), of(-YEAR_S..100 * YEAR_S)).prop_map(|(every_s, anchor_s)| {
            Trigger::Interval { every_s, anchor_us: anchor_s.map(|s| s * 1_000_000) }
        }),
        (0..100 * YEAR_S).prop_map(|s| Trigger::At { at_us: s * 1_000_000 }),
    ]
}

fn timing() -> impl Strategy<Value = Timing> {
    (
        vec(trigger(), 1..5),
        select(&["UTC", "Europe/Berlin"][..]),
        select(&[GapRule::NextValid, GapRule::Skip][..]),
        select(&[RepeatRule::First, RepeatRule::Both][..]),
        of(0..1_000_000_000_i64),
        of(1_000_000_000..2_000_000_000_000_000_i64),
        vec(select(&["2026-12-25", "2026-12-24..2027-01-01"][..]), 0..3),
    )
        .prop_map(|(triggers, zone, gap, repeat, start_us, end_us, exclude)| Timing {
            triggers,
            time_zone: zone.to_owned(),
            gap,
            repeat,
            start_us,
            end_us,
            exclude: exclude.into_iter().filter_map(|text| text.parse().ok()).collect(),
            ..Timing::default()
        })
}

fn target() -> impl Strategy<Value = Target> {
    let release =
        || select(&[ReleaseMode::TargetDefault, ReleaseMode::OnResponse, ReleaseMode::Explicit][..]);
    let deadline = || 1..=900_000_i64;
    let http = (
        "https?://[a-z]{1,9}(:[1-9][0-9]{0,3})?/[a-z0-9/?=&]{0,20}",
        btree_map("x-[a-z]{1,6}", "[!-~]{0,9}", 0..3),
    );
    prop_oneof![
        (http, any::<bool>(), deadline(), release()).prop_map(
            |((url, headers), secret, deadline_ms, release)| {
                let secret = secret.then(|| SECRET.to_owned());
                let http2 = match deadline_ms % 3 {
                    0 if url.starts_with("http:") => Http2::PriorKnowledge,
                    1 => Http2::Never,
                    _ => Http2::Auto,
                };
                let batch = (deadline_ms % 2 == 0 && deadline_ms > 100).then(|| HttpBatch {
                    max_events: 2 + u32::try_from(deadline_ms % 999).unwrap(),
                    max_bytes: 1_024 + u32::try_from(deadline_ms % 9_999).unwrap(),
                    max_wait_ms: deadline_ms % 50,
                });
                Target::Http { http: HttpTarget { url, headers, secret, deadline_ms, http2, batch }, release }
            }
        ),
        (of("[a-z0-9-]{1,9}"), of("http://[a-z]{1,9}"), of("[!-~]{1,9}"), deadline(), release()).prop_map(
            |(region, endpoint_url, message_group_id, deadline_ms, release)| {
                let queue_url = "https://sqs.eu-central-1.amazonaws.com/1/q.fifo".to_owned();
                let group_by_key = deadline_ms % 2 == 0 && queue_url.ends_with(".fifo");
                let sqs = SqsTarget {
                    queue_url,
                    region,
                    endpoint_url,
                    message_group_id,
                    group_by_key,
                    deadline_ms,
                };
                Target::Sqs { sqs, release }
            }
        ),
        (
            of("[a-z0-9-]{1,9}"),
            btree_map("x-[a-z]{1,2}", "[!-~]{0,9}", 0..3),
            (5_000_i64..900_000),
            release()
        )
            .prop_map(|(key, headers, deadline_ms, release)| {
                let content_mode =
                    if deadline_ms % 2 == 0 { ContentMode::Binary } else { ContentMode::Structured };
                let kafka = KafkaTarget {
                    bootstrap_servers: "a.example:9092,[::1]:9093".to_owned(),
                    topic: "orders".to_owned(),
                    key: key.map(|key| format!("{key}-{{key}}")),
                    headers,
                    content_mode,
                    deadline_ms,
                };
                Target::Kafka { kafka, release }
            }),
    ]
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(String::new()),
        Just("null".to_owned()),
        Just(r#"{"a":[1,2.5,true,null,"x"],"b":{}}"#.to_owned()),
        (-(1_i64 << 53)..=1_i64 << 53).prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::Value::from(text).to_string()),
    ]
    .prop_map(Payload::of)
}

/// Where a list of items is.
fn items_from() -> impl Strategy<Value = ItemsFrom> {
    let format = select(&[None, Some(ListFormat::Ndjson), Some(ListFormat::Json), Some(ListFormat::Csv)][..]);
    let fields = prop_oneof![
        Just(["", "", ""]),
        Just(["rows", "", ""]),
        Just(["rows", "next", ""]),
        Just(["rows", "next", "cursor"]),
    ];
    (
        "http://[a-z]{1,9}/[a-z]{0,5}",
        "[a-z]{0,4}",
        format,
        fields,
        1..=900_000_i64,
        0..=3_600_i64,
        1..=86_400_i64,
    )
        .prop_map(
            |(
                url,
                key_field,
                format,
                [items, next, parameter],
                deadline_ms,
                fetch_ahead_s,
                give_up_after_s,
            )| {
                let http = HttpItems {
                    headers: [("x-team".to_owned(), key_field.clone())].into(),
                    format: format.filter(|format| items.is_empty() || *format == ListFormat::Json),
                    units_field: key_field.chars().rev().collect(),
                    key_field,
                    items_field: items.to_owned(),
                    next_field: next.to_owned(),
                    next_parameter: parameter.to_owned(),
                    deadline_ms,
                    ..ItemsFrom::http(url).http
                };
                ItemsFrom { http, fetch_ahead_s, give_up_after_s }
            },
        )
}

/// A payload with some items or a list, and how many events that makes of so many.
fn payload_with_items() -> impl Strategy<Value = (Payload, Option<u32>)> {
    let listed = (payload(), items_from())
        .prop_map(|(payload, from)| (Payload { from: Some(Arc::new(from)), ..payload }, Some(0)));
    prop_oneof![3 => payload_with_own_items(), 1 => listed]
}

fn payload_with_own_items() -> impl Strategy<Value = (Payload, Option<u32>)> {
    let item = ("[a-z é]{0,4}", 0..=UNITS_MAX, payload()).prop_map(|(key, units, data)| Item {
        key,
        units,
        data: data.json,
    });
    let item = item.prop_filter("data is required", |item| !item.data.is_empty());
    (payload(), vec(item, 0..4)).prop_map(|(payload, items)| {
        let events = u32::try_from(items.len()).ok().filter(|events| *events > 0);
        (payload.with_items(to_lines(&items)), events)
    })
}

fn rules() -> impl Strategy<Value = (RetryPolicy, CatchUp, OverlapRule, CheckAgain)> {
    let retry = (1..=1000_u32, 1..1000_i64, 1000..=86_400_000_i64, any::<bool>()).prop_map(
        |(attempts_max, backoff_min_ms, backoff_max_ms, retry_lost)| RetryPolicy {
            attempts_max,
            backoff_min_ms,
            backoff_max_ms,
            retry_lost,
        },
    );
    let catch_up = prop_oneof![
        Just(CatchUp::None),
        Just(CatchUp::Latest),
        (1..=YEAR_S).prop_map(|horizon_s| CatchUp::All { horizon_s })
    ];
    let overlap = select(
        &[OverlapRule::Allow, OverlapRule::Skip, OverlapRule::BufferOne, OverlapRule::CancelOther][..],
    );
    let on_guard = select(&[OnGuard::Refuse, OnGuard::Close][..]);
    let check = (0..=1_000_000_u32, 1..=YEAR_S, 1..=86_400_i64, on_guard).prop_map(
        |(count_max, horizon_s, slot_s, on_guard)| CheckAgain { count_max, horizon_s, slot_s, on_guard },
    );
    (retry, catch_up, overlap, check)
}

/// As it comes to be stored.
fn in_slots(timing: &mut Timing, slot_s: i64) {
    for trigger in &mut timing.triggers {
        if let Trigger::At { at_us } = trigger {
            *at_us = CheckAgain::up_to_slot_us(*at_us, slot_s);
        }
    }
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let spans = (of(1..=YEAR_S), of(1..=86_400_i64));
    let numbers = (1..=10_000_000_u32, 0..=9_u8, of(1..=YEAR_S), spans, any::<u128>(), 0..1_i64 << 50);
    (".{0,40}", timing(), target(), payload_with_items(), of(Just("p")), rules(), labels(), pause(), numbers)
        .prop_map(
            |(
                description,
                mut timing,
                target,
                (payload, of_items),
                policy,
                rules,
                labels,
                pause,
                numbers,
            )| {
                let (retry, catch_up, overlap, check_again) = rules;
                in_slots(&mut timing, check_again.slot_s);
                let (events, priority, finish_by_s, (spread_s, start_within_s), uid, us) = numbers;
                Schedule {
                    uid: Uuid::from_u128(uid),
                    namespace: name().namespace,
                    id: name().id,
                    description,
                    timing,
                    events: of_items.unwrap_or(events),
                    target,
                    payload,
                    policy: policy.map(str::to_owned),
                    policy_uid: policy.map(|_| Uuid::from_u128(uid ^ 1)),
                    shard: None,
                    key: (uid % 2 == 0).then(|| "acmé".to_owned()),
                    key_label: None,
                    units: 1 + u32::from(priority) * 111,
                    priority,
                    retry,
                    catch_up,
                    overlap,
                    delay_after_finish_s: spread_s
                        .filter(|_| matches!(overlap, OverlapRule::Skip | OverlapRule::BufferOne)),
                    finish_by_s,
                    spread_s,
                    start_within_s,
                    start_within_percent: None,
                    check_again,
                    on_finish: priority.is_multiple_of(2).then(|| OnFinish {
                        schedule: "other".to_owned(),
                        when: [
                            FinishCondition::AllSucceeded,
                            FinishCondition::AnyFailed,
                            FinishCondition::Always,
                        ][usize::from(priority % 3)],
                        events: finish_by_s.map(|_| events),
                        items: finish_by_s.is_none().then(|| {
                            Box::new(ResultItems { key_field: "tenant".to_owned(), ..Default::default() })
                        }),
                    }),
                    when_done: Default::default(),
                    pause,
                    past_pauses: vec![PastPause { since_us: us, until_us: us + 1 }],
                    former_homes: vec![2],
                    labels,
                    generation: us / 3,
                    created_us: us,
                    updated_us: us + 1,
                }
            },
        )
}

fn key_rules() -> impl Strategy<Value = KeyRules> {
    let each = of((1..=u32::MAX).prop_map(|m| Limits { max_in_flight: Some(m), ..Limits::default() }));
    let limits = (of(1..=u32::MAX), of(1e-6..1e6_f64)).prop_map(|(max_in_flight, rate_per_s)| Limits {
        max_in_flight,
        rate_per_s,
        burst: rate_per_s.map(|_| 3),
    });
    let rule = (limits, 1..=1_000_u32, any::<bool>(), ".{0,20}")
        .prop_map(|(limits, weight, paused, reason)| KeyRule { limits, weight, paused, reason });
    (each, btree_map("[a-z.é]{1,8}", rule, 0..4)).prop_map(|(each, of)| KeyRules { each, of })
}

fn policies() -> impl Strategy<Value = Policy> {
    let limits = prop_oneof![
        (1..=u32::MAX).prop_map(|m| Limits { max_in_flight: Some(m), ..Limits::default() }),
        (of(1..=u32::MAX), 1e-6..1e6_f64, of(1..=10_000_000_u32)).prop_map(|(max_in_flight, rate, burst)| {
            Limits { max_in_flight, rate_per_s: Some(rate), burst }
        }),
    ];
    let ttl = || 1_000..=30 * 86_400_000_i64;
    let ttl_from = select(&[TtlFrom::TargetDefault, TtlFrom::Delivery, TtlFrom::FirstHeartbeat][..]);
    let reclaim = select(&[Reclaim::AfterTtl, Reclaim::Never][..]);
    let spans = (ttl(), 0..=86_400_000_i64, ttl(), 0..1_i64 << 50, 0..256_u16);
    (limits, key_rules(), ".{0,40}", reclaim, ttl_from, spans, labels(), pause()).prop_map(
        |(limits, keys, description, reclaim, ttl_from, spans, labels, pause)| {
            let (token_ttl_ms, suspect_ms, unstarted_ttl_ms, us, shard) = spans;
            Policy {
                uid: Uuid::from_u128(9),
                namespace: name().namespace,
                id: name().id,
                description,
                limits,
                keys,
                adopts: false,
                parent: None,
                reclaim,
                token_ttl_ms,
                suspect_ms,
                ttl_from,
                unstarted_ttl_ms,
                pause,
                labels,
                shard,
                generation: us / 3,
                created_us: us,
                updated_us: us + 1,
            }
        },
    )
}

proptest! {
    #[test]
    fn schedules_survive(schedule in schedules()) {
        let shown = schedule::to_message(&schedule);
        let read: v1::Schedule = from_json(to_json(&shown)).unwrap();
        prop_assert_eq!(&read, &shown);
        prop_assert_eq!(schedule::to_core(&read, &name(), Some(&schedule)), Ok(schedule));
    }

    #[test]
    fn policies_survive(policy in policies()) {
        let shown = policy::to_message(&policy);
        let read: v1::Policy = from_json(to_json(&shown)).unwrap();
        prop_assert_eq!(&read, &shown);
        prop_assert_eq!(policy::to_core(&read, &name(), Some(&policy)), Ok(policy));
    }

    #[test]
    fn no_message_that_json_makes_panics(triggers in vec(any::<(i64, i32)>(), 0..3), text in ".{0,200}", number in any::<(u32, i32, f64)>()) {
        let span = |(seconds, nanos)| prost_types::Duration { seconds, nanos };
        let time = |(seconds, nanos)| prost_types::Timestamp { seconds, nanos };
        let first = triggers.first().copied();
        let message = v1::Schedule {
            name: text.clone(),
            triggers: triggers.iter().map(|&at| v1::Trigger { trigger: Some(v1::trigger::Trigger::At(time(at))) }).collect(),
            target: Some(v1::Target {
                target: Some(v1::target::Target::Http(v1::HttpTarget {
                    url: text.clone(),
                    secret: text.clone(),
                    headers: [(text.clone(), text.clone())].into(),
                    deadline: first.map(span),
                    ..Default::default()
                })),
                release: number.1,
            }),
            events: Some(number.0),
            overlap: number.1,
            finish_by: first.map(span),
            start_time: first.map(time),
            ..Default::default()
        };
        // Whatever it is, the answer names fields or can be shown again.
        match schedule::to_core(&message, &name(), None) {
            Ok(taken) => prop_assert!(schedule::to_core(&schedule::to_message(&taken), &name(), Some(&taken)).is_ok()),
            Err(errors) => prop_assert!(errors.iter().all(|error| error.field.starts_with("schedule."))),
        }
        let (rate, token_ttl) = (Some(number.2), first.map(span));
        let message = v1::Policy { rate_per_second: rate, reclaim: number.1, token_ttl, ..Default::default() };
        if let Err(errors) = policy::to_core(&message, &name(), None) {
            prop_assert!(errors.iter().all(|error| error.field.starts_with("policy.")));
        }
    }
}
