//! deploy/chart: the same objects as the kustomizations, for any namespace.
//!
//! What needs no more than a value or a condition is made from the manifests by [`made`]; the rest is written by hand. All of
//! it is rendered and compared.

mod same;
mod values;

use crate::helm::CHART;
use crate::{read, same_document};

/// A template that is made from a manifest.
struct Made {
    from: &'static str,
    to: &'static str,
    /// The value on which it depends.
    when: Option<&'static str>,
    /// What stands in the manifest, and what in the template.
    edits: &'static [(&'static str, &'static str)],
}

const fn made(from: &'static str, to: &'static str) -> Made {
    Made {
        from,
        to,
        when: None,
        edits: &[],
    }
}

/// Wherever a manifest names the namespace: it is not made for a template if none of these stands in it.
const NAMESPACE: [(&str, &str); 5] = [
    (
        "namespace: hookwatch\n",
        "namespace: {{ .Release.Namespace | quote }}\n",
    ),
    (
        "--namespace=hookwatch]",
        "\"--namespace={{ .Release.Namespace }}\"]",
    ),
    (
        "system:serviceaccount:hookwatch:",
        "system:serviceaccount:{{ .Release.Namespace }}:",
    ),
    (
        "\"kube-node-lease\", \"hookwatch\"]",
        "\"kube-node-lease\", \"{{ .Release.Namespace }}\"]",
    ),
    ("namespace `hookwatch`", "namespace `{{ .Release.Namespace }}`"),
];

const MADE: [Made; 16] = [
    made("base/account.yaml", "account.yaml"),
    Made {
        when: Some(".Values.fence.enabled"),
        edits: &[(
            "expression: \"[]\"\n",
            "expression: {{ .Values.fence.maySkip | toJson | squote }}\n",
        )],
        ..made("base/fence.yaml", "fence.yaml")
    },
    Made {
        when: Some(".Values.fence.enabled"),
        ..made("base/proof.yaml", "proof.yaml")
    },
    made("base/observe.yaml", "observe.yaml"),
    made("base/canaries.yaml", "canaries.yaml"),
    Made {
        when: Some(".Values.canaries.kubeSystem"),
        ..made("components/canaries/kube-system.yaml", "kube-system.yaml")
    },
    Made {
        when: Some(".Values.canaries.nodeLease"),
        ..made("components/canaries/kube-node-lease.yaml", "kube-node-lease.yaml")
    },
    made("base/lease.yaml", "lease.yaml"),
    made("base/priority.yaml", "priority.yaml"),
    Made {
        when: Some(".Values.flowControl.enabled"),
        ..made("base/flow.yaml", "flow.yaml")
    },
    Made {
        edits: &[
            (
                "        - namespaceSelector:\n            matchLabels:\n              \
                 kubernetes.io/metadata.name: monitoring\n",
                "        {{- range (kindIs \"slice\" .Values.networkPolicy.scrapeFrom | ternary .Values.networkPolicy.scrapeFrom \
                 (list .Values.networkPolicy.scrapeFrom)) }}\n        - namespaceSelector:\n            \
                 matchLabels:\n              kubernetes.io/metadata.name: {{ . | quote }}\n        {{- end }}\n",
            ),
            (
                "Pods of the namespace `monitoring`, to scrape. Change it to the namespace of your Prometheus.",
                "Pods of the namespaces in networkPolicy.scrapeFrom, to scrape.",
            ),
        ],
        ..made("base/network.yaml", "network.yaml")
    },
    made("base/service.yaml", "service.yaml"),
    Made {
        when: Some(".Values.breaker.enabled"),
        ..made("components/breaker/act.yaml", "act.yaml")
    },
    Made {
        when: Some(".Values.expiry.enabled"),
        edits: &[
            (
                "        spec:\n          serviceAccountName",
                "        {{- if or .Values.podLabels .Values.podAnnotations }}\n        metadata:\n          \
                 {{- with .Values.podLabels }}\n          labels:\n            \
                 {{- toYaml . | nindent 12 }}\n          {{- end }}\n          \
                 {{- with .Values.podAnnotations }}\n          annotations:\n            \
                 {{- toYaml . | nindent 12 }}\n          {{- end }}\n        {{- end }}\n        \
                 spec:\n          serviceAccountName",
            ),
            (
                "          restartPolicy: Never\n",
                "          restartPolicy: Never\n          \
                 {{- with .Values.imagePullSecrets }}\n          imagePullSecrets:\n            \
                 {{- toYaml . | nindent 12 }}\n          {{- end }}\n          \
                 {{- with .Values.nodeSelector }}\n          nodeSelector:\n            \
                 {{- toYaml . | nindent 12 }}\n          {{- end }}\n          \
                 {{- with .Values.tolerations }}\n          tolerations:\n            \
                 {{- toYaml . | nindent 12 }}\n          {{- end }}\n",
            ),
            (
                "              image: hookwatch:0.1.0\n",
                "              image: {{ include \"hookwatch.image\" . | quote }}\n              \
                 {{- with .Values.image.pullPolicy }}\n              imagePullPolicy: {{ . }}\n              {{- end }}\n",
            ),
        ],
        ..made("components/expiry/expiry.yaml", "expiry.yaml")
    },
    Made {
        when: Some(".Values.unchecked.enabled"),
        ..made("overlays/unchecked/unchecked.yaml", "unchecked.yaml")
    },
    Made {
        when: Some(".Values.view.enabled"),
        ..made("overlays/view/view.yaml", "view.yaml")
    },
];

const MONITOR: Made = Made {
    when: Some(".Values.monitoring.enabled"),
    edits: &[(
        "    app.kubernetes.io/name: hookwatch\nspec:\n",
        "    app.kubernetes.io/name: hookwatch\n    {{- with .Values.monitoring.labels }}\n    \
         {{- toYaml . | nindent 4 }}\n    {{- end }}\nspec:\n",
    )],
    ..made("monitoring/servicemonitor.yaml", "service-monitor.yaml")
};

fn only_if(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// The text of a template.
fn template(made: &Made) -> String {
    let mut text = read(format!("deploy/{}", made.from));
    assert!(
        !text.contains("{{"),
        "{} would be taken for a template",
        made.from
    );
    for (from, to) in made.edits {
        assert!(text.contains(from), "{} has no {from:?}", made.from);
        text = text.replace(from, to);
    }
    for (from, to) in NAMESPACE {
        text = text.replace(from, to);
    }
    // What is to be had from `kustomize` only is of no use here.
    let lines = text.lines().filter(|line| !line.contains("kustomize"));
    let whole: String = lines.map(|line| format!("{line}\n")).collect();
    let whole = made.when.map_or(whole.clone(), |value| only_if(value, &whole));
    format!(
        "{{{{- /* Made from deploy/{}: HOOKWATCH_BLESS=1 cargo test --test repository chart */}}}}\n{whole}",
        made.from
    )
}

#[test]
fn the_templates_are_made_from_the_manifests() {
    for made in MADE.iter().chain([&MONITOR]) {
        let path = format!("{CHART}/templates/{}", made.to);
        same_document(&path, &template(made), "chart");
    }
    for file in [
        "alerts/hookwatch.rules.yaml",
        "alerts/apiserver-only.rules.yaml",
        "dashboards/breaker.json",
        "dashboards/overview.json",
        "dashboards/webhook.json",
    ] {
        same_document(&format!("{CHART}/{file}"), &read(file), "chart");
    }
}
