//! Free ports for processes that need an explicit one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The ports to choose from, below those that Linux gives to outgoing connections (32768 and up,
/// `net.ipv4.ip_local_port_range`): no such connection takes a port before the process that it was chosen for.
const RANGE: Range<u16> = 20_000..32_000;
/// How far apart two processes with consecutive ids begin, so that those that choose at the same time rarely collide.
const APART: u32 = 61;

/// How many ports this process has tried so far.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// A port that was free a moment ago on every IPv4 address. Each call returns another one, until all were handed out.
///
/// # Errors
/// When there is none.
pub fn free_port() -> io::Result<u16> {
    let begin = std::process::id().wrapping_mul(APART);
    let all = u32::from(RANGE.end - RANGE.start);
    let next = || begin.wrapping_add(CHOSEN.fetch_add(1, Ordering::Relaxed)) % all;
    // Less than the width of the range, which is a u16.
    let ports = (0..all).map(|_| RANGE.start + next() as u16);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    ports.into_iter().find(is_free).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no port of {} to {} is free", RANGE.start, RANGE.end - 1),
        )
    })
}

/// As [`free_port`], as an address of 127.0.0.1.
///
/// # Errors
/// When there is none.
pub fn free_address() -> io::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_in_a_row_or_while_taken() {
        let first = free_port().expect("a port");
        let held =
            TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().expect("a port"))).expect("still free");
        let taken = held.local_addr().expect("an address").port();
        let later: Vec<u16> = (0..100).map(|_| free_port().expect("a port")).collect();
        assert!(RANGE.contains(&first) && !later.contains(&first) && !later.contains(&taken));
    }
}
