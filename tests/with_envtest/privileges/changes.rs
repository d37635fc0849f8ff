//! Every change of a webhook configuration that somebody with hookwatch's token could think of, and whether the fence
//! has to let it through.

mod ours;
mod theirs;

use hookwatch::domain::act::bypass::{STATE_ANNOTATION, original};
use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::cluster::hook::Added;
use serde_json::{Value, json};

use self::ours::{at_conditions, at_ignored, at_older, at_spared, of_bypasses};
use self::theirs::{at_other_objects, at_ownership, at_policies, at_the_object, at_webhooks};

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

fn condition(condition: BypassCondition) -> Value {
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
    json!({"name": BypassCondition::Shield.name(), "expression": "request.operation == \"CONNECT\""})
}

/// A shield of a webhook that is called at a Service in `namespace`, as its owner adds to it by `spare`.
pub fn shield(spare: &str, namespace: Option<&str>) -> Value {
    let (added, _) = Added::read(Some(spare), namespace);
    json!({"name": BypassCondition::Shield.name(), "expression": BypassCondition::Shield.expression("hookwatch", ACCOUNT, &added)})
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
    add(object, 0, condition(BypassCondition::Skip));
    add(object, 2, condition(BypassCondition::Shield));
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
    add(object, 2, condition(BypassCondition::Shield));
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

/// What the fence says of what is made or deleted.
pub const MADE_OR_DELETED: &str = NOT_MADE;
pub const IN_THE_LEDGER: &str = LEDGER_ONLY;
pub const OF_OWNERSHIP: &str = OWNERSHIP;
