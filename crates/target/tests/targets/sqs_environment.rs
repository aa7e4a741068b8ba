//! AWS's variables for tests, and the SQS emulator.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

const MARK: &str = "TOLLGATE_TEST_AGAIN";
const KEYS: &[(&str, &str)] = &[("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing")];

/// Runs the calling test again in a process that has AWS credentials and nothing else of AWS, and says whether this
/// is that process. A process cannot change its own environment without unsafe code.
pub(crate) fn has_keys() -> bool {
    again(KEYS)
}

/// The same without credentials.
pub(crate) fn has_no_keys() -> bool {
    again(&[])
}

fn again(variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let test = std::thread::current().name().unwrap().to_owned();
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    let status = command
        .args([test.as_str(), "--exact", "--nocapture"])
        .envs(variables.iter().copied())
        .envs([(MARK, "1"), ("AWS_EC2_METADATA_DISABLED", "true")])
        .envs([("AWS_CONFIG_FILE", "/dev/null"), ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed in its own process; its messages are above");
    false
}

/// A port that nobody has, and that nobody gets by chance until the emulator has it: below those that systems give away.
fn free_port() -> u16 {
    // Emulators at once are of different processes.
    let first = std::process::id() as usize * 997;
    let mut ports = (0..20_000).map(|at| 12_000 + u16::try_from((first + at) % 20_000).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// A running emulator, ended when dropped.
pub(crate) struct Emulator {
    process: Child,
    pub(crate) endpoint: String,
}

impl Emulator {
    pub(crate) fn start() -> Self {
        let program =
            std::env::var_os("MOTO_SERVER").map_or_else(|| PathBuf::from("moto_server"), PathBuf::from);
        let port = free_port();
        let process = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "no SQS emulator: {} does not start ({error}). Run the tests with ./tests/run, which installs it; \
                     or put moto_server on the PATH or its path into MOTO_SERVER",
                    program.display()
                )
            });
        let mut emulator = Self { process, endpoint: format!("http://127.0.0.1:{port}") };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = emulator.process.try_wait().unwrap();
            assert!(ended.is_none(), "moto_server ended: {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(60), "moto_server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        emulator
    }

    /// A client of the consumer's side.
    pub(crate) async fn client(&self) -> Client {
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .endpoint_url(&self.endpoint)
            .http_client(http)
            .load()
            .await;
        Client::new(&config)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
