//! The address of a daemon, as given on the command line.

use std::fmt;
use std::str::FromStr;

use http::Uri;

use crate::io::client::is_loopback;

/// The address of a daemon's page and API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether the scheme is `https`.
    pub encrypted: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The prefix of the daemon's paths, without a trailing slash; empty without one.
    pub prefix: String,
}

/// The text is not the address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address of a daemon: {why}; write it like http://127.0.0.1:9880")]
pub struct BadAddress {
    text: String,
    why: &'static str,
}

impl Address {
    /// Host and port as in a `Host` header, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether the host is `localhost` or a loopback address.
    pub fn is_this_host(&self) -> bool {
        is_loopback(&self.host)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = |why| BadAddress {
            text: text.to_owned(),
            why,
        };
        let uri: Uri = text.parse().map_err(|_| bad("it is no URL"))?;
        let encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("it begins neither with http:// nor with https://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("a name and a password are not sent; use --token-file"));
        }
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        Ok(Self {
            encrypted,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 }),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_shown_again() {
        for (text, shown) in [
            ("http://127.0.0.1:9880", "http://127.0.0.1:9880"),
            ("http://localhost/", "http://localhost:80"),
            ("https://[::1]:1/", "https://[::1]:1"),
            (
                "https://hookwatch.example.com/a/b/",
                "https://hookwatch.example.com:443/a/b",
            ),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.is_this_host(), !text.contains("example"), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_says_how_one_looks() {
        for text in [
            "",
            "127.0.0.1:9880",
            "ftp://x",
            "http://",
            "http://u:p@x",
            "http://x?y=1",
            "http://x y",
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("http://127.0.0.1:9880"), "{error}");
        }
    }
}
