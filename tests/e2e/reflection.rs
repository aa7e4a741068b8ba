//! What generic clients (grpcurl, health probes) need: reflection in both versions, and health.

use tollgate_tests::{Database, Kind, Service};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

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
