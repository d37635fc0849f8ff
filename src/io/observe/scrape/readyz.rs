//! Asking an API server whether it is ready, and which release it is.

use std::time::Duration;

use serde::Deserialize;

use super::{ScrapeTarget, Scraper};
use crate::domain::observe::readiness::{Readiness, ReadyReport};
use crate::domain::text::bounded;
use crate::io::client::answer::read_body;
use crate::io::client::request::{JSON, RequestError, within};

/// Longest wait for an answer: the check of etcd alone may take 2 s.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes. Every check has a line of about 40.
const MAX_BODY: usize = 64 * 1024;
/// The longest `gitVersion` that is taken for one, in bytes.
const MAX_VERSION: usize = 64;

impl Scraper {
    /// Asks one target for its checks, and then for its version if that is wanted; each for at most 5 s. A failure is in the
    /// report.
    pub async fn ready(&self, target: &ScrapeTarget, with_version: bool) -> ReadyReport {
        let readiness = match checks(target).await {
            Ok((status, body)) => Readiness::read(status, &body),
            Err(why) => Readiness::Unknown { why: why.to_string() },
        };
        let at = (self.clock)();
        let version = if with_version { version(target).await } else { None };
        ReadyReport {
            target: target.name.clone(),
            at,
            readiness,
            version,
        }
    }
}

/// The status and the body: checks that fail are listed in a 500.
async fn checks(target: &ScrapeTarget) -> Result<(u16, String), RequestError> {
    within(TIMEOUT, async {
        let answer = target.get("/readyz?verbose", "*/*").send().await?;
        let status = answer.status().as_u16();
        let body = read_body(answer.into_body(), MAX_BODY).await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    })
    .await
}

async fn version(target: &ScrapeTarget) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ServerVersion {
        git_version: String,
    }
    let request = target.get("/version", JSON);
    let ServerVersion { git_version } = request.json(TIMEOUT, MAX_BODY).await.ok()?;
    let version = bounded(&git_version);
    (version.len() <= MAX_VERSION).then_some(version)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::domain::time::Time;
    use crate::io::Clock;
    use crate::io::observe::ReadingLimits;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

    async fn ask(handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static) -> ReadyReport {
        ask_by(clock(), handler).await
    }

    async fn ask_by(
        clock: Clock,
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> ReadyReport {
        let server = TestServer::start(handler).await;
        let limits = ReadingLimits {
            max_bytes: 1 << 20,
            timeout: Duration::from_secs(10),
        };
        let scraper = Scraper::new(server.connection().await, clock, limits);
        let targets = scraper.targets(false);
        let report = soon(scraper.ready(&targets[0], true)).await;
        assert_eq!(server.asked()[0].target, "/readyz?verbose");
        assert_eq!(server.asked()[0].headers["connection"], "close");
        report
    }

    #[tokio::test]
    async fn the_checks_are_read_from_a_500_and_the_version_beside_them() {
        let report = ask(|asked| match asked.target.as_str() {
            "/version" => TestReply::json(200, r#"{"major":"1","gitVersion":"v1.36.2"}"#),
            _ => TestReply::Whole(
                500,
                "text/plain",
                "[+]ping ok\n[-]etcd failed: reason withheld\n".to_owned(),
            ),
        })
        .await;
        let failing = vec!["etcd".to_owned()];
        assert_eq!(report.readiness, Readiness::NotReady { failing });
        assert_eq!(report.version.as_deref(), Some("v1.36.2"));
    }

    #[tokio::test]
    async fn the_instant_is_that_of_the_checks_not_of_the_version() {
        let (checked, later) = (Time::from_unix_millis(1_000), Time::from_unix_millis(6_000));
        let now = Arc::new(Mutex::new(checked));
        let clock: Clock = {
            let now = Arc::clone(&now);
            Arc::new(move || *now.lock().expect("no poison"))
        };
        let report = ask_by(clock, move |asked| {
            if asked.target == "/version" {
                *now.lock().expect("no poison") = later;
                return TestReply::json(200, r#"{"gitVersion":"v1.36.2"}"#);
            }
            TestReply::Whole(200, "text/plain", "[+]ping ok\n".to_owned())
        })
        .await;
        assert_eq!(report.version.as_deref(), Some("v1.36.2"));
        assert_eq!(report.at, checked);
    }

    #[tokio::test]
    async fn whatever_else_answers_is_unknown_and_has_no_version() {
        for (what, says) in [
            (
                TestReply::Whole(200, "text/html", "<html>log in</html>".to_owned()),
                "without any check",
            ),
            (TestReply::status(403, "forbidden"), "grant get"),
            (
                TestReply::Endless("text/plain", vec![b'x'; 4096]),
                "larger than the 65536 bytes allowed",
            ),
            (TestReply::Raw(b"nonsense\r\n\r\n".to_vec()), "no answer"),
        ] {
            let once = Mutex::new(Some(what));
            let report = ask(move |_| {
                let reply = once.lock().expect("no poison").take();
                reply.unwrap_or(TestReply::Whole(200, "text/html", "<html>".to_owned()))
            })
            .await;
            let Readiness::Unknown { why } = report.readiness else {
                panic!("believed: {report:?}");
            };
            assert!(why.contains(says), "{why}");
            assert_eq!(report.version, None);
        }
    }
}
