//! The command that applies a finding's patch.

use super::Finding;

/// Longest patch, in bytes, that is put into a command: a longer line is unreadable.
const MAX_PATCH: usize = 600;

/// How a finding's patch is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchCommand {
    /// A complete `kubectl patch` command.
    Line(String),
    /// The patch is too long for a command line, and reports have it as JSON only.
    File {
        /// The size of the patch.
        bytes: usize,
        /// Kind and name, as arguments of `kubectl patch`.
        object: String,
    },
}

impl Finding {
    /// The command that applies its patch; `None` if there is no patch, or if the configuration's name is invalid in Kubernetes.
    pub fn command(&self) -> Option<PatchCommand> {
        let mut parts = self.object.split('/');
        let (patch, kind, name) = (self.patch.as_ref()?, parts.next()?, parts.next()?);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':');
        if !name.chars().all(plain) {
            return None;
        }
        let (patch, object) = (patch.to_string(), format!("{} {name}", kind.to_lowercase()));
        if patch.len() > MAX_PATCH {
            return Some(PatchCommand::File {
                bytes: patch.len(),
                object,
            });
        }
        let patch = patch.replace('\'', r"'\''");
        Some(PatchCommand::Line(format!(
            "kubectl patch {object} --type json -p '{patch}'"
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::findings::LEASE_TIMEOUT;

    fn finding(name: &str, patch: serde_json::Value) -> Finding {
        let object = format!("ValidatingWebhookConfiguration/{name}/w");
        Finding::new(LEASE_TIMEOUT, object, "").with(Some(patch))
    }

    #[test]
    fn a_patch_is_a_command_whatever_stands_in_it_and_none_for_a_name_that_a_shell_would_read() {
        let quoted = finding("policy", json!([{"value": "it's"}])).command();
        let line =
            r#"kubectl patch validatingwebhookconfiguration policy --type json -p '[{"value":"it'\''s"}]'"#;
        assert_eq!(quoted, Some(PatchCommand::Line(line.to_owned())));
        for hostile in ["a;reboot", "$(x)", "a b", "`x`", "A\nB"] {
            assert_eq!(finding(hostile, json!([])).command(), None, "{hostile:?}");
        }
        let long = finding("policy", json!(["x".repeat(MAX_PATCH)])).command();
        assert!(
            matches!(long, Some(PatchCommand::File { bytes, .. }) if bytes > MAX_PATCH),
            "{long:?}"
        );
    }
}
