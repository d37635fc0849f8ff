//! Bypasses that are stored, one, three hundred and forty at once.

use super::*;

/// A bypass and its end, stored, by the shipped role.
pub(super) async fn one_bypass_for_real(cluster: &Cluster, account: &mut Account) {
    let actor = cluster.client("hookwatch").await;
    let original = get(&cluster.admin, PLAIN).await;
    let mut step = original.clone();
    changes::bypass(&mut step);
    let answer = Way::JsonPatch.go(&actor, PLAIN, &original, &step, false).await;
    account.check("a bypass", answer.is_success(), &answer);
    let bypassed = get(&cluster.admin, PLAIN).await;
    let mut step = bypassed.clone();
    changes::restore(&mut step);
    let answer = Way::JsonPatch.go(&actor, PLAIN, &bypassed, &step, false).await;
    account.check("its end", answer.is_success(), &answer);
    let mut restored = get(&cluster.admin, PLAIN).await;
    let metadata = restored["metadata"].as_object_mut().unwrap();
    for key in ["managedFields", "resourceVersion", "generation"] {
        metadata[key] = original["metadata"][key].clone();
    }
    // An empty list that was made is left behind.
    if restored["webhooks"][2]["matchConditions"] == json!([]) {
        restored["webhooks"][2]
            .as_object_mut()
            .unwrap()
            .remove("matchConditions");
    }
    assert_eq!(restored, original);
}

/// A bypass whose object is opted out while it lasts: what was changed may go back, and nothing else changes any more.
pub(super) async fn taken_back_once_its_owner_opted_out(cluster: &Cluster, account: &mut Account) {
    let actor = cluster.client("hookwatch").await;
    let original = get(&cluster.admin, PLAIN).await;
    let mut step = original.clone();
    changes::bypass(&mut step);
    let answer = Way::JsonPatch.go(&actor, PLAIN, &original, &step, false).await;
    account.check("a bypass before the opt-out", answer.is_success(), &answer);
    let off = json!({"metadata": {"annotations": {"hookwatch.dev/breaker": "off"}}});
    let target = format!("{CONFIGURATIONS}/{PLAIN}");
    cluster.admin(Method::PATCH, &target, &off).await;
    let bypassed = get(&cluster.admin, PLAIN).await;
    let says = changes::OFF;
    let mut farther = bypassed.clone();
    let skip = json!({"name": "hookwatch.dev/skip", "expression": "false"});
    farther["webhooks"][1]["matchConditions"] = json!([skip]);
    let answer = Way::JsonPatch.go(&actor, PLAIN, &bypassed, &farther, true).await;
    account.check("another webhook", by_the_fence(&answer, says), &answer);
    let mut moved = bypassed.clone();
    moved["webhooks"][2]["matchConditions"] = bypassed["webhooks"][0]["matchConditions"].clone();
    let answer = Way::JsonPatch.go(&actor, PLAIN, &bypassed, &moved, true).await;
    account.check("another rung", by_the_fence(&answer, says), &answer);
    let mut restored = bypassed.clone();
    changes::restore(&mut restored);
    let answer = Way::JsonPatch
        .go(&actor, PLAIN, &bypassed, &restored, false)
        .await;
    account.check("its end after the opt-out", answer.is_success(), &answer);
    let restored = get(&cluster.admin, PLAIN).await;
    let mut again = restored.clone();
    changes::bypass(&mut again);
    let answer = Way::JsonPatch.go(&actor, PLAIN, &restored, &again, true).await;
    account.check("the same bypass once more", by_the_fence(&answer, says), &answer);
    let skip = json!({"metadata": {"annotations": {"hookwatch.dev/breaker": "skip"}}});
    cluster.admin(Method::PATCH, &target, &skip).await;
}

pub(super) async fn three_hundred_webhooks(cluster: &Cluster, account: &mut Account) {
    let mut many = changes::plain(
        "ValidatingWebhookConfiguration",
        "many",
        json!({"hookwatch.dev/breaker": "skip"}),
    );
    let webhook = many["webhooks"][0].clone();
    let webhooks = (0..300).map(|number| {
        let mut webhook = webhook.clone();
        webhook["name"] = format!("validate-{number}.policies.example.com").into();
        webhook
    });
    many["webhooks"] = webhooks.collect();
    cluster.apply(&many).await;
    let actor = cluster.client("hookwatch").await;
    let object = "validatingwebhookconfigurations/many";
    let before = get(&cluster.admin, object).await;
    let mut after = before.clone();
    for webhook in after["webhooks"].as_array_mut().unwrap() {
        let skip = json!({"name": "hookwatch.dev/skip", "expression": "false"});
        webhook["matchConditions"].as_array_mut().unwrap().push(skip);
    }
    after["metadata"]["annotations"]["hookwatch.dev/bypass"] = "{}".into();
    let answer = Way::JsonPatch.go(&actor, object, &before, &after, false).await;
    account.check("300 webhooks bypassed at once", answer.is_success(), &answer);
    let bypassed = get(&cluster.admin, object).await;
    let mut restored = before.clone();
    restored["metadata"] = bypassed["metadata"].clone();
    let annotations = &mut restored["metadata"]["annotations"];
    *annotations = before["metadata"]["annotations"].clone();
    let answer = Way::JsonPatch
        .go(&actor, object, &bypassed, &restored, false)
        .await;
    account.check("and restored at once", answer.is_success(), &answer);
    let before = get(&cluster.admin, object).await;
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    after["webhooks"][299]["rules"][0]["operations"] = json!(["DELETE"]);
    let answer = Way::JsonPatch.go(&actor, object, &before, &after, true).await;
    account.check(
        "one rule of 300 webhooks",
        by_the_fence(&answer, "nothing of a webhook changes but"),
        &answer,
    );
}

/// One incident of forty hooks in one configuration, each with all that an owner can add: one write.
pub(super) async fn forty_shields(cluster: &Cluster, account: &mut Account) {
    let spare = format!("self,leases={}", vec!["n".repeat(63); 8].join("+"));
    let annotations = json!({"owner": "a", "hookwatch.dev/spare": spare});
    let mut many = changes::plain("ValidatingWebhookConfiguration", "forty", annotations);
    let webhook = many["webhooks"][0].clone();
    let webhooks = (0..40).map(|number| {
        let mut webhook = webhook.clone();
        webhook["name"] = format!("validate-{number}.policies.example.com").into();
        webhook["clientConfig"] = json!({"service": {"namespace": "n".repeat(63), "name": "s"}});
        webhook
    });
    many["webhooks"] = webhooks.collect();
    cluster.apply(&many).await;
    let actor = cluster.client("hookwatch").await;
    let object = "validatingwebhookconfigurations/forty";
    let before = get(&cluster.admin, object).await;
    let mut after = before.clone();
    let shield = changes::shield(&spare, Some(&"n".repeat(63)));
    for webhook in after["webhooks"].as_array_mut().unwrap() {
        webhook["matchConditions"]
            .as_array_mut()
            .unwrap()
            .push(shield.clone());
    }
    after["metadata"]["annotations"]["hookwatch.dev/bypass"] = json!({"originals": []}).to_string().into();
    let answer = Way::JsonPatch.go(&actor, object, &before, &after, false).await;
    account.check("40 shields at once", answer.is_success(), &answer);
    let shielded = get(&cluster.admin, object).await;
    let mut restored = before.clone();
    restored["metadata"] = shielded["metadata"].clone();
    restored["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
    let answer = Way::JsonPatch
        .go(&actor, object, &shielded, &restored, false)
        .await;
    account.check("and 40 shields taken away", answer.is_success(), &answer);
}
