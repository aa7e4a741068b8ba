//! The SQS emulator (moto) as a process.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::{Client, Config};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::free_port;
use crate::process::Process;

/// A running emulator, ended when dropped.
pub struct Emulator {
    process: Process,
    /// Its URL.
    pub endpoint: String,
}

impl Emulator {
    /// Starts it on a free port.
    ///
    /// # Panics
    /// When moto is not installed, or does not listen within 60 s.
    pub async fn start() -> Self {
        let program =
            std::env::var_os("MOTO_SERVER").map_or_else(|| PathBuf::from("moto_server"), PathBuf::from);
        let port = free_port().unwrap();
        let mut command = Command::new(&program);
        command
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/moto"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::start(&mut command)
            .expect("no SQS emulator. Run the tests with ./tests/run, which installs it");
        let mut emulator = Self { process, endpoint: format!("http://127.0.0.1:{port}") };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let status = emulator.process.exited().unwrap();
            assert!(status.is_none(), "moto_server ended: {status:?}");
            assert!(Instant::now() < end, "moto_server does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        emulator
    }

    /// A client of the consumer's side.
    pub fn client(&self) -> Client {
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("testing", "testing", None, None, "tests"))
            .endpoint_url(&self.endpoint)
            .http_client(http)
            .build();
        Client::from_conf(config)
    }

    /// Makes a queue, and returns its URL.
    pub async fn queue(&self, name: &str) -> String {
        let made = self.client().create_queue().queue_name(name).send().await.unwrap();
        made.queue_url().unwrap().to_owned()
    }
}
