//! docs/shield.md is the table of what a shield spares, as the code has it.

use hookwatch::domain::bypass::SHIELDED_NAMESPACES;
use hookwatch::domain::bypass::spare::{LINES, Line, What, Writer};

use crate::{read, root};

const DOCUMENT: &str = "docs/shield.md";

const HEAD: &str = "# What a shield spares

<!-- Written by the tests: `HOOKWATCH_BLESS=1 cargo test --test repository shield`. -->

A hook under a shield is not asked about the control plane's own writes, and about everything else as before. A write is spared
when a line of this table names what is written *and* who writes it. What no line names is not spared. The match condition
`hookwatch.dev/shield`, hookwatch's own reckoning and this page are made from one table.

Who writes is never enough: the controllers of kube-system make the Pods of every tenant. A tenant's Pod is never spared,
whoever makes it. Nor is an exec or another `CONNECT`, nor a Namespace.

A hook that must see one of these writes as well can say so: `hookwatch.dev/breaker: off` keeps hookwatch away from it.

";

const TAIL: &str = "
The users of controllers are those of kube-controller-manager with `--use-service-account-credentials`, which kubeadm and the
large providers set; without it all its controllers are `system:kube-controller-manager`, and are spared the same objects.
Kubernetes 1.36 was read for them. A cloud's controllers under names of its own are not spared.

## What an owner can add

The annotation `hookwatch.dev/spare` on a configuration adds to what a shield of its webhooks spares. Its items stand between
commas, without blanks:

```yaml
metadata:
  annotations:
    hookwatch.dev/spare: self,leases=operators+autoscaling
```

| Item | Adds | What it opens |
|---|---|---|
| `self` | Pods, their bindings and tokens, ReplicaSets and Deployments in the namespace of the webhook's own Service, whoever writes them; so that the hook can come back where it blocks its own Pods. Nothing for a webhook that is called at a URL, and never in `default` and `kube-public`. | While the shield lasts, whoever may make Pods in that namespace makes them unchecked. |
| `leases=NAMESPACE+NAMESPACE` | Leases in up to eight namespaces, whoever writes them: those where leaders of operators, autoscalers and drivers have theirs. | Whoever may write Leases there writes them unchecked. |

Anything else in it adds nothing, and hookwatch says so (`problems` in the assessment). The annotation permits no bypass:
`hookwatch.dev/breaker` and the policy do. hookwatch cannot change it, and the [fence](../deploy/README.md#the-fence) derives
the same condition from the object as it was before the write. Taking a shield away never depends on it.

## The standing remedy

A hook that is not asked about the control plane's own writes cannot stop them. Let its owner exempt at least the Leases in
`kube-system` and `kube-node-lease`, by `namespaceSelector` or by `matchConditions`.
";

fn writer(writer: Writer) -> String {
    match writer {
        Writer::Anyone => "Whoever may".to_owned(),
        Writer::Group(group) => format!("Group `{group}`"),
        Writer::Users(users) => users
            .iter()
            .map(|user| format!("`{user}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn what(line: &Line) -> String {
    let objects = match line.what {
        What::Within => {
            let named = SHIELDED_NAMESPACES.map(|namespace| format!("`{namespace}`"));
            return format!(
                "All objects in {}, and in hookwatch's own namespace, but Namespaces",
                named.join(", ")
            );
        }
        What::Objects(objects) => objects,
    };
    let name = |(group, resource, subresource): &(&str, &str, &str)| {
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
    let names: Vec<String> = objects.iter().map(name).collect();
    format!("{} {}", line.operations.join(", "), names.join(" "))
}

fn document() -> String {
    let mut text = format!(
        "{HEAD}| What for | Who writes | What | What an admin of one namespace could cause by it |\n|---|---|---|---|\n"
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
    let document = document();
    if std::env::var_os("HOOKWATCH_BLESS").is_some() {
        std::fs::write(root().join(DOCUMENT), document).unwrap();
        return;
    }
    assert_eq!(
        read(DOCUMENT),
        document,
        "the table has changed: HOOKWATCH_BLESS=1 cargo test --test repository shield"
    );
}
