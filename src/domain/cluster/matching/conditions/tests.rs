//! What conditions come to, for the daemon and in forecasts.

use super::*;

/// What conditions say of the renewal of a node's Lease.
fn says(conditions: &[&str]) -> Option<bool> {
    let conditions = ConditionCompiler::default().conditions(conditions.iter().copied());
    conditions.let_through(&ConditionRequest {
        shape: RequestShape {
            operation: "UPDATE",
            group: "coordination.k8s.io",
            version: "v1",
            resource: "leases",
            namespace: Some("kube-node-lease"),
            ..RequestShape::default()
        },
        kind: Some("Lease"),
        name: "node-1",
        by: Requester {
            user: "system:node:node-1",
            groups: &["system:nodes", "system:authenticated"],
        },
        dry_run: false,
    })
}

#[test]
fn what_conditions_ask_about_the_request_is_answered() {
    for (expression, wanted) in [
        ("true", true),
        ("request.operation == 'UPDATE' && request.name != 'x'", true),
        ("!('system:nodes' in request.userInfo.groups)", false),
        ("!request.userInfo.username.startsWith('system:node:')", false),
        ("request.userInfo.groups.exists(g, g.endsWith(':nodes'))", true),
        ("request.resource.group != 'coordination.k8s.io'", false),
        (
            "!(request.namespace in ['kube-system', 'kube-node-lease'])",
            false,
        ),
        ("request.dryRun", false),
        ("namespaceObject == null", true),
        (
            "has(request.subResource) && request.subResource == 'status'",
            false,
        ),
        (
            "request.kind.kind == 'Lease' ? request.name.size() > 3 : false",
            true,
        ),
    ] {
        assert_eq!(says(&[expression]), Some(wanted), "{expression}");
    }
}

#[test]
fn what_conditions_ask_about_the_object_or_the_authorizer_is_unknown() {
    for expression in [
        "object.metadata.labels['a'] == 'b'",
        "!has(oldObject.metadata)",
        "authorizer.group('').resource('pods').check('create').allowed()",
        "request.uid == ''",
        "request.options.dryRun == ['All']",
        "request.userInfo.extra['a'] == ['b']",
        "has(request.options)",
        "has(request.userInfo.extra)",
        "request.name.matches('^n')",
        "no CEL at all",
        "",
    ] {
        assert_eq!(says(&[expression]), None, "{expression}");
    }
}

#[test]
fn one_that_is_false_keeps_a_request_away_whatever_the_others_say() {
    assert_eq!(says(&[]), Some(true));
    assert_eq!(says(&["object.x", "false", "true"]), Some(false));
    assert_eq!(says(&["true", "object.x"]), None);
    assert_eq!(says(&["true", "true"]), Some(true));
}

#[test]
fn what_would_take_long_or_recurse_deep_is_not_evaluated() {
    let long = format!("true{}", " || true".repeat(200));
    let deep = format!("{}true{}", "(".repeat(400), ")".repeat(400));
    let chain = format!("request{} == ''", ".a".repeat(400));
    let sum = format!("1{} > 0", "+1".repeat(400));
    let list = format!("[{}]", ["1"; 100].join(","));
    let loops = format!("{list}.all(a, {list}.all(b, a == b))");
    let grows = format!("'a'{}.size() > 0", ".replace('a', 'aaaaaaaa')".repeat(30));
    for expression in [long, deep, chain, sum, loops, grows] {
        assert_eq!(says(&[&expression]), None, "{expression}");
    }
}

fn asked() -> ConditionRequest<'static> {
    ConditionRequest {
        shape: RequestShape {
            operation: "CREATE",
            version: "v1",
            resource: "pods",
            namespace: Some("tenant"),
            ..RequestShape::default()
        },
        kind: Some("Pod"),
        name: "web-0",
        by: Requester {
            user: "system:serviceaccount:kube-system:replicaset-controller",
            groups: &["system:serviceaccounts", "system:authenticated"],
        },
        dry_run: false,
    }
}

fn pod() -> Json {
    json!({"metadata": {"name": "web-0", "labels": {"app": "web"}},
           "spec": {"containers": [{"name": "a", "image": "registry.example/a:1"}]}})
}

fn outcome(conditions: &[&str]) -> ConditionOutcome {
    let conditions = ConditionCompiler::for_forecasts().conditions(conditions.iter().copied());
    conditions.outcome(&asked(), RequestObject::Object(&pod()), RequestObject::Null)
}

#[test]
fn what_is_asked_of_request_and_object_is_answered() {
    for (expression, wanted) in [
        ("object.metadata.labels['app'] == 'web'", ConditionOutcome::True),
        (
            "object.metadata.?labels['team'].orValue('none') == 'none'",
            ConditionOutcome::True,
        ),
        (
            "has(object.metadata.labels) && 'team' in object.metadata.labels",
            ConditionOutcome::False,
        ),
        (
            "object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
            ConditionOutcome::True,
        ),
        (
            "oldObject == null && namespaceObject == null",
            ConditionOutcome::True,
        ),
        (
            "request.userInfo.username.matches('^system:serviceaccount:kube-.*')",
            ConditionOutcome::True,
        ),
        ("request.name.lowerAscii() == 'web-0'", ConditionOutcome::True),
        (
            "!(request.namespace in ['kube-system', 'tenant'])",
            ConditionOutcome::False,
        ),
        ("has(request.subResource)", ConditionOutcome::False),
    ] {
        assert_eq!(outcome(&[expression]), wanted, "{expression}");
    }
}

#[test]
fn an_absent_key_is_an_error_and_what_is_unknown_is_not() {
    for (expression, wanted) in [
        ("object.metadata.annotations['a'] == 'b'", ConditionOutcome::Error),
        ("request.subResource == 'status'", ConditionOutcome::Error),
        ("request.name", ConditionOutcome::Error),
        (
            "authorizer.group('').resource('pods').check('create').allowed()",
            ConditionOutcome::Unknown,
        ),
        (
            "request.operation == 'DELETE' && authorizer.path('/x').check('get').allowed()",
            ConditionOutcome::False,
        ),
        (
            "authorizer.path('/x').check('get').allowed() || request.operation == 'CREATE'",
            ConditionOutcome::True,
        ),
        ("request.options.dryRun == ['All']", ConditionOutcome::Unknown),
        ("has(request.userInfo.extra)", ConditionOutcome::Unknown),
        ("request.?userInfo.?extra.hasValue()", ConditionOutcome::Unknown),
        ("has(request['userInfo'].extra)", ConditionOutcome::Unknown),
        // A few kilobytes of it take 64 GB.
        (
            "'aa'.split('').join('bb').split('').join('cc').size() > 0",
            ConditionOutcome::Unknown,
        ),
        (
            "cidr('10.0.0.0/8').containsIP('10.1.1.1')",
            ConditionOutcome::Unknown,
        ),
        ("no CEL at all", ConditionOutcome::Unknown),
    ] {
        assert_eq!(outcome(&[expression]), wanted, "{expression}");
    }
}

#[test]
fn one_that_is_false_wins_over_errors_and_an_unknown_one_may_be_false() {
    assert_eq!(
        outcome(&["request.subResource == ''", "false"]),
        ConditionOutcome::False
    );
    assert_eq!(
        outcome(&["request.subResource == ''", "true"]),
        ConditionOutcome::Error
    );
    let allowed = "authorizer.path('/x').check('get').allowed()";
    assert_eq!(
        outcome(&["request.subResource == ''", allowed]),
        ConditionOutcome::Unknown
    );
    assert_eq!(outcome(&[]), ConditionOutcome::True);
}

#[test]
fn a_whole_number_of_an_object_takes_part_in_sums() {
    let object = json!({"spec": {"replicas": 3}});
    for (expression, wanted) in [
        ("object.spec.replicas + 1 == 4", ConditionOutcome::True),
        ("object.spec.replicas > 2", ConditionOutcome::True),
        ("object.spec.replicas - 4 == -1", ConditionOutcome::True),
        ("object.spec.replicas + 1u == 4u", ConditionOutcome::Error),
    ] {
        let conditions = ConditionCompiler::for_forecasts().conditions([expression].into_iter());
        let outcome = conditions.outcome(&asked(), RequestObject::Object(&object), RequestObject::Null);
        assert_eq!(outcome, wanted, "{expression}");
    }
}

#[test]
fn an_unknown_object_decides_nothing_that_asks_about_it() {
    let with = |expression| {
        let conditions = ConditionCompiler::for_forecasts().conditions([expression].into_iter());
        conditions.outcome(&asked(), RequestObject::Unknown, RequestObject::Null)
    };
    assert_eq!(with("has(object.metadata.labels)"), ConditionOutcome::Unknown);
    assert_eq!(
        with("request.namespace != 'tenant' && has(object.spec)"),
        ConditionOutcome::False
    );
    assert_eq!(with("oldObject == null"), ConditionOutcome::True);
}

#[test]
fn a_chain_of_operators_that_is_as_long_as_an_object_may_be_is_not_taken_apart() {
    let compiler = ConditionCompiler::for_forecasts();
    for link in ["+1", ".a", "[1]", "-1", "==a", "<a", ">=a", " in a", "||a", "&&a"] {
        for times in [5_000, 500_000] {
            let text = format!("a{}", link.repeat(times));
            assert!(compiler.check(&text).is_ok(), "{link} {times} times");
            let outcome = outcome(&[&text]);
            assert!(
                matches!(outcome, ConditionOutcome::Unknown | ConditionOutcome::Error),
                "{link} {times} times: {outcome:?}"
            );
        }
    }
    assert!(compiler.check("no CEL at all").is_err());
}

#[test]
fn a_kind_that_is_not_known_is_not_said_to_be_absent() {
    let with = |expression, kind| {
        let conditions = ConditionCompiler::for_forecasts().conditions([expression].into_iter());
        let asked = ConditionRequest { kind, ..asked() };
        conditions.outcome(&asked, RequestObject::Unknown, RequestObject::Null)
    };
    for expression in [
        "request.kind.kind != 'Secret'",
        "has(request.requestKind.kind)",
        "request.kind['kind'] == 'Pod'",
    ] {
        assert_eq!(
            with(expression, Some("Pod")),
            ConditionOutcome::True,
            "{expression}"
        );
        assert_eq!(with(expression, None), ConditionOutcome::Unknown, "{expression}");
    }
    assert_eq!(with("request.kind.group == ''", None), ConditionOutcome::True);
}

#[test]
fn patterns_that_are_long_many_in_a_loop_or_not_literal_are_not_compiled() {
    let long = format!("request.name.matches('{}')", "a{1000}".repeat(40));
    let matching = |times: usize| vec!["request.name.matches('^[^a]*$')"; times].join(" && ");
    let looping = "[0, 0].exists(i, request.name.matches('[a-z]{200}'))";
    assert_ne!(outcome(&[&matching(8)]), ConditionOutcome::Unknown);
    for expression in [
        "request.name.matches(request.namespace)",
        &long,
        &matching(9),
        looping,
    ] {
        assert_eq!(outcome(&[expression]), ConditionOutcome::Unknown, "{expression}");
    }
}

#[test]
fn a_loop_over_places_and_elements_is_not_evaluated() {
    for (expression, expected) in [
        ("['a', 'b'].exists_one(x, x == 'a')", ConditionOutcome::True),
        ("['a', 'b'].exists_one(i, x, x == 'a')", ConditionOutcome::Unknown),
        ("['a', 'b'].all(i, x, x == 'a')", ConditionOutcome::Unknown),
    ] {
        assert_eq!(outcome(&[expression]), expected, "{expression}");
    }
}

#[test]
fn a_user_without_name_or_groups_has_no_such_fields() {
    let with = |by, expression: &str| {
        let conditions = ConditionCompiler::default().conditions([expression].into_iter());
        let asked = ConditionRequest { by, ..asked() };
        conditions.outcome(&asked, RequestObject::Unknown, RequestObject::Null)
    };
    let nameless = Requester {
        user: "",
        groups: &[],
    };
    for field in ["username", "groups"] {
        let (has, uses) = (
            format!("has(request.userInfo.{field})"),
            format!("request.userInfo.{field}.size() > 0"),
        );
        assert_eq!(with(nameless, &has), ConditionOutcome::False, "{has}");
        assert_eq!(with(nameless, &uses), ConditionOutcome::Error, "{uses}");
        assert_eq!(with(asked().by, &uses), ConditionOutcome::True, "{uses}");
    }
}

#[test]
fn the_kind_of_a_subresource_has_its_own_group_and_version() {
    let outcome = |object: [&'static str; 4], expression: &str| {
        let conditions = ConditionCompiler::default().conditions([expression].into_iter());
        conditions.let_through(&ConditionRequest {
            shape: RequestShape::new("CREATE", object),
            kind: None,
            name: "x",
            by: Requester {
                user: "system:node:node-1",
                groups: &[],
            },
            dry_run: false,
        })
    };
    for (object, kind) in [
        (["", "v1", "serviceaccounts", "token"], "authentication.k8s.io/v1"),
        (["apps", "v1", "deployments", "scale"], "autoscaling/v1"),
        (["", "v1", "pods", "eviction"], "policy/v1"),
        (["", "v1", "pods", "binding"], "/v1"),
        (["apps", "v1", "deployments", "status"], "apps/v1"),
        (["example.com", "v2", "widgets", ""], "example.com/v2"),
    ] {
        for field in ["request.kind", "request.requestKind"] {
            let expression = format!("{field}.group + '/' + {field}.version == '{kind}'");
            assert_eq!(
                outcome(object, &expression),
                Some(true),
                "{object:?} {expression}"
            );
        }
        let resource = format!("request.resource.group == '{}'", object[0]);
        assert_eq!(outcome(object, &resource), Some(true), "{object:?}");
    }
}
