//! A server of HTTP/2 that writes frame by frame what it is told, properly or not.
//!
//! Requests are told apart by their streams and their bodies; their heads are not looked at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

/// What a server does next.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Writes this.
    Write(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Reads nothing more, and keeps the connection.
    Freeze,
}

/// A request whose body is complete.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    /// Which connection it came by, from 0.
    pub(crate) connection: usize,
    pub(crate) stream: u32,
    pub(crate) body: String,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    came: Vec<Came>,
    /// Streams that the client has reset, with the reason.
    reset: Vec<(u32, u32)>,
    /// The most streams that were open on a connection at once.
    open_most: usize,
}

pub(crate) struct Frames {
    pub(crate) port: u16,
    seen: Arc<Mutex<Seen>>,
}

/// What a server does once a request is there, and whether it takes more of a body than its window has.
struct Script {
    grants: bool,
    acts: Box<Acts>,
}

type Acts = dyn Fn(&Came) -> Vec<Act> + Send + Sync;

impl Frames {
    /// A server that begins a connection with these settings, and does what the script says once a request is there. Of a long
    /// body it takes all.
    pub(crate) async fn new(
        settings: &[(u16, u32)],
        acts: impl Fn(&Came) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::with(settings, Script { grants: true, acts: Box::new(acts) }).await
    }

    /// The same, of whose window nothing comes back.
    pub(crate) async fn without_window(
        settings: &[(u16, u32)],
        acts: impl Fn(&Came) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::with(settings, Script { grants: false, acts: Box::new(acts) }).await
    }

    async fn with(settings: &[(u16, u32)], script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (all, script) = (seen.clone(), Arc::new(script));
        let payload =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        let hello = frame(SETTINGS, 0, 0, &payload.collect::<Vec<u8>>());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = all.lock().unwrap().connections;
                all.lock().unwrap().connections += 1;
                let (seen, script, hello) = (all.clone(), script.clone(), hello.clone());
                tokio::spawn(async move { serve(stream, connection, &hello, &seen, &script).await });
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    pub(crate) fn came(&self) -> Vec<Came> {
        self.seen.lock().unwrap().came.clone()
    }

    pub(crate) fn reset(&self) -> Vec<(u32, u32)> {
        self.seen.lock().unwrap().reset.clone()
    }

    pub(crate) fn open_most(&self) -> usize {
        self.seen.lock().unwrap().open_most
    }
}

/// The setting of how many streams may be open at once.
pub(crate) fn streams_max(count: u32) -> (u16, u32) {
    (3, count)
}

/// The setting of how many bytes of a body may be on their way.
pub(crate) fn window(bytes: u32) -> (u16, u32) {
    (4, bytes)
}

/// Status 200, without a body.
pub(crate) fn ok(stream: u32) -> Vec<u8> {
    // Index 8 of HPACK's static table.
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88])
}

/// Status 200, of which a body follows.
pub(crate) fn ok_with_body(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &[0x88])
}

pub(crate) fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &reason.to_be_bytes())
}

/// It goes away, and looks at no stream beyond `last`.
pub(crate) fn go_away(last: u32, reason: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat())
}

/// So many further bytes may come: of a stream, and of all together.
pub(crate) fn more_window(stream: u32, bytes: u32) -> Vec<u8> {
    let more = |stream| frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    [more(0), more(stream)].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

async fn serve(mut socket: TcpStream, connection: usize, hello: &[u8], seen: &Mutex<Seen>, script: &Script) {
    let mut preface = [0; PREFACE.len()];
    if socket.read_exact(&mut preface).await.is_err() || preface != PREFACE {
        return;
    }
    socket.write_all(hello).await.unwrap();
    let mut open: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    loop {
        let mut head = [0; 9];
        if socket.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if socket.read_exact(&mut payload).await.is_err() {
            return;
        }
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut acts = Vec::new();
        match kind {
            HEADERS => {
                open.insert(stream, Vec::new());
                let mut seen = seen.lock().unwrap();
                seen.open_most = seen.open_most.max(open.len());
            }
            DATA => {
                open.entry(stream).or_default().extend(&payload);
                if script.grants && !payload.is_empty() {
                    acts.push(Act::Write(more_window(stream, u32::try_from(payload.len()).unwrap())));
                }
            }
            RST_STREAM => {
                open.remove(&stream);
                let reason = u32::from_be_bytes(payload[..4].try_into().unwrap());
                seen.lock().unwrap().reset.push((stream, reason));
            }
            SETTINGS if flags & 1 == 0 => acts.push(Act::Write(frame(SETTINGS, 1, 0, &[]))),
            _ => {}
        }
        if [HEADERS, DATA].contains(&kind) && flags & END_STREAM != 0 {
            let body = String::from_utf8_lossy(&open[&stream]).into_owned();
            let came = Came { connection, stream, body };
            seen.lock().unwrap().came.push(came.clone());
            acts.extend((script.acts)(&came));
        }
        for act in acts {
            match act {
                Act::Write(bytes) => {
                    ended_by(&bytes).iter().for_each(|stream| drop(open.remove(stream)));
                    // The other side may have gone.
                    let _ = socket.write_all(&bytes).await;
                }
                Act::Close => return,
                Act::Freeze => std::future::pending().await,
            }
        }
    }
}

/// The streams that these frames end.
fn ended_by(mut frames: &[u8]) -> Vec<u32> {
    let mut ended = Vec::new();
    while let [a, b, c, kind, flags, d, e, f, g, rest @ ..] = frames {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if *kind == RST_STREAM || ([HEADERS, DATA].contains(kind) && flags & END_STREAM != 0) {
            ended.push(u32::from_be_bytes([*d, *e, *f, *g]));
        }
        frames = &rest[length..];
    }
    ended
}
