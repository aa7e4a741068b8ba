//! What a consumer's answer means for the event.
//!
//! In: status, headers and the start of the body of a complete answer. Out: a [`Sent`]. 2xx is acceptance. Statuses by which
//! a gateway says that it got no answer are unclear: the server behind it may be at work. All others are proof that
//! the consumer answered and did not take the event; redirects among them, as they are not followed.

use ::http::header::{LOCATION, RETRY_AFTER};
use ::http::{HeaderMap, StatusCode};
use chrono::DateTime;
use tollgate_core::model::Sent;

/// Characters of an answer's body that go into the message.
const EXCERPT_CHARS: usize = 200;

/// An answer.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body, or the start of it.
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    /// The verdict at this time of the wall clock, with a pause of at most `pause_max_ms`.
    pub(crate) fn verdict(&self, pause_max_ms: i64, now_us: i64) -> Sent {
        if self.status.is_success() {
            return Sent::Accepted;
        }
        let (message, retry_after_ms) = (self.message(), retry_after_ms(&self.headers, pause_max_ms, now_us));
        if is_gateway_doubt(self.status.as_u16()) {
            return Sent::Unclear { message, retry_after_ms };
        }
        Sent::Refused { message, retry_after_ms, permanent: false }
    }

    fn message(&self) -> String {
        let status = self.status.as_u16();
        if self.status.is_redirection() {
            let location =
                self.headers.get(LOCATION).map_or("nowhere".into(), |value| excerpt(value.as_bytes()));
            return format!("HTTP {status}: redirects are not followed (to {location})");
        }
        match excerpt(&self.body) {
            text if text.is_empty() => format!("HTTP {status}"),
            text => format!("HTTP {status}: {text}"),
        }
    }
}

/// Whether a status says that the server behind a gateway may have the request: 408, 502 and 504, and Cloudflare's
/// 520 (no proper answer), 522 (no answer, perhaps after the connection was made) and 524 (no answer in time).
pub(crate) fn is_gateway_doubt(status: u16) -> bool {
    matches!(status, 408 | 502 | 504 | 520 | 522 | 524)
}

/// The pause that an answer asks for: `Retry-After` in seconds or as an HTTP date, at most `max_ms`.
pub(crate) fn retry_after_ms(headers: &HeaderMap, max_ms: i64, now_us: i64) -> Option<i64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wish_ms = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit are more than may be asked for, too.
        text.parse::<i64>().unwrap_or(i64::MAX).saturating_mul(1000)
    } else {
        DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros().saturating_sub(now_us) / 1_000
    };
    Some(wish_ms.clamp(0, max_ms.max(0)))
}

fn excerpt(body: &[u8]) -> String {
    // Four bytes are the most that a character can have.
    let start = &body[..body.len().min(EXCERPT_CHARS * 4)];
    let text = String::from_utf8_lossy(start);
    text.trim().chars().take(EXCERPT_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn wish(text: &str) -> Option<i64> {
        let now = DateTime::parse_from_rfc3339("2026-11-21T04:00:00Z").unwrap();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
        retry_after_ms(&headers, 24 * 3_600_000, now.timestamp_micros())
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_at_most_a_day() {
        assert_eq!(wish("7"), Some(7_000));
        assert_eq!(wish(" 0 "), Some(0));
        assert_eq!(wish("86401"), Some(86_400_000));
        assert_eq!(wish("99999999999999999999999"), Some(86_400_000));
        assert_eq!(wish("Sat, 21 Nov 2026 04:00:30 GMT"), Some(30_000));
        assert_eq!(wish("Sat, 21 Nov 2026 03:00:00 GMT"), Some(0));
        for text in ["", "soon", "-1", "1.5"] {
            assert_eq!(wish(text), None, "{text}");
        }
    }

    #[test]
    fn messages_hold_the_start_of_the_body_without_control_characters() {
        let answer = |body: &[u8]| HttpAnswer {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            headers: HeaderMap::new(),
            body: body.to_vec(),
        };
        assert_eq!(answer(b"").message(), "HTTP 500");
        assert_eq!(answer(b"a\r\n\x1b[31mb\n").message(), "HTTP 500: a   [31mb");
        assert_eq!(answer("é".repeat(300).as_bytes()).message(), format!("HTTP 500: {}", "é".repeat(200)));
    }
}
