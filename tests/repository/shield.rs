//! docs/shield.md is the table of what a shield spares, as the code has it.

use hookwatch::domain::cluster::condition::SHIELDED_NAMESPACES;
use hookwatch::domain::cluster::condition::spare::{LINES, SparedObjects, SparedWriter, SparedWrites};

use crate::same_document;

const DOCUMENT: &str = "docs/shield.md";

const HEAD: &str = "# What a shield spares

<!-- Written by the tests: `HOOKWATCH_BLESS=1 cargo test --test repository shield`. -->

A shielded webhook still reviews tenants' writes. The API server skips it for the control plane's own writes, which this table
lists. A write is spared if one line names both what is written and who writes it; no other write is. One table in the code
generates the match condition `hookwatch.dev/shield`, hookwatch's own decisions and this page.

The writer alone is never enough: controllers in kube-system create the Pods of every tenant. No line spares a tenant's Pod, a
Namespace, or a `CONNECT` such as exec.

All objects in hookwatch's own namespace, which is the namespace of the release with Helm, are spared: keep nothing else in it.

To keep a webhook from being shielded at all, annotate its configuration `hookwatch.dev/breaker: off`.

";

const TAIL: &str = "
The user names are those of kube-controller-manager 1.36 with `--use-service-account-credentials`, which kubeadm and the large
providers set. Without that flag all its controllers are `system:kube-controller-manager`, and the same objects are spared. Cloud
controllers that run under other user names are not spared.

Neither are writes that a storage driver makes as its own account: a CSI driver's external-attacher updates VolumeAttachments and
`volumeattachments/status` as the ServiceAccount of its driver, and no name tells that account from a tenant's. A webhook that
matches these, as one with `*/*` in its rules does, still holds up or refuses them under a shield: volumes are not attached, and the
Pods that need them do not start. The [standing remedy](#the-standing-remedy) has what its owner can do.

## What an owner can add

The annotation `hookwatch.dev/spare` on a webhook configuration adds to this table for its webhooks. Separate items by commas,
without spaces:

```yaml
metadata:
  annotations:
    hookwatch.dev/spare: self,leases=operators+autoscaling
```

| Item | What it adds | What it opens |
|---|---|---|
| `self` | Pods, their bindings and tokens, ReplicaSets and Deployments in the namespace of the webhook's own Service, for any writer. The webhook can then come back when it blocks its own Pods. It adds nothing for a webhook with a URL, or in `default` and `kube-public`. | During the shield, users who may create Pods in that namespace create them without review. |
| `leases=NAMESPACE+NAMESPACE` | Leases in up to eight namespaces, for any writer: the namespaces where operators, autoscalers and CSI drivers elect their leaders. | During the shield, users who may write Leases there write them without review. |

hookwatch ignores any other item and reports it (`problems` in the assessment). The annotation does not permit a bypass; the
policy and `hookwatch.dev/breaker` do. hookwatch cannot change the annotation. The [fence](../deploy/README.md#the-fence) derives
the condition from the object as it was before the write. Removing a shield never depends on the annotation.

## The standing remedy

A webhook cannot stop writes that it does not review. Ask its owner to exempt at least the Leases in `kube-system` and
`kube-node-lease`, by `namespaceSelector` or `matchConditions`.

VolumeAttachments have no namespace, so only rules or match conditions exempt them: name in the rules what the webhook reviews,
instead of `*`, or add a match condition that leaves out VolumeAttachments and their status:

```yaml
matchConditions:
  - name: no-volumeattachments
    expression: '[request.resource.group, request.resource.resource] != [\"storage.k8s.io\", \"volumeattachments\"]'
```

A [rule](configuration.md#what-may-be-bypassed) that permits `skip` for the webhook frees these writes, too, with all others.
";

fn writer(writer: SparedWriter) -> String {
    match writer {
        SparedWriter::Anyone => "Any user with permission".to_owned(),
        SparedWriter::Group(group) => format!("Group `{group}`"),
        SparedWriter::Users(users) => users
            .iter()
            .map(|user| format!("`{user}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn what(line: &SparedWrites) -> String {
    if line.what == SparedObjects::Within {
        let named = SHIELDED_NAMESPACES.map(|namespace| format!("`{namespace}`"));
        return format!(
            "All objects in {} and hookwatch's own namespace, except Namespaces",
            named.join(", ")
        );
    }
    let name = |(group, resource, subresource): (&str, &str, &str)| {
        let below = if subresource.is_empty() {
            String::new()
        } else {
            format!("/{subresource}")
        };
        let of = if group.is_empty() {
            String::new()
        } else {
            format!(".{group}")
        };
        format!("`{resource}{of}{below}`")
    };
    let names: Vec<String> = line.what.objects().map(name).collect();
    format!("{} {}", line.operations.join(", "), names.join(" "))
}

fn document() -> String {
    let mut text = format!(
        "{HEAD}| Spared | Writer | Objects | What the admin of one namespace could cause |\n|---|---|---|---|\n"
    );
    for line in &LINES {
        let cells = [
            line.name.to_owned(),
            writer(line.writer),
            what(line),
            line.risk.to_owned(),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text + TAIL
}

#[test]
fn the_shield_and_its_document_are_the_same() {
    same_document(DOCUMENT, &document(), "shield");
}
