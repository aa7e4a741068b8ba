//! Decides what an operator reads when the server cannot be used at the start: what is wrong, and what to try.
//!
//! In: the place without its password, and the error of the first connection. Invariant: no password is shown. Not here: errors
//! of a service that runs (`open::store_error`), which are tried again.

use std::io;

use sqlx::error::DatabaseError;

use crate::StoreError;

/// The error for `user` at `place` (`host:port/database`); none where there is no more to say than the error says itself.
pub(super) fn at_start(place: &str, user: &str, error: &sqlx::Error) -> Option<StoreError> {
    let (server, database) = place.split_once('/').unwrap_or((place, ""));
    let cannot = |why: String| StoreError::CannotOpen { place: place.to_owned(), why };
    match error {
        sqlx::Error::Database(refused) => refusal(refused.as_ref(), server, database, user).map(cannot),
        sqlx::Error::Io(failed) => {
            unreached(failed, server).map(|why| StoreError::Unreachable(format!("{place}: {why}")))
        }
        sqlx::Error::PoolTimedOut => Some(StoreError::Unreachable(format!(
            "{place}: {server} does not answer within 5 s: does a firewall drop what is sent there, or does the server hang?"
        ))),
        sqlx::Error::Tls(failed) => Some(cannot(format!(
            "no TLS with the server: {failed}; ?sslmode=disable in the URL goes without, and &sslrootcert=FILE names whom to \
             trust"
        ))),
        _ => None,
    }
}

/// What the server says no to.
fn refusal(error: &dyn DatabaseError, server: &str, database: &str, user: &str) -> Option<String> {
    let said = error.message();
    Some(match error.code()?.as_ref() {
        "28P01" => format!(
            "the password of {user:?} is wrong: {said}; put the right one into the URL (characters such as @ and / as %40 and \
             %2F), or into PGPASSWORD"
        ),
        "28000" => format!(
            "the server does not let {user:?} in: {said}; make the role (createuser), or a line for it in pg_hba.conf"
        ),
        "3D000" => format!(
            "there is no database {database:?} on {server}: make it with createdb {database}, or name another in the URL"
        ),
        "42501" => format!(
            "{user:?} may not make what Tollgate needs: {said}; GRANT CREATE ON SCHEMA public TO {user} lets it"
        ),
        "53300" => format!(
            "the server has no connection left: {said}; raise its max_connections, or lower --store-connections"
        ),
        _ => return None,
    })
}

/// Why there is no connection.
fn unreached(error: &io::Error, server: &str) -> Option<String> {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    if text.contains("failed to lookup address") || text.contains("Name or service not known") {
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        return Some(format!("there is no host {host:?}; look at the URL, and at the name server"));
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Some(format!("nothing listens at {server}; start PostgreSQL, or mend host and port in the URL"))
        }
        io::ErrorKind::NotFound => Some(format!(
            "there is no socket of a server there: {text}; start PostgreSQL, or name a host in the URL"
        )),
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(format!("there is no way to {server}: {text}; look at the network and its firewalls"))
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Some(format!(
            "{server} hangs up: does something else than PostgreSQL listen there, or does it only take TLS?"
        )),
        _ => None,
    }
}
