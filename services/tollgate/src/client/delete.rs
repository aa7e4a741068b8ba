//! `tollgate delete`.

use clap::{Args, ValueEnum};
use tollgate_proto::v1;

use super::{Session, names};

/// What can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A schedule.
    #[value(alias = "schedules")]
    Schedule,
    /// A policy that no schedule uses.
    #[value(alias = "policies")]
    Policy,
    /// An alert.
    #[value(alias = "alerts")]
    Alert,
}

/// Arguments of `delete`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteArgs {
    /// The kind of resource
    #[arg(value_name = "KIND")]
    kind: Kind,

    /// The name of the resource
    #[arg(value_name = "NAME")]
    name: String,

    /// Delete the resource only if it has this etag, which `get -o json` shows
    #[arg(long, value_name = "ETAG", default_value = "")]
    etag: String,
}

/// Deletes a schedule, policy or alert.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: DeleteArgs) -> anyhow::Result<()> {
    let DeleteArgs { kind, name, etag } = args;
    let (answer, name) = match kind {
        Kind::Schedule => {
            let name = names::schedule(&session.namespace, &name);
            let request = v1::DeleteScheduleRequest { name: name.clone(), etag };
            (session.master().delete_schedule(request).await, name)
        }
        Kind::Policy => {
            let name = names::policy(&session.namespace, &name);
            let request = v1::DeletePolicyRequest { name: name.clone(), etag };
            (session.master().delete_policy(request).await, name)
        }
        Kind::Alert => {
            let name = names::alert(&session.namespace, &name);
            let request = v1::DeleteAlertRequest { name: name.clone(), etag };
            (session.master().delete_alert(request).await, name)
        }
    };
    answer.map_err(|status| session.failure(format!("delete {name}"), status))?;
    if session.printer.is_json() {
        return session.printer.json(&serde_json::json!({}));
    }
    session.printer.line(&format!("deleted {name}"))
}
