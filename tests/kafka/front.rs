//! A front before a broker of librdkafka's mock cluster, which has neither TLS nor logins: it speaks TLS, asks for a login as
//! brokers do, and then passes on what comes.
//!
//! In: connections of clients. Out: the same to the broker, in the clear. Invariants: before its login a client may ask for the
//! versions of the protocol, and for nothing else; where the broker names itself, clients get the front's port, so that they stay
//! behind it.

mod sasl;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::authority::Authority;
use crate::broker::Broker;

pub(crate) use sasl::User;

use sasl::Exchange;

const HOST: &str = "127.0.0.1";
const API_VERSIONS: i16 = 18;
const SASL_HANDSHAKE: i16 = 17;
const SASL_AUTHENTICATE: i16 = 36;
const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const SASL_AUTHENTICATION_FAILED: i16 = 58;
/// For how long a client that is not let in is listened to.
const LINGER: Duration = Duration::from_secs(2);
/// Longer than all that tests send.
const FRAME_MAX: usize = 64 * 1024 * 1024;

/// A front that listens; it stops when dropped.
pub(crate) struct Front {
    port: u16,
    let_in: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// What all connections have.
struct Shared {
    tls: TlsAcceptor,
    user: Option<User>,
    port: u16,
    broker_port: u16,
    let_in: Arc<AtomicUsize>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Front {
    /// Before the only broker of a cluster. It lets this user in, or everybody; clients may need a certificate.
    pub(crate) async fn before(
        broker: &Broker,
        authority: &Authority,
        user: Option<User>,
        asks_clients: bool,
    ) -> Self {
        let listener = TcpListener::bind((HOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let servers = broker.servers();
        let broker_port = servers.rsplit(':').next().unwrap().parse().unwrap();
        let let_in = Arc::<AtomicUsize>::default();
        let tls = TlsAcceptor::from(authority.server(asks_clients));
        let shared = Arc::new(Shared { tls, user, port, broker_port, let_in: let_in.clone() });
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = shared.clone();
                // A client that breaks off, or is not let in, is what tests are about.
                tokio::spawn(async move { shared.serve(client).await });
            }
        });
        Self { port, let_in, task }
    }

    /// Where clients find it.
    pub(crate) fn server(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    /// How many connections have been let in.
    pub(crate) fn let_in(&self) -> usize {
        self.let_in.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut client = match self.tls.accept(client).into_fallible().await {
            Ok(client) => client,
            Err((error, mut client)) => {
                // What the client has sent already is read, else the end of its connection might overtake the alert.
                let rest = async {
                    client.shutdown().await?;
                    tokio::io::copy(&mut client, &mut tokio::io::sink()).await
                };
                let _late = tokio::time::timeout(LINGER, rest).await;
                return Err(error);
            }
        };
        let mut broker = TcpStream::connect((HOST, self.broker_port)).await?;
        broker.set_nodelay(true)?;
        if let Some(user) = &self.user
            && !log_in(user, &mut client, &mut broker).await?
        {
            return client.shutdown().await;
        }
        self.let_in.fetch_add(1, Ordering::Relaxed);
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_broker, mut to_broker) = broker.into_split();
        // Whichever ends ends the other.
        tokio::select! {
            ended = tokio::io::copy(&mut from_client, &mut to_broker) => ended.map(|_| ()),
            ended = self.pass_back(&mut from_broker, &mut to_client) => ended,
        }
    }

    /// Passes on what the broker answers.
    async fn pass_back(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        loop {
            let mut frame = read(from).await?;
            rename(&mut frame, self.broker_port, self.port);
            write(to, &frame).await?;
        }
    }
}

/// What comes before a login, and the login. Whether the client is let in.
async fn log_in<C, B>(user: &User, client: &mut C, broker: &mut B) -> io::Result<bool>
where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut exchange = Exchange::default();
    loop {
        let request = read(client).await?;
        let Some(Head { api, version, correlation, body }) = Head::of(&request) else { return Ok(false) };
        match api {
            API_VERSIONS => {
                write(broker, &request).await?;
                let answer = read(broker).await?;
                write(client, &with_logins(&answer, version)).await?;
            }
            SASL_HANDSHAKE => {
                let is_known = body.get(2..) == Some(user.mechanism.as_bytes());
                let code = if is_known { 0 } else { UNSUPPORTED_SASL_MECHANISM };
                let known = text(user.mechanism);
                let parts = [&correlation[..], &code.to_be_bytes()[..], &1_i32.to_be_bytes()[..], &known[..]];
                write(client, &parts.concat()).await?;
            }
            SASL_AUTHENTICATE => match exchange.step(user, body.get(4..).unwrap_or_default()) {
                Ok((token, is_in)) => {
                    let none = (-1_i16).to_be_bytes();
                    let length = i32::try_from(token.len()).unwrap().to_be_bytes();
                    let parts = [&correlation[..], &[0, 0][..], &none[..], &length[..], &token[..]];
                    write(client, &parts.concat()).await?;
                    if is_in {
                        return Ok(true);
                    }
                }
                Err(said) => {
                    let code = SASL_AUTHENTICATION_FAILED.to_be_bytes();
                    let said = text(&said);
                    let parts = [&correlation[..], &code[..], &said[..], &[0, 0, 0, 0][..]];
                    write(client, &parts.concat()).await?;
                    return Ok(false);
                }
            },
            _ => return Ok(false),
        }
    }
}

/// What a request begins with, in those versions that are met here.
struct Head<'r> {
    api: i16,
    version: i16,
    correlation: [u8; 4],
    /// What comes after the client's name.
    body: &'r [u8],
}

impl<'r> Head<'r> {
    fn of(request: &'r [u8]) -> Option<Self> {
        let number = |at: usize| Some(i16::from_be_bytes(request.get(at..at + 2)?.try_into().ok()?));
        let correlation: [u8; 4] = request.get(4..8)?.try_into().ok()?;
        let name = usize::try_from(number(8)?).unwrap_or(0);
        Some(Self { api: number(0)?, version: number(2)?, correlation, body: request.get(10 + name..)? })
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = i16::try_from(text.len()).unwrap().to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

/// An answer to a question for versions, with those of logins, in order. Where the broker does not know the version of the
/// question, its answer stays: the client asks again.
fn with_logins(answer: &[u8], version: i16) -> Vec<u8> {
    let (head, rest) = answer.split_at(10);
    if version > 2 || head[4..6] != [0, 0] {
        return answer.to_vec();
    }
    let count = usize::try_from(i32::from_be_bytes(head[6..].try_into().unwrap())).unwrap();
    let (keys, end) = rest.split_at(6 * count);
    let mut keys: Vec<Vec<u8>> = keys.chunks(6).map(<[u8]>::to_vec).collect();
    for (api, most) in [(SASL_HANDSHAKE, 1_i16), (SASL_AUTHENTICATE, 0)] {
        keys.push([api.to_be_bytes(), [0, 0], most.to_be_bytes()].concat());
    }
    keys.sort_unstable();
    let count = i32::try_from(keys.len()).unwrap().to_be_bytes();
    [&head[..6], &count[..], &keys.concat()[..], end].concat()
}

/// Has a broker that names itself name the front.
fn rename(frame: &mut [u8], from: u16, to: u16) {
    let own = [HOST.as_bytes(), &i32::from(from).to_be_bytes()[..]].concat();
    let mut at = 0;
    while let Some(found) = frame[at..].windows(own.len()).position(|window| window == own) {
        at += found + own.len();
        frame[at - 4..at].copy_from_slice(&i32::from(to).to_be_bytes());
    }
}

/// Reads a request or an answer, without its length.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = usize::try_from(from.read_i32().await?).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(io::Error::other("too long, or nothing of Kafka's protocol"));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    to.write_i32(i32::try_from(frame.len()).unwrap()).await?;
    to.write_all(frame).await?;
    to.flush().await
}
