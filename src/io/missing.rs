//! Permissions and objects that are missing but not essential. Logs one line when one is found missing and one when it is
//! available again.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::lock;

/// The features that are unavailable now, by name.
#[derive(Debug, Default)]
pub(super) struct MissingFeatures(Mutex<BTreeSet<String>>);

impl MissingFeatures {
    /// Records whether `what` is missing, with the reason, or available (`None`), and logs a change. Returns whether it changed.
    pub(super) fn note(&self, what: &str, why: Option<&str>) -> bool {
        let mut missing = lock(&self.0);
        let changed = if why.is_some() {
            missing.insert(what.to_owned())
        } else {
            missing.remove(what)
        };
        drop(missing);
        match why {
            Some(why) if changed => tracing::warn!(why, "hookwatch continues without {what}"),
            None if changed => tracing::info!("hookwatch has {what} again"),
            _ => {}
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_once_until_it_is_there_again() {
        let missing = MissingFeatures::default();
        assert!(!missing.note("a", None), "nothing was missing");
        assert!(missing.note("a", Some("forbidden")));
        assert!(!missing.note("a", Some("forbidden")), "told twice");
        assert!(
            missing.note("b", Some("forbidden")),
            "another one is another line"
        );
        assert!(missing.note("a", None));
        assert!(missing.note("a", Some("forbidden")), "it is news again");
    }
}
