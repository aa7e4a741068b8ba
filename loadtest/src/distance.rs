//! A database that is far away: what goes to it and comes from it arrives later, by the same time each.
//!
//! Threads that sleep until the moment, as tokio's timers count whole milliseconds. Bytes that follow one another stay as close
//! as they were: the way is long, and not narrow.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// How far away the database is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Far {
    /// There and back through the network, on top.
    pub(crate) network_us: u64,
    /// Each sync of its disk, on top.
    pub(crate) sync_ms: u64,
}

/// Makes a way to a server, of such a length there and back. Answers where it begins; it lasts as long as the process.
///
/// # Errors
/// A machine without free ports.
pub(crate) fn way_to(server: SocketAddr, there_and_back: Duration) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port for the way to the database")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let Ok(far) = TcpStream::connect(server) else { continue };
            // What cannot be cloned is closed, as by a network that fails.
            if let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) {
                one_way(near_too, far, there_and_back / 2);
                one_way(far_too, near, there_and_back / 2);
            }
        }
    });
    Ok(address)
}

/// Moves bytes one way, until a side ends.
fn one_way(mut from: TcpStream, mut to: TcpStream, late: Duration) {
    // Only a matter of speed.
    let _slower = to.set_nodelay(true);
    let (on_their_way, arrivals) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if on_their_way.send((Instant::now() + late, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (at, bytes) in arrivals {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        // The other way may go on.
        let _ended = to.shutdown(Shutdown::Write);
    });
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn bytes_arrive_later_and_together() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = way_to(server.local_addr().unwrap(), Duration::from_millis(60)).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut bytes = [0; 100];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                stream.write_all(&bytes[..count]).unwrap();
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        let began = Instant::now();
        for part in [b"one ", b"two "] {
            stream.write_all(part).unwrap();
        }
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        let took = began.elapsed();
        assert_eq!(&answer, b"one two ");
        assert!(took >= Duration::from_millis(60) && took < Duration::from_millis(115), "{took:?}");
    }
}
