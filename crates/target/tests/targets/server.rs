//! A server on a raw socket that answers as it is told, properly or not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// What a server does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Writes this and waits for the next request.
    Write(Vec<u8>),
    /// Writes this and closes.
    WriteAndClose(Vec<u8>),
    /// Writes this, and one more byte of a header every 20 ms.
    Drip(&'static str),
    /// Writes this, and then more and more.
    Flood(&'static str),
    /// Closes, with RST.
    Reset,
    /// Reads, and never answers.
    Hang,
    /// Accepts and closes without reading.
    CloseUnread,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Which connection it came by, from 0.
    pub(crate) connection: usize,
    pub(crate) line: String,
    /// By lower-case name.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    /// How many of them have ended.
    ended: usize,
    requests: Vec<Request>,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Server {
    /// Answers every request in the same way.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::new(move |_| reply.clone()).await
    }

    pub(crate) async fn new(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (all, script) = (seen.clone(), Arc::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = all.lock().unwrap().connections;
                all.lock().unwrap().connections += 1;
                let (seen, script) = (all.clone(), script.clone());
                tokio::spawn(async move {
                    serve(stream, connection, seen.clone(), script).await;
                    seen.lock().unwrap().ended += 1;
                });
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?a=b", self.port)
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.connections - seen.ended
    }
}

/// An answer with a length.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Reply {
    Reply::Write(text(status, headers, body))
}

pub(crate) fn text(status: u16, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Some Reason\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
        .into_bytes()
}

type Script = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

async fn serve(mut stream: TcpStream, connection: usize, seen: Arc<Mutex<Seen>>, script: Script) {
    let nothing = Request { connection, line: String::new(), headers: HashMap::new(), body: Vec::new() };
    if matches!(script(&nothing), Reply::CloseUnread) {
        return;
    }
    while let Some(request) = read(&mut stream, connection).await {
        let reply = script(&request);
        seen.lock().unwrap().requests.push(request);
        match reply {
            Reply::Write(bytes) => stream.write_all(&bytes).await.unwrap(),
            Reply::WriteAndClose(bytes) => {
                // The other side may have gone.
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Drip(start) => {
                stream.write_all(start.as_bytes()).await.unwrap();
                while stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Reply::Flood(start) => {
                stream.write_all(start.as_bytes()).await.unwrap();
                while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
                return;
            }
            Reply::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
            Reply::Hang => std::future::pending().await,
            Reply::CloseUnread => return,
        }
    }
}

async fn read(stream: &mut TcpStream, connection: usize) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, &mut bytes).await?;
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + length {
        more(stream, &mut bytes).await?;
    }
    Some(Request { connection, line, headers, body: bytes.split_off(head_end) })
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4_096];
    let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
    bytes.extend_from_slice(&chunk[..read]);
    Some(())
}

/// A port at which nobody listens.
pub(crate) async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// A port at which the kernel lets connections wait for ever: its queue of connections to accept is full.
pub(crate) struct FullPort {
    pub(crate) port: u16,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullPort {
    pub(crate) async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            waiting.push(stream.unwrap());
            assert!(waiting.len() < 100, "the queue does not fill");
        }
        Self { port: address.port(), _listener: listener, _waiting: waiting }
    }
}
