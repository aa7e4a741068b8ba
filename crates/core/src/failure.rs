//! Decides which failures are alike: those of which the same was said, but for what differs from event to event.
//!
//! In: what a consumer or a target said. Out: the reason, with `…` for numbers, ports, hexadecimal texts, UUIDs and ids of
//! events. Invariants: the reason of a reason is itself; it has at most [`REASON_CHARS_MAX`] characters and none that is
//! not to be shown. Not here: who asks.

/// The most characters of a reason.
pub const REASON_CHARS_MAX: usize = 200;
/// The reason where nothing was said.
pub const NOTHING_SAID: &str = "nothing was said";

/// A word that is so long, and has so many digits, is an id.
const ID_CHARS_MIN: usize = 16;
const ID_DIGITS_MIN: usize = 4;
/// A word of hexadecimal digits that is so long is an id.
const HEX_CHARS_MIN: usize = 8;
const ANY: char = '…';

/// What failures that are alike have in common.
pub fn reason(message: &str) -> String {
    let mut reason = once(message);
    // What is left of a word may look like an id. Each round has fewer digits than the one before.
    loop {
        let next = once(&reason);
        if next == reason {
            break;
        }
        reason = next;
    }
    if reason.is_empty() { NOTHING_SAID.to_owned() } else { reason }
}

fn once(message: &str) -> String {
    let mut made = Made::default();
    let mut word = String::new();
    for character in message.chars() {
        // A word is not longer than what is shown.
        if is_of_word(character) && word.len() < REASON_CHARS_MAX {
            word.push(character);
            continue;
        }
        made.word(&word);
        word.clear();
        if is_of_word(character) {
            word.push(character);
        } else {
            made.put(character);
        }
        if made.chars > REASON_CHARS_MAX {
            break;
        }
    }
    made.word(&word);
    let text: String = made.text.chars().take(REASON_CHARS_MAX).collect();
    text.trim_end().to_owned()
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-' || character == '_'
}

#[derive(Default)]
struct Made {
    text: String,
    chars: usize,
    /// The word before says that the number after it is a status.
    is_status_next: bool,
}

impl Made {
    fn put(&mut self, character: char) {
        let character = if character.is_whitespace() || character.is_control() { ' ' } else { character };
        let again = matches!(character, ' ' | ANY) && self.text.ends_with(character);
        let leads = character == ' ' && self.text.is_empty();
        if !again && !leads {
            self.text.push(character);
            self.chars += 1;
        }
    }

    fn word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        let is_status = self.is_status_next && is_status(word);
        self.is_status_next = ["http", "status", "code"].iter().any(|known| word.eq_ignore_ascii_case(known));
        if is_status {
            word.chars().for_each(|character| self.put(character));
        } else if is_id(word) {
            self.put(ANY);
        } else {
            self.without_numbers(word);
        }
    }

    /// One digit after a letter is part of a name, as in `s3`.
    fn without_numbers(&mut self, word: &str) {
        let mut rest = word;
        let mut after_letter = false;
        while let Some(first) = rest.chars().next() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                self.put(first);
                after_letter = first.is_ascii_alphabetic();
                rest = &rest[1..];
                continue;
            }
            self.put(if digits == 1 && after_letter { first } else { ANY });
            after_letter = false;
            rest = &rest[digits..];
        }
    }
}

/// `HTTP 503` says what is wrong; other numbers say of what.
fn is_status(word: &str) -> bool {
    word.len() == 3
        && word.bytes().all(|byte| byte.is_ascii_digit())
        && matches!(word.as_bytes()[0], b'1'..=b'5')
}

fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let marked = word.strip_prefix("0x").is_some_and(|rest| !rest.is_empty() && is_hex(rest));
    marked
        || (word.len() >= ID_CHARS_MIN && digits >= ID_DIGITS_MIN)
        || (word.len() >= HEX_CHARS_MIN && digits > 0 && is_hex(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_from_event_to_event_is_left_out() {
        for (message, expected) in [
            ("", "nothing was said"),
            (" \n\t", "nothing was said"),
            ("HTTP 500: row 10017 of database is read-only", "HTTP 500: row … of database is read-only"),
            ("HTTP 503: busy", "HTTP 503: busy"),
            ("HTTP 5031", "HTTP …"),
            ("503 rows", "… rows"),
            ("event 0a-0123456789abcdef0123 refused", "event … refused"),
            ("user 6f9619ff-8b86-d011-b42d-00cf4fc964ff is unknown", "user … is unknown"),
            (
                "connect 10.0.0.12:8080: Connection refused (os error 111)",
                "connect ….….….…:…: Connection refused (os error …)",
            ),
            ("at 0xdeadbeef", "at …"),
            ("commit 1a2b3c4d is deadbeef", "commit … is deadbeef"),
            ("s3 and worker12", "s3 and worker…"),
            ("two\n  lines\u{7}", "two lines"),
            ("Größe 12 kB", "Größe … kB"),
        ] {
            assert_eq!(reason(message), expected, "{message:?}");
        }
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(reason(&"é".repeat(300)).chars().count(), REASON_CHARS_MAX);
        assert_eq!(reason(&"word ".repeat(300)).len(), REASON_CHARS_MAX - 1);
        assert_eq!(reason(&"a1".repeat(5_000)), "…");
    }

    proptest! {
        #[test]
        fn the_reason_of_a_reason_is_itself(message in ".{0,600}") {
            let reason = reason(&message);
            prop_assert!(reason.chars().count() <= REASON_CHARS_MAX);
            prop_assert!(!reason.is_empty() && !reason.chars().any(char::is_control));
            prop_assert_eq!(&super::reason(&reason), &reason);
        }

        #[test]
        fn so_it_is_with_words_that_look_like_ids(message in "([a-fx0-9_-]{0,20}[ :…/]?){0,30}") {
            let reason = reason(&message);
            prop_assert!(reason.chars().count() <= REASON_CHARS_MAX);
            prop_assert_eq!(&super::reason(&reason), &reason);
        }
    }
}
