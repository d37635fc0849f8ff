//! One webhook, its owner, an administrator, the daemon, and a thief of hookwatch's token who sends every patch that could
//! get him further.

use super::domain::act::breaker::policy::PERMIT_ANNOTATION;
use super::domain::act::bypass::edit::{Author, Desired, Plan, plan};
use super::domain::act::bypass::{
    BypassStanding, OPT_OUT_ANNOTATION, Rung, STATE_ANNOTATION, original, standing, touched,
};
use super::domain::cluster::condition::{BypassCondition, CONDITION_PREFIX};
use super::domain::cluster::hook::Added;
use serde_json::{Value, json};

use super::objects::{NOW, author, bypass, carried_out, configuration, hook, ignore, patched, spec, written};

/// The webhook.
pub const A: &str = "a.example.com";
/// What an owner may say by [`OPT_OUT_ANNOTATION`] and [`PERMIT_ANNOTATION`].
pub const WORDS: [(Option<&str>, Option<&str>); 5] = [
    (None, None),
    (Some("off"), None),
    (Some("shield"), Some("skip-while-dead")),
    (Some("skip"), None),
    (None, Some("skip-while-dead")),
];

/// The object as its owner applied it.
pub fn owned() -> Value {
    let mut object = configuration(vec![hook(A, "Fail", 10, 1)], json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/keep"]);
    object
}

/// The same without managedFields: who wrote what is not known.
pub fn without_managers() -> Value {
    let mut object = owned();
    object["metadata"]["managedFields"] = json!([]);
    object
}

/// A write that leads from one object to the next.
pub struct Move {
    pub what: String,
    pub after: Value,
}

/// A thief's patch: what he makes of an object, before the API server has noted who owns what.
pub struct Patch {
    pub what: String,
    pub object: Value,
}

impl Patch {
    /// What an API server makes of it.
    pub fn written(self, before: &Value) -> Move {
        moved(self.what, written(before, self.object, "hookwatch"))
    }
}

fn moved(what: impl Into<String>, after: Value) -> Move {
    Move {
        what: what.into(),
        after,
    }
}

/// What a thief may want to stand in the annotation.
fn texts() -> Vec<(&'static str, Option<String>)> {
    let noted = |entry: Value| Some(json!({"version": 1, "webhooks": {A: entry}}).to_string());
    let (fail, ignore) = (original(A, "Fail", 10), original(A, "Ignore", 1));
    let both = json!({"rung": "shield", "original": ignore, "evidence": [fail]});
    let entry = |what: &str, original: &str| json!({"rung": "ignore", "phase": "bypassed", what: original});
    vec![
        ("no word", None),
        ("nonsense", Some("{}".to_owned())),
        ("a note", noted(json!({"rung": "shield", "phase": "bypassed"}))),
        ("the true original", noted(entry("original", &fail))),
        ("the true original elsewhere", noted(entry("reason", &fail))),
        (
            "the true original, and nothing set",
            noted(json!({"rung": "shield", "original": fail, "applied": {}})),
        ),
        (
            "the true original in nonsense",
            Some(format!("nonsense \"{fail}\"")),
        ),
        ("a false original", noted(entry("original", &ignore))),
        ("a false original beside the true one", noted(both)),
        (
            "an original in another spelling",
            noted(entry("original", &fail)).map(|text| text.replace('F', "\\u0046")),
        ),
    ]
}

fn condition(condition: BypassCondition) -> Value {
    let account = author().account;
    json!({"name": condition.name(), "expression": condition.expression("hookwatch", &account, &Added::default())})
}

/// What a thief may want as hookwatch's conditions.
fn conditions() -> Vec<(&'static str, Vec<Value>)> {
    let skip = || condition(BypassCondition::Skip);
    vec![
        ("no condition", vec![]),
        ("a shield", vec![condition(BypassCondition::Shield)]),
        ("a skip", vec![skip()]),
        ("a probation", vec![condition(BypassCondition::Probation)]),
        (
            "a shield in another text",
            vec![json!({"name": "hookwatch.dev/shield", "expression": "false"})],
        ),
        ("two conditions", vec![condition(BypassCondition::Shield), skip()]),
    ]
}

fn ours(object: &Value) -> Vec<Value> {
    let conditions = object["webhooks"][0]["matchConditions"].as_array();
    let all = conditions.into_iter().flatten();
    all.filter(|it| is_ours(it)).cloned().collect()
}

fn is_ours(condition: &Value) -> bool {
    let name = condition["name"].as_str();
    name.is_some_and(|name| name.starts_with(CONDITION_PREFIX))
}

fn with_ours(object: &mut Value, ours: &[Value]) {
    if let Some(hook) = object["webhooks"].get_mut(0) {
        let mut all: Vec<Value> = hook["matchConditions"].as_array().cloned().unwrap_or_default();
        all.retain(|it| !is_ours(it));
        all.extend(ours.iter().cloned());
        hook["matchConditions"] = all.into();
    }
}

fn with_text(object: &mut Value, text: Option<&str>) {
    match text {
        Some(text) => object["metadata"]["annotations"][STATE_ANNOTATION] = text.into(),
        None => {
            if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
                annotations.remove(STATE_ANNOTATION);
            }
        }
    }
}

/// Every patch that a thief could think of.
pub fn thief(before: &Value) -> Vec<Patch> {
    let mut patches = Vec::new();
    let mut patch = |what: String, change: &dyn Fn(&mut Value)| {
        let mut object = before.clone();
        change(&mut object);
        if object != *before {
            patches.push(Patch { what, object });
        }
    };
    for (text_is, text) in texts() {
        for (conditions_are, conditions) in conditions() {
            patch(format!("{conditions_are}, {text_is}"), &|after| {
                with_ours(after, &conditions);
                with_text(after, text.as_deref());
            });
        }
        for (policy, seconds) in [("Fail", 10), ("Fail", 1), ("Ignore", 10), ("Ignore", 1)] {
            patch(format!("{policy}/{seconds}, {text_is}"), &|after| {
                after["webhooks"][0]["failurePolicy"] = policy.into();
                after["webhooks"][0]["timeoutSeconds"] = seconds.into();
                with_text(after, text.as_deref());
            });
        }
    }
    for (what, change) in odd() {
        patch(what.to_owned(), &change);
        patch(format!("{what}, and a shield with a note"), &|after| {
            change(after);
            with_ours(after, &[condition(BypassCondition::Shield)]);
            with_text(after, Some(&json!({"webhooks": {A: {}}}).to_string()));
        });
    }
    patches
}

type Change = fn(&mut Value);

/// What has nothing to do with a bypass.
fn odd() -> Vec<(&'static str, Change)> {
    vec![
        ("a label", |o| o["metadata"]["labels"]["team"] = "b".into()),
        ("no finalizer", |o| {
            drop(o["metadata"].as_object_mut().map(|it| it.remove("finalizers")))
        }),
        ("an owner's word", |o| {
            o["metadata"]["annotations"][OPT_OUT_ANNOTATION] = "skip".into()
        }),
        ("an owner's permit", |o| {
            o["metadata"]["annotations"][PERMIT_ANNOTATION] = "skip-while-dead".into()
        }),
        ("an annotation of another owner", |o| {
            o["metadata"]["annotations"]["x"] = "y".into()
        }),
        ("a long annotation", |o| {
            o["metadata"]["annotations"][STATE_ANNOTATION] = "x".repeat(16_385).into()
        }),
        ("no webhook", |o| o["webhooks"] = json!([])),
        ("a webhook more", |o| {
            let more = hook("b.example.com", "Ignore", 1, 0);
            o["webhooks"]
                .as_array_mut()
                .map(|all| all.push(more))
                .unwrap_or_default()
        }),
        ("another name", |o| {
            o["webhooks"][0]["name"] = "b.example.com".into()
        }),
        ("another address", |o| {
            o["webhooks"][0]["clientConfig"]["url"] = "https://x/".into()
        }),
        ("no condition of its owner's", |o| {
            o["webhooks"][0]["matchConditions"] = json!([])
        }),
        ("another condition of its owner's", |o| {
            o["webhooks"][0]["matchConditions"][0]["expression"] = "false".into()
        }),
        ("no claim of its owner's", |o| {
            let entries = o["metadata"]["managedFields"].as_array_mut();
            entries
                .map(|all| all.retain(|it| it["manager"] != "owner"))
                .unwrap_or_default()
        }),
        ("a claim for a stranger", |o| claim(o, "stranger")),
        ("a claim for hookwatch", |o| claim(o, "hookwatch")),
    ]
}

/// Says that a manager owns `timeoutSeconds`.
fn claim(object: &mut Value, manager: &str) {
    let key = format!("k:{}", json!({"name": A}));
    let claim = json!({"f:webhooks": {key: {"f:timeoutSeconds": {}}}});
    let entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": "admissionregistration.k8s.io/v1", "fieldsV1": claim,
    });
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.push(entry);
    }
}

/// What others do, whom no fence is around.
pub fn others(object: &Value) -> Vec<Move> {
    let mut moves = Vec::new();
    for (breaker, permit) in WORDS {
        let words =
            json!({"metadata": {"annotations": {OPT_OUT_ANNOTATION: breaker, PERMIT_ANNOTATION: permit}}});
        let mut after = object.clone();
        json_patch::merge(&mut after, &words);
        moves.push(moved(
            format!("its owner says {breaker:?} and {permit:?}"),
            written(object, after, "owner"),
        ));
    }
    let text = object["metadata"]["annotations"][STATE_ANNOTATION].as_str();
    // Who takes the only account of what was before has to know it.
    if text.is_some_and(|text| !text.contains("=Fail/") && !text.contains("=Ignore/")) {
        let mut after = object.clone();
        with_text(&mut after, None);
        moves.push(moved(
            "a stranger wipes the annotation",
            written(object, after, "stranger"),
        ));
    }
    if let Ok(after) = carried_out(object, A, &ignore()) {
        moves.push(moved("a person has its failures ignored", after));
    }
    moves.push(moved("an administrator restores", restored(object)));
    moves
}

/// What `restore --all` makes of it.
pub fn restored(object: &Value) -> Value {
    let mut object = object.clone();
    for (webhook, _) in touched(&object.clone()) {
        object = carried_out(&object, &webhook, &Desired::Restore).unwrap_or_else(|(left, _)| left);
    }
    object
}

/// Whether the owner permits more than a shield.
fn may_skip(object: &Value) -> bool {
    let says = |annotation: &str| object["metadata"]["annotations"][annotation].as_str();
    match says(OPT_OUT_ANNOTATION) {
        Some(word) => word == "skip",
        None => {
            let ignored = object["webhooks"][0]["failurePolicy"] == "Ignore";
            ignored && says(PERMIT_ANNOTATION) == Some("skip-while-dead")
        }
    }
}

/// Every edit that the daemon makes now, each with what the one before it led to.
pub fn daemon(object: &Value) -> Vec<(Move, Value)> {
    let farther = [bypass(Rung::Skip), Desired::Probation];
    let farther = farther.into_iter().filter(|_| may_skip(object));
    let desired = [bypass(Rung::Shield), Desired::Restore]
        .into_iter()
        .chain(farther);
    desired.flat_map(|desired| edits(object, &desired)).collect()
}

/// The edits by which the daemon gets to a desired state, each with what the one before it led to.
pub fn edits(object: &Value, desired: &Desired) -> Vec<(Move, Value)> {
    let fenced = Author {
        fenced: true,
        ..author()
    };
    let (mut edits, mut before) = (Vec::new(), object.clone());
    while let Ok(Plan::Edit(edit)) = plan(&before, A, desired, &fenced, NOW) {
        let after = patched(&before, &edit.patch).unwrap();
        edits.push((moved(format!("the daemon: {desired:?}"), after.clone()), before));
        before = after;
    }
    edits
}

/// All that is not hookwatch's.
fn theirs(object: &Value) -> Value {
    let mut object = spec(object);
    for hook in object["webhooks"].as_array_mut().into_iter().flatten() {
        if let Some(conditions) = hook["matchConditions"].as_array_mut() {
            conditions.retain(|it| !is_ours(it));
        }
    }
    with_text(&mut object, None);
    if object.pointer("/metadata/annotations").is_none() {
        object["metadata"]["annotations"] = json!({});
    }
    object
}

/// Who owns what: that of others, and whether hookwatch owns more than conditions.
fn claims(object: &Value) -> (Vec<Value>, bool) {
    let entries = object["metadata"]["managedFields"].as_array().cloned();
    let (ours, others): (Vec<Value>, Vec<Value>) = entries
        .unwrap_or_default()
        .into_iter()
        .partition(|entry| entry["manager"] == "hookwatch");
    let ours = json!(ours).to_string();
    (
        others,
        ours.contains("f:failurePolicy") || ours.contains("f:timeoutSeconds"),
    )
}

/// What is wrong with a step that the fence lets through; `None` where nothing is.
pub fn harm_done(before: &Value, after: &Value) -> Option<&'static str> {
    let text = |object: &Value| {
        object["metadata"]["annotations"][STATE_ANNOTATION]
            .as_str()
            .map(str::to_owned)
    };
    if theirs(before) != theirs(after) {
        return Some("something that is not hookwatch's changes");
    }
    let (had, has) = (claims(before), claims(after));
    if had.0 != has.0 || !had.1 && has.1 {
        return Some("fields change their owner");
    }
    if text(after).is_some_and(|text| text.len() > 16_384) {
        return Some("the annotation is long");
    }
    let (had, has) = (ours(before), ours(after));
    if had != has && !has.is_empty() {
        let known = BypassCondition::ALL
            .iter()
            .copied()
            .find(|known| has == [condition(*known)]);
        let word = before["metadata"]["annotations"][OPT_OUT_ANNOTATION].as_str();
        match (known, word) {
            (None, _) => return Some("a condition has another text"),
            (Some(BypassCondition::Shield), None | Some("shield")) => {}
            (Some(_), _) if may_skip(before) => {}
            _ => return Some("it goes farther than its owner permits"),
        }
    }
    let unexplained = text(after).is_none() && (had != has || text(before).is_some());
    (!has.is_empty() && unexplained).then_some("nothing explains a condition")
}

/// What is wrong with an object that can be reached; `None` where nothing is.
pub fn cannot_be_brought_back(object: &Value) -> Option<String> {
    let restored = restored(object);
    if restored["webhooks"] != owned()["webhooks"] {
        let left = &restored["webhooks"][0];
        return Some(format!("restored to {left}"));
    }
    match standing(&restored, A) {
        BypassStanding::Original => None,
        other => Some(format!("{other:?} is left")),
    }
}
