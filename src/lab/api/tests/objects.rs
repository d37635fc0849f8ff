//! Objects, watches and patches, as an ordinary client sees them.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use serde_json::json;

use super::*;

fn json_patch(operations: serde_json::Value) -> Patch<()> {
    Patch::Json(serde_json::from_value(operations).expect("a patch"))
}

#[tokio::test]
async fn an_object_lives_through_create_read_update_and_delete() {
    let lab = Lab::start().await;
    let api = lab.configmaps();
    let created = lab.create("x").await.expect("created");
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
    assert_eq!(
        lab.refused("x").await,
        (409, "configmaps \"x\" already exists".to_owned())
    );
    let mut changed = api.get("x").await.expect("there");
    changed.data = Some([("k".to_owned(), "w".to_owned())].into());
    let replaced = api
        .replace("x", &PostParams::default(), &changed)
        .await
        .expect("replaced");
    assert_ne!(
        replaced.metadata.resource_version,
        created.metadata.resource_version
    );
    let (code, message) = refusal(api.replace("x", &PostParams::default(), &changed).await);
    assert_eq!(code, 409, "the version is old");
    assert!(
        message
            .starts_with("Operation cannot be fulfilled on configmaps \"x\": the object has been modified")
    );
    api.delete("x", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(
        refusal(api.get("x").await),
        (404, "configmaps \"x\" not found".to_owned())
    );
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_none() {
    let lab = Lab::start().await;
    let created = lab.create("x").await.expect("created");
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    let patched = lab
        .configmaps()
        .patch("x", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    assert_eq!(
        patched.metadata.resource_version,
        created.metadata.resource_version
    );
}

#[tokio::test]
async fn every_kind_of_patch_does_what_it_says() {
    let lab = Lab::start().await;
    let api = lab.configmaps();
    lab.create("x").await.expect("created");
    let parameters = PatchParams::apply("test");
    let wrong = json_patch(json!([
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "replace", "path": "/data/k", "value": "never"},
    ]));
    assert_eq!(refusal(api.patch("x", &parameters, &wrong).await).0, 422);
    let right = json_patch(json!([
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "replace", "path": "/data/k", "value": "json"},
    ]));
    let patched = api.patch("x", &parameters, &right).await.expect("patched");
    assert_eq!(patched.data.expect("data")["k"], "json");
    let merge = Patch::Merge(json!({"data": {"k": null, "m": "merge"}}));
    let patched = api.patch("x", &parameters, &merge).await.expect("patched");
    assert_eq!(
        patched.data.expect("data"),
        [("m".to_owned(), "merge".to_owned())].into()
    );
    let version = json!({"metadata": {"resourceVersion": "1"}, "data": {"m": "stale"}});
    assert_eq!(
        refusal(api.patch("x", &parameters, &Patch::Merge(version)).await).0,
        409
    );
    let apply = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "new", "namespace": "default"}, "data": {"a": "1"},
    });
    for _ in 0..2 {
        let applied = api.patch("new", &parameters, &Patch::Apply(&apply)).await;
        assert_eq!(applied.expect("applied").data.expect("data")["a"], "1");
    }
    let family = "apiserver_request_total";
    assert_eq!(lab.metric(family, &["verb=\"APPLY\"", "code=\"201\""]).await, 1.0);
    assert_eq!(lab.metric(family, &["verb=\"APPLY\"", "code=\"200\""]).await, 1.0);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let lab = Lab::start().await;
    let api = lab.configmaps();
    create(&lab.client, "x", true).await.expect("would be created");
    assert!(api.get_opt("x").await.expect("an answer").is_none());
    let created = lab.create("x").await.expect("created");
    let parameters = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    let patched = api
        .patch("x", &parameters, &patch)
        .await
        .expect("would be patched");
    assert_eq!(patched.data.expect("data")["k"], "w");
    api.delete("x", &DeleteParams::default().dry_run())
        .await
        .expect("would be deleted");
    let still = api.get("x").await.expect("there");
    assert_eq!(still, created);
}

#[tokio::test]
async fn a_namespace_must_be_there_and_takes_its_objects_with_it() {
    let lab = Lab::start().await;
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), "tenant");
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"generateName": "s-"}})).expect("a Secret");
    let parameters = PostParams::default();
    assert_eq!(
        refusal(secrets.create(&parameters, &secret).await),
        (404, "namespaces \"tenant\" not found".to_owned())
    );
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "tenant"}})).expect("a Namespace");
    namespaces.create(&parameters, &namespace).await.expect("created");
    let created = secrets.create(&parameters, &secret).await.expect("created");
    assert!(created.metadata.name.expect("a name").starts_with("s-"));
    namespaces
        .delete("tenant", &DeleteParams::default())
        .await
        .expect("deleted");
    let all: Api<Secret> = Api::all(lab.client.clone());
    assert_eq!(
        all.list(&ListParams::default())
            .await
            .expect("a list")
            .items
            .len(),
        0
    );
}

#[tokio::test]
async fn lists_are_limited_by_labels_and_fields() {
    let lab = Lab::start().await;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let names = |parameters: ListParams| {
        let namespaces = namespaces.clone();
        async move {
            let list = namespaces.list(&parameters).await.expect("a list");
            list.items
                .into_iter()
                .filter_map(|object| object.metadata.name)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(names(ListParams::default()).await.len(), 4);
    let by_field = ListParams::default().fields("metadata.name=default");
    assert_eq!(names(by_field).await, ["default"]);
    let by_label = ListParams::default().labels("kubernetes.io/metadata.name in (kube-public,none)");
    assert_eq!(names(by_label).await, ["kube-public"]);
}

#[tokio::test]
async fn a_lease_is_not_overwritten_blindly() {
    let lab = Lab::start().await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), "kube-system");
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "l"}})).expect("a Lease");
    leases
        .create(&PostParams::default(), &lease)
        .await
        .expect("created");
    let (code, message) = refusal(leases.replace("l", &PostParams::default(), &lease).await);
    assert_eq!(code, 422);
    assert!(message.contains("must be specified for an update"), "{message}");
}

#[tokio::test]
async fn a_watch_tells_of_changes_in_order_and_ends_when_it_was_asked_to() {
    let lab = Lab::start().await;
    let api = lab.configmaps();
    let version = api.list(&ListParams::default()).await.expect("a list");
    let version = version.metadata.resource_version.expect("a version");
    lab.create("x").await.expect("created");
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    api.patch("x", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    api.delete("x", &DeleteParams::default()).await.expect("deleted");
    let parameters = WatchParams::default().timeout(1);
    let events = api.watch(&parameters, &version).await.expect("a watch");
    let events: Vec<WatchEvent<ConfigMap>> = tokio::time::timeout(GUARD, events.try_collect())
        .await
        .expect("an end")
        .expect("no errors");
    assert!(
        matches!(
            events.as_slice(),
            [
                WatchEvent::Added(_),
                WatchEvent::Modified(_),
                WatchEvent::Deleted(_)
            ]
        ),
        "{events:?}"
    );
    let family = "apiserver_request_total";
    assert_eq!(lab.metric(family, &["verb=\"WATCH\"", "code=\"200\""]).await, 1.0);
    let family = "apiserver_request_sli_duration_seconds_count";
    assert_eq!(lab.metric(family, &["verb=\"WATCH\""]).await, 0.0);
}

#[tokio::test]
async fn an_object_that_ceases_to_match_is_deleted_for_the_watch() {
    let lab = Lab::start().await;
    let api = lab.configmaps();
    lab.create("x").await.expect("created");
    let parameters = WatchParams::default().labels("on=1").timeout(1);
    let version = lab.server.state.store.revision().to_string();
    for value in [json!("1"), json!(null)] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"on": value}}}));
        api.patch("x", &PatchParams::default(), &patch)
            .await
            .expect("patched");
    }
    let events = api.watch(&parameters, &version).await.expect("a watch");
    let events: Vec<WatchEvent<ConfigMap>> = events.try_collect().await.expect("no errors");
    assert!(
        matches!(events.as_slice(), [WatchEvent::Added(_), WatchEvent::Deleted(_)]),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_watcher_follows_by_list_and_by_stream_and_survives_an_expired_version() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let lab = Lab::start().await;
        lab.create("before").await.expect("created");
        let events = watcher::watcher(lab.configmaps(), config);
        let mut events = std::pin::pin!(events);
        let mut wait_for = async |wanted: &str| {
            let found = async {
                loop {
                    match events.next().await {
                        Some(Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)))
                            if object.metadata.name.as_deref() == Some(wanted) =>
                        {
                            return;
                        }
                        // The expiry itself comes as an error, and the watcher restarts.
                        Some(_) => {}
                        None => panic!("the watcher ended"),
                    }
                }
            };
            tokio::time::timeout(GUARD, found).await.expect("seen in time");
        };
        wait_for("before").await;
        lab.create("after").await.expect("created");
        wait_for("after").await;
        lab.server.expire_watches();
        lab.create("later").await.expect("created");
        wait_for("later").await;
    }
}

#[tokio::test]
async fn webhook_configurations_are_defaulted_counted_and_checked() {
    let lab = Lab::start().await;
    let backend = Backend::allowing().await;
    let mut webhook = webhook("w.test.example", &backend);
    webhook
        .as_object_mut()
        .expect("an object")
        .remove("timeoutSeconds");
    lab.register(false, "test", vec![webhook]).await;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(lab.client.clone());
    let created = api.get("test").await.expect("there");
    assert_eq!(created.metadata.generation, Some(1));
    let entry = &created.webhooks.as_ref().expect("webhooks")[0];
    assert_eq!(entry.timeout_seconds, Some(10));
    assert_eq!(entry.failure_policy.as_deref(), Some("Fail"));
    let patch = |path: &str, value: serde_json::Value| {
        json_patch(json!([{"op": "add", "path": path, "value": value}]))
    };
    let parameters = PatchParams::default();
    let changed = api
        .patch(
            "test",
            &parameters,
            &patch("/webhooks/0/timeoutSeconds", json!(3)),
        )
        .await
        .expect("patched");
    assert_eq!(changed.metadata.generation, Some(2));
    let annotated = api
        .patch(
            "test",
            &parameters,
            &patch("/metadata/annotations", json!({"a": "b"})),
        )
        .await
        .expect("patched");
    assert_eq!(
        annotated.metadata.generation,
        Some(2),
        "nothing of the spec changed"
    );
    let (code, message) = refusal(
        api.patch(
            "test",
            &parameters,
            &patch("/webhooks/0/timeoutSeconds", json!(99)),
        )
        .await,
    );
    assert_eq!(code, 422);
    assert!(
        message.contains("webhooks[0].timeoutSeconds: Invalid value: 99"),
        "{message}"
    );
    lab.server
        .knobs()
        .refuse_configuration_writes(Some("ValidatingAdmissionPolicy 'p' denied request: no"));
    let (code, message) = refusal(
        api.patch(
            "test",
            &parameters,
            &patch("/webhooks/0/timeoutSeconds", json!(4)),
        )
        .await,
    );
    assert_eq!(code, 403);
    assert!(message.ends_with("denied request: no"), "{message}");
}

#[tokio::test]
async fn a_request_without_the_token_is_unauthorized() {
    let lab = Lab::start().await;
    let mut kubeconfig = Kubeconfig::from_yaml(&lab.server.kubeconfig()).expect("a kubeconfig");
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().expect("a user");
    user.token = Some("wrong".to_owned().into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    let stranger = Client::try_from(config).expect("a client");
    assert_eq!(
        refusal(create(&stranger, "x", false).await),
        (401, "Unauthorized".to_owned())
    );
}

#[tokio::test]
async fn slow_storage_slows_requests_and_says_so() {
    let lab = Lab::start().await;
    let latency = Duration::from_millis(60);
    lab.server.knobs().set_storage_latency(latency, 0.0);
    lab.create("x").await.expect("created");
    let labels = ["operation=\"create\"", "resource=\"configmaps\"", "group=\"\""];
    let spent = lab.metric("etcd_request_duration_seconds_sum", &labels).await;
    assert!(spent >= 0.06, "{spent} s");
    let family = "apiserver_request_sli_duration_seconds_sum";
    assert!(lab.metric(family, &["verb=\"POST\"", "configmaps"]).await >= spent);
}

#[tokio::test]
async fn the_end_of_the_server_ends_everything_it_had_open() {
    let lab = Lab::start().await;
    let watch = lab
        .configmaps()
        .watch(&WatchParams::default(), "1")
        .await
        .expect("a watch");
    let mut watch = std::pin::pin!(watch);
    let address = lab.server.address();
    drop(lab.server);
    let ended = async { while let Some(Ok(_)) = watch.next().await {} };
    tokio::time::timeout(GUARD, ended).await.expect("an end");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_scale_of_a_deployment_is_an_object_of_its_own() {
    let lab = Lab::start().await;
    let api: Api<Deployment> = Api::namespaced(lab.client.clone(), "default");
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
        },
    });
    let deployment = serde_json::from_value(deployment).expect("a Deployment");
    let created = api.create(&PostParams::default(), &deployment).await;
    let created = created.expect("created");
    let scale = api.get_scale("d").await.expect("a Scale");
    assert_eq!(scale.metadata.resource_version, created.metadata.resource_version);
    assert_eq!(scale.spec.expect("a spec").replicas, Some(2));
    let raw = lab
        .get("/apis/apps/v1/namespaces/default/deployments/d/scale")
        .await;
    assert!(raw.contains("\"Scale\"") && !raw.contains("template"), "{raw}");
    assert_eq!(refusal(api.get_scale("none").await).0, 404);
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), "default");
    let bound = pods.get_subresource("binding", "p").await;
    assert_eq!(
        refusal(bound),
        (
            405,
            "the server does not allow this method on the requested resource".to_owned()
        )
    );
}
