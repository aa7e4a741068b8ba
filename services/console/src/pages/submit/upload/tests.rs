//! Uploads as browsers send them.

use futures::StreamExt as _;

use super::*;

/// As long as a slow machine needs for the next piece, and no longer.
const SILENCE: Duration = Duration::from_millis(200);
const BOUNDARY: &str = "----b0";

/// The body of a form, in pieces of so many bytes.
fn form(fields: &[(&str, &str)], file: (&str, &[u8]), piece_bytes: usize) -> Multipart<'static> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head =
            format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(head.into_bytes());
    }
    let head = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\
         content-type: application/octet-stream\r\n\r\n",
        file.0
    );
    body.extend(head.into_bytes());
    body.extend(file.1);
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
    let pieces: Vec<_> = body.chunks(piece_bytes).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    Multipart::new(futures::stream::iter(pieces).map(|piece: Result<_, std::io::Error>| piece), BOUNDARY)
}

/// What is sent of a form, and what was read of it.
async fn sent(mut form: Multipart<'static>) -> (Vec<v1::Item>, Result<Read, Problem>) {
    let mut said = Said::default();
    let (field, reader) = match file(&mut form, &mut said, SILENCE).await {
        Ok(both) => both,
        Err(problem) => return (Vec::new(), Err(problem)),
    };
    let (sender, parts) = mpsc::channel(AHEAD);
    let header = Part::Header(v1::SubmissionHeader::default());
    let (read, parts) =
        futures::join!(pump(header, (field, reader), sender, SILENCE), parts.collect::<Vec<_>>());
    let mut items = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        match part.part.unwrap() {
            Part::Header(_) => assert_eq!(at, 0, "the header comes first, once"),
            Part::Items(more) => items.extend(more.items),
        }
    }
    (items, read)
}

#[tokio::test]
async fn a_file_is_sent_on_as_it_comes_however_it_is_cut() {
    let lines: String = (0..5_000).map(|n| format!("{{\"n\": {n}, \"who\": \"t{}\"}}\n", n % 3)).collect();
    for piece_bytes in [7, 1_000, 1 << 20] {
        let fields = [("format", ""), ("key_field", "who"), ("wrapped", "")];
        let (items, read) = sent(form(&fields, ("list.ndjson", lines.as_bytes()), piece_bytes)).await;
        let read = read.unwrap();
        assert_eq!((items.len(), read.keyed, read.rows.len()), (5_000, 5_000, ROWS));
        assert_eq!(
            items[4_999],
            v1::Item { data: r#"{"n": 4999, "who": "t1"}"#.to_owned(), key: "t1".to_owned(), units: 0 }
        );
        assert_eq!(
            read.rows[1],
            Row { key: "t1".to_owned(), units: 0, data: r#"{"n": 1, "who": "t1"}"#.to_owned() }
        );
    }
    let (items, _) = sent(form(&[("format", "csv")], ("list.txt", b"a,b\n1,x\n"), 3)).await;
    assert_eq!(items[0].data, r#"{"a":"1","b":"x"}"#);
    let fields = [("format", ""), ("units_field", "n")];
    let (items, read) = sent(form(&fields, ("list.csv", b"a,n\n1,12\n2,\n"), 3)).await;
    assert_eq!(items.iter().map(|item| item.units).collect::<Vec<_>>(), [12, 0]);
    let read = read.unwrap();
    assert_eq!((read.with_units, read.rows[0].units), (1, 12));
    let wrapped = br#"[{"data": 7, "key": "acme", "units": 3}]"#;
    let (items, _) = sent(form(&[("wrapped", "true")], ("LIST.JSON.GZ", wrapped), 64)).await;
    assert_eq!(items, [v1::Item { data: "7".to_owned(), key: "acme".to_owned(), units: 3 }]);
    let long = format!("\"{}\"\n", "é".repeat(1_000));
    let (_, read) = sent(form(&[], ("a.jsonl", long.as_bytes()), 64)).await;
    assert_eq!(read.unwrap().rows[0].data.chars().count(), ROW_CHARS + 1);
}

#[tokio::test]
async fn the_first_fault_is_told_with_its_line() {
    let told = async |fields: &[(&str, &str)], name: &str, text: &str| {
        let (_, read) = sent(form(fields, (name, text.as_bytes()), 16)).await;
        read.unwrap_err().text()
    };
    let fault = told(&[("key_field", "who")], "a.ndjson", "{\"who\": 1}\n{\"a\": 1}\n{\n").await;
    assert!(fault.starts_with("line 2: who: missing"), "{fault}");
    let fault = told(&[], "a.txt", "1\n").await;
    assert_eq!(fault, "format: the file's name does not say it: choose how the list is written");
    let fault = told(&[], "", "").await;
    assert_eq!(fault, "file: none was chosen, expected a file with a list");
    let fault = told(&[], "a.csv", "").await;
    assert!(fault.contains("there are no items, expected at least one"), "{fault}");
    let fault = told(&[("wrapped", "true"), ("key_field", "x")], "a.json", "[]").await;
    assert!(fault.starts_with("key_field: not beside wrapped"), "{fault}");
    let fault = told(&[("units_field", "n")], "a.csv", "n\n1\n1001\n").await;
    assert!(
        fault.starts_with("line 3: n: \"1001\" is not allowed, expected a whole number from 1"),
        "{fault}"
    );
    let pieces = [Ok::<_, std::io::Error>(Bytes::from_static(
        b"------b0\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\na\n1\n",
    ))];
    let (_, read) = sent(Multipart::new(futures::stream::iter(pieces), BOUNDARY)).await;
    assert!(
        read.unwrap_err().text().starts_with("file: the upload cannot be read"),
        "a body that breaks off is no list"
    );
}

#[tokio::test]
async fn a_body_that_says_nothing_is_given_up() {
    let head = "------b0\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\na\n1\n";
    let first = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(head.as_bytes()))]);
    let (_, read) = sent(Multipart::new(first.chain(futures::stream::pending()), BOUNDARY)).await;
    assert_eq!(read.unwrap_err().text(), "file: nothing of it has come for 0.2 s");
}
