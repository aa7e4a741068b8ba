//! Where a list of items is fetched for each run of a schedule. Not here: when ([`super::Run`]), fetching.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::origin::origin;

/// How the items of a list are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ListFormat {
    /// A JSON value a line.
    Ndjson,
    /// One JSON array, or an object that has one.
    Json,
    /// A header row, and a row an item.
    Csv,
}

/// A list that is read by HTTP. Its `Debug` text does not say what the headers say.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpItems {
    /// `http://` or `https://`.
    pub url: String,
    /// Sent with each request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// As the answer's `Content-Type` says where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ListFormat>,
    /// The member of each item, or the column, that is its key; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_field: String,
    /// The member of each item, or the column, that says how many tokens its event takes; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub units_field: String,
    /// The member of the answer, one JSON object, that has the array of items; empty where the answer is the list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub items_field: String,
    /// The member of that object that says where the next page is; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next_field: String,
    /// The parameter of the URL that takes what `next_field` says; empty where that is a URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next_parameter: String,
    /// From the start of the request for a page to the end of its answer, in milliseconds.
    pub deadline_ms: i64,
}

impl fmt::Debug for HttpItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpItems")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// Where the items of each run come from, fetched ahead of its launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemsFrom {
    /// Where.
    pub http: HttpItems,
    /// How long before the launch time they are fetched, in seconds.
    pub fetch_ahead_s: i64,
    /// How long after the launch time it is given up, in seconds.
    pub give_up_after_s: i64,
}

impl ItemsFrom {
    /// How long before the launch time a list is fetched by default, in seconds: windows are opened so far ahead.
    pub const FETCH_AHEAD_S: i64 = 300;
    /// The longest of that.
    pub const FETCH_AHEAD_MAX_S: i64 = 3_600;
    /// How long after the launch time a fetch is given up by default, in seconds.
    pub const GIVE_UP_AFTER_S: i64 = 900;
    /// How long a page may take by default, in milliseconds.
    pub const DEADLINE_MS: i64 = 30_000;

    /// A list at this URL, with what is used by default.
    pub fn http(url: String) -> Self {
        let http = HttpItems {
            url,
            headers: BTreeMap::new(),
            format: None,
            key_field: String::new(),
            units_field: String::new(),
            items_field: String::new(),
            next_field: String::new(),
            next_parameter: String::new(),
            deadline_ms: Self::DEADLINE_MS,
        };
        Self { http, fetch_ahead_s: Self::FETCH_AHEAD_S, give_up_after_s: Self::GIVE_UP_AFTER_S }
    }

    /// Scheme, host and port.
    pub fn address(&self) -> &str {
        origin(&self.http.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_headers_say_is_not_shown() {
        let mut from = ItemsFrom::http("http://a/x".to_owned());
        from.http.headers = [("authorization".to_owned(), "Bearer abc".to_owned())].into();
        assert_eq!(from.address(), "http://a");
        let shown = format!("{from:?}");
        assert!(shown.contains("authorization") && !shown.contains("Bearer"), "{shown}");
    }
}
