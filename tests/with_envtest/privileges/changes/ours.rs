//! Changes of what is hookwatch's to write: its conditions, what a shield spares, and what it notes.

use super::*;

pub(super) fn of_bypasses() -> Vec<Attempt> {
    vec![
        allowed(PLAIN, "nothing", |_| {}),
        allowed(PLAIN, "skip, written down", |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
        }),
        allowed(PLAIN, "shield, written down", |o| {
            note(o, &[]);
            add(o, 2, condition(BypassCondition::Shield));
        }),
        allowed(PLAIN, "probation, written down", |o| {
            note(o, &[]);
            add(o, 1, condition(BypassCondition::Probation));
        }),
        allowed(PLAIN, "a condition before those of others", |o| {
            note(o, &[]);
            list(&mut o["webhooks"][0], "matchConditions").insert(0, condition(BypassCondition::Skip));
        }),
        allowed(PLAIN, "every webhook at once", |o| {
            note(o, &[]);
            (0..3).for_each(|webhook| add(o, webhook, condition(BypassCondition::Shield)));
        }),
        allowed(PLAIN, "the annotation alone", |o| note(o, &[])),
        allowed(MUTATING, "skip at a mutating one", |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
        }),
        allowed(BYPASSED, "the whole end", restore),
        allowed(BYPASSED, "the end of one of two", |o| {
            note(o, &[]);
            without_ours(o, 0);
        }),
        allowed(BYPASSED, "from skip to probation", |o| {
            without_ours(o, 0);
            add(o, 0, condition(BypassCondition::Probation));
        }),
        allowed(BYPASSED, "one webhook more", |o| {
            add(o, 1, condition(BypassCondition::Skip))
        }),
        allowed(LEDGER, "an entry in the ledger", |o| {
            o["metadata"]["annotations"]["hookwatch.dev/entry"] = "1".into();
        }),
        allowed(LEDGER, "an entry less in the ledger", |o| {
            remove(&mut o["metadata"]["annotations"], "hookwatch.dev/made");
        }),
    ]
}

pub(super) fn at_spared() -> Vec<Attempt> {
    let refused = |name, change| at(SPARED, name, Expect::Fence(OURS), change);
    vec![
        allowed(SPARED, "a shield with all that its owner adds", |o| {
            note(o, &[]);
            add(o, 0, shield(SPARE, Some("policy")));
        }),
        allowed(SPARED, "one of a URL, without the hook's own Pods", |o| {
            note(o, &[]);
            add(o, 1, shield(SPARE, None));
        }),
        allowed(
            SPARED,
            "one of a Service in everybody's namespace, likewise",
            |o| {
                note(o, &[]);
                add(o, 2, shield(SPARE, Some("default")));
            },
        ),
        refused("a shield without what its owner adds", |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Shield));
        }),
        refused("a shield with Pods of another namespace", |o| {
            note(o, &[]);
            add(o, 0, shield(SPARE, Some("tenant")));
        }),
        refused("a shield with Pods of everybody's namespace", |o| {
            note(o, &[]);
            add(o, 2, shield(SPARE, Some("policy")));
        }),
        refused("a shield with Leases of another namespace", |o| {
            note(o, &[]);
            add(o, 0, shield("self,leases=operators+tenant", Some("policy")));
        }),
        at(
            PLAIN,
            "a shield with what no owner adds",
            Expect::Fence(OURS),
            |o| {
                note(o, &[]);
                add(o, 0, shield(SPARE, None));
            },
        ),
        at(
            PLAIN,
            "what an owner could add, in the same breath",
            Expect::Fence(ANNOTATION),
            |o| {
                note(o, &[]);
                o["metadata"]["annotations"]["hookwatch.dev/spare"] = SPARE.into();
                add(o, 0, shield(SPARE, None));
            },
        ),
        at(
            SPARED,
            "what an owner adds, changed",
            Expect::Fence(ANNOTATION),
            |o| {
                o["metadata"]["annotations"]["hookwatch.dev/spare"] = "leases=tenant".into();
            },
        ),
    ]
}

pub(super) fn at_older() -> Vec<Attempt> {
    vec![
        allowed(OLDER, "the end of a shield in an older text", |o| {
            without_ours(o, 0);
            remove(&mut o["metadata"]["annotations"], STATE_ANNOTATION);
        }),
        allowed(OLDER, "this release's text for an older one", |o| {
            without_ours(o, 0);
            add(o, 0, condition(BypassCondition::Shield));
        }),
        allowed(
            OLDER,
            "an older text as it is, and another webhook shielded",
            |o| {
                add(o, 2, condition(BypassCondition::Shield));
            },
        ),
        at(
            OLDER,
            "an older text at another webhook",
            Expect::Fence(OURS),
            |o| {
                add(o, 2, older_shield());
            },
        ),
    ]
}

pub(super) fn at_conditions() -> Vec<Attempt> {
    vec![
        refused("a condition of others less", FOREIGN, |o| {
            drop(list(&mut o["webhooks"][0], "matchConditions").pop());
        }),
        refused("no conditions", FOREIGN, |o| {
            remove(&mut o["webhooks"][0], "matchConditions")
        }),
        refused("conditions of others in another order", FOREIGN, |o| {
            list(&mut o["webhooks"][0], "matchConditions").swap(0, 1);
        }),
        refused("another expression of a condition of others", FOREIGN, |o| {
            o["webhooks"][0]["matchConditions"][0]["expression"] = "false".into();
        }),
        refused("a condition of others for ours", FOREIGN, |o| {
            note(o, &[]);
            o["webhooks"][0]["matchConditions"][1] = condition(BypassCondition::Skip);
        }),
        refused("false under a name without prefix", FOREIGN, |o| {
            add(o, 0, json!({"name": "skip", "expression": "false"}));
        }),
        refused("false under a name with a prefix like ours", FOREIGN, |o| {
            add(
                o,
                0,
                json!({"name": "x.hookwatch.dev/skip", "expression": "false"}),
            );
        }),
        refused("any text under our prefix", OURS, |o| {
            note(o, &[]);
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/other", "expression": "request.namespace == \"x\""}),
            );
        }),
        refused("another text under our name", OURS, |o| {
            note(o, &[]);
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/skip", "expression": "request.operation == \"DELETE\""}),
            );
        }),
        refused("our text under another of our names", OURS, |o| {
            note(o, &[]);
            let expression = BypassCondition::Shield.expression("hookwatch", ACCOUNT, &Added::default());
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/skip", "expression": expression}),
            );
        }),
        refused("our text for another namespace", OURS, |o| {
            note(o, &[]);
            let expression = BypassCondition::Shield.expression("tenant", ACCOUNT, &Added::default());
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/shield", "expression": expression}),
            );
        }),
        refused("our text for another account", OURS, |o| {
            note(o, &[]);
            let expression =
                BypassCondition::Probation.expression("hookwatch", "somebody", &Added::default());
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/probation", "expression": expression}),
            );
        }),
        refused("our text with a blank", OURS, |o| {
            note(o, &[]);
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/skip", "expression": "false "}),
            );
        }),
        refused("two of ours", OURS, |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
            add(o, 0, condition(BypassCondition::Shield));
        }),
        at(PLAIN, "one of ours twice", Expect::Api("Duplicate value"), |o| {
            note(o, &[]);
            add(o, 0, condition(BypassCondition::Skip));
            add(o, 0, condition(BypassCondition::Skip));
        }),
        refused("skip without a word", OURS, |o| {
            add(o, 0, condition(BypassCondition::Skip))
        }),
    ]
}

/// What a person has done is for a person to take back, and the daemon shields beside it.
pub(super) fn at_ignored() -> Vec<Attempt> {
    let refused = |name, says, change| at(IGNORED, name, Expect::Fence(says), change);
    vec![
        allowed(IGNORED, "the end of a shield beside it", |o| without_ours(o, 2)),
        allowed(IGNORED, "a shield of its own", |o| {
            add(o, 0, condition(BypassCondition::Shield))
        }),
        allowed(IGNORED, "an original that is in force anyway less", |o| {
            note(o, &[fail_10("a.example.com")]);
        }),
        refused("failurePolicy back", FIELDS, |o| {
            o["webhooks"][0]["failurePolicy"] = "Fail".into();
        }),
        refused("the time back", FIELDS, |o| {
            o["webhooks"][0]["timeoutSeconds"] = 10.into();
        }),
        refused("an original of Fail less while it is Ignore", FORGOTTEN, |o| {
            note(o, &[fail_10("c.example.com")])
        }),
        refused(
            "all originals away with the conditions, while it is Ignore",
            FORGOTTEN,
            |o| {
                without_ours(o, 2);
                remove(&mut o["metadata"]["annotations"], STATE_ANNOTATION);
            },
        ),
        refused("a false original beside true ones", ORIGINAL, |o| {
            let originals = [
                fail_10("a.example.com"),
                fail_10("c.example.com"),
                original("b.example.com", "Fail", 30),
            ];
            note(o, &originals);
        }),
        refused("a false original for a true one", ORIGINAL, |o| {
            note(
                o,
                &[original("a.example.com", "Fail", 1), fail_10("c.example.com")],
            );
        }),
    ]
}
