//! The keys for a server outside the Kubernetes API: its URL, the CA that hookwatch trusts, and hookwatch's credentials.

use std::path::PathBuf;

use reqwest::Url;

use super::Section;
use crate::io::endpoint::{Auth, EndpointTarget};

/// Reads the keys of one server. `url` is from a flag or the file. `is_no_prefix` says why an otherwise valid URL cannot be the
/// prefix for this kind of server; `None` if it can.
pub(super) fn read(
    section: &mut Section<'_>,
    url: Option<String>,
    is_no_prefix: impl Fn(&Url) -> Option<&'static str>,
) -> Option<EndpointTarget> {
    let url = url.and_then(|text| {
        let parsed = address(&text).and_then(|url| match is_no_prefix(&url) {
            Some(why) => Err(why.to_owned()),
            None => Ok(url),
        });
        parsed.map_err(|why| section.error("url", why)).ok()
    });
    let mut file = |key: &str| section.text(key).map(PathBuf::from);
    let (ca_file, certificate, key) = (file("caFile"), file("certFile"), file("keyFile"));
    let (password_file, token_file) = (file("passwordFile"), file("tokenFile"));
    let username = section.text("username");
    match (&certificate, &key) {
        (Some(_), None) => section.error("keyFile", "is missing: a certificate needs its key"),
        (None, Some(_)) => section.error("certFile", "is missing: a key needs its certificate"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let auth = match (username, password_file, token_file) {
        (None, None, None) => Auth::None,
        (None, None, Some(token_file)) => Auth::Bearer { token_file },
        (Some(username), Some(password_file), None) => {
            if username.contains(':') || username.chars().any(char::is_control) {
                section.error("username", "cannot have a colon or a control character in it");
            }
            Auth::Basic {
                username,
                password_file,
            }
        }
        (Some(_), None, None) => {
            section.error("passwordFile", "is missing: a username needs a password");
            Auth::None
        }
        (None, Some(_), None) => {
            section.error("username", "is missing: a password needs a username");
            Auth::None
        }
        (_, _, Some(_)) => {
            section.error("tokenFile", "and a password exclude each other");
            Auth::None
        }
    };
    if url.as_ref().is_some_and(|url| url.scheme() == "http") && (ca_file.is_some() || certificate.is_some())
    {
        section.error(
            "url",
            "must begin with https:// where caFile or certFile is given",
        );
    }
    Some(EndpointTarget {
        url: url?,
        ca_file,
        client_certificate: certificate.zip(key),
        auth,
    })
}

/// Parses a URL that has no credentials, query or fragment. Errors do not repeat the text: a password may be in it.
pub(super) fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("is no address like https://monitoring.example.com/prefix: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
        return Err("must begin with http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "must not have a user or password in it: those belong in username and passwordFile".to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or fragment".to_owned());
    }
    Ok(url)
}
