//! The binary by the name that kubectl looks for.

use std::path::PathBuf;
use std::process::Command;

use crate::cli::told;

fn plugin(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("kubectl-hookwatch");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hookwatch"), &path).unwrap();
    path
}

fn run(program: &PathBuf, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", "/nowhere").args(arguments);
    told(command.output().unwrap())
}

#[test]
fn by_that_name_every_usage_line_is_what_a_person_types() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = plugin(&folder);
    let (code, said, _) = run(&plugin, &["--help"]);
    assert_eq!(code, 0);
    assert!(
        said.contains("Usage: kubectl hookwatch [OPTIONS] <COMMAND>"),
        "{said}"
    );
    let (_, said, _) = run(&plugin, &["top", "--help"]);
    assert!(said.contains("Usage: kubectl hookwatch top [OPTIONS]"), "{said}");
    let (code, _, complained) = run(&plugin, &["status", "--no-such-flag"]);
    assert_eq!(code, 64);
    assert!(
        complained.contains("Usage: kubectl hookwatch status"),
        "{complained}"
    );
    let (_, _, complained) = run(&plugin, &["top"]);
    assert!(
        complained.contains("use `kubectl hookwatch status`"),
        "{complained}"
    );
    let (_, said, _) = run(&env!("CARGO_BIN_EXE_hookwatch").into(), &["--help"]);
    assert!(said.contains("Usage: hookwatch [OPTIONS] <COMMAND>"), "{said}");
}

#[test]
fn by_that_name_the_cluster_is_asked_and_a_context_that_is_not_there_is_told_with_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = plugin(&folder);
    let kubeconfig = folder.path().join("config");
    let context = |name: &str| format!("- name: {name}\n  context: {{cluster: c}}\n");
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: staging\n\
             clusters:\n- name: c\n  cluster: {{server: 'http://127.0.0.1:1'}}\n\
             contexts:\n{}{}users: []\n",
            context("staging"),
            context("production")
        ),
    )
    .unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    for program in [plugin.clone(), env!("CARGO_BIN_EXE_hookwatch").into()] {
        let (code, _, complained) = run(
            &program,
            &["status", "--kubeconfig", kubeconfig, "--context", "prod"],
        );
        assert_eq!(code, 64, "{complained}");
        assert!(
            complained.contains("there is no context \"prod\" in it; it has staging, production"),
            "{complained}"
        );
    }
    let (code, _, complained) = run(&plugin, &["status", "--kubeconfig", kubeconfig]);
    assert_eq!(code, 2);
    assert!(
        complained.contains("the Pods of hookwatch in namespace hookwatch cannot be listed"),
        "{complained}"
    );
    assert!(
        complained.contains(&format!(
            "`kubectl hookwatch diagnose --kubeconfig {kubeconfig}` looks for itself"
        )),
        "{complained}"
    );
    // Without a kubeconfig there is no cluster, and it is said which were looked for.
    let (code, _, complained) = run(&plugin, &["status"]);
    assert_eq!(code, 64);
    assert!(complained.contains("--kubeconfig"), "{complained}");
    // An address is an address, by whatever name.
    let (_, _, complained) = run(&plugin, &["status", "--server", "http://127.0.0.1:1"]);
    assert!(
        complained.contains("no hookwatch answers at http://127.0.0.1:1"),
        "{complained}"
    );
}
