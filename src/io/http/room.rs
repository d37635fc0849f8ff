//! Room for a bounded number of connections. A new connection is always let in. Where there is no room, the peer with most
//! connections loses its oldest idle one, so slow clients crowd out each other and not the kubelet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::task::AbortHandle;

use crate::io::lock;

/// Connections open at once. A scraper, a few people and the kubelet's probes need ten.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Those of one peer. A browser opens six for a page.
pub(super) const MAX_OF_A_PEER: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionRoom(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// In the order of their coming.
    taken: BTreeMap<u64, ConnectionSlot>,
}

#[derive(Debug)]
struct ConnectionSlot {
    peer: IpAddr,
    stands: Stands,
    leaves: Option<AbortHandle>,
}

/// What is going on at a connection; the least leaves first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    /// No request of it has ever come whole.
    Silent,
    /// Its last request was answered.
    Answered,
    /// A request of it is being answered.
    Asks,
}

/// One that was let in. Dropping it gives its place back.
#[derive(Debug)]
pub(super) struct Guest {
    room: ConnectionRoom,
    /// By which its place is known.
    pub(super) number: u64,
}

impl ConnectionRoom {
    /// Lets one more in, and ends the connection of another one where there is no room.
    pub(super) fn enter(&self, address: IpAddr) -> Guest {
        let peer = peer(address);
        let mut places = self.lock();
        if let Some(number) = places.to_leave(peer)
            && let Some(place) = places.taken.remove(&number)
            && let Some(leaves) = place.leaves
        {
            leaves.abort();
        }
        let number = places.next;
        places.next += 1;
        let place = ConnectionSlot {
            peer,
            stands: Stands::Silent,
            leaves: None,
        };
        places.taken.insert(number, place);
        drop(places);
        Guest {
            room: self.clone(),
            number,
        }
    }

    /// How the connection at a place is ended.
    pub(super) fn ends_by(&self, number: u64, handle: AbortHandle) {
        if let Some(place) = self.lock().taken.get_mut(&number) {
            place.leaves = Some(handle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        lock(&self.0)
    }
}

impl Places {
    /// The connection to close for one more of a peer.
    fn to_leave(&self, peer: IpAddr) -> Option<u64> {
        let mut each = BTreeMap::<IpAddr, usize>::from([(peer, 0)]);
        for place in self.taken.values() {
            *each.entry(place.peer).or_default() += 1;
        }
        let crowd = match each[&peer] >= MAX_OF_A_PEER {
            true => peer,
            false if self.taken.len() < MAX_CONNECTIONS => return None,
            false => each.into_iter().max_by_key(|(_, taken)| *taken)?.0,
        };
        let places = self.taken.iter().filter(|(_, place)| place.peer == crowd);
        let first = places.min_by_key(|(number, place)| (place.stands, **number));
        first.map(|(number, _)| *number)
    }
}

impl Guest {
    /// A request of it came whole.
    pub(super) fn asks(&self) {
        self.stands(Stands::Asks);
    }

    /// That was answered.
    pub(super) fn answered(&self) {
        self.stands(Stands::Answered);
    }

    fn stands(&self, stands: Stands) {
        if let Some(place) = self.room.lock().taken.get_mut(&self.number) {
            place.stands = stands;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.room.lock().taken.remove(&self.number);
    }
}

/// The peer of an address: with IPv6 a host has a whole /64.
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
        let slow: Vec<Guest> = (0..160).map(|_| room.enter(address(2))).collect();
        let left = numbers(&room);
        assert_eq!(left.len(), 1 + MAX_OF_A_PEER);
        assert!(left.contains(&kubelet.number) && left.contains(&slow[159].number));
    }

    #[test]
    fn of_many_peers_the_one_with_most_leaves_and_of_its_connections_the_oldest_that_is_waited_for() {
        let room = ConnectionRoom::default();
        let kubelet = room.enter(address(1));
        let crowd: Vec<Guest> = (0..MAX_CONNECTIONS + 8)
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
        let later: Vec<Guest> = (0..32).map(|number| room.enter(address(100 + number))).collect();
        let left = numbers(&room);
        assert_eq!(left.len(), MAX_CONNECTIONS);
        assert!(later.iter().all(|guest| left.contains(&guest.number)));
        assert!(left.contains(&asks.number) && left.contains(&kubelet.number));
    }

    #[test]
    fn a_place_is_given_back_once() {
        let room = ConnectionRoom::default();
        let guests: Vec<Guest> = (0..40).map(|_| room.enter(address(1))).collect();
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
