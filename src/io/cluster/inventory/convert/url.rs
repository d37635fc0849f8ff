//! `clientConfig.url`, read as strictly as the API server validates it.
//!
//! kubernetes 1.36, `apis/util/webhook/validation.go`: https only, a host, no user information, no fragment
//! and no query. Objects stored before a rule existed can still break it.

use std::net::Ipv6Addr;

use crate::domain::cluster::hook::UrlTarget;

const DEFAULT_PORT: u16 = 443;

/// Parses a URL. The error is a clause that says what is wrong with it.
pub(super) fn parse(url: &str) -> Result<UrlTarget, String> {
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| format!("url {url:?} is not a URL; it has to begin with https://"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // Checked first, because the messages below quote the URL: they must not repeat a password.
    if authority.contains('@') {
        return Err("url holds user information, which is not allowed".to_owned());
    }
    if !scheme.eq_ignore_ascii_case("https") {
        return Err(format!(
            "url {url:?} has the scheme {scheme:?}; only https is allowed"
        ));
    }
    let (rest, fragment) = split_off(rest, '#');
    if !fragment.is_empty() {
        return Err(format!("url {url:?} has a fragment, which is not allowed"));
    }
    let (rest, query) = split_off(rest, '?');
    if !query.is_empty() {
        return Err(format!("url {url:?} has a query, which is not allowed"));
    }
    let path = &rest[authority.len()..];
    let (host, port) = host_and_port(authority).map_err(|why| format!("url {url:?}: {why}"))?;
    Ok(UrlTarget {
        host: host.to_owned(),
        port,
        path: super::called_path(path),
    })
}

fn split_off(text: &str, at: char) -> (&str, &str) {
    text.split_once(at).unwrap_or((text, ""))
}

fn host_and_port(authority: &str) -> Result<(&str, u16), String> {
    let (host, port) = if let Some(inside) = authority.strip_prefix('[') {
        let (host, rest) = inside
            .split_once(']')
            .ok_or("the bracket of the IPv6 address is not closed")?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(format!("{host:?} is not an IPv6 address"));
        }
        let port = match rest.strip_prefix(':') {
            Some(port) => port,
            None if rest.is_empty() => "",
            None => return Err(format!("{rest:?} after the IPv6 address is not a port")),
        };
        (host, port)
    } else {
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        if !host.chars().all(is_plain) {
            return Err(format!("{host:?} is not a host name"));
        }
        (host, port)
    };
    if port.is_empty() {
        return Ok((host, DEFAULT_PORT));
    }
    // `u16::from_str` would accept "+1".
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number) if digits && number > 0 => Ok((host, number)),
        _ => Err(format!("{port:?} is not a port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        for (url, host, port, path) in [
            ("https://hooks.example", "hooks.example", 443, "/"),
            (
                "HTTPS://hooks.example:8443/a/b%20c",
                "hooks.example",
                8443,
                "/a/b%20c",
            ),
            ("https://10.0.0.7:443/", "10.0.0.7", 443, "/"),
            ("https://[2001:db8::7]/x", "2001:db8::7", 443, "/x"),
            ("https://[::1]:9443/x:y@z", "::1", 9443, "/x:y@z"),
            ("https://hooks.example:/x", "hooks.example", 443, "/x"),
            ("https://hooks.example/x?#", "hooks.example", 443, "/x"),
            ("https://hooks.example/x/", "hooks.example", 443, "/x"),
            ("https://hooks.example//x/./y/../z", "hooks.example", 443, "/x/z"),
        ] {
            let expected = UrlTarget {
                host: host.to_owned(),
                port,
                path: path.to_owned(),
            };
            assert_eq!(parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn what_the_api_server_refuses_is_refused_with_the_reason() {
        for (url, says) in [
            ("", "is not a URL"),
            ("hooks.example/x", "is not a URL"),
            ("http://hooks.example", "only https"),
            ("https://", "no host"),
            ("https:///x", "no host"),
            ("https://:443/x", "no host"),
            ("https://u:p@hooks.example", "user information"),
            ("https://@hooks.example", "user information"),
            ("https://hooks.example/x?a=b", "a query"),
            ("https://hooks.example/x#f", "a fragment"),
            ("https://hooks.example:x", "not a port"),
            ("https://hooks.example:+1", "not a port"),
            ("https://hooks.example:0", "not a port"),
            ("https://hooks.example:65536", "not a port"),
            ("https://a:b:c", "not a port"),
            ("https://[::1", "not closed"),
            ("https://[10.0.0.7]", "not an IPv6"),
            ("https://[fe80::1%25eth0]", "not an IPv6"),
            ("https://[::1]x", "not a port"),
            ("https://ho st/", "not a host name"),
        ] {
            let why = parse(url).expect_err(url);
            assert!(why.contains(says), "{url}: {why}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_repeated() {
        for url in [
            "https://u:secret@h",
            "http://u:secret@h?q#f",
            "https://u:secret@[::1",
        ] {
            let why = parse(url).expect_err("user information");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
