//! The queue of spans that wait to be sent.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::delivery::SignalDelivery;
use crate::io::report::metrics::{Loss, Signal, TelemetryCounts};

/// A queue for at most `length` spans: the end that spans enter, and the end that sends them.
pub(super) fn queue(length: usize, counts: TelemetryCounts) -> (Queue, Waiting) {
    let (spans, waiting) = mpsc::channel(length);
    let queue = Queue {
        spans,
        counts: counts.clone(),
    };
    (queue, Waiting { waiting, counts })
}

/// Receives spans when they end. Never blocks: while the queue is full, spans are dropped and counted.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    counts: TelemetryCounts,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped(Signal::Traces, Loss::QueueFull, 1);
        }
        let waiting = self.spans.max_capacity() - self.spans.capacity();
        self.counts.queued(Signal::Traces, waiting);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The sending end of a [`Queue`].
#[derive(Debug)]
pub(super) struct Waiting {
    waiting: mpsc::Receiver<SpanData>,
    counts: TelemetryCounts,
}

impl Waiting {
    /// Sends spans in batches of at most `most`, each at the latest `delay` after its first span arrived. Returns after the stop
    /// signal, once the queue is empty.
    pub(super) async fn send(
        mut self,
        mut delivery: SignalDelivery,
        most: usize,
        delay: Duration,
        resource: Resource,
    ) {
        let resource = ResourceAttributesWithSchema::from(&resource);
        loop {
            let batch = self.batch(&mut delivery, most, delay).await;
            if batch.is_empty() {
                return;
            }
            self.counts.queued(Signal::Traces, self.waiting.len());
            let count = batch.len() as u64;
            let request = ExportTraceServiceRequest {
                resource_spans: group_spans_by_resource_and_scope(batch, &resource),
            };
            // `deliver` has counted what was lost.
            let _ = delivery.deliver(&request, count).await;
        }
    }

    #[cfg(test)]
    pub(super) fn take(&mut self) -> Vec<SpanData> {
        std::iter::from_fn(|| self.waiting.try_recv().ok()).collect()
    }

    /// The next batch; empty if there will be no more.
    async fn batch(&mut self, delivery: &mut SignalDelivery, most: usize, delay: Duration) -> Vec<SpanData> {
        let mut batch = Vec::new();
        let first = tokio::select! {
            biased;
            first = self.waiting.recv() => first,
            () = delivery.stopped() => None,
        };
        let Some(first) = first else {
            return batch;
        };
        batch.push(first);
        let until = Instant::now() + delay;
        while batch.len() < most {
            let room = most - batch.len();
            let more = async {
                tokio::select! {
                    biased;
                    count = self.waiting.recv_many(&mut batch, room) => count,
                    () = delivery.stopped() => 0,
                }
            };
            if !matches!(timeout_at(until, more).await, Ok(1..)) {
                break;
            }
        }
        batch
    }
}
