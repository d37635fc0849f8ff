//! The breaker's part of the ledger.

use super::{LedgerObject, LedgerUnread};
use crate::domain::act::breaker::{Book, ResourceVersion, WriteOutcome};
use crate::domain::act::leadership::BidOutcome;
use crate::domain::act::ledger::ANNOTATION;
use crate::io::client::request::RequestError;
use crate::io::coordination::written;

impl LedgerObject {
    /// The ledger's version and the book; `None` for the version when there is no ledger.
    ///
    /// # Errors
    /// [`LedgerUnread`].
    pub async fn read_book(&self) -> Result<(Option<ResourceVersion>, Book), LedgerUnread> {
        let Some((_, version, reading)) = self.fetch().await? else {
            return Ok((None, Book::default()));
        };
        let book = reading.book().map_err(|why| {
            LedgerUnread::Unusable(format!(
                "annotation {ANNOTATION} of {} cannot be read: {why}; where nothing replaces it, remove it (a freeze goes with it)",
                Self::what()
            ))
        })?;
        Ok((Some(ResourceVersion::new(&version)), book))
    }

    /// Replaces the book in a version of the ledger that was read, or creates the ledger where there was none. Its other parts
    /// stay.
    pub async fn write_book(&self, precondition: Option<&ResourceVersion>, book: &Book) -> WriteOutcome {
        let precondition = precondition.map(|version| &*version.0);
        let Some(reading) = self.reading_of(precondition) else {
            return WriteOutcome::Conflict;
        };
        let Some(text) = reading.with_book(book) else {
            let why = format!("annotation {ANNOTATION} of {} would grow too large", Self::what());
            return WriteOutcome::Refused(why.into());
        };
        let answer = self.put(precondition, &text).await;
        if matches!(answer, Err(RequestError::Refused { status: 429, .. })) {
            // Flow control refuses before anything is done. Like after a conflict, the caller reads and writes again.
            return WriteOutcome::Conflict;
        }
        match written(answer, &Self::what(), precondition.is_none()) {
            (BidOutcome::Done { version }, _) => WriteOutcome::Written(ResourceVersion::new(&version)),
            (BidOutcome::Conflict, _) => WriteOutcome::Conflict,
            (BidOutcome::Refused, said) => WriteOutcome::Refused(said.unwrap_or_default().into()),
            (BidOutcome::Unclear, _) => WriteOutcome::Ambiguous,
        }
    }
}
