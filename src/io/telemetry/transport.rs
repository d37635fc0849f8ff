//! The transport to a receiver of OTLP, over HTTP or gRPC.
//!
//! The exporters of the crate `opentelemetry-otlp` are not used: they accept only metrics from the SDK's own instruments, and
//! hookwatch's are in a Prometheus registry. So one client sends both signals with the messages of `opentelemetry-proto`.

mod grpc;
mod http;

use std::path::Path;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;

use super::settings::{Destination, Protocol};
use crate::domain::text::bounded;
use crate::io::file;
use crate::io::report::metrics::Loss;

/// The `User-Agent` of requests.
const AGENT: &str = concat!("hookwatch/", env!("CARGO_PKG_VERSION"));
/// Most bytes of an answer. A valid answer has at most a short error message.
const LONGEST_ANSWER: usize = 64 * 1024;

/// An export request of one signal.
pub(super) trait Payload: Message + Clone + Default + 'static {
    /// The receiver's answer.
    type Answer: Message + Default;

    /// The rejected items that the answer reports (`partial_success`).
    fn rejected(answer: Self::Answer) -> Rejected;

    /// Sends it over gRPC.
    fn call(
        self,
        way: &grpc::Grpc,
    ) -> impl Future<Output = Result<tonic::Response<Self::Answer>, tonic::Status>> + Send;
}

impl Payload for ExportTraceServiceRequest {
    type Answer = ExportTraceServiceResponse;

    fn rejected(answer: Self::Answer) -> Rejected {
        let partial = answer.partial_success.unwrap_or_default();
        Rejected::new(partial.rejected_spans, partial.error_message)
    }

    async fn call(self, way: &grpc::Grpc) -> Result<tonic::Response<Self::Answer>, tonic::Status> {
        way.traces().export(way.request(self)).await
    }
}

impl Payload for ExportMetricsServiceRequest {
    type Answer = ExportMetricsServiceResponse;

    fn rejected(answer: Self::Answer) -> Rejected {
        let partial = answer.partial_success.unwrap_or_default();
        Rejected::new(partial.rejected_data_points, partial.error_message)
    }

    async fn call(self, way: &grpc::Grpc) -> Result<tonic::Response<Self::Answer>, tonic::Status> {
        way.metrics().export(way.request(self)).await
    }
}

/// The part of an accepted request that the receiver rejected.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rejected {
    /// The number of spans or data points.
    pub(super) count: u64,
    /// The receiver's text.
    pub(super) why: String,
}

impl Rejected {
    fn new(count: i64, why: String) -> Self {
        Self {
            count: u64::try_from(count).unwrap_or_default(),
            why: bounded(&why),
        }
    }
}

#[derive(Debug)]
pub(super) struct FailedExport {
    /// The reason under which the loss is counted.
    pub(super) loss: Loss,
    /// `Some` if a retry may succeed, with the pause that the receiver asks for, if any.
    pub(super) again: Option<Option<Duration>>,
    pub(super) why: String,
}

impl FailedExport {
    /// A permanent failure: a retry would not succeed.
    pub(super) fn for_good(loss: Loss, why: &str) -> Self {
        Self {
            loss,
            again: None,
            why: bounded(why),
        }
    }

    /// A temporary failure: a retry may succeed, after the pause that the receiver asks for.
    fn for_now(loss: Loss, after: Option<Duration>, why: &str) -> Self {
        Self {
            loss,
            again: Some(after),
            why: bounded(why),
        }
    }
}

/// A transport to a receiver. It connects at the first request.
#[derive(Debug)]
pub(super) struct Transport {
    way: TransportClient,
    /// Longest time for a request, including retries.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
enum TransportClient {
    Http(http::Http),
    Grpc(grpc::Grpc),
}

impl Transport {
    /// Makes the client of a destination. Reads its certificate and key files, but does not connect.
    pub(super) fn open(destination: &Destination) -> Result<Self, String> {
        let way = match destination.protocol {
            Protocol::HttpProtobuf => TransportClient::Http(http::Http::open(destination)?),
            Protocol::Grpc => TransportClient::Grpc(grpc::Grpc::open(destination)?),
        };
        Ok(Self {
            way,
            timeout: destination.timeout,
        })
    }

    /// Sends a request once, without retries.
    pub(super) async fn send<P: Payload>(&self, payload: &P) -> Result<Rejected, FailedExport> {
        match &self.way {
            TransportClient::Http(way) => way.send(payload).await,
            TransportClient::Grpc(way) => way.send(payload).await,
        }
    }
}

/// Reads a PEM file.
fn pem(path: &Path) -> Result<Vec<u8>, String> {
    file::read(path, file::LONGEST_SECRET)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))
}
