//! Files: which daemon is trusted, and what it is shown.

use std::io::{Error, Result as IoResult};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::AsyncReadExt;

use super::DaemonFiles;

/// A larger file is none of these.
const MAX_FILE: u64 = 1 << 20;

/// A file cannot be used, or TLS cannot be had with it.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file.
    #[error("{} cannot be used: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// What they hold does not go together, or the system has no authorities.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

fn unusable(path: &Path, why: impl ToString) -> TrustError {
    TrustError::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    let content: IoResult<Vec<u8>> = async {
        // Opening a pipe would wait for somebody to write into it.
        if !tokio::fs::metadata(path).await?.is_file() {
            return Err(Error::other("it is no file"));
        }
        let mut content = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(MAX_FILE + 1).read_to_end(&mut content).await?;
        if content.len() as u64 > MAX_FILE {
            Err(Error::other("it is larger than 1 MiB"))
        } else {
            Ok(content)
        }
    }
    .await;
    content.map_err(|error| unusable(path, error))
}

async fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let content = read(path).await?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let found = found.map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        Err(unusable(path, "it has no certificate in it"))
    } else {
        Ok(found)
    }
}

/// The value of `Authorization` for the token in a file.
pub(super) async fn token(path: &Path) -> Result<HeaderValue, TrustError> {
    let content = read(path).await?;
    let token = content.trim_ascii();
    if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
        return Err(unusable(path, "it holds no token"));
    }
    let mut value =
        HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|error| unusable(path, error))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What TLS trusts and shows.
pub(super) async fn client(files: &DaemonFiles) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match &files.ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let (added, _) = roots.add_parsable_certificates(certificates(path).await?);
            if added == 0 {
                return Err(unusable(path, "it has no certificate that can be used"));
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_platform_verifier()?,
    };
    let Some((certificate, key)) = &files.certificate else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain = certificates(certificate).await?;
    let pem = read(key).await?;
    let pem = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| unusable(key, error))?;
    Ok(Arc::new(builder.with_client_auth_cert(chain, pem)?))
}
