//! Prints what the service warns of, each at the line of its field.

use std::collections::HashMap;
use std::io::Write as _;

use tollgate_files::Location;
use tollgate_proto::v1;

use crate::client::style::Tone;

/// The most warnings that are printed.
const SHOWN_MAX: usize = 100;

/// Prints them on standard error; a warning changes neither the output nor the exit status.
pub(super) fn print(answer: &v1::ApplyResourcesResponse, locations: &HashMap<String, Location>) {
    let mut stderr = anstream::stderr().lock();
    let word = Tone::Warning.paint("warning:");
    for line in lines(&answer.warnings, locations) {
        // Where nobody can read it, there is nobody to tell.
        let _unread = writeln!(stderr, "{word} {line}");
    }
}

/// One line for each.
fn lines(warnings: &[v1::ResourceWarning], locations: &HashMap<String, Location>) -> Vec<String> {
    let mut lines: Vec<String> =
        warnings.iter().take(SHOWN_MAX).map(|warning| line(warning, locations)).collect();
    if warnings.len() > SHOWN_MAX {
        lines.push(format!("… and {} more", warnings.len() - SHOWN_MAX));
    }
    lines
}

fn line(warned: &v1::ResourceWarning, locations: &HashMap<String, Location>) -> String {
    let v1::ResourceWarning { source, name, warning } = warned;
    let warning = warning.clone().unwrap_or_default();
    let id = name.rsplit('/').next().unwrap_or_default().to_owned();
    let (place, field, message) = match locations.get(source) {
        Some(location) => {
            let place = location.of_field(&warning.field).to_string();
            (place, location.spelled(&warning.field), location.spelled_text(&warning.message))
        }
        None => (source.clone(), warning.field, warning.message),
    };
    let parts = [place, id, field, message];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_warning_stands_at_the_line_of_its_field() {
        let text = "kind: Schedule\nid: nightly\nfinishBy: 10s\ntriggers: [{cron: '@daily'}]\n";
        let (mut entries, mut wrong) = (Vec::new(), Vec::new());
        tollgate_files::parse(&"a.yaml".into(), text, "default", &mut entries, &mut wrong);
        let location = entries[0].location.clone();
        let source = location.to_string();
        let warned = |field: &str, message: &str| v1::ResourceWarning {
            source: source.clone(),
            name: "namespaces/default/schedules/nightly".to_owned(),
            warning: Some(v1::Warning { kind: 3, field: field.to_owned(), message: message.to_owned() }),
        };
        let locations = [(source.clone(), location)].into();
        let given = [
            warned("schedule.finish_by", "200 events need 1m"),
            warned("schedule.time_zone", "write time_zone: UTC"),
            warned("", "no schedule uses it"),
        ];
        assert_eq!(
            lines(&given, &locations),
            [
                "a.yaml:3: nightly: finishBy: 200 events need 1m",
                "a.yaml:1: nightly: timeZone: write timeZone: UTC",
                "a.yaml:1: nightly: no schedule uses it",
            ]
        );
        let many = vec![given[0].clone(); 150];
        assert_eq!(lines(&many, &locations).last().unwrap(), "… and 50 more");
    }
}
