//! The transport to a receiver of OTLP, over HTTP or gRPC.
//!
//! The exporters of the crate `opentelemetry-otlp` are not used: they take metrics from the SDK's own instruments
//! alone, and ours are those of `/metrics`. So there is one client for both signals, on the messages of
//! `opentelemetry-proto`.

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

/// Who sends.
const AGENT: &str = concat!("hookwatch/", env!("CARGO_PKG_VERSION"));
/// The longest answer that is read, in bytes. One that means something has a sentence in it at most.
const LONGEST_ANSWER: usize = 64 * 1024;

/// A request of one signal.
pub(super) trait Payload: Message + Clone + Default + 'static {
    /// What the receiver answers.
    type Answer: Message + Default;

    /// What the answer says was thrown away.
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

/// How much of a request that was taken the receiver threw away.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rejected {
    /// Spans or data points.
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
    /// What to count it as.
    pub(super) loss: Loss,
    /// Whether it is worth another try, and after how long when the receiver says so.
    pub(super) again: Option<Option<Duration>>,
    pub(super) why: String,
}

impl FailedExport {
    /// A failure that a retry would not fix.
    pub(super) fn for_good(loss: Loss, why: &str) -> Self {
        Self {
            loss,
            again: None,
            why: bounded(why),
        }
    }

    /// A failure that may pass.
    fn for_now(loss: Loss, after: Option<Duration>, why: &str) -> Self {
        Self {
            loss,
            again: Some(after),
            why: bounded(why),
        }
    }
}

/// A transport to a receiver. Nothing is dialled before the first request.
#[derive(Debug)]
pub(super) struct Transport {
    way: TransportClient,
    /// How long a request may take, all tries together.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
enum TransportClient {
    Http(http::Http),
    Grpc(grpc::Grpc),
}

impl Transport {
    /// Reads the files of the destination, such as certificates.
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

    /// Sends a request once.
    pub(super) async fn send<P: Payload>(&self, payload: &P) -> Result<Rejected, FailedExport> {
        match &self.way {
            TransportClient::Http(way) => way.send(payload).await,
            TransportClient::Grpc(way) => way.send(payload).await,
        }
    }
}

/// The certificates or the key in a file.
fn pem(path: &Path) -> Result<Vec<u8>, String> {
    file::read(path, file::LONGEST_SECRET)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))
}
