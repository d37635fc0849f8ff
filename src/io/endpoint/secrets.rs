//! What is read from files: authorities, certificates, keys, passwords, tokens.

use std::io::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use super::{Auth, EndpointError};
use crate::io::file;

/// The contents of the files that a client is made of, with their names for error messages.
#[derive(PartialEq, Eq)]
pub(in crate::io) struct Material {
    authorities: Option<File>,
    certificate: Option<(File, File)>,
}

#[derive(PartialEq, Eq)]
struct File {
    name: String,
    content: Vec<u8>,
}

impl File {
    async fn read(path: &Path) -> Result<Self, EndpointError> {
        let name = path.display().to_string();
        let path = path.to_owned();
        let content = tokio::task::spawn_blocking(move || {
            // Opening a pipe waits for a writer.
            if !std::fs::metadata(&path)?.is_file() {
                return Err(Error::other("is no file"));
            }
            file::read(&path, file::LONGEST_SECRET)
        });
        let content = content.await.map_err(Error::other).flatten();
        match content {
            Ok(content) => Ok(Self { name, content }),
            Err(error) => Err(EndpointError::Unusable {
                file: name,
                why: error.to_string(),
            }),
        }
    }

    fn unusable(&self, why: impl Into<String>) -> EndpointError {
        EndpointError::Unusable {
            file: self.name.clone(),
            why: why.into(),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.content).collect();
        let found = found.map_err(|_| self.unusable("is no PEM"))?;
        if found.is_empty() {
            Err(self.unusable("has no certificate in it"))
        } else {
            Ok(found)
        }
    }

    /// A secret that is one line of text.
    fn secret(&self) -> Result<&str, EndpointError> {
        let text = std::str::from_utf8(&self.content).map_err(|_| self.unusable("is no text"))?;
        let text = text.trim_matches(['\r', '\n']);
        match text {
            "" => Err(self.unusable("is empty")),
            text => Ok(text),
        }
    }
}

impl Material {
    /// Reads the PEM files with the authorities, and with the client certificate and its key.
    pub(in crate::io) async fn read(
        ca: Option<&Path>,
        certificate: Option<&(PathBuf, PathBuf)>,
    ) -> Result<Self, EndpointError> {
        let authorities = match ca {
            Some(file) => Some(File::read(file).await?),
            None => None,
        };
        let certificate = match certificate {
            Some((certificate, key)) => Some((File::read(certificate).await?, File::read(key).await?)),
            None => None,
        };
        Ok(Self {
            authorities,
            certificate,
        })
    }

    /// The TLS configuration, with its authorities and its client certificate. Without encryption (`encrypted` false) it needs no
    /// authorities.
    pub(in crate::io) fn tls(&self, encrypted: bool) -> Result<ClientConfig, EndpointError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let ours =
            |error: rustls::Error| EndpointError::Unreachable(format!("TLS cannot be set up: {error}"));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ours)?;
        let builder = match &self.authorities {
            Some(file) => {
                let mut roots = RootCertStore::empty();
                let (added, _) = roots.add_parsable_certificates(file.certificates()?);
                if added == 0 {
                    return Err(file.unusable("has no certificate that can be used"));
                }
                builder.with_root_certificates(roots)
            }
            // A bare container has no authorities, and without TLS needs none.
            None if !encrypted => builder.with_root_certificates(RootCertStore::empty()),
            None => builder.with_platform_verifier().map_err(ours)?,
        };
        match &self.certificate {
            None => Ok(builder.with_no_client_auth()),
            Some((certificate, key)) => {
                let chain = certificate.certificates()?;
                let parsed = PrivateKeyDer::from_pem_slice(&key.content)
                    .map_err(|_| key.unusable("has no private key in it"))?;
                builder
                    .with_client_auth_cert(chain, parsed)
                    .map_err(|error| key.unusable(format!("does not go with the certificate: {error}")))
            }
        }
    }
}

/// The value of the header `Authorization`.
pub(in crate::io) async fn authorization(auth: &Auth) -> Result<Option<HeaderValue>, EndpointError> {
    let (file, value) = match auth {
        Auth::None => return Ok(None),
        Auth::Basic {
            username,
            password_file,
        } => {
            let file = File::read(password_file).await?;
            let pair = format!("{username}:{}", file.secret()?);
            (file, format!("Basic {}", BASE64_STANDARD.encode(pair)))
        }
        Auth::Bearer { token_file } => {
            let file = File::read(token_file).await?;
            let token = file.secret()?.trim();
            // A file with more than one word is probably the wrong one; no server must see its content.
            if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(file.unusable("has no token in it"));
            }
            let value = format!("Bearer {token}");
            (file, value)
        }
    };
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| file.unusable("has characters in it that a header cannot have"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}
