//! A network that can be cut: a TCP proxy between the service and what it speaks to.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::http;

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// They stay where they are; connections stay open, and new ones are taken and lead nowhere.
    Stall,
    /// Connections are reset, and new ones, too.
    Reset,
    /// They pass after so long, each way.
    Late(Duration),
}

/// What becomes of bytes that were held while whoever had sent them closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// They arrive all the same, late: a statement may be carried out that nobody waits for.
    Arrive,
    /// They are lost. What the sender has given up never comes, so that nothing but the sender can make a late attempt.
    Lost,
}

/// A proxy; it ends with the runtime.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// Listens on a free port and passes everything on, however late.
    ///
    /// # Errors
    /// A machine without free ports.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        Self::holding(upstream, Held::Arrive).await
    }

    /// As [`Proxy::start`]; what is held while its sender closes the connection has its own fate.
    ///
    /// # Errors
    /// As there.
    pub async fn holding(upstream: SocketAddr, held: Held) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let (mode, watched) = watch::channel(Mode::Pass);
        tokio::spawn(http::accept(listener, move |stream| join(stream, upstream, watched.clone(), held)));
        Ok(Self { address, mode })
    }

    /// Changes what becomes of bytes, those on their way among them.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn join(near: TcpStream, upstream: SocketAddr, mut mode: watch::Receiver<Mode>, held: Held) {
    let stalled = *mode.borrow() == Mode::Stall;
    if !passes(&mut mode).await {
        cut(&near);
        return;
    }
    let Ok(far) = TcpStream::connect(upstream).await else {
        cut(&near);
        return;
    };
    // Only a matter of speed.
    let _ = far.set_nodelay(true);
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let there = pump(near_read, far_write, mode.clone(), held, stalled);
    tokio::join!(there, pump(far_read, near_write, mode, Held::Arrive, false));
}

/// Moves bytes one way until one side ends or the network resets. `stalled`: it has stood still already.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    held: Held,
    mut stalled: bool,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        stalled |= *mode.borrow() == Mode::Stall;
        if !passes(&mut mode).await {
            cut(from.as_ref());
            cut(to.as_ref());
            return;
        }
        let mut count = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            _ = mode.changed() => continue,
        };
        stalled |= *mode.borrow() == Mode::Stall;
        if !passes(&mut mode).await {
            cut(from.as_ref());
            cut(to.as_ref());
            return;
        }
        if stalled && held == Held::Lost {
            match rest(&from, &mut bytes, count) {
                Some(all) => count = all,
                None => {
                    cut(to.as_ref());
                    return;
                }
            }
        }
        stalled = false;
        let late = match *mode.borrow() {
            Mode::Late(late) => late,
            _ => Duration::ZERO,
        };
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        if count == 0 || to.write_all(&bytes[..count]).await.is_err() {
            // The other way may go on.
            let _ = to.shutdown().await;
            return;
        }
    }
}

/// What has arrived behind the first bytes, too; how many there are now. None: the sender has closed the connection.
fn rest(from: &OwnedReadHalf, bytes: &mut Vec<u8>, mut count: usize) -> Option<usize> {
    loop {
        if bytes.len() == count {
            bytes.resize(2 * count, 0);
        }
        match from.try_read(&mut bytes[count..]) {
            Ok(0) => return None,
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(count),
            Err(_) => return None,
        }
    }
}

/// Waits out a stall. False when connections are to be reset.
async fn passes(mode: &mut watch::Receiver<Mode>) -> bool {
    match mode.wait_for(|mode| *mode != Mode::Stall).await {
        Ok(now) => *now != Mode::Reset,
        Err(_) => false,
    }
}

/// Its end will be a reset.
fn cut(stream: &TcpStream) {
    // One that has ended needs none.
    let _ = stream.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn through(held: Held, closes: bool) -> Vec<u8> {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::holding(upstream.local_addr().unwrap(), held).await.unwrap();
        proxy.set(Mode::Stall);
        let mut near = TcpStream::connect(proxy.address).await.unwrap();
        near.write_all(b"attempt 1").await.unwrap();
        if closes {
            drop(near);
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(near);
            });
        }
        // The network of this machine takes no time to speak of.
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.set(Mode::Pass);
        let (mut far, _) = upstream.accept().await.unwrap();
        let mut bytes = Vec::new();
        // A reset ends it, too.
        let _ = far.read_to_end(&mut bytes).await;
        bytes
    }

    #[tokio::test]
    async fn what_its_sender_gave_up_in_a_stall_is_lost_where_that_is_wanted() {
        assert_eq!(through(Held::Arrive, true).await, b"attempt 1");
        assert_eq!(through(Held::Lost, false).await, b"attempt 1");
        assert_eq!(through(Held::Lost, true).await, b"");
    }

    #[tokio::test]
    async fn bytes_that_are_late_come_all_the_same() {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(upstream.local_addr().unwrap()).await.unwrap();
        proxy.set(Mode::Late(Duration::from_millis(50)));
        let began = std::time::Instant::now();
        let mut near = TcpStream::connect(proxy.address).await.unwrap();
        near.write_all(b"late").await.unwrap();
        let (mut far, _) = upstream.accept().await.unwrap();
        let mut bytes = [0; 4];
        far.read_exact(&mut bytes).await.unwrap();
        assert!(bytes == *b"late" && began.elapsed() >= Duration::from_millis(50));
    }
}
