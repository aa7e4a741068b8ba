//! Decides what somebody reads whose command found no service: what is wrong, in plain words, and what to try.
//!
//! In: the server's URL, and the error of the connection. Out: one sentence and a hint. Not here: what a service answers
//! (`failure`).

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;

use http::Uri;

/// A service that is not there, or does not speak as it is spoken to.
#[derive(Debug)]
pub(crate) struct Unreachable {
    server: String,
    cause: String,
    hint: String,
}

/// Where a service is named.
const ELSEWHERE: &str = "--server or TOLLGATE_SERVER names another place";

impl Unreachable {
    /// No connection to `server`, because of `error`.
    pub(crate) fn new(server: &str, error: &(dyn Error + 'static)) -> Self {
        let causes = causes(error);
        let kind = causes
            .iter()
            .rev()
            .find_map(|cause| cause.downcast_ref::<std::io::Error>())
            .map(std::io::Error::kind);
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let deepest = texts.last().cloned().unwrap_or_default();
        let (cause, hint) = told(server, kind, &texts.join(": "), &deepest);
        Self { server: server.to_owned(), cause, hint }
    }
}

/// An error and what caused it, outermost first.
pub(super) fn causes<'e>(error: &'e (dyn Error + 'static)) -> Vec<&'e (dyn Error + 'static)> {
    let (mut causes, mut next) = (Vec::new(), Some(error));
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    causes
}

/// The server's URL with another scheme.
fn with_scheme(server: &str, scheme: &str) -> String {
    server.split_once("://").map_or_else(|| server.to_owned(), |(_, rest)| format!("{scheme}://{rest}"))
}

/// What is wrong, and what to try.
fn told(server: &str, kind: Option<ErrorKind>, all: &str, deepest: &str) -> (String, String) {
    let uri: Option<Uri> = server.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or(server).to_owned();
    let has = |part: &str| all.contains(part);
    let is_tls = server.starts_with("https://");
    if has("InvalidContentType") || has("record overflow") {
        let plain = with_scheme(server, "http");
        return (
            "it does not speak TLS".to_owned(),
            format!(
                "write {plain}, if nobody can listen in between; or give `tollgate serve` --tls-cert and --tls-key"
            ),
        );
    }
    if has("UnknownIssuer") || has("CaUsedAsEndEntity") {
        let hint =
            "--ca FILE or TOLLGATE_CA names the certificate of the authority that issued it".to_owned();
        return ("its certificate is issued by none whom this machine trusts".to_owned(), hint);
    }
    if has("NotValidForName") || has("not valid for name") {
        let hint = format!("write the name that the certificate has; or have one issued for {host}");
        return (format!("its certificate is for another name than {host}: {deepest}"), hint);
    }
    if has("Expired") || has("certificate expired") {
        return (
            "its certificate has expired".to_owned(),
            "have a new one issued; look at both clocks, too".to_owned(),
        );
    }
    if has("CertificateRequired") || has("certificate required") {
        let hint = "--cert FILE and --key FILE show one that the service's authority has issued".to_owned();
        return ("it asks for a certificate of the caller".to_owned(), hint);
    }
    if has("failed to lookup address") || has("Name or service not known") || has("dns error") {
        return (format!("there is no host {host:?}"), format!("look at how it is written; {ELSEWHERE}"));
    }
    match kind {
        Some(ErrorKind::ConnectionRefused) => {
            ("nothing listens there".to_owned(), format!("`tollgate serve` starts a service; {ELSEWHERE}"))
        }
        Some(ErrorKind::TimedOut) => (
            "nothing answers there".to_owned(),
            format!("does a firewall drop what is sent there, or is the machine off? {ELSEWHERE}"),
        ),
        Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {
            ("there is no way to that machine".to_owned(), format!("look at the network; {ELSEWHERE}"))
        }
        _ if has("deadline has elapsed") || has("timed out") => (
            "nothing answers there".to_owned(),
            format!("does a firewall drop what is sent there, or is the machine off? {ELSEWHERE}"),
        ),
        _ if hangs_up(kind, all) && !is_tls => {
            let secure = with_scheme(server, "https");
            (format!("it hangs up: {deepest}"), format!("does it speak TLS? Write {secure}; {ELSEWHERE}"))
        }
        _ => (deepest.to_owned(), format!("is `tollgate serve` running there? {ELSEWHERE}")),
    }
}

/// Whether the other end closed the connection, as one does that expects TLS.
pub(super) fn hangs_up(kind: Option<ErrorKind>, all: &str) -> bool {
    let closed = [
        ErrorKind::ConnectionReset,
        ErrorKind::BrokenPipe,
        ErrorKind::UnexpectedEof,
        ErrorKind::ConnectionAborted,
    ];
    let words = [
        "broken pipe",
        "connection reset",
        "connection closed",
        "frame with invalid size",
        "PROTOCOL_ERROR",
        "invalid frame",
    ];
    kind.is_some_and(|kind| closed.contains(&kind)) || words.iter().any(|word| all.contains(word))
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, cause, hint } = self;
        write!(f, "cannot reach {server}: {cause}\nhint: {hint}")
    }
}

impl Error for Unreachable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_words_and_its_hint() {
        for (server, kind, text, cause, hint) in [
            (
                "http://a:1",
                Some(ErrorKind::ConnectionRefused),
                "refused",
                "nothing listens",
                "`tollgate serve`",
            ),
            (
                "https://a:1",
                Some(ErrorKind::InvalidData),
                "received corrupt message of type InvalidContentType",
                "does not speak TLS",
                "write http://a:1",
            ),
            (
                "https://a:1",
                None,
                "invalid peer certificate: UnknownIssuer",
                "none whom this machine trusts",
                "--ca",
            ),
            (
                "https://a:1",
                None,
                "invalid peer certificate: certificate not valid for name \"a\"",
                "another name than a",
                "issued for a",
            ),
            ("https://a:1", None, "invalid peer certificate: Expired", "has expired", "new one"),
            (
                "https://a:1",
                None,
                "received fatal alert: CertificateRequired",
                "certificate of the caller",
                "--cert",
            ),
            (
                "http://nowhere:1",
                None,
                "dns error: failed to lookup address information",
                "no host \"nowhere\"",
                "--server",
            ),
            ("http://a:1", Some(ErrorKind::TimedOut), "x", "nothing answers", "firewall"),
            ("http://a:1", Some(ErrorKind::ConnectionReset), "connection reset", "hangs up", "https://a:1"),
            ("http://a:1", None, "something new", "something new", "`tollgate serve`"),
        ] {
            let (said, advice) = told(server, kind, text, text);
            assert!(said.contains(cause) && advice.contains(hint), "{text}: {said}; {advice}");
        }
    }
}
