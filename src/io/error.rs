//! Error messages with their causes.

use std::error::Error;

use crate::domain::text::bounded;

/// The error, followed by its chain of sources.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

/// The messages of an error and its sources, joined by colons and cut to a bounded length. A message that the text already
/// contains is not repeated.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let next = cause.to_string();
        // Many of kube's errors print their source themselves.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
    }
    // The prefix with which kube wraps any error of a layer below its client.
    bounded(text.strip_prefix("ServiceError: ").unwrap_or(&text))
}

/// Why a reqwest request failed, cut to a bounded length. Contains only the sources: the error's own message has the URL,
/// whose query may contain a key.
pub(super) fn without_url(error: &reqwest::Error) -> String {
    match error.source() {
        Some(source) => with_causes(source),
        None => "the request could not be made".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct TestCause(&'static str, #[source] Option<Box<TestCause>>);

    #[test]
    fn each_cause_is_said_once_and_the_last_is_among_them() {
        let caused = |says, source| TestCause(says, Some(Box::new(source)));
        let error = caused(
            "ServiceError: cannot ask: refused",
            caused("refused", TestCause("no route", None)),
        );
        assert_eq!(with_causes(&error), "cannot ask: refused: no route");
        assert_eq!(causes(&error).count(), 3);
    }

    #[tokio::test]
    async fn a_key_in_a_url_is_not_said() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for url in ["http://127.0.0.1:1/?key=secret", "nowhere://x?key=secret"] {
            let error = client.get(url).send().await.expect_err("nothing listens there");
            let said = without_url(&error);
            assert!(!said.is_empty() && !said.contains("secret"), "{said}");
        }
    }
}
