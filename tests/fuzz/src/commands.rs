//! Messages of `tollgate commands`: whatever a queue has, it is a command of the queue's own namespace, or a refusal that fits
//! into an answer.
//!
//! The first byte of an input says what its queue may ask for: all for 0, else the operations whose bits are set.

use serde_json::Value;
use tollgate_commands::{Asked, Checked, Op, check};

use super::quick;

const NAMESPACE: &str = "team";
/// What an answer has room for.
const ERROR_MAX_BYTES: usize = 16 * 1024;
const REPLY_MAX_BYTES: usize = 1024;
const ID_MAX_CHARS: usize = 128;

pub(crate) fn target(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let choice = *choice;
    let chosen = |bit: &u32| 1_u8.checked_shl(*bit).is_some_and(|bit| choice & bit != 0);
    let allow = (0_u32..).zip(Op::ALL).filter(|(bit, _)| chosen(bit));
    let allow: Vec<Op> = allow.map(|(_, op)| op).collect();
    let allow = if allow.is_empty() { Op::ALL.to_vec() } else { allow };
    let checked = quick("reading a command", || check(body, NAMESPACE, &allow));
    let Checked { id, reply, asked } = &checked;
    assert!(id.as_ref().is_none_or(|id| (1..=ID_MAX_CHARS).contains(&id.len()) && id.is_ascii()), "{id:?}");
    // Of a number it is written otherwise, and may be some times as long.
    let comes_back = reply.as_ref().map_or(0, |reply| reply.to_string().len());
    assert!(comes_back <= 8 * REPLY_MAX_BYTES, "{comes_back} bytes come back");
    match asked {
        Ok(asked) => {
            taken(asked, &checked, &allow);
            same_again(body, &checked, &allow);
        }
        Err(error) => refused(error),
    }
}

fn taken(asked: &Asked, checked: &Checked, allow: &[Op]) {
    let Asked { op, name, revision } = asked;
    assert!(allow.contains(op), "{op} is not what its queue may ask for");
    let own = name.strip_prefix("namespaces/").and_then(|rest| rest.strip_prefix(NAMESPACE));
    assert!(own.is_some_and(|rest| rest.starts_with('/')), "{name} is another namespace's");
    let is_numbered = matches!(op, Op::Apply | Op::Delete | Op::Pause | Op::Resume);
    assert!(*revision >= i64::from(is_numbered), "{op} has the revision {revision}");
    assert!(checked.id.is_some() || matches!(op, Op::Release | Op::Extend), "{op} has no id");
}

/// What is around an object says nothing, and neither does how it is written.
fn same_again(body: &[u8], checked: &Checked, allow: &[Op]) {
    let padded = [b" \n", body, b"\t"].concat();
    assert_eq!(&check(&padded, NAMESPACE, allow), checked, "blanks around a command change it");
    // A list of items may have what is read as it is written, and cannot be written anew.
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    let again = check(value.to_string().as_bytes(), NAMESPACE, allow);
    // Written anew, a number may be longer, and what has it too long.
    if let Ok(asked) = &again.asked {
        assert_eq!(
            (Ok(asked), &again.id),
            (checked.asked.as_ref(), &checked.id),
            "written anew it is another"
        );
    }
}

fn refused(error: &Value) {
    let bytes = error.to_string().len();
    assert!(bytes <= ERROR_MAX_BYTES, "an error of {bytes} bytes");
    let status = error["status"].as_str();
    assert!(matches!(status, Some("INVALID_ARGUMENT" | "PERMISSION_DENIED")), "{error}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
}
