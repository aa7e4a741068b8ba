//! Decides what one caller reaches: its namespace's names, and event ids with or without their tokens.

use std::sync::Arc;

use tollgate_core::model::{EventId, EventRef};
use tollgate_proto::FieldError;
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

/// What a caller wants of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To look at it, or to steer it: for keys.
    Read,
    /// To release its token, or to keep it: for keys, and for holders of the token.
    Release,
}

/// An event as a caller has named it, where the caller may name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEvent {
    /// The namespace in which it must lie; none where the id alone counts.
    pub namespace: Option<String>,
    /// Which one.
    pub id: NamedId,
}

/// Which event is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedId {
    /// The id as given: whether its token is a good one is for the keyring to say.
    Given(String),
    /// This one, whose token was left out by one who needs none.
    Event(EventRef),
}

/// Why a caller may not name an event.
#[derive(Clone, Debug)]
pub enum EventRefusal {
    /// It is no event's name.
    Name(FieldError),
    /// The caller's key does not reach its namespace: PERMISSION_DENIED.
    Foreign(Status),
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

    /// Whether it may look at what is there.
    pub fn reads(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Nobody => false,
            Self::Holder(principal) => principal.scopes.allow(Scope::Read),
        }
    }

    /// Whether it may take events of a queue, whose namespace has been looked at.
    ///
    /// # Errors
    /// PERMISSION_DENIED.
    pub fn works(&self, queue: &str) -> Result<(), Status> {
        match self {
            Self::Holder(principal) if !principal.scopes.allow_queue(queue) => {
                let (name, credential) = (&principal.name, &principal.credential);
                Err(Status::permission_denied(format!(
                    "{name} ({credential}) takes no events of the queue {queue}: its scopes are {}",
                    principal.scopes.words().join(",")
                )))
            }
            Self::Open | Self::Nobody | Self::Holder(_) => Ok(()),
        }
    }

    /// Whether every name in a request lies in the caller's namespace. Asked before anything is looked up, so that the
    /// answer is the same whether a thing exists or not. Texts that are no names are for the service to refuse.
    ///
    /// # Errors
    /// PERMISSION_DENIED, or UNAUTHENTICATED for one who has shown nothing.
    pub fn admit(&self, request: &impl Named) -> Result<(), Status> {
        match self {
            Self::Nobody => return Err(no_key()),
            Self::Holder(principal) if principal.namespace.is_some() => {}
            Self::Open | Self::Holder(_) => return Ok(()),
        }
        let mut admitted = Ok(());
        request.named(&mut |name| {
            if admitted.is_ok() {
                admitted = self.confine(name);
            }
        });
        admitted
    }

    /// Whether a name lies in the namespace that the caller's key reaches: the one place where they are compared.
    fn confine(&self, name: &str) -> Result<(), Status> {
        let Self::Holder(principal) = self else { return Ok(()) };
        let Some(own) = &principal.namespace else { return Ok(()) };
        match namespace_of(name) {
            Some(given) if given != own => Err(Status::permission_denied(format!(
                "{} ({}) reaches the namespace {own} only",
                principal.name, principal.credential
            ))),
            _ => Ok(()),
        }
    }

    /// Which event a caller means by a name or a bare id. A key does not need the token, nor does it need the namespace
    /// where it reaches one only. One who releases by an id with its token needs no key: the token alone authorises, and
    /// a key beside it changes nothing.
    ///
    /// # Errors
    /// What is wrong with the name, or that the key does not reach it: before anything is looked up or completed.
    pub fn event(&self, field: &str, name: &str, aim: Aim) -> Result<NamedEvent, EventRefusal> {
        let (namespace, id) = names::event(field, name).map_err(EventRefusal::Name)?;
        let principal = match self {
            Self::Holder(principal) => principal,
            Self::Open | Self::Nobody => return Ok(NamedEvent { namespace, id: NamedId::Given(id) }),
        };
        if aim == Aim::Release && EventId::without_seal(&id).is_some() {
            return Ok(NamedEvent { namespace, id: NamedId::Given(id) });
        }
        self.confine(name).map_err(EventRefusal::Foreign)?;
        let namespace = namespace.or_else(|| principal.namespace.clone());
        let may_leave_it_out = aim == Aim::Read || principal.scopes.allow(Scope::TokenRelease);
        let id = match EventId::read_unsealed(&id) {
            Some(event) if may_leave_it_out => NamedId::Event(event),
            _ => NamedId::Given(id),
        };
        Ok(NamedEvent { namespace, id })
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

/// The refusal of a call without a key.
pub(crate) fn no_key() -> Status {
    Status::unauthenticated("no key: this call needs the header authorization: Bearer tgk_…")
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
    }

    /// What every kind of caller comes to with every form of an event's name.
    #[test]
    fn an_event_s_name_is_compared_before_it_is_completed() {
        let keys = EventKeyring::new(&[7; 32]);
        let event = EventRef { shard: 31, run: RunId::derive(Uuid::nil(), 5), index: 17 };
        let sealed = keys.id(event).to_string();
        let unsealed = format!("1f-{}-17", event.run);
        let within = |namespace: &str, id: &str| format!("namespaces/{namespace}/events/{id}");
        let named = |access: &Access, name: &str, aim: Aim| match access.event("name", name, aim) {
            Ok(NamedEvent { namespace, id: NamedId::Event(read) }) => {
                assert_eq!(read, event);
                format!("event in {}", namespace.as_deref().unwrap_or("any"))
            }
            Ok(NamedEvent { namespace, id: NamedId::Given(id) }) => {
                assert!(name.ends_with(&id), "nothing is completed: {id}");
                format!("given in {}", namespace.as_deref().unwrap_or("any"))
            }
            Err(EventRefusal::Foreign(status)) => {
                assert_eq!(status.code(), Code::PermissionDenied);
                "foreign".to_owned()
            }
            Err(EventRefusal::Name(error)) => {
                assert_eq!(error.value, name, "the caller's own text");
                "no name".to_owned()
            }
        };
        let reader = holder(Some("team"), &[Scope::Read]);
        let releaser = holder(Some("team"), &[Scope::TokenRelease]);
        let admin = holder(Some("team"), &[Scope::Admin]);
        let all = holder(None, &[Scope::Admin]);
        let callers = [&reader, &releaser, &admin, &all, &Access::Nobody, &Access::Open];
        let cases: [(String, Aim, [&str; 6]); 8] = [
            (
                unsealed.clone(),
                Aim::Release,
                [
                    "given in team",
                    "event in team",
                    "event in team",
                    "event in any",
                    "given in any",
                    "given in any",
                ],
            ),
            (sealed.clone(), Aim::Release, ["given in any"; 6]),
            (
                within("team", &unsealed),
                Aim::Release,
                [
                    "given in team",
                    "event in team",
                    "event in team",
                    "event in team",
                    "given in team",
                    "given in team",
                ],
            ),
            (
                within("other", &unsealed),
                Aim::Release,
                ["foreign", "foreign", "foreign", "event in other", "given in other", "given in other"],
            ),
            // The holder of the token needs no key, so a key beside it takes nothing away.
            (within("other", &sealed), Aim::Release, ["given in other"; 6]),
            (
                within("other", &sealed),
                Aim::Read,
                ["foreign", "foreign", "foreign", "given in other", "given in other", "given in other"],
            ),
            (
                sealed.clone(),
                Aim::Read,
                [
                    "given in team",
                    "given in team",
                    "given in team",
                    "given in any",
                    "given in any",
                    "given in any",
                ],
            ),
            (
                unsealed.clone(),
                Aim::Read,
                [
                    "event in team",
                    "event in team",
                    "event in team",
                    "event in any",
                    "given in any",
                    "given in any",
                ],
            ),
        ];
        for (name, aim, expected) in cases {
            for (caller, expected) in callers.into_iter().zip(expected) {
                assert_eq!(named(caller, &name, aim), expected, "{name} {aim:?} {caller:?}");
            }
        }
        let odd = [
            format!("x/{unsealed}"),
            format!("namespaces/team/eventz/{unsealed}"),
            format!("namespaces/team/events/x/{unsealed}"),
            format!("namespaces//events/{unsealed}"),
            format!("namespaces/team/events//{unsealed}"),
            format!("/{unsealed}"),
            format!("{unsealed}/"),
            format!(" {unsealed}"),
        ];
        for name in &odd {
            for caller in callers {
                for aim in [Aim::Read, Aim::Release] {
                    assert_eq!(named(caller, name, aim), "no name", "{name} {aim:?} {caller:?}");
                }
            }
        }
        // An id of another form is looked up as it was given, and found by nobody.
        for id in [unsealed.to_uppercase(), format!("{unsealed}-"), unsealed.replace("-17", "-017")] {
            assert!(named(&admin, &id, Aim::Release).starts_with("given"), "{id}");
        }
    }
}
