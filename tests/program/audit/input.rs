//! Bad input: an error with file and line, and the rest is audited.

use std::fs;
use std::path::Path;

use hookwatch::io::cluster::estate::manifests;

use super::{Manifests, audit, estate};

const GOOD: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: good}
webhooks:
  - name: good.example.com
    clientConfig: {service: {namespace: policy, name: policy}}
    rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
    sideEffects: None
    admissionReviewVersions: [v1]
";

#[test]
fn what_cannot_be_read_is_told_with_its_line_and_the_next_document_is_read() {
    for (bad, line, why) in [
        ("kind: [unclosed\n", 1, "not YAML"),
        ("a: 1\nb: {{ .Values.b }}\n", 2, "template"),
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: \"{{ .Release.Name }}\"\n",
            4,
            "template",
        ),
        ("just a text\n", 1, "no object of Kubernetes"),
        (
            "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration\n",
            1,
            "v1beta1",
        ),
        (
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nwebhooks: 5\n",
            1,
            "correct the field",
        ),
        ("\u{7f}\u{0}: x\n", 1, "not YAML"),
    ] {
        let text = format!("# a comment\n---\n{bad}---\n{GOOD}");
        let (estate, unreadable) = estate(&[&text]);
        assert_eq!(estate.subjects.len(), 1, "{bad}");
        assert_eq!(
            estate.subjects[0].source.as_ref().unwrap().line,
            2 + bad.lines().count() + 6,
            "{bad}"
        );
        let [one] = unreadable.as_slice() else {
            panic!("{bad}: {unreadable:?}")
        };
        assert!(one.why.contains(why), "{one:?}");
        assert_eq!(one.source.as_ref().unwrap().line, 2 + line, "{bad}: {one:?}");
    }
}

#[test]
fn lists_json_comments_and_several_documents_are_read() {
    let json = serde_json::json!({"kind": "ValidatingWebhookConfigurationList", "apiVersion": "admissionregistration.k8s.io/v1",
        "items": [{"metadata": {"name": "a"}, "webhooks": [{"name": "w", "clientConfig": {"url": "https://h"},
                   "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}]});
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}",
        GOOD.lines()
            .enumerate()
            .map(|(at, line)| format!("{}{line}\n", if at == 0 { "- " } else { "  " }))
            .collect::<String>()
    );
    let helm = format!(
        "---\n# Source: chart/templates/empty.yaml\n---\n# Source: chart/templates/hook.yaml\n{GOOD}---\n# nothing\n...\n"
    );
    for text in [
        &json.to_string(),
        &list,
        &helm,
        &format!("\u{feff}{GOOD}"),
        &GOOD.replace('\n', "\r\n"),
    ] {
        let (estate, unreadable) = estate(&[text]);
        assert_eq!(
            (estate.subjects.len(), unreadable.len()),
            (1, 0),
            "{text}: {unreadable:?}"
        );
    }
}

#[test]
fn what_grows_out_of_anchors_or_nests_without_end_is_refused_soon() {
    let level = |at: u8| {
        format!(
            "{}: &{0} [{}]\n",
            char::from(at),
            format!("*{},", char::from(at - 1)).repeat(9)
        )
    };
    let grows = format!("a: &a [x]\n{}", (b'b'..=b'l').map(level).collect::<String>());
    let nests = format!("a: {}", "[".repeat(200_000));
    for (text, why) in [(&grows, "too large"), (&nests, "not YAML")] {
        let (estate, unreadable) = estate(&[&format!("{text}\n---\n{GOOD}")]);
        assert_eq!(estate.subjects.len(), 1);
        assert!(
            unreadable.len() == 1 && unreadable[0].why.contains(why),
            "{unreadable:?}"
        );
    }
}

#[test]
fn braces_of_other_kinds_are_their_own() {
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: templates}\ndata:\n  a: |\n    {{ .Name }}\n";
    let (_, unreadable) = estate(&[map]);
    assert_eq!(unreadable, []);
}

#[test]
fn manifests_need_no_kubeconfig_and_unreadable_ones_are_a_warning() {
    let ran = audit(&["-"], "kind: [");
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(
        ran.out.contains("unreadable-input") && ran.out.contains("(-:1)"),
        "{}",
        ran.out
    );
    let ran = audit(&[], "");
    assert_eq!(
        ran.code, 64,
        "without files it wants a cluster: {}{}",
        ran.out, ran.err
    );
    let ran = audit(&["/nonexistent/file.yaml"], "");
    assert_eq!(ran.code, 64, "a mistyped path is bad usage");
    assert!(
        ran.err.contains("cannot open /nonexistent/file.yaml"),
        "{}",
        ran.err
    );
    let ran = audit(&["-"], "");
    assert_eq!(ran.code, 3, "nothing to audit: {}", ran.err);
}

#[test]
fn folders_are_read_whole_and_links_in_them_lead_nowhere_twice() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-folder");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("below")).unwrap();
    fs::write(folder.join("below/hook.yaml"), GOOD).unwrap();
    fs::write(folder.join("broken.yml"), "a: [").unwrap();
    fs::write(folder.join("README.md"), "a: [").unwrap();
    std::os::unix::fs::symlink(&folder, folder.join("below/loop")).unwrap();
    let ran = audit(&["--output", "json", folder.to_str().unwrap()], "");
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["forecasts"].as_array().unwrap().len(), 3);
    let unreadable = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["id"] == "unreadable-input");
    assert_eq!(unreadable.count(), 1, "{}", ran.out);
}

#[test]
fn more_than_a_hundred_megabytes_are_refused_with_a_reason() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-huge.yaml");
    let file = fs::File::create(&path).unwrap();
    file.set_len(101 * 1024 * 1024).unwrap();
    let ran = audit(&[path.to_str().unwrap(), "-"], GOOD);
    fs::remove_file(&path).unwrap();
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out.contains("100 MB") && ran.out.contains("good.example.com"),
        "{}",
        ran.out
    );
}

#[test]
fn a_line_of_yaml_in_flow_style_is_read_after_other_files_too() {
    let flow = |name: &str| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n");
    let mut read = Manifests::default();
    for name in ["a", "b"] {
        read.text("test.yaml", &flow(name));
    }
    assert_eq!(read.unreadable, []);
    assert_eq!(read.objects.len(), 2);
}

#[test]
fn folders_that_are_too_deep_are_said_not_to_be_read_and_files_that_are_no_manifests_are_not_mentioned() {
    let folder = tempfile::tempdir().unwrap();
    let deep = (0..40).fold(folder.path().to_owned(), |path, _| path.join("d"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("a.yaml"), "kind: Namespace\n").unwrap();
    fs::write(folder.path().join("README.md"), "no manifest").unwrap();
    let read = manifests::read(&[folder.path().to_owned()]);
    assert_eq!(read.objects.len(), 0);
    let why: Vec<&str> = read.unreadable.iter().map(|it| &*it.why).collect();
    assert_eq!(why, ["folders more than 32 levels down are not read"]);
}
