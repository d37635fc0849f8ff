//! The fence as a machine: the shipped policy, evaluated, against every sequence of patches that a thief of hookwatch's token
//! could think of, with what the owner, an administrator, others and the daemon do in between.
//!
//! One webhook and a finite set of patches make a finite set of objects: the sequences have no longest length.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

#[allow(dead_code, reason = "it serves others too")]
#[path = "../../../../tests/support/chart.rs"]
mod chart;
#[allow(dead_code, reason = "it serves others too")]
#[path = "../../act/bypass/tests/objects.rs"]
mod objects;
mod policy;
mod world;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

// What other tests share names it so.
use hookwatch_domain as domain;
use hookwatch_domain::act::bypass::edit::Desired;
use hookwatch_domain::act::bypass::{OPT_OUT_ANNOTATION, Rung, STATE_ANNOTATION};
use hookwatch_domain::act::fence::FENCE as NAME;
use hookwatch_domain::cluster::condition::BypassCondition;
use hookwatch_domain::cluster::hook::{Added, SPARE_ANNOTATION};
use policy::{Policy, Request};
use serde_json::{Value, json};

const FENCE: &str = include_str!("../../../../deploy/base/fence.yaml");
const LAUNDERING: &str = include_str!("laundering.yaml");
const CONFIGURATIONS: &str = "validatingwebhookconfigurations";
/// What a clause keeps away, a thief would come to by so many steps.
const NEAR: usize = 2;

fn shipped() -> Value {
    let first = FENCE.split("\n---\n").next().unwrap();
    serde_saphyr::from_str(first).unwrap()
}

fn update(before: &Value) -> Request<'_> {
    Request {
        operation: "UPDATE",
        resource: CONFIGURATIONS,
        name: "c",
        before,
    }
}

/// Whether something is let through that is to be refused whatever object there is: what it is.
fn let_through(policy: &Policy) -> Option<&'static str> {
    let owned = world::owned();
    let beside = |operation, before, after| {
        let request = Request {
            operation,
            ..update(before)
        };
        policy.asked(&request).refusal(after)
    };
    let ledger =
        json!({"apiVersion": "v1", "kind": "V", "metadata": {"name": "hookwatch-ledger"}, "webhooks": []});
    let with = |change: fn(&mut Value)| {
        let mut after = ledger.clone();
        change(&mut after);
        let request = Request {
            name: "hookwatch-ledger",
            ..update(&ledger)
        };
        policy.asked(&request).refusal(&after)
    };
    let refusals = [
        ("a new configuration", beside("CREATE", &Value::Null, &owned)),
        ("the end of one", beside("DELETE", &owned, &Value::Null)),
        (
            "a webhook in the ledger",
            with(|it| it["webhooks"] = world::owned()["webhooks"].clone()),
        ),
        (
            "a label on the ledger",
            with(|it| it["metadata"]["labels"] = json!({"a": "b"})),
        ),
        (
            "another annotation on the ledger",
            with(|it| it["metadata"]["annotations"] = json!({"a": "b"})),
        ),
    ];
    refusals
        .into_iter()
        .find_map(|(what, refusal)| refusal.is_none().then_some(what))
}

/// What came of an exploration.
struct Explored {
    objects: usize,
    requests: usize,
    /// What went wrong, and the way there.
    wrong: Option<(String, Vec<String>)>,
}

/// What is looked for.
#[derive(Clone, Copy)]
struct Look {
    /// Something wrong with an object that can be reached.
    wrong: fn(&Value) -> Option<String>,
    /// A step that does harm, or one of the daemon's that is refused, with what others do in between; else the thief is alone.
    steps: bool,
    /// By so many steps.
    within: usize,
}

const ANYTHING: Look = Look {
    wrong: world::cannot_be_brought_back,
    steps: true,
    within: usize::MAX,
};

/// The objects that can be reached from the `first`, the nearest first, until something is wrong.
fn explored(policy: &Policy, first: Value, look: Look) -> Explored {
    let Look { wrong, steps, within } = look;
    let key = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = Value::Null;
        object.to_string()
    };
    let mut all = Explored {
        objects: 1,
        requests: 0,
        wrong: None,
    };
    if let Some(what) = let_through(policy).filter(|_| steps) {
        all.wrong = Some((what.to_owned(), Vec::new()));
        return all;
    }
    // Each object with the one before it and how it came of that.
    let mut known: BTreeMap<String, Option<(String, String)>> = BTreeMap::from([(key(&first), None)]);
    let mut next = VecDeque::from([(first, 0)]);
    let way = |known: &BTreeMap<String, Option<(String, String)>>, object: &Value| {
        let (mut way, mut at) = (Vec::new(), key(object));
        while let Some(Some((before, what))) = known.get(&at) {
            way.push(what.clone());
            at = before.clone();
        }
        way.reverse();
        way
    };
    while let Some((object, far)) = next.pop_front() {
        if let Some(why) = wrong(&object) {
            all.wrong = Some((why, way(&known, &object)));
            return all;
        }
        if far == within {
            continue;
        }
        let mut reached = Vec::new();
        let asked = policy.asked(&update(&object));
        for patch in world::thief(&object) {
            let step = patch.written(&object);
            all.requests += 1;
            if asked.refusal(&step.after).is_some() {
                continue;
            }
            if let Some(harm) = world::harm_done(&object, &step.after).filter(|_| steps) {
                let mut way = way(&known, &object);
                way.push(step.what);
                all.wrong = Some((harm.to_owned(), way));
                return all;
            }
            reached.push(step);
        }
        for (edit, before) in world::daemon(&object).into_iter().filter(|_| steps) {
            all.requests += 1;
            if let Some(why) = policy.asked(&update(&before)).refusal(&edit.after) {
                let mut way = way(&known, &object);
                way.push(edit.what);
                all.wrong = Some((format!("the daemon is refused: {why}"), way));
                return all;
            }
            reached.push(edit);
        }
        reached.extend(world::others(&object).into_iter().filter(|_| steps));
        let from = key(&object);
        for step in reached {
            let to = key(&step.after);
            if let Entry::Vacant(new) = known.entry(to) {
                new.insert(Some((from.clone(), step.what)));
                next.push_back((step.after, far + 1));
            }
        }
        all.objects = known.len();
    }
    all
}

/// A thief of the account's token changes nothing but what a bypass takes, within the owner's word and explained, and an
/// administrator's `restore` brings back what the owner had, whatever others did before.
#[test]
fn no_sequence_of_patches_does_harm_or_leaves_what_restore_does_not_bring_back() {
    let explored = explored(&Policy::new(&shipped(), |_| true), world::owned(), ANYTHING);
    println!("{} objects, {} requests", explored.objects, explored.requests);
    assert_eq!(explored.wrong, None);
    assert!(explored.objects > 100, "{} objects", explored.objects);
}

#[test]
fn each_clause_of_the_fence_is_needed() {
    let shipped = shipped();
    let whole = Policy::new(&shipped, |_| true);
    for message in whole.messages() {
        let without = Policy::new(&shipped, |other| other != message);
        let near = Look {
            within: NEAR,
            ..ANYTHING
        };
        let from = |first| explored(&without, first, near).wrong;
        let found = from(world::owned()).or_else(|| from(world::without_managers()));
        let (wrong, way) = found.unwrap_or_else(|| panic!("it does without {message:?}"));
        println!("without {message:?}: {wrong}, by {way:?}");
    }
}

/// The shield on the object is then another than the one that the fence would let through now.
#[test]
fn a_restore_passes_the_fence_after_the_owner_changed_what_the_shield_spares() {
    let policy = Policy::new(&shipped(), |_| true);
    let spares = |object: &Value, spare: Option<&str>| {
        let mut after = object.clone();
        let annotation = json!({"metadata": {"annotations": {SPARE_ANNOTATION: spare}}});
        json_patch::merge(&mut after, &annotation);
        objects::written(object, after, "owner")
    };
    let passes = |object: &Value, desired: &Desired| {
        let edits = world::edits(object, desired);
        assert!(!edits.is_empty(), "{desired:?}: {object:#}");
        for (edit, before) in &edits {
            let refusal = policy.asked(&update(before)).refusal(&edit.after);
            assert_eq!(refusal, None, "{}", edit.what);
        }
        edits.into_iter().last().unwrap().0.after
    };
    let words = [
        None,
        Some("leases=operators"),
        Some("leases=tenant"),
        Some("nonsense"),
    ];
    for (first, then) in words.iter().flat_map(|first| words.map(|then| (*first, then))) {
        let owned = spares(&world::owned(), first);
        let shielded = passes(&owned, &objects::bypass(Rung::Shield));
        let operators = shielded["webhooks"].to_string().contains("operators");
        assert_eq!(operators, first == Some("leases=operators"), "{first:?}");
        let changed = spares(&shielded, then);
        assert_eq!(
            changed["webhooks"], shielded["webhooks"],
            "{first:?}, then {then:?}"
        );
        let restored = passes(&changed, &Desired::Restore);
        let wanted = spares(&owned, then);
        assert_eq!(
            objects::spec(&restored),
            objects::spec(&wanted),
            "{first:?}, then {then:?}"
        );
    }
}

/// The chart makes the fence for any namespace.
#[test]
fn a_fence_lets_through_what_the_daemon_of_its_namespace_writes_and_no_other() {
    let namespaces = ["hookwatch", "platform-hooks"];
    let mut before = world::owned();
    before["metadata"]["annotations"] = json!({OPT_OUT_ANNOTATION: "skip"});
    for own in namespaces {
        let objects = chart::rendered(own, &json!({})).objects;
        let is_fence = |object: &&Value| {
            object["kind"] == "ValidatingAdmissionPolicy" && object["metadata"]["name"] == NAME
        };
        let policy = Policy::new(objects.iter().find(is_fence).unwrap(), |_| true);
        for namespace in namespaces {
            let account = format!("system:serviceaccount:{namespace}:hookwatch");
            for condition in [BypassCondition::Shield, BypassCondition::Probation] {
                let expression = condition.expression(namespace, &account, &Added::default());
                let mut after = before.clone();
                after["metadata"]["annotations"][STATE_ANNOTATION] = "{}".into();
                let conditions = after["webhooks"][0]["matchConditions"].as_array_mut().unwrap();
                conditions.push(json!({"name": condition.name(), "expression": expression}));
                let after = objects::written(&before, after, "hookwatch");
                let refusal = policy.asked(&update(&before)).refusal(&after);
                assert_eq!(
                    refusal.is_none(),
                    own == namespace,
                    "{condition:?} of {namespace} in {own}: {refusal:?}"
                );
            }
        }
    }
}

/// As was found once.
#[test]
fn patches_that_launder_an_ignore_are_found_when_the_fence_lets_fields_change() {
    let mut policy = shipped();
    let old: Value = serde_saphyr::from_str(LAUNDERING).unwrap();
    let list = |policy: &mut Value, list: &str| policy["spec"][list].as_array_mut().unwrap().clone();
    let replaced = old["validations"].as_array().unwrap();
    let mut validations = list(&mut policy, "validations");
    validations.retain(|clause| !replaced.iter().any(|old| old["message"] == clause["message"]));
    validations.extend(replaced.iter().cloned());
    policy["spec"]["validations"] = validations.into();
    let mut variables = list(&mut policy, "variables");
    variables.extend(old["variables"].as_array().unwrap().iter().cloned());
    policy["spec"]["variables"] = variables.into();
    let is_laundered = |object: &Value| {
        let no_word = object["metadata"]["annotations"][STATE_ANNOTATION].is_null();
        let ignored = object["webhooks"][0]["failurePolicy"] == "Ignore";
        (ignored && no_word).then(|| "Ignore, and no word of it".to_owned())
    };
    let laundering = Look {
        wrong: is_laundered,
        steps: false,
        within: usize::MAX,
    };
    let found = explored(&Policy::new(&policy, |_| true), world::owned(), laundering);
    let (wrong, way) = found.wrong.expect("it is found");
    println!("{wrong}, by {way:#?}");
    assert!(way.len() <= 6, "{way:?}");
}
