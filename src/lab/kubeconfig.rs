//! The kubeconfig of a lab.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// A kubeconfig for the holder of a token, who trusts this authority (PEM) to name the API server at this address.
pub fn kubeconfig(authority: &str, address: SocketAddr, token: &str) -> String {
    let ca = BASE64_STANDARD.encode(authority);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: hookwatch-lab\n\
         \x20 cluster:\n\
         \x20   server: https://{address}\n\
         \x20   certificate-authority-data: {ca}\n\
         users:\n\
         - name: lab-admin\n\
         \x20 user:\n\
         \x20   token: {token}\n\
         contexts:\n\
         - name: hookwatch-lab\n\
         \x20 context:\n\
         \x20   cluster: hookwatch-lab\n\
         \x20   user: lab-admin\n\
         current-context: hookwatch-lab\n"
    )
}
