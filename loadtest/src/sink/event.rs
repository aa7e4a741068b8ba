//! Finds what the sink notes in an event, without parsing it: the sink must cost less than what is measured.

use chrono::DateTime;

/// What is noted of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen<'a> {
    pub(crate) id: &'a str,
    pub(crate) launch_us: i64,
    pub(crate) attempt: u16,
}

/// The first member of a CloudEvent.
const BEGIN: &[u8] = b"\"specversion\":";

impl<'a> Seen<'a> {
    /// Looks for `id`, `time` and `attempt`, in this order, in a CloudEvent.
    pub(crate) fn find(body: &'a [u8]) -> Option<Self> {
        let rest = after(body, b"\"id\":\"")?;
        let id = std::str::from_utf8(until_quote(rest)?).ok()?;
        let rest = after(rest, b"\"time\":\"")?;
        let launch_us = microseconds(until_quote(rest)?)?;
        let rest = after(rest, b"\"attempt\":")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        let attempt =
            digits.fold(0_u16, |n, digit| n.saturating_mul(10).saturating_add(u16::from(digit - b'0')));
        Some(Self { id, launch_us, attempt })
    }

    /// The same of each CloudEvent of an array.
    pub(crate) fn find_all(body: &'a [u8]) -> Vec<Self> {
        let begins = std::iter::successors(after(body, BEGIN), |rest| after(rest, BEGIN));
        begins.filter_map(Self::find).collect()
    }

    /// FNV-1a, 64 bits (Fowler, Noll, Vo).
    pub(crate) fn hash(&self) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        rest = &rest[rest.iter().position(|byte| *byte == b'"')?..];
        if let Some(found) = rest.strip_prefix(key) {
            return Some(found);
        }
        rest = &rest[1..];
    }
}

fn until_quote(text: &[u8]) -> Option<&[u8]> {
    text.iter().position(|byte| *byte == b'"').map(|end| &text[..end])
}

fn microseconds(time: &[u8]) -> Option<i64> {
    let time = std::str::from_utf8(time).ok()?;
    DateTime::parse_from_rfc3339(time).ok().map(|time| time.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read() {
        let body =
            br#"{"specversion":"1.0","id":"0a-7","subject":"x/0a-7","time":"2026-05-28T20:26:40.000001Z",
            "attempt":12,"data":{"id":"no"}}"#;
        let seen = Seen { id: "0a-7", launch_us: 1_780_000_000_000_001, attempt: 12 };
        assert_eq!(Seen::find(body), Some(seen));
        assert_eq!(Seen::find(br#"{"id":"a","time":"soon","attempt":1}"#), None);
        assert_eq!(Seen::find(b"{}"), None);
        let body = String::from_utf8_lossy(body);
        let all = format!("[{body},{},{body}]", body.replace("0a-7", "0a-8"));
        let ids: Vec<&str> = Seen::find_all(all.as_bytes()).iter().map(|seen| seen.id).collect();
        assert_eq!(ids, ["0a-7", "0a-8", "0a-7"]);
        assert!(Seen::find_all(b"[]").is_empty());
    }
}
