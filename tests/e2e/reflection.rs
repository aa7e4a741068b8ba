//! What generic clients (grpcurl, health probes) need: reflection in both versions, and health.

use std::net::IpAddr;

use tollgate_harness::{Database, Kind, Service, wait_for};
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

const SERVICE: &str = "tollgate.v1.EventHandlerService";

macro_rules! listed {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let asked = tokio_stream::iter([request]);
        let mut client = ServerReflectionClient::new($channel);
        let answer =
            client.server_reflection_info(asked).await.unwrap().into_inner().message().await.unwrap();
        match answer.unwrap().message_response {
            Some(MessageResponse::ListServicesResponse(list)) => {
                list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generic_clients_find_their_way() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let channel = Channel::from_shared(service.url().to_owned()).unwrap().connect().await.unwrap();
    for services in [listed!(v1, channel.clone()), listed!(v1alpha, channel.clone())] {
        assert!(services.iter().any(|name| name == SERVICE), "{services:?}");
    }
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let health = HealthClient::new(channel).check(request).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    service.stop().await;
}

/// Streams whose other end reads nothing are bounded, those of one address first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_nobody_reads_are_bounded() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let begin = async |from: &str| {
        let from: IpAddr = from.parse().unwrap();
        let endpoint = Channel::from_shared(service.url().to_owned()).unwrap().local_address(Some(from));
        let channel = endpoint.initial_stream_window_size(1).connect().await.unwrap();
        let symbol = MessageRequest::FileContainingSymbol(SERVICE.to_owned());
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(symbol) };
        // It asks once, and stays.
        let asked = tokio_stream::StreamExt::chain(tokio_stream::iter([request]), tokio_stream::pending());
        ServerReflectionClient::new(channel).server_reflection_info(asked).await
    };
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(begin("127.0.0.2").await.unwrap());
    }
    let refused = begin("127.0.0.2").await.err().map(|status| status.code());
    assert_eq!(refused, Some(Code::ResourceExhausted));
    assert!(begin("127.0.0.3").await.is_ok(), "another address has its own");
    // They end, though nobody reads them.
    wait_for("room", 60, async || begin("127.0.0.2").await.ok()).await;
    drop(unread);
    service.stop().await;
}
