//! Changes of what is its owner's: objects, fields, failure policies, and who owns what.

use super::*;

pub(super) fn at_the_object() -> Vec<Attempt> {
    vec![
        refused("a label more", OBJECT, |o| {
            o["metadata"]["labels"]["more"] = "1".into()
        }),
        refused("another label", OBJECT, |o| {
            o["metadata"]["labels"]["team"] = "b".into()
        }),
        refused("no labels", OBJECT, |o| remove(&mut o["metadata"], "labels")),
        refused("an owner that does not exist", OBJECT, |o| {
            list(&mut o["metadata"], "ownerReferences").push(json!(
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}
            ));
        }),
        refused("another owner", OBJECT, |o| {
            o["metadata"]["ownerReferences"][0]["uid"] = "2".into()
        }),
        refused("no owner", OBJECT, |o| {
            remove(&mut o["metadata"], "ownerReferences")
        }),
        refused("a finalizer more", OBJECT, |o| {
            list(&mut o["metadata"], "finalizers").push("example.com/mine".into());
        }),
        refused("no finalizers", OBJECT, |o| {
            remove(&mut o["metadata"], "finalizers")
        }),
        at(PLAIN, "another name", Expect::Api("name"), |o| {
            o["metadata"]["name"] = "other".into()
        }),
        refused("generateName", OBJECT, |o| {
            o["metadata"]["generateName"] = "x-".into()
        }),
        refused("an annotation more", ANNOTATION, |o| {
            o["metadata"]["annotations"]["more"] = "1".into()
        }),
        refused("another annotation", ANNOTATION, |o| {
            o["metadata"]["annotations"]["owner"] = "b".into()
        }),
        refused("an annotation less", ANNOTATION, |o| {
            remove(&mut o["metadata"]["annotations"], "owner")
        }),
        refused("no annotations", ANNOTATION, |o| {
            remove(&mut o["metadata"], "annotations")
        }),
        refused("an opt-out in somebody's name", ANNOTATION, |o| {
            o["metadata"]["annotations"]["hookwatch.dev/breaker"] = "off".into();
        }),
        refused("another annotation of the same prefix", ANNOTATION, |o| {
            o["metadata"]["annotations"]["hookwatch.dev/bypassed"] = "1".into();
        }),
        refused("an annotation that fills the object", TOO_LONG, |o| {
            o["metadata"]["annotations"][STATE_ANNOTATION] = "x".repeat(16_385).into();
        }),
    ]
}

pub(super) fn at_webhooks() -> Vec<Attempt> {
    vec![
        refused("no webhooks", COUNT, |o| o["webhooks"] = json!([])),
        refused("webhooks absent", COUNT, |o| remove(o, "webhooks")),
        refused("a webhook less", COUNT, |o| drop(list(o, "webhooks").pop())),
        refused("a webhook more", COUNT, |o| {
            let mut more = o["webhooks"][0].clone();
            more["name"] = "d.example.com".into();
            list(o, "webhooks").push(more);
        }),
        at(PLAIN, "a webhook twice", Expect::Api("Duplicate value"), |o| {
            let twice = o["webhooks"][0].clone();
            list(o, "webhooks").push(twice);
        }),
        refused("another order", COUNT, |o| list(o, "webhooks").swap(0, 2)),
        refused("another name of a webhook", COUNT, |o| {
            o["webhooks"][0]["name"] = "z.example.com".into()
        }),
        refused("names exchanged", COUNT, |o| {
            o["webhooks"][0]["name"] = "c.example.com".into();
            o["webhooks"][2]["name"] = "a.example.com".into();
        }),
        refused("another url", FIELDS, |o| {
            o["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:2/".into()
        }),
        refused("a Service for a url", FIELDS, |o| {
            o["webhooks"][0]["clientConfig"] = json!({"service": {"namespace": "x", "name": "y"}});
        }),
        refused("a caBundle", FIELDS, |o| {
            o["webhooks"][0]["clientConfig"]["caBundle"] = super::super::fence::CA_BUNDLE.clone().into();
        }),
        refused("no rules", FIELDS, |o| o["webhooks"][0]["rules"] = json!([])),
        refused("rules absent", FIELDS, |o| remove(&mut o["webhooks"][0], "rules")),
        refused("wider rules", FIELDS, |o| {
            o["webhooks"][0]["rules"][0]["resources"] = json!(["*"])
        }),
        refused("a rule twice", FIELDS, |o| {
            let rule = o["webhooks"][0]["rules"][0].clone();
            list(&mut o["webhooks"][0], "rules").push(rule);
        }),
        refused("another scope", FIELDS, |o| {
            o["webhooks"][0]["rules"][0]["scope"] = "Cluster".into()
        }),
        refused("a namespaceSelector of nothing", FIELDS, |o| {
            o["webhooks"][0]["namespaceSelector"] = json!({"matchLabels": {"none": "none"}});
        }),
        refused("an empty namespaceSelector", FIELDS, |o| {
            o["webhooks"][0]["namespaceSelector"] = json!({})
        }),
        refused("namespaceSelector absent", FIELDS, |o| {
            remove(&mut o["webhooks"][0], "namespaceSelector")
        }),
        refused("an objectSelector", FIELDS, |o| {
            o["webhooks"][1]["objectSelector"] = json!({"matchLabels": {"none": "none"}});
        }),
        refused("matchPolicy", FIELDS, |o| {
            o["webhooks"][0]["matchPolicy"] = "Exact".into()
        }),
        refused("sideEffects", FIELDS, |o| {
            o["webhooks"][0]["sideEffects"] = "NoneOnDryRun".into()
        }),
        refused("admissionReviewVersions", FIELDS, |o| {
            o["webhooks"][0]["admissionReviewVersions"] = json!(["v1"]);
        }),
        at(MUTATING, "reinvocationPolicy", Expect::Fence(FIELDS), |o| {
            o["webhooks"][0]["reinvocationPolicy"] = "IfNeeded".into();
        }),
        refused(
            "a permitted change with another in the last webhook",
            FIELDS,
            |o| {
                note(o, &[]);
                add(o, 0, condition(BypassCondition::Skip));
                o["webhooks"][2]["rules"][0]["operations"] = json!(["DELETE"]);
            },
        ),
    ]
}

pub(super) fn at_policies() -> Vec<Attempt> {
    vec![
        refused("Fail to Ignore", FIELDS, |o| {
            o["webhooks"][0]["failurePolicy"] = "Ignore".into()
        }),
        refused("Fail to Ignore, with the original", FIELDS, |o| {
            note(o, &[fail_10("a.example.com")]);
            o["webhooks"][0]["failurePolicy"] = "Ignore".into();
        }),
        refused("Ignore to Fail", FIELDS, |o| {
            o["webhooks"][1]["failurePolicy"] = "Fail".into()
        }),
        refused("failurePolicy absent where it was Ignore", FIELDS, |o| {
            remove(&mut o["webhooks"][1], "failurePolicy");
        }),
        refused("less time", FIELDS, |o| {
            o["webhooks"][0]["timeoutSeconds"] = 1.into()
        }),
        refused("less time, with the original", FIELDS, |o| {
            note(o, &[original("b.example.com", "Ignore", 5)]);
            o["webhooks"][1]["timeoutSeconds"] = 1.into();
        }),
        refused("more time", FIELDS, |o| {
            o["webhooks"][1]["timeoutSeconds"] = 30.into()
        }),
        refused("timeoutSeconds absent, which is more", FIELDS, |o| {
            remove(&mut o["webhooks"][1], "timeoutSeconds");
        }),
        at(PLAIN, "no time", Expect::Api("timeoutSeconds"), |o| {
            o["webhooks"][0]["timeoutSeconds"] = 0.into()
        }),
        at(PLAIN, "31 seconds", Expect::Api("timeoutSeconds"), |o| {
            o["webhooks"][0]["timeoutSeconds"] = 31.into()
        }),
        refused("an original, for later", ORIGINAL, |o| {
            note(o, &[fail_10("a.example.com")])
        }),
        refused("a false original, for later", ORIGINAL, |o| {
            note(o, &[original("b.example.com", "Fail", 5)]);
        }),
        refused("an original of no webhook", ORIGINAL, |o| {
            note(o, &[fail_10("z.example.com")])
        }),
        refused("an original in plain text", ORIGINAL, |o| {
            o["metadata"]["annotations"][STATE_ANNOTATION] = "b.example.com=Fail/5".into();
        }),
        at(
            BYPASSED,
            "another policy beside a bypass",
            Expect::Fence(FIELDS),
            |o| {
                o["webhooks"][1]["failurePolicy"] = "Fail".into();
            },
        ),
        at(
            BYPASSED,
            "a bypass ended with more time",
            Expect::Fence(FIELDS),
            |o| {
                restore(o);
                o["webhooks"][0]["timeoutSeconds"] = 30.into();
            },
        ),
        at(
            BYPASSED,
            "conditions that nobody explains any more",
            Expect::Fence(OURS),
            |o| remove(&mut o["metadata"]["annotations"], STATE_ANNOTATION),
        ),
        at(
            BYPASSED,
            "a bypass ended with a condition of others",
            Expect::Fence(FOREIGN),
            |o| {
                restore(o);
                drop(list(&mut o["webhooks"][0], "matchConditions").pop());
            },
        ),
    ]
}

pub(super) fn at_ownership() -> Vec<Attempt> {
    vec![
        refused("no managedFields", OWNERSHIP, |o| {
            o["metadata"]["managedFields"] = json!([{}])
        }),
        refused("a field of the installer's for somebody else", OWNERSHIP, |o| {
            o["metadata"]["managedFields"][0]["manager"] = "somebody".into();
        }),
        refused(
            "a webhook for the installer that it never wrote",
            OWNERSHIP,
            |o| {
                let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"];
                fields["f:metadata"]["f:labels"]["f:other"] = json!({});
            },
        ),
        refused("a field less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"];
            remove(&mut fields["f:metadata"], "f:labels");
        }),
        refused("a webhook for us", OWNERSHIP, |o| {
            let mut mine = o["metadata"]["managedFields"][0].clone();
            mine["manager"] = "hookwatch".into();
            list(&mut o["metadata"], "managedFields").push(mine);
        }),
        refused("a webhook's rules for us", OWNERSHIP, |o| {
            claim(o, "hookwatch", "a.example.com", json!({"f:rules": {}}));
        }),
        refused("a webhook's name for us", OWNERSHIP, |o| {
            claim(o, "hookwatch", "a.example.com", json!({".": {}, "f:name": {}}));
        }),
        refused("a condition of others for us", OWNERSHIP, |o| {
            let theirs =
                json!({"k:{\"name\":\"first.example.com\"}": {".": {}, "f:expression": {}, "f:name": {}}});
            claim(
                o,
                "hookwatch",
                "a.example.com",
                json!({ "f:matchConditions": theirs }),
            );
        }),
        refused("a condition of others for somebody else", OWNERSHIP, |o| {
            let theirs =
                json!({"k:{\"name\":\"first.example.com\"}": {".": {}, "f:expression": {}, "f:name": {}}});
            claim(
                o,
                "somebody",
                "a.example.com",
                json!({ "f:matchConditions": theirs }),
            );
        }),
        refused("a timeout for somebody else", OWNERSHIP, |o| {
            claim(o, "somebody", "a.example.com", json!({"f:timeoutSeconds": {}}));
        }),
        refused("a timeout for us", OWNERSHIP, |o| {
            claim(o, "hookwatch", "a.example.com", json!({"f:timeoutSeconds": {}}));
        }),
        refused("a timeout less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"]["f:webhooks"];
            remove(&mut fields["k:{\"name\":\"c.example.com\"}"], "f:timeoutSeconds");
        }),
        refused("a webhook less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"];
            remove(&mut fields["f:webhooks"], "k:{\"name\":\"c.example.com\"}");
        }),
        refused("a webhook's rules less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"];
            remove(
                &mut fields["f:webhooks"]["k:{\"name\":\"c.example.com\"}"],
                "f:rules",
            );
        }),
        refused("a condition less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"]["f:webhooks"];
            remove(
                &mut fields["k:{\"name\":\"a.example.com\"}"]["f:matchConditions"],
                "k:{\"name\":\"first.example.com\"}",
            );
        }),
        refused("all conditions less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"]["f:webhooks"];
            remove(&mut fields["k:{\"name\":\"a.example.com\"}"], "f:matchConditions");
        }),
        refused("an annotation less for the installer", OWNERSHIP, |o| {
            let fields = &mut o["metadata"]["managedFields"][0]["fieldsV1"];
            remove(&mut fields["f:metadata"]["f:annotations"], "f:owner");
        }),
    ]
}

/// Says that somebody owns these fields of a webhook.
pub(super) fn claim(object: &mut Value, manager: &str, webhook: &str, fields: Value) {
    let key = format!("k:{{\"name\":\"{webhook}\"}}");
    list(&mut object["metadata"], "managedFields").push(json!({
        "manager": manager, "operation": "Update", "apiVersion": "admissionregistration.k8s.io/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:webhooks": {key: fields}},
    }));
}

pub(super) fn at_other_objects() -> Vec<Attempt> {
    let off = Expect::Fence(OFF);
    let ledger = Expect::Fence(LEDGER_ONLY);
    let ours = Expect::Fence(OURS);
    vec![
        allowed(WIPED, "one of two that nobody explains less", |o| {
            without_ours(o, 0)
        }),
        allowed(WIPED, "both that nobody explains less", |o| {
            without_ours(o, 0);
            without_ours(o, 2);
        }),
        at(WIPED, "another where nobody explains any", ours, |o| {
            add(o, 1, condition(BypassCondition::Shield));
        }),
        at(WIPED, "another rung where nobody explains any", ours, |o| {
            without_ours(o, 2);
            add(o, 2, condition(BypassCondition::Skip));
        }),
        at(OPTED_OUT, "a bypass against its owner's will", off, |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Shield));
        }),
        at(UNREADABLE, "a shield where nobody can read how far", off, |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Shield));
        }),
        at(
            AT_SHIELD,
            "a shield where a shield is permitted",
            Expect::Allowed,
            |o| {
                note(o, &[]);
                add(o, 0, condition(BypassCondition::Shield));
            },
        ),
        allowed(UNSAID, "a shield where nothing is said", |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Shield));
        }),
        at(UNSAID, "a skip where nothing is said", off, |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
        }),
        at(UNSAID, "a probation where nothing is said", off, |o| {
            note(o, &[]);
            add(o, 1, condition(BypassCondition::Probation));
        }),
        at(
            UNSAID,
            "the owner's word for a skip",
            Expect::Fence(ANNOTATION),
            |o| {
                o["metadata"]["annotations"]["hookwatch.dev/breaker"] = "skip".into();
            },
        ),
        at(
            UNSAID,
            "the owner's word for a skip while dead",
            Expect::Fence(ANNOTATION),
            |o| {
                o["metadata"]["annotations"]["hookwatch.dev/permit"] = "skip-while-dead".into();
            },
        ),
        allowed(WHILE_DEAD, "a skip of what is ignored, while dead", |o| {
            note(o, &[]);
            add(o, 1, condition(BypassCondition::Skip));
        }),
        at(
            WHILE_DEAD,
            "a skip of what is not ignored, while dead",
            off,
            |o| {
                note(o, &[]);
                add(o, 0, condition(BypassCondition::Skip));
            },
        ),
        at(
            NOT_WHILE_DEAD,
            "a skip while dead where a shield is permitted",
            off,
            |o| {
                note(o, &[]);
                add(o, 1, condition(BypassCondition::Skip));
            },
        ),
        at(AT_SHIELD, "a skip where a shield is permitted", off, |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
        }),
        at(AT_SHIELD, "a probation where a shield is permitted", off, |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Probation));
        }),
        at(
            AT_SKIP,
            "a skip where a skip is permitted",
            Expect::Allowed,
            |o| {
                note(o, &[]);
                add(o, 0, condition(BypassCondition::Skip));
            },
        ),
        allowed(AT_IGNORE, "a skip where more was permitted once", |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
        }),
        at(OPTED_OUT, "the opt-out away", Expect::Fence(ANNOTATION), |o| {
            remove(&mut o["metadata"]["annotations"], "hookwatch.dev/breaker");
        }),
        at(OPTED_OUT, "the opt-out turned", Expect::Fence(ANNOTATION), |o| {
            o["metadata"]["annotations"]["hookwatch.dev/breaker"] = "shield".into();
        }),
        at(
            OPTED_OUT,
            "the annotation alone against its owner's will",
            off,
            |o| note(o, &[]),
        ),
        at(LEDGER, "a webhook in the ledger", ledger, |o| {
            o["webhooks"] = plain("", "", json!({}))["webhooks"].clone();
        }),
        at(LEDGER, "a label on the ledger", ledger, |o| {
            o["metadata"]["labels"] = json!({"a": "b"})
        }),
        at(LEDGER, "an owner of the ledger", ledger, |o| {
            o["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}]);
        }),
        at(LEDGER, "a finalizer on the ledger", ledger, |o| {
            o["metadata"]["finalizers"] = json!(["example.com/mine"]);
        }),
        at(LEDGER, "somebody's annotation on the ledger", ledger, |o| {
            o["metadata"]["annotations"]["owner"] = "a".into();
        }),
        at(LEDGER, "somebody's annotation off the ledger", ledger, |o| {
            remove(&mut o["metadata"]["annotations"], "owner");
        }),
        at(LEDGER, "an opt-out of the ledger's", ledger, |o| {
            o["metadata"]["annotations"]["hookwatch.dev/breaker"] = "off".into();
        }),
        at(
            MUTATING,
            "a label on a mutating one",
            Expect::Fence(OBJECT),
            |o| {
                o["metadata"]["labels"]["more"] = "1".into();
            },
        ),
        at(
            MUTATING,
            "a mutating one without webhooks",
            Expect::Fence(COUNT),
            |o| o["webhooks"] = json!([]),
        ),
        at(
            MUTATING,
            "any text under our name at a mutating one",
            Expect::Fence(OURS),
            |o| {
                note(o, &[]);
                add(o, 0, json!({"name": "hookwatch.dev/skip", "expression": "true"}));
            },
        ),
    ]
}
