//! The webhook phases of a write, as kube-apiserver 1.36 runs them.
//!
//! Mutating hooks one after the other, validating ones all at once; what each outcome says to the client and to the
//! metrics follows `admission/plugin/webhook/{mutating,validating}/dispatcher.go`.

mod filter;
pub(super) mod hooks;
mod review;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::time::Instant;

use super::call::{CallError, Caller};
use super::kinds::ServedKind;
use super::knobs::{Knobs, cost};
use super::metrics::{ApiMetrics, CallEnd, HookLabels};
use super::status::ApiFailure;
use super::store::{ObjectStore, StoredObject};
use super::{defaults, patch, random};
use filter::should_call;
use hooks::{AdmissionHook, Compiled};
use review::Unacceptable;

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub name: String,
    /// Empty for an impersonated user.
    pub uid: String,
    pub groups: Vec<String>,
}

/// One write on its way through admission.
#[derive(Debug)]
pub(super) struct Attributes {
    pub kind: &'static ServedKind,
    /// Group, version and kind of the object sent. At some subresources it is not of the resource's own kind.
    pub object_kind: (&'static str, &'static str, &'static str),
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
    pub subresource: String,
    /// Empty for cluster-scoped objects; for a Namespace its own name, as in a real API server.
    pub namespace: String,
    pub name: String,
    pub user: User,
    pub dry_run: bool,
    /// CreateOptions, UpdateOptions, ... as sent.
    pub options: Value,
    pub object: Option<Value>,
    pub old: Option<Arc<StoredObject>>,
    /// When the whole request times out.
    pub deadline: Instant,
}

/// Time a request spent waiting for hooks, and their warnings for the client.
#[derive(Debug, Default)]
pub(super) struct HookTime {
    inner: Mutex<Waited>,
}

#[derive(Debug, Default)]
struct Waited {
    mutating: Duration,
    validating: Duration,
    warnings: Vec<String>,
}

impl HookTime {
    /// The time that the SLI latency excludes: the sum of the mutating calls, plus the longest validating call.
    pub(super) fn total(&self) -> Duration {
        let waited = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        waited.mutating + waited.validating
    }

    /// Removes and returns the hooks' warnings.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        let mut waited = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut waited.warnings)
    }

    fn add(&self, mutating: bool, took: Duration) {
        let mut waited = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if mutating {
            waited.mutating += took;
        } else {
            waited.validating = waited.validating.max(took);
        }
    }

    fn warn(&self, warnings: Vec<String>) {
        let mut waited = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        waited.warnings.extend(warnings);
    }
}

/// The compiled hooks, and the client that calls them.
#[derive(Debug)]
pub(super) struct Admission {
    compiled: Compiled,
    caller: Caller,
}

/// The parts of the API server that admission uses for one request.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub store: &'a ObjectStore,
    pub knobs: &'a Knobs,
    pub metrics: &'a ApiMetrics,
    pub time: &'a HookTime,
}

/// Why one hook did not admit a request.
enum HookFailure {
    /// The call failed, so `failurePolicy` decides. `code` is the label of the metrics.
    Failed { code: u16, why: String },
    /// The hook denied the request.
    Denied(ApiFailure),
    /// The API server itself failed.
    Internal(ApiFailure),
}

impl Admission {
    pub(super) fn new(caller: Caller) -> Self {
        Self {
            compiled: Compiled::default(),
            caller,
        }
    }

    /// Asks the mutating hooks, each with the object as the ones before it left it.
    pub(super) async fn mutate(
        &self,
        around: Surroundings<'_>,
        attributes: &mut Attributes,
    ) -> Result<(), ApiFailure> {
        let begin = Instant::now();
        let outcome = self.mutate_twice(around, attributes).await;
        let operation = attributes.operation;
        around
            .metrics
            .phase_done(true, operation, outcome.is_err(), begin.elapsed());
        outcome
    }

    async fn mutate_twice(
        &self,
        around: Surroundings<'_>,
        attributes: &mut Attributes,
    ) -> Result<(), ApiFailure> {
        let hooks = self.compiled.now(around.store);
        // Reinvocable hooks called so far, and those to call again because the object changed after their call.
        let (mut asked, mut again) = (Vec::new(), Vec::new());
        for round in 0..2 {
            for (index, hook) in hooks.mutating.iter().enumerate() {
                let due = round == 0 || again.contains(&index);
                if !due || !should_call(hook, around, attributes)? {
                    continue;
                }
                let before = attributes.object.clone();
                self.call(hook, around, attributes).await?.apply(attributes);
                if attributes.object != before {
                    again.append(&mut asked);
                }
                if hook.reinvocable && round == 0 {
                    asked.push(index);
                }
            }
        }
        Ok(())
    }

    /// Asks the validating hooks all at once and waits for all of them; the first refusal counts.
    pub(super) async fn validate(
        &self,
        around: Surroundings<'_>,
        attributes: &Attributes,
    ) -> Result<(), ApiFailure> {
        let begin = Instant::now();
        let outcome = self.validate_all(around, attributes).await;
        let operation = attributes.operation;
        around
            .metrics
            .phase_done(false, operation, outcome.is_err(), begin.elapsed());
        outcome?;
        // Next comes etcd, which does nothing for a request whose deadline has passed.
        if Instant::now() >= attributes.deadline {
            return Err(ApiFailure::timeout());
        }
        Ok(())
    }

    async fn validate_all(
        &self,
        around: Surroundings<'_>,
        attributes: &Attributes,
    ) -> Result<(), ApiFailure> {
        let hooks = self.compiled.now(around.store);
        let mut calls = FuturesUnordered::new();
        for hook in &hooks.validating {
            if should_call(hook, around, attributes)? {
                calls.push(self.call(hook, around, attributes));
            }
        }
        let mut first = Ok(());
        while let Some(outcome) = calls.next().await {
            first = first.and(outcome.map(|_| ()));
        }
        first
    }

    /// Calls one hook, counts the call, and returns what its outcome means for the request.
    async fn call(
        &self,
        hook: &AdmissionHook,
        around: Surroundings<'_>,
        attributes: &Attributes,
    ) -> Result<Mutation, ApiFailure> {
        let mut counted = CallRecorder {
            metrics: around.metrics,
            hook,
            operation: attributes.operation,
            begin: Instant::now(),
            end: None,
        };
        let outcome = self.ask(hook, around, attributes).await;
        let (end, settled) = settle(hook, attributes.deadline, outcome);
        counted.end = Some(end);
        settled
    }

    async fn ask(
        &self,
        hook: &AdmissionHook,
        around: Surroundings<'_>,
        attributes: &Attributes,
    ) -> Result<Mutation, HookFailure> {
        if attributes.dry_run && !hook.dry_run_safe {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(HookFailure::Internal(ApiFailure::bad_request(why)));
        }
        let Some(version) = hook.review_version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions \
                       (v1, v1beta1)";
            return Err(HookFailure::Failed {
                code: 400,
                why: why.to_owned(),
            });
        };
        let uid = random::uuid();
        let review = Bytes::from(review::review(attributes, version, &uid).to_string());
        let begin = Instant::now();
        around.knobs.spend(cost::CALL).await;
        let deadline = attributes.deadline.min(begin + hook.timeout);
        let posted = if around.knobs.is_firewalled(&hook.target.host) {
            let call = self
                .caller
                .dial_until_timeout(around.store, &hook.target, deadline);
            Err(call.await)
        } else {
            let call = self.caller.post(around.store, &hook.target, review, deadline);
            call.await
        };
        around.time.add(hook.mutating, begin.elapsed());
        let body = posted.map_err(|error| match error {
            CallError::NoClient(why) => HookFailure::Failed {
                code: 500,
                why: format!("could not get REST client: {why}"),
            },
            CallError::Post(why) | CallError::Other(why) => HookFailure::Failed {
                code: 503,
                why: format!("failed to call webhook: {why}"),
            },
            CallError::Status { code, message } => HookFailure::Failed {
                code,
                why: format!("failed to call webhook: {message}"),
            },
        })?;
        let failed = |why| HookFailure::Failed { code: 503, why };
        let answer = review::verify(&body, version, &uid, hook.mutating).map_err(|error| match error {
            Unacceptable::Undecodable(why) => failed(format!("failed to call webhook: {why}")),
            Unacceptable::Invalid(why) => failed(format!("received invalid webhook response: {why}")),
        })?;
        around.time.warn(answer.warnings);
        if !answer.allowed {
            return Err(HookFailure::Denied(denial(&hook.name, answer.result)));
        }
        match answer.patch {
            None => Ok(Mutation::None),
            Some(patch) => patched(hook, attributes, &patch),
        }
    }
}

/// What the outcome of a call means for the metrics and for the request.
fn settle(
    hook: &AdmissionHook,
    deadline: Instant,
    outcome: Result<Mutation, HookFailure>,
) -> (CallEnd, Result<Mutation, ApiFailure>) {
    let plain = CallEnd {
        code: 200,
        rejected: false,
        error_type: None,
        failed_open: false,
    };
    let rejected = |code, error_type| CallEnd {
        code,
        rejected: true,
        error_type: Some(error_type),
        ..plain
    };
    match outcome {
        Ok(change) => (plain, Ok(change)),
        Err(HookFailure::Denied(failure)) => (rejected(failure.code, "no_error"), Err(failure)),
        Err(HookFailure::Internal(failure)) => (rejected(0, "apiserver_internal_error"), Err(failure)),
        Err(HookFailure::Failed { code, .. }) if hook.ignores_failures => {
            let end = CallEnd {
                code,
                failed_open: true,
                ..plain
            };
            // The request's own deadline has passed. Only the mutating phase checks that.
            if hook.mutating && Instant::now() >= deadline {
                (end, Err(ApiFailure::timeout()))
            } else {
                (end, Ok(Mutation::None))
            }
        }
        Err(HookFailure::Failed { code, why }) => {
            let why = format!("failed calling webhook {:?}: {why}", hook.name);
            (
                rejected(code, "calling_webhook_error"),
                Err(ApiFailure::internal(&why)),
            )
        }
    }
}

/// What a hook's answer changes in the object.
enum Mutation {
    None,
    Object(Value),
}

impl Mutation {
    fn apply(self, attributes: &mut Attributes) {
        if let Self::Object(object) = self {
            attributes.object = Some(object);
        }
    }
}

fn patched(hook: &AdmissionHook, attributes: &Attributes, patch: &Value) -> Result<Mutation, HookFailure> {
    if !patch.is_array() {
        return Err(HookFailure::Failed {
            code: 503,
            why: "received undecodable patch in webhook response: no JSON patch".to_owned(),
        });
    }
    let Some(object) = &attributes.object else {
        let why = format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        );
        return Err(HookFailure::Internal(ApiFailure::internal(&why)));
    };
    let mut object = object.clone();
    if let Err(why) = patch::apply_json_patch(&mut object, patch) {
        return Err(HookFailure::Internal(ApiFailure::internal(&why)));
    }
    defaults::default(attributes.kind, &mut object);
    Ok(Mutation::Object(object))
}

/// A hook's `status` as the answer to the client (`ToStatusErr`).
fn denial(name: &str, result: Value) -> ApiFailure {
    let mut status = if result.is_object() {
        result
    } else {
        Value::Object(serde_json::Map::new())
    };
    let code = status["code"].as_u64().unwrap_or_default();
    let code = u16::try_from(code)
        .ok()
        .filter(|code| (400..1_000).contains(code));
    let code = code.unwrap_or(400);
    let said = |field: &str| status[field].as_str().filter(|said| !said.is_empty());
    let message = match (said("message"), said("reason")) {
        (Some(message), _) => format!("admission webhook {name:?} denied the request: {message}"),
        (None, Some(reason)) => format!("admission webhook {name:?} denied the request: {reason}"),
        (None, None) => format!("admission webhook {name:?} denied the request without explanation"),
    };
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    status["status"] = "Failure".into();
    status["message"] = message.into();
    status["code"] = code.into();
    if status["metadata"].is_null() {
        status["metadata"] = Value::Object(serde_json::Map::new());
    }
    ApiFailure {
        code,
        status: Box::new(status),
    }
}

/// Counts a call when it is over, also when the client went away and the call was dropped.
struct CallRecorder<'a> {
    metrics: &'a ApiMetrics,
    hook: &'a AdmissionHook,
    operation: &'a str,
    begin: Instant,
    end: Option<CallEnd>,
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        // A call whose request was abandoned counts as a call, but adds to neither the rejection nor the fail-open counter.
        let gone = CallEnd {
            code: 503,
            rejected: !self.hook.ignores_failures,
            error_type: None,
            failed_open: false,
        };
        let labels = HookLabels {
            name: &self.hook.name,
            mutating: self.hook.mutating,
            operation: self.operation,
        };
        self.metrics
            .called(labels, self.end.unwrap_or(gone), self.begin.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_denial_keeps_the_hooks_words_and_a_code_of_at_least_400() {
        for (result, code, message) in [
            (
                json!(null),
                400,
                "admission webhook \"w\" denied the request without explanation",
            ),
            (
                json!({"code": 200}),
                400,
                "admission webhook \"w\" denied the request without explanation",
            ),
            (
                json!({"code": 403, "message": "no"}),
                403,
                "admission webhook \"w\" denied the request: no",
            ),
            (
                json!({"reason": "Because"}),
                400,
                "admission webhook \"w\" denied the request: Because",
            ),
        ] {
            let failure = denial("w", result);
            assert_eq!((failure.code, failure.message()), (code, message));
            assert_eq!(failure.status["status"], "Failure");
        }
    }

    #[test]
    fn time_with_mutating_hooks_adds_up_and_of_validating_ones_the_longest_counts() {
        let time = HookTime::default();
        let ms = Duration::from_millis;
        for (mutating, took) in [(true, 10), (true, 20), (false, 7), (false, 40), (false, 5)] {
            time.add(mutating, ms(took));
        }
        assert_eq!(time.total(), ms(70));
    }
}
