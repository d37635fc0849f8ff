//! The recipe of docs/breaker.md for a person with kubectl, as it stands there.

use super::*;

pub(super) fn by_kubectl() -> Played {
    let binaries = hookwatch::lab::envtest::binaries::find().ok().unwrap();
    let folder = binaries.kube_apiserver.parent().unwrap().to_owned();
    if !folder.join("kubectl").exists() {
        return Played::Skipped("there is no kubectl beside the API server".to_owned());
    }
    play(async {
        let (cluster, account) = fenced().await;
        let hand = straight(&account);
        let mut before = Vec::new();
        let hooks: Vec<HookId> = [HookKind::Validating, HookKind::Mutating]
            .into_iter()
            .flat_map(|kind| [A, B].map(|webhook| HookId::new(kind, "policy", webhook)))
            .collect();
        for hook in &hooks {
            before.push(spec(&read(&hand, hook).await));
        }
        let person = straight(&cluster.admin);
        let desired_states = [ignore(), desired(Rung::Shield), desired(Rung::Skip), ignore()];
        for (hook, desired) in hooks.iter().zip(desired_states) {
            applied(&person, hook, &desired).await;
        }
        applied(&hand, &hooks[2], &Desired::Probation).await;
        let kubeconfig = cluster.admin_kubeconfig();
        let path = std::env::join_paths(
            [folder]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let path = path.unwrap();
        // A person who looks at the object is told.
        let (looking, with) = (path.clone(), kubeconfig.clone());
        let shown = tokio::task::spawn_blocking(move || {
            std::process::Command::new("kubectl")
                .args(["get", "validatingwebhookconfiguration", "policy", "-o", "yaml"])
                .env("PATH", looking)
                .env("KUBECONFIG", with)
                .output()
                .unwrap()
        });
        let shown = String::from_utf8(shown.await.unwrap().stdout).unwrap();
        assert!(
            shown.contains("    hookwatch.dev/bypass: |-\n      {\n"),
            "{shown}"
        );
        assert!(
            shown.contains(" \"original\": \"a.example.com=Fail/10\",\n"),
            "{shown}"
        );
        for round in ["once", "again"] {
            let (path, kubeconfig) = (path.clone(), kubeconfig.clone());
            let output = tokio::task::spawn_blocking(move || {
                std::process::Command::new("sh")
                    .args(["-eu", "-c", &documented("undo")])
                    .env("PATH", path)
                    .env("KUBECONFIG", kubeconfig)
                    .output()
                    .unwrap()
            });
            let output = output.await.unwrap();
            assert!(output.status.success(), "{round}: {output:?}");
            for (hook, before) in hooks.iter().zip(&before) {
                let now = read(&hand, hook).await;
                let text = |object: &Value| serde_json::to_string_pretty(object).unwrap();
                assert_eq!(
                    text(&spec(&now)),
                    text(before),
                    "{round}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                assert_eq!(standing(&now, &hook.webhook), BypassStanding::Original);
            }
        }
        for hook in &hooks {
            let answer = owner_applies(&cluster, hook, &manifest(hook.kind, "policy")).await;
            assert!(answer.is_success(), "the owner's next apply: {answer:?}");
        }
    })
}
