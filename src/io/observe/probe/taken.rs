//! Certificate chains that a bundle has verified. A server that is probed every few seconds presents the same one each time,
//! and verifying its signatures is a tenth of a probe's cost.
//!
//! Whether a bundle verifies a chain depends on the bytes of both, the name and the time. Over time a positive result is
//! lost only when one of the certificates expires.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use super::bundle::Anchor;
use super::parity::{self, Objection, Presented, seconds};
use crate::io::lock;

/// Most chains remembered for one bundle; when it is reached, all are forgotten. The endpoints of one Service mostly present the
/// same chain.
const MOST_CHAINS: usize = 256;

type Fingerprint = [u8; SHA256_OUTPUT_LEN];

#[derive(Debug, Default)]
pub(super) struct TakenChains(Mutex<HashMap<Fingerprint, TakenChain>>);

/// Times are in seconds since the epoch.
#[derive(Debug)]
struct TakenChain {
    /// The span of time in which the chain is known to verify.
    known: RangeInclusive<i64>,
    vouched_until: Option<i64>,
}

impl TakenChains {
    /// Verifies a chain with `judge`, unless it is known to verify now; returns until when the bundle vouches for it, where that is
    /// known.
    pub(super) fn unless_known(
        &self,
        presented: &Presented<'_>,
        anchors: &[Anchor],
        judge: impl FnOnce() -> Result<Option<i64>, Objection>,
    ) -> Result<Option<i64>, Objection> {
        let (key, now) = (fingerprint(presented), seconds(presented.now));
        let chains = || lock(&self.0);
        if let Some(taken) = chains().get(&key).filter(|taken| taken.known.contains(&now)) {
            return Ok(taken.vouched_until);
        }
        let vouched_until = judge()?;
        if let Some(until) = first_end(presented, anchors, now) {
            let mut chains = chains();
            if chains.len() >= MOST_CHAINS {
                chains.clear();
            }
            let known = now..=until;
            chains.insert(key, TakenChain { known, vouched_until });
        }
        Ok(vouched_until)
    }
}

fn fingerprint(presented: &Presented<'_>) -> Fingerprint {
    let mut context = Context::new(&SHA256);
    let certificates = std::iter::once(presented.leaf).chain(presented.intermediates);
    let name = presented.name.to_str();
    for part in std::iter::once(name.as_bytes()).chain(certificates.map(|der| &**der)) {
        // With its length, so that no two lists of parts are the same text.
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    let mut fingerprint = Fingerprint::default();
    fingerprint.copy_from_slice(context.finish().as_ref());
    fingerprint
}

/// The first instant from now on at which one of the certificates ends; `None` where one cannot be read.
fn first_end(presented: &Presented<'_>, anchors: &[Anchor], now: i64) -> Option<i64> {
    let mut ends = vec![parity::validity(presented.leaf)?[1]];
    for intermediate in presented.intermediates {
        ends.push(parity::validity(intermediate)?[1]);
    }
    ends.extend(anchors.iter().map(|anchor| anchor.not_after));
    ends.into_iter().filter(|end| *end >= now).min()
}
