//! Where a signal is sent, and how.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use strum::IntoStaticStr;

use super::read::VariableReader;
use crate::io::report::metrics::Signal;

use crate::domain::text::named;

/// The protocol of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Protocol {
    /// Protobuf over gRPC.
    Grpc,
    /// Protobuf over HTTP, the default.
    #[strum(serialize = "http/protobuf")]
    HttpProtobuf,
}

named!(Protocol, "The value of `OTEL_EXPORTER_OTLP_PROTOCOL`.");

/// Where a signal is sent, and how.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The protocol of requests.
    pub protocol: Protocol,
    /// The URL of requests over HTTP. For gRPC only its scheme, host and port are used.
    pub endpoint: Uri,
    /// Headers of every request. They may be secrets, so they are never logged.
    pub headers: HeaderMap,
    /// Longest time for a request, including retries.
    pub timeout: Duration,
    /// Whether requests are compressed with gzip.
    pub gzip: bool,
    /// PEM file with the CA certificates to trust instead of the system's; `None` for the system's.
    pub certificate: Option<PathBuf>,
    /// PEM files of the client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The destination of a signal; `None` if the signal is not sent.
pub(super) fn of(reader: &mut VariableReader<'_>, signal: Signal) -> Option<Destination> {
    let names = VariableNames(signal);
    let own = reader.text(&names.own("ENDPOINT"));
    let both = reader.text(&names.both("ENDPOINT"));
    if !is_wanted(reader, signal, own.is_some() || both.is_some()) {
        return None;
    }
    let protocol = protocol(reader, &names);
    let endpoint = match (own, both, protocol) {
        (Some(own), _, _) => parsed(reader, &names.own("ENDPOINT"), &own, protocol, &names)?,
        (None, both, Protocol::Grpc) => {
            let both = both.unwrap_or_else(|| "http://localhost:4317".to_owned());
            parsed(reader, &names.both("ENDPOINT"), &both, protocol, &names)?
        }
        (None, both, Protocol::HttpProtobuf) => {
            let both = both.unwrap_or_else(|| "http://localhost:4318".to_owned());
            let whole = format!("{}/v1/{signal}", both.trim_end_matches('/'));
            parsed(reader, &names.both("ENDPOINT"), &whole, protocol, &names)?
        }
    };
    let timeout = names.first(reader, "TIMEOUT");
    let gzip = gzip(reader, &names);
    let path = |reader: &VariableReader<'_>, what| reader.text(&names.first(reader, what)).map(PathBuf::from);
    let certificate = path(reader, "CERTIFICATE");
    let identity = match (path(reader, "CLIENT_CERTIFICATE"), path(reader, "CLIENT_KEY")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            let name = names.both("CLIENT_CERTIFICATE");
            reader.complain(
                &name,
                "a certificate of our own is of use together with its key only",
            );
            None
        }
    };
    Some(Destination {
        protocol,
        endpoint,
        headers: headers(reader, &names),
        timeout: reader.millis(&timeout, 10_000),
        gzip,
        certificate,
        identity,
    })
}

/// The names of the variables of one signal.
struct VariableNames(Signal);

impl VariableNames {
    fn own(&self, what: &str) -> String {
        let signal = self.0.as_str().to_ascii_uppercase();
        format!("OTEL_EXPORTER_OTLP_{signal}_{what}")
    }

    fn both(&self, what: &str) -> String {
        format!("OTEL_EXPORTER_OTLP_{what}")
    }

    /// The name that applies: the signal's own if it is set, else that of both signals.
    fn first(&self, reader: &VariableReader<'_>, what: &str) -> String {
        let own = self.own(what);
        match reader.text(&own) {
            Some(_) => own,
            None => self.both(what),
        }
    }
}

/// Whether a signal is sent: if `OTEL_*_EXPORTER` is set, whether it names `otlp`; else whether there is an endpoint.
fn is_wanted(reader: &mut VariableReader<'_>, signal: Signal, has_endpoint: bool) -> bool {
    let name = format!("OTEL_{}_EXPORTER", signal.as_str().to_ascii_uppercase());
    let Some(exporters) = reader.list(&name) else {
        return has_endpoint;
    };
    for exporter in &exporters {
        // `prometheus` is accepted for metrics, because `/metrics` is always served.
        let known = matches!(exporter.as_str(), "otlp" | "none")
            || signal == Signal::Metrics && exporter == "prometheus";
        if !known {
            reader.complain(
                &name,
                &format!("there is no exporter {exporter}; there are otlp and none"),
            );
        }
    }
    exporters.iter().any(|exporter| exporter == "otlp")
}

fn protocol(reader: &mut VariableReader<'_>, names: &VariableNames) -> Protocol {
    let name = names.first(reader, "PROTOCOL");
    match reader.word(&name).as_deref() {
        Some("grpc") => Protocol::Grpc,
        None | Some("http/protobuf") => Protocol::HttpProtobuf,
        Some(_) => {
            reader.complain(&name, "there are grpc and http/protobuf, which is taken instead");
            Protocol::HttpProtobuf
        }
    }
}

/// Parses an endpoint. If it is invalid the signal is not sent (`None`): using the default endpoint would hide the mistake.
fn parsed(
    reader: &mut VariableReader<'_>,
    name: &str,
    text: &str,
    protocol: Protocol,
    names: &VariableNames,
) -> Option<Uri> {
    let whole = match (protocol, text.contains("://")) {
        // An endpoint of gRPC may be only a host and port. Then `OTEL_EXPORTER_OTLP_INSECURE` decides about TLS.
        (Protocol::Grpc, false) => {
            let insecure = names.first(reader, "INSECURE");
            let scheme = if reader.flag(&insecure) { "http" } else { "https" };
            format!("{scheme}://{text}")
        }
        _ => text.to_owned(),
    };
    let complaint = match whole.parse::<Uri>() {
        Ok(uri) => match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(authority)) if !authority.as_str().contains('@') => {
                return Some(uri);
            }
            (Some("http" | "https"), Some(_)) => {
                "a password does not belong into a URL; OTEL_EXPORTER_OTLP_HEADERS is for it".to_owned()
            }
            _ => "it is no URL that begins with http:// or https://".to_owned(),
        },
        Err(error) => format!("it is no URL: {error}"),
    };
    reader.complain(name, &format!("{complaint}; no {} are sent", names.0));
    None
}

fn gzip(reader: &mut VariableReader<'_>, names: &VariableNames) -> bool {
    let name = names.first(reader, "COMPRESSION");
    match reader.word(&name).as_deref() {
        Some("gzip") => true,
        None | Some("none") => false,
        Some(_) => {
            reader.complain(&name, "there are gzip and none");
            false
        }
    }
}

fn headers(reader: &mut VariableReader<'_>, names: &VariableNames) -> HeaderMap {
    let name = names.first(reader, "HEADERS");
    let mut headers = HeaderMap::new();
    for (key, value) in reader.pairs(&name) {
        let key = HeaderName::from_bytes(key.to_ascii_lowercase().as_bytes());
        match (key, HeaderValue::from_str(&value)) {
            (Ok(key), Ok(mut value)) => {
                value.set_sensitive(true);
                headers.insert(key, value);
            }
            _ => reader.complain(&name, "one of them cannot be a header; the others are sent"),
        }
    }
    headers
}
