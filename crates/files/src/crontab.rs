//! Decides what somebody writes instead of the lines of a crontab.
//!
//! In: a document's text. Out: what is wrong with it, and its first lines as schedules. A crontab is a text whose lines are
//! five fields and a command (or a macro and a command), settings such as `CRON_TZ=…`, and comments.

use super::kubernetes::{INDENT, quoted};
use tollgate_core::nearest::plain;

/// The most lines that are written anew.
const LINES_MAX: usize = 2;
/// The most characters of a command that are repeated.
const COMMAND_CHARS_MAX: usize = 60;

/// One line that starts something.
struct Job<'t> {
    line: u64,
    expression: String,
    command: &'t str,
    zone: Option<&'t str>,
}

/// The first such line, counted from 0, and the answer; none where the text is no crontab.
pub(super) fn told(text: &str) -> Option<(u64, String)> {
    let (mut jobs, mut zone) = (Vec::new(), None);
    for (line, content) in (0..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') || content == "---" {
            continue;
        }
        if let Some((name, value)) = setting(content) {
            if name == "CRON_TZ" || name == "TZ" {
                zone = Some(value);
            }
            continue;
        }
        let (expression, command) = job(content)?;
        jobs.push(Job { line, expression, command, zone });
    }
    let first = jobs.first()?.line;
    let are = if jobs.len() == 1 {
        "line of a crontab".to_owned()
    } else {
        format!("crontab of {} lines", jobs.len())
    };
    let written: Vec<String> = jobs.iter().take(LINES_MAX).map(schedule).collect();
    let which = if jobs.len() > 1 { "its first lines are" } else { "it is" };
    let documents = written.join(&format!("{INDENT}---{INDENT}"));
    let told = format!(
        "this is a {are}; a schedule calls a target instead of running a command. Here {which}{INDENT}{documents}"
    );
    Some((first, told))
}

/// `CRON_TZ=Europe/Berlin`.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    is_name.then(|| (name, value.trim().trim_matches(['"', '\''])))
}

/// The expression and the command of a line.
fn job(line: &str) -> Option<(String, &str)> {
    if line.starts_with('@') {
        let (name, command) = line.split_once(char::is_whitespace)?;
        return Some((name.to_owned(), command.trim())).filter(|(_, command)| !command.is_empty());
    }
    let (mut fields, mut rest) = (Vec::new(), line);
    for _ in 0..5 {
        let (field, after) = rest.split_once(char::is_whitespace)?;
        fields.push(field);
        rest = after.trim_start();
    }
    let is_field = |field: &&str| {
        let begins = field.starts_with(|c: char| c == '*' || c.is_ascii_digit());
        let named = field.len() >= 3 && field.bytes().take(3).all(|byte| byte.is_ascii_alphabetic());
        let all = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"*,/-#".contains(&byte));
        (begins || named) && all
    };
    // Minute and hour are never words, so that no sentence of five words is taken for a crontab.
    let numbers = fields.iter().take(2).all(|field| !field.starts_with(|c: char| c.is_ascii_alphabetic()));
    (numbers && fields.iter().all(is_field) && !rest.is_empty()).then(|| (fields.join(" "), rest))
}

fn schedule(job: &Job<'_>) -> String {
    let id = id(job.command);
    let url = job
        .command
        .split_whitespace()
        .map(|word| word.trim_matches(['"', '\'']))
        .find(|word| word.starts_with("http://") || word.starts_with("https://"));
    let command: String = job.command.chars().take(COMMAND_CHARS_MAX).collect();
    let (url, note) = match url {
        Some(url) => (url.to_owned(), String::new()),
        None => (format!("http://127.0.0.1:8080/{id}"), format!("   # instead of: {command}")),
    };
    let mut lines = vec![
        "kind: Schedule".to_owned(),
        format!("id: {id}"),
        "triggers:".to_owned(),
        format!("  - cron: {}", quoted(&job.expression)),
    ];
    lines.extend(job.zone.map(|zone| format!("timeZone: {zone}")));
    lines.push("target:".to_owned());
    lines.push(format!("  http: {{url: {}}}{note}", serde_json::Value::from(url)));
    lines.join(INDENT)
}

/// An id after the program that a command runs.
fn id(command: &str) -> String {
    let program = command.split_whitespace().find(|word| !word.contains('=')).unwrap_or("job");
    let name = program.rsplit('/').next().unwrap_or_default();
    let name = name.split('.').next().unwrap_or_default();
    let id = plain(name);
    let id: String = id.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    if id.is_empty() { "job".to_owned() } else { id }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn lines_of_a_crontab_become_schedules() {
        let text = "# m h dom mon dow command\nCRON_TZ=Europe/Berlin\nMAILTO=\"\"\n\n*/5 * * * * /usr/bin/backup.sh --all\n\
                    0 3 * * mon-fri curl -s https://example.com/hook\n@daily x\n";
        let (line, told) = told(text).unwrap();
        assert_eq!(line, 4);
        let first = "kind: Schedule\n      id: backup\n      triggers:\n        - cron: \"*/5 * * * *\"\n      \
                     timeZone: Europe/Berlin\n      target:\n        \
                     http: {url: \"http://127.0.0.1:8080/backup\"}   # instead of: /usr/bin/backup.sh --all";
        assert!(told.starts_with("this is a crontab of 3 lines;"), "{told}");
        assert!(told.contains(first), "{told}");
        assert!(
            told.contains("http: {url: \"https://example.com/hook\"}") && told.contains("id: curl"),
            "{told}"
        );
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "kind: Schedule\nid: a\n",
            "",
            "# only\n",
            "A=1\n",
            "0 3 * * *\n",
            "these are six words of text\n",
            "- 1\n",
            "0 3 * * * run\nkind: Schedule\n",
        ] {
            assert!(told(text).is_none(), "{text}");
        }
    }
}
