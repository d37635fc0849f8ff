//! OTLP over gRPC.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use super::super::settings::Destination;
use super::{AGENT, FailedExport, LONGEST_ANSWER, Payload, Rejected, pem};
use crate::io::error::{causes, with_causes};
use crate::io::report::metrics::Loss;

#[derive(Debug)]
pub(in crate::io::telemetry) struct Grpc {
    channel: Channel,
    headers: MetadataMap,
    gzip: bool,
    timeout: Duration,
}

impl Grpc {
    pub(super) fn open(destination: &Destination) -> Result<Self, String> {
        let mut endpoint = Endpoint::from(destination.endpoint.clone())
            .user_agent(AGENT)
            .map_err(|error| with_causes(&error))?
            .connect_timeout(destination.timeout);
        if destination.endpoint.scheme_str() == Some("https") {
            let mut tls = match &destination.certificate {
                Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem(path)?)),
                None => ClientTlsConfig::new().with_native_roots(),
            };
            if let Some((certificate, key)) = &destination.identity {
                tls = tls.identity(Identity::from_pem(pem(certificate)?, pem(key)?));
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| with_causes(&error))?;
        }
        Ok(Self {
            channel: endpoint.connect_lazy(),
            headers: MetadataMap::from_headers(destination.headers.clone()),
            gzip: destination.gzip,
            timeout: destination.timeout,
        })
    }

    pub(super) fn traces(&self) -> TraceServiceClient<Channel> {
        let client = TraceServiceClient::new(self.channel.clone()).max_decoding_message_size(LONGEST_ANSWER);
        if self.gzip {
            client.send_compressed(CompressionEncoding::Gzip)
        } else {
            client
        }
    }

    pub(super) fn metrics(&self) -> MetricsServiceClient<Channel> {
        let client =
            MetricsServiceClient::new(self.channel.clone()).max_decoding_message_size(LONGEST_ANSWER);
        if self.gzip {
            client.send_compressed(CompressionEncoding::Gzip)
        } else {
            client
        }
    }

    /// A request with the configured headers and the timeout, which the receiver learns from `grpc-timeout`.
    pub(super) fn request<P>(&self, payload: P) -> Request<P> {
        let mut request = Request::new(payload);
        *request.metadata_mut() = self.headers.clone();
        request.set_timeout(self.timeout);
        request
    }

    pub(super) async fn send<P: Payload>(&self, payload: &P) -> Result<Rejected, FailedExport> {
        match payload.clone().call(self).await {
            Ok(answer) => Ok(P::rejected(answer.into_inner())),
            Err(status) => Err(failed(&status)),
        }
    }
}

fn failed(status: &Status) -> FailedExport {
    let source = std::error::Error::source(status);
    let mut why = format!("{:?}: {}", status.code(), status.message());
    if let Some(source) = source {
        why = format!("{why}: {}", with_causes(source));
    }
    match status.code() {
        _ if source.is_some_and(is_lost) => FailedExport::for_now(Loss::Unreachable, None, &why),
        Code::Cancelled | Code::DeadlineExceeded => FailedExport::for_now(Loss::TimedOut, None, &why),
        // Codes that the OTLP specification calls retryable. `Unavailable` is also the code of a failed connection.
        Code::Unavailable | Code::Aborted | Code::OutOfRange | Code::DataLoss => {
            FailedExport::for_now(Loss::Unreachable, None, &why)
        }
        // The client reports an answer that is not gRPC with these codes and a source.
        Code::Internal | Code::Unknown if source.is_some() => FailedExport::for_good(Loss::Unreadable, &why),
        _ => FailedExport::for_good(Loss::Refused, &why),
    }
}

/// Whether an error of the client was caused by a broken connection. With TLS 1.3 this includes a receiver that refuses our
/// certificate: the refusal arrives only after the handshake.
fn is_lost(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.is::<std::io::Error>() || cause.downcast_ref().is_some_and(hyper::Error::is_canceled)
    })
}
