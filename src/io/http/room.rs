//! Room for a bounded number of connections. A new connection is always let in; where there is no room for it, another one is
//! closed. A peer with [`MAX_OF_A_PEER`] loses one of its own; when [`MAX_CONNECTIONS`] are open, the peer with most connections
//! loses one. Connections without a request go first, then idle ones, and the oldest of these, so slow clients crowd out each other
//! and not the kubelet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::task::AbortHandle;

use crate::io::lock;

/// Most connections open at once. A scraper, a few people and the kubelet's probes need ten.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Most open connections of one peer. A browser opens six for a page.
pub(super) const MAX_OF_A_PEER: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionRoom(Arc<Mutex<OpenConnections>>);

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// By their numbers, the oldest first.
    taken: BTreeMap<u64, ConnectionSlot>,
}

#[derive(Debug)]
struct ConnectionSlot {
    peer: IpAddr,
    phase: ConnectionPhase,
    task: Option<AbortHandle>,
}

/// What a connection is doing; those with an earlier variant are closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionPhase {
    /// It has not sent a complete request yet.
    NoRequest,
    /// Its last request was answered.
    Idle,
    /// Its request is being answered.
    Answering,
}

/// A connection that was let in. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    room: ConnectionRoom,
    /// Its key in [`OpenConnections::taken`].
    pub(super) number: u64,
}

impl ConnectionRoom {
    /// Lets one more in, and closes another one if there is no room.
    pub(super) fn enter(&self, address: IpAddr) -> ConnectionPermit {
        let peer = peer(address);
        let mut places = self.lock();
        if let Some(number) = places.to_close(peer)
            && let Some(place) = places.taken.remove(&number)
            && let Some(task) = place.task
        {
            task.abort();
        }
        let number = places.next;
        places.next += 1;
        let place = ConnectionSlot {
            peer,
            phase: ConnectionPhase::NoRequest,
            task: None,
        };
        places.taken.insert(number, place);
        drop(places);
        ConnectionPermit {
            room: self.clone(),
            number,
        }
    }

    /// Sets the task that serves a connection, which is aborted to close it.
    pub(super) fn abort_with(&self, number: u64, task: AbortHandle) {
        if let Some(place) = self.lock().taken.get_mut(&number) {
            place.task = Some(task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        lock(&self.0)
    }
}

impl OpenConnections {
    /// The connection to close before one more of a peer is let in; `None` if there is room.
    fn to_close(&self, peer: IpAddr) -> Option<u64> {
        let mut each = BTreeMap::<IpAddr, usize>::from([(peer, 0)]);
        for place in self.taken.values() {
            *each.entry(place.peer).or_default() += 1;
        }
        let crowd = if each[&peer] >= MAX_OF_A_PEER {
            peer
        } else if self.taken.len() < MAX_CONNECTIONS {
            return None;
        } else {
            each.into_iter().max_by_key(|(_, taken)| *taken)?.0
        };
        let places = self.taken.iter().filter(|(_, place)| place.peer == crowd);
        let first = places.min_by_key(|(number, place)| (place.phase, **number));
        first.map(|(number, _)| *number)
    }
}

impl ConnectionPermit {
    /// It sent a complete request.
    pub(super) fn asks(&self) {
        self.set(ConnectionPhase::Answering);
    }

    /// Its request was answered.
    pub(super) fn answered(&self) {
        self.set(ConnectionPhase::Idle);
    }

    fn set(&self, phase: ConnectionPhase) {
        if let Some(place) = self.room.lock().taken.get_mut(&self.number) {
            place.phase = phase;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.room.lock().taken.remove(&self.number);
    }
}

/// The peer of an address. An IPv6 host has a whole /64, so that counts as one peer.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn numbers(room: &ConnectionRoom) -> Vec<u64> {
        room.lock().taken.keys().copied().collect()
    }

    #[test]
    fn a_peer_that_opens_ever_more_crowds_out_itself_alone() {
        let room = ConnectionRoom::default();
        let kubelet = room.enter(address(1));
        let slow: Vec<ConnectionPermit> = (0..160).map(|_| room.enter(address(2))).collect();
        let left = numbers(&room);
        assert_eq!(left.len(), 1 + MAX_OF_A_PEER);
        assert!(left.contains(&kubelet.number) && left.contains(&slow[159].number));
    }

    #[test]
    fn of_many_peers_the_one_with_most_leaves_and_of_its_connections_the_oldest_that_is_waited_for() {
        let room = ConnectionRoom::default();
        let kubelet = room.enter(address(1));
        let crowd: Vec<ConnectionPermit> = (0..MAX_CONNECTIONS + 8)
            .map(|number| room.enter(address(2 + (number % 4) as u8)))
            .collect();
        // Each has sixteen at most, and there are four of them.
        assert_eq!(numbers(&room).len(), MAX_CONNECTIONS);
        assert!(numbers(&room).contains(&kubelet.number));
        let [asks, answered] = [&crowd[68], &crowd[67]];
        let known = numbers(&room);
        assert!(known.contains(&asks.number) && known.contains(&answered.number));
        asks.asks();
        answered.answered();
        let later: Vec<ConnectionPermit> = (0..32).map(|number| room.enter(address(100 + number))).collect();
        let left = numbers(&room);
        assert_eq!(left.len(), MAX_CONNECTIONS);
        assert!(later.iter().all(|guest| left.contains(&guest.number)));
        assert!(left.contains(&asks.number) && left.contains(&kubelet.number));
    }

    #[test]
    fn a_place_is_given_back_once() {
        let room = ConnectionRoom::default();
        let guests: Vec<ConnectionPermit> = (0..40).map(|_| room.enter(address(1))).collect();
        assert_eq!(numbers(&room).len(), MAX_OF_A_PEER);
        drop(guests);
        assert!(numbers(&room).is_empty());
    }

    #[test]
    fn a_host_has_one_place_among_the_peers_however_many_addresses_it_uses() {
        let same: [IpAddr; 2] = [
            "2001:db8::1".parse().unwrap(),
            "2001:db8::ffff:2".parse().unwrap(),
        ];
        assert_eq!(peer(same[0]), peer(same[1]));
        assert_ne!(peer(same[0]), peer("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(peer("::ffff:10.0.0.1".parse().unwrap()), address(1));
    }
}
