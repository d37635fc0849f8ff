//! TLS for the daemon's own server, with client certificates where an authority for them is given.
//!
//! The files are reread periodically, as certificates in the cluster are renewed every few weeks. If the new files are
//! unusable, the last usable ones stay in force.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::io::{file, lock};

/// How long the files are used before they are read again.
const REREAD_AFTER: Duration = Duration::from_secs(60);

/// Where certificates and keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The serving certificate with its chain, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// The authority that signs client certificates, PEM; `None` when none are asked for.
    pub client_ca: Option<PathBuf>,
}

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of the kind that is needed.
    #[error("{path} cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// The certificate and the key do not match, or TLS cannot use one of them.
    #[error("the certificate {path} and its key cannot be used together")]
    Pair {
        /// The serving certificate.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authority for client certificates holds no certificate.
    #[error("{path} cannot be an authority for client certificates: {why}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// The server's TLS configuration, read again from its files after 60 s.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    held: Mutex<(Instant, Arc<ServerConfig>)>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let config = read(&files)?;
        Ok(Self {
            files,
            held: Mutex::new((Instant::now(), config)),
        })
    }

    /// The configuration for the next connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut held = lock(&self.held);
        if held.0.elapsed() >= REREAD_AFTER {
            held.0 = Instant::now();
            match read(&self.files) {
                Ok(config) => held.1 = config,
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the previous certificate stays in use"
                ),
            }
        }
        Arc::clone(&held.1)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem(path, |text| CertificateDer::pem_slice_iter(text).collect())
}

fn pem<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, pem::Error>) -> Result<T, TlsError> {
    let text = file::read(path, file::LONGEST_SECRET).map_err(pem::Error::Io);
    text.and_then(|text| parse(&text))
        .map_err(|source| TlsError::File {
            path: path.to_owned(),
            source,
        })
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = pem(&files.key, PrivateKeyDer::from_pem_slice)?;
    let pair = |source| TlsError::Pair {
        path: files.certificate.clone(),
        source,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let authority = |why: String| TlsError::Authority {
                path: path.clone(),
                why,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| authority(error.to_string()))?;
            }
            // The kubelet and Prometheus connect without a client certificate; access is decided for each request.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| authority(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write(folder: &Path, host: &str) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.join("tls.crt"), certificate.pem()).expect("a file");
        std::fs::write(folder.join("tls.key"), key.serialize_pem()).expect("a file");
    }

    fn files(folder: &Path) -> TlsFiles {
        TlsFiles {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            client_ca: None,
        }
    }

    #[test]
    fn renewed_files_are_taken_up_and_broken_ones_leave_the_last_good_ones_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "first");
        let tls = Tls::open(files(folder.path())).expect("a pair");
        let first = tls.config();
        let later = || {
            let mut held = tls.held.lock().expect("no poison");
            held.0 = held
                .0
                .checked_sub(REREAD_AFTER)
                .expect("the machine runs for longer");
        };
        write(folder.path(), "second");
        assert!(Arc::ptr_eq(&first, &tls.config()), "not before its time");
        later();
        let second = tls.config();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(folder.path().join("tls.key"), "half of a k").expect("a file");
        later();
        assert!(Arc::ptr_eq(&second, &tls.config()));
    }

    #[test]
    fn what_cannot_be_used_is_said_by_the_name_of_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = Tls::open(files(folder.path())).expect_err("no file");
        assert!(missing.to_string().contains("tls.crt"), "{missing}");
        write(folder.path(), "first");
        let key = std::fs::read(folder.path().join("tls.key")).expect("a file");
        write(folder.path(), "second");
        std::fs::write(folder.path().join("tls.key"), key).expect("a file");
        let pair = Tls::open(files(folder.path())).expect_err("the key of another");
        assert!(matches!(pair, TlsError::Pair { .. }), "{pair}");
        let ca = TlsFiles {
            client_ca: Some(folder.path().join("ca.crt")),
            ..files(folder.path())
        };
        write(folder.path(), "third");
        std::fs::write(folder.path().join("ca.crt"), "nothing").expect("a file");
        assert!(
            Tls::open(ca).is_err(),
            "an authority without a certificate lets nobody in"
        );
    }
}
