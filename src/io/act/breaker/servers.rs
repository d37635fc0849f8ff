//! Clients for every reachable API server.

use std::time::Duration;

use futures::future::join_all;
use kube::Client;

use super::request::{ApiReply, send};
use crate::domain::act::bypass::MATCH_CONDITIONS_SINCE;
use crate::io::client::Connection;
use crate::io::observe::scrape::addresses;

/// Most API servers that are asked: more than any control plane has.
const MAX_SERVERS: usize = 32;
/// Longest wait for the list of API servers. Without it the configured one is enough to act.
const LIST_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for the release of one. An unknown release counts as a supported one.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// A client for an API server.
#[derive(Clone)]
pub struct ApiServerClient {
    /// Host and port.
    pub name: String,
    pub(super) client: Client,
    /// Whether it is a client for exactly one API server.
    pub(super) is_single: bool,
}

impl ApiServerClient {
    /// A client for exactly one API server (`is_single`), or for any of those behind an address.
    pub fn new(name: &str, client: Client, is_single: bool) -> Self {
        Self {
            name: name.to_owned(),
            client,
            is_single,
        }
    }

    /// A client for any of the API servers behind the configured address.
    pub fn configured(connection: &Connection) -> Self {
        Self::new(&connection.server_name(), connection.calls().clone(), false)
    }
}

/// The configured server, then each API server by its own address, if a client for it can be made. Also returns why their list
/// cannot be read, if so. A server in `known` keeps its client: a new one would run a credential plugin and dial again.
pub async fn servers(
    connection: &Connection,
    known: &[ApiServerClient],
) -> (Vec<ApiServerClient>, Option<String>) {
    let mut servers = vec![ApiServerClient::configured(connection)];
    let addresses = match addresses(connection, LIST_LIMIT).await {
        Ok(addresses) => addresses,
        Err(why) => {
            let trouble = format!("the API servers' addresses cannot be read: {why}");
            return (servers, Some(trouble));
        }
    };
    for address in addresses.into_iter().take(MAX_SERVERS) {
        let name = address.to_string();
        if connection.server_address() == Some(address) {
            servers[0].is_single = true;
        } else if let Some(same) = known
            .iter()
            .find(|server| server.is_single && server.name == name)
        {
            servers.push(same.clone());
        } else if let Ok(client) = connection.direct(address).await {
            // If there is no client, the scraper reports why, as it needs the same one.
            servers.push(ApiServerClient::new(&name, client, true));
        }
    }
    (servers, None)
}

/// Whether the API server supports `matchConditions`. `true` where its release is unknown: every supported release does, and
/// the answer to a write shows whether it did.
pub async fn knows_match_conditions(connection: &Connection) -> bool {
    knows(connection.calls()).await
}

/// Whether all API servers support `matchConditions`, as [`knows_match_conditions`] for each.
pub async fn all_know_match_conditions(servers: &[ApiServerClient]) -> bool {
    let asked = servers.iter().map(|server| knows(&server.client));
    join_all(asked).await.into_iter().all(|knows| knows)
}

async fn knows(client: &Client) -> bool {
    let ApiReply::Done(version) = send(client, "/version", None, RELEASE_LIMIT).await else {
        return true;
    };
    let number = |key: &str| {
        let digits: String = version[key]
            .as_str()?
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<u32>().ok()
    };
    match (number("major"), number("minor")) {
        (Some(major), Some(minor)) => (major, minor) >= MATCH_CONDITIONS_SINCE,
        _ => true,
    }
}
