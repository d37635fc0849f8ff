//! What the API server does with conversion webhooks and APIServices: it converts, and checks whether aggregated APIs are available.
//!
//! No custom resources are served here. A real API server keeps a watch cache of each version, and has the webhook convert
//! every object for the versions that are not stored. Here the webhook converts one object per CRD at a fixed interval, over TLS.
//! The availability check is weaker than the real aggregator's: it opens a TLS connection that must verify under the caBundle,
//! and sends nothing. `insecureSkipTLSVerify` is ignored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use super::ApiState;
use super::admission::hooks;
use super::call::{CallError, Caller};
use super::kinds::{DEFINITION, ENDPOINT_SLICE, REGISTRATION, SERVICE};
use super::metrics::ApiMetrics;
use super::random;
use super::store::{ObjectStore, StoredObject};

/// Interval between two conversions or checks of the same object. The real aggregator checks every half minute.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time for a conversion.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a check by the aggregator.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Converts for CRDs and checks APIServices; with a client of its own for both.
#[derive(Debug)]
pub(super) struct ExtensionApi {
    caller: Caller,
    conversions: HistogramVec,
    unavailable: GaugeVec,
    became_unavailable: IntCounterVec,
}

impl ExtensionApi {
    /// Registers its metric families.
    ///
    /// # Errors
    /// None in practice: only if two families had the same name.
    pub(super) fn new(metrics: &ApiMetrics) -> prometheus::Result<Self> {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15)?;
        let name = "apiserver_crd_conversion_webhook_duration_seconds";
        let options = HistogramOpts::new(name, "Time of a conversion by webhook.").buckets(buckets);
        let labels = ["crd_name", "from_version", "to_version", "succeeded"];
        let conversions = HistogramVec::new(options, &labels)?;
        let options = Opts::new(
            "aggregator_unavailable_apiservice",
            "1 for APIServices that are not available.",
        );
        let unavailable = GaugeVec::new(options, &["name"])?;
        let options = Opts::new(
            "aggregator_unavailable_apiservice_total",
            "How often APIServices became unavailable.",
        );
        let became_unavailable = IntCounterVec::new(options, &["name", "reason"])?;
        metrics.registry.register(Box::new(conversions.clone()))?;
        metrics.registry.register(Box::new(unavailable.clone()))?;
        metrics.registry.register(Box::new(became_unavailable.clone()))?;
        Ok(Self {
            caller: Caller::new(metrics.missing_san.clone()),
            conversions,
            unavailable,
            became_unavailable,
        })
    }

    /// Converts for every CRD and checks every APIService, without end; one call per object at a time.
    pub(super) async fn look_after(self, state: Arc<ApiState>) {
        let others = Arc::new(self);
        let (mut under_way, mut busy) = (JoinSet::new(), BTreeSet::new());
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            while let Some(done) = under_way.try_join_next() {
                if let Ok(name) = done {
                    busy.remove(&name);
                }
            }
            for kind in [DEFINITION, REGISTRATION] {
                for stored in state.store.list(kind, None).1 {
                    let name = text(&stored.object, "/metadata/name").to_owned();
                    let key = format!("{}/{name}", kind.resource);
                    if !busy.insert(key.clone()) {
                        continue;
                    }
                    let (others, state) = (Arc::clone(&others), Arc::clone(&state));
                    under_way.spawn(async move {
                        if kind == DEFINITION {
                            others.convert(&state.store, &name, &stored).await;
                        } else {
                            others.check(&state.store, &name, &stored).await;
                        }
                        key
                    });
                }
            }
        }
    }

    /// Has one object converted from the stored version into another one.
    async fn convert(&self, store: &ObjectStore, name: &str, stored: &StoredObject) {
        let spec = &stored.object["spec"];
        if spec["conversion"]["strategy"] != "Webhook" {
            return;
        }
        let versions = || spec["versions"].as_array().into_iter().flatten();
        let version = |storage: bool| {
            versions()
                .find(|version| version["storage"] == storage)
                .and_then(|version| version["name"].as_str())
        };
        let (Some(from), Some(to)) = (version(true), version(false)) else {
            return;
        };
        let group = text(&stored.object, "/spec/group");
        let uid = random::uuid();
        let object = json!({"apiVersion": format!("{group}/{from}"), "kind": spec["names"]["kind"],
            "metadata": {"name": "one", "uid": random::uuid()}});
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": format!("{group}/{to}"), "objects": [object]}});
        let target = hooks::target(&spec["conversion"]["webhook"]["clientConfig"]);
        let begin = Instant::now();
        let answer = self.caller.post(
            store,
            &target,
            Bytes::from(review.to_string()),
            begin + CONVERSION_TIMEOUT,
        );
        let converted: Result<bool, CallError> = answer.await.map(|body| {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            answer["response"]["uid"] == *uid && answer["response"]["result"]["status"] == "Success"
        });
        let succeeded = if matches!(converted, Ok(true)) {
            "true"
        } else {
            "false"
        };
        self.conversions
            .with_label_values(&[name, from, to, succeeded])
            .observe(begin.elapsed().as_secs_f64());
    }

    /// Checks whether an aggregated API is available, and sets its condition and the metrics.
    async fn check(&self, store: &ObjectStore, name: &str, stored: &StoredObject) {
        let found = self.availability(store, stored).await;
        let (status, reason, message) = match &found {
            Ok((reason, message)) => ("True", *reason, (*message).to_owned()),
            Err((reason, message)) => ("False", *reason, message.clone()),
        };
        let gauge = self.unavailable.with_label_values(&[name]);
        gauge.set(f64::from(u8::from(found.is_err())));
        let before = &stored.object["status"]["conditions"][0];
        let same = |field: &str, now: &str| before[field] == now;
        if same("status", status) && same("reason", reason) && same("message", &message) {
            return;
        }
        let since = if same("status", status) {
            before["lastTransitionTime"].clone()
        } else {
            json!(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        };
        let mut object = stored.object.clone();
        object["status"] = json!({"conditions": [{"type": "Available", "status": status, "reason": reason,
            "message": message, "lastTransitionTime": since}]});
        // If another write came in between, the next check sets the condition.
        let written = store.replace(REGISTRATION, "", name, stored.revision, object);
        if written.is_ok() && same("status", "True") && found.is_err() {
            self.became_unavailable.with_label_values(&[name, reason]).inc();
        }
    }

    /// Reason and message of the condition Available, in the words of 1.36; `Err` when it is False.
    async fn availability(
        &self,
        store: &ObjectStore,
        stored: &StoredObject,
    ) -> Result<(&'static str, &'static str), (&'static str, String)> {
        let spec = &stored.object["spec"];
        if !spec["service"].is_object() {
            return Ok(("Local", "Local APIServices are always available"));
        }
        let (namespace, service) = (text(spec, "/service/namespace"), text(spec, "/service/name"));
        let port = spec["service"]["port"].as_u64().unwrap_or(443);
        let Some(known) = store.get(SERVICE, namespace, service) else {
            let message = format!("service/{service} in {namespace:?} is not present");
            return Err(("ServiceNotFound", message));
        };
        let ports = known.object["spec"]["ports"].as_array();
        if !ports.into_iter().flatten().any(|offered| offered["port"] == port) {
            let message = format!("service/{service} in {namespace:?} is not listening on port {port}");
            return Err(("ServicePortError", message));
        }
        let (_, slices) = store.list(ENDPOINT_SLICE, Some(namespace));
        let label = "/metadata/labels/kubernetes.io~1service-name";
        if !slices.iter().any(|slice| text(&slice.object, label) == service) {
            let message = format!("cannot find endpointslices for service/{service} in {namespace:?}");
            return Err(("EndpointsNotFound", message));
        }
        let path = format!("/apis/{}/{}", text(spec, "/group"), text(spec, "/version"));
        let target = hooks::target(&json!({
            "service": {"namespace": namespace, "name": service, "port": port, "path": path},
            "caBundle": spec["caBundle"],
        }));
        let url = &target.url;
        let reached = self.caller.reach(store, &target, Instant::now() + CHECK_TIMEOUT);
        match reached.await {
            Ok(()) => Ok(("Passed", "all checks passed")),
            Err(why) if why.starts_with("no endpoints available") => Err((
                "MissingEndpoints",
                format!(
                    "endpointslices for service/{service} in {namespace:?} have no addresses with port name \"\""
                ),
            )),
            Err(why) => Err((
                "FailedDiscoveryCheck",
                format!("failing or missing response from {url}: Get \"{url}\": {why}"),
            )),
        }
    }
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
