//! A `caBundle`, read as the API server reads it.
//!
//! Go's `AppendCertsFromPEM` takes every `CERTIFICATE` block it can parse and passes over the rest in
//! silence; only a bundle without a single certificate is an error, and then every call of the hook fails
//! (client-go `transport.rootCertPool`). A stricter reader would call healthy hooks broken.

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::taken::TakenChains;
use crate::domain::time::Time;
use crate::io::client::certificate::{blocks, may_sign};

/// At most this many certificates of one bundle are used. etcd's limit of 1.5 MiB per object allows a few
/// thousand; real bundles hold a handful.
const MOST_CERTIFICATES: usize = 1_000;

#[derive(Debug, Clone)]
pub(super) struct Anchor {
    pub(super) der: CertificateDer<'static>,
    /// What the verifier needs of it; `None` when our library cannot read what Go's can.
    pub(super) trust: Option<TrustAnchor<'static>>,
    /// Seconds since the epoch.
    pub(super) not_before: i64,
    /// Seconds since the epoch.
    pub(super) not_after: i64,
    /// Whether Go lets it sign another certificate.
    pub(super) may_sign: bool,
}

impl Anchor {
    /// Whether `now`, in seconds since the epoch, lies within its dates.
    pub(super) const fn in_force(&self, now: i64) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

#[derive(Debug, Default)]
pub(super) struct Bundle {
    /// Its certificates in their order; empty when the bundle is junk.
    pub(super) anchors: Vec<Anchor>,
    /// Chains that it has verified.
    pub(super) taken: TakenChains,
}

impl Bundle {
    /// Reads the text of a `caBundle`.
    pub(super) fn read(pem: &[u8]) -> Self {
        let anchors = blocks(pem).filter_map(|der| anchor(der.into()));
        Self {
            anchors: anchors.take(MOST_CERTIFICATES).collect(),
            taken: TakenChains::default(),
        }
    }

    /// When its last certificate expires: then it verifies nothing any more. `None` when it is junk.
    pub(super) fn latest_end(&self) -> Option<Time> {
        let ends = self.anchors.iter().map(|anchor| anchor.not_after);
        ends.max().map(Time::from_unix_seconds)
    }
}

fn anchor(der: CertificateDer<'static>) -> Option<Anchor> {
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let may_sign = may_sign(&certificate);
    let mut store = RootCertStore::empty();
    let trust = match store.add(der.clone()) {
        Ok(()) => store.roots.pop(),
        Err(_) => None,
    };
    Some(Anchor {
        der,
        trust,
        not_before,
        not_after,
        may_sign,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn certificate(ca: IsCa) -> String {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["a.b.svc".to_owned()]).expect("parameters");
        params.is_ca = ca;
        params.self_signed(&key).expect("a certificate").pem()
    }

    fn read(pem: &[u8]) -> Vec<Anchor> {
        Bundle::read(pem).anchors
    }

    fn authority() -> String {
        certificate(IsCa::Ca(BasicConstraints::Unconstrained))
    }

    #[test]
    fn junk_between_and_inside_blocks_is_passed_over() {
        let (first, second) = (authority(), authority());
        let bundle = format!(
            "# my own notes\n{first}\n-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydA==\n-----END CERTIFICATE-----\n\
             -----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n\
             -----BEGIN CERTIFICATE-----\ncut off\n{second}\u{fffd}\n"
        );
        assert_eq!(read(bundle.as_bytes()).len(), 2);
    }

    #[test]
    fn carriage_returns_do_not_matter() {
        assert_eq!(read(authority().replace('\n', "\r\n").as_bytes()).len(), 1);
    }

    #[test]
    fn a_block_with_headers_does_not_count() {
        let bundle = authority().replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1);
        assert!(read(bundle.as_bytes()).is_empty());
    }

    #[test]
    fn a_bundle_of_one_line_feed_is_junk() {
        assert!(read(b"\n").is_empty());
        assert!(read(b"").is_empty());
        assert!(read(&[0xff; 100]).is_empty());
    }

    #[test]
    fn only_an_authority_may_vouch_for_another() {
        assert!(read(authority().as_bytes())[0].may_sign);
        assert!(!read(certificate(IsCa::NoCa).as_bytes())[0].may_sign);
        assert!(!read(certificate(IsCa::ExplicitNoCa).as_bytes())[0].may_sign);
    }

    #[test]
    fn a_bundle_ends_with_the_last_of_its_certificates() {
        let mut bundle = Bundle::read(format!("{}{}", authority(), authority()).as_bytes());
        (bundle.anchors[0].not_after, bundle.anchors[1].not_after) = (-5, 1_000);
        assert_eq!(bundle.latest_end(), Some(Time::from_unix_millis(1_000_000)));
        assert_eq!(Bundle::default().latest_end(), None);
        bundle.anchors[1].not_after = -7;
        assert_eq!(bundle.latest_end(), Some(Time::default()));
    }
}
