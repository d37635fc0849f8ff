//! Reads the API servers' metrics that a Prometheus, or what answers like one, has stored: `GET /api/v1/query`.
//!
//! Each reading is two queries: for the server's clock, and for the samples as they were scraped. Readings are bounded in size,
//! time and number; one beyond a bound is a failure that says so, never a partial result.

use std::collections::BTreeMap;

use reqwest::{Method, Response};
use thiserror::Error;

use super::ReadingLimits;
use crate::domain::observe::snapshot::{Complaints, Scrape, ScrapeFailure, ScrapeFailureReason as Reason};
use crate::domain::observe::stored::answer::{
    CLOCK, Clocks, MAX_SERIES, UnusableAnswer, clock, query, scrapes,
};
use crate::domain::observe::stored::{PrometheusReading, answer};
use crate::domain::text::bounded;
use crate::domain::time::Time;
use crate::io::Clock;
use crate::io::endpoint::{EndpointClient, EndpointError, EndpointTarget, refused, unreachable};

/// Which series are those of an API server where nothing else is configured: the jobs that the common charts, operators and
/// managed offerings make.
pub const SELECTOR: &str = "job=~\"apiserver|kube-apiserver|kubernetes-apiservers?|controlplane-apiserver|\
                            integrations/kubernetes/kube-apiserver\"";
/// Seconds that the first reading goes back: three scrapes at a usual interval of a minute.
const FIRST: i64 = 190;
/// Seconds that a reading goes back at most.
const MOST: i64 = 300;
/// Seconds by which a reading overlaps the newest known scrape, so that there is one to compare with.
const OVERLAP: i64 = 15;
/// Milliseconds by which two measurements of the distance between both clocks may differ and count as the same: an answer takes
/// time.
const JITTER: i64 = 2_000;
/// Most bytes of the answer with the clock.
const MAX_CLOCK: u64 = 64 * 1024;
/// Longest selector, in bytes. It is part of the request's address, and servers take 8 KiB for all headers.
const MAX_SELECTOR: usize = 2_048;

/// The matchers of a selector, without braces, spaces around them and a trailing comma. No matchers at all are accepted.
///
/// # Errors
/// When it is longer than 2 KiB, has a control character, selects by `__name__`, or has no `=`.
pub fn selector(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    let inside = text
        .strip_prefix('{')
        .and_then(|inside| inside.strip_suffix('}'))
        .unwrap_or(text);
    let inside = inside.trim().trim_end_matches(',').trim_end();
    if inside.len() > MAX_SELECTOR {
        Err("is longer than 2 KiB")
    } else if inside.chars().any(char::is_control) {
        Err("has a control character in it")
    } else if inside.contains("__name__") {
        Err("must not select by __name__: hookwatch adds the names of the metrics")
    } else if !inside.is_empty() && !inside.contains('=') {
        Err("must be matchers, for example job=\"apiserver\"")
    } else {
        Ok(inside.to_owned())
    }
}

/// The client for one Prometheus.
pub struct Prometheus {
    endpoint: EndpointClient,
    selector: String,
    limits: ReadingLimits,
    clock: Clock,
    /// Milliseconds by which its clock is ahead of ours, as last measured.
    ahead: Option<i64>,
    /// Up to when the scrapes of every API server are known, in milliseconds by its clock; `None` before the first reading.
    known: Option<i64>,
}

#[derive(Debug, Error)]
enum QueryFailure {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("its answer broke off: {0}")]
    Broken(String),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it {0}")]
    Unfit(#[from] UnusableAnswer),
}

impl QueryFailure {
    fn reason(&self) -> Reason {
        use EndpointError::{Status, TimedOut, Unreachable, Unusable};
        match self {
            Self::Endpoint(Unusable { .. }) => Reason::Forbidden,
            Self::Endpoint(Unreachable(_)) => Reason::Unreachable,
            Self::Endpoint(TimedOut(_)) => Reason::TimedOut,
            Self::Endpoint(Status { status, .. }) => Reason::of_status(*status),
            Self::Unfit(_) => Reason::NotMetrics,
            Self::Broken(_) | Self::TooLarge(_) => Reason::Truncated,
        }
    }

    fn advice(&self) -> &'static str {
        use EndpointError::{Status, TimedOut, Unreachable, Unusable};
        match self {
            Self::Endpoint(Unusable { .. }) => "fix the file or name another one",
            Self::Endpoint(Unreachable(_)) => "check prometheus.url and prometheus.caFile",
            Self::Endpoint(TimedOut(_)) => "raise prometheus.timeout, or look at its load",
            Self::Endpoint(Status { status, .. }) => match status {
                401 | 403 => "set prometheus.tokenFile to a token that may query",
                429 => "hookwatch asks less often for now; raise prometheus.interval",
                300..=399 => "set prometheus.url to where it leads",
                404 | 405 => "prometheus.url must lead to the query API, and end before /api/v1/query",
                400 | 422 => "check prometheus.selector",
                _ => "look at its log",
            },
            Self::Unfit(UnusableAnswer::Refused(_)) => "check prometheus.selector",
            Self::Broken(_) => "look at its log",
            Self::TooLarge(_) => {
                "narrow prometheus.selector to one cluster, or raise prometheus.maxMebibytes"
            }
            Self::Unfit(UnusableAnswer::TooMuch(_)) => {
                "narrow prometheus.selector to the API servers of one cluster"
            }
            Self::Unfit(UnusableAnswer::NoApiServer) => {
                "set prometheus.selector to the labels of the job that scrapes them"
            }
            Self::Unfit(UnusableAnswer::Ambiguous(_)) => {
                "add a matcher to prometheus.selector that tells them apart, such as the cluster or one replica of the \
                 Prometheus"
            }
            Self::Unfit(UnusableAnswer::Future(_)) => {
                "set its clock, or that of the machine that writes to it"
            }
            Self::Unfit(UnusableAnswer::NotAnswer(_)) => "check that prometheus.url is a Prometheus",
        }
    }
}

impl Prometheus {
    /// Nothing is read and nothing dialled yet. `selector` has passed [`selector`].
    pub fn new(target: EndpointTarget, selector: String, limits: ReadingLimits, clock: Clock) -> Self {
        Self {
            endpoint: EndpointClient::new(target),
            selector,
            limits,
            clock,
            ahead: None,
            known: None,
        }
    }

    /// Its address as scheme, host, port and prefix, without credentials.
    pub fn source(&self) -> String {
        let target = &self.endpoint.target;
        format!("{}://{}", target.url.scheme(), target.name())
    }

    /// Reads the scrapes since the last reading, 300 s at most. The first reading goes back 190 s.
    ///
    /// # Errors
    /// Every failure, with its reason and what to do; its target is [`source`](Self::source).
    pub async fn read(&mut self) -> Result<PrometheusReading, ScrapeFailure> {
        let (started, timeout) = ((self.clock)(), self.limits.timeout);
        let read = tokio::time::timeout(timeout, self.ask()).await;
        let read = read.unwrap_or(Err(EndpointError::TimedOut(timeout).into()));
        let (at, source) = ((self.clock)(), self.source());
        match read {
            Ok((bytes, (scrapes, complaints))) => Ok(PrometheusReading {
                at,
                took: at.since(started),
                source,
                bytes,
                scrapes,
                complaints,
            }),
            Err(failed) => Err(ScrapeFailure {
                at,
                reason: failed.reason(),
                why: bounded(&format!("{source}: {failed}; {}", failed.advice())),
                target: source,
            }),
        }
    }

    /// The size of the answer with the scrapes, in bytes, and what it holds.
    async fn ask(&mut self) -> Result<(u64, (Vec<Scrape>, Complaints)), QueryFailure> {
        let clocks = self.clocks().await?;
        let back = self.known.map_or(FIRST, |known| {
            (clocks.theirs.saturating_sub(known) / 1_000).saturating_add(OVERLAP)
        });
        let query = query(&self.selector, back.clamp(OVERLAP, MOST).unsigned_abs());
        let body = self.get(&query, self.limits.max_bytes).await?;
        let bytes = body.len() as u64;
        // Megabytes of JSON are not read on a thread that others wait for.
        let read = tokio::task::spawn_blocking(move || scrapes(&body, clocks)).await;
        let read = read.map_err(|error| QueryFailure::Broken(error.to_string()))??;
        self.known = known(&read.0, clocks);
        Ok((bytes, read))
    }

    /// Both clocks at one instant. The distance between them stays the one measured earlier while a new measurement is within
    /// [`JITTER`] of it: a scrape that is read twice then has one time.
    async fn clocks(&mut self) -> Result<Clocks, QueryFailure> {
        let before = (self.clock)();
        let body = self.get(CLOCK, MAX_CLOCK).await?;
        let took = (self.clock)().since(before);
        let theirs = clock(&body)?;
        let ours = before + took / 2;
        let millis = i64::try_from(ours.unix_millis()).unwrap_or(i64::MAX);
        let measured = theirs.saturating_sub(millis);
        let ahead = self
            .ahead
            .filter(|ahead| ahead.abs_diff(measured) <= JITTER.unsigned_abs());
        let ahead = *self.ahead.insert(ahead.unwrap_or(measured));
        let theirs = millis.saturating_add(ahead);
        Ok(Clocks { theirs, ours })
    }

    async fn get(&mut self, query: &str, max_bytes: u64) -> Result<Vec<u8>, QueryFailure> {
        let mut url = self.endpoint.target.below("/api/v1/query");
        let limit = (MAX_SERIES + 1).to_string();
        url.query_pairs_mut()
            .append_pair("query", query)
            .append_pair("timeout", &format!("{}s", self.limits.timeout.as_secs().max(1)))
            // One more than is accepted, which shows that the server cut the result off.
            .append_pair("limit", &limit);
        let request = self.endpoint.request(Method::GET, url).await?;
        let answer = request.send().await.map_err(|error| unreachable(&error))?;
        if answer.status().as_u16() == 200 {
            whole(answer, max_bytes).await
        } else {
            let words = |said: String| answer::refusal(said.as_bytes()).unwrap_or(said);
            Err(refused(answer, words).await.into())
        }
    }
}

/// Up to when the scrapes of every API server are known, in milliseconds by the Prometheus's clock: the newest scrape of the API
/// server whose newest is oldest. While an API server has only one scrape, the next reading goes back [`MOST`] seconds.
fn known(scrapes: &[Scrape], clocks: Clocks) -> Option<i64> {
    let mut newest: BTreeMap<&str, (Time, usize)> = BTreeMap::new();
    for scrape in scrapes {
        let (at, count) = newest.entry(&scrape.target).or_default();
        (*at, *count) = (scrape.at.max(*at), *count + 1);
    }
    let single = newest.values().any(|(_, count)| *count < 2);
    let oldest = newest.into_values().map(|(at, _)| at).min()?;
    let behind = i64::try_from(clocks.ours.since(oldest).as_millis()).unwrap_or(i64::MAX);
    let behind = if single { MOST * 1_000 } else { behind };
    Some(clocks.theirs.saturating_sub(behind))
}

async fn whole(mut answer: Response, max_bytes: u64) -> Result<Vec<u8>, QueryFailure> {
    let announced = answer.content_length().unwrap_or(0);
    if announced > max_bytes {
        return Err(QueryFailure::TooLarge(max_bytes));
    }
    let mut body = Vec::new();
    loop {
        let chunk = answer.chunk().await;
        let chunk = chunk.map_err(|error| QueryFailure::Broken(unreachable(&error).to_string()))?;
        let Some(chunk) = chunk else { return Ok(body) };
        if (body.len() + chunk.len()) as u64 > max_bytes {
            return Err(QueryFailure::TooLarge(max_bytes));
        }
        body.extend_from_slice(&chunk);
    }
}

#[cfg(test)]
mod tests;
