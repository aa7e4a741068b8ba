//! A name server of the campaign's own: it knows a few names, and falls silent about some of them on order.
//!
//! The processes run in a mount namespace of their own whose resolv.conf names it. That takes root, or rights like it; where
//! they are missing, the campaign says so, and leaves out the faults that need it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::{Context as _, Result, ensure};
use tokio::net::UdpSocket;

/// Names that resolve.
const DOMAIN: &str = ".faults.test";
/// Names that begin so are not answered while look-ups hang.
pub(crate) const HUNG: &str = "hung";
/// Types of records: an IPv4 address.
const A: [u8; 2] = [0, 1];

/// A name server; it ends with the runtime.
#[derive(Debug)]
pub(crate) struct Names {
    resolv_conf: PathBuf,
    hangs: Arc<AtomicBool>,
}

impl Names {
    /// Listens, and looks whether processes can be pointed at it.
    ///
    /// # Errors
    /// Where port 53 of a loopback address or the mount namespace cannot be had.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        // Two campaigns at once have two addresses.
        let address = Ipv4Addr::new(127, 53, high, low.max(1));
        let socket = UdpSocket::bind((address, 53)).await.with_context(|| format!("port 53 of {address}"))?;
        let resolv_conf = folder.join("resolv.conf");
        std::fs::write(&resolv_conf, format!("nameserver {address}\n"))?;
        let names = Self { resolv_conf, hangs: Arc::default() };
        let probe = names.command("true").output().context("unshare does not start")?;
        ensure!(
            probe.status.success(),
            "a mount namespace cannot be had: {}",
            String::from_utf8_lossy(&probe.stderr).trim()
        );
        tokio::spawn(answer(socket, names.hangs.clone()));
        Ok(names)
    }

    /// A program that asks this name server.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        const SCRIPT: &str = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(&self.resolv_conf).arg(program);
        command
    }

    /// From now on it answers nothing about names that begin with [`HUNG`], or does again.
    pub(crate) fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, SeqCst);
    }
}

async fn answer(socket: UdpSocket, hangs: Arc<AtomicBool>) {
    let mut bytes = [0; 1_500];
    loop {
        // Whoever asked has gone; others ask again.
        let Ok((count, from)) = socket.recv_from(&mut bytes).await else { continue };
        if let Some(reply) = reply(&bytes[..count], hangs.load(SeqCst)) {
            send(&socket, &reply, from).await;
        }
    }
}

async fn send(socket: &UdpSocket, reply: &[u8], to: SocketAddr) {
    // As above.
    let _ = socket.send_to(reply, to).await;
}

/// The answer to a query (RFC 1035, 4.1): an address for each name of the domain, no such name for others. None where
/// there is to be none, or the query is none.
fn reply(query: &[u8], hangs: bool) -> Option<Vec<u8>> {
    let (header, rest) = query.split_at_checked(12)?;
    let (mut name, mut at) = (String::new(), 0);
    loop {
        let length = usize::from(*rest.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        name.push('.');
        name.push_str(&String::from_utf8_lossy(rest.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let question = rest.get(..at + 4)?;
    let name = name.trim_start_matches('.');
    if hangs && name.starts_with(HUNG) {
        return None;
    }
    let is_known = name.ends_with(DOMAIN);
    let has_address = is_known && question[at..at + 2] == A;
    // An answer, recursion as desired and available; 3: no such name.
    let flags = [0x80 | (header[2] & 0x01), if is_known { 0x80 } else { 0x83 }];
    let counts = [0, 1, 0, u8::from(has_address), 0, 0, 0, 0];
    let mut reply = [&header[..2], &flags, &counts, question].concat();
    if has_address {
        // The name at offset 12, type A, class IN, for a second, four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u8) -> Vec<u8> {
        let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).unwrap_or_default());
            query.extend(label.as_bytes());
        }
        query.extend([0, 0, kind, 0, 1]);
        query
    }

    #[test]
    fn a_name_of_the_domain_has_one_address_and_no_other_name_has_any() {
        let known = reply(&query("good.faults.test", 1), true).unwrap_or_default();
        assert_eq!(known[..8], [7, 9, 0x81, 0x80, 0, 1, 0, 1]);
        assert!(known.ends_with(&[0, 4, 127, 0, 0, 1]));
        let six = reply(&query("good.faults.test", 28), true).unwrap_or_default();
        assert_eq!(six[2..8], [0x81, 0x80, 0, 1, 0, 0]);
        let other = reply(&query("example.com", 1), true).unwrap_or_default();
        assert_eq!(other[2..8], [0x81, 0x83, 0, 1, 0, 0]);
    }

    #[test]
    fn only_names_that_hang_get_no_answer_and_only_then() {
        let hung = query("hung7.faults.test", 1);
        assert_eq!(reply(&hung, true), None);
        assert!(reply(&hung, false).is_some());
        assert_eq!(reply(&hung[..20], false), None, "half a query");
    }
}
