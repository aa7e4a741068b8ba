//! Decides which namespaces `-A` means: the API has no list of them, so those that have policies, and the caller's own.

use std::collections::BTreeSet;

use clap::Args;
use tollgate_proto::v1;
use tonic::Code;

use super::{Session, names};

/// The flag of commands that show resources.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Everywhere {
    /// Show all namespaces, with a column for them. Of resources without a policy: only namespaces that have policies, and -n
    #[arg(short = 'A', long, short_alias = 'a')]
    pub(crate) all_namespaces: bool,
}

impl Everywhere {
    /// `namespaces/{namespace}`, or nothing for all, where the API takes that.
    pub(super) fn parent(self, session: &Session) -> String {
        if self.all_namespaces { String::new() } else { session.parent() }
    }

    /// The namespaces to look into, one after the other.
    ///
    /// # Errors
    /// What the service says.
    pub(super) async fn parents(self, session: &Session) -> anyhow::Result<Vec<String>> {
        if !self.all_namespaces {
            return Ok(vec![session.parent()]);
        }
        Ok(known(session).await?.iter().map(|namespace| names::parent(namespace)).collect())
    }
}

/// The namespaces that have policies, and the caller's own, by name.
async fn known(session: &Session) -> anyhow::Result<BTreeSet<String>> {
    let request = v1::GetHandlerStatusRequest::default();
    let status = match session.handler().get_handler_status(request).await {
        Ok(status) => status.into_inner(),
        // A key of one namespace: it is told of no other.
        Err(status) if status.code() == Code::PermissionDenied => v1::HandlerStatus::default(),
        Err(status) => return Err(session.failure("look for namespaces", status)),
    };
    Ok(of(&status.policies, &session.namespace))
}

fn of(gauges: &[v1::PolicyGauge], own: &str) -> BTreeSet<String> {
    let found = gauges.iter().map(|gauge| names::namespace_of(&gauge.policy));
    found.chain([own]).filter(|namespace| !namespace.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_known_by_their_policies() {
        let gauge =
            |policy: &str| v1::PolicyGauge { policy: policy.to_owned(), ..v1::PolicyGauge::default() };
        let gauges = [gauge("namespaces/b/policies/p"), gauge(""), gauge("namespaces/a/policies/p")];
        assert_eq!(of(&gauges, "default").into_iter().collect::<Vec<_>>(), ["a", "b", "default"]);
    }
}
