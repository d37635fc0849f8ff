//! Clients for every reachable API server.

use std::time::Duration;

use futures::future::join_all;
use kube::Client;

use super::request::{ApiReply, send};
use crate::domain::act::bypass::MATCH_CONDITIONS_SINCE;
use crate::io::client::Connection;
use crate::io::observe::scrape::addresses;

/// More than any control plane has.
const MAX_SERVERS: usize = 32;
/// Longest wait for the list of them. The configured one is enough to act.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for the release of one. One that does not say it counts as one that knows all it should.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// A client for an API server.
#[derive(Clone)]
pub struct ApiServerClient {
    /// Host and port.
    pub name: String,
    pub(super) client: Client,
    pub(super) one: bool,
}

impl ApiServerClient {
    /// A client for one API server (`one`), or for any of those behind an address.
    pub fn new(name: &str, client: Client, one: bool) -> Self {
        Self {
            name: name.to_owned(),
            client,
            one,
        }
    }

    /// A client for any of the API servers behind the configured address.
    pub fn configured(connection: &Connection) -> Self {
        Self::new(&connection.server_name(), connection.calls().clone(), false)
    }
}

/// The configured server, then each API server by its own address, if there is a client for it. With the reason if their list cannot
/// be read. One that is among `known` keeps its client: another would run a credential plugin again and dial again.
pub async fn servers(
    connection: &Connection,
    known: &[ApiServerClient],
) -> (Vec<ApiServerClient>, Option<String>) {
    let mut servers = vec![ApiServerClient::configured(connection)];
    let addresses = match addresses(connection, LIMIT).await {
        Ok(addresses) => addresses,
        Err(why) => {
            let trouble = format!("the API servers' addresses cannot be read: {why}");
            return (servers, Some(trouble));
        }
    };
    for address in addresses.into_iter().take(MAX_SERVERS) {
        let name = address.to_string();
        if connection.server_address() == Some(address) {
            servers[0].one = true;
        } else if let Some(same) = known.iter().find(|server| server.one && server.name == name) {
            servers.push(same.clone());
        } else if let Ok(client) = connection.direct(address).await {
            // Why there is none, the scraper says, which is in need of the same.
            servers.push(ApiServerClient::new(&name, client, true));
        }
    }
    (servers, None)
}

/// Whether the API server knows `matchConditions`; `true` where its release is unknown, as every supported one does,
/// and the result of a write is checked anyway.
pub async fn knows_match_conditions(connection: &Connection) -> bool {
    knows(connection.calls()).await
}

/// Whether all of them do, according to their answers.
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
