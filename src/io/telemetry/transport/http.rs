//! OTLP over HTTP, as binary protobuf.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use prost::Message;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Identity, Response};

use super::super::settings::Destination;
use super::{AGENT, FailedExport, LONGEST_ANSWER, Payload, Rejected, pem};
use crate::io::error::{with_causes, without_url};
use crate::io::report::metrics::Loss;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    url: String,
    headers: HeaderMap,
    gzip: bool,
}

impl Http {
    pub(super) fn open(destination: &Destination) -> Result<Self, String> {
        let mut builder = Client::builder()
            .user_agent(AGENT)
            .redirect(Policy::none())
            .timeout(destination.timeout);
        let tls = destination.endpoint.scheme_str() == Some("https");
        if let (true, Some(path)) = (tls, &destination.certificate) {
            let roots = Certificate::from_pem_bundle(&pem(path)?)
                .map_err(|error| format!("{} is of no use: {}", path.display(), with_causes(&error)))?;
            builder = builder.tls_certs_only(roots);
        }
        if !tls {
            // Without TLS, do not load the system's roots: that would fail on a machine that has none.
            builder = builder.tls_certs_only([]);
        }
        if let (true, Some((certificate, key))) = (tls, &destination.identity) {
            let both = [pem(certificate)?, pem(key)?].concat();
            let identity = Identity::from_pem(&both).map_err(|error| {
                format!("{} is of no use: {}", certificate.display(), with_causes(&error))
            })?;
            builder = builder.identity(identity);
        }
        let client = builder.build().map_err(|error| with_causes(&error))?;
        let mut headers = destination.headers.clone();
        headers.insert(CONTENT_TYPE, PROTOBUF);
        if destination.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(Self {
            client,
            url: destination.endpoint.to_string(),
            headers,
            gzip: destination.gzip,
        })
    }

    pub(super) async fn send<P: Payload>(&self, payload: &P) -> Result<Rejected, FailedExport> {
        let mut body = payload.encode_to_vec();
        if self.gzip {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            let written = gzip.write_all(&body).and_then(|()| gzip.finish());
            body = written.map_err(|error| FailedExport::for_good(Loss::Refused, &error.to_string()))?;
        }
        let request = self
            .client
            .post(&self.url)
            .headers(self.headers.clone())
            .body(body);
        let answer = request.send().await.map_err(|error| broken(&error))?;
        let status = answer.status();
        if status.is_success() {
            return read::<P>(answer).await;
        }
        let why = format!("HTTP {status}");
        match status.as_u16() {
            // Statuses that the OTLP specification calls retryable.
            429 | 502 | 503 | 504 => {
                let after = answer.headers().get(RETRY_AFTER);
                let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                Err(FailedExport::for_now(
                    Loss::Refused,
                    after.map(Duration::from_secs),
                    &why,
                ))
            }
            _ => Err(FailedExport::for_good(Loss::Refused, &why)),
        }
    }
}

fn broken(error: &reqwest::Error) -> FailedExport {
    let loss = if error.is_timeout() {
        Loss::TimedOut
    } else {
        Loss::Unreachable
    };
    FailedExport::for_now(loss, None, &without_url(error))
}

/// Reads the body of a 2xx answer.
async fn read<P: Payload>(mut answer: Response) -> Result<Rejected, FailedExport> {
    let kind = answer.headers().get(CONTENT_TYPE).cloned();
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| broken(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST_ANSWER {
            return Err(FailedExport::for_good(Loss::Unreadable, "the answer has no end"));
        }
    }
    let kind = kind.as_ref().map_or("", |kind| kind.to_str().unwrap_or_default());
    // Some receivers answer every request in JSON. That is still a success.
    if body.is_empty() || kind.starts_with("application/json") {
        return Ok(Rejected::default());
    }
    let unreadable = || FailedExport::for_good(Loss::Unreadable, "the answer is none of a receiver of OTLP");
    if !kind.starts_with("application/x-protobuf") {
        return Err(unreadable());
    }
    let answer = P::Answer::decode(&*body).map_err(|_| unreadable())?;
    Ok(P::rejected(answer))
}
