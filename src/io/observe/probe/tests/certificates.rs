//! Whose certificate is taken: Go's rules, not ours.

use rcgen::{BasicConstraints, DnType, ExtendedKeyUsagePurpose, IsCa, SanType, date_time_ymd};

use super::handshakes::{shake, without_text};
use super::server::{Authority, Identity, Server};
use super::{hook, prober, request, run, url_hook};
use crate::domain::cluster::hook::ProbeLevel;
use crate::domain::observe::probe::{ProbeAnswer, ProbeOutcome, TlsFault};
use crate::domain::time::Time;

const ACCEPTED: ProbeOutcome = ProbeOutcome::Answered(ProbeAnswer::Handshake);

fn refused(fault: TlsFault) -> ProbeOutcome {
    ProbeOutcome::TlsRejected {
        fault,
        why: String::new(),
    }
}

async fn check(identity: &Identity, bundle: &str, expected: ProbeOutcome) {
    let report = shake(identity, bundle).await;
    assert!(report.certificates.served_not_after.is_some());
    assert_eq!(without_text(report.outcome), expected);
}

fn authority_too(params: &mut rcgen::CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

#[tokio::test]
async fn a_self_signed_authority_served_as_leaf_is_taken_when_it_is_in_the_bundle() {
    let identity = Identity::self_signed(authority_too);
    check(&identity, &identity.pem, ACCEPTED).await;
}

#[tokio::test]
async fn a_leaf_in_the_bundle_still_has_to_fit_by_name_date_and_purpose() {
    let elsewhere = Identity::self_signed(|params| {
        authority_too(params);
        params.subject_alt_names = vec![SanType::DnsName("other.probe.svc".try_into().expect("a name"))];
    });
    check(&elsewhere, &elsewhere.pem, refused(TlsFault::WrongName)).await;
    let ended = Identity::self_signed(|params| {
        authority_too(params);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    check(&ended, &ended.pem, refused(TlsFault::Expired)).await;
    let future = Identity::self_signed(|params| params.not_before = date_time_ymd(3000, 1, 1));
    check(&future, &future.pem, refused(TlsFault::NotYetValid)).await;
    let client = Identity::self_signed(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    check(&client, &client.pem, refused(TlsFault::Other)).await;
}

#[tokio::test]
async fn a_reissued_self_signed_leaf_is_unknown() {
    let (old, new) = (
        Identity::self_signed(authority_too),
        Identity::self_signed(authority_too),
    );
    check(&new, &old.pem, refused(TlsFault::UnknownAuthority)).await;
    let (old, new) = (Identity::self_signed(|_| {}), Identity::self_signed(|_| {}));
    check(&new, &old.pem, refused(TlsFault::UnknownAuthority)).await;
}

#[tokio::test]
async fn an_authority_served_as_leaf_is_taken_when_the_bundle_signed_it() {
    let authority = Authority::new();
    check(&authority.leaf_with(authority_too), &authority.pem(), ACCEPTED).await;
    // Same name, another key.
    let impostor = Authority::new();
    check(
        &impostor.leaf_with(authority_too),
        &authority.pem(),
        refused(TlsFault::UnknownAuthority),
    )
    .await;
}

#[tokio::test]
async fn what_go_refuses_is_refused_for_its_own_reason() {
    let authority = Authority::new();
    let bundle = authority.pem();
    let expired = authority.leaf_with(|params| params.not_after = date_time_ymd(2020, 1, 1));
    check(&expired, &bundle, refused(TlsFault::Expired)).await;
    let future = authority.leaf_with(|params| params.not_before = date_time_ymd(3000, 1, 1));
    check(&future, &bundle, refused(TlsFault::NotYetValid)).await;
    let client = authority.leaf_with(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    check(&client, &bundle, refused(TlsFault::Other)).await;
    let elsewhere = authority.leaf_with(|params| {
        params.subject_alt_names = vec![SanType::DnsName(
            "hook.probe.svc.cluster.local".try_into().expect("a name"),
        )];
    });
    check(&elsewhere, &bundle, refused(TlsFault::WrongName)).await;
    let by_common_name = authority.leaf_with(|params| {
        params.subject_alt_names.clear();
        params.distinguished_name.push(DnType::CommonName, super::NAME);
    });
    check(&by_common_name, &bundle, refused(TlsFault::WrongName)).await;
}

#[tokio::test]
async fn a_recreated_authority_of_the_same_name_is_unknown() {
    let (old, new) = (Authority::new(), Authority::new());
    check(&new.leaf(), &old.pem(), refused(TlsFault::UnknownAuthority)).await;
}

#[tokio::test]
async fn a_recreated_authority_with_another_kind_of_key_is_unknown_too() {
    let curve = Authority::new();
    let rsa = Authority::with_key(&rcgen::PKCS_RSA_SHA256);
    check(&rsa.leaf(), &curve.pem(), refused(TlsFault::UnknownAuthority)).await;
    check(&curve.leaf(), &rsa.pem(), refused(TlsFault::UnknownAuthority)).await;
    check(&rsa.leaf(), &rsa.pem(), ACCEPTED).await;
}

#[tokio::test]
async fn a_chain_with_an_intermediate_authority_is_followed() {
    let root = Authority::with(|params| params.distinguished_name.push(DnType::CommonName, "root"));
    let (middle, certificate) = root.intermediate("middle");
    let mut identity = middle.leaf();
    check(&identity, &root.pem(), refused(TlsFault::UnknownAuthority)).await;
    identity.intermediates.push(certificate.clone());
    check(&identity, &root.pem(), ACCEPTED).await;
    // A CA as leaf below an intermediate one is the one shape that is left undecided.
    let mut odd = middle.leaf_with(authority_too);
    odd.intermediates.push(certificate);
    let report = shake(&odd, &root.pem()).await;
    assert!(
        matches!(report.outcome, ProbeOutcome::VerifierDiffers { .. }),
        "{:?}",
        report.outcome
    );
}

#[tokio::test]
async fn an_authority_outside_the_bundle_is_unknown() {
    let stranger = Authority::with(|params| params.distinguished_name.push(DnType::CommonName, "stranger"));
    check(
        &stranger.leaf(),
        &Authority::new().pem(),
        refused(TlsFault::UnknownAuthority),
    )
    .await;
}

#[tokio::test]
async fn a_bundle_that_ran_out_no_longer_vouches() {
    let ended = Authority::with(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let report = shake(&ended.leaf(), &ended.pem()).await;
    assert_eq!(
        report.certificates.ca_not_after,
        Some(Time::from_unix_millis(1_577_836_800_000))
    );
    assert_eq!(without_text(report.outcome), refused(TlsFault::Expired));
    check(
        &ended.leaf_with(authority_too),
        &ended.pem(),
        refused(TlsFault::Expired),
    )
    .await;
    let future = Authority::with(|params| params.not_before = date_time_ymd(3000, 1, 1));
    check(&future.leaf(), &future.pem(), refused(TlsFault::NotYetValid)).await;
    // One that still runs makes up for it.
    let current = Authority::new();
    let both = format!("{}{}", ended.pem(), current.pem());
    check(&current.leaf(), &both, ACCEPTED).await;
}

#[tokio::test]
async fn a_bundle_ends_with_the_authority_that_vouches_for_what_is_served_whatever_else_is_in_it() {
    let until = |year| Authority::with(|params| params.not_after = date_time_ymd(year, 1, 1));
    let (ended, soon, current, later) = (until(2020), until(2090), until(2100), until(2200));
    let bundle = [&ended, &soon, &current, &later].map(Authority::pem).concat();
    // The second time it is not judged again.
    let prober = prober();
    let server = Server::silent(current.leaf().config()).await;
    for _ in 0..2 {
        let asked = request(hook(&bundle), server.address, ProbeLevel::Handshake);
        let report = run(&prober, asked).await;
        assert_eq!(
            report.certificates.ca_not_after,
            Some(Time::from_unix_millis(4_102_444_800_000))
        );
    }
    // A certificate that is itself in the bundle needs nothing else there.
    let leaf = current.leaf();
    let pinned = format!("{}{}", later.pem(), leaf.pem);
    let report = shake(&leaf, &pinned).await;
    assert_eq!(
        report.certificates.ca_not_after,
        report.certificates.served_not_after
    );
}

#[tokio::test]
async fn a_certificate_that_is_no_authority_verifies_no_other() {
    let pretender = Authority::with(|params| {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages.clear();
    });
    check(
        &pretender.leaf(),
        &pretender.pem(),
        refused(TlsFault::UnknownAuthority),
    )
    .await;
}

#[tokio::test]
async fn a_wildcard_and_junk_in_the_bundle_do_no_harm() {
    let authority = Authority::new();
    let wildcard = authority.leaf_with(|params| {
        params.subject_alt_names = vec![SanType::DnsName("*.probe.svc".try_into().expect("a name"))];
    });
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check(&wildcard, &format!("{junk}# note\n{}", authority.pem()), ACCEPTED).await;
}

#[tokio::test]
async fn a_bundle_without_a_certificate_fails_before_dialling() {
    let server = Server::tcp(|_, _| async {}).await;
    for bundle in [
        "\n",
        "not PEM",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let report = run(
            &prober(),
            request(hook(bundle), server.address, ProbeLevel::Review),
        )
        .await;
        assert_eq!(without_text(report.outcome), refused(TlsFault::JunkCaBundle));
    }
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn dates_of_leaf_and_bundle_are_reported_also_when_the_handshake_fails() {
    let authority = Authority::with(|params| params.not_after = date_time_ymd(2200, 1, 1));
    let leaf = authority.leaf_with(|params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2100, 1, 1);
        params.subject_alt_names.clear();
    });
    let report = shake(&leaf, &authority.pem()).await;
    assert!(!report.outcome.is_alive() && !report.certificates.served_is_trusted);
    assert_eq!(
        [
            report.certificates.served_not_before,
            report.certificates.served_not_after
        ],
        [1_577_836_800_000, 4_102_444_800_000].map(|millis| Some(Time::from_unix_millis(millis)))
    );
    assert_eq!(
        report.certificates.ca_not_after,
        Some(Time::from_unix_millis(7_258_118_400_000))
    );
}

#[tokio::test]
async fn without_a_bundle_the_roots_of_the_system_count() {
    let identity = Authority::new().leaf();
    let report = shake(&identity, "").await;
    let has_roots = rustls_platform_verifier::Verifier::new(super::server::provider()).is_ok();
    match without_text(report.outcome) {
        ProbeOutcome::TlsRejected { fault, .. } => assert_eq!(fault, TlsFault::UnknownAuthority),
        ProbeOutcome::VerifierDiffers { why } => assert!(!has_roots, "{why}"),
        other => panic!("{other:?}"),
    }
    // A url's certificate may come from an authority that only the API server's machine knows.
    let server = Server::silent(identity.config()).await;
    let hook = url_hook("", super::NAME, server.address.port());
    let report = run(&prober(), request(hook, server.address, ProbeLevel::Handshake)).await;
    assert!(
        matches!(report.outcome, ProbeOutcome::VerifierDiffers { .. }),
        "{:?}",
        report.outcome
    );
    assert_eq!(report.certificates.ca_not_after, None);
}

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/", $name))
    };
}

fn text(pem: &[u8]) -> &str {
    std::str::from_utf8(pem).expect("text")
}

#[tokio::test]
async fn a_sha_1_signature_is_refused_as_go_does() {
    let identity = Identity::from_pem(fixture!("sha1-leaf.pem"), fixture!("sha1-leaf.key.pem"));
    check(&identity, text(fixture!("sha1-ca.pem")), refused(TlsFault::Other)).await;
}

#[tokio::test]
async fn keys_that_only_go_can_read_are_no_outage() {
    for (leaf, key, authority) in [
        (
            &fixture!("rsa1024-leaf.pem")[..],
            &fixture!("rsa1024-leaf.key.pem")[..],
            &fixture!("rsa1024-ca.pem")[..],
        ),
        (
            fixture!("p224-leaf.pem"),
            fixture!("p224-leaf.key.pem"),
            fixture!("p224-ca.pem"),
        ),
    ] {
        let report = shake(&Identity::from_pem(leaf, key), text(authority)).await;
        assert!(
            matches!(report.outcome, ProbeOutcome::VerifierDiffers { .. }),
            "{:?}",
            report.outcome
        );
        assert!(report.outcome.is_alive());
    }
}

#[tokio::test]
async fn p_521_is_taken() {
    let identity = Identity::from_pem(fixture!("p521-leaf.pem"), fixture!("p521-leaf.key.pem"));
    check(&identity, text(fixture!("p521-ca.pem")), ACCEPTED).await;
}

#[test]
fn a_short_rsa_key_in_the_handshake_is_no_outage() {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{CertificateError, Error};

    use super::super::parity::{Objection, judge_signature};
    let bad = Error::InvalidCertificate(CertificateError::BadSignature);
    let short = CertificateDer::from_pem_slice(fixture!("rsa1024-self.pem")).expect("a certificate");
    assert!(matches!(judge_signature(&short, &bad), Objection::Differs(_)));
    let usual = Authority::new().leaf().leaf;
    assert!(matches!(
        judge_signature(&usual, &bad),
        Objection::Fault(TlsFault::Other, _)
    ));
}
