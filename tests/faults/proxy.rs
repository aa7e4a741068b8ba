//! A network that can be cut: a TCP proxy between the service and what it speaks to.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They pass.
    Pass,
    /// They stay where they are; connections stay open, and new ones are taken and lead nowhere.
    Stall,
    /// Connections are reset, and new ones, too.
    Reset,
}

/// A proxy; it ends with the runtime.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// Listens on a free port and passes everything on.
    pub(crate) async fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let (mode, watched) = watch::channel(Mode::Pass);
        tokio::spawn(async move {
            loop {
                // A connection that ended before it was taken is nobody's.
                let Ok((stream, _)) = listener.accept().await else { continue };
                tokio::spawn(join(stream, upstream, watched.clone()));
            }
        });
        Ok(Self { address, mode })
    }

    /// Changes what becomes of bytes, those on their way among them.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn join(near: TcpStream, upstream: SocketAddr, mut mode: watch::Receiver<Mode>) {
    if !passes(&mut mode).await {
        cut(&near);
        return;
    }
    let Ok(far) = TcpStream::connect(upstream).await else {
        cut(&near);
        return;
    };
    for stream in [&near, &far] {
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
    }
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::join!(pump(near_read, far_write, mode.clone()), pump(far_read, near_write, mode));
}

/// Moves bytes one way until one side ends or the network resets.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        if !passes(&mut mode).await {
            cut(from.as_ref());
            cut(to.as_ref());
            return;
        }
        let count = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            _ = mode.changed() => continue,
        };
        if !passes(&mut mode).await {
            cut(from.as_ref());
            cut(to.as_ref());
            return;
        }
        if count == 0 || to.write_all(&bytes[..count]).await.is_err() {
            // The other way may go on.
            let _ = to.shutdown().await;
            return;
        }
    }
}

/// Waits out a stall. False when connections are to be reset.
async fn passes(mode: &mut watch::Receiver<Mode>) -> bool {
    match mode.wait_for(|mode| *mode != Mode::Stall).await {
        Ok(now) => *now == Mode::Pass,
        Err(_) => false,
    }
}

/// Its end will be a reset.
fn cut(stream: &TcpStream) {
    // One that has ended needs none.
    let _ = stream.set_zero_linger();
}
