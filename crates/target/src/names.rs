//! Looks names up, so that one whose name server does not answer stops no other.
//!
//! The system's own lookup knows every way that the machine is set up for, and cannot be called off. So each runs on a thread
//! of its own, which ends with the process. Invariants: one lookup at a time for a name, for all callers; no more threads than
//! there are places, of which no namespace or zone takes all; nobody waits longer than the patience, and nobody at all for a name
//! whose lookup has taken longer than that. What was found is remembered for a moment.
//! Not here: which of the addresses may be reached.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use tokio::sync::watch;
use tokio::time::Instant;
use tollgate_clock::instant_now;

use crate::shares::{Claim, Claims, Shares, key_of};

/// How long addresses are remembered. Short: a name that moves is followed.
const FOUND_FOR: Duration = Duration::from_secs(5);
/// How long it is remembered that there are none.
const FAILED_FOR: Duration = Duration::from_secs(1);
/// Names after which those that count no longer are dropped.
const SWEEP_AT: usize = 1_024;
/// Bytes of a lookup's stack.
const STACK: usize = 512 * 1024;
/// What the C libraries say where there is no such name, or no address of it: answers, which others of their words are not.
const NO_SUCH_NAME: &[&str] = &[
    "Name or service not known",
    "No address associated with hostname",
    "Name does not resolve",
    "Name has no usable address",
    "nodename nor servname provided, or not known",
];

/// Finds the addresses of a name; may take its time.
#[derive(Clone)]
pub struct Lookup(Arc<Blocking>);

type Blocking = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Lookup {
    /// By this function, which may block.
    pub fn by(find: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }
}

impl Default for Lookup {
    /// As the system does: hosts file, name servers, and other sources that it is set up for.
    fn default() -> Self {
        Self::by(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

/// Why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAddress {
    /// The name server says that there is none.
    #[error("host {0}: {1}")]
    Unknown(String, String),
    /// The lookup failed, and says nothing about the name.
    #[error("host {0}: the lookup failed: {1}")]
    Failed(String, String),
    /// No answer came.
    #[error("host {0}: no answer of a name server within {1} ms")]
    Late(String, u128),
    /// Too many lookups are under way; it had no turn.
    #[error("host {0}: too many other names are being looked up")]
    Busy(String),
}

impl NoAddress {
    /// Whether it is an answer about the name, and not a trouble on the way to one.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Unknown(..))
    }
}

type Found = Result<Arc<[IpAddr]>, NoAddress>;

/// Names and their addresses. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Names(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lookup: Lookup,
    shares: Shares,
    patience: Duration,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Clone, Debug)]
enum Known {
    /// A lookup is under way, since then.
    Asked(watch::Receiver<Option<Found>>, Instant),
    /// It counts until then.
    Found(Found, Instant),
}

impl Names {
    /// At most `lookups_max` lookups at a time, each of which is waited for as long as `patience`.
    pub(crate) fn new(lookup: Lookup, lookups_max: usize, patience: Duration) -> Self {
        let shares = Shares::new(lookups_max);
        Self(Arc::new(Inner { lookup, shares, patience, known: Mutex::default() }))
    }

    /// The addresses of a name, at the charge of a namespace.
    pub(crate) async fn find(&self, name: &str, namespace: &str) -> Found {
        let (mut answer, since) = match self.ask(name, namespace) {
            Known::Found(found, _) => return found,
            Known::Asked(answer, since) => (answer, since),
        };
        let late = || NoAddress::Late(name.to_owned(), self.0.patience.as_millis());
        let answered = tokio::time::timeout_at(since + self.0.patience, answer.wait_for(Option::is_some));
        match answered.await {
            Ok(Ok(found)) => found.clone().unwrap_or_else(|| Err(late())),
            // The task that looks it up has gone, or takes too long.
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }

    /// What is known of a name; begins to look where that is nothing.
    fn ask(&self, name: &str, namespace: &str) -> Known {
        let now = instant_now();
        let mut known = self.lock();
        match known.get(name) {
            Some(Known::Found(_, until)) if *until <= now => {}
            // Its task has gone with the runtime that ran it.
            Some(Known::Asked(answer, _)) if answer.has_changed().is_err() => {}
            Some(one) => return one.clone(),
            None => {}
        }
        if known.len() >= SWEEP_AT {
            known.retain(|_, one| match one {
                Known::Found(_, until) => *until > now,
                Known::Asked(answer, _) => answer.has_changed().is_ok(),
            });
        }
        let (sender, answer) = watch::channel(None);
        let asked = Known::Asked(answer, now);
        known.insert(name.to_owned(), asked.clone());
        drop(known);
        let (names, name) = (self.clone(), name.to_owned());
        // Many names of one zone hang together, and a name has one lookup at a time.
        let namespace = Claim::nearly_all(key_of(("namespace", namespace)));
        let claims = [namespace, Claim::half(("zone", zone(&name))), Claim::most(("name", &name))];
        tokio::spawn(names.look_up(name, claims, sender, now));
        asked
    }

    async fn look_up(
        self,
        name: String,
        claims: Claims,
        sender: watch::Sender<Option<Found>>,
        since: Instant,
    ) {
        let found = match tokio::time::timeout_at(since + self.0.patience, self.0.shares.take(claims)).await {
            Ok(Some(place)) => {
                let (done, result) = tokio::sync::oneshot::channel();
                let (lookup, asked) = (self.0.lookup.clone(), name.clone());
                let thread = std::thread::Builder::new().name("lookup".to_owned()).stack_size(STACK);
                let begun = thread.spawn(move || {
                    let found = (lookup.0)(&asked);
                    drop(place);
                    // Nobody may wait any more.
                    let _gone = done.send(found);
                });
                match begun {
                    Ok(_) => result.await.unwrap_or_else(|_| Err(io::Error::other("it broke off"))),
                    Err(error) => Err(error),
                }
                .map_err(|error| judged(&name, &error))
                .and_then(|found| match found {
                    none if none.is_empty() => {
                        Err(NoAddress::Unknown(name.clone(), "it has no address".to_owned()))
                    }
                    some => Ok(some.into()),
                })
            }
            Ok(None) | Err(_) => Err(NoAddress::Busy(name.clone())),
        };
        let counts_for = if found.is_ok() { FOUND_FOR } else { FAILED_FOR };
        self.lock().insert(name, Known::Found(found.clone(), instant_now() + counts_for));
        sender.send_replace(Some(found));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last two labels of a name: as a rule, whose name servers answer for it.
fn zone(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    name.rmatch_indices('.').nth(1).map_or(name, |(dot, _)| &name[dot + 1..])
}

fn judged(name: &str, error: &io::Error) -> NoAddress {
    let text = error.to_string();
    if error.raw_os_error().is_none() && NO_SUCH_NAME.iter().any(|words| text.contains(words)) {
        return NoAddress::Unknown(name.to_owned(), text);
    }
    NoAddress::Failed(name.to_owned(), text)
}

/// For AWS's own hosts, whose addresses may be private ones of a VPC.
impl ResolveDns for Names {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move {
            let found = self.find(name, "").await.map_err(ResolveDnsError::new)?;
            Ok(found.to_vec())
        })
    }
}

/// Addresses as connectors want them, whose ports they set themselves.
pub(crate) fn without_port(addresses: &[IpAddr]) -> impl Iterator<Item = SocketAddr> {
    addresses.iter().map(|address| SocketAddr::new(*address, 0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use futures::future::join_all;

    use super::*;

    /// Looks up `ok-…` at once and `no-…` in vain; anything else hangs until the sender is dropped.
    fn names(lookups_max: usize, patience_ms: u64) -> (Names, Arc<Mutex<Vec<String>>>, mpsc::Sender<()>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (release, hangs) = mpsc::channel::<()>();
        let (log, hangs) = (asked.clone(), Mutex::new(hangs));
        let lookup = Lookup::by(move |name| {
            log.lock().unwrap().push(name.to_owned());
            if name.starts_with("no-") {
                return Err(io::Error::other("failed to lookup: Name or service not known"));
            }
            if !name.starts_with("ok-") {
                // Only one can wait here; the others wait for it.
                let _over = hangs.lock().unwrap().recv();
            }
            Ok(vec![IpAddr::from([127, 0, 0, 1])])
        });
        (Names::new(lookup, lookups_max, Duration::from_millis(patience_ms)), asked, release)
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_however_many_ask() {
        let (names, asked, _release) = names(8, 10_000);
        let found = join_all((0..500).map(|_| names.find("ok-a", "n"))).await;
        assert!(found.iter().all(|one| one.as_deref() == Ok(&[IpAddr::from([127, 0, 0, 1])])));
        assert_eq!(*asked.lock().unwrap(), ["ok-a"]);
        let failed = names.find("no-a", "n").await.unwrap_err();
        assert!(failed.is_answer() && failed.to_string().starts_with("host no-a: "), "{failed}");
    }

    #[test]
    fn a_zone_is_the_last_two_labels() {
        for (name, expected) in
            [("a.b.example.com", "example.com"), ("example.com.", "example.com"), ("localhost", "localhost")]
        {
            assert_eq!(zone(name), expected);
        }
    }

    #[tokio::test]
    async fn names_that_hang_stop_no_others() {
        let (names, asked, release) = names(8, 300);
        // Of one zone, a hundred names, each asked for by several.
        let hung = join_all((0..300).map(|n| {
            let names = names.clone();
            async move { names.find(&format!("hangs-{}.bad.test", n % 100), "n").await }
        }));
        let healthy = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut found = Vec::new();
            for n in 0..20 {
                found.push(names.find(&format!("ok-{n}.good.test"), "n").await.is_ok());
            }
            found
        };
        let (hung, healthy) = futures::future::join(hung, healthy).await;
        assert_eq!(healthy, [true; 20]);
        assert!(hung.iter().all(|one| one.as_ref().is_err_and(|error| !error.is_answer())));
        let threads = asked.lock().unwrap().iter().filter(|name| name.starts_with("hangs")).count();
        assert_eq!(threads, 4, "half of the places");
        // Who comes later does not wait as long again.
        let late =
            tokio::time::timeout(Duration::from_millis(100), names.find("hangs-0.bad.test", "n")).await;
        assert!(matches!(late, Ok(Err(NoAddress::Late(..) | NoAddress::Busy(_)))), "{late:?}");
        drop(release);
    }
}
