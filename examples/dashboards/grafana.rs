//! The part of Grafana's dashboard model (schema version 39, Grafana 10.4 and later) that the dashboards are made of.
//!
//! Only what is set is written, so a dashboard file stays short.

use serde::Serialize;
use serde_json::{Value, json};

/// A whole dashboard.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dashboard {
    pub uid: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub tags: Vec<&'static str>,
    pub schema_version: u32,
    pub version: u32,
    pub editable: bool,
    pub graph_tooltip: u8,
    pub refresh: &'static str,
    pub time: Value,
    pub timezone: &'static str,
    pub links: Vec<Value>,
    pub annotations: Value,
    pub templating: Value,
    pub panels: Vec<Panel>,
}

impl Dashboard {
    /// A dashboard with the common variables, and with verdicts as annotations.
    pub fn new(uid: &'static str, title: &'static str, description: &'static str) -> Self {
        Self {
            uid,
            title,
            description,
            tags: vec!["hookwatch", "kubernetes"],
            schema_version: 39,
            version: 1,
            editable: true,
            // A crosshair shared by all panels, to see what happened at the same instant.
            graph_tooltip: 1,
            refresh: "10s",
            time: json!({"from": "now-1h", "to": "now"}),
            timezone: "browser",
            links: vec![json!({
                "type": "dashboards", "tags": ["hookwatch"], "title": "hookwatch", "asDropdown": false,
                "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link",
            })],
            annotations: json!({"list": [annotation()]}),
            templating: json!({"list": []}),
            panels: Vec::new(),
        }
    }

    /// Sets the variables: the two that every dashboard has, and `more`.
    pub fn with_variables(mut self, more: Vec<Value>) -> Self {
        let mut list = vec![
            json!({
                "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
                "hide": 0, "refresh": 1, "regex": "", "includeAll": false, "multi": false,
            }),
            // `.*` also matches series without this label, as in a Prometheus of a single cluster.
            variable(
                "cluster",
                "Cluster",
                "label_values(hookwatch_build_info, cluster)",
                true,
            ),
        ];
        list.extend(more);
        self.templating = json!({ "list": list });
        self
    }

    /// Lays the panels out: each row is a list of panels with their widths (of 24) and the row's height.
    pub fn with_rows(mut self, rows: Vec<(u32, Vec<(u32, Panel)>)>) -> Self {
        let (mut y, mut id) = (0, 0);
        for (height, panels) in rows {
            let mut x = 0;
            for (width, mut panel) in panels {
                id += 1;
                panel.id = id;
                panel.grid_pos = GridPos {
                    h: height,
                    w: width,
                    x,
                    y,
                };
                x += width;
                self.panels.push(panel);
            }
            y += height;
        }
        self
    }
}

/// A variable whose values come from a Prometheus query.
pub fn variable(name: &str, label: &str, query: &str, all: bool) -> Value {
    let mut variable = json!({
        "name": name, "label": label, "type": "query",
        "datasource": datasource(),
        "definition": query, "query": {"query": query, "refId": name, "qryType": 1},
        "hide": 0, "refresh": 2, "regex": "", "sort": 1, "multi": false, "includeAll": all,
    });
    if all {
        variable["allValue"] = json!(".*");
        variable["current"] = json!({"selected": true, "text": "All", "value": "$__all"});
    }
    variable
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// An annotation for the time during which a webhook is failing.
fn annotation() -> Value {
    json!({
        "name": "Failing webhooks", "enable": true, "hide": false, "iconColor": "red",
        "datasource": datasource(),
        "expr": FAILING, "step": "15s",
        "titleFormat": "{{webhook}}", "textFormat": "{{cause}}, {{effect}}", "tagKeys": "cluster,kind,configuration",
        "useValueForTime": false,
    })
}

/// Label matcher for the selected clusters.
pub const CLUSTER: &str = "cluster=~\"$cluster\"";

/// Seconds after which an assessment is stale, as in the alert HookwatchBlind.
pub const STALE: u32 = 60;

/// Query for the cause of every failing webhook.
pub const FAILING: &str = "max by (cluster, kind, configuration, webhook, cause, effect) (\
    hookwatch_hook_cause{cluster=~\"$cluster\"} and ignoring (cause, effect, health, incident) \
    hookwatch_hook_health{cluster=~\"$cluster\", health=\"failing\"} == 1)";

/// One panel.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    pub id: u32,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub datasource: Value,
    pub grid_pos: GridPos,
    pub field_config: Value,
    pub options: Value,
    pub targets: Vec<Target>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transformations: Vec<Value>,
}

/// Where a panel is and how large: 24 columns.
#[derive(Debug, Default, Serialize)]
pub struct GridPos {
    pub h: u32,
    pub w: u32,
    pub x: u32,
    pub y: u32,
}

/// One query.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub ref_id: String,
    pub datasource: Value,
    pub expr: String,
    pub legend_format: String,
    pub instant: bool,
    pub range: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
}

/// The colours of states on all dashboards. Good is blue, because many people cannot distinguish green from red.
const COLOURS: [(&str, &str); 17] = [
    ("flowing", "blue"),
    ("healthy", "blue"),
    ("alive", "blue"),
    ("answered", "blue"),
    ("written", "blue"),
    ("success", "blue"),
    ("delayed", "orange"),
    ("suspect", "orange"),
    ("slow", "orange"),
    ("stale", "orange"),
    ("shield", "orange"),
    ("skip", "red"),
    ("wavering", "purple"),
    ("blocked", "red"),
    ("failing", "red"),
    ("dead", "red"),
    ("unknown", "text"),
];

impl Panel {
    fn new(kind: &'static str, title: &'static str, description: &'static str, options: Value) -> Self {
        Self {
            id: 0,
            kind,
            title,
            description,
            datasource: datasource(),
            grid_pos: GridPos::default(),
            field_config: json!({"defaults": {}, "overrides": []}),
            options,
            targets: Vec::new(),
            transformations: Vec::new(),
        }
    }

    /// Lines over time.
    pub fn lines(title: &'static str, description: &'static str, unit: &str) -> Self {
        let options = json!({
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        });
        let mut panel = Self::new("timeseries", title, description, options);
        panel.field_config["defaults"] = json!({
            "unit": unit, "min": 0,
            "custom": {"lineWidth": 2, "fillOpacity": 8, "showPoints": "auto", "spanNulls": false},
        });
        panel
    }

    /// Lines on top of each other; the legend has the largest first.
    pub fn stacked(title: &'static str, description: &'static str, unit: &str) -> Self {
        let mut panel = Self::lines(title, description, unit);
        panel.field_config["defaults"]["custom"]["stacking"] = json!({"mode": "normal", "group": "A"});
        panel.field_config["defaults"]["custom"]["fillOpacity"] = json!(45);
        panel.options["legend"]["sortBy"] = json!("Last *");
        panel.options["legend"]["sortDesc"] = json!(true);
        panel
    }

    /// The newest value of one or a few series.
    pub fn number(title: &'static str, description: &'static str, unit: &str) -> Self {
        let options = json!({
            "colorMode": "value", "graphMode": "area", "textMode": "auto", "justifyMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
        });
        let mut panel = Self::new("stat", title, description, options);
        panel.field_config["defaults"] =
            json!({"unit": unit, "color": {"mode": "fixed", "fixedColor": "text"}});
        panel
    }

    /// Gives the series with these names their colours in [`COLOURS`].
    pub fn coloured(mut self, names: &[&str]) -> Self {
        for (name, colour) in COLOURS.iter().filter(|(name, _)| names.contains(name)) {
            // The name of the cluster follows if there are several.
            let named = json!({"id": "byRegexp", "options": format!("/^{name}( |$)/")});
            self.override_fields(named, "color", json!({"mode": "fixed", "fixedColor": colour}));
        }
        self
    }

    fn override_fields(&mut self, matcher: Value, property: &str, value: Value) {
        if let Some(overrides) = self.field_config["overrides"].as_array_mut() {
            overrides.push(json!({
                "matcher": matcher,
                "properties": [{"id": property, "value": value}],
            }));
        }
    }

    /// The name of the series that exists, large and in its colour.
    pub fn state(title: &'static str, description: &'static str) -> Self {
        let mut panel = Self::number(title, description, "none");
        panel.options["textMode"] = json!("name");
        panel.options["colorMode"] = json!("background");
        panel.options["graphMode"] = json!("none");
        panel
    }

    /// States over time. Its queries must be 1 for the current state.
    pub fn timeline(title: &'static str, description: &'static str) -> Self {
        let options = json!({
            "mergeValues": true, "showValue": "never", "rowHeight": 0.9, "alignValue": "left",
            "legend": {"displayMode": "hidden", "placement": "bottom", "showLegend": false},
            "tooltip": {"mode": "single", "sort": "none"},
        });
        let mut panel = Self::new("state-timeline", title, description, options);
        panel.field_config["defaults"] = json!({
            "custom": {"lineWidth": 0, "fillOpacity": 85},
            "color": {"mode": "thresholds"},
            "thresholds": {"mode": "absolute", "steps": [
                {"color": "transparent", "value": null}, {"color": "red", "value": 1},
            ]},
            "mappings": [{"type": "value", "options": {
                "0": {"text": " ", "index": 0}, "1": {"text": "yes", "index": 1},
            }}],
        });
        panel
    }

    /// A table of the newest values. `columns` has the fields to show, with their titles, in order.
    pub fn table(title: &'static str, description: &'static str, columns: &[(&str, &str)]) -> Self {
        let options = json!({"showHeader": true, "cellHeight": "sm", "footer": {"show": false}});
        let mut panel = Self::new("table", title, description, options);
        panel.field_config["defaults"]["custom"] = json!({"minWidth": 90});
        let renamed: serde_json::Map<String, Value> = columns
            .iter()
            .map(|(field, name)| ((*field).to_owned(), json!(name)))
            .collect();
        let order: serde_json::Map<String, Value> = columns
            .iter()
            .enumerate()
            .map(|(at, (field, _))| ((*field).to_owned(), json!(at)))
            .collect();
        let shown: Vec<&str> = columns.iter().map(|(field, _)| *field).collect();
        panel.transformations = vec![
            json!({"id": "merge", "options": {}}),
            json!({"id": "filterFieldsByName", "options": {"include": {"names": shown}}}),
            json!({"id": "organize", "options": {"indexByName": order, "renameByName": renamed}}),
        ];
        panel
    }

    /// Adds a query. Its legend names the series by labels, as in `{{webhook}}`.
    pub fn query(mut self, expr: impl Into<String>, legend: &str) -> Self {
        let is_table = self.kind == "table";
        // A range query would show a state that is over, because it has a last value within the range.
        let is_instant = is_table || self.options["textMode"] == "name";
        self.targets.push(Target {
            ref_id: char::from(b'A' + self.targets.len() as u8).to_string(),
            datasource: datasource(),
            expr: expr.into(),
            legend_format: legend.to_owned(),
            instant: is_instant,
            range: !is_instant,
            format: is_table.then_some("table"),
        });
        self
    }

    /// Adds these series of a metric, grouped by `label`, which is also the legend, and by cluster.
    pub fn each(self, label: &str, metric: &str, series: &str) -> Self {
        self.by_cluster(label, format!("max by (cluster, {label}) ({metric}{{{series}}})"))
    }

    /// Like [`Self::each`], with only the series that are 1, and without replicas whose assessment is stale.
    pub fn present(self, label: &str, metric: &str, series: &str) -> Self {
        let fresh = format!("time() - hookwatch_assessment_timestamp_seconds{{{CLUSTER}}} < {STALE}");
        self.by_cluster(
            label,
            format!(
                "max by (cluster, {label}) ({metric}{{{series}}} and on (cluster, job, instance) {fresh}) == 1"
            ),
        )
    }

    /// Adds the rates of these series of a counter, grouped by `label`, which is also the legend.
    pub fn rates(self, label: &str, metric: &str, series: &str) -> Self {
        let rates = format!("rate({metric}{{{series}}}[$__rate_interval])");
        self.by(label, format!("sum by ({label}) ({rates})"))
    }

    /// Adds a quantile of these series of a histogram, grouped by `label`, which is also the legend.
    pub fn quantile(self, quantile: f64, label: &str, metric: &str, series: &str) -> Self {
        let rates = format!("rate({metric}_bucket{{{series}}}[$__rate_interval])");
        let expr = format!("histogram_quantile({quantile}, sum by (le, {label}) ({rates}))");
        self.by(label, expr)
    }

    fn by_cluster(self, label: &str, expr: String) -> Self {
        self.query(expr, &format!("{{{{{label}}}}} {{{{cluster}}}}"))
    }

    fn by(self, label: &str, expr: String) -> Self {
        self.query(expr, &format!("{{{{{label}}}}}"))
    }

    /// Sets a property for one column.
    pub fn column(mut self, column: &str, property: &str, value: impl Into<Value>) -> Self {
        let named = json!({"id": "byName", "options": column});
        self.override_fields(named, property, value.into());
        self
    }

    /// Sets the unit of the series whose names end with `ending`.
    pub fn unit_of_ending(mut self, ending: &str, unit: &str) -> Self {
        // Without slashes the expression would have to match the whole name.
        let named = json!({"id": "byRegexp", "options": format!("/ {ending}$/")});
        self.override_fields(named, "unit", json!(unit));
        self
    }

    /// Colours values: each step's colour applies from its value on, `None` for the lowest.
    pub fn thresholds(mut self, steps: &[(Option<f64>, &str)]) -> Self {
        let steps: Vec<Value> = steps
            .iter()
            .map(|(value, colour)| json!({"value": value, "color": colour}))
            .collect();
        self.field_config["defaults"]["color"] = json!({"mode": "thresholds"});
        self.field_config["defaults"]["thresholds"] = json!({"mode": "absolute", "steps": steps});
        self
    }

    /// Sets the text for a panel without data. No series is good news, unless hookwatch's metrics are missing altogether.
    pub fn when_empty(mut self, text: &str) -> Self {
        self.field_config["defaults"]["noValue"] = json!(format!("{text}, or no data"));
        self
    }
}
