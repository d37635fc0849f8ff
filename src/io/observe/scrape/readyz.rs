//! Asking an API server whether it is ready, and which release it is.

use std::time::Duration;

use serde::Deserialize;

use super::{ScrapeTarget, Scraper};
use crate::domain::observe::readiness::{Readiness, ReadyReport};
use crate::domain::text::bounded;
use crate::io::client::answer::read_body;
use crate::io::client::request::within;

/// Longest wait for an answer: the check of etcd alone may take 2 s.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most that is read of one. Every check has a line of about 40 bytes.
const MAX_BODY: usize = 64 * 1024;
/// Longest version that is believed, in bytes.
const MAX_VERSION: usize = 64;

impl Scraper {
    /// Asks one target for its checks, and for its version if that is wanted. Every failure is a state.
    pub async fn ready(&self, target: &ScrapeTarget, with_version: bool) -> ReadyReport {
        let readiness = match self.ask(target, "/readyz?verbose").await {
            Ok((status, body)) => Readiness::read(status, &body),
            Err(why) => Readiness::Unknown { why },
        };
        let version = if with_version {
            self.version(target).await
        } else {
            None
        };
        ReadyReport {
            target: target.name.clone(),
            at: (self.clock)(),
            readiness,
            version,
        }
    }

    async fn version(&self, target: &ScrapeTarget) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ServerVersion {
            git_version: String,
        }
        let (status, body) = self.ask(target, "/version").await.ok()?;
        let ServerVersion { git_version } = serde_json::from_str(&body).ok().filter(|_| status == 200)?;
        let version = bounded(&git_version);
        (version.len() <= MAX_VERSION).then_some(version)
    }

    async fn ask(&self, target: &ScrapeTarget, path: &str) -> Result<(u16, String), String> {
        let asking = async {
            let answer = target.get(path, "*/*").send().await?;
            let status = answer.status().as_u16();
            let body = read_body(answer.into_body(), MAX_BODY).await?;
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        let answer = within(TIMEOUT, asking).await;
        answer.map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::observe::ReadingLimits;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

    async fn ask(handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static) -> ReadyReport {
        let server = TestServer::start(handler).await;
        let limits = ReadingLimits {
            max_bytes: 1 << 20,
            timeout: Duration::from_secs(10),
        };
        let scraper = Scraper::new(server.connection().await, clock(), limits);
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
            let once = std::sync::Mutex::new(Some(what));
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
