//! Decides what a caller reads when the service says no, or nothing.
//!
//! In: what was tried, and a gRPC status. Out: one paragraph: what was tried, what the service said (field by field
//! where it names fields), and what may help.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::unreached::{causes, hangs_up};

/// A call that was answered with an error.
#[derive(Debug)]
pub(crate) struct CallFailure(String);

impl CallFailure {
    /// The same, with fields of the request under the names of the flags that gave them.
    pub(crate) fn with_flags(self, flags: &[(&str, &str)]) -> Self {
        let named = |text: String, (field, flag): &(&str, &str)| {
            text.replace(&format!("\n  {field}: "), &format!("\n  {flag}: "))
        };
        Self(flags.iter().fold(self.0, named))
    }

    /// The failure of `tried` at `server`.
    pub(crate) fn new(tried: String, server: &str, status: &Status) -> Self {
        let mut text = format!("cannot {tried}: ");
        let fields = status.get_details_bad_request().map(|details| details.field_violations);
        match fields.filter(|fields| !fields.is_empty()) {
            Some(fields) => {
                text.push_str("the service refused it:");
                for field in fields {
                    text.push_str(&format!("\n  {}: {}", field.field, field.description));
                }
                if let Some(count) = unlisted(status) {
                    text.push_str(&format!("\n  … and {count} more"));
                }
            }
            None if is_another_language(status) => text.push_str("what answers there does not speak gRPC"),
            None if status.message().is_empty() => text.push_str(&status.code().to_string()),
            None => text.push_str(&once(&tried, status.message())),
        }
        if let Some(hint) = hint(status, &tried, server) {
            text.push_str(&format!("\nhint: {hint}"));
        }
        Self(text)
    }
}

/// What the service says, without the name that has been said already.
fn once(tried: &str, said: &str) -> String {
    let name = tried.rsplit(' ').next().filter(|name| name.contains('/'));
    match name.and_then(|name| said.strip_prefix(name)).filter(|rest| rest.starts_with(' ')) {
        Some(rest) => format!("it{rest}"),
        None => said.to_owned(),
    }
}

/// How many refused fields a status has no room for: its message ends with "; and 9979 more".
pub(super) fn unlisted(status: &Status) -> Option<u64> {
    status.message().strip_suffix(" more")?.rsplit_once("; and ")?.1.parse().ok()
}

fn hint(status: &Status, tried: &str, server: &str) -> Option<String> {
    if is_another_language(status) {
        let tls = match server.strip_prefix("http://") {
            Some(place) => format!(", or does it want TLS (https://{place})"),
            None => String::new(),
        };
        return Some(format!("is it another program{tls}? --server or TOLLGATE_SERVER names another place"));
    }
    let is_plain = server.starts_with("http://");
    Some(match status.code() {
        Code::Unavailable if is_plain && hangs_up(None, &chain(status)) => format!(
            "is `tollgate serve` running, and able to reach its store, at {server}? If it speaks TLS, write https://"
        ),
        Code::Unavailable => {
            format!("is `tollgate serve` running, and able to reach its store, at {server}?")
        }
        Code::DeadlineExceeded | Code::Cancelled => {
            format!(
                "{server} did not answer in time; allow more with --timeout. What was asked may still happen."
            )
        }
        Code::Unimplemented => {
            format!("the process at {server} does not play that role; ask one that does with --server")
        }
        Code::Unauthenticated => {
            "--api-key or TOLLGATE_API_KEY shows a key; where the store is, `tollgate key create NAME \
             --scopes read --namespace default` makes one, and `tollgate key list` shows which there are"
                .to_owned()
        }
        Code::PermissionDenied => {
            "`tollgate key list`, where the store is, shows what each key may do".to_owned()
        }
        Code::NotFound if tried.split(' ').any(|word| word == "event") => {
            "`tollgate get events RUN` shows those of a run, and `tollgate get runs` the runs; -n chooses the namespace".to_owned()
        }
        Code::NotFound => {
            let kinds = listed(tried);
            format!("`tollgate get {kinds}` shows what there is; -n chooses the namespace")
        }
        Code::Aborted => "it has changed since it was read: read it again, and repeat the change".to_owned(),
        _ => return None,
    })
}

/// Whether there is no answer of a service, because something else listens, or one that wants TLS.
fn is_another_language(status: &Status) -> bool {
    let said = status.message();
    let words =
        ["grpc-status header missing", "h2 protocol error", "http2 error", "invalid compression flag"];
    words.iter().any(|word| said.contains(word))
        || said == "transport error" && status.code() == Code::Unknown
}

/// What a status says, and what caused it.
fn chain(status: &Status) -> String {
    let causes = status.source().map(causes).unwrap_or_default();
    causes.iter().fold(status.message().to_owned(), |text, cause| format!("{text}: {cause}"))
}

/// What there are several of, of which one was asked for.
fn listed(tried: &str) -> &'static str {
    let kinds = [
        ("policy", "policies"),
        ("policies", "policies"),
        ("calendar", "calendars"),
        ("alert", "alerts"),
        ("run", "runs"),
    ];
    let mut words = tried.split(|c: char| !c.is_alphanumeric());
    let kind = words.find_map(|word| kinds.iter().find(|(one, _)| *one == word));
    kind.map_or("schedules", |(_, many)| many)
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for CallFailure {}

#[cfg(test)]
mod tests {
    use tollgate_proto::FieldError;

    use super::*;

    #[test]
    fn refused_fields_are_listed() {
        let status = tollgate_proto::field::invalid_argument(&[
            FieldError::new("schedule.events", 0, "1 to 10,000,000"),
            FieldError::new("schedule.target", "", "http or sqs"),
        ]);
        let text = CallFailure::new("make schedule x".to_owned(), "http://a:1", &status).to_string();
        let expected = "cannot make schedule x: the service refused it:\n  \
                        schedule.events: \"0\" is not allowed, expected 1 to 10,000,000\n  \
                        schedule.target: expected http or sqs";
        assert_eq!(text, expected);
    }

    #[test]
    fn fields_without_room_are_counted() {
        let errors: Vec<FieldError> =
            (0..150).map(|n| FieldError::new(format!("f{n}"), 0, "another")).collect();
        let status = tollgate_proto::field::invalid_argument(&errors);
        let text = CallFailure::new("x".to_owned(), "http://a:1", &status).to_string();
        let listed = text.lines().filter(|line| line.starts_with("  f")).count();
        assert!(text.ends_with(&format!("\n  … and {} more", 150 - listed)), "{text}");
        assert_eq!(unlisted(&Status::internal("some; and no more")), None);
    }

    #[test]
    fn hints_follow_the_code() {
        let text = |status: Status| CallFailure::new("read".to_owned(), "http://a:1", &status).to_string();
        let unavailable = text(Status::unavailable("no store"));
        assert!(unavailable.starts_with("cannot read: no store\nhint: is `tollgate serve` running"));
        assert!(unavailable.contains("http://a:1"));
        assert_eq!(text(Status::internal("broken")), "cannot read: broken");
        let status = Status::not_found("a/b does not exist");
        let missing = CallFailure::new("read policy a/b".to_owned(), "http://a:1", &status).to_string();
        assert!(missing.starts_with("cannot read policy a/b: it does not exist\nhint: "), "{missing}");
        let error = FieldError::new("end_time", "x", "a moment");
        let status = tollgate_proto::field::invalid_argument(&[error]);
        let refused = CallFailure::new("backfill".to_owned(), "http://a:1", &status);
        let refused = refused.with_flags(&[("end_time", "--to")]).to_string();
        assert!(refused.contains("\n  --to: \"x\" is not allowed"), "{refused}");
    }
}
