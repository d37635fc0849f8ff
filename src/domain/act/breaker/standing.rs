//! What the assessment publishes about each hook that the breaker deals with.

use serde::{Deserialize, Serialize};

use super::action::HookState;
use super::policy::Rung;
use crate::cluster::hook::HookId;
use crate::time::Time;

/// One hook as the breaker sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookStanding {
    /// The hook.
    #[serde(flatten)]
    pub hook: HookId,
    /// `enforcing`, `bypassed`, `probation`, `contested` or `ignored`.
    pub state: String,
    /// How far it is bypassed.
    pub rung: Option<Rung>,
    /// Whether the bypass, if any, has propagated to every API server.
    pub effective: bool,
    /// Since when it is in this state: for a bypass according to the object, else as observed by this daemon.
    pub since: Time,
    /// The rung at which it would be bypassed if the mode permitted that.
    pub would_bypass: Option<Rung>,
    /// Which guard rail holds the breaker back.
    pub held_back: Option<String>,
    /// The last message about it.
    pub words: String,
    /// Which objects were admitted without review during its last bypass, as a sentence; `None` when there were none, or
    /// they were not listed yet.
    #[serde(default)]
    pub unchecked: Option<String>,
}

impl HookStanding {
    /// A hook in a state. Only an ignored one has a message yet.
    pub fn new(hook: HookId, state: HookState, since: Time) -> Self {
        let (rung, effective) = match state {
            HookState::Bypassed { rung, effective } => (Some(rung), effective),
            _ => (None, false),
        };
        let words = match state {
            HookState::Ignored => format!(
                "Its failures are ignored, by `hookwatch break` or by an older release. An administrator ends it: hookwatch restore {}/{}.",
                hook.configuration, hook.webhook
            ),
            _ => String::new(),
        };
        Self {
            hook,
            state: state.as_str().to_owned(),
            rung,
            effective,
            since,
            would_bypass: None,
            held_back: None,
            words,
            unchecked: None,
        }
    }

    /// The rung at which users' writes bypass the hook now. On probation all of them do: only dry runs of hookwatch reach
    /// it.
    pub fn skipped(&self) -> Option<Rung> {
        let probation = self.state == HookState::Probation.as_str();
        self.rung.or_else(|| probation.then_some(Rung::Skip))
    }
}
