//! Reads a kubeconfig so that every mistake in it is found and named before any request.
//!
//! kube goes on where kubectl would not: without the user that the context names it sends anonymous requests, with a CA
//! file that holds no certificate it trusts no server, and it presents a client certificate that has expired. Each of
//! these then looks like a fault of the cluster.

use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use super::{is_loopback, server_host, server_port};
use crate::domain::text::{human, listed};
use crate::domain::time::Time;
use crate::io::file;

/// Most bytes of a kubeconfig. One with the certificates of a thousand clusters has 5 MB.
const MAX_FILE: u64 = 8 * 1024 * 1024;
/// Most known names that are listed when one is missing.
const TOLD: usize = 10;

/// What is wrong with a kubeconfig.
#[derive(Debug, Error)]
pub enum Flaw {
    /// A file cannot be read.
    #[error("{what} {} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file's role in the kubeconfig.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Why it cannot be read.
        why: String,
    },
    /// The file is not text.
    #[error("it is not text and no kubeconfig")]
    Binary,
    /// The file is text, but no kubeconfig.
    #[error("it is no kubeconfig: {0}")]
    NotOne(String),
    /// The kubeconfig names a context, cluster or user that it does not have.
    #[error("there is no {what} {name:?} in it{}", among(known))]
    NoSuch {
        /// Context, cluster or user.
        what: &'static str,
        /// What is missing.
        name: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// It has no current context, and none was asked for.
    #[error("it has no current-context{}; choose one by --context", among(known))]
    NoContext {
        /// The names that it has.
        known: Vec<String>,
    },
    /// The certificate authority of the cluster holds no certificate.
    #[error("the certificate authority of cluster {cluster:?} holds no certificate in PEM ({key})")]
    NoAuthority {
        /// The cluster's name.
        cluster: String,
        /// The key that holds it.
        key: &'static str,
    },
    /// The client certificate cannot be read.
    #[error("the client certificate of user {user:?} cannot be read ({key}): {why}")]
    NoCertificate {
        /// The user's name.
        user: String,
        /// The key that holds it.
        key: &'static str,
        /// Why it cannot be read.
        why: String,
    },
    /// The client certificate is not valid any more, or not yet.
    #[error("the client certificate of user {user:?} {how}; renew it (the API server would answer 401)")]
    OutOfDate {
        /// The user's name.
        user: String,
        /// `expired at ...`.
        how: String,
    },
    /// kube rejects the kubeconfig.
    #[error(transparent)]
    Kube(#[from] KubeconfigError),
}

fn among(known: &[String]) -> String {
    if known.is_empty() {
        ", nor any other".to_owned()
    } else {
        format!("; it has {}", listed(known, TOLD))
    }
}

/// Reads and merges these files and checks what the chosen context needs.
pub(super) fn read(files: &[PathBuf], context: Option<&str>) -> Result<Kubeconfig, Flaw> {
    let merged = files
        .iter()
        .try_fold(Kubeconfig::default(), |merged, file| -> Result<_, Flaw> {
            let mut next = read_one(file)?;
            // As in kubectl, a file with an empty current-context leaves the choice to the next file.
            next.current_context = next.current_context.filter(|name| !name.is_empty());
            Ok(merged.merge(next)?)
        })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    check(&merged, context, Time::from_unix(now))?;
    Ok(merged)
}

/// The `proxy-url` of the cluster that a context names.
pub(super) fn own_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let chosen = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == chosen)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == *name)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.clone();
    proxy.filter(|url| !url.is_empty())
}

/// The proxy for a server, as kubectl chooses it: the cluster's `own`, or else that of the environment, unless
/// `NO_PROXY` exempts the server or it is on this host. kube compares `NO_PROXY` with the proxy's own address.
pub(super) fn proxy(
    server: &Uri,
    own: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Uri> {
    if let Some(own) = own {
        return own.parse().ok();
    }
    let value = |name: String| {
        let mut found = [name.to_uppercase(), name]
            .into_iter()
            .filter_map(|name| variable(&name));
        found.find(|value| !value.is_empty())
    };
    let mut proxy = value(format!("{}_proxy", server.scheme_str()?))?;
    if !proxy.contains("://") {
        proxy.insert_str(0, "http://");
    }
    let exempt = value("no_proxy".to_owned()).unwrap_or_default();
    let all_are = exempt.split(',').any(|entry| entry.trim() == "*");
    let port = format!(":{}", server_port(server));
    let hosts: Vec<&str> = exempt.split(',').map(|entry| exempt_host(entry, &port)).collect();
    let matcher = Matcher::builder().all(&proxy).no(hosts.join(",")).build();
    let is_used = !all_are && !is_loopback(server_host(server)?) && matcher.intercept(server).is_some();
    proxy.parse().ok().filter(|_| is_used)
}

/// The host of an entry of `NO_PROXY`. The matcher does not know the forms `*.host`, `host:port` and `[IPv6]:port`. An entry with
/// another port than the server's stays whole and matches no host.
fn exempt_host<'a>(entry: &'a str, port: &str) -> &'a str {
    let entry = entry.trim();
    let host = match entry.strip_suffix(port) {
        Some(host) if host.ends_with(']') => host.trim_matches(['[', ']']),
        // The last group of an IPv6 address without brackets is not a port.
        Some(host) if !host.contains(':') => host,
        _ => entry,
    };
    if host.starts_with("*.") { &host[1..] } else { host }
}

fn read_one(path: &Path) -> Result<Kubeconfig, Flaw> {
    let bytes = bytes_of("the file", path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Flaw::Binary)?;
    if text.contains('\0') {
        return Err(Flaw::Binary);
    }
    let mut kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| {
        let said = error.to_string();
        let said = said
            .strip_prefix("failed to parse kubeconfig YAML: ")
            .unwrap_or(&said);
        let first = said.lines().next().unwrap_or_default();
        Flaw::NotOne(first.trim_start_matches("error: ").to_owned())
    })?;
    if let Some(folder) = path.parent() {
        resolve_paths(&mut kubeconfig, folder);
    }
    Ok(kubeconfig)
}

/// Makes paths absolute, as kubectl does: relative ones start from the kubeconfig's folder, except a plugin's bare name, which is
/// found by `PATH`. kube does this only when it reads the file itself, and a pipe can be read only once.
fn resolve_paths(kubeconfig: &mut Kubeconfig, folder: &Path) {
    let absolute = |named: &mut Option<String>| {
        named.take_if(|path| path.is_empty());
        let path = named.as_ref().map(|path| folder.join(path));
        *named = path
            .and_then(|path| path.to_str().map(str::to_owned))
            .or(named.take());
    };
    let clusters = kubeconfig.clusters.iter_mut();
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    let users = kubeconfig.auth_infos.iter_mut();
    for user in users.filter_map(|named| named.auth_info.as_mut()) {
        for file in [
            &mut user.client_certificate,
            &mut user.client_key,
            &mut user.token_file,
        ] {
            absolute(file);
        }
        if let Some(plugin) = &mut user.exec
            && plugin
                .command
                .as_ref()
                .is_some_and(|command| command.contains(MAIN_SEPARATOR))
        {
            absolute(&mut plugin.command);
        }
    }
}

/// A file that belongs to a kubeconfig.
fn bytes_of(what: &'static str, path: &Path) -> Result<Vec<u8>, Flaw> {
    file::read(path, MAX_FILE).map_err(|error| Flaw::Unreadable {
        what,
        path: path.to_owned(),
        why: error.to_string(),
    })
}

/// Checks what a context refers to.
fn check(kubeconfig: &Kubeconfig, context: Option<&str>, now: Time) -> Result<(), Flaw> {
    let contexts = || {
        let contexts = kubeconfig.contexts.iter();
        contexts.map(|named| named.name.clone()).collect()
    };
    let missing = |what, name: &str, known| {
        let name = name.to_owned();
        Err(Flaw::NoSuch { what, name, known })
    };
    let chosen = context.or(kubeconfig.current_context.as_deref());
    let Some(chosen) = chosen.filter(|name| !name.is_empty()) else {
        return Err(Flaw::NoContext { known: contexts() });
    };
    let found = kubeconfig.contexts.iter().find(|named| named.name == chosen);
    let Some(context) = found.and_then(|named| named.context.as_ref()) else {
        return missing("context", chosen, contexts());
    };
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|named| named.name == context.cluster);
    let Some(cluster) = cluster.and_then(|named| named.cluster.as_ref()) else {
        let known = kubeconfig.clusters.iter().map(|named| named.name.clone());
        return missing("cluster", &context.cluster, known.collect());
    };
    check_authority(&context.cluster, cluster)?;
    let Some(user) = context.user.as_deref().filter(|user| !user.is_empty()) else {
        return Ok(());
    };
    let users = &kubeconfig.auth_infos;
    let Some(found) = users.iter().find(|named| named.name == user) else {
        let known = users.iter().map(|named| named.name.clone());
        return missing("user", user, known.collect());
    };
    match &found.auth_info {
        Some(credentials) => check_certificate(user, credentials, now),
        None => Ok(()),
    }
}

/// PEM data from the kubeconfig itself or from a file, with the key of either; `None` where neither is set.
fn pem_of(
    what: &'static str,
    (data, path): (Option<&str>, Option<&str>),
    [data_key, path_key]: [&'static str; 2],
) -> Result<Option<(Vec<u8>, &'static str)>, Flaw> {
    Ok(match (data, path) {
        (Some(data), _) if !data.is_empty() => {
            let pem = BASE64_STANDARD.decode(data.trim()).unwrap_or_default();
            Some((pem, data_key))
        }
        (_, Some(path)) => Some((bytes_of(what, Path::new(path))?, path_key)),
        _ => None,
    })
}

fn check_authority(name: &str, cluster: &Cluster) -> Result<(), Flaw> {
    let of = (
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
    );
    let keys = ["certificate-authority-data", "certificate-authority"];
    let Some((pem, key)) = pem_of("the certificate authority", of, keys)? else {
        return Ok(());
    };
    match CertificateDer::pem_slice_iter(&pem).flatten().next() {
        Some(_) => Ok(()),
        None => Err(Flaw::NoAuthority {
            cluster: name.to_owned(),
            key,
        }),
    }
}

fn check_certificate(user: &str, credentials: &AuthInfo, now: Time) -> Result<(), Flaw> {
    let of = (
        credentials.client_certificate_data.as_deref(),
        credentials.client_certificate.as_deref(),
    );
    let keys = ["client-certificate-data", "client-certificate"];
    let Some((pem, key)) = pem_of("the client certificate", of, keys)? else {
        return Ok(());
    };
    let failed = |why: &str| Flaw::NoCertificate {
        user: user.to_owned(),
        key,
        why: why.to_owned(),
    };
    let first = CertificateDer::pem_slice_iter(&pem).flatten().next();
    let first = first.ok_or_else(|| failed("it holds no certificate in PEM"))?;
    let (_, certificate) =
        x509_parser::parse_x509_certificate(&first).map_err(|error| failed(&error.to_string()))?;
    let validity = certificate.validity();
    let from = Time::from_unix_seconds(validity.not_before.timestamp());
    let until = Time::from_unix_seconds(validity.not_after.timestamp());
    let out_of_date = |how: String| {
        Err(Flaw::OutOfDate {
            user: user.to_owned(),
            how,
        })
    };
    if now > until {
        let ago = human(now.since(until));
        return out_of_date(format!("expired at {until}, {ago} ago"));
    }
    if now < from {
        let ahead = human(from.since(now));
        return out_of_date(format!(
            "is valid only from {from} on, in {ahead}: is this machine's clock right?"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const GOOD: &str = "apiVersion: v1\nkind: Config\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: u, user: {token: t}}]\n\
        contexts: [{name: x, context: {cluster: c, user: u}}]\n\
        current-context: x\n";

    fn kubeconfig(text: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(text).expect("a kubeconfig")
    }

    fn said(text: &str, context: Option<&str>) -> String {
        let now = Time::from_unix_millis(1_800_000_000_000);
        match check(&kubeconfig(text), context, now) {
            Ok(()) => String::new(),
            Err(flaw) => flaw.to_string(),
        }
    }

    #[test]
    fn what_the_context_names_has_to_be_there_and_what_there_is_is_told() {
        assert_eq!(said(GOOD, None), "");
        assert_eq!(said(GOOD, Some("y")), "there is no context \"y\" in it; it has x");
        assert_eq!(
            said(&GOOD.replace("user: u}", "user: ghost}"), None),
            "there is no user \"ghost\" in it; it has u"
        );
        assert_eq!(
            said(&GOOD.replace("cluster: c,", "cluster: ghost,"), None),
            "there is no cluster \"ghost\" in it; it has c"
        );
        assert_eq!(
            said(&GOOD.replace("current-context: x", ""), None),
            "it has no current-context; it has x; choose one by --context"
        );
        assert_eq!(
            said("apiVersion: v1\n", None),
            "it has no current-context, nor any other; choose one by --context"
        );
    }

    #[test]
    fn the_proxy_is_the_clusters_own_or_that_of_the_environment_unless_the_server_is_exempt() {
        let none: &[(&str, &str)] = &[];
        let https = ("HTTPS_PROXY", "http://me:secret@10.1.0.1:3128");
        let chosen = |server: &str, own: Option<&str>, environment: &[(&str, &str)]| {
            let variable = |name: &str| {
                let mut set = environment.iter().filter(|(key, _)| *key == name);
                set.next().map(|(_, value)| (*value).to_owned())
            };
            let proxy = proxy(&server.parse().expect("a URL"), own.map(str::to_owned), variable);
            proxy.map(|proxy| proxy.to_string())
        };
        let api = "https://10.0.0.1:6443";
        assert_eq!(chosen(api, None, none), None);
        let used = Some("http://me:secret@10.1.0.1:3128/".to_owned());
        assert_eq!(chosen(api, None, &[https]), used);
        assert_eq!(
            chosen(api, None, &[("https_proxy", https.1), ("HTTPS_PROXY", "")]),
            used
        );
        let without_scheme = ("HTTPS_PROXY", "me:secret@10.1.0.1:3128");
        assert_eq!(chosen(api, None, &[without_scheme]), used);
        for exempt in ["10.0.0.0/8", "example.com, 10.0.0.1", "10.0.0.1:6443", "*"] {
            assert_eq!(
                chosen(api, None, &[https, ("NO_PROXY", exempt)]),
                None,
                "{exempt}"
            );
        }
        let of_the_proxy = ("no_proxy", "10.1.0.1,10.2.0.0/16,");
        assert_eq!(chosen(api, None, &[https, of_the_proxy]), used);
        let named = "https://api.example.com";
        for exempt in [".example.com", "*.example.com", "api.example.com:443"] {
            assert_eq!(
                chosen(named, None, &[https, ("NO_PROXY", exempt)]),
                None,
                "{exempt}"
            );
        }
        for other in ["api.example.com:6443", "*.example.org", "*api.example.com"] {
            assert_eq!(
                chosen(named, None, &[https, ("NO_PROXY", other)]),
                used,
                "{other}"
            );
        }
        for (exempt, is_exempt) in [
            ("[fd00::1]:6443", true),
            ("fd00::1", true),
            ("[fd00::1]:443", false),
            ("fd00::1:6443", false),
        ] {
            let chosen = chosen("https://[fd00::1]:6443", None, &[https, ("NO_PROXY", exempt)]);
            assert_eq!(chosen.is_none(), is_exempt, "{exempt}");
        }
        let last_group_like_the_port = ("NO_PROXY", "fd00::6443");
        assert_eq!(
            chosen(
                "https://[fd00::6443]:6443",
                None,
                &[https, last_group_like_the_port]
            ),
            None
        );
        assert_eq!(chosen("http://10.0.0.1", None, &[https]), None);
        assert_eq!(chosen("http://10.0.0.1", None, &[("HTTP_PROXY", https.1)]), used);
        for own_host in [
            "https://127.0.0.1:6443",
            "https://[::1]:6443",
            "https://localhost",
        ] {
            assert_eq!(chosen(own_host, None, &[https]), None, "{own_host}");
        }
        let everything = &[https, ("NO_PROXY", "*")];
        let own = Some("http://own.example:1");
        assert_eq!(
            chosen(api, own, everything).as_deref(),
            Some("http://own.example:1/")
        );
        let with_proxy = kubeconfig(&GOOD.replace("server:", "proxy-url: 'http://p:1', server:"));
        assert_eq!(own_proxy(&with_proxy, None).as_deref(), Some("http://p:1"));
        assert_eq!(own_proxy(&kubeconfig(GOOD), Some("x")), None);
    }

    #[test]
    fn of_several_files_the_first_current_context_that_is_not_empty_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        std::fs::write(&first, "apiVersion: v1\nkind: Config\ncurrent-context: \"\"\n").expect("a file");
        std::fs::write(&second, GOOD).expect("a file");
        let merged = read(&[first, second], None).expect("the second file names a context");
        assert_eq!(merged.current_context.as_deref(), Some("x"));
    }

    #[test]
    fn a_kubeconfig_that_can_be_read_once_only_is_enough() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(GOOD.as_bytes()).expect("written");
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let merged = read(&[path], None).expect("a kubeconfig");
        assert_eq!(merged.clusters.len(), 1);
    }

    #[test]
    fn what_a_kubeconfig_names_is_found_in_its_folder() {
        let mut named = kubeconfig(
            "clusters: [{name: c, cluster: {server: 's', certificate-authority: ca.crt}}]\n\
             users:\n\
             - {name: a, user: {client-certificate: /etc/c.crt, client-key: k.pem, tokenFile: '', exec: {command: bin/login}}}\n\
             - {name: b, user: {tokenFile: t, exec: {command: aws}}}\n",
        );
        resolve_paths(&mut named, Path::new("/home/me/.kube"));
        let cluster = named.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(
            cluster.certificate_authority.as_deref(),
            Some("/home/me/.kube/ca.crt")
        );
        let of = |at: usize| {
            let user = named.auth_infos[at].auth_info.as_ref().expect("a user");
            let command = user.exec.as_ref().and_then(|exec| exec.command.as_deref());
            let files = [&user.client_certificate, &user.client_key, &user.token_file];
            (files.map(|file| file.as_deref()), command)
        };
        let key = Some("/home/me/.kube/k.pem");
        assert_eq!(
            of(0),
            ([Some("/etc/c.crt"), key, None], Some("/home/me/.kube/bin/login"))
        );
        assert_eq!(of(1), ([None, None, Some("/home/me/.kube/t")], Some("aws")));
    }

    #[test]
    fn an_authority_without_a_certificate_is_found_before_it_is_used() {
        let junk = GOOD.replace("server:", "certificate-authority-data: bm90IGEgY2VydA==, server:");
        assert!(said(&junk, None).contains("authority of cluster \"c\" holds no certificate"));
        let missing = GOOD.replace("server:", "certificate-authority: /nowhere/ca.crt, server:");
        let said = said(&missing, None);
        assert!(
            said.starts_with("the certificate authority /nowhere/ca.crt cannot be read: "),
            "{said}"
        );
    }

    fn with_certificate(from: i32, until: i32) -> String {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let data = BASE64_STANDARD.encode(pem);
        GOOD.replace("token: t", &format!("client-certificate-data: {data}"))
    }

    #[test]
    fn a_client_certificate_out_of_its_time_is_found_and_the_time_is_told() {
        assert_eq!(said(&with_certificate(2020, 2040), None), "");
        let expired = said(&with_certificate(2020, 2021), None);
        assert!(
            expired.starts_with("the client certificate of user \"u\" expired at 2021-01-01T00:00:00.000Z, "),
            "{expired}"
        );
        let early = said(&with_certificate(2039, 2040), None);
        assert!(early.contains("valid only from 2039-01-01"), "{early}");
        let junk = GOOD.replace("token: t", "client-certificate-data: bm90IGEgY2VydA==");
        assert!(said(&junk, None).contains("holds no certificate in PEM"));
    }
}
