//! What a probe sends and to which server, settled before the first packet.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use rustls::pki_types::ServerName;

use super::ProbeRequest;
use super::exchange::{LONGEST_ANSWER, ProbeReply};
use super::review::{self, Review};
use crate::domain::cluster::hook::{Hook, HookKind, HookTarget, ProbeLevel, ProbeTarget};
use crate::domain::observe::probe::{ConnectionKind, ProbeAnswer};
use crate::domain::observe::schedule::Ask;
use crate::domain::text::bounded_to;
use crate::domain::time::Time;
use crate::io::client::is_loopback;

/// The `User-Agent`, by which a webhook's log shows who asks.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("hookwatch/", env!("CARGO_PKG_VERSION")));

/// The header of W3C Trace Context. The API server sends it as well when its own tracing is on.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

#[derive(Debug)]
pub(super) struct ProbePlan {
    /// For SNI and the certificate.
    pub(super) server_name: ServerName<'static>,
    /// Whether the hook is backed by a Service.
    pub(super) service: bool,
    /// What is dialled, and how.
    pub(super) target: ProbeTarget,
    /// What is asked.
    pub(super) message: Message,
}

/// The request on an established connection.
#[derive(Debug)]
pub(super) enum Message {
    Nothing,
    /// A request that only checks whether a server answers.
    Greeting(Request<Full<Bytes>>),
    /// An API's discovery document, by which the aggregator tells whether it is available.
    Discovery(Request<Full<Bytes>>),
    Review(Request<Full<Bytes>>, Review),
}

impl ProbePlan {
    /// Settles a probe.
    ///
    /// # Errors
    /// Why there is nothing to probe.
    pub(super) fn new(
        request: &ProbeRequest,
        beside_api_server: bool,
        uids: &Uids,
        now: Time,
    ) -> Result<Self, String> {
        let hook = &request.hook;
        let (name, service) = match &hook.target {
            HookTarget::Invalid(why) => return Err(format!("the webhook has no usable address: {why}")),
            HookTarget::Service(target) if target.is_api_server() => {
                return Err(
                    "default/kubernetes is the API server itself, which it calls with credentials".into(),
                );
            }
            HookTarget::Service(target) => (target.server_name(), true),
            HookTarget::Url(target) if !beside_api_server && is_loopback(&target.host) => {
                return Err(format!(
                    "its url names {}, the API server's own host, and hookwatch reaches the API server by another address",
                    target.host
                ));
            }
            HookTarget::Url(target) => (target.host.clone(), false),
        };
        let terms = hook
            .connection_terms()
            .ok_or("the webhook has no usable address")?;
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} cannot be a name in a certificate"))?;
        let mut message = message(request, &terms.authority, uids, now)?;
        if let (Some(traceparent), Some(headers)) = (&request.traceparent, message.headers()) {
            headers.insert(TRACEPARENT, traceparent.clone());
        }
        Ok(Self {
            server_name,
            service,
            target: ProbeTarget {
                backend: request.backend.clone(),
                terms: terms.into(),
            },
            message,
        })
    }
}

/// What a probe of the hook asks. Equal values mean that one request serves all these hooks, so the uid and the time of a review,
/// which differ each time, are left out. `namespace` is hookwatch's own.
pub fn ask_of(hook: &Hook, level: ProbeLevel, namespace: &str) -> Ask {
    let path = hook.url_path();
    let request = match level {
        ProbeLevel::Off | ProbeLevel::Handshake => String::new(),
        // The answer is judged by other rules than that to a plain GET of the same path.
        ProbeLevel::Http if hook.id.kind == HookKind::Aggregated => format!("GET {path} as a discovery"),
        ProbeLevel::Http => format!("GET {path}"),
        ProbeLevel::Review => match review::build(hook, namespace, String::new(), Time::default()) {
            Ok(review) => {
                let (seconds, mutating) = (whole_seconds(hook.timeout), review.mutating);
                let body = String::from_utf8_lossy(&review.body);
                format!("POST {path} within {seconds} s, mutating: {mutating}, {body}")
            }
            Err(why) => format!("POST {path}: {why}"),
        },
    };
    let request = request.into();
    Ask { level, request }
}

fn message(request: &ProbeRequest, authority: &str, uids: &Uids, now: Time) -> Result<Message, String> {
    let hook = &request.hook;
    match request.level {
        ProbeLevel::Off => Err("probing is off for this webhook".into()),
        ProbeLevel::Handshake if request.connection == ConnectionKind::Kept => {
            Err("a kept connection tells something only when something is sent over it".into())
        }
        ProbeLevel::Handshake => Ok(Message::Nothing),
        ProbeLevel::Http => {
            let greeting = http(Method::GET, authority, hook.url_path(), Bytes::new())?;
            Ok(match hook.id.kind {
                HookKind::Aggregated => Message::Discovery(greeting),
                _ => Message::Greeting(greeting),
            })
        }
        ProbeLevel::Review if !hook.id.kind.is_admission() => {
            Err("only an admission webhook can be shown a review".into())
        }
        ProbeLevel::Review => {
            let review = review::build(hook, &request.namespace, uids.next(now), now)?;
            let path = format!("{}?timeout={}s", hook.url_path(), whole_seconds(hook.timeout));
            let request = http(Method::POST, authority, &path, Bytes::from(review.body.clone()))?;
            Ok(Message::Review(request, review))
        }
    }
}

impl Message {
    fn headers(&mut self) -> Option<&mut HeaderMap> {
        match self {
            Self::Nothing => None,
            Self::Greeting(request) | Self::Discovery(request) | Self::Review(request, _) => {
                Some(request.headers_mut())
            }
        }
    }

    /// A copy of the request, since a probe that redials sends it twice. `None` for [`Self::Nothing`].
    pub(super) fn request(&self) -> Option<Request<Full<Bytes>>> {
        match self {
            Self::Nothing => None,
            Self::Greeting(request) | Self::Discovery(request) | Self::Review(request, _) => {
                Some(request.clone())
            }
        }
    }

    /// What an answer to this message means.
    pub(super) fn judge(&self, reply: ProbeReply) -> ProbeAnswer {
        let status = reply.status.as_u16();
        match (self, reply.body) {
            (Self::Nothing | Self::Greeting(_), _) => ProbeAnswer::Http { status },
            (Self::Discovery(_), _) => ProbeAnswer::Discovery { status },
            // What client-go treats as success.
            (Self::Review(..), _) if !(200..=206).contains(&status) => ProbeAnswer::ReviewRefused { status },
            (Self::Review(..), None) => ProbeAnswer::NotAnAdmissionReview {
                why: format!("longer than {LONGEST_ANSWER} bytes"),
            },
            (Self::Review(_, review), Some(body)) => match review::answer::check(review, &body) {
                Ok(allowed) => ProbeAnswer::Review { allowed },
                Err(why) => ProbeAnswer::NotAnAdmissionReview { why },
            },
        }
    }
}

/// Most bytes of an unusable path or host in an error message. The path alone may be as long as an object.
const MAX_SHOWN: usize = 200;

fn http(method: Method, authority: &str, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let useless = |what: &str, text: &str, error: &dyn std::fmt::Display| {
        let text = bounded_to(MAX_SHOWN, text);
        format!("the {what} {text:?} is of no use: {error}")
    };
    let target = PathAndQuery::try_from(path).map_err(|error| useless("path", path, &error))?;
    let host = HeaderValue::try_from(authority).map_err(|error| useless("host", authority, &error))?;
    let has_body = !body.is_empty();
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target);
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, AGENT);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(request)
}

/// Go writes the timeout in seconds; a fraction, which no API object can have, is rounded up.
fn whole_seconds(timeout: Duration) -> u64 {
    timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)
}

/// Makes the uids of reviews: unique in this process and, by the keys of its hashers, beyond it.
#[derive(Debug, Default)]
pub(super) struct Uids {
    made: AtomicU64,
    keys: [RandomState; 2],
}

impl Uids {
    /// A new one, in the form of a version 4 UUID.
    pub(super) fn next(&self, now: Time) -> String {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let seed = (now.unix_millis(), std::process::id(), made);
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(seed));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            ((low >> 48) & 0x3fff) | 0x8000,
            low & 0xffff_ffff_ffff,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::domain::cluster::hook::{HookId, HookRule, Scope};

    #[test]
    fn uids_look_like_uuids_and_never_repeat() {
        let uids = Uids::default();
        let now = Time::from_unix_millis(1_795_219_862_156);
        let made: HashSet<String> = (0..1_000).map(|_| uids.next(now)).collect();
        assert_eq!(made.len(), 1_000);
        for uid in made {
            let groups: Vec<usize> = uid.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{uid}");
            assert_eq!(&uid[14..15], "4", "{uid}");
            assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        }
    }

    #[test]
    fn reviews_that_differ_in_nothing_that_a_webhook_sees_are_one_request() {
        let hook = |kind, name: &str| {
            let id = HookId::new(kind, "policies", name);
            Hook {
                rules: vec![HookRule {
                    operations: vec!["CREATE".to_owned()],
                    api_groups: vec![String::new()],
                    api_versions: vec!["v1".to_owned()],
                    resources: vec!["configmaps".to_owned()],
                    scope: Scope::All,
                }],
                review_versions: vec!["v1".to_owned()],
                ..Hook::new(id, HookTarget::Invalid(String::new()))
            }
        };
        let asked = |hook: &Hook| ask_of(hook, ProbeLevel::Review, "hookwatch");
        let one = hook(HookKind::Validating, "one.example.com");
        assert_eq!(
            asked(&one),
            asked(&hook(HookKind::Validating, "other.example.com"))
        );
        assert_ne!(asked(&one), asked(&hook(HookKind::Mutating, "other.example.com")));
        let longer = Hook {
            timeout: one.timeout + Duration::from_secs(1),
            ..one.clone()
        };
        assert_ne!(asked(&one), asked(&longer), "the URL has the timeout");
    }

    #[test]
    fn a_timeout_is_written_in_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_secs(10)), 10);
        assert_eq!(whole_seconds(Duration::from_millis(1_200)), 2);
    }

    #[test]
    fn a_path_that_is_too_long_to_be_asked_is_said_in_few_words() {
        let path = "/a".repeat(100_000);
        let why = http(Method::GET, "h", &path, Bytes::new()).expect_err("too long");
        assert!(why.len() < 1_000, "{} bytes", why.len());
    }
}
