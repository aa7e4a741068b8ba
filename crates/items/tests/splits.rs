//! How bytes are cut changes nothing, and whatever they are, what comes of them is JSON.
#![expect(clippy::unwrap_used, reason = "tests")]

mod shared;

use proptest::prelude::*;
use serde_json::{Value, json};
use shared::{gzip, in_pieces, pairs, read, units};
use tollgate_items::{Format, KEY_MAX_BYTES, Options, Packing, UNITS_MAX};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn quoted(field: &str) -> String {
    format!("\"{}\"", field.replace('"', "\"\""))
}

proptest! {
    #[test]
    fn json_comes_out_as_it_went_in(
        values in prop::collection::vec((value(), any::<bool>()), 1..8),
        sizes in prop::collection::vec(1..40_usize, 1..8),
        packed in any::<bool>(),
    ) {
        let pretty = |(value, is_pretty): &(Value, bool)| match is_pretty {
            true => serde_json::to_string_pretty(value).unwrap(),
            false => value.to_string(),
        };
        let texts: Vec<String> = values.iter().map(pretty).collect();
        let lines: Vec<String> = values.iter().map(|(value, _)| value.to_string()).collect();
        for (format, text, expected) in [
            (Format::Json, format!("[ {}\n]", texts.join(" ,\n")), &texts),
            (Format::Ndjson, lines.join("\r\n"), &lines),
        ] {
            let bytes = if packed { gzip(text.as_bytes()) } else { text.into_bytes() };
            let options = Options { packing: Packing::Detect, ..Options::new(format) };
            let items = in_pieces(options, &bytes, sizes.clone()).unwrap();
            let data: Vec<&str> = pairs(&items).into_iter().map(|(data, _)| data).collect();
            prop_assert_eq!(data, expected.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_come_out_as_they_went_in(
        rows in prop::collection::vec(prop::collection::vec(any::<String>(), 3), 1..6),
        end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        sizes in prop::collection::vec(1..20_usize, 1..8),
    ) {
        let mut text = format!("a,\"b\",c{end}");
        for row in &rows {
            text += &row.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
            text += end;
        }
        let items = in_pieces(Options::new(Format::Csv), text.as_bytes(), sizes).unwrap();
        let made: Vec<Value> = items.iter().map(|item| serde_json::from_str(&item.data).unwrap()).collect();
        let expected = rows.iter().map(|row| json!({"a": row[0], "b": row[1], "c": row[2]}));
        prop_assert_eq!(made, expected.collect::<Vec<_>>());
    }

    #[test]
    fn units_are_those_that_were_said_in_any_pieces(
        said in prop::collection::vec(prop::option::of(1..=UNITS_MAX), 1..8),
        sizes in prop::collection::vec(1..20_usize, 1..8),
    ) {
        let with = |format| Options { units_field: Some("n".to_owned()), ..Options::new(format) };
        let item = |units: &Option<u32>| units.map_or(json!({"t": 1}), |units| json!({"t": 1, "n": units}));
        let lines: String = said.iter().map(|units| format!("{}\n", item(units))).collect();
        let wrapped = |units: &Option<u32>| units.map_or(json!({"data": 1}), |units| json!({"data": 1, "units": units}));
        let wrapped: String = said.iter().map(|units| format!("{}\n", wrapped(units))).collect();
        let rows = said.iter().map(|units| format!("1,{}\n", units.map(|n| n.to_string()).unwrap_or_default()));
        let rows = format!("t,n\n{}", rows.collect::<String>());
        let expected: Vec<u32> = said.iter().map(|units| units.unwrap_or_default()).collect();
        for (options, text) in [
            (with(Format::Ndjson), lines),
            (Options { wrapped: true, ..Options::new(Format::Ndjson) }, wrapped),
            (with(Format::Csv), rows),
        ] {
            let items = in_pieces(options, text.as_bytes(), sizes.clone()).unwrap();
            prop_assert_eq!(units(&items), expected.clone());
        }
    }

    #[test]
    fn any_bytes_give_the_same_in_any_pieces(
        text in "[\\[\\]{}\",:\\\\ \r\nabt0-9.]{0,40}",
        raw in prop::collection::vec(any::<u8>(), 0..12),
        sizes in prop::collection::vec(1..9_usize, 1..6),
        kind in 0..8_usize,
    ) {
        let options = match kind {
            0 => Options::new(Format::Ndjson),
            1 => Options::new(Format::Json),
            2 => Options::new(Format::Csv),
            3 => Options { wrapped: true, ..Options::new(Format::Ndjson) },
            4 => Options { key_field: Some("t".to_owned()), ..Options::new(Format::Json) },
            5 => Options { key_field: Some("a".to_owned()), ..Options::new(Format::Csv) },
            6 => Options { units_field: Some("a".to_owned()), ..Options::new(Format::Csv) },
            _ => Options {
                key_field: Some("t".to_owned()),
                units_field: Some("a".to_owned()),
                ..Options::new(Format::Ndjson)
            },
        };
        for bytes in [text.as_bytes().to_vec(), [text.as_bytes(), &raw].concat()] {
            let whole = read(options.clone(), &bytes, 1 << 20);
            prop_assert_eq!(&in_pieces(options.clone(), &bytes, sizes.clone()), &whole);
            for item in whole.unwrap_or_default() {
                prop_assert!(serde_json::from_str::<Value>(&item.data).is_ok() || item.data.contains(['e', 'E']), "{:?}", item);
                prop_assert!(item.key.len() <= KEY_MAX_BYTES && item.units <= UNITS_MAX);
            }
        }
    }

    #[test]
    fn broken_gzip_gives_the_same_in_any_pieces(
        text in "[0-9\n]{0,60}",
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        sizes in prop::collection::vec(1..9_usize, 1..6),
    ) {
        let mut bytes = gzip(text.as_bytes());
        *at.get_mut(&mut bytes) = byte;
        let options = Options { packing: Packing::Gzip, ..Options::new(Format::Ndjson) };
        let whole = read(options.clone(), &bytes, 1 << 20);
        // How much of what lies before the fault is unpacked, and may be refused for another reason, is gzip's affair.
        prop_assert_eq!(in_pieces(options, &bytes, sizes).ok(), whole.ok());
    }
}
