//! Decides where one YAML document ends and the next begins: at lines that start with `---`, and after `...`.
//!
//! A line that starts so at column 1 cannot be part of any YAML scalar, so no parser is needed; and a document that
//! is wrong does not hide what is wrong with the next.

/// One document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document<'a> {
    /// Its text, with the `---` line if there is one.
    pub(super) text: &'a str,
    /// The line of the file at which `text` begins, from 1.
    pub(super) first_line: u64,
    /// The line of the file of its first content, from 1.
    pub(super) content_line: u64,
}

/// The documents that have content.
pub(super) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut content_line) = (0, 1, None);
    let (mut offset, mut line) = (0, 0);
    for with_end in text.split_inclusive('\n') {
        line += 1;
        let end = offset + with_end.len();
        let marker = marker(with_end);
        if marker == Some("---") && content_line.is_some() {
            documents.push(document(&text[start..offset], first_line, content_line));
            (start, first_line, content_line) = (offset, line, None);
        }
        if marker == Some("...") {
            documents.push(document(&text[start..offset], first_line, content_line));
            (start, first_line, content_line) = (end, line + 1, None);
        } else if content_line.is_none() && has_content(with_end, marker) {
            content_line = Some(line);
        }
        offset = end;
    }
    documents.push(document(&text[start..], first_line, content_line));
    documents.into_iter().flatten().collect()
}

fn document(text: &str, first_line: u64, content_line: Option<u64>) -> Option<Document<'_>> {
    content_line.map(|content_line| Document { text, first_line, content_line })
}

fn marker(line: &str) -> Option<&str> {
    let (start, rest) = line.split_at_checked(3)?;
    let alone = rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']);
    (alone && (start == "---" || start == "...")).then_some(start)
}

/// Whether there is more than blanks, a comment, a directive or a marker.
fn has_content(line: &str, marker: Option<&str>) -> bool {
    let rest = if marker.is_some() { &line[3..] } else { line };
    let rest = rest.trim();
    !rest.is_empty() && !rest.starts_with('#') && !line.starts_with('%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(u64, u64, &str)> {
        split(text)
            .iter()
            .map(|document| (document.first_line, document.content_line, document.text))
            .collect()
    }

    #[test]
    fn documents_know_their_lines() {
        let text = "# head\n---\n\na: 1\n--- # next\nb: |\n  --- text\n  ...\n---\n# nothing\n--- {c: 1}\n";
        let expected = [
            (1, 4, "# head\n---\n\na: 1\n"),
            (5, 6, "--- # next\nb: |\n  --- text\n  ...\n"),
            (9, 11, "---\n# nothing\n--- {c: 1}\n"),
        ];
        assert_eq!(lines(text), expected);
    }

    #[test]
    fn ends_and_line_ends_of_every_kind() {
        assert_eq!(lines("a: 1\r\n---\r\nb: 2"), [(1, 1, "a: 1\r\n"), (2, 3, "---\r\nb: 2")]);
        assert_eq!(lines("a: 1\n...\nb: 2\n"), [(1, 1, "a: 1\n"), (3, 3, "b: 2\n")]);
        assert_eq!(lines("---a: 1\n"), [(1, 1, "---a: 1\n")]);
        assert_eq!(lines("\u{feff}a: 1"), [(1, 1, "a: 1")]);
        assert_eq!(lines("# only\n---\n\n---\n"), []);
        assert_eq!(lines(""), []);
    }
}
