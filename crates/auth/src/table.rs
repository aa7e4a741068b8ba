//! Decides what each RPC needs: the one table of who may call what.

use crate::scope::Scope::{self, Admin, Read, ScheduleWrite, Work};

/// What an RPC needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it says whether the process is well, or what the protos say.
    Nothing,
    /// The credential of the installation's own processes, which the service itself checks.
    Peer,
    /// An event's token, in the id that the request names; the service itself checks it. No key.
    Token,
    /// A key with this scope; the names in the request must lie in its namespace.
    Key(Scope),
    /// A key with this scope that reaches all namespaces: what it is about has none.
    Everywhere(Scope),
}

const MASTER: &str = "tollgate.v1.ScheduleMasterService";
const HANDLER: &str = "tollgate.v1.EventHandlerService";
const WORKER: &str = "tollgate.v1.WorkerService";
const EMITTER: &str = "tollgate.v1.EventEmitterService";
const PEER: &str = "tollgate.v1.HandlerPeerService";
const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Every RPC: service, method, what it needs.
pub const TABLE: &[(&str, &str, Needs)] = &[
    (MASTER, "CreateSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "GetSchedule", Needs::Key(Read)),
    (MASTER, "ListSchedules", Needs::Key(Read)),
    (MASTER, "UpdateSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "DeleteSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "PauseSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "ResumeSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "PauseSchedules", Needs::Key(ScheduleWrite)),
    (MASTER, "ResumeSchedules", Needs::Key(ScheduleWrite)),
    (MASTER, "DeleteSchedules", Needs::Key(ScheduleWrite)),
    (MASTER, "TriggerSchedules", Needs::Key(ScheduleWrite)),
    (MASTER, "CreatePolicy", Needs::Key(ScheduleWrite)),
    (MASTER, "GetPolicy", Needs::Key(Read)),
    (MASTER, "ListPolicies", Needs::Key(Read)),
    (MASTER, "UpdatePolicy", Needs::Key(ScheduleWrite)),
    (MASTER, "DeletePolicy", Needs::Key(ScheduleWrite)),
    (MASTER, "PausePolicy", Needs::Key(ScheduleWrite)),
    (MASTER, "ResumePolicy", Needs::Key(ScheduleWrite)),
    (MASTER, "CreateCalendar", Needs::Key(ScheduleWrite)),
    (MASTER, "GetCalendar", Needs::Key(Read)),
    (MASTER, "ListCalendars", Needs::Key(Read)),
    (MASTER, "UpdateCalendar", Needs::Key(ScheduleWrite)),
    (MASTER, "DeleteCalendar", Needs::Key(ScheduleWrite)),
    (MASTER, "CreateAlert", Needs::Key(ScheduleWrite)),
    (MASTER, "GetAlert", Needs::Key(Read)),
    (MASTER, "ListAlerts", Needs::Key(Read)),
    (MASTER, "UpdateAlert", Needs::Key(ScheduleWrite)),
    (MASTER, "DeleteAlert", Needs::Key(ScheduleWrite)),
    (MASTER, "TriggerSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "BackfillSchedule", Needs::Key(ScheduleWrite)),
    (MASTER, "SubmitItems", Needs::Key(ScheduleWrite)),
    (MASTER, "GetSubmission", Needs::Key(Read)),
    (MASTER, "PreviewSchedule", Needs::Key(Read)),
    (MASTER, "ForecastDemand", Needs::Key(Read)),
    (MASTER, "ListScheduleChildren", Needs::Key(Read)),
    (MASTER, "ListSkippedTriggers", Needs::Key(Read)),
    (MASTER, "ListAuditEntries", Needs::Key(Read)),
    (MASTER, "ListNamespaces", Needs::Everywhere(Read)),
    (MASTER, "ApplyResources", Needs::Key(ScheduleWrite)),
    (MASTER, "ApplyResourcesWithProgress", Needs::Key(ScheduleWrite)),
    (MASTER, "BackfillScheduleWithProgress", Needs::Key(ScheduleWrite)),
    (HANDLER, "ReleaseToken", Needs::Token),
    (HANDLER, "ReleaseTokens", Needs::Token),
    (HANDLER, "BatchReleaseTokens", Needs::Token),
    (HANDLER, "ExtendToken", Needs::Token),
    (HANDLER, "GetEvent", Needs::Key(Read)),
    (HANDLER, "ListEvents", Needs::Key(Read)),
    (HANDLER, "GetRun", Needs::Key(Read)),
    (HANDLER, "ListRuns", Needs::Key(Read)),
    (HANDLER, "CancelRun", Needs::Key(ScheduleWrite)),
    (HANDLER, "RetryDeadEvents", Needs::Key(ScheduleWrite)),
    (HANDLER, "ListFailures", Needs::Key(Read)),
    (HANDLER, "RetryFailures", Needs::Key(ScheduleWrite)),
    (HANDLER, "CloseFailures", Needs::Key(ScheduleWrite)),
    (HANDLER, "ExplainEvent", Needs::Key(Read)),
    (HANDLER, "GetPolicyQueue", Needs::Key(Read)),
    (HANDLER, "GetHandlerStatus", Needs::Key(Read)),
    (HANDLER, "ListTroubles", Needs::Key(Read)),
    (HANDLER, "ListHistory", Needs::Key(Read)),
    (HANDLER, "SendTestAlert", Needs::Key(ScheduleWrite)),
    (HANDLER, "PauseDispatch", Needs::Everywhere(Admin)),
    (HANDLER, "ResumeDispatch", Needs::Everywhere(Admin)),
    (WORKER, "Work", Needs::Key(Work)),
    (WORKER, "AcquireEvents", Needs::Key(Work)),
    (WORKER, "ListWorkers", Needs::Key(Read)),
    (EMITTER, "GetEmitterStatus", Needs::Everywhere(Read)),
    (EMITTER, "ListWindows", Needs::Everywhere(Read)),
    (PEER, "ForwardReleases", Needs::Peer),
    (PEER, "ForwardExtend", Needs::Peer),
    (PEER, "ForwardExplain", Needs::Peer),
    (PEER, "CountOutstanding", Needs::Peer),
    (PEER, "CountKeys", Needs::Peer),
    (PEER, "ReadHandlerStatus", Needs::Peer),
    (PEER, "ReadTroubles", Needs::Peer),
    (PEER, "TakeRoom", Needs::Peer),
    (PEER, "ReturnRoom", Needs::Peer),
    (PEER, "GiveEvent", Needs::Peer),
    (PEER, "ReadWorkers", Needs::Peer),
    (PEER, "WakeShards", Needs::Peer),
    (HEALTH, "Check", Needs::Nothing),
    (HEALTH, "Watch", Needs::Nothing),
    (HEALTH, "List", Needs::Nothing),
    (REFLECTION[0], "ServerReflectionInfo", Needs::Nothing),
    (REFLECTION[1], "ServerReflectionInfo", Needs::Nothing),
];

/// Calls whose messages may come for as long as the caller likes.
const STREAMS: [&str; 8] = [
    "ApplyResources",
    "ApplyResourcesWithProgress",
    "BackfillScheduleWithProgress",
    "SubmitItems",
    "ReleaseTokens",
    "Work",
    "Watch",
    "ServerReflectionInfo",
];

/// What the RPC of a path such as `/tollgate.v1.EventHandlerService/GetRun` needs; none where there is no such RPC.
pub fn needs(path: &str) -> Option<Needs> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    // Releases are nearly all that is called, and come first.
    if service == HANDLER && method == "ReleaseToken" {
        return Some(Needs::Token);
    }
    let row = TABLE.iter().find(|(of, name, _)| *name == method && *of == service);
    row.map(|(_, _, needs)| *needs)
}

/// Calls that wait for what may come, for a minute at most.
const WAITS: &str = "AcquireEvents";

/// Whether the call of an RPC's path may wait for a minute before there is anything to be done.
pub(crate) fn waits(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(_, method)| method == WAITS)
}

/// Whether an RPC's path is that of a stream of requests or answers.
pub fn is_stream(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(_, method)| STREAMS.contains(&method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_of_the_protos_has_its_row() {
        let mut count = 0;
        for service in tollgate_proto::descriptor_pool().services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                assert!(needs(&path).is_some(), "{path} has no row: nobody has decided who may call it");
                let streams = method.is_client_streaming() || method.is_server_streaming();
                assert_eq!(is_stream(&path), streams, "{path}");
                count += 1;
            }
        }
        let others = [HEALTH, REFLECTION[0], REFLECTION[1]];
        let own = TABLE.iter().filter(|(service, _, _)| !others.contains(service)).count();
        assert_eq!(own, count, "rows of RPCs that there are no more");
        assert!(count > 40, "{count}");
    }

    #[test]
    fn what_changes_something_is_not_for_readers() {
        for service in tollgate_proto::descriptor_pool().services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let reads = ["Get", "List", "Preview", "Explain", "Forecast"]
                    .iter()
                    .any(|verb| method.name().starts_with(verb));
                match needs(&path) {
                    Some(Needs::Key(scope) | Needs::Everywhere(scope)) => {
                        assert_eq!(scope == Read, reads, "{path}")
                    }
                    Some(Needs::Peer) => assert_eq!(service.name(), "HandlerPeerService", "{path}"),
                    Some(Needs::Token) => assert!(method.name().contains("Token"), "{path}"),
                    other => panic!("{path}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn no_row_is_there_twice() {
        let mut rows: Vec<_> = TABLE.iter().map(|(service, method, _)| (service, method)).collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), TABLE.len());
        for path in [
            "",
            "/",
            "x",
            "/tollgate.v1.EventHandlerService",
            "/other/ReleaseToken",
            "/tollgate.v1.EventHandlerService/releaseToken",
        ] {
            assert_eq!(needs(path), None, "{path}");
        }
    }
}
