//! Renders deploy/chart as Helm does.

#[path = "chart/template.rs"]
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use template::{Templates, root};

/// The chart's folder within the repository.
pub const CHART: &str = "deploy/chart";

/// A rendered release.
pub struct Rendered {
    pub objects: Vec<Value>,
    pub notes: String,
}

/// The chart's folder, from any package of the workspace.
fn chart() -> PathBuf {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut charts = packages.map(|package| package.join(CHART));
    charts.find(|chart| chart.is_dir()).expect("the chart")
}

fn read(path: &str) -> String {
    let path = chart().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder of the chart by their path within it.
fn folder(name: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(chart().join(name)).unwrap();
    let paths = entries.map(|entry| format!("{name}/{}", entry.unwrap().file_name().to_string_lossy()));
    paths.map(|path| (path.clone(), read(&path))).collect()
}

/// The chart's default values, with some changed.
pub fn values(changed: &Value) -> Value {
    let mut values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    // The image must be set; the manifests have this one.
    assert_eq!(
        values["image"]["repository"], "",
        "an image that nobody has chosen"
    );
    values["image"]["repository"] = "hookwatch".into();
    // A null removes the key, as in Helm.
    json_patch::merge(&mut values, changed);
    values
}

/// The objects and the notes of a release in a namespace, with some values changed.
pub fn rendered(namespace: &str, changed: &Value) -> Rendered {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).unwrap();
    let root = root(namespace, &chart, &values(changed));
    let texts = folder("templates");
    let mut files = folder("alerts");
    files.extend(folder("dashboards"));
    let templates = Templates::read(&texts, files);
    let mut objects = Vec::new();
    for path in texts.keys().filter(|path| path.ends_with(".yaml")) {
        let text = format!("\n{}\n", templates.rendered(path, &root));
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document)
                .unwrap_or_else(|error| panic!("{path}: {error}\n{document}"));
            objects.extend((!object.is_null()).then_some(object));
        }
    }
    Rendered {
        objects,
        notes: templates.rendered("templates/NOTES.txt", &root),
    }
}
