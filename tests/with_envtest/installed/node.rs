//! What starts hookwatch on a control-plane node, in the outage itself: no write is admitted any more.

use serde_json::{Value, json};

use super::lab::{CATCHES_ALL, HANGS, done, everything, hanging, shell};
use super::room::{self, Daemon};
use crate::privileges::cluster::Cluster;

const ACCOUNT: &str = "system:serviceaccount:hookwatch:hookwatch";

pub fn read(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/control-plane-node")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As the kubelet starts it: by the static Pod's arguments, with the files that its volume has from the node.
pub fn by_kubelet(configuration: String, kubeconfig: String) -> Daemon {
    let pod: Value = serde_saphyr::from_str(&read("static-pod.yaml")).unwrap();
    let arguments: Vec<String> =
        serde_json::from_value(pod["spec"]["containers"][0]["args"].clone()).unwrap();
    let files = [
        ("/etc/hookwatch/hookwatch.yaml".to_owned(), configuration),
        ("/etc/hookwatch/kubeconfig".to_owned(), kubeconfig),
    ];
    let user = pod["spec"]["securityContext"]["runAsUser"].as_i64().unwrap();
    room::start(&arguments, &[], &files, user)
}

/// As systemd starts it: by the unit's command line, with the credential in a folder that only it can read.
fn by_systemd(configuration: String, kubeconfig: String) -> Daemon {
    const CREDENTIALS: &str = "/run/credentials/hookwatch.service";
    let unit = read("hookwatch.service");
    let value = |key: &str| {
        let mut values = unit.lines().filter_map(|line| line.strip_prefix(key));
        values.next().unwrap().to_owned()
    };
    assert_eq!(value("LoadCredential="), "kubeconfig:/etc/hookwatch/kubeconfig");
    let line = value("ExecStart=").replace("${CREDENTIALS_DIRECTORY}", CREDENTIALS);
    let arguments: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
    let files = [
        ("/etc/hookwatch/hookwatch.yaml".to_owned(), configuration),
        (format!("{CREDENTIALS}/kubeconfig"), kubeconfig),
    ];
    // Whom systemd makes up for a dynamic user.
    room::start(&arguments, &[], &files, 61_184)
}

/// Whether the culprit is named.
pub fn is_named(assessment: &Value) -> bool {
    let hooks = assessment["hooks"].as_array();
    let culprit = |hook: &Value| {
        hook["webhook"] == HANGS && hook["configuration"] == CATCHES_ALL && hook["effect"] == "Blocking"
    };
    hooks.is_some_and(|hooks| hooks.iter().any(culprit))
}

pub async fn it_comes_up_while_every_write_hangs() {
    let cluster = Cluster::start().await;
    cluster.deploy("overlays/breaker").await;
    let kubeconfig = cluster.admin_kubeconfig();
    let hanging = hanging(&everything()).await;
    cluster.apply(&hanging.hook).await;
    // Not even a namespace can be made: nothing that starts by a write starts now.
    let write = "kubectl create namespace another --request-timeout=3s";
    let mut tries = 0;
    while shell(&kubeconfig, write).await.status.success() {
        done(&kubeconfig, "kubectl delete namespace another --wait=false").await;
        tries += 1;
        assert!(tries < 20, "the hook is never called");
    }

    // By certificate, as deploy/README.md says: no token of a service account has to be renewed by a write.
    let envtest = cluster.envtest();
    let account = (ACCOUNT, "system:serviceaccounts:hookwatch");
    let of_account = envtest.kubeconfig_of(account, false, envtest.address()).unwrap();
    let mut daemon = by_kubelet(read("hookwatch.yaml"), of_account.clone());
    let assessment = daemon.assessed("the culprit is named", is_named).await;
    assert_eq!(
        assessment["sources"]["inventory_trouble"],
        json!([]),
        "{assessment:#}"
    );
    let (ready, text) = daemon.get(daemon.ports.metrics, "/ready").await.unwrap();
    assert_eq!(ready, 200, "{text}");
    assert!(daemon.terminate().await, "it did not end when it was asked to");

    // With the breaker on, it brings the control plane's own writes back.
    let configuration = read("hookwatch.yaml");
    let acting = configuration.replace("autoBreak: plan", "autoBreak: on");
    assert_ne!(acting, configuration);
    let mut daemon = by_systemd(acting, of_account);
    daemon.assessed("the culprit is named", is_named).await;
    daemon
        .assessed("the culprit is bypassed", |assessment| {
            let hooks = assessment["breaker"]["hooks"].as_array();
            hooks.is_some_and(|hooks| {
                hooks.iter().any(|hook| {
                    hook["webhook"] == HANGS && hook["state"] == "bypassed" && hook["effective"] == true
                })
            })
        })
        .await;
    done(
        &kubeconfig,
        "kubectl -n kube-system create configmap written --request-timeout=10s",
    )
    .await;
    assert!(daemon.terminate().await, "it did not end when it was asked to");
}
