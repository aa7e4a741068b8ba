//! Random timings near clock changes, for the property tests.

use proptest::prelude::*;

/// Zones and UTC days with an unusual change of the clock close by.
const CHANGES: [(&str, &str); 44] = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Asia/Beirut", "2026-03-28"),
    ("Asia/Beirut", "2026-10-24"),
    ("America/Santiago", "2027-04-04"),
    ("America/Santiago", "2027-09-05"),
    ("America/Nuuk", "2026-03-29"),
    ("America/Nuuk", "2026-10-25"),
    ("Africa/Cairo", "2026-04-23"),
    ("Africa/Cairo", "2026-10-29"),
    ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Kwajalein", "1993-08-21"),
    ("Pacific/Kwajalein", "1969-09-30"),
    ("Pacific/Kiritimati", "1994-12-31"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Antarctica/Troll", "2026-10-25"),
    ("Antarctica/Casey", "2009-10-17"),
    ("Antarctica/Casey", "2010-03-04"),
    ("America/Danmarkshavn", "1996-01-01"),
    ("Antarctica/Vostok", "1994-01-31"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2026-03-22"),
    ("Europe/Dublin", "2026-03-29"),
    ("Europe/Dublin", "2026-10-25"),
    ("Pacific/Easter", "2026-04-05"),
    ("Pacific/Easter", "2026-09-06"),
    ("America/St_Johns", "2010-03-14"),
    ("America/St_Johns", "2010-11-07"),
    ("America/St_Johns", "1988-04-03"),
    ("Pacific/Chatham", "2026-04-04"),
    ("Pacific/Chatham", "2026-09-26"),
    ("Atlantic/Azores", "2026-03-29"),
    ("Atlantic/Azores", "2026-10-25"),
    ("Asia/Almaty", "2024-02-29"),
    ("Asia/Pyongyang", "2018-05-04"),
    ("America/Caracas", "2007-12-09"),
    ("America/Caracas", "2016-05-01"),
    ("Asia/Singapore", "1981-12-31"),
    ("Africa/Juba", "2021-01-31"),
    ("Asia/Gaza", "2040-10-20"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("Europe/Berlin", "2027-02-28"),
];

/// A zone's name and an instant in seconds, a few hours around a change or anywhere from 1973 to 2090.
pub(crate) fn place() -> impl Strategy<Value = (String, i64)> {
    let shift = prop_oneof![-86_400_i64..2 * 86_400, -4 * 3600..20 * 3600_i64];
    let near = (0..CHANGES.len(), shift).prop_map(|(index, shift)| {
        let (zone, day) = CHANGES[index];
        let day: chrono::NaiveDate = day.parse().unwrap();
        (zone.to_owned(), day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp() + shift)
    });
    let anywhere = (0..chrono_tz::TZ_VARIANTS.len(), 94_694_400_i64..3_786_912_000)
        .prop_map(|(index, instant)| (chrono_tz::TZ_VARIANTS[index].name().to_owned(), instant));
    prop_oneof![6 => near, 1 => anywhere]
}

fn member(min: u32, max: u32, names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let value = move |value: u32| {
        let named = names.get((value - min) as usize).filter(|_| value % 3 == 1);
        named.map_or_else(|| value.to_string(), ToString::to_string)
    };
    prop_oneof![
        6 => (min..=max).prop_map(value),
        2 => (min..=max, min..=max).prop_map(move |(a, b)| format!("{}-{}", value(a.min(b)), value(a.max(b)))),
        1 => (min..=max, min..=max, 1..20_u32)
            .prop_map(move |(a, b, n)| format!("{}-{}/{n}", value(a.min(b)), value(a.max(b)))),
        1 => (min..=max, 1..20_u32).prop_map(move |(a, n)| format!("{}/{n}", value(a))),
        1 => (1..40_u32).prop_map(|n| format!("*/{n}")),
    ]
}

fn list(member: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = String> {
    prop_oneof![
        4 => member.clone(),
        1 => proptest::collection::vec(member, 2..4).prop_map(|members| members.join(",")),
    ]
}

/// The five fields of an expression: minute, hour, day-of-month, month, day-of-week. Often every day.
pub(crate) fn fields() -> impl Strategy<Value = [String; 5]> {
    const MONTHS: &[&str] =
        &["jan", "FEB", "Mar", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
    const WEEKDAYS: &[&str] = &["SUN", "mon", "TUE", "WED", "Thu", "FRI", "SAT"];
    let any = || Just("*".to_owned());
    let minute = prop_oneof![1 => any(), 8 => list(member(0, 59, &[]).boxed())];
    let hour = prop_oneof![
        2 => any(),
        2 => Just("0-23".to_owned()),
        4 => list(member(0, 23, &[]).boxed()),
        4 => list(prop_oneof![0..5_u32, 20..24_u32].prop_map(|hour| hour.to_string()).boxed()),
    ];
    let date = prop_oneof![
        6 => any(),
        2 => list(member(1, 31, &[]).boxed()),
        1 => Just("L".to_owned()),
        1 => Just("1,l".to_owned()),
    ];
    let month = prop_oneof![6 => any(), 1 => list(member(1, 12, MONTHS).boxed())];
    let ordinal = prop_oneof![
        3 => (0..8_u32, 1..6_u32).prop_map(|(day, k)| format!("{day}#{k}")),
        1 => (0..8_u32).prop_map(|day| format!("{day}#L")),
        1 => (0..8_u32).prop_map(|day| format!("{day}l")),
    ];
    let weekday = prop_oneof![
        6 => any(),
        2 => list(member(0, 7, WEEKDAYS).boxed()),
        2 => list(prop_oneof![ordinal, member(0, 7, WEEKDAYS)].boxed()),
    ];
    (minute, hour, date, month, weekday).prop_map(<[String; 5]>::from)
}
