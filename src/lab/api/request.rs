//! What a request asks for, read from its method and URL.

use std::time::Duration;

use http::Method;
use strum::IntoStaticStr;

use super::kinds::{ServedKind, SubresourceKind};

/// The parameters of a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part after `?`.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        });
        Self(pairs.collect())
    }

    /// The first value of a parameter; `None` when it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is set. As in a real API server everything is true but `0` and `false`, an empty value as well.
    pub(super) fn flag(&self, name: &str) -> bool {
        let first = self.all(name).next();
        first.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter that is a number of seconds; 0 counts as absent.
    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        let seconds: u64 = self.get(name)?.parse().ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

/// Undoes percent encoding; bytes that are no UTF-8 are replaced.
fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        let hex = rest.as_slice().get(..2).filter(|_| byte == b'%');
        let escaped = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(escaped) => {
                bytes.push(escaped);
                rest.nth(1);
            }
            None if byte == b'+' && plus_is_space => bytes.push(b' '),
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The verb of a request as the API server's metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub(super) enum Verb {
    Get,
    List,
    Watch,
    Post,
    Put,
    Patch,
    /// A PATCH of the type `application/apply-patch+yaml`.
    Apply,
    Delete,
    #[strum(serialize = "DELETE")]
    DeleteCollection,
    /// A request for a connection, `exec` for one.
    Connect,
}

impl Verb {
    /// The value of the `verb` label.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether it counts as `readOnly` among the requests in flight.
    pub(super) const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request for objects.
#[derive(Debug, Clone)]
pub(super) struct ResourceRequest {
    pub verb: Verb,
    pub kind: &'static ServedKind,
    /// The namespace in the URL; empty for cluster-scoped kinds and for lists over all namespaces.
    pub namespace: String,
    /// The name in the URL; empty for lists and creates.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    pub query: Query,
}

impl ResourceRequest {
    /// The value of the `scope` label (`CleanScope` of the API server's metrics).
    pub(super) fn scope(&self) -> &'static str {
        if !self.name.is_empty() || self.verb == Verb::Post {
            "resource"
        } else if self.namespace.is_empty() {
            "cluster"
        } else {
            "namespace"
        }
    }
}

/// Where a URL leads.
#[derive(Debug, Clone)]
pub(super) enum Route {
    /// `/livez`, `/readyz`, `/healthz`.
    Health,
    /// `/metrics`.
    Metrics,
    /// `/version`, `/api`, `/apis` and what is below them, `/openapi/v3`.
    Discovery,
    /// Objects.
    Resource(ResourceRequest),
    /// Objects, with a method that is not served there.
    MethodNotAllowed,
    /// A URL that nothing serves.
    Nowhere,
}

impl Route {
    /// Reads method, path and query.
    pub(super) fn parse(method: &Method, path: &str, query: &str, content_type: &str) -> Self {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| decode(part, false))
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["livez" | "readyz" | "healthz", ..] => return Self::Health,
            ["metrics"] => return Self::Metrics,
            ["version"]
            | ["api"]
            | ["apis"]
            | ["api", _]
            | ["apis", _]
            | ["apis", _, _]
            | ["openapi", ..] => {
                return Self::Discovery;
            }
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::Nowhere,
        };
        let query = Query::parse(query);
        let found = |kind: &str| ServedKind::find(group, version, kind);
        let (kind, namespace, rest) = match rest {
            ["namespaces", name, "status" | "finalize"] => {
                return Self::resource(
                    found("namespaces"),
                    method,
                    "",
                    &[name, rest[2]],
                    query,
                    content_type,
                );
            }
            ["namespaces", namespace, resource, rest @ ..] => (found(resource), *namespace, rest),
            [resource, rest @ ..] => (found(resource), "", rest),
            [] => return Self::Nowhere,
        };
        if kind.is_some_and(|kind| !kind.namespaced && !namespace.is_empty()) {
            return Self::Nowhere;
        }
        Self::resource(kind, method, namespace, rest, query, content_type)
    }

    fn resource(
        kind: Option<&'static ServedKind>,
        method: &Method,
        namespace: &str,
        rest: &[&str],
        query: Query,
        content_type: &str,
    ) -> Self {
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, subresource] => (*name, *subresource),
            _ => return Self::Nowhere,
        };
        let Some(kind) =
            kind.filter(|kind| subresource.is_empty() || kind.subresource(subresource).is_some())
        else {
            return Self::Nowhere;
        };
        // A namespaced object cannot be named without its namespace.
        if kind.namespaced && namespace.is_empty() && !(name.is_empty() && method == Method::GET) {
            return Self::Nowhere;
        }
        let way = kind.subresource(subresource).map(|subresource| subresource.way);
        let verb = verb(method, name, way, &query, content_type);
        // Reviews are not stored, so they can only be posted.
        let Some(verb) = verb.filter(|verb| kind.stored || *verb == Verb::Post) else {
            return Self::MethodNotAllowed;
        };
        Self::Resource(ResourceRequest {
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            query,
        })
    }
}

fn verb(
    method: &Method,
    name: &str,
    way: Option<SubresourceKind>,
    query: &Query,
    content_type: &str,
) -> Option<Verb> {
    // Tokens, evictions, bindings and connections are not stored, so they cannot be read or changed.
    let is_kept = matches!(way, None | Some(SubresourceKind::Part | SubresourceKind::Scale));
    Some(match (method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", true) if query.flag("watch") => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::List,
        ("GET" | "HEAD", false) if is_kept => Verb::Get,
        ("POST", true) => Verb::Post,
        ("GET" | "POST", false) if way == Some(SubresourceKind::Connect) => Verb::Connect,
        ("POST", false) if !is_kept => Verb::Post,
        ("PUT", false) if is_kept => Verb::Put,
        ("PATCH", false) if is_kept && content_type.starts_with("application/apply-patch+") => Verb::Apply,
        ("PATCH", false) if is_kept => Verb::Patch,
        ("DELETE", false) if way.is_none() => Verb::Delete,
        ("DELETE", true) => Verb::DeleteCollection,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(method: &str, path: &str, query: &str) -> Option<ResourceRequest> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        match Route::parse(&method, path, query, "application/json") {
            Route::Resource(request) => Some(request),
            _ => None,
        }
    }

    #[test]
    fn verb_scope_and_object_are_read_from_the_url() {
        let configmaps = "/api/v1/namespaces/a/configmaps";
        let leases = "/apis/coordination.k8s.io/v1/leases";
        for (method, path, query, verb, scope, namespace, name) in [
            ("GET", configmaps, "", Verb::List, "namespace", "a", ""),
            ("POST", configmaps, "dryRun=All", Verb::Post, "resource", "a", ""),
            ("GET", leases, "watch=1", Verb::Watch, "cluster", "", ""),
            (
                "PATCH",
                "/api/v1/namespaces/a/configmaps/x",
                "",
                Verb::Patch,
                "resource",
                "a",
                "x",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a",
                "",
                Verb::Delete,
                "resource",
                "",
                "a",
            ),
            ("GET", "/api/v1/namespaces", "", Verb::List, "cluster", "", ""),
        ] {
            let request = resource(method, path, query).expect(path);
            assert_eq!(request.verb, verb, "{method} {path}");
            assert_eq!(request.scope(), scope, "{method} {path}");
            assert_eq!(
                (request.namespace.as_str(), request.name.as_str()),
                (namespace, name)
            );
        }
    }

    #[test]
    fn below_an_object_only_that_is_done_which_the_api_server_does_there() {
        let verb = |method: &str, below: &str| {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            match Route::parse(&method, below, "", "application/json") {
                Route::Resource(request) => Some(request.verb),
                Route::MethodNotAllowed => None,
                other => panic!("{method} {below}: {other:?}"),
            }
        };
        let pod = |below: &str| format!("/api/v1/namespaces/a/pods/x/{below}");
        let account = "/api/v1/namespaces/a/serviceaccounts/x/token";
        let scale = "/apis/apps/v1/namespaces/a/deployments/x/scale";
        let review = "/apis/authentication.k8s.io/v1/tokenreviews";
        for (method, below, wanted) in [
            ("GET", &*pod("status"), Some(Verb::Get)),
            ("DELETE", &*pod("status"), None),
            ("GET", &*pod("exec"), Some(Verb::Connect)),
            ("POST", &*pod("exec"), Some(Verb::Connect)),
            ("PUT", &*pod("exec"), None),
            ("GET", &*pod("binding"), None),
            ("PUT", &*pod("binding"), None),
            ("PATCH", &*pod("eviction"), None),
            ("POST", &*pod("eviction"), Some(Verb::Post)),
            ("GET", account, None),
            ("POST", account, Some(Verb::Post)),
            ("GET", scale, Some(Verb::Get)),
            ("PATCH", scale, Some(Verb::Patch)),
            ("POST", scale, None),
            ("DELETE", scale, None),
            ("POST", review, Some(Verb::Post)),
            ("GET", review, None),
        ] {
            assert_eq!(verb(method, below), wanted, "{method} {below}");
        }
    }

    #[test]
    fn a_flag_is_whatever_is_neither_zero_nor_false() {
        for (query, is_set) in [
            ("watch=true", true),
            ("watch=1", true),
            ("watch=yes", true),
            ("watch=", true),
            ("watch", true),
            ("watch=0", false),
            ("watch=False", false),
            ("watch=false&watch=true", false),
            ("limit=1", false),
        ] {
            assert_eq!(Query::parse(query).flag("watch"), is_set, "{query}");
        }
    }

    #[test]
    fn a_url_that_fits_no_kind_leads_nowhere() {
        for (method, path) in [
            ("GET", "/api/v1/namespaces/a/widgets"),
            ("GET", "/apis/batch/v1/jobs"),
            ("GET", "/api/v1/namespaces/a/nodes"),
            ("POST", "/api/v1/configmaps"),
            ("GET", "/api/v1/configmaps/x"),
            ("GET", "/api/v1/namespaces/a/configmaps/x/status"),
            ("GET", "/what"),
        ] {
            assert!(resource(method, path, "").is_none(), "{method} {path}");
        }
        assert_eq!(
            resource("PUT", "/api/v1/namespaces/a/status", "")
                .expect("served")
                .subresource,
            "status"
        );
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=app%20in%20(a,b)&watch=true&limit=500&x=a+b&bad=%zz&empty=");
        assert_eq!(query.get("labelSelector"), Some("app in (a,b)"));
        assert_eq!(query.get("x"), Some("a b"));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert_eq!(query.get("empty"), None);
        assert!(query.flag("watch"));
        assert_eq!(
            Query::parse("timeoutSeconds=7").seconds("timeoutSeconds"),
            Some(Duration::from_secs(7))
        );
    }
}
