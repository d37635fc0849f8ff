//! Every change of a webhook configuration that somebody with hookwatch's token could think of, and whether the fence
//! has to let it through.

use hookwatch::domain::act::bypass::{STATE_ANNOTATION, original};
use hookwatch::domain::cluster::condition::Condition;
use hookwatch::domain::cluster::hook::Added;
use serde_json::{Value, json};

pub const ACCOUNT: &str = "system:serviceaccount:hookwatch:hookwatch";

/// What has to come of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Allowed,
    /// The fence refuses it and says this.
    Fence(&'static str),
    /// The API server itself refuses it and says this.
    Api(&'static str),
}

/// What is attempted: an object as it is, as it would be after.
pub struct Attempt {
    pub name: &'static str,
    /// `resource/name`.
    pub object: &'static str,
    pub change: fn(&mut Value),
    pub expect: Expect,
}

pub const PLAIN: &str = "validatingwebhookconfigurations/plain";
pub const MUTATING: &str = "mutatingwebhookconfigurations/plain";
pub const BYPASSED: &str = "validatingwebhookconfigurations/bypassed";
/// Bypassed by two conditions, and somebody has wiped the annotation.
pub const WIPED: &str = "validatingwebhookconfigurations/wiped";
pub const OPTED_OUT: &str = "validatingwebhookconfigurations/opted-out";
/// What its owner permits cannot be read.
pub const UNREADABLE: &str = "validatingwebhookconfigurations/unreadable";
/// Its owner says nothing, and the fence does not name it.
pub const UNSAID: &str = "validatingwebhookconfigurations/unsaid";
/// Its owner permits a skip while dead.
pub const WHILE_DEAD: &str = "validatingwebhookconfigurations/while-dead";
/// The same, and no more than a shield.
pub const NOT_WHILE_DEAD: &str = "validatingwebhookconfigurations/not-while-dead";
/// Its owner permits a shield.
pub const AT_SHIELD: &str = "validatingwebhookconfigurations/at-shield";
/// Its owner permits a skip.
pub const AT_SKIP: &str = "mutatingwebhookconfigurations/at-skip";
/// Its owner permits what an earlier release could do at most.
pub const AT_IGNORE: &str = "validatingwebhookconfigurations/at-ignore";
/// A person has the failures of `a` ignored, as once those of `c`, and `c` is shielded.
pub const IGNORED: &str = "validatingwebhookconfigurations/ignored";
pub const LEDGER: &str = "validatingwebhookconfigurations/hookwatch-ledger";
/// Its owner adds to what a shield spares; `a` and `c` are called at Services, `b` at a URL.
pub const SPARED: &str = "validatingwebhookconfigurations/spared";
/// `a` is shielded in the text of another release.
pub const OLDER: &str = "validatingwebhookconfigurations/older";
pub const OBJECTS: [&str; 16] = [
    PLAIN,
    MUTATING,
    BYPASSED,
    WIPED,
    OPTED_OUT,
    UNREADABLE,
    AT_SHIELD,
    AT_SKIP,
    AT_IGNORE,
    LEDGER,
    SPARED,
    OLDER,
    IGNORED,
    UNSAID,
    WHILE_DEAD,
    NOT_WHILE_DEAD,
];

const NOT_MADE: &str = "hookwatch neither creates nor deletes";
pub const OFF: &str = "neither an annotation of the object's nor maySkip permits it";
const LEDGER_ONLY: &str = "the ledger carries annotations of hookwatch's";
const OBJECT: &str = "nothing of the object changes but";
const ANNOTATION: &str = "no annotation changes but";
const TOO_LONG: &str = "no longer than 16384";
const COUNT: &str = "webhooks stay as many";
const FIELDS: &str = "nothing of a webhook changes but";
const FOREIGN: &str = "match conditions of others stay";
const OURS: &str = "a match condition of hookwatch's is the only one";
const ORIGINAL: &str = "no original is added";
const FORGOTTEN: &str = "it is not forgotten that a webhook was Fail";
const OWNERSHIP: &str = "owner in managedFields";

/// The configuration that attempts are made at: `a` has conditions of its own, `b` was never `Fail`, `c` is bare.
pub fn plain(kind: &str, name: &str, annotations: Value) -> Value {
    let webhook = |name: &str, policy: &str, timeout: u64, conditions: Value| {
        json!({
            "name": name, "failurePolicy": policy, "timeoutSeconds": timeout, "matchConditions": conditions,
            "admissionReviewVersions": ["v1", "v1beta1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "rules": [{
                "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"],
            }],
        })
    };
    let theirs = json!([
        {"name": "first.example.com", "expression": "request.operation != \"CONNECT\""},
        {"name": "second.example.com", "expression": "!has(request.namespace) || request.namespace != \"x\""},
    ]);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {
            "name": name, "annotations": annotations, "labels": {"team": "a"}, "finalizers": ["example.com/keep"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1"}],
        },
        "webhooks": [
            webhook("a.example.com", "Fail", 10, theirs),
            webhook("b.example.com", "Ignore", 5, json!([])),
            webhook("c.example.com", "Fail", 10, json!([])),
        ],
    })
}

fn condition(condition: Condition) -> Value {
    json!({"name": condition.name(), "expression": condition.expression("hookwatch", ACCOUNT, &Added::default())})
}

/// What the owner of [`SPARED`] says.
pub const SPARE: &str = "self,leases=operators+a-1";

/// [`SPARED`], of a [`plain`] one.
pub fn spared(mut object: Value) -> Value {
    for (webhook, namespace) in [(0, "policy"), (2, "default")] {
        object["webhooks"][webhook]["clientConfig"] =
            json!({"service": {"namespace": namespace, "name": "s"}});
    }
    object
}

/// The bypass of the object `older`.
pub fn older(object: &mut Value) {
    note(object, &[]);
    add(object, 0, older_shield());
}

fn older_shield() -> Value {
    json!({"name": Condition::Shield.name(), "expression": "request.operation == \"CONNECT\""})
}

/// A shield of a webhook that is called at a Service in `namespace`, as its owner adds to it by `spare`.
pub fn shield(spare: &str, namespace: Option<&str>) -> Value {
    let (added, _) = Added::read(Some(spare), namespace);
    json!({"name": Condition::Shield.name(), "expression": Condition::Shield.expression("hookwatch", ACCOUNT, &added)})
}

/// Adds a condition to a webhook, with nothing written down.
fn add(object: &mut Value, webhook: usize, condition: Value) {
    let conditions = &mut object["webhooks"][webhook]["matchConditions"];
    match conditions.as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => *conditions = json!([condition]),
    }
}

/// Writes originals down, as hookwatch does: as strings in JSON.
fn note(object: &mut Value, originals: &[String]) {
    let text = json!({"rung": "skip", "originals": originals}).to_string();
    object["metadata"]["annotations"][STATE_ANNOTATION] = text.into();
}

fn fail_10(webhook: &str) -> String {
    original(webhook, "Fail", 10)
}

/// The bypass of the objects `bypassed` and `wiped`, before the latter is wiped.
pub fn bypass(object: &mut Value) {
    note(object, &[]);
    add(object, 0, condition(Condition::Skip));
    add(object, 2, condition(Condition::Shield));
}

/// And its end.
pub fn restore(object: &mut Value) {
    without_ours(object, 0);
    without_ours(object, 2);
    remove(&mut object["metadata"]["annotations"], STATE_ANNOTATION);
}

/// What was done to the object `ignored`.
pub fn ignore(object: &mut Value) {
    note(object, &[fail_10("a.example.com"), fail_10("c.example.com")]);
    object["webhooks"][0]["failurePolicy"] = "Ignore".into();
    object["webhooks"][0]["timeoutSeconds"] = 1.into();
    add(object, 2, condition(Condition::Shield));
}

fn without_ours(object: &mut Value, webhook: usize) {
    let conditions = &mut object["webhooks"][webhook]["matchConditions"];
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| !condition["name"].as_str().unwrap().starts_with("hookwatch.dev/"));
    }
}

fn remove(map: &mut Value, key: &str) {
    map.as_object_mut().unwrap().remove(key);
}

fn list<'a>(object: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    object[key].as_array_mut().unwrap()
}

const fn at(object: &'static str, name: &'static str, expect: Expect, change: fn(&mut Value)) -> Attempt {
    Attempt {
        name,
        object,
        change,
        expect,
    }
}

const fn refused(name: &'static str, says: &'static str, change: fn(&mut Value)) -> Attempt {
    at(PLAIN, name, Expect::Fence(says), change)
}

const fn allowed(object: &'static str, name: &'static str, change: fn(&mut Value)) -> Attempt {
    at(object, name, Expect::Allowed, change)
}

/// All of them.
pub fn attempts() -> Vec<Attempt> {
    [
        of_bypasses(),
        at_the_object(),
        at_webhooks(),
        at_conditions(),
        at_policies(),
        at_ignored(),
        at_ownership(),
        at_other_objects(),
        at_spared(),
        at_older(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_bypasses() -> Vec<Attempt> {
    vec![
        allowed(PLAIN, "nothing", |_| {}),
        allowed(PLAIN, "skip, written down", |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Skip));
        }),
        allowed(PLAIN, "shield, written down", |o| {
            note(o, &[]);
            add(o, 2, condition(Condition::Shield));
        }),
        allowed(PLAIN, "probation, written down", |o| {
            note(o, &[]);
            add(o, 1, condition(Condition::Probation));
        }),
        allowed(PLAIN, "a condition before those of others", |o| {
            note(o, &[]);
            list(&mut o["webhooks"][0], "matchConditions").insert(0, condition(Condition::Skip));
        }),
        allowed(PLAIN, "every webhook at once", |o| {
            note(o, &[]);
            (0..3).for_each(|webhook| add(o, webhook, condition(Condition::Shield)));
        }),
        allowed(PLAIN, "the annotation alone", |o| note(o, &[])),
        allowed(MUTATING, "skip at a mutating one", |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Skip));
        }),
        allowed(BYPASSED, "the whole end", restore),
        allowed(BYPASSED, "the end of one of two", |o| {
            note(o, &[]);
            without_ours(o, 0);
        }),
        allowed(BYPASSED, "from skip to probation", |o| {
            without_ours(o, 0);
            add(o, 0, condition(Condition::Probation));
        }),
        allowed(BYPASSED, "one webhook more", |o| {
            add(o, 1, condition(Condition::Skip))
        }),
        allowed(LEDGER, "an entry in the ledger", |o| {
            o["metadata"]["annotations"]["hookwatch.dev/entry"] = "1".into();
        }),
        allowed(LEDGER, "an entry less in the ledger", |o| {
            remove(&mut o["metadata"]["annotations"], "hookwatch.dev/made");
        }),
    ]
}

fn at_spared() -> Vec<Attempt> {
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
            add(o, 0, condition(Condition::Shield));
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

fn at_older() -> Vec<Attempt> {
    vec![
        allowed(OLDER, "the end of a shield in an older text", |o| {
            without_ours(o, 0);
            remove(&mut o["metadata"]["annotations"], STATE_ANNOTATION);
        }),
        allowed(OLDER, "this release's text for an older one", |o| {
            without_ours(o, 0);
            add(o, 0, condition(Condition::Shield));
        }),
        allowed(
            OLDER,
            "an older text as it is, and another webhook shielded",
            |o| {
                add(o, 2, condition(Condition::Shield));
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

fn at_the_object() -> Vec<Attempt> {
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

fn at_webhooks() -> Vec<Attempt> {
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
            o["webhooks"][0]["clientConfig"]["caBundle"] = super::fence::CA_BUNDLE.clone().into();
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
                add(o, 0, condition(Condition::Skip));
                o["webhooks"][2]["rules"][0]["operations"] = json!(["DELETE"]);
            },
        ),
    ]
}

fn at_conditions() -> Vec<Attempt> {
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
            o["webhooks"][0]["matchConditions"][1] = condition(Condition::Skip);
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
            let expression = Condition::Shield.expression("hookwatch", ACCOUNT, &Added::default());
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/skip", "expression": expression}),
            );
        }),
        refused("our text for another namespace", OURS, |o| {
            note(o, &[]);
            let expression = Condition::Shield.expression("tenant", ACCOUNT, &Added::default());
            add(
                o,
                0,
                json!({"name": "hookwatch.dev/shield", "expression": expression}),
            );
        }),
        refused("our text for another account", OURS, |o| {
            note(o, &[]);
            let expression = Condition::Probation.expression("hookwatch", "somebody", &Added::default());
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
            add(o, 0, condition(Condition::Skip));
            add(o, 0, condition(Condition::Shield));
        }),
        at(PLAIN, "one of ours twice", Expect::Api("Duplicate value"), |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Skip));
            add(o, 0, condition(Condition::Skip));
        }),
        refused("skip without a word", OURS, |o| {
            add(o, 0, condition(Condition::Skip))
        }),
    ]
}

fn at_policies() -> Vec<Attempt> {
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

/// What a person has done is for a person to take back, and the daemon shields beside it.
fn at_ignored() -> Vec<Attempt> {
    let refused = |name, says, change| at(IGNORED, name, Expect::Fence(says), change);
    vec![
        allowed(IGNORED, "the end of a shield beside it", |o| without_ours(o, 2)),
        allowed(IGNORED, "a shield of its own", |o| {
            add(o, 0, condition(Condition::Shield))
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

fn at_ownership() -> Vec<Attempt> {
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
fn claim(object: &mut Value, manager: &str, webhook: &str, fields: Value) {
    let key = format!("k:{{\"name\":\"{webhook}\"}}");
    list(&mut object["metadata"], "managedFields").push(json!({
        "manager": manager, "operation": "Update", "apiVersion": "admissionregistration.k8s.io/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:webhooks": {key: fields}},
    }));
}

fn at_other_objects() -> Vec<Attempt> {
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
            add(o, 1, condition(Condition::Shield));
        }),
        at(WIPED, "another rung where nobody explains any", ours, |o| {
            without_ours(o, 2);
            add(o, 2, condition(Condition::Skip));
        }),
        at(OPTED_OUT, "a bypass against its owner's will", off, |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Shield));
        }),
        at(UNREADABLE, "a shield where nobody can read how far", off, |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Shield));
        }),
        at(
            AT_SHIELD,
            "a shield where a shield is permitted",
            Expect::Allowed,
            |o| {
                note(o, &[]);
                add(o, 0, condition(Condition::Shield));
            },
        ),
        allowed(UNSAID, "a shield where nothing is said", |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Shield));
        }),
        at(UNSAID, "a skip where nothing is said", off, |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Skip));
        }),
        at(UNSAID, "a probation where nothing is said", off, |o| {
            note(o, &[]);
            add(o, 1, condition(Condition::Probation));
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
            add(o, 1, condition(Condition::Skip));
        }),
        at(
            WHILE_DEAD,
            "a skip of what is not ignored, while dead",
            off,
            |o| {
                note(o, &[]);
                add(o, 0, condition(Condition::Skip));
            },
        ),
        at(
            NOT_WHILE_DEAD,
            "a skip while dead where a shield is permitted",
            off,
            |o| {
                note(o, &[]);
                add(o, 1, condition(Condition::Skip));
            },
        ),
        at(AT_SHIELD, "a skip where a shield is permitted", off, |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Skip));
        }),
        at(AT_SHIELD, "a probation where a shield is permitted", off, |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Probation));
        }),
        at(
            AT_SKIP,
            "a skip where a skip is permitted",
            Expect::Allowed,
            |o| {
                note(o, &[]);
                add(o, 0, condition(Condition::Skip));
            },
        ),
        allowed(AT_IGNORE, "a skip where more was permitted once", |o| {
            note(o, &[]);
            add(o, 0, condition(Condition::Skip));
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

/// What the fence says of what is made or deleted.
pub const MADE_OR_DELETED: &str = NOT_MADE;
pub const IN_THE_LEDGER: &str = LEDGER_ONLY;
pub const OF_OWNERSHIP: &str = OWNERSHIP;
