//! The source that is a server: signatures, room, several events in a request, answers that give tokens back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use tokio::sync::Semaphore;
use tollgate_worker::{Event, Failure, Http, Outcome, Worker};

use crate::Running;
use crate::fake::{Fake, until};

const SECRET: &str = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M=";
const FORGED: &str = "whsec_Zm9yZ2Vk";

/// Posts a body, signed in a secret so many seconds ago; the status, the body and the `Retry-After` of the answer.
async fn send(url: &str, body: &str, secret: &str, age_s: u64) -> (u16, String, Option<String>) {
    let sent_s = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() - age_s;
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("id.{sent_s}.{body}").as_bytes());
    let signature = format!("v1,AAAA v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let request = hyper::Request::post("/").header("host", "worker").header("webhook-id", "id");
    let request = request.header("webhook-timestamp", sent_s).header("webhook-signature", signature);
    let stream = tokio::net::TcpStream::connect(url).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let body = http_body_util::Full::new(hyper::body::Bytes::from(body.to_owned()));
    let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let status = answer.status().as_u16();
    let said = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8(said.to_vec()).unwrap(), after)
}

async fn expect(url: &str, body: &str, status: u16, words: &str) {
    let (told, said, after) = send(url, body, SECRET, 0).await;
    assert_eq!((told, after.is_some()), (status, status == 503), "{body}: {said}");
    assert!(said.contains(words), "{body}: {said}");
}

#[tokio::test]
async fn it_takes_what_is_signed_and_refuses_what_it_has_no_room_for() {
    let fake = Fake::start().await;
    let http = Http::bind("127.0.0.1:0", ["whsec_bmV3", SECRET]).await.unwrap();
    let url = http.local_addr().unwrap().to_string();
    let (begun, lets) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, let_go) = (begun.clone(), lets.clone());
    let worker = Worker::new(http, move |event: Event, _context| {
        let (begun, lets) = (counted.clone(), let_go.clone());
        async move {
            begun.fetch_add(1, SeqCst);
            if event.id.starts_with("slow") {
                lets.acquire().await.unwrap().forget();
            }
            let bad = event.id == "bad";
            if bad { Err(Failure::retry("disk full")) } else { Ok(Outcome::default()) }
        }
    });
    let running = Running::start(worker.server(&fake.url).concurrency(2));
    for (secret, age_s) in [(FORGED, 0), (SECRET, 3_600)] {
        assert_eq!(send(&url, r#"{"id": "forged"}"#, secret, age_s).await.0, 401);
    }
    expect(&url, r#"{"attempt": 1}"#, 400, "id").await;
    expect(&url, r#"{"id": "good", "release": "on_response"}"#, 200, "").await;
    expect(&url, r#"{"id": "bad", "release": "on_response"}"#, 500, "disk full").await;
    expect(&url, r#"{"id": "slow-1"}"#, 202, "").await;
    until("work", || begun.load(SeqCst) == 3).await;
    expect(&url, r#"{"id": "slow-1", "release": "on_response"}"#, 409, "being worked on").await;
    expect(&url, r#" [{"id": "slow-2"}]"#, 202, r#"{"events":[]}"#).await;
    until("work", || begun.load(SeqCst) == 4).await;
    expect(&url, r#"{"id": "more"}"#, 503, "no room").await;
    let many = r#"{"id":"many","message":"the worker has no room","retryAfterMs":1000,"status":"REFUSED"}"#;
    expect(&url, r#"[{"id": "more"}, {"id": "many"}]"#, 202, many).await;
    running.stop.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    expect(&url, r#"{"id": "late"}"#, 503, "stops").await;
    lets.add_permits(2);
    running.end().await.unwrap();
    let counts = ["slow-1", "slow-2", "good"].map(|id| fake.released(id).len());
    assert_eq!((begun.load(SeqCst), counts), (4, [1, 1, 0]));
}

#[tokio::test]
async fn secrets_that_cannot_be_read_are_refused() {
    for secrets in [&[][..], &[""], &["whsec_&"]] {
        let told = Http::bind("127.0.0.1:0", secrets.iter().copied()).await.unwrap_err().to_string();
        assert!(told.starts_with("secrets:"), "{told}");
    }
}
