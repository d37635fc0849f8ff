//! Refused canaries, as far as they speak against one hook.

use super::Case;
use crate::domain::canaries::Named;
use crate::domain::hook::Hook;

/// A refused canary that named the hook.
pub(super) struct Accusation<'a> {
    pub(super) named: Named<'a>,
    /// It cannot mean another hook of the same name.
    pub(super) sure: bool,
}

/// The refusals that may mean this hook. The message has no configuration in it, but mostly the URL called.
pub(super) fn accusations<'a>(case: &'a Case<'_>) -> Vec<Accusation<'a>> {
    let named = case.canaries.naming(case.webhook, case.now);
    named
        .filter_map(|named| {
            let at = |hook: &Hook| {
                let url = named.failure.url.as_deref();
                url.is_some_and(|url| hook.is_called_at(url))
            };
            let (ours, theirs) = (
                case.hook.is_some_and(at),
                case.homonyms.iter().any(|hook| at(hook)),
            );
            match (ours, theirs) {
                (false, true) => None,
                (true, false) => Some(Accusation { named, sure: true }),
                _ => Some(Accusation {
                    named,
                    sure: case.homonyms.is_empty(),
                }),
            }
        })
        .collect()
}

/// The newest of them.
pub(super) fn latest<'a>(named: &'a [Accusation<'_>]) -> Option<&'a Named<'a>> {
    let named = named.iter().map(|accusation| &accusation.named);
    named.max_by_key(|named| named.started)
}
