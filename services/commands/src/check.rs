//! Says of a message what it asks for, and asks for nothing: for those who try what may be sent.
//!
//! In: the body of a message, and what its queue may do. Out: as the process itself reads it. Not here: what the service judges.

use serde_json::Value;

use crate::command::{Act, Op};
use crate::read::{Scope, read_body};

/// A message, as far as it can be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// What its sender calls it.
    pub id: Option<String>,
    /// What comes back with an answer; none where no answer is asked for.
    pub reply: Option<Value>,
    /// What it asks for, or the error of its answer.
    pub asked: Result<Asked, Value>,
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The operation.
    pub op: Op,
    /// The full name of what it is about.
    pub name: String,
    /// Its revision; 0 where the operation has none.
    pub revision: i64,
}

/// Reads a message of a queue for this namespace, which may ask for these operations.
pub fn check(body: &[u8], namespace: &str, allow: &[Op]) -> Checked {
    let scope = Scope { namespace: namespace.to_owned(), allow: allow.to_vec() };
    let known = read_body(body, &scope);
    let asked = known.command.map(|command| {
        let (op, name) = named(command.act);
        // What is applied has its name inside; its key says the same.
        let of_key = || format!("namespaces/{namespace}/{}/{}", command.key.collection, command.key.id);
        Asked { op, name: name.unwrap_or_else(of_key), revision: command.revision }
    });
    Checked { id: known.label.id, reply: known.label.reply, asked: asked.map_err(|fault| fault.to_json()) }
}

/// The operation, and the name that is sent.
fn named(act: Act) -> (Op, Option<String>) {
    use tollgate_proto::v1::apply_resources_request::Resource;
    match act {
        Act::Apply(request) => {
            let name = request.resource.map(|resource| match resource {
                Resource::Schedule(schedule) => schedule.name,
                Resource::Policy(policy) => policy.name,
                Resource::Calendar(calendar) => calendar.name,
                Resource::Alert(alert) => alert.name,
            });
            (Op::Apply, name)
        }
        Act::Delete(_, name) => (Op::Delete, Some(name)),
        Act::Pause(_, name, _) => (Op::Pause, Some(name)),
        Act::Resume(_, name) => (Op::Resume, Some(name)),
        Act::Trigger(request) => (Op::Trigger, Some(request.name)),
        Act::Submit(header, _) => (Op::Submit, Some(header.name)),
        Act::Release(request) => (Op::Release, Some(request.name)),
        Act::Extend(request) => (Op::Extend, Some(request.name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_what_the_process_would_make_of_it() {
        let body = br#"{"version": 1, "op": "delete", "id": "d:1", "revision": 3, "resource": "schedules/a", "reply": 7}"#;
        let checked = check(body, "team", &Op::ALL);
        assert_eq!((checked.id.as_deref(), checked.reply), (Some("d:1"), Some(json!(7))));
        let name = "namespaces/team/schedules/a".to_owned();
        assert_eq!(checked.asked, Ok(Asked { op: Op::Delete, name, revision: 3 }));
        let refused = check(body, "team", &[Op::Apply]).asked;
        assert_eq!(refused.map_err(|error| error["status"].clone()), Err(json!("PERMISSION_DENIED")));
    }
}
