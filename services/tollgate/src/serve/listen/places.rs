//! Decides how many of the port's connections each address has.
//!
//! In: where a connection comes from. Out: its place, or the bound that keeps it out. Invariants: there are no more than
//! [`LEAVING_MAX`] above their number, and those are being closed; an address has at most half of what the others leave
//! free, so that one that opens as many as it can leaves places to the next; one that has not begun a request gives its
//! place to one that comes, first of all for the same address. Not here: when one that says nothing has had its time.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tollgate_metrics::Bound;

/// Connections that have lost their places and are still open: as many as there are files to spare.
const LEAVING_MAX: usize = 64;
/// Of an IPv6 address, what one user has all of.
const NETWORK_V6: u128 = u128::MAX << 64;

/// The places of all connections. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPlaces(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    total: usize,
    /// Whether callers come from different addresses.
    divided: bool,
    used: usize,
    leaving: usize,
    held: HashMap<IpAddr, Held>,
}

/// What one address has.
#[derive(Debug, Default)]
struct Held {
    count: usize,
    /// Those that have not begun a request, oldest first; some have, or have gone.
    idle: VecDeque<Idle>,
}

#[derive(Debug)]
struct Idle {
    evict: oneshot::Sender<()>,
    has_left: Arc<AtomicBool>,
}

/// The place of one connection; given back when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    places: ConnectionPlaces,
    address: IpAddr,
    /// Somebody else has it.
    has_left: Arc<AtomicBool>,
}

/// A place that has been taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) place: ConnectionPlace,
    /// Somebody else gets it.
    pub(super) evicted: oneshot::Receiver<()>,
    /// All places were taken: it is one that another connection had.
    pub(super) was_full: bool,
}

impl ConnectionPlace {
    /// Whose it is.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }
}

/// Whose connections count together: an IPv4 address, or the network that one user of IPv6 has.
pub(super) fn address_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_V6).into(),
        v4 => v4,
    }
}

impl ConnectionPlaces {
    /// `total` places, divided among addresses or not.
    pub(super) fn new(total: usize, divided: bool) -> Self {
        let (used, leaving) = (0, 0);
        Self(Arc::new(Mutex::new(State { total, divided, used, leaving, held: HashMap::new() })))
    }

    /// A place for a connection from this address, of those that [`address_of`] gives.
    pub(super) fn take(&self, address: IpAddr) -> Result<Taken, Bound> {
        let mut state = self.lock();
        let was_full = state.used >= state.total;
        let victim = if state.has_its_part(address) {
            Some((address, Bound::AddressConnections))
        } else {
            was_full.then(|| state.greediest()).map(|victim| (victim.unwrap_or(address), Bound::Connections))
        };
        if let Some((victim, bound)) = victim
            && !state.evict(victim)
        {
            return Err(bound);
        }
        let (evict, evicted) = oneshot::channel();
        let has_left = Arc::<AtomicBool>::default();
        state.used += 1;
        let held = state.held.entry(address).or_default();
        held.count += 1;
        held.sweep();
        held.idle.push_back(Idle { evict, has_left: has_left.clone() });
        Ok(Taken { place: ConnectionPlace { places: self.clone(), address, has_left }, evicted, was_full })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether an address has all that it may have.
    fn has_its_part(&self, address: IpAddr) -> bool {
        let held = self.held.get(&address).map_or(0, |held| held.count);
        let free = self.total.saturating_sub(self.used);
        self.divided && held >= ((free + held) / 2).max(1)
    }

    /// Of those that have a connection without a request the one with the most connections.
    fn greediest(&mut self) -> Option<IpAddr> {
        let all = self.held.iter_mut().filter_map(|(address, held)| {
            held.sweep();
            (!held.idle.is_empty()).then_some((held.count, *address))
        });
        all.max().map(|(_, address)| address)
    }

    /// Has an address's oldest connection without a request closed; false where there is none.
    fn evict(&mut self, address: IpAddr) -> bool {
        let Some(held) = self.held.get_mut(&address).filter(|_| self.leaving < LEAVING_MAX) else {
            return false;
        };
        while let Some(Idle { evict, has_left }) = held.idle.pop_front() {
            if evict.send(()).is_ok() {
                has_left.store(true, Ordering::Relaxed);
                self.leaving += 1;
                self.forget(address);
                return true;
            }
        }
        false
    }

    fn forget(&mut self, address: IpAddr) {
        self.used -= 1;
        if let Some(held) = self.held.get_mut(&address) {
            held.count -= 1;
            if held.count == 0 {
                self.held.remove(&address);
            }
        }
    }
}

impl Held {
    fn sweep(&mut self) {
        while self.idle.front().is_some_and(|idle| idle.evict.is_closed()) {
            self.idle.pop_front();
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        if self.has_left.load(Ordering::Relaxed) {
            state.leaving -= 1;
        } else {
            state.forget(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// As many as an address gets, each with a request that has begun.
    fn all(places: &ConnectionPlaces, address: IpAddr) -> Vec<ConnectionPlace> {
        std::iter::from_fn(|| places.take(address).ok().map(|taken| taken.place)).collect()
    }

    #[test]
    fn one_address_leaves_half_to_the_others() {
        let places = ConnectionPlaces::new(64, true);
        let one = all(&places, address(1));
        assert_eq!(one.len(), 32);
        assert_eq!(places.take(address(1)).unwrap_err(), Bound::AddressConnections);
        let second = all(&places, address(2));
        assert_eq!(second.len(), 16);
        assert_eq!(all(&places, address(3)).len(), 8);
        drop(one);
        assert_eq!(all(&places, address(1)).len(), 24, "half of what the second leaves");
        drop(second);
        let undivided = ConnectionPlaces::new(64, false);
        assert_eq!(all(&undivided, address(1)).len(), 64);
        let state = places.lock();
        assert_eq!((state.used, state.leaving, state.held.len()), (0, 0, 0));
    }

    #[test]
    fn the_last_places_go_to_those_who_have_none() {
        let places = ConnectionPlaces::new(4, true);
        let held: Vec<_> = (1..=4).flat_map(|last| places.take(address(last))).collect();
        assert_eq!(held.len(), 4);
        // They have begun nothing: one of them goes for one who has none, and for one who has one its own.
        let fifth = places.take(address(5)).unwrap();
        assert!(fifth.was_full);
        let again = places.take(address(5)).unwrap();
        let evicted = |taken: &mut Taken| taken.evicted.try_recv().is_ok();
        let mut fifth = fifth;
        assert!(evicted(&mut fifth), "its own is the oldest of its own");
        assert_eq!(held.into_iter().map(|mut taken| evicted(&mut taken)).filter(|gone| *gone).count(), 1);
        drop((fifth, again));
        let state = places.lock();
        assert_eq!((state.used, state.leaving), (0, 0));
    }

    #[test]
    fn those_that_are_being_closed_are_bounded() {
        let places = ConnectionPlaces::new(2, false);
        let mut taken: Vec<_> = (0..2 + LEAVING_MAX).map(|_| places.take(address(1)).unwrap()).collect();
        assert_eq!(places.take(address(1)).unwrap_err(), Bound::Connections);
        drop(taken.remove(0));
        assert!(places.take(address(1)).is_ok());
    }

    #[test]
    fn the_one_with_the_most_gives_way_before_the_oldest() {
        let places = ConnectionPlaces::new(4, false);
        let mut early = places.take(address(1)).unwrap();
        let mut crowd: Vec<_> = (0..3).map(|_| places.take(address(2)).unwrap()).collect();
        let _new = places.take(address(3)).unwrap();
        assert!(early.evicted.try_recv().is_err());
        assert!(crowd[0].evicted.try_recv().is_ok());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let of = |text: &str| address_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:aaaa::1"), of("2001:db8:1:2:bbbb::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
