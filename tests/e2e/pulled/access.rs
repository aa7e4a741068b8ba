//! Who may take events of a queue.

use tollgate_harness::{Database, Kind, Service};
use tollgate_proto::v1::AcquireEventsRequest;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tonic::Code;

use super::worker::{hello, open};
use crate::security::{Wire, key, wire};

fn workers(service: &Service, key: Option<&str>) -> WorkerServiceClient<Wire> {
    let header = key.map(|key| format!("Bearer {key}"));
    WorkerServiceClient::new(wire(service.channel(), header.as_deref()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_may_be_for_one_queue() {
    let database = Database::new(Kind::Sqlite).await;
    let render = key(&database, "render", "work=render", Some("default"));
    let any = key(&database, "any", "work", Some("default"));
    let reader = key(&database, "reader", "read,token:release", Some("default"));
    let elsewhere = key(&database, "elsewhere", "work", Some("team"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let ask = async |key: Option<&str>, queue: &str| {
        let name = format!("namespaces/default/queues/{queue}");
        let wait = Some(prost_types::Duration { seconds: 0, nanos: 0 });
        let request = AcquireEventsRequest { name, wait, ..AcquireEventsRequest::default() };
        let answer = workers(&service, key).acquire_events(request).await;
        answer.map_err(|status| (status.code(), status.message().to_owned()))
    };
    ask(Some(&render), "render").await.unwrap();
    ask(Some(&any), "audio").await.unwrap();
    let (code, text) = ask(Some(&render), "audio").await.unwrap_err();
    assert_eq!(code, Code::PermissionDenied);
    assert!(text.contains("takes no events of the queue audio: its scopes are work=render"), "{text}");
    assert_eq!(ask(Some(&reader), "render").await.unwrap_err().0, Code::PermissionDenied);
    let (code, text) = ask(Some(&elsewhere), "render").await.unwrap_err();
    assert_eq!(code, Code::PermissionDenied);
    assert!(text.contains("reaches the namespace team only"), "{text}");
    assert_eq!(ask(None, "render").await.unwrap_err().0, Code::Unauthenticated);
    let stream = open(service.channel(), Some(Say::Hello(hello("w", &[], 1)))).await;
    assert_eq!(stream.unwrap_err().code(), Code::Unauthenticated);
    service.stop().await;
}
