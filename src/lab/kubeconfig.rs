//! The kubeconfig of a lab.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// A kubeconfig with a token, for the API server at this address; `authority` (PEM) signed its certificate.
pub fn kubeconfig(authority: &str, address: SocketAddr, token: &str) -> String {
    let ca = BASE64_STANDARD.encode(authority);
    format!(
        r"apiVersion: v1
kind: Config
clusters:
- name: hookwatch-lab
  cluster:
    server: https://{address}
    certificate-authority-data: {ca}
users:
- name: lab-admin
  user:
    token: {token}
contexts:
- name: hookwatch-lab
  context:
    cluster: hookwatch-lab
    user: lab-admin
current-context: hookwatch-lab
"
    )
}
