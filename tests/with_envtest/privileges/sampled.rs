//! What src/domain/tests/fence explores, held against a real API server: of the same patches it lets through and refuses the same.

use hookwatch::domain::act::breaker::policy::PERMIT_ANNOTATION;
use hookwatch::domain::act::bypass::OPT_OUT_ANNOTATION;
use hookwatch::domain::act::bypass::edit::Desired;
use hookwatch::domain::act::fence::FENCE;
use http::Method;
use serde_json::{Value, json};

use super::cluster::{CONFIGURATIONS, Cluster, ask, play, until};
use crate::Outcome;
use crate::bypassing::{author_of, ignore, straight, validating};
use crate::policy::{Policy, Request};
use crate::world::{A, WORDS, owned, thief};

const FENCE_TEXT: &str = include_str!("../../../deploy/base/fence.yaml");
const NAME: &str = "sampled";
/// Patches that are sent.
const SAMPLES: usize = 600;
/// So many of them are let through and refused at least.
const EACH: usize = 25;

/// Numbers without an order that anybody sees, the same ones each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

pub fn agrees_with_what_is_explored() -> Outcome {
    play(async {
        let cluster = Cluster::with("overlays/breaker").await;
        let thiefs = cluster.client("hookwatch").await;
        let first: Value = serde_saphyr::from_str(FENCE_TEXT.split("\n---\n").next().unwrap()).unwrap();
        let policy = Policy::new(&first, |_| true);
        let mut object = owned();
        object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
        object["kind"] = "ValidatingWebhookConfiguration".into();
        object["metadata"] =
            json!({"name": NAME, "labels": {"team": "a"}, "finalizers": ["example.com/keep"]});
        // Not one that the API server takes.
        drop(
            object["webhooks"][0]["clientConfig"]
                .as_object_mut()
                .unwrap()
                .remove("caBundle"),
        );
        cluster.apply(&object).await;
        let target = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/{NAME}");
        let read = async || ask(&cluster.admin, Method::GET, &target, &Value::Null).await.body;
        let send = async |change: &Value| {
            let target = format!("{target}?fieldManager=hookwatch");
            ask(&thiefs, Method::PATCH, &target, change).await
        };
        until("the role and the fence are in force", async || {
            let target = format!("{target}?dryRun=All");
            let label = json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}]);
            let answer = ask(&thiefs, Method::PATCH, &target, &label).await;
            answer.message().contains(FENCE)
        })
        .await;
        let (hook, person) = (validating(NAME, A), straight(&cluster.admin));
        let (mut random, mut through, mut refused) = (Random(7), 0, 0);
        for sample in 0..SAMPLES {
            // Now and then somebody else does something.
            match random.below(24) {
                0..3 => {
                    let (breaker, permit) = WORDS[random.below(WORDS.len())];
                    let words = json!({OPT_OUT_ANNOTATION: breaker, PERMIT_ANNOTATION: permit});
                    let word = json!({"metadata": {"annotations": words}});
                    cluster.admin(Method::PATCH, &target, &word).await;
                }
                3 => drop(person.carry_out(&hook, &ignore(), &author_of(&ignore())).await),
                4 => drop(
                    person
                        .carry_out(&hook, &Desired::Restore, &author_of(&Desired::Restore))
                        .await,
                ),
                _ => {}
            }
            let before = read().await;
            let mut patches = thief(&before);
            // Who owns what is the API server's to note; that others' claims stay is tried by name.
            patches.retain(|patch| {
                patch.object["metadata"]["managedFields"] == before["metadata"]["managedFields"]
            });
            let patch = patches.swap_remove(random.below(patches.len()));
            let request = Request {
                operation: "UPDATE",
                resource: "validatingwebhookconfigurations",
                name: NAME,
                before: &before,
            };
            let expected = policy.asked(&request).refusal(&patch.object);
            let change = serde_json::to_value(json_patch::diff(&before, &patch.object)).unwrap();
            let answer = send(&change).await;
            let what = format!(
                "{sample}: {} at {}",
                patch.what, before["metadata"]["annotations"]
            );
            match (answer.is_success(), expected) {
                (true, None) => through += 1,
                (false, Some(_)) => refused += 1,
                // What makes no sense is refused before or after anybody is asked.
                (false, None) if !answer.message().contains(FENCE) && answer.status == 422 => {}
                // So is what claims more than it writes, and that is not simulated here.
                (false, None) if answer.message().contains("owner in managedFields") => {}
                (_, expected) => panic!("{what}: {} {}, not {expected:?}", answer.status, answer.message()),
            }
        }
        println!("{through} let through, {refused} refused, by both");
        assert!(through >= EACH && refused >= EACH, "{through} {refused}");
    })
}
