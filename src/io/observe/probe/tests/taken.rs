//! A chain that is shown again is not verified again, and is judged as if it were.

use std::time::Duration;

use proptest::prelude::*;
use rcgen::date_time_ymd;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::NAME;
use super::server::{Authority, Identity, provider};
use crate::io::observe::probe::bundle::Bundle;
use crate::io::observe::probe::parity::{self, Objection, Presented};

/// A certificate for [`NAME`] below an intermediate authority; the first to end is the leaf, the last the root.
fn chain() -> (Identity, Bundle) {
    let ending = |year| {
        move |params: &mut rcgen::CertificateParams| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(year, 1, 1);
        }
    };
    let root = Authority::with(ending(2040));
    let (between, below) = root.intermediate("between");
    let mut identity = between.leaf_with(ending(2030));
    identity.intermediates = vec![below];
    let bundle = Bundle::read(root.pem().as_bytes());
    (identity, bundle)
}

/// What is said of it, and whether it was verified for that.
fn ask(
    bundle: &Bundle,
    (leaf, intermediates): (&CertificateDer<'_>, &[CertificateDer<'_>]),
    name: &str,
    year: u64,
) -> (Result<(), Objection>, bool) {
    let name = ServerName::try_from(name).unwrap();
    let presented = Presented {
        leaf,
        intermediates,
        name: &name,
        now: UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 86_400)),
    };
    let mut verified = false;
    let answer = bundle.taken.unless_known(&presented, &bundle.anchors, || {
        verified = true;
        parity::judge(&presented, &bundle.anchors, &provider()).map(|()| None)
    });
    (answer.map(drop), verified)
}

#[test]
fn a_chain_is_verified_once_for_its_name_until_one_of_its_certificates_ends() {
    let (identity, bundle) = chain();
    let whole = (&identity.leaf, identity.intermediates.as_slice());
    assert_eq!(ask(&bundle, whole, NAME, 2025), (Ok(()), true));
    assert_eq!(ask(&bundle, whole, NAME, 2029), (Ok(()), false));
    let (other, verified) = ask(&bundle, whole, "other.probe.svc", 2025);
    assert!(other.is_err() && verified);
    let (without, verified) = ask(&bundle, (&identity.leaf, &[]), NAME, 2025);
    assert!(without.is_err() && verified);
    let (ended, verified) = ask(&bundle, whole, NAME, 2031);
    assert!(ended.is_err() && verified);
    // A clock that was wrong: what was true later need not have been true then.
    assert_eq!(ask(&bundle, whole, NAME, 2024), (Ok(()), true));
}

#[test]
fn a_bundle_that_ends_vouches_no_longer() {
    let (identity, mut bundle) = chain();
    let whole = (&identity.leaf, identity.intermediates.as_slice());
    let end = (2028 - 1970) * 31_557_600;
    bundle.anchors[0].not_after = end;
    assert_eq!(ask(&bundle, whole, NAME, 2025), (Ok(()), true));
    let (ended, verified) = ask(&bundle, whole, NAME, 2029);
    assert!(ended.is_err() && verified);
}

#[test]
fn what_was_refused_is_looked_at_again() {
    let (identity, bundle) = chain();
    for _ in 0..2 {
        let (refused, verified) = ask(&bundle, (&identity.leaf, &[]), NAME, 2025);
        assert!(refused.is_err() && verified);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever was asked before.
    #[test]
    fn what_is_known_is_what_verifying_says(
        asked in prop::collection::vec((any::<bool>(), any::<bool>(), 2019_u64..2042), 1..24),
    ) {
        let (identity, bundle) = chain();
        for (whole, named, year) in asked {
            let intermediates = if whole { identity.intermediates.as_slice() } else { &[] };
            let name = if named { NAME } else { "other.probe.svc" };
            let shown = (&identity.leaf, intermediates);
            let fresh = Bundle { anchors: bundle.anchors.clone(), ..Bundle::default() };
            prop_assert_eq!(ask(&bundle, shown, name, year).0, ask(&fresh, shown, name, year).0);
        }
    }
}
