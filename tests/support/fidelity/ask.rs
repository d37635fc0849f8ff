//! One request and its answer.

use std::time::Duration;

use kube::client::Body;
use serde_json::Value;

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    pub content_type: &'static str,
    pub body: Option<Value>,
    pub user: Option<String>,
    pub groups: Vec<String>,
    /// The parts of a successful answer that go into the transcript, as JSON pointers.
    pub seeing: Vec<&'static str>,
}

impl Ask {
    fn new(method: &'static str, path: &str, content_type: &'static str, body: Option<Value>) -> Self {
        Self {
            method,
            path: path.to_owned(),
            content_type,
            body,
            user: None,
            groups: Vec::new(),
            seeing: Vec::new(),
        }
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path, "application/json", None)
    }

    pub fn post(path: &str, body: Value) -> Self {
        Self::new("POST", path, "application/json", Some(body))
    }

    pub fn put(path: &str, body: Value) -> Self {
        Self::new("PUT", path, "application/json", Some(body))
    }

    pub fn json_patch(path: &str, body: Value) -> Self {
        Self::new("PATCH", path, "application/json-patch+json", Some(body))
    }

    pub fn merge_patch(path: &str, body: Value) -> Self {
        Self::new("PATCH", path, "application/merge-patch+json", Some(body))
    }

    pub fn delete(path: &str) -> Self {
        Self::new("DELETE", path, "application/json", None)
    }

    /// Sends it as another user (impersonation).
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        self.user = Some(name.to_owned());
        self.groups = groups.iter().map(|&group| group.to_owned()).collect();
        self
    }

    pub fn dry_run(mut self) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path.push(separator);
        self.path.push_str("dryRun=All");
        self
    }

    pub fn seeing(mut self, pointers: &[&'static str]) -> Self {
        self.seeing = pointers.to_vec();
        self
    }

    pub fn to_http(&self) -> http::Request<Body> {
        let mut request = http::Request::builder()
            .method(self.method)
            .uri(&self.path)
            .header(http::header::ACCEPT, "application/json");
        if let Some(user) = &self.user {
            request = request.header("impersonate-user", user);
        }
        for group in &self.groups {
            request = request.header("impersonate-group", group);
        }
        let body = match &self.body {
            Some(body) => {
                request = request.header(http::header::CONTENT_TYPE, self.content_type);
                body.to_string().into_bytes()
            }
            None => Vec::new(),
        };
        request.body(Body::from(body)).unwrap()
    }

    /// The `verb` label of the metrics.
    pub fn verb(&self) -> &'static str {
        let plain = self.path.split('?').next().unwrap_or_default();
        match self.method {
            "PATCH" if self.content_type.starts_with("application/apply-patch") => "APPLY",
            "POST" if plain.ends_with("/exec") => "CONNECT",
            method => method,
        }
    }

    /// The `operation` label of the metrics.
    pub fn operation(&self) -> &'static str {
        match self.verb() {
            // No case applies an object that already exists.
            "POST" | "APPLY" => "CREATE",
            "PUT" | "PATCH" => "UPDATE",
            "CONNECT" => "CONNECT",
            "GET" => "",
            _ => "DELETE",
        }
    }

    /// The `resource` label of the metrics.
    pub fn resource(&self) -> &str {
        let plain = self.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = plain.split('/').filter(|part| !part.is_empty()).collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            other => other,
        };
        match rest {
            ["namespaces", _, resource, ..] if !matches!(*resource, "status" | "finalize") => resource,
            [resource, ..] => resource,
            [] => "",
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub took: Duration,
    /// The body; null if it is not JSON.
    pub body: Value,
    pub text: String,
    pub warnings: Vec<String>,
}

impl Answer {
    /// The message of a `Status`.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
