//! Decides what a page of a list holds: its items, and where the next page is.
//!
//! In: an answer's kind, and its bytes as they come. Out: items, one after the other, and what says where the list goes on.
//! Invariants: memory does not grow with the page, but where it is one object, which is bounded. Not here: what an item may be
//! (`tollgate_items`), where bytes come from.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use tollgate_core::items::Item;
use tollgate_core::model::{HttpItems, ListFormat};
use tollgate_items::{Format, ItemsError, Next, Options, Packing, Reader};
use tollgate_secrets::{ENVELOPE, is_sealed};
use tollgate_target::NoPage;

/// The most bytes of an answer that is one object.
const OBJECT_MAX_BYTES: usize = 8 * 1024 * 1024;

/// A page that is being read.
pub(super) struct PageReader {
    reader: Reader,
    /// All of the answer, where it is one object.
    object: Option<Vec<u8>>,
    /// What the object says of the next page.
    next: Option<String>,
}

/// How an answer is written.
///
/// # Errors
/// That nobody knows.
pub(super) fn format(list: &HttpItems, content_type: Option<&str>) -> Result<Format, NoPage> {
    let said = match list.format {
        _ if !list.items_field.is_empty() => Some(Format::Json),
        Some(ListFormat::Ndjson) => Some(Format::Ndjson),
        Some(ListFormat::Json) => Some(Format::Json),
        Some(ListFormat::Csv) => Some(Format::Csv),
        None => content_type.and_then(of_content_type),
    };
    said.ok_or_else(|| {
        let given = content_type.map_or("it has no Content-Type".to_owned(), |given| {
            format!("its Content-Type is {:?}", given.chars().take(80).collect::<String>())
        });
        NoPage::yet(format!("{given}, expected that of NDJSON, JSON or CSV; or say items_from.http.format"))
    })
}

fn of_content_type(given: &str) -> Option<Format> {
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines"
        | "application/json-lines"
        | "application/x-json-stream" => Some(Format::Ndjson),
        "application/json" | "text/json" => Some(Format::Json),
        "text/csv" | "application/csv" => Some(Format::Csv),
        other => other.ends_with("+json").then_some(Format::Json),
    }
}

impl PageReader {
    /// Reads a page that is written so.
    ///
    /// # Errors
    /// What the list's settings cannot be.
    pub(super) fn new(list: &HttpItems, format: Format) -> Result<Self, NoPage> {
        let named = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
        let options = Options {
            key_field: named(&list.key_field),
            units_field: named(&list.units_field),
            packing: Packing::Detect,
            may_be_empty: true,
            ..Options::new(format)
        };
        let reader = Reader::new(options).map_err(|error| wrong(&error))?;
        let object = (!list.items_field.is_empty()).then(Vec::new);
        Ok(Self { reader, object, next: None })
    }

    /// Takes the bytes that follow.
    ///
    /// # Errors
    /// That an object is too large.
    pub(super) fn feed(&mut self, bytes: Bytes) -> Result<(), NoPage> {
        let Some(object) = &mut self.object else {
            self.reader.feed(bytes);
            return Ok(());
        };
        if object.len() + bytes.len() > OBJECT_MAX_BYTES {
            return Err(NoPage::ever(format!(
                "an answer has more than {OBJECT_MAX_BYTES} bytes, the most of one that is an object with items_field"
            )));
        }
        object.extend_from_slice(&bytes);
        Ok(())
    }

    /// Nothing follows.
    ///
    /// # Errors
    /// What is wrong with an object.
    pub(super) fn end(&mut self, list: &HttpItems) -> Result<(), NoPage> {
        if let Some(object) = self.object.take() {
            let (items, next) = of_object(&object, list)?;
            self.next = next;
            self.reader.feed(Bytes::from(items));
        }
        self.reader.end();
        Ok(())
    }

    /// What the object said of the next page.
    pub(super) fn next(&mut self) -> Option<String> {
        self.next.take()
    }

    /// The next item; none where more bytes are needed, or nothing follows.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(super) async fn item(&mut self) -> Result<Option<Item>, NoPage> {
        loop {
            match self.reader.advance().map_err(|error| wrong(&error))? {
                Next::Item(item) => return checked(item).map(Some),
                Next::Hungry | Next::End => return Ok(None),
                Next::Busy => tokio::task::yield_now().await,
            }
        }
    }
}

fn wrong(error: &ItemsError) -> NoPage {
    NoPage::yet(format!("the list is not one: {error}"))
}

/// An item as it is stored.
fn checked(item: tollgate_items::Item) -> Result<Item, NoPage> {
    let tollgate_items::Item { data, key, units } = item;
    if is_sealed(&key) {
        let expected = format!("a text that does not begin with {ENVELOPE}, which stands for a sealed one");
        return Err(NoPage::yet(format!("the list is not one: a key is not allowed, expected {expected}")));
    }
    let data = match tollgate_core::items::in_one_line(&data) {
        std::borrow::Cow::Borrowed(line) if line.len() == data.len() => data,
        line => line.into_owned(),
    };
    Ok(Item { key, units, data })
}

/// The array of items in an object, and what it says of the next page.
fn of_object(object: &[u8], list: &HttpItems) -> Result<(String, Option<String>), NoPage> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(object)
        .map_err(|error| NoPage::yet(format!("the answer is no JSON object with items_field: {error}")))?;
    let items = members.get(&list.items_field).map(|items| items.get().trim());
    let Some(items) = items.filter(|items| items.starts_with('[')) else {
        let name = &list.items_field;
        return Err(NoPage::yet(format!("the answer has no array in {name:?}, which items_field names")));
    };
    let next = match members.get(&list.next_field).filter(|_| !list.next_field.is_empty()) {
        None => None,
        Some(next) => match serde_json::from_str(next.get()) {
            Ok(serde_json::Value::Null) => None,
            Ok(serde_json::Value::String(text)) => Some(text).filter(|text| !text.is_empty()),
            Ok(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => {
                let name = &list.next_field;
                return Err(NoPage::yet(format!(
                    "{name:?} of the answer is no text, which next_field names"
                )));
            }
        },
    };
    Ok((items.to_owned(), next))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tollgate_core::model::ItemsFrom;

    use super::*;

    fn list(items_field: &str, next_field: &str) -> HttpItems {
        let list = ItemsFrom::http("http://a/".to_owned()).http;
        HttpItems { items_field: items_field.to_owned(), next_field: next_field.to_owned(), ..list }
    }

    async fn read(
        list: &HttpItems,
        content_type: &str,
        body: &str,
    ) -> Result<(Vec<Item>, Option<String>), NoPage> {
        let mut page = PageReader::new(list, format(list, Some(content_type))?)?;
        let mut items = Vec::new();
        for byte in body.bytes() {
            page.feed(Bytes::from(vec![byte]))?;
            items.extend(page.item().await?);
        }
        page.end(list)?;
        while let Some(item) = page.item().await? {
            items.push(item);
        }
        Ok((items, page.next()))
    }

    fn item(key: &str, data: &str) -> Item {
        Item { key: key.to_owned(), units: 0, data: data.to_owned() }
    }

    #[tokio::test]
    async fn an_answer_is_read_as_its_kind_says() {
        let plain = list("", "");
        let two = (vec![item("", "1"), item("", "{\"a\":2}")], None);
        for (kind, body) in [
            ("application/x-ndjson", "1\n{\"a\":2}\n"),
            ("application/json; charset=utf-8", " [1, {\n\"a\": 2}]"),
            ("application/vnd.list+json", "[1,{\"a\":2}]"),
        ] {
            assert_eq!(read(&plain, kind, body).await.unwrap(), two, "{kind}");
        }
        let rows = read(&plain, "text/csv", "id,n\r\n7,x\r\n").await.unwrap();
        assert_eq!(rows.0, [item("", "{\"id\":\"7\",\"n\":\"x\"}")]);
        let unknown = read(&plain, "text/html", "<p>").await.unwrap_err();
        assert!(unknown.message.contains("\"text/html\"") && !unknown.is_final, "{unknown:?}");
        let csv = HttpItems { format: Some(ListFormat::Csv), key_field: "id".to_owned(), ..plain.clone() };
        assert_eq!(read(&csv, "text/plain", "id\n7\n").await.unwrap().0, [item("7", "{\"id\":\"7\"}")]);
        let units = HttpItems { units_field: "n".to_owned(), ..plain.clone() };
        let weighed = read(&units, "application/json", "[{\"n\":12}]").await.unwrap().0;
        assert_eq!(weighed, [Item { units: 12, ..item("", "{\"n\":12}") }]);
        assert_eq!(read(&plain, "application/json", "[]").await.unwrap(), (Vec::new(), None), "of a page");
    }

    #[tokio::test]
    async fn an_object_has_the_items_and_says_where_the_next_page_is() {
        let object = list("items", "next");
        let next = async |next: &str| {
            let body = format!("{{\"items\": [1, 2.50], \"next\": {next}, \"total\": 9}}");
            read(&object, "application/json", &body).await.map(|(items, next)| (items.len(), next))
        };
        assert_eq!(next("\"/p/2\"").await.unwrap(), (2, Some("/p/2".to_owned())));
        assert_eq!(next("17").await.unwrap(), (2, Some("17".to_owned())));
        for last in ["null", "\"\""] {
            assert_eq!(next(last).await.unwrap(), (2, None), "{last}");
        }
        assert!(next("[]").await.unwrap_err().message.contains("no text"));
        let (items, _) = read(&object, "x/y", "{\"items\": [2.50]}").await.unwrap();
        assert_eq!(items, [item("", "2.50")], "digit by digit");
        for body in ["{\"items\": 7}", "{}", "[1]", "{\"items\": [1"] {
            assert!(!read(&object, "x/y", body).await.unwrap_err().is_final, "{body}");
        }
        let large = format!("{{\"items\": [\"{}\"]}}", "x".repeat(OBJECT_MAX_BYTES));
        let mut page = PageReader::new(&object, Format::Json).unwrap();
        assert!(page.feed(Bytes::from(large)).unwrap_err().is_final);
    }

    #[tokio::test]
    async fn what_is_no_list_is_told_with_its_place() {
        let error = read(&list("", ""), "application/x-ndjson", "1\nnonsense\n").await.unwrap_err();
        assert!(error.message.contains("line 2") && !error.is_final, "{error:?}");
        let keyed = HttpItems { key_field: "id".to_owned(), ..list("", "") };
        let sealed = read(&keyed, "application/x-ndjson", "{\"id\":\"enc:v1:k:x\"}\n").await.unwrap_err();
        assert!(sealed.message.contains("sealed"), "{sealed:?}");
    }
}
