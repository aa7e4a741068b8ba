//! Decides what one caller reaches: its namespace's names, and event ids with or without their tokens.

use std::sync::Arc;

use tollgate_core::model::{EventId, EventRef};
use tollgate_proto::convert::names;
use tonic::Status;

use crate::named::Named;
use crate::scope::{Scope, Scopes};

/// Who a caller has proved to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// For the audit log.
    pub name: String,
    /// The only namespace that it reaches; none for all.
    pub namespace: Option<String>,
    /// What it may do.
    pub scopes: Scopes,
    /// By what, for people: `key 0f…`.
    pub credential: String,
}

/// What a request may reach. Among its extensions; where there is none, nobody is asked for a key at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nobody is asked who it is.
    Open,
    /// Has shown nothing: only what the token in an event authorises.
    Nobody,
    /// This one.
    Holder(Arc<Principal>),
}

impl Access {
    /// Of a request.
    pub fn of(extensions: &http::Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or(Self::Open)
    }

    /// The only namespace that it reaches; none for all.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Holder(principal) => principal.namespace.as_deref(),
            Self::Open | Self::Nobody => None,
        }
    }

    /// Whether every name in a request lies in the caller's namespace. Asked before anything is looked up, so that the
    /// answer is the same whether a thing exists or not. Texts that are no names are for the service to refuse.
    ///
    /// # Errors
    /// PERMISSION_DENIED, or UNAUTHENTICATED for one who has shown nothing.
    pub fn admit(&self, request: &impl Named) -> Result<(), Status> {
        let principal = match self {
            Self::Open => return Ok(()),
            Self::Nobody => return Err(crate::door::no_key()),
            Self::Holder(principal) => principal,
        };
        let Some(own) = &principal.namespace else { return Ok(()) };
        let mut foreign = false;
        request.named(&mut |name| foreign |= namespace_of(name).is_some_and(|given| given != own));
        if foreign { Err(confined(principal, own)) } else { Ok(()) }
    }

    /// The name by which the service looks an event up, for one who reads: a holder of a key may leave the token out, and
    /// a bare id means one of the key's own namespace.
    pub fn event_to_read(&self, name: String, seal: impl FnOnce(EventRef) -> EventId) -> String {
        match self {
            Self::Open | Self::Nobody => name,
            Self::Holder(principal) => completed(principal, name, seal),
        }
    }

    /// As [`Access::event_to_read`], for one who releases: the token may be left out with the scope for that. Where the
    /// id has its token, the token alone authorises, whatever key came with it.
    pub fn event_to_release(&self, name: String, seal: impl FnOnce(EventRef) -> EventId) -> String {
        match self {
            Self::Holder(principal) if principal.scopes.allow(Scope::TokenRelease) => {
                if EventId::read_unsealed(bare(&name)).is_some() {
                    completed(principal, name, seal)
                } else {
                    name
                }
            }
            _ => name,
        }
    }

    /// An event's id or name as this caller may see it: with its token only where it may release.
    pub fn shown_event(&self, name: &mut String) {
        let hides = match self {
            Self::Open => false,
            Self::Nobody => true,
            Self::Holder(principal) => !principal.scopes.allow(Scope::TokenRelease),
        };
        let length = name.len() - bare(name).len();
        if hides && let Some(unsealed) = EventId::without_seal(bare(name)) {
            let end = length + unsealed.len();
            name.truncate(end);
        }
    }
}

/// The id in a name, or the bare id itself.
fn bare(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, id)| id)
}

/// The namespace that a name begins with.
fn namespace_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("namespaces/")?;
    Some(rest.split_once('/').map_or(rest, |(namespace, _)| namespace))
}

fn confined(principal: &Principal, own: &str) -> Status {
    Status::permission_denied(format!(
        "{} ({}) reaches the namespace {own} only",
        principal.name, principal.credential
    ))
}

fn completed(principal: &Principal, name: String, seal: impl FnOnce(EventRef) -> EventId) -> String {
    let id = match EventId::read_unsealed(bare(&name)) {
        Some(event) => seal(event).to_string(),
        None => bare(&name).to_owned(),
    };
    match (name.rsplit_once('/'), &principal.namespace) {
        (Some((place, _)), _) => format!("{place}/{id}"),
        (None, Some(own)) => names::of_event(own, &id),
        (None, None) => id,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::{EventKeyring, RunId};
    use tollgate_proto::v1;
    use tonic::Code;
    use uuid::Uuid;

    use super::*;

    fn holder(namespace: Option<&str>, scopes: &[Scope]) -> Access {
        let scopes = scopes.iter().copied().collect();
        let namespace = namespace.map(str::to_owned);
        Access::Holder(Arc::new(Principal {
            name: "ci".to_owned(),
            namespace,
            scopes,
            credential: "key 1".to_owned(),
        }))
    }

    fn get(name: &str) -> v1::GetScheduleRequest {
        v1::GetScheduleRequest { name: name.to_owned() }
    }

    #[test]
    fn a_foreign_namespace_is_refused_and_nothing_else() {
        let team = holder(Some("team"), &[Scope::Read]);
        assert!(team.admit(&get("namespaces/team/schedules/a")).is_ok());
        assert!(team.admit(&get("namespaces/team")).is_ok());
        assert!(team.admit(&get("nonsense")).is_ok(), "the service refuses it");
        for foreign in [
            "namespaces/other/schedules/a",
            "namespaces/other",
            "namespaces/teams/schedules/a",
            "namespaces//x",
        ] {
            let status =
                team.admit(&get(foreign)).err().map(|status| (status.code(), status.message().to_owned()));
            let expected = (Code::PermissionDenied, "ci (key 1) reaches the namespace team only".to_owned());
            assert_eq!(status, Some(expected), "{foreign}");
        }
        assert!(holder(None, &[]).admit(&get("namespaces/other/schedules/a")).is_ok());
        assert!(Access::Open.admit(&get("namespaces/other/schedules/a")).is_ok());
        let nobody = Access::Nobody.admit(&get("namespaces/other/schedules/a"));
        assert_eq!(nobody.err().map(|status| status.code()), Some(Code::Unauthenticated));
    }

    #[test]
    fn tokens_are_seen_and_left_out_by_those_who_may() {
        let keys = EventKeyring::new(&[7; 32]);
        let event = EventRef { shard: 31, run: RunId::derive(Uuid::nil(), 5), index: 17 };
        let sealed = keys.id(event).to_string();
        let unsealed = format!("1f-{}-17", event.run);
        let seal = |event| keys.id(event);
        let shown = |access: &Access, name: &str| {
            let mut name = name.to_owned();
            access.shown_event(&mut name);
            name
        };
        let reader = holder(Some("team"), &[Scope::Read]);
        let releaser = holder(Some("team"), &[Scope::Read, Scope::TokenRelease]);
        let full = format!("namespaces/team/events/{sealed}");
        assert_eq!(shown(&reader, &sealed), unsealed);
        assert_eq!(shown(&reader, &full), format!("namespaces/team/events/{unsealed}"));
        assert_eq!(shown(&releaser, &full), full);
        assert_eq!(shown(&Access::Open, &full), full);
        assert_eq!(shown(&Access::Nobody, &sealed), unsealed);
        assert_eq!(reader.event_to_read(unsealed.clone(), seal), full);
        assert_eq!(reader.event_to_read(sealed.clone(), seal), full, "a bare id is the own namespace's");
        assert_eq!(holder(None, &[]).event_to_read(unsealed.clone(), seal), sealed);
        assert_eq!(
            Access::Open.event_to_read(unsealed.clone(), seal),
            unsealed,
            "without keys an id has its token"
        );
        assert_eq!(releaser.event_to_release(unsealed.clone(), seal), full);
        assert_eq!(releaser.event_to_release(sealed.clone(), seal), sealed, "the token alone authorises");
        for other in [reader, Access::Nobody, Access::Open] {
            assert_eq!(other.event_to_release(unsealed.clone(), seal), unsealed, "{other:?}");
        }
    }
}
