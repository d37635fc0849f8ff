//! The second copy of what a bypass has changed, which stands in the ledger, for where the first, on the object itself, is
//! gone or spoilt.

use serde_json::Value;

use super::request::list;
use super::{Hand, Way, one};
use crate::domain::bypass::edit::{Author, Plan, Refusal, Wish, plan, plan_with};
use crate::domain::bypass::{Fields, LEDGER};
use crate::domain::hook::{HookId, HookKind};
use crate::domain::ledger::{ANNOTATION, Reading};

impl Hand {
    /// What has to be written to an object as it was read, by the second copy where that is needed.
    ///
    /// # Errors
    /// When it must not or cannot be done.
    pub async fn plan(
        &self,
        object: &Value,
        hook: &HookId,
        wish: &Wish,
        author: &Author,
    ) -> Result<Plan, Refusal> {
        Way::new(self).plan(object, hook, wish, author).await
    }
}

impl Way<'_> {
    pub(super) async fn plan(
        &mut self,
        object: &Value,
        hook: &HookId,
        wish: &Wish,
        author: &Author,
    ) -> Result<Plan, Refusal> {
        let now = (self.hand.clock)();
        let planned = plan(object, &hook.webhook, wish, author, now);
        let refusal = match planned {
            Err(refusal @ (Refusal::OriginalUnknown(_) | Refusal::InvalidOriginal(_))) => refusal,
            planned => return planned,
        };
        if self.copy.is_none() {
            self.copy = Some(self.second_copy(hook).await);
        }
        match self.copy.as_ref().and_then(Option::as_ref) {
            Some(copy) => plan_with(object, &hook.webhook, wish, author, now, Some(copy)),
            None => Err(refusal),
        }
    }

    /// What the ledger says of a hook, if it can be read and says something that can be put back.
    async fn second_copy(&mut self, hook: &HookId) -> Option<Fields> {
        let target = list(HookKind::Validating, Some(LEDGER));
        let ledger = one(self.read(&target).await.ok()?, LEDGER)?;
        let reading = Reading::of(ledger["metadata"]["annotations"][ANNOTATION].as_str());
        Fields::read(&hook.webhook, reading.originals().get(hook)?).ok()
    }
}
