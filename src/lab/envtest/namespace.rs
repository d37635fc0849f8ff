//! A network namespace for the demo: addresses that are not loopback but exist on this machine only.
//!
//! A real API server refuses loopback addresses in EndpointSlices. In a network namespace that has no interface but
//! `lo` and no route, any other address can be put on `lo`, and no packet can leave the machine; the namespace and its
//! addresses disappear with the last process.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Context;

/// The environment variable of the re-executed process, which then does not try again if its namespace turns out unusable.
const ENTERED: &str = "HOOKWATCH_DEMO_NAMESPACE";
/// Flags of `unshare` for a new network namespace: as root, and as any user where user namespaces are allowed.
const WAYS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
/// The last bytes of the addresses that are added: of TEST-NET-1 (RFC 5737), which is reserved for documentation.
const ADDRESSES: std::ops::RangeInclusive<u8> = 1..=10;

/// One of the addresses that live in the namespace only.
pub const fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

/// Whether this process is in such a namespace.
///
/// This tests for missing routes, not for missing interfaces, because some kernels put tunnels that are down into every new
/// namespace.
pub fn entered() -> bool {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    routes.lines().count() == 1
        && ADDRESSES
            .map(address)
            .all(|ip| TcpListener::bind((ip, 0)).is_ok())
}

/// Whether this process is in a user namespace of its own as well, which `nsenter` from outside needs to know.
pub fn has_user() -> bool {
    // In the initial user namespace every id maps to itself, from 0 to the last.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.trim_end().ends_with("4294967295")
}

/// Re-executes this command in a namespace of its own; on success it does not return.
///
/// It returns when this process is in one already, and when the machine does not allow it: then there is no
/// address that a real API server would take for a backend.
///
/// # Errors
/// When the namespace could be made and the command could not be started in it.
pub fn enter() -> anyhow::Result<()> {
    if entered() || std::env::var_os(ENTERED).is_some() {
        return Ok(());
    }
    let Some(way) = WAYS.into_iter().find(|way| tried(way)) else {
        return Ok(());
    };
    let ourselves = std::env::current_exe().context("finding our own binary")?;
    let mut command = unshare(way, &format!("({}) && exec \"$0\" \"$@\"", set_up()));
    command
        .arg(ourselves)
        .args(std::env::args_os().skip(1))
        .env(ENTERED, "yes");
    for name in proxies() {
        // No proxy can be reached from inside.
        command.env_remove(name);
    }
    // The process id stays the same, so a parent that waits for this process or signals it notices nothing.
    Err(command.exec()).context("starting again in a network namespace")
}

/// Whether a namespace can be made in this way; what is made for the trial is gone afterwards.
fn tried(way: &[&str]) -> bool {
    unshare(way, &set_up())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn unshare(way: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(way).args(["--", "sh", "-c", script]);
    command
}

fn set_up() -> String {
    let addresses = ADDRESSES.map(|last| format!(" && ip address add {}/32 dev lo", address(last)));
    format!("ip link set lo up{}", addresses.collect::<String>())
}

fn proxies() -> impl Iterator<Item = impl AsRef<OsStr>> {
    std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_ascii_lowercase().to_string_lossy().ends_with("_proxy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_namespace_are_for_documentation_only() {
        for last in ADDRESSES {
            let IpAddr::V4(ip) = address(last) else {
                panic!("not IPv4");
            };
            assert!(ip.is_documentation());
        }
    }

    #[test]
    fn a_machine_with_routes_is_not_taken_for_a_namespace_and_what_is_made_for_a_trial_does_not_stay() {
        let before = entered();
        for way in WAYS {
            tried(way);
        }
        assert_eq!(entered(), before);
    }
}
