//! The section `serve`: the HTTP server's separate listener for metrics, its token and its TLS.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Section;
use crate::io::http::{self, Access, Listening, Tls, TlsFiles};

/// The settings of the HTTP server, except for its main address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServeConfig {
    /// An address for `/metrics`, `/live` and `/ready` alone; `None` to serve them with everything else.
    pub metrics: Option<SocketAddr>,
    /// File with the bearer token for the page and the API; `None` for no token.
    pub token_file: Option<PathBuf>,
    /// TLS; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
}

impl ServeConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let metrics = section.text("metricsListen");
        let metrics = metrics.and_then(|text| section.address("metricsListen", &text, "0.0.0.0:9881"));
        let token_file = section.text("tokenFile").map(PathBuf::from);
        let certificate = section.text("certificateFile").map(PathBuf::from);
        let key = section.text("keyFile").map(PathBuf::from);
        let client_ca = section.text("clientCAFile").map(PathBuf::from);
        match (&certificate, &key) {
            (Some(_), None) => section.error("keyFile", "is missing: certificateFile is given"),
            (None, Some(_)) => section.error("certificateFile", "is missing: keyFile is given"),
            (None, None) if client_ca.is_some() => {
                section.error("certificateFile", "is missing: client certificates need TLS");
            }
            _ => {}
        }
        let tls = certificate.zip(key).map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca,
        });
        Self {
            metrics,
            token_file,
            tls,
        }
    }

    /// Opens the files, then listens on `main` and on the separate address for metrics, if there is one.
    ///
    /// # Errors
    /// When a file cannot be used or an address cannot be listened on.
    pub async fn listen(&self, main: SocketAddr) -> anyhow::Result<Listening> {
        let client_certificates = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let access = Access::new(self.token_file.as_deref(), client_certificates)?;
        let tls = self.tls.clone().map(Tls::open).transpose()?;
        let metrics = match self.metrics {
            Some(address) => Some(http::listen(address, "serve.metricsListen").await?),
            None => None,
        };
        Ok(Listening {
            main: http::listen(main, "--listen").await?,
            metrics,
            tls,
            access,
            cluster: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigArguments};
    use super::*;

    #[test]
    fn nothing_is_asked_for_by_default_and_half_of_a_pair_is_a_mistake() {
        let parse = |text| Config::parse(text, &ConfigArguments::default());
        assert_eq!(parse("").expect("valid").serve, ServeConfig::default());
        let text = "serve: {metricsListen: '0.0.0.0:9881', tokenFile: /t, certificateFile: /c, keyFile: /k, clientCAFile: /a}";
        let serve = parse(text).expect("valid").serve;
        assert_eq!(serve.metrics.map(|address| address.port()), Some(9881));
        assert!(serve.tls.is_some_and(|tls| tls.client_ca.is_some()));
        let keys = |text| -> Vec<String> {
            let errors = parse(text).expect_err("a mistake");
            errors.into_iter().map(|error| error.key).collect()
        };
        assert_eq!(keys("serve: {keyFile: /k}"), ["serve.certificateFile"]);
        assert_eq!(keys("serve: {certificateFile: /c}"), ["serve.keyFile"]);
        assert_eq!(keys("serve: {clientCAFile: /a}"), ["serve.certificateFile"]);
        assert_eq!(keys("serve: {metricsListen: here}"), ["serve.metricsListen"]);
    }
}
