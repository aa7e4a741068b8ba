//! What is read out of bytes, and what is said of those that are no items.
#![expect(clippy::unwrap_used, reason = "tests")]

mod shared;

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use shared::{gzip, pairs, read, units};
use tollgate_items::{DATA_MAX_BYTES, Format, Next, Options, Packing, Reader};

fn with(format: Format) -> Options {
    Options::new(format)
}

fn keyed(format: Format, field: &str) -> Options {
    Options { key_field: Some(field.to_owned()), ..with(format) }
}

fn wrapped(format: Format) -> Options {
    Options { wrapped: true, ..with(format) }
}

/// What is said against it.
fn refused(options: Options, text: impl AsRef<[u8]>) -> String {
    read(options, text.as_ref(), 7).unwrap_err().to_string()
}

#[test]
fn lines_are_items() {
    let text = "\u{feff}{\"a\": 1.50}\r\n\n  \n\t[1,\t2]  \n\"x\"\nnull\n-0.1000e+3";
    let items = read(with(Format::Ndjson), text.as_bytes(), 3).unwrap();
    assert_eq!(
        pairs(&items),
        [("{\"a\": 1.50}", ""), ("[1,\t2]", ""), ("\"x\"", ""), ("null", ""), ("-0.1000e+3", "")]
    );
    let precise = "{\"n\": 12345678901234567890.123456789012345678901234567890}";
    assert_eq!(
        pairs(&read(with(Format::Ndjson), precise.as_bytes(), 9).unwrap()),
        [(precise, "")],
        "digit by digit"
    );
}

#[test]
fn elements_are_items() {
    let text = " \u{feff}[]";
    assert!(refused(with(Format::Json), text).contains("expected [, with which an array begins"));
    let text = "\u{feff}[\n  {\"a\": \"],[\\\"}\", \"b\": [[], {}]},\n  7,\n[1]\n, \"\\\\\"\n]\n ";
    let items = read(with(Format::Json), text.as_bytes(), 1).unwrap();
    let expected = ["{\"a\": \"],[\\\"}\", \"b\": [[], {}]}", "7", "[1]", "\"\\\\\""];
    assert_eq!(pairs(&items), expected.map(|data| (data, "")));
}

#[test]
fn rows_are_objects_of_texts() {
    let text =
        "\u{feff}tenant,\"the \"\"name\"\"\",n\r\nacme,\"a, b\r\nc\",007\r\n\r\nümlaut,,1.50\rlast,\"\",";
    let items = read(with(Format::Csv), text.as_bytes(), 2).unwrap();
    let expected = [
        r#"{"tenant":"acme","the \"name\"":"a, b\r\nc","n":"007"}"#,
        r#"{"tenant":"ümlaut","the \"name\"":"","n":"1.50"}"#,
        r#"{"tenant":"last","the \"name\"":"","n":""}"#,
    ];
    assert_eq!(pairs(&items), expected.map(|data| (data, "")));
    let quoted = "\u{feff}\"a,b\"\n1\n";
    assert_eq!(pairs(&read(with(Format::Csv), quoted.as_bytes(), 1).unwrap()), [(r#"{"a,b":"1"}"#, "")]);
}

#[test]
fn keys_are_texts_and_numbers_of_a_member() {
    let text = "{\"t\": \"a\\u00e9\"}\n{\"x\": {\"t\": 1}, \"t\": 17.50}\n{\"\\u0074\": \"b\"}\n";
    let items = read(keyed(Format::Ndjson, "t"), text.as_bytes(), 5).unwrap();
    assert_eq!(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["aé", "17.50", "b"]);
    assert_eq!(items[1].data, "{\"x\": {\"t\": 1}, \"t\": 17.50}");
    let items = read(keyed(Format::Csv, "t"), b"n,t\n1,a\n2,b\n", 100).unwrap();
    assert_eq!(pairs(&items), [(r#"{"n":"1","t":"a"}"#, "a"), (r#"{"n":"2","t":"b"}"#, "b")]);
    let of = |text: &str| refused(keyed(Format::Ndjson, "t"), format!("{{\"t\":1}}\n{text}\n"));
    assert_eq!(of("{\"a\": 1}"), "line 2: t: missing, expected a text or a number, which is the key");
    assert_eq!(
        of("{\"t\": 1, \"t\": 2}"),
        "line 2: t: given twice, expected a text or a number, which is the key"
    );
    assert_eq!(
        of("{\"t\": [1]}"),
        "line 2: t: [1] is not allowed, expected a text or a number, which is the key"
    );
    assert_eq!(of("[1]"), "line 2: the item is no object, expected one with \"t\"");
    let expected = "expected 1 to 128 bytes without control characters, which is the key";
    assert_eq!(of("{\"t\": \"\"}"), format!("line 2: t: \"\" is not allowed, {expected}"));
    assert_eq!(of("{\"t\": \"a\\nb\"}"), format!("line 2: t: \"a\\nb\" is not allowed, {expected}"));
    assert!(of(&format!("{{\"t\": \"{}\"}}", "é".repeat(65))).ends_with(expected));
    let longest = format!("{{\"t\": \"{}\"}}", "é".repeat(64));
    assert_eq!(read(keyed(Format::Ndjson, "t"), longest.as_bytes(), 64).unwrap()[0].key, "é".repeat(64));
    let said = refused(keyed(Format::Csv, "t"), "a,b\n1,2\n");
    assert_eq!(said, "line 1: t: no column of the header has the key's name, expected one of a, b");
    assert_eq!(
        refused(keyed(Format::Csv, "a"), "a,b\n1,2\n,2\n"),
        format!("line 3: a: \"\" is not allowed, {expected}")
    );
}

#[test]
fn wrapped_items_have_data_and_key_and_nothing_else() {
    let text = "{\"data\": {\"n\": 1.0}, \"key\": \"a\"}\n{\"key\": null, \"data\": null}\n{\"data\": [1]}\n{\"key\":7,\"data\":\"\"}\n";
    let items = read(wrapped(Format::Ndjson), text.as_bytes(), 4).unwrap();
    assert_eq!(pairs(&items), [("{\"n\": 1.0}", "a"), ("null", ""), ("[1]", ""), ("\"\"", "7")]);
    // What is not said to be wrapped is data as a whole, even if it looks so.
    assert_eq!(
        read(with(Format::Ndjson), text.as_bytes(), 4).unwrap()[0].data,
        "{\"data\": {\"n\": 1.0}, \"key\": \"a\"}"
    );
    let expected =
        "expected an object of \"data\", of \"key\" and \"units\" where it has them, and of nothing else";
    for (text, said) in [
        ("{\"data\": 1, \"kee\": \"a\"}", "unknown field `kee`"),
        ("{\"key\": \"a\"}", "missing field `data`"),
        ("{\"data\": 1, \"data\": 2}", "duplicate field `data`"),
        ("[1, \"a\"]", "the item is no object"),
    ] {
        assert_eq!(refused(wrapped(Format::Ndjson), text), format!("line 1: {said}, {expected}"));
    }
    assert!(
        refused(wrapped(Format::Json), "[{\"data\": 1, \"key\": {}}]").contains("key: {} is not allowed")
    );
}

fn with_units(format: Format, field: &str) -> Options {
    Options { units_field: Some(field.to_owned()), ..with(format) }
}

#[test]
fn units_are_whole_numbers_of_a_member() {
    let text = "{\"n\": 4}\n{\"a\": {\"n\": 9}}\n{\"\\u006e\": \"0\\u00310\"}\n{\"n\": 1000}\n";
    let items = read(with_units(Format::Ndjson, "n"), text.as_bytes(), 5).unwrap();
    assert_eq!(units(&items), [4, 0, 10, 1_000]);
    assert_eq!(items[1].data, "{\"a\": {\"n\": 9}}");
    let items = read(with_units(Format::Csv, "n"), b"t,n\na,7\nb,\nc,\"012\"\n", 4).unwrap();
    assert_eq!(units(&items), [7, 0, 12]);
    // Key and units at once, in any order, and under one name.
    let both = Options { key_field: Some("t".to_owned()), ..with_units(Format::Json, "n") };
    let items = read(both, b"[{\"n\": 2, \"t\": 5}, {\"t\": \"b\"}, {\"t\": \"c\", \"n\": 3}]", 100).unwrap();
    assert_eq!(units(&items), [2, 0, 3]);
    assert_eq!(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["5", "b", "c"]);
    let one = Options { key_field: Some("n".to_owned()), ..with_units(Format::Ndjson, "n") };
    let items = read(one, b"{\"n\": 2}", 100).unwrap();
    assert_eq!((items[0].key.as_str(), items[0].units), ("2", 2));
    let items = read(wrapped(Format::Ndjson), b"{\"data\": 1, \"units\": 12}\n{\"data\": {\"units\": 3}}", 9);
    assert_eq!(units(&items.unwrap()), [12, 0]);
}

#[test]
fn what_is_no_number_of_tokens_is_told_with_its_line() {
    let expected = "is not allowed, expected a whole number from 1 to 1000";
    let of = |item: &str| refused(with_units(Format::Ndjson, "n"), format!("{{\"n\":1}}\n{item}\n"));
    for value in [
        "0",
        "1001",
        "-1",
        "1.0",
        "1e2",
        "99999999999",
        "null",
        "true",
        "[1]",
        "\"\"",
        "\"x\"",
        "\"+5\"",
        "\" 5\"",
    ] {
        assert_eq!(of(&format!("{{\"n\": {value}}}")), format!("line 2: n: {value} {expected}"));
        let item = format!("[{{\"data\": 1, \"units\": {value}}}]");
        // As with a key, null of a wrapped item is none.
        if value == "null" {
            assert_eq!(units(&read(wrapped(Format::Json), item.as_bytes(), 9).unwrap()), [0]);
        } else {
            let said = format!("item 1 (line 1): units: {value} {expected}");
            assert_eq!(refused(wrapped(Format::Json), item), said);
        }
    }
    assert_eq!(of("{\"n\": 1, \"n\": 1}"), "line 2: n: given twice, expected it once");
    assert_eq!(of("[1]"), "line 2: the item is no object, expected one with \"n\"");
    let csv = |text: &str| refused(with_units(Format::Csv, "n"), text);
    assert_eq!(csv("n,b\n1,2\n1001,2\n"), format!("line 3: n: \"1001\" {expected}"));
    assert_eq!(csv("n,b\n1,2\n 1,2\n"), format!("line 3: n: \" 1\" {expected}"));
    assert_eq!(
        csv("a,b\n1,2\n"),
        "line 1: n: no column of the header has the units' name, expected one of a, b"
    );
}

#[test]
fn options_that_exclude_one_another_are_refused() {
    for (options, field) in [
        (Options { wrapped: true, ..keyed(Format::Json, "a") }, "key_field: "),
        (wrapped(Format::Csv), "wrapped: "),
        (keyed(Format::Json, ""), "key_field: "),
        (Options { wrapped: true, ..with_units(Format::Json, "a") }, "units_field: not beside wrapped"),
        (with_units(Format::Csv, ""), "units_field: "),
    ] {
        let Err(error) = Reader::new(options) else { panic!("{field} is taken") };
        assert!(error.to_string().starts_with(field), "{error}");
    }
}

#[test]
fn what_is_no_json_is_told_with_its_line() {
    for (text, said) in [
        ("1\n{\"a\": }\n", "line 2: not JSON: expected value at column 7"),
        ("1\n\n{\"a\": 1} 2", "line 3: not JSON: trailing characters at column 10"),
        (
            "\"a\u{1}\"",
            "line 1: not JSON: control character (\\u0000-\\u001F) found while parsing a string at column 2",
        ),
        ("01", "line 1: not JSON: invalid number at column 2"),
        ("[\n1\n]", "line 1: not JSON by itself, expected a value a line; an array is the format JSON"),
        ("NaN", "line 1: not JSON: expected value at column 1"),
        ("\"\\ud800\"", "line 1: half of a surrogate pair, expected both of its \\u escapes"),
        ("\"\\ud83d\\ude00 \\udc00\"", "line 1: half of a surrogate pair, expected both of its \\u escapes"),
        ("\"\\", "line 1: not JSON: EOF while parsing a string at column 2"),
    ] {
        assert_eq!(refused(with(Format::Ndjson), text), said, "{text}");
    }
    assert_eq!(
        pairs(&read(with(Format::Ndjson), b"\"\\ud83d\\ude00\"", 1).unwrap()),
        [("\"\\ud83d\\ude00\"", "")]
    );
    let said = refused(with(Format::Ndjson), b"1\n\"a\xff\"\n");
    assert_eq!(said, "line 2: not UTF-8 from byte 3 on, expected text in UTF-8");
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(read(with(Format::Ndjson), deep(128).as_bytes(), 1000).unwrap().len(), 1);
    assert_eq!(
        refused(with(Format::Ndjson), deep(129)),
        "line 1: nested too deep, expected at most 128 levels"
    );
}

#[test]
fn arrays_that_are_none_are_told_with_their_element() {
    for (text, said) in [
        (
            "{\"a\": 1}\n",
            "item 1 (line 1): expected [, with which an array begins; objects one a line are NDJSON",
        ),
        ("7", "item 1 (line 1): expected [, with which an array begins"),
        ("[1,\n2", "item 2 (line 2): the array ends in the middle of an element, expected its rest and ]"),
        ("[1,\n", "item 2 (line 1): the array is not closed, expected ]"),
        ("[\"a", "item 1 (line 1): the array ends in the middle of an element, expected its rest and ]"),
        ("[1,]", "item 2 (line 1): expected another element behind the comma"),
        ("[,1]", "item 1 (line 1): expected a JSON value"),
        ("[1] 2", "item 2 (line 1): something follows the array, expected nothing"),
        ("[1\n,\n\n{\"a\"\n: x}]", "item 2 (line 4): not JSON: expected value at column 3 of its line 2"),
        ("[1}]", "item 1 (line 1): not JSON: trailing characters at column 2"),
    ] {
        assert_eq!(refused(with(Format::Json), text), said, "{text}");
    }
}

#[test]
fn rows_that_are_none_are_told_with_their_line() {
    for (text, said) in [
        ("a,b\n1,2\n\n1,2,3\n", "line 4: the row has 3 fields, expected 2, as many as the header"),
        ("a,b\n\"x\ny\",2\n1\n", "line 4: the row has 1 fields, expected 2, as many as the header"),
        ("a\n1\n\"x\ny", "line 3: the quote that opens on line 3 is not closed, expected another"),
        (
            "a\n\"x\"y\n",
            "line 2: something follows a closing quote, expected a comma or the end of the row; a quote within quotes is written twice",
        ),
        (
            "a\nx\"y\n",
            "line 2: a quote in a field that does not begin with one, expected the whole field in quotes, and this one twice",
        ),
        ("a,a\n", "line 1: a: the header names this column twice, expected once"),
        ("a,\n", "line 1: column 2 of the header has no name, expected one"),
        ("a;b\n1;2\n", "line 1: a;b: the header has one column, expected commas between the columns"),
    ] {
        assert_eq!(refused(with(Format::Csv), text), said, "{text}");
    }
    let said = refused(with(Format::Csv), b"a,b\n1,\xff\n");
    assert_eq!(said, "line 2: b: not UTF-8 from byte 1 on, expected text in UTF-8");
    let wide = vec!["x"; 1_025].join(",");
    assert_eq!(refused(with(Format::Csv), wide), "line 1: too many columns, expected at most 1024");
}

#[test]
fn nothing_is_no_list_of_items() {
    let said = "there are no items, expected at least one";
    for (format, texts) in
        [(Format::Ndjson, ["", "\n \n"]), (Format::Json, ["", " [ ] \n"]), (Format::Csv, ["", "a,b\n\n"])]
    {
        for text in texts {
            assert_eq!(refused(with(format), text), said, "{format:?} {text:?}");
        }
    }
}

#[test]
fn an_item_has_a_largest_size() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let (fits, large) = (text(DATA_MAX_BYTES), text(DATA_MAX_BYTES + 1));
    let said = "the item is too large, expected at most 262144 bytes";
    assert_eq!(read(with(Format::Ndjson), format!("{fits}\n{fits}").as_bytes(), 1000).unwrap().len(), 2);
    assert_eq!(refused(with(Format::Ndjson), format!("1\n{large}\n")), format!("line 2: {said}"));
    assert_eq!(refused(with(Format::Ndjson), format!("1\n{}\n", text(3_000_000))), format!("line 2: {said}"));
    assert_eq!(refused(with(Format::Json), format!("[1, {large}]")), format!("item 2 (line 1): {said}"));
    assert_eq!(
        refused(with(Format::Json), format!("[1, {}]", text(3_000_000))),
        format!("item 2 (line 1): {said}")
    );
    assert_eq!(
        refused(with(Format::Csv), format!("a\n1\n{}\n", "x".repeat(300_000))),
        format!("line 3: {said}")
    );
    // Quotes grow on the way to JSON.
    assert_eq!(
        refused(with(Format::Csv), format!("a\n\"{}\"\n", "\"\"".repeat(140_000))),
        format!("line 2: {said}")
    );
    let blank = refused(with(Format::Ndjson), format!("1\n{}2\n", "\n".repeat(1024 * 1024 + 1)));
    assert!(blank.ends_with("more than 1048576 bytes of empty lines, expected an item"), "{blank}");
    for format in [Format::Json, Format::Csv] {
        assert!(
            refused(with(format), "\n".repeat(1024 * 1024 + 1)).contains("more than 1048576 bytes of empty")
        );
    }
}

#[test]
fn gzip_is_unpacked_and_what_is_none_is_told() {
    let text = "{\"a\": 1}\n{\"a\": 2}\n".repeat(5_000);
    let packed = |packing| Options { packing, ..with(Format::Ndjson) };
    let members = [gzip(&text.as_bytes()[..70_001]), gzip(b""), gzip(&text.as_bytes()[70_001..])].concat();
    for packing in [Packing::Gzip, Packing::Detect] {
        assert_eq!(read(packed(packing), &members, 100).unwrap().len(), 10_000);
    }
    assert_eq!(read(packed(Packing::Detect), text.as_bytes(), 100).unwrap().len(), 10_000);
    assert_eq!(pairs(&read(packed(Packing::Detect), b"1", 1).unwrap()), [("1", "")]);
    let said = refused(packed(Packing::Gzip), &text);
    assert_eq!(said, "not gzip, expected what is said to be gzip to begin as that does");
    let said = refused(packed(Packing::Plain), &members);
    assert_eq!(said, "packed as gzip, which has to be said; expected text");
    let whole = gzip(text.as_bytes());
    for cut in [whole.len() - 1, whole.len() - 8, whole.len() / 2, 12, 5] {
        let said = refused(packed(Packing::Gzip), &whole[..cut]);
        assert_eq!(said, "the gzip stream is cut off, expected its end", "{cut}");
    }
    let mut wrong = whole.clone();
    let last = wrong.len() - 6;
    wrong[last] ^= 1;
    let said = refused(packed(Packing::Gzip), &wrong);
    assert!(said.starts_with("the gzip stream is broken: "), "{said}");
    let said = refused(packed(Packing::Gzip), [&whole[..], b"garbage, and more of it"].concat());
    assert!(said.starts_with("the gzip stream is broken: "), "{said}");
}

/// A thousandfold of what is sent: each call looks at a part of it, and what is no item ends it.
#[test]
fn a_bomb_is_looked_at_in_small_steps_and_ends() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        packer.write_all(&vec![b' '; 1024 * 1024]).unwrap();
    }
    let bomb = Bytes::from(packer.finish().unwrap());
    assert!(bomb.len() < 80_000, "{}", bomb.len());
    let options = Options { packing: Packing::Gzip, ..with(Format::Json) };
    let mut reader = Reader::new(options).unwrap();
    reader.feed(bomb);
    let mut steps = 0;
    let error = loop {
        match reader.advance() {
            Ok(Next::Busy) => steps += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!((15..=17).contains(&steps), "{steps} steps to the most of white space");
    assert!(error.said.contains("empty lines"), "{error}");
    assert_eq!(reader.advance().unwrap_err(), error, "the same is said again");
}
