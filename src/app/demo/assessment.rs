//! What the daemon's `GET /api/v1/assessment` says, read as leniently as any stranger would read it.

use serde::{Deserialize, Deserializer};

/// One assessment.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedAssessment {
    /// The control plane as a whole.
    #[serde(deserialize_with = "or_default")]
    pub control_plane: ParsedControlPlane,
    /// Every hook the daemon knows of.
    #[serde(deserialize_with = "or_default")]
    pub hooks: Vec<ParsedVerdict>,
    /// What is done about culprits.
    #[serde(deserialize_with = "or_default")]
    pub breaker: ParsedBreaker,
    /// The daemon among its replicas.
    #[serde(deserialize_with = "or_default")]
    pub replica: ParsedReplica,
    /// What it would have changed before.
    #[serde(deserialize_with = "or_default")]
    pub audit: ParsedAudit,
}

/// What the daemon would have changed before.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedAudit {
    /// The worst first.
    #[serde(deserialize_with = "or_default")]
    pub findings: Vec<ParsedFinding>,
}

/// One of these.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedFinding {
    /// Kind, configuration and webhook between slashes.
    #[serde(deserialize_with = "or_default")]
    pub object: String,
    /// What would happen, and what to do.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}

/// One daemon among its replicas.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedReplica {
    /// Whether it leads.
    pub role: String,
}

/// What is done about culprits.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedBreaker {
    /// Hooks that it has to do with.
    #[serde(deserialize_with = "or_default")]
    pub hooks: Vec<ParsedStanding>,
}

/// Where one hook stands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedStanding {
    /// The name of the webhook.
    #[serde(deserialize_with = "or_default")]
    pub webhook: String,
    /// `enforcing`, `bypassed`, `probation` or `contested`.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// How far it is bypassed.
    pub rung: Option<String>,
    /// Which guard rail holds the breaker back.
    pub held_back: Option<String>,
    /// Whether every API server goes by that.
    #[serde(deserialize_with = "or_default")]
    pub effective: bool,
    /// A sentence.
    #[serde(deserialize_with = "or_default")]
    pub words: String,
}

/// The control plane as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedControlPlane {
    /// `Flowing`, `Delayed`, `Blocked` or `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub writes: String,
    /// A sentence.
    #[serde(deserialize_with = "or_default")]
    pub summary: String,
    /// Trouble that no hook is behind.
    pub not_a_hook: Option<ParsedNonHookCause>,
}

/// Trouble that no hook is behind.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedNonHookCause {
    /// For instance `EtcdSlow`.
    #[serde(deserialize_with = "or_default")]
    pub cause: String,
    /// 0 to 1.
    pub confidence: Option<f64>,
    /// Sentences.
    #[serde(deserialize_with = "or_default")]
    pub evidence: Vec<String>,
}

/// The verdict on one hook.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParsedVerdict {
    /// `Validating` or `Mutating`.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// The name of the configuration.
    #[serde(deserialize_with = "or_default")]
    pub configuration: String,
    /// The name of the webhook.
    #[serde(deserialize_with = "or_default")]
    pub webhook: String,
    /// `Healthy`, `Suspect`, `Failing` or `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub health: String,
    /// The mechanism, for instance `Hanging`.
    pub cause: Option<String>,
    /// `None`, `Blocking`, `Delaying` or `FailingOpen`.
    pub effect: Option<String>,
    /// 0 to 1.
    pub confidence: Option<f64>,
    /// A sentence.
    #[serde(deserialize_with = "or_default")]
    pub summary: String,
    /// Sentences.
    #[serde(deserialize_with = "or_default")]
    pub evidence: Vec<String>,
    /// How a match condition of hookwatch's limits what is shown to it.
    pub bypass: Option<String>,
}

impl ParsedVerdict {
    /// Whether the daemon finds nothing wrong with it.
    pub fn is_healthy(&self) -> bool {
        self.health == "Healthy"
    }

    /// Whether no user's write is shown to it, so that it harms none.
    pub fn is_uncalled(&self) -> bool {
        matches!(self.bypass.as_deref(), Some("skip" | "probation"))
    }

    /// Whether the daemon says that it does not do its work.
    pub fn is_failing(&self) -> bool {
        self.health == "Failing"
    }
}

/// `null` reads as the default, as an absent field does.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_null_and_unknown_fields_are_no_reason_to_stop() {
        let text = r#"{"at": "2026-11-21T00:11:02.156Z", "novel": [1], "control_plane": {"writes": "Blocked",
            "summary": null, "not_a_hook": null},
            "hooks": [{"webhook": "w", "health": "Failing", "cause": "Hanging", "confidence": null}, {}]}"#;
        let assessment: ParsedAssessment = serde_json::from_str(text).unwrap();
        assert_eq!(assessment.control_plane.writes, "Blocked");
        assert_eq!(assessment.control_plane.not_a_hook, None);
        assert!(assessment.hooks[0].is_failing());
        assert_eq!(assessment.hooks[1], ParsedVerdict::default());
        assert_eq!(
            serde_json::from_str::<ParsedAssessment>("{}").unwrap(),
            ParsedAssessment::default()
        );
    }
}
